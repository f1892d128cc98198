//! What is seen, for other programs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use libhpm::text;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use crate::state::State;
use crate::view::{Parts, remarks};

/// How it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Text,
    /// One object for each time
    Json,
    /// A table, headings first; its first column is the time
    Csv,
}

/// What is seen on the shown screen. A table has headings where they are others than those `before`, which become its own.
pub(crate) fn document(state: &State, format: Format, before: &mut String) -> String {
    // Wide enough for every column.
    let area = Parts::of(Rect::new(0, 0, 500, 200)).body;
    let view = state.view(area);
    let sheet = state.screen().sheet(&view);
    match format {
        Format::Csv => {
            let (headings, rows) = sheet.csv(state.model().told_at_ns());
            if *before == headings {
                return rows;
            }
            before.clone_from(&headings);
            headings + &rows
        }
        Format::Json => escaped(&object(state, state.screen().json(&view)).to_string()) + "\n",
        Format::Text => {
            let model = state.model();
            let words: Vec<String> = remarks(model).into_iter().map(|(word, _)| word).collect();
            let known = if words.is_empty() { String::new() } else { format!(" [{}]", words.join(", ")) };
            let at = crate::view::moment(model.told_at_ns());
            let from = format!("{}, {}", model.source.target, model.source.line);
            format!("{}{known}, at {at}\n{}", text::line(&from), sheet.plain())
        }
    }
}

/// JSON without characters that a terminal takes for commands: of those, serde_json escapes C0 alone, as RFC 8259 (7) wants.
fn escaped(json: &str) -> String {
    let escape = |one: char| {
        if one.is_control() { format!("\\u{:04x}", u32::from(one)) } else { one.to_string() }
    };
    json.chars().map(escape).collect()
}

/// The rows with what has to be known of them.
fn object(state: &State, rows: Value) -> Value {
    let model = state.model();
    let (_, interval_ns) = model.shown_slot();
    let known: Vec<Value> = remarks(model)
        .into_iter()
        .map(|(word, sentence)| json!({"remark": word, "meaning": sentence}))
        .collect();
    json!({
        "screen": state.screen_name(),
        "source": model.source.line,
        "target": model.source.target,
        "time_ns": model.told_at_ns(),
        "interval_ns": interval_ns,
        "remarks": known,
        "over": model.over,
        "rows": rows,
    })
}

/// Writes it to a file, as CSV if that is its ending, as text if that is `.txt`, else as JSON.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(state: &State, path: &Path) -> Result<()> {
    let format = match path.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => Format::Csv,
        Some("txt") => Format::Text,
        _ => Format::Json,
    };
    fs::write(path, document(state, format, &mut String::new()))
        .with_context(|| format!("cannot write {}", path.display()))
}
