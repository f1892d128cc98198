//! Time: a metric through time, who ran where, and the quanta of what is selected.

mod draw;
mod window;

use libhpm::analysis::explore::Timeline;
use ratatui::buffer::Buffer;

use self::window::{Layout, Window};
use super::list::Selection;
use super::{Reply, Screen, View};
use crate::keys::{Action, Binding, bind};
use crate::model::Quantum;
use crate::symbols::Stop;
use crate::view::Sheet;

/// Keys of this screen.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(Action::ZoomIn, "zoom-in", &["+", "="], "see less time, in more detail"),
    bind(Action::ZoomOut, "zoom-out", &["-"], "see more time"),
    bind(Action::Range, "range", &["w"], "begin to select a range at the cursor; again to select nothing"),
    bind(Action::Lanes, "lanes", &["o"], "lanes of threads, or of processors"),
    bind(Action::Metric, "metric", &["e"], "the next metric"),
    bind(Action::Mode, "whose", &["v"], "of all, or only of the process that is looked at"),
];

/// Quanta of the table of which the last functions are asked for.
const STOPS_MAX: usize = 1000;
/// Longest and shortest time that is seen at once, in ns.
const WINDOW: (u64, u64) = (10_000, 600_000_000_000);

/// The screen.
pub(crate) struct Time {
    /// How long the time is that is seen, in ns; 0 until somebody has zoomed.
    length_ns: u64,
    /// Where it ends; it follows the time without.
    end_ns: Option<u64>,
    cursor_ns: Option<u64>,
    /// Where a range begins that reaches to the cursor.
    anchor_ns: Option<u64>,
    lanes: Timeline,
    metric: usize,
    /// Only of the process that is looked at.
    focused: bool,
    table: Selection,
}

impl Default for Time {
    fn default() -> Self {
        Self {
            length_ns: 0,
            end_ns: None,
            cursor_ns: None,
            anchor_ns: None,
            lanes: Timeline::Threads,
            metric: 0,
            focused: false,
            table: Selection::default(),
        }
    }
}

impl Screen for Time {
    fn shows_quanta(&self) -> bool {
        true
    }

    fn draw(&self, view: &View<'_>, buffer: &mut Buffer) {
        draw::draw(self, &self.window(view), view, buffer);
    }

    fn act(&mut self, action: Action, view: &View<'_>) -> Reply {
        let window = self.window(view);
        let ids = window.ids();
        let height = usize::from(Layout::of(view.area).table.height.saturating_sub(1));
        if self.table.act(action, &ids, height) {
            // The table leads the cursor, as the cursor leads the table.
            if let (Some(_), Some(quantum)) =
                (self.anchor_ns.or(self.cursor_ns), window.chosen.get(self.table.place(&ids)))
                && self.anchor_ns.is_none()
            {
                self.end_ns = Some(window.until);
                self.cursor_ns = Some(quantum.end_ns.saturating_sub(1));
            }
            return Reply::Done;
        }
        match action {
            Action::Left => self.move_cursor(&window, -1),
            Action::Right => self.move_cursor(&window, 1),
            Action::ZoomIn => self.zoom(&window, 0.5),
            Action::ZoomOut => self.zoom(&window, 2.0),
            Action::Range => self.range(&window),
            Action::Lanes => {
                let other = self.lanes == Timeline::Threads;
                self.lanes = if other { Timeline::Cpus } else { Timeline::Threads };
            }
            Action::Metric => self.metric += 1,
            Action::Mode if view.focus.pid.is_none() => {
                return Reply::Say("no process is looked at: choose one on the first screen".to_owned());
            }
            Action::Mode => self.focused = !self.focused,
            Action::Enter => {
                let quantum = window.chosen.get(self.table.place(&ids));
                let focus =
                    |quantum: &Quantum| super::Focus { pid: Some(quantum.pid), tid: Some(quantum.tid) };
                return quantum
                    .map_or(Reply::Ignored, |quantum| Reply::Focus(focus(quantum), Some("process")));
            }
            _ => return Reply::Ignored,
        }
        Reply::Done
    }

    fn click(&mut self, column: u16, row: u16, view: &View<'_>) -> Reply {
        let layout = Layout::of(view.area);
        let window = self.window(view);
        let (x, y) = (view.area.x + column, view.area.y + row);
        if y < layout.lanes.bottom() && x >= layout.graph.x && x < layout.graph.right() {
            self.end_ns = Some(window.until);
            self.cursor_ns = Some(window.middle_of(x - layout.graph.x));
            self.anchor_ns = None;
            self.table = Selection::default();
            return Reply::Done;
        }
        if let Some(line) = y.checked_sub(layout.table.y + 1).filter(|_| y < layout.table.bottom()) {
            let ids = window.ids();
            let height = usize::from(layout.table.height.saturating_sub(1));
            let place = self.table.offset(&ids, height) + usize::from(line);
            self.table.select(&ids, place, height);
            return Reply::Done;
        }
        Reply::Ignored
    }

    fn drag(&mut self, column: u16, _row: u16, view: &View<'_>) -> Reply {
        let layout = Layout::of(view.area);
        let window = self.window(view);
        let x = (view.area.x + column).clamp(layout.graph.x, layout.graph.right().saturating_sub(1));
        self.anchor_ns = self.anchor_ns.or(self.cursor_ns);
        self.cursor_ns = Some(window.middle_of(x - layout.graph.x));
        Reply::Done
    }

    fn search(&mut self, text: &str, forward: bool, view: &View<'_>) -> Reply {
        let window = self.window(view);
        let ids = window.ids();
        let height = usize::from(Layout::of(view.area).table.height.saturating_sub(1));
        let holds =
            |place: usize| view.model.thread_name(window.chosen[place].tid).to_lowercase().contains(text);
        super::found(self.table.search(&ids, height, forward, holds))
    }

    fn sheet(&self, view: &View<'_>) -> Sheet {
        draw::table(self, &self.window(view), view, 0, usize::MAX)
    }

    fn stops(&self, view: &View<'_>) -> Vec<Stop> {
        let ends = self.window(view).chosen;
        let stop = |quantum: &&Quantum| Some((quantum.pid, quantum.last_ip?, quantum.end_ns));
        ends.iter().take(STOPS_MAX).filter_map(stop).collect()
    }

    fn back(&mut self) -> bool {
        let open = self.cursor_ns.is_some() || self.end_ns.is_some();
        (self.cursor_ns, self.anchor_ns, self.end_ns) = (None, None, None);
        self.table = Selection::default();
        open
    }

    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[
            (Action::Left, "cursor"),
            (Action::ZoomIn, "zoom"),
            (Action::Range, "range"),
            (Action::Lanes, "lanes"),
            (Action::Metric, "metric"),
            (Action::Back, "follow"),
        ]
    }
}

impl Time {
    fn window<'a>(&self, view: &View<'a>) -> Window<'a> {
        Window::new(self, view)
    }

    /// By a column; beyond an edge, the time that is seen moves along.
    fn move_cursor(&mut self, window: &Window<'_>, step: i64) {
        let column = window.column_ns().max(1) as i64 * step;
        let at = self.cursor_ns.unwrap_or(window.until.saturating_sub(window.column_ns() / 2));
        let to = at.saturating_add_signed(column).min(window.now_ns);
        self.cursor_ns = Some(to);
        let end = self.end_ns.unwrap_or(window.until);
        let length = window.until - window.from;
        let end = if to >= end { to + window.column_ns() } else { end };
        let end = if to < end.saturating_sub(length) { to + length } else { end };
        self.end_ns = Some(end.min(window.now_ns.max(length)));
        self.table = Selection::default();
    }

    /// Sees more or less time; what is at the cursor stays where it is.
    fn zoom(&mut self, window: &Window<'_>, factor: f64) {
        let length = window.until - window.from;
        let new = ((length as f64 * factor) as u64).clamp(WINDOW.0, WINDOW.1);
        self.length_ns = new;
        if let Some(cursor) = self.cursor_ns {
            let before = cursor.saturating_sub(window.from) as f64 * new as f64 / length.max(1) as f64;
            let from = cursor.saturating_sub(before as u64);
            self.end_ns = Some((from + new).min(window.now_ns.max(new)));
        }
    }

    fn range(&mut self, window: &Window<'_>) {
        match self.anchor_ns.take() {
            Some(_) => {}
            None => {
                if self.cursor_ns.is_none() {
                    self.move_cursor(window, 0);
                }
                self.anchor_ns = self.cursor_ns;
            }
        }
        self.table = Selection::default();
    }
}
