//! Processes and threads: what each does, in columns of metrics.

mod columns;
mod rows;

use ratatui::buffer::Buffer;
use serde_json::Value;

use self::rows::{Kind, Line};
use super::list::Selection;
use super::{Change, Focus, Reply, Rows, Screen, View};
use crate::keys::{Action, Binding, bind};
use crate::model::{Format, Slot};
use crate::view::{Cell, Head, Sheet, spark};

/// Keys of this screen.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(Action::SortNext, "sort-next", &[">", "s"], "sort by the next column"),
    bind(Action::SortPrevious, "sort-previous", &["<"], "sort by the column before"),
    bind(Action::SortReverse, "reverse", &["r"], "the other way round"),
    bind(Action::Mode, "rows", &["v"], "processes, threads, the tree of processes, or control groups"),
    bind(Action::Fold, "fold", &["x"], "fold and unfold a branch of the tree"),
    bind(Action::Filter, "filter", &["&"], "show only what a condition holds for: a word, or an expression"),
    bind(Action::HideIdle, "hide-idle", &["i"], "leave out what did not run; again to show it"),
    bind(Action::HideKernel, "hide-kernel", &["K"], "leave out threads of the kernel; again to show them"),
    bind(Action::Columns, "columns", &["C"], "choose columns: Enter shows or hides one, < and > move it"),
];

/// Width of a number's column.
const NUMBER: u16 = 6;
/// Least width of names beside small pictures.
const NAME: u16 = 16;

/// The screen.
#[derive(Default)]
pub(crate) struct Processes {
    selection: Selection,
    /// Processes whose branch of the tree is folded.
    folded: std::collections::BTreeSet<u32>,
    /// The list of columns is open.
    columns: Option<Selection>,
}

impl Screen for Processes {
    fn draw(&self, view: &View<'_>, buffer: &mut Buffer) {
        let lines = self.lines(view);
        let ids: Vec<u64> = lines.iter().map(Line::id).collect();
        let height = Self::height(view);
        let offset = self.selection.offset(&ids, height);
        let seen = &lines[offset.min(lines.len())..(offset + height).min(lines.len())];
        let mut sheet = self.table(seen, view, view.area.width);
        sheet.offset = offset;
        sheet.total = lines.len();
        sheet.selected = (!lines.is_empty()).then(|| self.selection.place(&ids) - offset);
        sheet.draw(buffer, view.area, view.theme);
        if lines.is_empty() {
            let why = if view.settings.filter.is_some() {
                "nothing passes the filter"
            } else {
                "nothing was seen yet"
            };
            let at = (view.area.x + 1, view.area.y + 2);
            crate::view::put(buffer, at, why, view.area.width, false, view.theme.faint());
        }
        if let Some(selection) = &self.columns {
            columns::draw(selection, view, buffer);
        }
    }

    fn act(&mut self, action: Action, view: &View<'_>) -> Reply {
        if let Some(selection) = &mut self.columns {
            return columns::act(selection, action, view);
        }
        let lines = self.lines(view);
        let ids: Vec<u64> = lines.iter().map(Line::id).collect();
        if self.selection.act(action, &ids, Self::height(view)) {
            return Reply::Done;
        }
        let selected = lines.get(self.selection.place(&ids));
        match action {
            Action::Enter => match selected.map(|line| line.kind) {
                Some(Kind::Process(pid)) => {
                    Reply::Focus(Focus { pid: Some(pid), tid: None }, Some("process"))
                }
                Some(Kind::Thread(pid, tid)) => {
                    Reply::Focus(Focus { pid: Some(pid), tid: Some(tid) }, Some("process"))
                }
                Some(Kind::Cgroup) | None => Reply::Ignored,
            },
            Action::SortNext => Self::sort(view, 1),
            Action::SortPrevious => Self::sort(view, -1),
            Action::SortReverse => Reply::Settings(Change::Reverse),
            Action::Mode => {
                let names = Rows::NAMES;
                let at = names.iter().position(|(_, rows)| *rows == view.settings.rows).unwrap_or(0);
                Reply::Settings(Change::Rows(names[(at + 1) % names.len()].1))
            }
            Action::Fold => {
                if let Some(Kind::Process(pid)) = selected.map(|line| line.kind)
                    && !self.folded.remove(&pid)
                {
                    self.folded.insert(pid);
                }
                Reply::Done
            }
            Action::Filter => Reply::AskFilter,
            Action::HideIdle => Reply::Settings(Change::HideIdle),
            Action::HideKernel => Reply::Settings(Change::HideKernel),
            Action::Columns => {
                self.columns = Some(Selection::default());
                Reply::Done
            }
            _ => Reply::Ignored,
        }
    }

    fn click(&mut self, column: u16, row: u16, view: &View<'_>) -> Reply {
        if self.columns.is_some() {
            return Reply::Ignored;
        }
        if row == 0 {
            let sheet = self.table(&[], view, view.area.width);
            let columns = sheet.columns(view.area.width.saturating_sub(1));
            let hit = columns.iter().find(|(_, x, width)| (*x..x + width).contains(&column));
            let title = hit.map(|(place, ..)| sheet.heads[*place].title.clone());
            return match title.filter(|title| !title.is_empty()) {
                Some(title) if title == view.settings.sort => Reply::Settings(Change::Reverse),
                Some(title) => Reply::Settings(Change::Sort(title)),
                None => Reply::Ignored,
            };
        }
        let lines = self.lines(view);
        let ids: Vec<u64> = lines.iter().map(Line::id).collect();
        let height = Self::height(view);
        let place = self.selection.offset(&ids, height) + usize::from(row) - 1;
        if place >= ids.len() {
            return Reply::Ignored;
        }
        if self.selection.id == Some(ids[place]) {
            return self.act(Action::Enter, view);
        }
        self.selection.select(&ids, place, height);
        Reply::Done
    }

    fn search(&mut self, text: &str, forward: bool, view: &View<'_>) -> Reply {
        let lines = self.lines(view);
        let ids: Vec<u64> = lines.iter().map(Line::id).collect();
        super::found(
            self.selection.search(&ids, Self::height(view), forward, |place| lines[place].contains(text)),
        )
    }

    fn sheet(&self, view: &View<'_>) -> Sheet {
        let lines = self.lines(view);
        self.table(&lines, view, u16::MAX)
    }

    fn back(&mut self) -> bool {
        self.columns.take().is_some()
    }

    fn hints(&self) -> &'static [(Action, &'static str)] {
        if self.columns.is_some() {
            return &[
                (Action::Enter, "show or hide"),
                (Action::SortPrevious, "up"),
                (Action::SortNext, "down"),
                (Action::Back, "close"),
            ];
        }
        &[
            (Action::Enter, "look closer"),
            (Action::SortNext, "sort"),
            (Action::Mode, "rows"),
            (Action::Filter, "filter"),
            (Action::Search, "search"),
            (Action::Columns, "columns"),
        ]
    }
}

impl Processes {
    fn height(view: &View<'_>) -> usize {
        usize::from(view.area.height.saturating_sub(1))
    }

    /// What is shown, in order.
    fn lines<'a>(&self, view: &View<'a>) -> Vec<Line<'a>> {
        rows::lines(view, &self.folded)
    }

    /// Titles by which rows can be sorted.
    fn titles(view: &View<'_>) -> Vec<String> {
        let own = ["pid", "name"].map(str::to_owned);
        view.columns.iter().map(|column| column.title.clone()).chain(own).collect()
    }

    fn sort(view: &View<'_>, step: isize) -> Reply {
        let titles = Self::titles(view);
        let at = titles.iter().position(|title| *title == view.settings.sort).unwrap_or(0);
        let to = at.saturating_add_signed(step).min(titles.len() - 1);
        Reply::Settings(Change::Sort(titles[to].clone()))
    }

    /// The table of these lines for a screen of this width.
    fn table(&self, lines: &[Line<'_>], view: &View<'_>, width: u16) -> Sheet {
        let settings = view.settings;
        let ids = if settings.rows == Rows::Threads { "tid" } else { "pid" };
        let mut heads = vec![Head::number(ids, 7), Head::number("cpu", 3)];
        let spark_width = if width >= 160 { 12 } else { 8 };
        let sparks = Self::sparks(view, width, spark_width);
        for (place, column) in view.columns.iter().enumerate() {
            heads.push(Head::number(&column.title, NUMBER));
            if sparks.contains(&place) {
                heads.push(Head::picture(spark_width));
            }
        }
        heads.push(Head::text("name", 0));
        for head in &mut heads {
            let by = head.title == settings.sort || (settings.sort == "pid" && head.title == "tid");
            head.sorted = by.then_some(settings.ascending);
        }
        let rows = lines.iter().map(|line| Self::row(line, view, &sparks, spark_width.into())).collect();
        Sheet { heads, rows, total: lines.len(), ..Sheet::default() }
    }

    /// Columns with a small picture of the last slots beside them: as many as leave room for names, the first column first, then
    /// those of events.
    fn sparks(view: &View<'_>, width: u16, spark_width: u16) -> Vec<usize> {
        let fixed = 12 + (NUMBER + 1) * view.columns.len() as u16;
        let room = width.saturating_sub(fixed + NAME) / (spark_width + 1);
        let first = (0..view.columns.len()).take(1);
        let of_events = (1..view.columns.len()).filter(|&place| view.columns[place].of_counts);
        let others = (1..view.columns.len())
            .filter(|&place| !view.columns[place].of_counts && view.columns[place].format != Format::Percent);
        first.chain(of_events).chain(others).take(room.into()).collect()
    }

    fn row(line: &Line<'_>, view: &View<'_>, sparks: &[usize], spark_width: usize) -> Vec<Cell> {
        let theme = view.theme;
        let (slot, interval_ns) = view.model.shown_slot();
        let id = match line.kind {
            Kind::Process(pid) => Cell::whole(pid.into()),
            Kind::Thread(_, tid) => Cell::whole(tid.into()),
            Kind::Cgroup => Cell { value: Value::Null, ..Cell::text(line.members.to_string()) },
        };
        // Once for all columns: slots are large.
        let first = (slot + 1).saturating_sub(if sparks.is_empty() { 0 } else { spark_width as u64 });
        let past: Vec<Slot> = (first..=slot).map(|number| line.slot_at(view, number)).collect();
        let faint = |cell: Cell| if line.subject.ended { cell.styled(theme.faint()) } else { cell };
        let cpu = line.subject.cpu.map_or_else(Cell::default, |cpu| Cell::whole(cpu.into()));
        let mut cells = vec![faint(id), cpu.styled(theme.faint())];
        for (place, column) in view.columns.iter().enumerate() {
            let number = column.value(&line.subject, &line.slot, interval_ns);
            let text = column.shown(number);
            let is_zero = number == 0.0 || !number.is_finite();
            let style = match (is_zero, column.title.as_str()) {
                (true, _) => theme.faint(),
                (_, "cpu%") => theme.load(number / 100.0),
                _ => ratatui::style::Style::new(),
            };
            cells.push(Cell::number(number, text).styled(style));
            if sparks.contains(&place) {
                let values: Vec<f64> =
                    past.iter().map(|slot| column.value(&line.subject, slot, interval_ns)).collect();
                let full = (column.format == Format::Percent)
                    .then(|| values.iter().fold(100.0, |a: f64, b| a.max(*b)));
                let text = format!("{:>spark_width$}", spark(&values, full));
                cells.push(Cell::text(text).styled(theme.series(place)));
            }
        }
        cells.push(faint(Cell {
            value: Value::from(line.subject.name),
            ..Cell::text(line.title(view.settings.rows))
        }));
        cells
    }
}
