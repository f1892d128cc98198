//! What the examples on phases share: what is compared, and by which metrics.

use libhpm::analysis::phase::metrics::{Profile, Quality, evaluate, groups, levels, profiling_rate};
use libhpm::analysis::phase::synthetic::Stream;
use libhpm::analysis::phase::{
    Action, Base, BehaviourControl, Control, Detector, Interval, Rules, Signal, Step, replay,
    replay_by_behaviour,
};

/// The columns after the first.
pub(crate) const HEADER: &str = "| algorithm | confidence % | PMR % | PMR major % | profiling rate % | coverage % | skipping at that rate % | oracle at that rate % |\n|---|---|---|---|---|---|---|---|---|";

/// Means over streams; what could not be evaluated is left out.
#[derive(Default)]
pub(crate) struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    pub(crate) fn add(&mut self, value: f64) {
        if !value.is_nan() {
            self.sum += value;
            self.count += 1.0;
        }
    }

    pub(crate) fn percent(&self) -> String {
        if self.count > 0.0 { format!("{:.2}", 100.0 * self.sum / self.count) } else { "–".to_owned() }
    }
}

/// A row: confidence, PMR, PMR of the major levels, profiling rate, coverage, coverage of skipping at the same rate, and of the
/// oracle.
pub(crate) type Row = [Mean; 7];

pub(crate) fn canonical(stream: &Stream) -> Profile {
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
pub(crate) fn skipping(rate: f64, intervals: usize) -> Vec<Action> {
    let records = |index: usize| ((index + 1) as f64 * rate).floor() > (index as f64 * rate).floor();
    (0..intervals).map(|index| if records(index) { Action::Record } else { Action::Skip }).collect()
}

/// The coverage of who knows every interval's behaviour beforehand, records as many of each evenly, and lets their mean stand for the
/// others. What is left is that the samples which were not taken are not known. NaN where nobody knows the behaviours.
fn oracle(rate: f64, stream: &Stream, canonical: &Profile) -> f64 {
    if stream.labels.is_empty() {
        return f64::NAN;
    }
    let labels = stream.labels.iter().copied().max().map_or(0, |last| last + 1);
    let mut estimate = Profile::default();
    for label in 0..labels {
        let own: Vec<&Vec<(u32, u64)>> = stream
            .labels
            .iter()
            .zip(&stream.profiles)
            .filter(|(of, _)| **of == label)
            .map(|(_, own)| own)
            .collect();
        let mut taken = Profile::default();
        let mut number = 0.0;
        for (samples, action) in own.iter().zip(skipping(rate, own.len())) {
            if action.records() {
                samples.iter().for_each(|&(function, weight)| taken.add(function.into(), weight as f64));
                number += 1.0;
            }
        }
        if number > 0.0 {
            estimate.add_scaled(&taken, own.len() as f64 / number);
        }
    }
    estimate.coverage(canonical)
}

/// Rate and coverage with a profile for each behaviour.
fn by_behaviour(stream: &Stream, row: &mut Row) {
    let mut control = BehaviourControl::new(Signal::new(&[0], Base::Time));
    let step = |interval: &Interval| (control.decide(), control.learn(interval));
    let (recorded, behaviours): (Vec<bool>, Vec<Option<usize>>) = stream.intervals.iter().map(step).unzip();
    let rate = profiling_rate(recorded.iter().copied());
    let canonical = canonical(stream);
    let skipped = replay(&skipping(rate, recorded.len()), &stream.profiles).coverage(&canonical);
    let coverage = replay_by_behaviour(&recorded, &behaviours, &stream.profiles).coverage(&canonical);
    let values = [f64::NAN, f64::NAN, f64::NAN, rate, coverage, skipped, oracle(rate, stream, &canonical)];
    row.iter_mut().zip(values).for_each(|(mean, value)| mean.add(value));
}

fn quality(stream: &Stream, steps: &[Step]) -> Quality {
    let density = |step: &Step| step.density.unwrap_or(f64::NAN);
    let densities: Vec<f64> = steps.iter().map(density).collect();
    let clock: Vec<f64> = (0..stream.intervals.len()).map(|index| index as f64).collect();
    evaluate(&densities, &levels(steps), &clock, &groups(steps))
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
        oracle(rate, stream, &canonical),
    ];
    row.iter_mut().zip(values).for_each(|(mean, value)| mean.add(value));
}

pub(crate) fn print(name: &str, rules: &str, row: &Row) {
    let cells: Vec<String> = row.iter().map(Mean::percent).collect();
    println!("| {name} | {rules} | {} |", cells.join(" | "));
}

/// Adds what a control reaches on a stream to a row.
pub(crate) type Judge = fn(&Stream, &mut Row);

/// What is compared.
pub(crate) const HOW: [(&str, Judge); 3] = [
    ("published, one buffer", |stream, row| judge(Rules::Published, stream, row)),
    ("noise gate, one buffer", |stream, row| judge(Rules::NoiseGated, stream, row)),
    ("a profile for each behaviour", by_behaviour),
];
