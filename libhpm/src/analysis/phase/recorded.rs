//! Recorded programs in short: the intervals of one process, and how often each of its functions was sampled in each.
//!
//! Traces are too large to be kept; this is what the judgement of a phase detector needs of one.

use serde::{Deserialize, Serialize};

use super::interval::{Interval, MAX_EVENTS};

/// What is kept of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// How the program was started.
    pub command: String,
    /// Its kind: "compressor".
    pub kind: String,
    /// How it was recorded, and on what.
    pub recorded: String,
    /// What [`Interval::counts`] hold, in their order.
    pub events: Vec<String>,
    /// Names of the functions; where a file has no symbols, its pages of 4 KiB take their place.
    pub functions: Vec<String>,
    intervals: Vec<Short>,
}

/// Start, end, ticks on a CPU, whether something is missing before it, counts, and pairs of function and samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Short(u64, u64, u64, bool, Vec<u64>, Vec<u64>);

impl Recorded {
    /// Adds an interval, the samples of whose functions (by their index in `functions`) are told.
    pub fn push(&mut self, interval: &Interval, samples: &[(u32, u64)]) {
        let counts = interval.counts[..self.events.len().min(MAX_EVENTS)].to_vec();
        let pairs = samples.iter().flat_map(|&(function, samples)| [u64::from(function), samples]);
        let Interval { start, end, on_cpu, after_gap, .. } = *interval;
        self.intervals.push(Short(start, end, on_cpu, after_gap, counts, pairs.collect()));
    }

    /// The intervals.
    #[must_use]
    pub fn intervals(&self) -> Vec<Interval> {
        let interval = |short: &Short| {
            let Short(start, end, on_cpu, after_gap, counts, _) = short;
            let mut all = [0; MAX_EVENTS];
            all.iter_mut().zip(counts).for_each(|(slot, count)| *slot = *count);
            Interval { start: *start, end: *end, on_cpu: *on_cpu, counts: all, after_gap: *after_gap }
        };
        self.intervals.iter().map(interval).collect()
    }

    /// Samples of each interval: function and number.
    #[must_use]
    pub fn profiles(&self) -> Vec<Vec<(u32, u64)>> {
        let pairs = |short: &Short| {
            short.5.chunks_exact(2).map(|pair| (pair[0].try_into().unwrap_or(u32::MAX), pair[1])).collect()
        };
        self.intervals.iter().map(pairs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_back() {
        let mut counts = [0; MAX_EVENTS];
        counts[..2].copy_from_slice(&[100, 7]);
        let interval = Interval { start: 5, end: 25, on_cpu: 19, counts, after_gap: true };
        let events = vec!["instructions:u".to_owned(), "l1d-load-miss:u".to_owned()];
        let mut recorded = Recorded { events, functions: vec!["main".into()], ..Recorded::default() };
        recorded.push(&interval, &[(0, 3), (4, 1)]);
        let text = serde_json::to_string(&recorded).unwrap();
        let read: Recorded = serde_json::from_str(&text).unwrap();
        assert_eq!(read, recorded);
        assert_eq!((read.intervals(), read.profiles()), (vec![interval], vec![vec![(0, 3), (4, 1)]]));
    }
}
