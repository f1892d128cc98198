//! Phases as text for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::{Found, Outcome, Repetitive, Report};
use crate::output::{counted, grouped};
use crate::report::text::remarks;

/// The whole text.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = String::new();
    let (label, what) = &report.measured;
    line(&mut text, format_args!("{label:<9} {what}"));
    let per = report.per.unwrap_or("time on a CPU");
    line(&mut text, format_args!("density   {} per {per}", report.events.join(" and ")));
    remarks(&mut text, &report.remarks);
    for found in &report.subjects {
        subject(&mut text, found);
    }
    if report.left_out > 0 {
        line(&mut text, format_args!("\n{} more are not shown (--limit)", report.left_out));
    }
    if let Some(path) = report.picture {
        line(&mut text, format_args!("\npicture: {}", path.display()));
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// `sort, thread 7 of process 7`.
pub(super) fn title(found: &Found) -> String {
    let name = if found.name.is_empty() { "(no name)" } else { &found.name };
    match found.tid {
        Some(tid) => format!("{name}, thread {tid} of process {}", found.pid),
        None => format!("{name}, process {}", found.pid),
    }
}

fn subject(text: &mut String, found: &Found) {
    line(
        text,
        format_args!(
            "\n{}: {} of {:.2} ms, {:.1} ms on a CPU",
            title(found),
            counted(found.intervals as u64, "interval"),
            found.mean_interval_ms,
            found.on_cpu_ms
        ),
    );
    match &found.outcome {
        Outcome::NoPhases { message, .. } => line(text, format_args!("  no phases: {message}")),
        Outcome::Phases(phases) => repetitive(text, phases),
    }
}

fn repetitive(text: &mut String, phases: &Repetitive) {
    let (found, by_chance) = (&phases.found, &phases.by_chance);
    line(text, format_args!("  {found}, in random order {by_chance}"));
    line(text, format_args!("  {} of its intervals are in repetitions", grouped(found.intervals as u64)));
    patterns(text, phases);
    if let Some(predicted) = phases.predicted_ms {
        line(text, format_args!("  the whole is expected to repeat every {predicted:.1} ms"));
    }
    let quality = &phases.quality;
    line(
        text,
        format_args!(
            "  confidence {}, possible misses {} (major levels {})",
            known(quality.confidence, format!("{:.2}", quality.confidence)),
            percent(quality.pmr),
            percent(quality.pmr_major)
        ),
    );
    line(
        text,
        format_args!(
            "  the density varies by {} of its mean, between changes found by PELT by {}",
            percent(phases.cov),
            percent(phases.cov_between_changes)
        ),
    );
    line(
        text,
        format_args!(
            "  changes of the mean density: {} found online, {} by PELT",
            phases.changes.online.len(),
            phases.changes.pelt.len()
        ),
    );
}

fn patterns(text: &mut String, phases: &Repetitive) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["pattern", "occurrences", "as predicted", "every"]);
    for pattern in &phases.patterns {
        table.add_row([
            pattern.pattern.clone(),
            pattern.occurrences.to_string(),
            pattern.repetitive.to_string(),
            pattern.every_ms.map_or_else(String::new, |every| format!("{every:.1} ms")),
        ]);
    }
    for column in 1..4 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in table.trim_fmt().lines() {
        line(text, format_args!("  {row}"));
    }
    let more = phases.pattern_count - phases.patterns.len();
    if more > 0 {
        line(text, format_args!("   and {more} more patterns (--limit)"));
    }
}

fn percent(part: f64) -> String {
    known(part, format!("{:.1} %", 100.0 * part))
}

/// NaN means that nothing could be evaluated.
fn known(value: f64, text: String) -> String {
    if value.is_nan() { "unknown".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_evaluated_is_unknown() {
        assert_eq!(known(f64::NAN, "NaN".into()), "unknown");
        assert_eq!((percent(f64::NAN), percent(0.25)), ("unknown".to_owned(), "25.0 %".to_owned()));
    }
}
