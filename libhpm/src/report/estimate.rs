//! How far a share found by sampling can be off by chance.

use serde::Serialize;

use super::Sum;

/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_985;

/// A share of a whole, estimated from samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The share that the samples have, from 0 to 1.
    pub share: f64,
    /// How far the ends of the 95 % interval are from `share` at most.
    pub error: f64,
}

impl Estimate {
    /// Of these samples in all, by their events. Where periods differ, fewer equal ones tell as much
    /// ([`Sum::effective_samples`]).
    #[must_use]
    pub fn of(own: Sum, all: Sum) -> Self {
        Self::new(own.events, all.events, all.effective_samples())
    }

    /// From `events` of `all_events`, seen through as many samples of one period: Wilson's score interval (JASA 22, 1927), which
    /// also holds for few samples and for shares near 0 and 1. It covers chance alone, as if samples were drawn
    /// independently; it says nothing of a period that beats with the program's own.
    #[must_use]
    pub fn new(events: u64, all_events: u64, samples: f64) -> Self {
        if all_events == 0 || samples <= 0.0 {
            return Self { share: 0.0, error: 0.0 };
        }
        let (share, n) = (events as f64 / all_events as f64, samples);
        let half_width = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let (centre, scale) = (share + Z * Z / (2.0 * n), 1.0 + Z * Z / n);
        let (low, high) = ((centre - half_width) / scale, (centre + half_width) / scale);
        Self { share, error: (share - low).max(high - share) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_published_intervals() {
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3: 81/263 gives 0.2553 to 0.3662,
        // 15/148 gives 0.0624 to 0.1605, and 1/29 gives 0.0061 to 0.1718.
        for (hits, samples, low, high) in
            [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (1, 29, 0.0061, 0.1718)]
        {
            let estimate = Estimate::new(hits, samples, samples as f64);
            let share = hits as f64 / samples as f64;
            let error = (share - low).max(high - share);
            assert!((estimate.error - error).abs() < 1e-4, "{hits}/{samples}: {estimate:?}");
        }
    }

    /// Ten samples of a long period among many of a short one say little more than ten.
    #[test]
    fn unequal_periods_widen_the_interval() {
        let sum = |samples, period| {
            let one = Sum::sample(period, None);
            Sum { samples, events: samples * one.events, squares: u128::from(samples) * one.squares, ..one }
        };
        let (long, mut all) = (sum(10, 100_000), sum(1000, 1000));
        all.add(long);
        let found = Estimate::of(long, all);
        assert_eq!(found, Estimate::new(1, 2, 2e6 * 2e6 / (1e9 + 1e11)));
        assert!(found.error > 0.14, "{found:?}");
    }

    #[test]
    fn nothing_of_nothing_is_nothing() {
        assert_eq!(Estimate::new(0, 0, 0.0), Estimate { share: 0.0, error: 0.0 });
    }
}
