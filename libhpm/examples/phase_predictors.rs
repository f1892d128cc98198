//! How well phases are found, and how much profiling they save: the published algorithm, the improved one, and skipping every
//! second interval, on streams whose phases are known. The table in `docs/phases.md`.
//!
//! `cargo run --release -p libhpm --example phase_predictors`

use libhpm::analysis::phase::metrics::{Profile, Quality, evaluate, groups, profiling_rate};
use libhpm::analysis::phase::synthetic::{Stream, labelled_set};
use libhpm::analysis::phase::{Action, Base, Control, Detector, Interval, Rules, Signal, Step, replay};

/// Intervals of a stream.
const INTERVALS: usize = 4000;
/// Streams of each recipe.
const SEEDS: u64 = 3;
/// Standard deviations of the counts, as parts of their mean.
const NOISE: [f64; 3] = [0.01, 0.05, 0.2];
/// Recipes on which the parameters were chosen; the others judge.
const TUNED_ON: [&str; 4] = ["steps", "bursts", "short", "drift only"];

/// Means over streams; what could not be evaluated is left out.
#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        if !value.is_nan() {
            self.sum += value;
            self.count += 1.0;
        }
    }

    fn percent(&self) -> String {
        if self.count > 0.0 { format!("{:.1}", 100.0 * self.sum / self.count) } else { "–".to_owned() }
    }
}

/// A row: confidence, PMR, PMR of the major levels, profiling rate, coverage, coverage of skipping at the same rate.
type Row = [Mean; 6];

fn canonical(stream: &Stream) -> Profile {
    let mut profile = Profile::default();
    for &(function, samples) in stream.profiles.iter().flatten() {
        profile.add(function.into(), samples as f64);
    }
    profile
}

/// Decides for each interval from what came before it.
fn actions(steps: &[Step]) -> Vec<Action> {
    let mut control = Control::new();
    let decide = |step: &Step| {
        let action = control.decide();
        control.learn(step);
        action
    };
    steps.iter().map(decide).collect()
}

/// Records evenly so many intervals.
fn skipping(rate: f64, intervals: usize) -> Vec<Action> {
    let records = |index: usize| ((index + 1) as f64 * rate).floor() > (index as f64 * rate).floor();
    (0..intervals).map(|index| if records(index) { Action::Record } else { Action::Skip }).collect()
}

fn quality(stream: &Stream, steps: &[Step]) -> Quality {
    let density = |step: &Step| step.density.unwrap_or(f64::NAN);
    let densities: Vec<f64> = steps.iter().map(density).collect();
    let clock: Vec<f64> = (0..stream.intervals.len()).map(|index| index as f64).collect();
    evaluate(&densities, &clock, &groups(steps))
}

fn judge(rules: Rules, stream: &Stream, row: &mut Row) {
    let mut detector = Detector::new(rules, Signal::new(&[0], Base::Time));
    let steps: Vec<Step> =
        stream.intervals.iter().map(|interval: &Interval| detector.push(interval)).collect();
    let quality = quality(stream, &steps);
    let actions = actions(&steps);
    let rate = profiling_rate(actions.iter().map(|action| action.records()));
    let canonical = canonical(stream);
    let coverage = |actions: &[Action]| replay(actions, &stream.profiles).coverage(&canonical);
    let values = [
        quality.confidence,
        quality.pmr,
        quality.pmr_major,
        rate,
        coverage(&actions),
        coverage(&skipping(rate, stream.intervals.len())),
    ];
    row.iter_mut().zip(values).for_each(|(mean, value)| mean.add(value));
}

fn print(name: &str, rules: &str, row: &Row) {
    let cells: Vec<String> = row.iter().map(Mean::percent).collect();
    println!("| {name} | {rules} | {} |", cells.join(" | "));
}

fn main() {
    println!(
        "| stream | algorithm | confidence % | PMR % | PMR major % | profiling rate % | coverage % | skipping at that rate % |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let names: Vec<&str> = labelled_set(0.0).iter().map(|recipe| recipe.name).collect();
    let mut judged = [Row::default(), Row::default()];
    let mut simple = Mean::default();
    for (which, name) in names.iter().enumerate() {
        for (rules, total) in [Rules::Published, Rules::Improved].into_iter().zip(&mut judged) {
            let mut row = Row::default();
            for (noise, seed) in NOISE.iter().flat_map(|noise| (0..SEEDS).map(move |seed| (noise, seed))) {
                let stream = labelled_set(*noise)[which].stream(INTERVALS, seed);
                judge(rules, &stream, &mut row);
                if !TUNED_ON.contains(name) {
                    judge(rules, &stream, total);
                    let half = replay(&skipping(0.5, INTERVALS), &stream.profiles);
                    simple.add(half.coverage(&canonical(&stream)));
                }
            }
            let tuned = if TUNED_ON.contains(name) { " (tuned on)" } else { "" };
            print(&format!("{name}{tuned}"), &format!("{rules:?}").to_lowercase(), &row);
        }
    }
    print("**mean of those not tuned on**", "published", &judged[0]);
    print("**mean of those not tuned on**", "improved", &judged[1]);
    println!(
        "| **mean of those not tuned on** | simple 50 % | – | – | – | 50.0 | {} | – |",
        simple.percent()
    );
}
