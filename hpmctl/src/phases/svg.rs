//! Phases as a picture: for each thread or process a ribbon whose colours are patterns, the density above it, and ticks where
//! its mean changes.

use std::fmt::Write as _;

use super::text::title;
use super::{Found, Outcome, Report};
use crate::svg::{COLOURS, escaped, picture, put};

const WIDTH: usize = 1000;
const MARGIN: usize = 10;
const CURVE: usize = 80;
const RIBBON: usize = 18;
/// Height of one thread's or process's part: title, curve, ribbon, ticks and some space.
const PART: usize = 20 + CURVE + 4 + RIBBON + 8 + 24;

/// The picture.
pub(super) fn draw(report: &Report<'_>) -> String {
    let height = 40 + PART * report.subjects.len();
    let mut svg = String::new();
    let per = report.per.unwrap_or("time on a CPU");
    let head = format!("{}: {} per {per}", report.measured.1, report.events.join(" and "));
    put(&mut svg, format_args!("<text x=\"{MARGIN}\" y=\"22\" font-size=\"14\">{}</text>", escaped(&head)));
    for (place, found) in report.subjects.iter().enumerate() {
        part(&mut svg, found, 40 + place * PART);
    }
    picture(WIDTH + 2 * MARGIN, height, &svg)
}

fn part(svg: &mut String, found: &Found, top: usize) {
    let outcome = match &found.outcome {
        Outcome::Phases(phases) => format!("{} repetitions as predicted", phases.found.repetitions),
        Outcome::NoPhases { message, .. } => format!("no phases: {message}"),
    };
    let text = format!("{} ({:.1} ms on a CPU): {outcome}", title(found), found.on_cpu_ms);
    put(svg, format_args!("<text x=\"{MARGIN}\" y=\"{}\">{}</text>", top + 12, escaped(&text)));
    curve(svg, &found.densities, top + 20);
    let ribbon_top = top + 20 + CURVE + 4;
    ribbon(svg, found, ribbon_top);
    if let Outcome::Phases(phases) = &found.outcome {
        for &change in &phases.changes.online {
            let x = place(change, found.intervals);
            let (from, to) = (ribbon_top + RIBBON + 1, ribbon_top + RIBBON + 7);
            put(svg, format_args!("<path d=\"M{x:.1} {from}V{to}\" stroke=\"black\"/>"));
        }
    }
}

/// Where an interval stands.
fn place(interval: usize, intervals: usize) -> f64 {
    MARGIN as f64 + WIDTH as f64 * interval as f64 / intervals.max(1) as f64
}

/// The density, as the highest of the intervals that share a column.
fn curve(svg: &mut String, densities: &[f64], top: usize) {
    // f64::max passes over NaN.
    let highest = densities.iter().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return;
    }
    let chunk = densities.len().div_ceil(WIDTH);
    let mut path = String::new();
    for (column, shared) in densities.chunks(chunk).enumerate() {
        let density = shared.iter().copied().fold(0.0, f64::max);
        let x = place(column * chunk, densities.len());
        let y = top as f64 + CURVE as f64 * (1.0 - density / highest);
        let command = if column == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{x:.1} {y:.1}");
    }
    put(svg, format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"#444444\"/>"));
}

/// One rectangle for each run of intervals of the same pattern; intervals of none stay grey.
fn ribbon(svg: &mut String, found: &Found, top: usize) {
    put(
        svg,
        format_args!(
            "<rect x=\"{MARGIN}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{RIBBON}\" fill=\"#e8e8e8\"/>"
        ),
    );
    let mut from = 0;
    for run in found.labels.chunk_by(|a, b| a == b) {
        let to = from + run.len();
        if let Some(pattern) = run[0] {
            let (x, end) = (place(from, found.intervals), place(to, found.intervals));
            let colour = COLOURS[pattern % COLOURS.len()];
            put(
                svg,
                format_args!(
                    "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{RIBBON}\" fill=\"{colour}\"/>",
                    end - x
                ),
            );
        }
        from = to;
    }
}
