//! How events are spread over instructions: a few hot ones, or many (Schneider's thesis, 4.1: Table 4.1 and its figures).

use serde::Serialize;

use super::{Estimate, Sum};
use crate::trace::Event;

/// The shares for which the number of instructions is told; 80 % is the thesis's.
pub const QUANTILES: [u32; 4] = [50, 80, 95, 99];

/// How many instructions the histograms of the thesis show.
pub const TOP: usize = 100;

/// How an event is spread over the instructions with samples of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Instructions that have samples (the column `100 %` of Table 4.1).
    pub instructions: usize,
    /// How few of them have a share of all events.
    pub quantiles: Vec<Quantile>,
    /// Share of the [`TOP`] instructions with most events.
    pub top_share: Estimate,
    /// About how many more instructions have the event, but no sample: Chao's lower bound (Scandinavian Journal of Statistics
    /// 11, 1984) from those with one and with two samples. Absent where it was sampled only where it is dense: what lies elsewhere has no
    /// samples, however many are taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<f64>,
}

/// The instructions with most events that have together at least a share of all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantile {
    /// The share, in percent.
    pub percent: u32,
    /// How many instructions that takes.
    pub instructions: usize,
    /// Their part of all instructions with samples.
    pub part: f64,
}

impl Distribution {
    /// From what each instruction has of an event, those with most first.
    #[must_use]
    pub fn new(event: &Event, sums: &[Sum]) -> Self {
        let events = |sums: &[Sum]| sums.iter().map(|sum| u128::from(sum.events)).sum::<u128>();
        let all = events(sums);
        let mut whole = Sum::default();
        sums.iter().for_each(|sum| whole.add(*sum));
        let quantile = |percent: u32| {
            let mut reached = 0;
            let enough = |sum: &Sum| {
                reached += u128::from(sum.events);
                reached * 100 >= all * u128::from(percent)
            };
            let instructions = sums.iter().position(enough).map_or(0, |last| last + 1);
            Quantile { percent, instructions, part: instructions as f64 / sums.len().max(1) as f64 }
        };
        let with = |count: u64| sums.iter().filter(|sum| sum.samples == count).count() as f64;
        let (once, twice) = (with(1), with(2));
        // The form that also holds when none has two (Chao 1987).
        let unseen = if twice > 0.0 { once * once / (2.0 * twice) } else { once * (once - 1.0) / 2.0 };
        let number = |events: u128| u64::try_from(events).unwrap_or(u64::MAX);
        let top = &sums[..sums.len().min(TOP)];
        Self {
            instructions: sums.len(),
            quantiles: QUANTILES.into_iter().map(quantile).collect(),
            top_share: Estimate::new(number(events(top)), number(all), whole.effective_samples()),
            unseen: event.within.is_none().then_some(unseen.max(0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::Within;

    fn sums(events: impl IntoIterator<Item = u64>) -> Vec<Sum> {
        events
            .into_iter()
            .map(|events| Sum { samples: events, events, squares: events.into(), ..Sum::default() })
            .collect()
    }

    #[test]
    fn a_few_hot_instructions_have_most() {
        let found = Distribution::new(&Event::default(), &sums([60, 20, 10, 5, 2, 1, 1, 1]));
        let quantiles: Vec<usize> = found.quantiles.iter().map(|quantile| quantile.instructions).collect();
        assert_eq!((found.instructions, quantiles), (8, vec![1, 2, 4, 7]));
        assert_eq!(found.quantiles[1], Quantile { percent: 80, instructions: 2, part: 0.25 });
        assert!((found.unseen.unwrap() - 4.5).abs() < 1e-12, "3² / (2 · 1)");
        let dense = Event { within: Some(Within::default()), ..Event::default() };
        let dense = Distribution::new(&dense, &sums([60, 20, 10, 5, 2, 1, 1, 1]));
        assert_eq!(dense, Distribution { unseen: None, ..found });
        assert_eq!(Distribution::new(&Event::default(), &sums([9; 200])).top_share.share, 0.5);
    }

    #[test]
    fn nothing_is_no_error() {
        let found = Distribution::new(&Event::default(), &[]);
        assert_eq!((found.instructions, found.unseen), (0, Some(0.0)));
        assert!(found.quantiles.iter().all(|quantile| quantile.instructions == 0));
    }

    proptest! {
        /// A quantile is the shortest beginning of the list that has its share.
        #[test]
        fn quantiles_are_the_shortest_that_have_their_share(mut events in prop::collection::vec(1_u64..1000, 1..200)) {
            events.sort_unstable_by(|a, b| b.cmp(a));
            let (all, found) = (events.iter().sum::<u64>(), Distribution::new(&Event::default(), &sums(events.clone())));
            for quantile in found.quantiles {
                let reached = |count: usize| events[..count].iter().sum::<u64>() * 100 >= all * u64::from(quantile.percent);
                prop_assert!(reached(quantile.instructions) && !reached(quantile.instructions - 1));
            }
        }
    }
}
