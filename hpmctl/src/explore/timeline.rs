//! Timelines as text: a line of characters for each thread or CPU.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use libhpm::analysis::explore::{Cell, QuantumEnd, Record, Timeline};

use super::{View, name_of};

/// Characters of threads and CPUs; more share the last.
const GLYPHS: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ#";

/// What the lanes have in them, with a character for each, and how each is named.
fn legend(view: &View<'_>, timeline: Timeline) -> Vec<(u32, char, String)> {
    let name = |record: &Record| match timeline {
        Timeline::Threads => format!("CPU {}", record.cpu),
        Timeline::Cpus => name_of(record),
    };
    let mut found: BTreeMap<u32, String> = BTreeMap::new();
    for record in view.chosen {
        found.entry(timeline.content(record)).or_insert_with(|| name(record));
    }
    let glyph = |number: usize| GLYPHS.chars().nth(number).unwrap_or('#');
    found.into_iter().enumerate().map(|(number, (id, name))| (id, glyph(number), name)).collect()
}

/// What a lane is called.
pub(super) fn lane_name(view: &View<'_>, timeline: Timeline, id: u32) -> String {
    let own = view.chosen.iter().rev().find(|record| timeline.lane(record) == id);
    match timeline {
        Timeline::Threads => own.map_or_else(|| id.to_string(), |record| name_of(record)),
        Timeline::Cpus => format!("CPU {id}"),
    }
}

/// The lanes, below each how records ended, and what the characters stand for.
pub(super) fn draw(view: &View<'_>, timeline: Timeline, cells: usize) -> String {
    let legend = legend(view, timeline);
    let glyph = |cell: &Cell| {
        let found = legend.iter().find(|(id, ..)| Some(*id) == cell.most);
        found.map_or('.', |(_, glyph, _)| *glyph)
    };
    let lanes = timeline.lanes(view.chosen, cells);
    let names: Vec<String> = lanes.iter().map(|lane| lane_name(view, timeline, lane.id)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (lane, name) in lanes.iter().zip(&names) {
        let content: String = lane.cells.iter().map(glyph).collect();
        let ends: String = lane.cells.iter().map(|cell| end_glyph(cell.end)).collect();
        let _ = writeln!(text, "{name:<width$} {content}");
        if !ends.trim().is_empty() {
            let _ = writeln!(text, "{:<width$} {}", "", ends.trim_end());
        }
    }
    let names: Vec<String> = legend.iter().map(|(_, glyph, name)| format!("{glyph} {name}")).collect();
    let _ = writeln!(text, "{}; . nothing; y yielded or blocked, p pre-empted, x exited", names.join(", "));
    text
}

fn end_glyph(end: Option<QuantumEnd>) -> char {
    match end {
        Some(QuantumEnd::Yielded) => 'y',
        Some(QuantumEnd::Preempted) => 'p',
        Some(QuantumEnd::Exit) => 'x',
        _ => ' ',
    }
}
