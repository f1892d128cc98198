//! Phases: a ribbon for each process, the pattern that it is in, what is expected next, and what each pattern means in metrics.

mod told;

use libhpm::analysis::phase::PatternKey;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use serde_json::{Value, json};

use super::list::Selection;
use super::{Focus, Reply, Screen, View};
use crate::keys::{Action, Binding, bind};
use crate::model::{Model, Ribbon, Slot, Stretch, Subject};
use crate::view::{Cell, Head, Sheet, eighth, put, si, time};

/// Keys of this screen.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(Action::ZoomIn, "zoom-in", &["+", "="], "see less time, in more detail"),
    bind(Action::ZoomOut, "zoom-out", &["-"], "see more time"),
];

/// Hotness of a channel and of a pattern's own prediction at most (Gu & Verbrugge, 3.2).
const CONFIDENCE_MAX: (f64, f64) = (60.0, 15.0);
/// Columns of a process's name.
const NAME: u16 = 22;

/// The screen.
#[derive(Default)]
pub(crate) struct PhaseScreen {
    /// Halvings of the time that is seen.
    zoom: i32,
    offset: Selection,
}

impl Screen for PhaseScreen {
    fn shows_quanta(&self) -> bool {
        true
    }

    fn draw(&self, view: &View<'_>, buffer: &mut Buffer) {
        let area = view.area;
        let theme = view.theme;
        let Some(signal) = &view.model.source.phase_signal else {
            let lines = [
                "Phases are looked for in how often an event happens, and only clocks are measured here.",
                "Name an event that varies, such as -e cpu-clock,page-faults, or watch one with --phase-event.",
            ];
            for (row, line) in lines.iter().enumerate() {
                put(buffer, (area.x + 1, area.y + 1 + row as u16), line, area.width, false, theme.faint());
            }
            return;
        };
        let (from, until) = self.window(view.model, area.width.saturating_sub(NAME + 2));
        let title = format!("{signal}, {} until {}", time(until - from), crate::view::moment(until));
        put(buffer, (area.x + 1, area.y), &title, area.width, false, theme.faint());
        let ids = ids(view.model);
        let list_height = (area.height / 3).clamp(2, 16).min(ids.len() as u16);
        let ids64: Vec<u64> = ids.iter().map(|pid| u64::from(*pid)).collect();
        let selected = chosen(view);
        let selection = self.offset.of(selected.map(u64::from));
        let offset = selection.offset(&ids64, list_height.into());
        for (row, pid) in ids.iter().skip(offset).take(list_height.into()).enumerate() {
            let at = Rect { y: area.y + 1 + row as u16, height: 1, ..area };
            line(view, buffer, at, *pid, (from, until), selected == Some(*pid));
        }
        let rest =
            Rect { y: area.y + 1 + list_height, height: area.height.saturating_sub(1 + list_height), ..area };
        match selected {
            Some(pid) => self.detail(view, buffer, rest, pid, (from, until)),
            None => {
                let text = "no process has run for an interval yet";
                put(buffer, (area.x + 1, area.y + 2), text, area.width, false, theme.faint());
            }
        }
    }

    fn act(&mut self, action: Action, view: &View<'_>) -> Reply {
        let ids: Vec<u64> = ids(view.model).into_iter().map(u64::from).collect();
        let height = usize::from((view.area.height / 3).clamp(2, 16));
        let mut selection = self.offset.of(chosen(view).map(u64::from));
        if selection.act(action, &ids, height) {
            self.offset = selection;
            let pid = selection.id.map(|id| id as u32);
            return Reply::Focus(Focus { pid, tid: None }, None);
        }
        match action {
            Action::ZoomIn => self.zoom = (self.zoom + 1).min(16),
            Action::ZoomOut => self.zoom = (self.zoom - 1).max(-8),
            Action::Enter => {
                return match chosen(view) {
                    Some(pid) => Reply::Focus(Focus { pid: Some(pid), tid: None }, Some("process")),
                    None => Reply::Ignored,
                };
            }
            _ => return Reply::Ignored,
        }
        Reply::Done
    }

    fn click(&mut self, _column: u16, row: u16, view: &View<'_>) -> Reply {
        let ids = ids(view.model);
        let ids64: Vec<u64> = ids.iter().map(|pid| u64::from(*pid)).collect();
        let height = usize::from((view.area.height / 3).clamp(2, 16)).min(ids.len());
        let selection = self.offset.of(chosen(view).map(u64::from));
        let place = usize::from(row).checked_sub(1).filter(|line| *line < height);
        match place.and_then(|line| ids.get(selection.offset(&ids64, height) + line)) {
            Some(pid) => Reply::Focus(Focus { pid: Some(*pid), tid: None }, None),
            None => Reply::Ignored,
        }
    }

    fn search(&mut self, text: &str, forward: bool, view: &View<'_>) -> Reply {
        let pids = ids(view.model);
        let ids: Vec<u64> = pids.iter().map(|pid| u64::from(*pid)).collect();
        let mut selection = self.offset.of(chosen(view).map(u64::from));
        let holds = |place: usize| view.model.process_name(pids[place]).to_lowercase().contains(text);
        if !selection.search(&ids, usize::from(view.area.height / 3), forward, holds) {
            return Reply::Ignored;
        }
        self.offset = selection;
        Reply::Focus(Focus { pid: selection.id.map(|id| id as u32), tid: None }, None)
    }

    fn sheet(&self, view: &View<'_>) -> Sheet {
        match chosen(view).and_then(|pid| view.model.ribbons.get(&pid)) {
            Some(ribbon) => patterns(view, ribbon),
            None => Sheet::default(),
        }
    }

    fn json(&self, view: &View<'_>) -> Value {
        let chosen = chosen(view).and_then(|pid| Some((pid, view.model.ribbons.get(&pid)?)));
        json!({
            "signal": view.model.source.phase_signal,
            "patterns": self.sheet(view).json(),
            "ribbon": chosen.map(|(pid, ribbon)| told::ribbon(pid, ribbon)),
        })
    }

    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[
            (Action::Down, "process"),
            (Action::ZoomIn, "less time"),
            (Action::ZoomOut, "more"),
            (Action::Enter, "look closer"),
        ]
    }
}

/// Processes with phases, those that ran longest first.
fn ids(model: &Model) -> Vec<u32> {
    let mut ids: Vec<(u64, u32)> = model.ribbons.iter().map(|(pid, ribbon)| (ribbon.clock, *pid)).collect();
    ids.sort_unstable_by_key(|(clock, pid)| (std::cmp::Reverse(*clock), *pid));
    ids.into_iter().map(|(_, pid)| pid).collect()
}

/// The process whose phases are shown in detail.
fn chosen(view: &View<'_>) -> Option<u32> {
    let focused = view.focus.pid.filter(|pid| view.model.ribbons.contains_key(pid));
    focused.or_else(|| ids(view.model).first().copied())
}

/// The letter of a pattern.
fn letter(ribbon: &Ribbon, key: PatternKey) -> char {
    let place = ribbon.colour(key) % 26;
    char::from(b'A' + place as u8)
}

/// The stretch that has the middle of a time.
fn at(ribbon: &Ribbon, ns: u64) -> Option<&Stretch> {
    let place = ribbon.stretches.partition_point(|stretch| stretch.end_ns < ns);
    ribbon.stretches.get(place).filter(|stretch| stretch.start_ns <= ns)
}

/// Whether a segment begins in this time.
fn begins(ribbon: &Ribbon, from: u64, until: u64) -> bool {
    let first = ribbon.stretches.partition_point(|stretch| stretch.start_ns < from);
    ribbon
        .stretches
        .iter()
        .skip(first)
        .take_while(|stretch| stretch.start_ns < until)
        .any(|stretch| stretch.begins)
}

/// A process's name and ribbon.
fn line(view: &View<'_>, buffer: &mut Buffer, area: Rect, pid: u32, window: (u64, u64), selected: bool) {
    let theme = view.theme;
    let name = format!("{pid:>7} {}", view.model.process_name(pid));
    let style = if selected { theme.selected() } else { Style::new() };
    put(buffer, (area.x, area.y), &name, NAME, false, style);
    if let Some(ribbon) = view.model.ribbons.get(&pid) {
        let area = Rect { x: area.x + NAME + 1, width: area.width.saturating_sub(NAME + 2), ..area };
        draw_ribbon(view, buffer, area, ribbon, window);
    }
}

/// A ribbon: the colour is the pattern that began the segment; solid when it came as predicted. Without colours, a letter:
/// a capital when it came as predicted. A bar stands where a segment begins.
fn draw_ribbon(view: &View<'_>, buffer: &mut Buffer, area: Rect, ribbon: &Ribbon, (from, until): (u64, u64)) {
    let width = u64::from(area.width.max(1));
    for column in 0..area.width {
        let edge = |column: u64| from + (until - from) * column / width;
        let ns = from + (until - from) * (2 * u64::from(column) + 1) / (2 * width);
        let begins = begins(ribbon, edge(column.into()), edge(u64::from(column) + 1));
        let (sign, style) = match at(ribbon, ns) {
            None => (' ', Style::new()),
            Some(Stretch { pattern: None, .. }) => ('·', view.theme.faint()),
            Some(Stretch { pattern: Some(key), predicted, .. }) => {
                let style = view.theme.series(ribbon.colour(*key));
                let letter = letter(ribbon, *key);
                match (view.theme.coloured, predicted) {
                    (true, _) if begins => ('▌', style),
                    (false, _) if begins => ('|', Style::new()),
                    (true, true) => ('█', style),
                    (true, false) => ('▒', style),
                    (false, true) => (letter, Style::new().add_modifier(Modifier::BOLD)),
                    (false, false) => (letter.to_ascii_lowercase(), Style::new()),
                }
            }
        };
        if let Some(cell) = buffer.cell_mut((area.x + column, area.y)) {
            cell.set_char(sign).set_style(style);
        }
    }
}

impl PhaseScreen {
    /// The time that is seen.
    fn window(&self, model: &Model, width: u16) -> (u64, u64) {
        let until = model.now_ns.max(1);
        // As usual, a column is four intervals of a process that runs all the time.
        let usual = 4.0 * model.source.phase_interval_ms * 1e6 * f64::from(width.max(1));
        let length = (usual * 2_f64.powi(-self.zoom)).max(1e6) as u64;
        (until.saturating_sub(length), until)
    }

    fn detail(&self, view: &View<'_>, buffer: &mut Buffer, area: Rect, pid: u32, window: (u64, u64)) {
        let Some(ribbon) = view.model.ribbons.get(&pid) else { return };
        let mut row = area.y + 1;
        for (text, style) in words(view, ribbon, pid) {
            put(buffer, (area.x + 1, row), &text, area.width.saturating_sub(1), false, style);
            row += 1;
        }
        let left = area.bottom().saturating_sub(row);
        let table = patterns(view, ribbon);
        let table_height = (table.rows.len() as u16 + 1).min(left / 2).max(3).min(left);
        let graph = Rect {
            x: area.x + NAME + 1,
            y: row,
            width: area.width.saturating_sub(NAME + 2),
            height: left.saturating_sub(table_height + 1).min(10),
        };
        density(view, buffer, graph, ribbon, window);
        let y = graph.bottom();
        let beside = Rect { x: graph.x, y, width: graph.width, height: 1 };
        if y < area.bottom() {
            put(buffer, (area.x + 1, y), "phases", NAME, false, view.theme.faint());
            draw_ribbon(view, buffer, beside, ribbon, window);
        }
        let rest = Rect { y: y + 1, height: area.bottom().saturating_sub(y + 1), ..area };
        table.draw(buffer, rest, view.theme);
    }
}

/// What is to be said of a process's phases.
fn words(view: &View<'_>, ribbon: &Ribbon, pid: u32) -> Vec<(String, Style)> {
    let theme = view.theme;
    let ms = |ticks: u64| time(view.model.source.ticks_to_ns(ticks));
    let name = |key: PatternKey| format!("{} ({key})", letter(ribbon, key));
    let head = format!(
        "{} ({pid}): {} intervals, {} on a CPU, {} patterns came {} times",
        view.model.process_name(pid),
        ribbon.intervals,
        ms(ribbon.clock),
        ribbon.patterns.len(),
        ribbon.changes
    );
    let current = ribbon.current.map_or_else(
        || ribbon.no_phases().unwrap_or_default().to_owned(),
        |key| {
            let sums = ribbon.patterns.get(&key).copied().unwrap_or_default();
            format!("now in {}, for {} on a CPU", name(key), ms(ribbon.clock.saturating_sub(sums.last)))
        },
    );
    let whole = ribbon.prediction.map_or_else(
        || "nothing is predicted of the whole".to_owned(),
        |prediction| {
            let share = f64::from(prediction.confidence) / CONFIDENCE_MAX.0 * 100.0;
            format!("the whole repeats every {}, confidence {share:.0} %", ms(prediction.length))
        },
    );
    let next = ribbon.expected().map_or_else(
        || "no change is expected".to_owned(),
        |(key, left, confidence)| {
            let share = f64::from(confidence) / CONFIDENCE_MAX.1 * 100.0;
            let when = if left == 0 { "is due".to_owned() } else { format!("in {} on a CPU", ms(left)) };
            format!("next change: {} {when}, confidence {share:.0} %", name(key))
        },
    );
    vec![(head, theme.strong()), (current, Style::new()), (whole, Style::new()), (next, Style::new())]
}

/// The watched density as bars.
fn density(view: &View<'_>, buffer: &mut Buffer, area: Rect, ribbon: &Ribbon, (from, until): (u64, u64)) {
    if area.height == 0 || area.width == 0 {
        return;
    }
    let width = u64::from(area.width);
    let edge = |column: u64| from + (until - from) * column / width;
    let values: Vec<f64> = (0..width)
        .map(|column| {
            let (start, end) = (edge(column), edge(column + 1));
            let first = ribbon.stretches.partition_point(|stretch| stretch.end_ns < start);
            let inside = ribbon
                .stretches
                .iter()
                .skip(first)
                .take_while(|stretch| stretch.start_ns < end.max(start + 1));
            let known: Vec<f64> = inside.filter_map(|stretch| stretch.density).collect();
            if known.is_empty() { f64::NAN } else { known.iter().sum::<f64>() / known.len() as f64 }
        })
        .collect();
    let greatest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    // Densities are per TSC tick, or per event.
    let signal = view.model.source.phase_signal.as_deref();
    let per_time = signal.is_none_or(|signal| signal.ends_with("on a CPU"));
    let ticks_per_second = view.model.source.meta.clock.tsc_khz as f64 * 1e3;
    let label =
        if per_time { format!("{}/s", si(greatest * ticks_per_second)) } else { format!("{greatest:.2}") };
    put(buffer, (area.x - NAME - 1, area.y), &label, NAME, true, view.theme.faint());
    for (column, value) in values.iter().enumerate() {
        let style = at(ribbon, (edge(column as u64) + edge(column as u64 + 1)) / 2)
            .and_then(|stretch| stretch.pattern)
            .map_or(view.theme.faint(), |key| view.theme.series(ribbon.colour(key)));
        let rows = value / greatest.max(f64::MIN_POSITIVE) * f64::from(area.height);
        for line in 0..area.height {
            let sign = eighth((rows - f64::from(line)).clamp(0.0, 1.0));
            if let Some(cell) = buffer.cell_mut((area.x + column as u16, area.bottom() - 1 - line)) {
                cell.set_char(sign).set_style(style);
            }
        }
    }
}

/// The patterns with what happens after them.
fn patterns(view: &View<'_>, ribbon: &Ribbon) -> Sheet {
    let ns = |ticks: u64| view.model.source.ticks_to_ns(ticks);
    let columns: Vec<_> = view.columns.iter().filter(|column| column.of_counts).collect();
    let subject = Subject {
        pid: 0,
        tid: 0,
        cpu: None,
        threads: 1,
        name: "",
        process: "",
        command: "",
        cgroup: "",
        ended: false,
    };
    let mut keys: Vec<PatternKey> = ribbon.order.clone();
    keys.sort_by_key(|key| std::cmp::Reverse(ribbon.patterns.get(key).map_or(0, |sums| sums.on_cpu)));
    let row = |key: &PatternKey| {
        let sums = ribbon.patterns.get(key).copied().unwrap_or_default();
        let share = sums.on_cpu as f64 * 100.0 / ribbon.clock.max(1) as f64;
        let style = view.theme.series(ribbon.colour(*key));
        let every = sums.next.map_or_else(Cell::default, |(length, _)| Cell {
            value: ns(length).into(),
            ..Cell::text(time(ns(length)))
        });
        let sure = sums.next.map_or_else(Cell::default, |(_, confidence)| {
            let share = f64::from(confidence) / CONFIDENCE_MAX.1 * 100.0;
            Cell::number(share, format!("{share:.0} %"))
        });
        let mut cells = vec![
            Cell::text(letter(ribbon, *key).to_string()).styled(style),
            Cell::text(key.to_string()).styled(style),
            Cell::whole(sums.occurrences),
            Cell::whole(sums.predicted),
            Cell::number(share, format!("{share:.1}")),
            every,
            sure,
        ];
        let slot = Slot { on_cpu_ns: ns(sums.on_cpu), counts: sums.counts, ..Slot::default() };
        for column in &columns {
            let number = column.value(&subject, &slot, slot.on_cpu_ns.max(1));
            cells.push(Cell::number(number, column.shown(number)));
        }
        cells
    };
    let mut heads = vec![
        Head::text("", 1),
        Head::text("pattern", 14),
        Head::number("came", 6),
        Head::number("predicted", 9),
        Head::number("time %", 6),
        Head::number("every", 9),
        Head::number("sure", 5),
    ];
    heads.extend(columns.iter().map(|column| Head::number(&column.title, 6)));
    Sheet { heads, rows: keys.iter().map(row).collect(), total: keys.len(), ..Sheet::default() }
}
