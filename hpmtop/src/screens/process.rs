//! One process: where its samples are, by function, by source line, and in the code itself.

use std::sync::Arc;

use libhpm::report::{Annotated, Entry};
use libhpm::trace::EventUse;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::list::Selection;
use super::{Reply, Screen, View};
use crate::collect::Command;
use crate::keys::{Action, Binding, bind};
use crate::symbols::{Look, Profile, Sight};
use crate::view::{Cell, Head, Sheet, bar, put, si, time};

/// Keys of this screen.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(Action::Mode, "lines", &["v"], "functions, or source lines"),
    bind(Action::Metric, "event", &["e"], "samples of the next event"),
    bind(Action::Zero, "zero", &["z"], "count samples from zero"),
];

/// The screen.
#[derive(Default)]
pub(crate) struct OneProcess {
    lines: bool,
    /// Place of the event among those that are sampled.
    event: usize,
    selection: Selection,
    code: Option<Code>,
}

/// A function whose code is open.
struct Code {
    module: Arc<str>,
    function: Arc<str>,
    selection: Selection,
    /// Nobody has moved: the hottest instruction is selected.
    fresh: bool,
}

impl Screen for OneProcess {
    fn draw(&self, view: &View<'_>, buffer: &mut Buffer) {
        let area = view.area;
        let mut row = area.y;
        for (text, style) in self.headings(view) {
            put(buffer, (area.x + 1, row), &text, area.width.saturating_sub(1), false, style);
            row += 1;
        }
        let body = Rect { y: row, height: area.bottom().saturating_sub(row), ..area };
        if let Some(profile) = self.profile(view) {
            let (ids, selection) = (self.ids(view), self.selection_here(profile));
            let height = usize::from(body.height.saturating_sub(1));
            let offset = selection.offset(&ids, height);
            let mut sheet = self.table(view, offset, height);
            sheet.selected = (!ids.is_empty()).then(|| selection.place(&ids) - offset);
            sheet.draw(buffer, body, view.theme);
        }
    }

    fn act(&mut self, action: Action, view: &View<'_>) -> Reply {
        let ids = self.ids(view);
        let height = usize::from(view.area.height.saturating_sub(3));
        let mut selection = self.profile(view).map_or(self.selection, |profile| self.selection_here(profile));
        if selection.act(action, &ids, height) {
            match &mut self.code {
                Some(code) => (code.selection, code.fresh) = (selection, false),
                None => self.selection = selection,
            }
            return Reply::Done;
        }
        match action {
            Action::Mode if self.code.is_none() => {
                self.lines = !self.lines;
                self.selection = Selection::default();
            }
            Action::Metric => {
                self.event += 1;
                self.selection = Selection::default();
            }
            Action::Zero => return Reply::Ask(Command::Zero),
            Action::Enter if self.code.is_none() => {
                let entry = self.profile(view).and_then(|profile| profile.entries.get(selection.place(&ids)));
                let Some(Entry { key, .. }) = entry else {
                    return Reply::Say("nothing is selected".to_owned());
                };
                let (Some(module), Some(function)) = (&key.module, &key.function) else {
                    return Reply::Say("no symbol covers this code, so that it cannot be shown".to_owned());
                };
                self.code = Some(Code {
                    module: Arc::clone(module),
                    function: Arc::clone(function),
                    selection: Selection::default(),
                    fresh: true,
                });
            }
            _ => return Reply::Ignored,
        }
        self.look(view).map_or(Reply::Done, Reply::Look)
    }

    fn click(&mut self, _column: u16, row: u16, view: &View<'_>) -> Reply {
        let above = self.headings(view).len() + 1;
        let Some(line) = usize::from(row).checked_sub(above) else { return Reply::Ignored };
        let ids = self.ids(view);
        let height = usize::from(view.area.height).saturating_sub(above);
        let mut selection = self.profile(view).map_or(self.selection, |profile| self.selection_here(profile));
        let place = selection.offset(&ids, height) + line;
        if place >= ids.len() {
            return Reply::Ignored;
        }
        if selection.id == Some(ids[place]) {
            return self.act(Action::Enter, view);
        }
        selection.select(&ids, place, height);
        match &mut self.code {
            Some(code) => (code.selection, code.fresh) = (selection, false),
            None => self.selection = selection,
        }
        Reply::Done
    }

    fn search(&mut self, text: &str, forward: bool, view: &View<'_>) -> Reply {
        let ids = self.ids(view);
        let height = usize::from(view.area.height.saturating_sub(3));
        let rows = self.table(view, 0, usize::MAX).rows;
        let holds = |place: usize| rows[place].iter().any(|cell| cell.text.to_lowercase().contains(text));
        let mut selection = self.profile(view).map_or(self.selection, |profile| self.selection_here(profile));
        let found = selection.search(&ids, height, forward, holds);
        match &mut self.code {
            Some(code) => (code.selection, code.fresh) = (selection, false),
            None => self.selection = selection,
        }
        super::found(found)
    }

    fn sheet(&self, view: &View<'_>) -> Sheet {
        self.table(view, 0, usize::MAX)
    }

    fn look(&self, view: &View<'_>) -> Option<Look> {
        let pid = view.focus.pid?;
        let function = self.code.as_ref().map(|code| (Arc::clone(&code.module), Arc::clone(&code.function)));
        let by = if self.lines { Sight::Lines } else { Sight::Functions };
        Some(Look { pid, event: self.event_index(view)?, by, function })
    }

    fn back(&mut self) -> bool {
        self.code.take().is_some()
    }

    fn hints(&self) -> &'static [(Action, &'static str)] {
        if self.code.is_some() {
            return &[
                (Action::Back, "functions"),
                (Action::Metric, "event"),
                (Action::Zero, "zero"),
                (Action::Search, "search"),
            ];
        }
        &[
            (Action::Enter, "code"),
            (Action::Mode, "functions or lines"),
            (Action::Metric, "event"),
            (Action::Zero, "zero"),
            (Action::Search, "search"),
        ]
    }
}

impl OneProcess {
    /// The event whose samples are shown: those that are sampled take turns.
    fn event_index(&self, view: &View<'_>) -> Option<usize> {
        let events = &view.model.source.meta.events;
        let sampled: Vec<usize> =
            (0..events.len()).filter(|&at| events[at].mode != EventUse::Count).collect();
        (!sampled.is_empty()).then(|| sampled[self.event % sampled.len()])
    }

    /// The samples of what is looked at, if they have come.
    fn profile<'a>(&self, view: &View<'a>) -> Option<&'a Profile> {
        let look = self.look(view)?;
        let same = |profile: &&Profile| {
            let Look { pid, event, by, .. } = profile.look;
            (pid, event, by) == (look.pid, look.event, look.by)
        };
        view.profile.filter(same)
    }

    fn code<'a>(&self, profile: &'a Profile) -> Option<&'a Annotated> {
        let code = self.code.as_ref()?;
        profile.code.as_ref().filter(|found| found.function == code.function && found.module == code.module)
    }

    fn ids(&self, view: &View<'_>) -> Vec<u64> {
        let Some(profile) = self.profile(view) else { return Vec::new() };
        match (&self.code, self.code(profile)) {
            (Some(_), Some(code)) => code.instructions.iter().map(|one| one.address).collect(),
            (Some(_), None) => Vec::new(),
            (None, _) => profile.entries.iter().map(id).collect(),
        }
    }

    fn selection_here(&self, profile: &Profile) -> Selection {
        let Some(code) = &self.code else { return self.selection };
        match self.code(profile).filter(|_| code.fresh) {
            Some(annotated) => {
                let event = profile.look.event;
                let hottest = annotated
                    .instructions
                    .iter()
                    .max_by_key(|one| one.sums.get(event).map_or(0, |sum| sum.events));
                Selection::default().of(hottest.map(|one| one.address))
            }
            None => code.selection,
        }
    }

    /// What is looked at, and what has to be known of it.
    fn headings(&self, view: &View<'_>) -> Vec<(String, Style)> {
        let theme = view.theme;
        let Some(pid) = view.focus.pid else {
            let text = "no process is selected: choose one on the first screen with Enter".to_owned();
            return vec![(text, theme.faint())];
        };
        let name = view.model.process_name(pid);
        let Some(event) = self.event_index(view).and_then(|at| view.model.source.meta.events.get(at)) else {
            return vec![(
                format!("{name} ({pid}): no event is sampled here, so nothing says where it is"),
                theme.warning(),
            )];
        };
        let Some(profile) = self.profile(view) else {
            return vec![(format!("{name} ({pid}): waiting for samples of {}", event.name), theme.strong())];
        };
        let since = time(view.model.source.ticks_to_ns(profile.ticks));
        let precise = match event.mode {
            EventUse::Precise => "precise",
            EventUse::Interrupt => "imprecise: by interrupt, some instructions late",
            EventUse::Software if event.name.contains("clock") => {
                "by the kernel's timer: where the time goes, imprecise"
            }
            EventUse::Software => "by the kernel: exact",
            EventUse::Count => "",
        };
        let code = self.code.as_ref().map_or(String::new(), |code| format!(", {}", code.function));
        let line = format!(
            "{name} ({pid}){code}: {} samples of {} in {since}, {precise}",
            si(profile.all.samples as f64),
            event.name
        );
        let mut all = vec![(line, theme.strong())];
        if let Some(note) = &profile.note {
            all.push((note.clone(), theme.warning()));
        } else if self.code.is_some() && self.code(profile).is_none() {
            all.push(("reading the code".to_owned(), theme.faint()));
        }
        all
    }

    fn table(&self, view: &View<'_>, offset: usize, height: usize) -> Sheet {
        let Some(profile) = self.profile(view) else { return Sheet::default() };
        match (&self.code, self.code(profile)) {
            (Some(_), Some(code)) => listing(view, profile, code, offset, height),
            (Some(_), None) => Sheet::default(),
            (None, _) => self.entries(view, profile, offset, height),
        }
    }

    fn entries(&self, view: &View<'_>, profile: &Profile, offset: usize, height: usize) -> Sheet {
        let row = |entry: &Entry| {
            let share = entry.own_share.share;
            let name = entry.key.function.as_deref().unwrap_or("[no symbol]");
            let module = entry.key.module.as_deref().unwrap_or("");
            let file = entry.key.file.as_deref().map_or(String::new(), |file| base(file).to_owned());
            let line = entry.key.line.map_or(String::new(), |line| format!("{file}:{line}"));
            let mut cells = vec![
                Cell::number(share * 100.0, format!("{:.1}", share * 100.0)).styled(view.theme.load(share)),
                Cell::number(entry.own_share.error * 100.0, format!("±{:.1}", entry.own_share.error * 100.0))
                    .styled(view.theme.faint()),
                Cell::text(bar(share, 12)).styled(view.theme.load(share)),
                Cell::whole(entry.own.samples),
                Cell::text(base(module)),
            ];
            if self.lines {
                cells.push(Cell::text(line));
            }
            cells.push(Cell::text(name));
            cells
        };
        let mut heads = vec![
            Head::number("%", 5),
            Head::number("±", 5),
            Head::picture(12),
            Head::number("samples", 8),
            Head::text("file", 16),
        ];
        if self.lines {
            heads.push(Head::text("line", 22));
        }
        heads.push(Head::text("function", 0));
        let rows = profile.entries.iter().skip(offset).take(height).map(row).collect();
        Sheet { heads, rows, offset, total: profile.entries.len(), selected: None }
    }
}

/// The last part of a path.
fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A function's or line's own number: what it is, hashed.
fn id(entry: &Entry) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(&entry.key)
}

/// The code with its samples.
fn listing(view: &View<'_>, profile: &Profile, code: &Annotated, offset: usize, height: usize) -> Sheet {
    let event = profile.look.event;
    let all = code.all.get(event).map_or(0, |sum| sum.events).max(1);
    let mut last =
        offset.checked_sub(1).and_then(|before| code.instructions.get(before)).and_then(|one| one.line);
    let mut rows = Vec::new();
    for one in code.instructions.iter().skip(offset).take(height) {
        let events = one.sums.get(event).map_or(0, |sum| sum.events);
        let share = events as f64 / all as f64;
        let begins = one.line != last;
        last = one.line;
        let line = one.line.filter(|_| begins).map(|line| &code.lines[line]);
        let source = line.map_or(String::new(), |line| match &line.text {
            Some(text) => format!("{} {}", line.line, text.trim_end()),
            None => format!("{}:{}", base(&line.file), line.line),
        });
        let target = one.target.as_ref().map_or(String::new(), |target| format!(" <{target}>"));
        let percent = if events == 0 { String::new() } else { format!("{:.1}", share * 100.0) };
        rows.push(vec![
            Cell::number(share * 100.0, percent).styled(view.theme.load(share)),
            Cell::text(bar(share, 8)).styled(view.theme.load(share)),
            Cell { value: format!("{:#x}", one.address).into(), ..Cell::text(format!("{:x}", one.address)) }
                .styled(view.theme.faint()),
            Cell::text(format!("{}{target}", one.text)),
            Cell::text(source).styled(view.theme.faint()),
        ]);
    }
    Sheet {
        heads: vec![
            Head::number("%", 5),
            Head::picture(8),
            Head::number("address", 8),
            Head::text("instruction", view.area.width.saturating_sub(26).min(200) * 3 / 5),
            Head::text("source", 0),
        ],
        rows,
        offset,
        total: code.instructions.len(),
        selected: None,
    }
}
