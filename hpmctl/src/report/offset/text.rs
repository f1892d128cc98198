//! Histograms as text for people: a line for each instruction, the traces side by side.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use libhpm::record::Attribution;
use libhpm::report::OffsetEntry;
use libhpm::symbol::{Code, Instruction};

use super::{Histogram, Histograms, how};
use crate::output::counted;
use crate::report::text::remarks;

/// Characters of a bar that stands for all samples.
const BAR: f64 = 30.0;

/// The whole text, with at most `limit` instructions of each trace: those with most samples.
pub(super) fn render(histograms: &Histograms<'_>, code: &Code, limit: usize) -> String {
    let around = histograms.around;
    let mut text = format!(
        "around    {:#x} {} in {} of {}\n",
        around.address, around.mnemonic, histograms.function, histograms.module
    );
    for (number, histogram) in (1..).zip(&histograms.traces) {
        let moved = match histogram.event.attribution {
            Attribution::Next => "; records name the next instruction, so each counts for the one before it",
            _ => "",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "[{number}]       {}: {}, {}, {} of them in other functions{moved}",
            histogram.trace,
            how(&histogram.event),
            counted(histogram.all.samples, "sample"),
            histogram.elsewhere.samples
        );
    }
    if let Some(filter) = &histograms.filter {
        let _ = writeln!(text, "only      {filter}");
    }
    remarks(&mut text, &histograms.remarks);
    let shown = shown(&histograms.traces, limit);
    let _ = writeln!(text, "\n{}", table(histograms, code, &shown));
    let left_out: usize = histograms
        .traces
        .iter()
        .map(|histogram| histogram.entries.iter().filter(|entry| !shown.contains(&entry.distance)).count())
        .sum();
    if left_out > 0 {
        let _ = writeln!(text, " … and {left_out} more (--limit)");
    }
    text.push_str("\ndistance is in instructions by address; ± is the 95 % interval that the number of samples alone allows.\n");
    if let Some(path) = histograms.picture {
        let _ = writeln!(text, "histogram: {}", path.display());
    }
    text
}

/// The distances with most samples, and 0.
fn shown(traces: &[Histogram], limit: usize) -> BTreeSet<i64> {
    let mut shown = BTreeSet::from([0]);
    for histogram in traces {
        let mut entries: Vec<&OffsetEntry> = histogram.entries.iter().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.own.events));
        shown.extend(entries.iter().take(limit).map(|entry| entry.distance));
    }
    shown
}

fn table(histograms: &Histograms<'_>, code: &Code, shown: &BTreeSet<i64>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec!["distance".to_owned(), "address".to_owned(), "instruction".to_owned()];
    for number in 1..=histograms.traces.len() {
        header.extend([format!("[{number}] samples"), "share".to_owned(), "±".to_owned(), String::new()]);
    }
    table.set_header(header);
    for &distance in shown {
        let at = instruction(code, distance);
        let mut cells = vec![format!("{distance:+}"), format!("{:#x}", at.address), at.mnemonic.clone()];
        for histogram in &histograms.traces {
            let found = histogram.entries.iter().find(|entry| entry.distance == distance);
            cells.extend(found.map_or_else(Default::default, numbers));
        }
        table.add_row(cells);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index == 0 || index > 2 && (index - 3) % 4 < 3 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Samples, share, error and bar.
fn numbers(entry: &OffsetEntry) -> [String; 4] {
    let estimate = entry.estimate;
    [
        entry.own.samples.to_string(),
        format!("{:.1} %", estimate.share * 100.0),
        format!("{:.1}", estimate.error * 100.0),
        "█".repeat((estimate.share * BAR).round() as usize),
    ]
}

/// The instruction so many behind the reference.
pub(super) fn instruction(code: &Code, distance: i64) -> &Instruction {
    // Distances are those of instructions of this function.
    &code.instructions[(code.reference as i64 + distance) as usize]
}
