//! The bottom: what keys do here, what was said last, or what is being asked.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Clear, Widget as _};

use super::Parts;
use super::sheet::{Cell, Head, Sheet, put};
use super::text::wrapped;
use crate::keys::{Action, Context};
use crate::state::State;

/// Draws the line, and above it what has to be read as a whole.
pub(crate) fn draw(state: &State, parts: Parts, buffer: &mut Buffer) {
    let footer = parts.footer;
    let mut above = footer.y;
    match &state.message {
        Some(message) if state.prompt.is_none() => {
            above = tell(message, state, parts, footer.bottom(), buffer)
        }
        _ => line(state, footer, buffer),
    }
    if let Some(lost) = state.lost() {
        tell(lost, state, parts, above, buffer);
    }
}

/// Draws a sentence in as many lines as it needs, the last one above the row `below`; over what the screen has there, as far as
/// there is room. The row of the first one.
fn tell(text: &str, state: &State, parts: Parts, below: u16, buffer: &mut Buffer) -> u16 {
    let lines = wrapped(text, usize::from(parts.footer.width.saturating_sub(2)));
    let first = below.saturating_sub(lines.len() as u16).max(parts.body.y);
    for (y, text) in (first..below).zip(&lines) {
        let row = Rect { y, height: 1, ..parts.footer };
        Clear.render(row, buffer);
        put(buffer, (row.x + 1, y), text, row.width.saturating_sub(1), false, state.theme.warning());
    }
    first
}

/// Draws the line itself: what is being asked, or what keys do here.
fn line(state: &State, area: Rect, buffer: &mut Buffer) {
    let theme = &state.theme;
    if let Some(prompt) = &state.prompt {
        let label = prompt.ask.label();
        put(buffer, (area.x, area.y), label, area.width, false, theme.key());
        let x = area.x + label.chars().count() as u16;
        let room = area.right().saturating_sub(x + 1);
        // The end is what is being typed.
        let skip = prompt.text.chars().count().saturating_sub(room.into());
        let text: String = prompt.text.chars().skip(skip).collect();
        put(buffer, (x, area.y), &format!("{text}▏"), room + 1, false, theme.strong());
        return;
    }
    let mut x = area.x + 1;
    let keys = state.keys();
    let of_replay: &[(Action, &str)] = if state.model().source.replay {
        &[(Action::Pause, "pause"), (Action::StepForward, "step"), (Action::JumpToTime, "jump")]
    } else {
        &[(Action::Freeze, "freeze")]
    };
    let everywhere = [(Action::Palette, "command"), (Action::Quit, "quit")];
    let filter = state.settings().filter.as_ref().map(|filter| format!("filter: {}  ", filter.text));
    if let Some(filter) = filter {
        put(buffer, (x, area.y), &filter, area.right() - x, false, theme.warning());
        x += filter.chars().count() as u16;
    }
    for (action, what) in state.screen().hints().iter().chain(of_replay).chain(&everywhere) {
        let key = keys.hint(*action);
        let wide = (key.chars().count() + what.chars().count() + 3) as u16;
        if key.is_empty() || x + wide > area.right() {
            continue;
        }
        put(buffer, (x, area.y), &key, wide, false, theme.key());
        put(buffer, (x + key.chars().count() as u16 + 1, area.y), what, wide, false, theme.faint());
        x += wide;
    }
}

/// Commands that begin with, or else contain, what was typed: name, keys, and what each does.
pub(crate) fn palette(state: &State) -> Vec<(&'static str, String, &'static str)> {
    let Some(prompt) = &state.prompt else { return Vec::new() };
    let here = state.screen_name();
    let of = |context| match context {
        Context::Screen(name) => name == here,
        Context::Replay => state.model().source.replay,
        Context::Everywhere => true,
    };
    let typed = prompt.text.trim().to_lowercase();
    let mut found: Vec<_> = state
        .keys()
        .entries()
        .iter()
        .filter(|entry| of(entry.context))
        .filter(|entry| {
            entry.binding.name.contains(&typed) || entry.binding.help.to_lowercase().contains(&typed)
        })
        .map(|entry| {
            let keys: Vec<String> = entry.keys.iter().map(ToString::to_string).collect();
            (entry.binding.name, keys.join(" "), entry.binding.help)
        })
        .collect();
    found.sort_by_key(|(name, ..)| (!name.starts_with(&typed), !name.contains(&typed)));
    found
}

/// The commands above the line in which one is typed.
pub(crate) fn suggestions(state: &State, body: Rect, buffer: &mut Buffer) {
    let found = palette(state);
    let height = (found.len() as u16 + 2).min(body.height);
    let width = body.width.min(76);
    let area = Rect { x: body.x, y: body.bottom() - height, width, height };
    let inner = super::frame(buffer, area, " commands ", &state.theme);
    let row = |(name, keys, help): (&'static str, String, &'static str)| {
        vec![
            Cell::text(name),
            Cell::text(keys).styled(state.theme.key()),
            Cell::text(help).styled(state.theme.faint()),
        ]
    };
    let rows = found.into_iter().take(inner.height.into()).map(row).collect();
    let sheet = Sheet {
        heads: vec![Head::text("", 16), Head::text("", 14), Head::text("", 0)],
        rows,
        ..Sheet::default()
    };
    // Without its headings.
    let above = Rect { y: inner.y.saturating_sub(1), height: inner.height + 1, ..inner };
    sheet.draw(buffer, above, &state.theme);
    if let Some(place) = state.prompt.as_ref().map(|prompt| prompt.place)
        && (place as u16) < inner.height
    {
        buffer.set_style(Rect { y: inner.y + place as u16, height: 1, ..inner }, state.theme.selected());
    }
}
