//! The detector on streams whose phases are known.

use super::synthetic::{Random, Recipe, TICKS, labelled_set};
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
    assert!(found.intervals > 1800 && found.repetitions > chance.repetitions, "{found:?} {chance:?}");
    assert!(found.share() > chance.share, "{found:?} {chance:?}");
    assert_eq!(phases.labels().iter().flatten().count(), found.intervals);
}

/// Intervals ten times as long, after the period or the timer has changed, show the same patterns.
#[test]
fn a_change_of_the_intervals_length_does_not_matter() {
    let stream = recipe("steps", 0.01).stream(3600, 1);
    let stretched = |(index, interval): (usize, &Interval)| {
        let factor = if index > 1800 { 10 } else { 1 };
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
    let only = NoPhases::NoRepetition { patterns: 1 }.to_string();
    assert_eq!(only, "the only pattern did not come back when it was predicted");
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

/// A memoryless stream: at each interval the level changes with the same chance, so that nothing says when.
fn telegraph(levels: &[f64], dwell: f64, noise: f64, random: &mut Random) -> Vec<Interval> {
    let mut level = 0;
    let mut interval = |index: u64| {
        if random.uniform() < 1.0 / dwell {
            level = (level + 1 + random.below(levels.len() - 1)) % levels.len();
        }
        let count = levels[level] * (1.0 + noise * random.normal()).max(0.0);
        let (start, mut counts) = (index * TICKS, [0; MAX_EVENTS]);
        counts[0] = count.round() as u64;
        Interval { start, end: start + TICKS, on_cpu: TICKS, counts, after_gap: index == 0 }
    };
    (0..600).map(&mut interval).collect()
}

/// Levels that hold for a while are stretches, but no phases when they come and go without any period.
#[test]
fn levels_that_change_by_chance_are_no_phases() {
    let mut random = Random::new(3);
    let (two, three): (&[f64], &[f64]) = (&[1e4, 4e4], &[1e4, 4e4, 2e4]);
    for (levels, dwell, noise) in
        [(two, 30.0, 0.05), (two, 10.0, 0.05), (two, 5.0, 0.02), (three, 20.0, 0.05)]
    {
        let mut is_found = || {
            let stream = telegraph(levels, dwell, noise, &mut random);
            find_phases(Rules::NoiseGated, signal(), &stream).is_ok()
        };
        let found = (0..20).filter(|_| is_found()).count();
        assert!(found <= 1, "{found} of 20 with {levels:?}, which hold for {dwell}");
    }
}

/// A limit of that comparison: what has a short period of its own repeats as often in each order.
#[test]
fn what_repeats_within_stretches_is_not_told_from_chance() {
    for seed in 1..5 {
        let stream = recipe("bursts", 0.01).stream(1800, seed);
        let found = find_phases(Rules::NoiseGated, signal(), &stream.intervals);
        assert!(matches!(found, Err(NoPhases::Chance { .. })), "{found:?}");
    }
}

/// Shuffling moves nothing across a gap, and so neither adds one nor takes one away.
#[test]
fn a_gap_in_the_middle_does_not_hide_phases() {
    let mut intervals = recipe("steps", 0.01).stream(3600, 1).intervals;
    intervals[1900].after_gap = true;
    let phases = find_phases(Rules::NoiseGated, signal(), &intervals).unwrap();
    assert!(phases.spans.iter().all(|span| span.last < 1900 || span.first >= 1900), "{:?}", phases.spans);
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
