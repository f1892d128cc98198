//! The detector on streams whose phases are known.

use super::synthetic::{Recipe, TICKS, labelled_set};
use super::*;

fn recipe(name: &str, noise: f64) -> Recipe {
    labelled_set(noise).into_iter().find(|recipe| recipe.name == name).unwrap()
}

fn signal() -> Signal {
    Signal::new(&[0], Base::Time)
}

#[test]
fn a_regular_program_repeats_as_predicted() {
    let stream = recipe("steps", 0.01).stream(3600, 1);
    let phases = find_phases(Rules::NoiseGated, signal(), &stream.intervals).unwrap();
    // One round is 180 intervals; the largest step (from 1 to 4) comes once in it.
    let name = |pattern: &PatternSummary| pattern.key.to_string();
    let rise = phases.patterns.iter().find(|pattern| name(pattern) == "3:01").unwrap();
    assert_eq!(rise.mean_length, Some(180 * TICKS), "{:?}", phases.patterns);
    assert!(rise.repetitive >= 6, "20 rounds, of which some are needed to learn: {rise:?}");
    let (found, chance) = (phases.repeating, phases.by_chance);
    assert!(found.intervals > 1800 && found.intervals > chance.intervals, "{found:?} {chance:?}");
    assert_eq!(phases.labels().iter().flatten().count(), found.intervals);
}

/// Intervals ten times as long, after the period or the timer has changed, show the same patterns.
#[test]
fn a_change_of_the_intervals_length_does_not_matter() {
    let stream = recipe("bursts", 0.0).stream(1200, 1);
    let stretched = |(index, interval): (usize, &Interval)| {
        let factor = if index > 600 { 10 } else { 1 };
        Interval {
            on_cpu: interval.on_cpu * factor,
            counts: interval.counts.map(|count| count * factor),
            ..*interval
        }
    };
    let other: Vec<Interval> = stream.intervals.iter().enumerate().map(stretched).collect();
    let variations = |intervals: &[Interval]| {
        let mut detector = Detector::new(Rules::NoiseGated, signal());
        let steps: Vec<Step> = intervals.iter().map(|interval| detector.push(interval)).collect();
        steps.iter().map(|step| step.density).collect::<Vec<_>>()
    };
    assert_eq!(variations(&stream.intervals), variations(&other));
    assert!(find_phases(Rules::NoiseGated, signal(), &other).is_ok());
}

#[test]
fn memory_does_not_grow() {
    let mut detector = Detector::with_capacity(Rules::Published, signal(), 16);
    let bytes = detector.bytes();
    let stream = recipe("irregular", 0.5).stream(50_000, 1);
    stream.intervals.iter().for_each(|interval| {
        detector.push(interval);
    });
    assert!(detector.database().replaced() > 0, "the database was full");
    assert_eq!((detector.bytes(), detector.database().len()), (bytes, 16));
    assert!(
        Detector::new(Rules::NoiseGated, signal()).bytes() < 20_000,
        "{}",
        Detector::new(Rules::NoiseGated, signal()).bytes()
    );
}

#[test]
fn without_phases_there_is_a_reason() {
    let stream = |name, noise, length| recipe(name, noise).stream(length, 1).intervals;
    let reason = |intervals: &[Interval]| find_phases(Rules::NoiseGated, signal(), intervals).unwrap_err();
    assert_eq!(reason(&stream("steps", 0.1, 23)), NoPhases::TooFew { intervals: 23, needed: 24 });
    assert_eq!(reason(&stream("no change", 0.0, 500)), NoPhases::Constant);
    assert_eq!(reason(&stream("no change", 0.01, 500)), NoPhases::Constant);
    let mut torn = stream("steps", 0.1, 500);
    torn.iter_mut().for_each(|interval| interval.after_gap = true);
    assert_eq!(reason(&torn), NoPhases::Gaps { gaps: 499, intervals: 500 });
    let mut one_step = stream("steps", 0.0, 50);
    one_step[30].counts[0] *= 3;
    assert_eq!(reason(&one_step), NoPhases::NoRepetition { patterns: 2 });
    // The published rules have patterns where nothing varies, and these come back by chance.
    let published = find_phases(Rules::Published, signal(), &one_step).unwrap_err();
    assert!(matches!(published, NoPhases::Chance { .. }), "{published:?}");
    let short = stream("irregular", 0.5, 24);
    assert!(matches!(reason(&short), NoPhases::NoRepetition { .. }), "{:?}", reason(&short));
}

/// Noise has patterns that come back, but no more often than in any other order.
#[test]
fn noise_has_no_phases() {
    let none = recipe("no change", 0.3);
    let found: Vec<_> = (0..5)
        .map(|seed| find_phases(Rules::NoiseGated, signal(), &none.stream(600, seed).intervals))
        .collect();
    let phases = found.iter().filter(|found| found.is_ok()).count();
    assert_eq!(phases, 0, "{:?}", found.iter().map(|found| found.as_ref().err()).collect::<Vec<_>>());
}

#[test]
fn an_event_that_never_happens_is_constant() {
    let mut intervals = recipe("steps", 0.1).stream(200, 1).intervals;
    intervals.iter_mut().for_each(|interval| interval.counts = [0; MAX_EVENTS]);
    assert_eq!(find_phases(Rules::NoiseGated, signal(), &intervals).unwrap_err(), NoPhases::Constant);
    assert_eq!(
        find_phases(Rules::NoiseGated, Signal::new(&[], Base::Time), &intervals).unwrap_err(),
        NoPhases::Constant
    );
}
