//! Samples that say the same, counted before anything is made of them: there are far fewer of them than samples.

use std::collections::HashMap;

use serde::Serialize;

use super::Sample;

/// Samples and the events they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// How many samples.
    pub samples: u64,
    /// The sum of their periods.
    pub events: u64,
    /// How many of them have a latency.
    #[serde(skip_serializing_if = "is_zero")]
    pub timed: u64,
    /// The sum of their latencies.
    #[serde(skip_serializing_if = "is_zero")]
    pub latency_cycles: u64,
    /// The sum of the squares of their periods.
    #[serde(skip)]
    pub squares: u128,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Sum {
    /// One sample that stands for `period` events, and has this latency in core cycles.
    #[must_use]
    pub fn sample(period: u64, latency: Option<u32>) -> Self {
        let (timed, latency_cycles) = (latency.is_some().into(), latency.unwrap_or(0).into());
        let squares = u128::from(period).pow(2);
        Self { samples: 1, events: period, timed, latency_cycles, squares }
    }

    /// Adds other samples to it.
    pub fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.events = self.events.saturating_add(other.events);
        self.timed = self.timed.saturating_add(other.timed);
        self.latency_cycles = self.latency_cycles.saturating_add(other.latency_cycles);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// How many samples of one period would tell as much as these with theirs: (Σw)²/Σw² (Kish, *Survey Sampling*, 1965). Where all
    /// have one period that is their number.
    #[must_use]
    pub fn effective_samples(self) -> f64 {
        if self.squares == 0 { 0.0 } else { (self.events as f64).powi(2) / self.squares as f64 }
    }

    /// The mean latency in core cycles of the samples that have one. Each counts once, whatever its period: an access that takes
    /// long is not more likely to be sampled.
    #[must_use]
    pub fn mean_latency(self) -> Option<f64> {
        (self.timed > 0).then(|| self.latency_cycles as f64 / self.timed as f64)
    }
}

/// Counts samples.
#[derive(Debug, Default)]
pub struct Tally(HashMap<Sample, Sum>);

impl Tally {
    /// Counts a sample that stands for `period` events, and has this latency in core cycles.
    pub fn add(&mut self, sample: Sample, period: u64, latency: Option<u32>) {
        self.0.entry(sample).or_default().add(Sum::sample(period, latency));
    }

    /// Each distinct sample with how often it came, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Sample, Sum)> {
        self.0.iter().map(|(sample, sum)| (sample, *sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unequal_periods_tell_less() {
        let of = |periods: &[u64]| {
            let mut sum = Sum::default();
            periods.iter().for_each(|period| sum.add(Sum::sample(*period, None)));
            sum.effective_samples()
        };
        assert_eq!(of(&[]), 0.0);
        assert_eq!(of(&[700; 9]), 9.0);
        assert_eq!(of(&[1, 1, 1, 1, 4]), 3.2, "8² / 20");
    }
}
