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
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Sum {
    pub(super) fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.events = self.events.saturating_add(other.events);
        self.timed = self.timed.saturating_add(other.timed);
        self.latency_cycles = self.latency_cycles.saturating_add(other.latency_cycles);
    }

    /// The mean latency in core cycles of the samples that have one. Each counts once: an access that takes long is not
    /// more likely to be sampled.
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
        let (timed, latency_cycles) = (latency.is_some().into(), latency.unwrap_or(0).into());
        self.0.entry(sample).or_default().add(Sum { samples: 1, events: period, timed, latency_cycles });
    }

    /// Each distinct sample with how often it came, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Sample, Sum)> {
        self.0.iter().map(|(sample, sum)| (sample, *sum))
    }
}
