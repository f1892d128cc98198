//! The coefficient of variation within phases, as ScarPhase reports it.

use std::collections::BTreeMap;

/// The standard deviation over the mean of the values of each phase, weighted by the number of values. Values without a phase
/// are a phase of their own. NaN for no value; a phase whose mean is 0 varies by 0.
pub fn weighted_cov<L: Ord>(values: impl IntoIterator<Item = (L, f64)>) -> f64 {
    /// Welford's running mean and sum of squared deviations.
    #[derive(Default)]
    struct Moments {
        count: f64,
        mean: f64,
        squares: f64,
    }
    let mut phases: BTreeMap<L, Moments> = BTreeMap::new();
    for (label, value) in values {
        let phase = phases.entry(label).or_default();
        phase.count += 1.0;
        let difference = value - phase.mean;
        phase.mean += difference / phase.count;
        phase.squares += difference * (value - phase.mean);
    }
    let all: f64 = phases.values().map(|phase| phase.count).sum();
    let weighted = phases.values().filter(|phase| phase.mean > 0.0);
    let weighted: f64 =
        weighted.map(|phase| phase.count * (phase.squares / phase.count).sqrt() / phase.mean).sum();
    weighted / all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_over_phases_is_weighted_by_their_size() {
        // Phase 0: 8 and 12, CoV 0.2. Phase 1: six times 5, CoV 0.
        let values = [(0, 8.0), (1, 5.0), (1, 5.0), (0, 12.0), (1, 5.0), (1, 5.0), (1, 5.0), (1, 5.0)];
        assert!((weighted_cov(values) - 0.2 * 2.0 / 8.0).abs() < 1e-12);
        assert_eq!(weighted_cov([(0, 0.0), (0, 0.0)]), 0.0);
        assert!(weighted_cov::<u8>([]).is_nan());
    }
}
