//! How well phases are found, and how much profiling they save: by the published rules and by those with a noise gate, each with one
//! buffer (§3.3); with a profile for each behaviour; and by skipping intervals evenly; on streams whose phases are known. What an
//! oracle that knows them would reach at the same rate is given too. The table in `docs/phases.md`.
//!
//! `cargo run --release -p libhpm --example phase_predictors`

mod phase_judge;

use libhpm::analysis::phase::replay;
use libhpm::analysis::phase::synthetic::labelled_set;

use self::phase_judge::{HEADER, HOW, Mean, Row, canonical, print, skipping};

/// Intervals of a stream.
const INTERVALS: usize = 4000;
/// Streams of each recipe.
const SEEDS: u64 = 3;
/// Standard deviations of the counts, as parts of their mean.
const NOISE: [f64; 3] = [0.01, 0.05, 0.2];
/// Recipes on which the parameters were chosen; the others judge.
const TUNED_ON: [&str; 4] = ["steps", "bursts", "short", "drift only"];

fn main() {
    println!("| stream {HEADER}");
    let names: Vec<&str> = labelled_set(0.0).iter().map(|recipe| recipe.name).collect();
    let mut judged = [Row::default(), Row::default(), Row::default()];
    let mut simple = Mean::default();
    for (which, name) in names.iter().enumerate() {
        let tuned = if TUNED_ON.contains(name) { " (tuned on)" } else { "" };
        for ((how, judge), total) in HOW.iter().zip(&mut judged) {
            let mut row = Row::default();
            for (noise, seed) in NOISE.iter().flat_map(|noise| (0..SEEDS).map(move |seed| (noise, seed))) {
                let stream = labelled_set(*noise)[which].stream(INTERVALS, seed);
                judge(&stream, &mut row);
                if tuned.is_empty() {
                    judge(&stream, total);
                    let half = replay(&skipping(0.5, INTERVALS), &stream.profiles);
                    simple.add(half.coverage(&canonical(&stream)));
                }
            }
            print(&format!("{name}{tuned}"), how, &row);
        }
    }
    for ((how, _), row) in HOW.iter().zip(&judged) {
        print("**mean of those not tuned on**", how, row);
    }
    println!(
        "| **mean of those not tuned on** | simple 50 % | – | – | – | 50.0 | {} | – | – |",
        simple.percent()
    );
}
