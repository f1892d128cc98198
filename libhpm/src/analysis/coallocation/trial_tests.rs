use proptest::prelude::*;

use super::*;

/// Uniform numbers below 1, the same each time.
fn random(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const EQUAL: Exposure = Exposure { treated: 5000, control: 5000 };

/// A trial in which a treated pair misses `ratio` times as often, stopped as soon as its effect is clear. Each object that is hit, is
/// hit `hits` times.
fn stopped(seed: u64, ratio: f64, exposure: Exposure, rules: TrialRules, hits: u32) -> Trial {
    let mut random = random(seed);
    let mut trial = Trial::new(rules);
    let treated = ratio * exposure.treated as f64;
    let share = treated / (treated + exposure.control as f64);
    while !trial.is_over() && !matches!(trial.effect(), Effect::Helped { .. } | Effect::Hurt { .. }) {
        let group = if random() < share { Group::Treated } else { Group::Control };
        let object = (random() * 1e15) as u64;
        (0..hits).for_each(|_| trial.add(group, object, exposure));
    }
    trial
}

/// Of so many trials those with a verdict: (helped, hurt).
fn verdicts(trials: impl Iterator<Item = Trial>) -> (u32, u32) {
    trials.fold((0, 0), |(helped, hurt), mut trial| match trial.effect() {
        Effect::Helped { .. } => (helped + 1, hurt),
        Effect::Hurt { .. } => (helped, hurt + 1),
        _ => (helped, hurt),
    })
}

/// Rules under which only the number of samples ends a trial.
fn patient() -> TrialRules {
    TrialRules { doubt: 1e-9, samples_max: 400.0, ..TrialRules::default() }
}

/// Although it is looked at after every sample, a layout without effect is judged to have one in at most one of twenty trials.
#[test]
fn no_effect_is_seldom_one_however_often_one_looks() {
    for exposure in
        [EQUAL, Exposure { treated: 2500, control: 7500 }, Exposure { treated: 9375, control: 625 }]
    {
        let (helped, hurt) = verdicts((0..300).map(|seed| stopped(seed, 1.0, exposure, patient(), 1)));
        assert!(helped + hurt <= 15, "{exposure:?}: {helped} helped, {hurt} hurt");
    }
}

/// Objects that are hit five times each are no five samples.
#[test]
fn hot_objects_are_no_evidence() {
    let (helped, hurt) = verdicts((0..300).map(|seed| stopped(seed, 1.0, EQUAL, patient(), 5)));
    assert!(helped + hurt <= 15, "{helped} helped, {hurt} hurt");
}

#[test]
fn effects_are_found_and_strong_ones_soon() {
    let quarter = Exposure { treated: 2500, control: 7500 };
    for (ratio, found_min, samples_max) in [(0.4, 99, 120), (0.6, 90, 300), (1.7, 90, 300)] {
        let trials: Vec<Trial> =
            (0..100).map(|seed| stopped(seed, ratio, quarter, TrialRules::default(), 1)).collect();
        let samples: u64 = trials.iter().map(|trial| trial.samples().treated + trial.samples().control).sum();
        let (helped, hurt) = verdicts(trials.into_iter());
        let (right, wrong) = if ratio < 1.0 { (helped, hurt) } else { (hurt, helped) };
        // What is worse is given up sooner than it is shown to be worse.
        let found = if ratio < 1.0 { right } else { 100 - wrong };
        assert!(found >= found_min && wrong == 0, "{ratio}: {right} right, {wrong} wrong");
        assert!(samples / 100 <= samples_max, "{ratio}: {} samples on average", samples / 100);
    }
}

#[test]
fn a_layout_that_does_nothing_is_given_up_soon() {
    let samples: u64 = (0..100)
        .map(|seed| stopped(seed, 1.0, EQUAL, TrialRules::default(), 1))
        .map(|trial| trial.samples().treated + trial.samples().control)
        .sum();
    assert!((100..400).contains(&(samples / 100)), "{} samples on average", samples / 100);
}

#[test]
fn what_was_shown_long_ago_is_forgotten() {
    let mut trial = stopped(1, 0.4, EQUAL, TrialRules::default(), 1);
    assert!(matches!(trial.effect(), Effect::Helped { .. }));
    trial.restart();
    assert_eq!((trial.effect(), trial.exposure()), (Effect::Waiting, EQUAL));
}

#[test]
fn samples_before_there_are_two_groups_tell_nothing() {
    let mut trial = Trial::new(TrialRules::default());
    trial.add(Group::Treated, 1, Exposure { treated: 7, control: 0 });
    assert_eq!(
        (trial.effect(), trial.change(), trial.samples()),
        (Effect::Waiting, None, Exposure::default())
    );
    assert!(!trial.is_over());
}

proptest! {
    /// The likeliest change lies in the interval; more samples never widen it; and what is worse for one group is better for the other.
    #[test]
    fn intervals_shrink_around_the_likeliest_change(
        samples in prop::collection::vec((any::<bool>(), 0_u64..10_000), 1..300),
        treated in 1_u64..1000,
        control in 1_u64..1000,
    ) {
        let exposure = Exposure { treated, control };
        let mirrored = Exposure { treated: control, control: treated };
        let (mut trial, mut mirror) = (Trial::new(TrialRules::default()), Trial::new(TrialRules::default()));
        for (is_treated, object) in samples {
            let groups = [Group::Treated, Group::Control];
            trial.add(groups[usize::from(!is_treated)], object, exposure);
            mirror.add(groups[usize::from(is_treated)], object, mirrored);
            let (low, mean, high) = trial.change().unwrap();
            prop_assert!(-1.0 < low && low <= mean && mean <= high, "{low} {mean} {high}");
            let (other_low, _, other_high) = mirror.change().unwrap();
            prop_assert!(((1.0 + low) * (1.0 + other_high) - 1.0).abs() < 1e-9);
            prop_assert!(((1.0 + high) * (1.0 + other_low) - 1.0).abs() < 1e-9);
        }
    }

    /// Samples say the same together as one by one, also while the pairs become more.
    #[test]
    fn samples_may_be_weighed_together(
        samples in prop::collection::vec((any::<bool>(), 0_u64..10_000, 0_u64..3), 1..300),
    ) {
        let mut exposure = EQUAL;
        let (mut often, mut once) = (Trial::new(TrialRules::default()), Trial::new(TrialRules::default()));
        for (is_treated, object, more) in samples {
            exposure.treated += more;
            let group = if is_treated { Group::Treated } else { Group::Control };
            often.add(group, object, exposure);
            once.add(group, object, exposure);
            prop_assert!(often.change().is_some());
        }
        prop_assert!(once.change().is_some());
        for (one, other) in often.likelihoods.iter().zip(&once.likelihoods) {
            prop_assert!((one - other).abs() <= 1e-9 * (1.0 + one.abs()), "{one} {other}");
        }
    }
}
