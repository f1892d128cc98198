//! How well change points are found in streams whose changes are known: the table in `docs/phases.md`.
//!
//! `cargo run --release -p libhpm --example change_points`

use libhpm::analysis::phase::Interval;
use libhpm::analysis::phase::change::{Alarm, Cusum, LastValue, Score, pelt, score};
use libhpm::analysis::phase::synthetic::{Stream, labelled_set};

/// Intervals of a stream.
const INTERVALS: usize = 2000;
/// Streams of each recipe.
const SEEDS: u64 = 10;
/// A change must be found within so many intervals.
const MARGIN: usize = 10;
/// Standard deviations of the counts, as parts of their mean.
const NOISE: [f64; 4] = [0.01, 0.05, 0.1, 0.2];

/// A detector: densities in, alarms out.
type Detect = fn(&[f64]) -> Vec<Alarm>;

const DETECTORS: [(&str, Detect); 4] = [
    ("online CUSUM", |values| {
        let mut detector = Cusum::new();
        values.iter().filter_map(|&value| detector.push(value)).collect()
    }),
    ("PELT (offline)", |values| {
        pelt(values).into_iter().map(|change| Alarm { found: change, changed: change }).collect()
    }),
    ("last value", |values| {
        let mut detector = LastValue::new();
        values.iter().filter_map(|&value| detector.push(value)).collect()
    }),
    ("no change", |_| vec![]),
];

fn densities(stream: &Stream) -> Vec<f64> {
    let density = |interval: &Interval| interval.counts[0] as f64 / interval.on_cpu as f64;
    stream.intervals.iter().map(density).collect()
}

fn row(name: &str, noise: &str, detector: &str, score: &Score) {
    println!(
        "| {name} | {noise} | {detector} | {} | {} | {:.2} | {:.2} | {:.2} | {} |",
        score.changes,
        score.declared,
        score.precision(),
        score.recall(),
        score.f1(),
        score.mean_delay().map_or_else(|| "–".to_owned(), |delay| format!("{delay:.1}"))
    );
}

fn main() {
    println!(
        "| stream | noise | detector | changes | declared | precision | recall | F1 | delay (intervals) |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let names: Vec<&str> = labelled_set(0.0).iter().map(|recipe| recipe.name).collect();
    let mut by_noise = [[Score::default(); DETECTORS.len()]; NOISE.len()];
    for (which, name) in names.iter().enumerate() {
        for (place, (detector, detect)) in DETECTORS.iter().enumerate() {
            let mut total = Score::default();
            for (noise, sums) in NOISE.iter().zip(&mut by_noise) {
                for seed in 0..SEEDS {
                    let stream = labelled_set(*noise)[which].stream(INTERVALS, seed);
                    let score = score(&detect(&densities(&stream)), &stream.changes, MARGIN);
                    total.add(score);
                    sums[place].add(score);
                }
            }
            row(name, "1–20 %", detector, &total);
        }
    }
    for (noise, scores) in NOISE.iter().zip(&by_noise) {
        for ((detector, _), score) in DETECTORS.iter().zip(scores) {
            row("**all**", &format!("{:.0} %", 100.0 * noise), detector, score);
        }
    }
    for (place, (detector, _)) in DETECTORS.iter().enumerate() {
        let mut total = Score::default();
        by_noise.iter().for_each(|scores| total.add(scores[place]));
        row("**all**", "**all**", detector, &total);
    }
}
