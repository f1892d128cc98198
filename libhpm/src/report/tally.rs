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
}

impl Sum {
    pub(super) fn add(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.events = self.events.saturating_add(other.events);
    }
}

/// Counts samples.
#[derive(Debug, Default)]
pub struct Tally(HashMap<Sample, Sum>);

impl Tally {
    /// Counts a sample that stands for `period` events.
    pub fn add(&mut self, sample: Sample, period: u64) {
        self.0.entry(sample).or_default().add(Sum { samples: 1, events: period });
    }

    /// Each distinct sample with how often it came, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&Sample, Sum)> {
        self.0.iter().map(|(sample, sum)| (sample, *sum))
    }
}
