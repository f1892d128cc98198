//! Drawing: everything that is seen follows from the state, and drawing changes nothing.

mod footer;
mod header;
mod help;
mod sheet;
mod text;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

pub(crate) use self::footer::palette;
pub(crate) use self::header::{remarks, tab_places};
pub(crate) use self::help::lines as help_lines;
pub(crate) use self::sheet::{Cell, Head, Sheet, put};
pub(crate) use self::text::{amount, bar, cut, eighth, moment, parse_moment, si, spark, time, wrapped};

use crate::state::State;
use crate::theme::Theme;

/// Smallest terminal that has room for something.
pub(crate) const SMALLEST: (u16, u16) = (60, 16);

/// Where the parts of the whole are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) header: Rect,
    pub(crate) tabs: Rect,
    pub(crate) body: Rect,
    pub(crate) footer: Rect,
}

impl Parts {
    /// For a terminal of this size.
    pub(crate) fn of(area: Rect) -> Self {
        let row = |y: u16, height: u16| {
            Rect { x: area.x, y: area.y + y, width: area.width, height }.intersection(area)
        };
        Self {
            header: row(0, 2),
            tabs: row(2, 1),
            body: row(3, area.height.saturating_sub(4)),
            footer: row(area.height.saturating_sub(1), 1),
        }
    }
}

/// Draws everything.
pub(crate) fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!(
            "too small: {}×{}, and {}×{} are needed",
            area.width, area.height, SMALLEST.0, SMALLEST.1
        );
        put(buffer, (area.x, area.y), &text, area.width, false, Style::new());
        put(
            buffer,
            (area.x, area.y + 1),
            "make the terminal larger, or q to end",
            area.width,
            false,
            Style::new(),
        );
        return;
    }
    let parts = Parts::of(area);
    header::draw(state, parts.header, buffer);
    header::tabs(state, parts.tabs, buffer);
    state.screen().draw(&state.view(parts.body), buffer);
    footer::draw(state, parts, buffer);
    if state.palette_is_open() {
        footer::suggestions(state, parts.body, buffer);
    }
    if let Some(offset) = state.help {
        help::draw(state, offset, parts.body, buffer);
    }
}

/// Clears an area and draws a frame with a title around it; what is inside.
pub(crate) fn frame(buffer: &mut Buffer, area: Rect, title: &str, theme: &Theme) -> Rect {
    use ratatui::widgets::{Block, BorderType, Clear, Widget as _};
    let area = area.intersection(buffer.area);
    Clear.render(area, buffer);
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(theme.faint()).title(title);
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}
