//! The help, made from the key map.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::sheet::put;
use crate::keys::Context;
use crate::screens::ALL;
use crate::state::State;

/// A line of the help: keys, and what they do; a heading has no keys.
pub(crate) fn lines(state: &State) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let here = Context::Screen(state.screen_name());
    let others = ALL.iter().map(|(name, ..)| Context::Screen(name)).filter(|context| *context != here);
    for context in [here, Context::Everywhere, Context::Replay].into_iter().chain(others) {
        let entries: Vec<_> =
            state.keys().entries().iter().filter(|entry| entry.context == context).collect();
        if entries.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push((String::new(), String::new()));
        }
        lines.push((String::new(), context.title()));
        if context == Context::Everywhere {
            lines.push((format!("1 … {}", ALL.len()), "the screen with this number".to_owned()));
        }
        for entry in entries {
            let keys: Vec<String> = entry.keys.iter().map(ToString::to_string).collect();
            lines.push((keys.join(" "), entry.binding.help.to_owned()));
        }
    }
    lines.push((String::new(), String::new()));
    lines.push((String::new(), "What the words at the top mean".to_owned()));
    let model = state.model();
    let remarks = super::remarks(model);
    if remarks.is_empty() {
        lines.push((
            "(none)".to_owned(),
            "nothing has to be known: counts are whole and nothing was lost".to_owned(),
        ));
    }
    lines.extend(remarks);
    lines
}

/// Draws it over the screen.
pub(crate) fn draw(state: &State, offset: usize, body: Rect, buffer: &mut Buffer) {
    let theme = &state.theme;
    let width = body.width.min(84);
    let area = Rect { x: body.x + (body.width - width) / 2, width, ..body };
    let inner = super::frame(buffer, area, " help: j and k scroll, Esc closes ", theme);
    let lines = lines(state);
    let offset = offset.min(lines.len().saturating_sub(inner.height.into()));
    for (row, (keys, text)) in lines.iter().skip(offset).take(inner.height.into()).enumerate() {
        let y = inner.y + row as u16;
        if keys.is_empty() {
            put(buffer, (inner.x + 1, y), text, inner.width - 1, false, theme.heading());
        } else {
            put(buffer, (inner.x + 1, y), keys, 18, false, theme.key());
            put(buffer, (inner.x + 20, y), text, inner.width.saturating_sub(20), false, Style::new());
        }
    }
}
