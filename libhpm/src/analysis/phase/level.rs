//! Event densities and the levels of their variation (§3.1, "Levels").

use super::Rules;
use super::interval::{Interval, MAX_EVENTS};
use crate::source::perf::counts_ns;

/// Discrete levels of variation (§3.1: "we use 4 discrete levels").
pub const LEVELS: u8 = 4;

/// The lowest of the major levels (§5.2: "levels 2 and 3").
pub const MAJOR_LEVEL: u8 = 2;

/// Variations from which the levels 1, 2 and 3 begin, as parts of the mean density.
pub const THRESHOLDS: [f64; LEVELS as usize - 1] = [0.1, 0.3, 0.9];

/// Beyond the paper: a variation that is not so many times the usual one is of level 0. Of white noise, whose mean absolute value
/// is 0.8 standard deviations, this passes 1 value in 700. Chosen on the four programs that `docs/phases.md` names.
const USUAL_FACTOR: f64 = 4.0;
/// With how much of a variation the usual one follows it; a single one counts for no more than three usual ones.
const USUAL_FOLLOW: f64 = 0.02;

/// What a density divides by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// Time on a CPU, as published.
    #[default]
    Time,
    /// The event with this index: events per instruction, say.
    Event(usize),
}

/// The place of the event whose density tells phases where none is asked for: among those that an interval holds, the first that is
/// neither a clock, of which as many come in each ms on a CPU whatever a program does, nor the base itself.
#[must_use]
pub fn usual_event<'a>(names: impl IntoIterator<Item = &'a str>, base: Base) -> Option<usize> {
    let mut events = names.into_iter().take(MAX_EVENTS).enumerate();
    events.find(|(place, name)| base != Base::Event(*place) && !counts_ns(name)).map(|(place, _)| place)
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    events: [usize; MAX_EVENTS],
    len: usize,
    base: Base,
}

impl Signal {
    /// The densities of these events (indices below [`MAX_EVENTS`]; repeated and further ones are left out) over `base`.
    #[must_use]
    pub fn new(events: &[usize], base: Base) -> Self {
        let mut signal = Self { events: [0; MAX_EVENTS], len: 0, base };
        for &event in events {
            if event < MAX_EVENTS && !signal.events().contains(&event) && signal.len < MAX_EVENTS {
                signal.events[signal.len] = event;
                signal.len += 1;
            }
        }
        signal
    }

    /// Indices of the events.
    #[must_use]
    pub fn events(&self) -> &[usize] {
        &self.events[..self.len]
    }

    /// What the densities divide by.
    #[must_use]
    pub fn base(&self) -> Base {
        self.base
    }

    /// The divisor of an interval's densities; `None` when it is zero.
    fn divisor(&self, interval: &Interval) -> Option<f64> {
        let base = match self.base {
            Base::Time => interval.on_cpu,
            Base::Event(event) => interval.counts.get(event).copied().unwrap_or(0),
        };
        (base > 0).then_some(base as f64)
    }

    /// The first event's density in an interval, in events per TSC tick or per event of the base.
    #[must_use]
    pub fn density(&self, interval: &Interval) -> Option<f64> {
        let divisor = self.divisor(interval)?;
        self.events().first().map(|&event| interval.counts[event] as f64 / divisor)
    }
}

/// The change of density from one interval to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variation {
    /// 0 to [`LEVELS`] − 1: P_V.
    pub level: u8,
    /// V > 0.
    pub rising: bool,
}

/// Turns intervals into variations. Constant memory: the last densities, and the sums of which the mean densities are made.
#[derive(Clone, Debug)]
pub struct Meter {
    signal: Signal,
    last: Option<[f64; MAX_EVENTS]>,
    events: [f64; MAX_EVENTS],
    base: f64,
    /// Usual variation of each event, as a part of its mean; not known by the published rules.
    usual: Option<[f64; MAX_EVENTS]>,
}

impl Meter {
    /// A meter that has seen nothing.
    #[must_use]
    pub fn new(rules: Rules, signal: Signal) -> Self {
        let usual = (rules == Rules::NoiseGated).then_some([0.0; MAX_EVENTS]);
        Self { signal, last: None, events: [0.0; MAX_EVENTS], base: 0.0, usual }
    }

    /// What is looked at.
    #[must_use]
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The variation from the interval before to this one; `None` where there is nothing to compare with.
    pub fn push(&mut self, interval: &Interval) -> Option<Variation> {
        let Some(divisor) = self.signal.divisor(interval) else {
            self.last = None;
            return None;
        };
        self.base += divisor;
        let mut densities = [0.0; MAX_EVENTS];
        for &event in self.signal.events() {
            let count = interval.counts[event] as f64;
            self.events[event] += count;
            densities[event] = count / divisor;
        }
        let last = self.last.replace(densities).filter(|_| !interval.after_gap)?;
        Some(self.strongest(&last, &densities))
    }

    /// The variation of the event that has the highest level; of the first one among equals.
    fn strongest(&mut self, last: &[f64; MAX_EVENTS], now: &[f64; MAX_EVENTS]) -> Variation {
        let mut strongest = Variation { level: 0, rising: false };
        let signal = self.signal;
        for (place, &event) in signal.events().iter().enumerate() {
            let mean = self.events[event] / self.base;
            let change = now[event] - last[event];
            let part = if mean > 0.0 { change.abs() / mean } else { 0.0 };
            let stands_out = self.usual.as_mut().is_none_or(|usual| stands_out(&mut usual[event], part));
            let level = if stands_out { level_of(part) } else { 0 };
            if place == 0 || level > strongest.level {
                strongest = Variation { level, rising: change > 0.0 };
            }
        }
        strongest
    }
}

/// Whether a variation is more than what is usual, which learns from it.
fn stands_out(usual: &mut f64, part: f64) -> bool {
    let stands_out = part >= USUAL_FACTOR * *usual;
    // A stream begins without a usual variation: the first ones make it.
    let limit = if *usual > 0.0 { 3.0 * *usual } else { THRESHOLDS[0] };
    *usual += USUAL_FOLLOW * (part.min(limit) - *usual);
    stands_out
}

/// The level of a variation that is this part of the mean density.
fn level_of(part: f64) -> u8 {
    THRESHOLDS.iter().map(|&threshold| u8::from(part >= threshold)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(counts: &[u64]) -> Interval {
        let mut interval = Interval { on_cpu: 1000, ..Interval::default() };
        interval.counts[..counts.len()].copy_from_slice(counts);
        interval
    }

    #[test]
    fn the_usual_event_is_no_clock_and_not_the_base() {
        let software = ["cpu-clock:u", "task-clock", "page-faults:u"];
        assert_eq!(usual_event(software, Base::Time), Some(2));
        assert_eq!(usual_event(software, Base::Event(2)), None);
        assert_eq!(usual_event(["instructions", "cycles"], Base::Event(0)), Some(1));
        assert_eq!(usual_event(["cpu-clock"], Base::Time), None);
        let late = ["task-clock"; MAX_EVENTS].into_iter().chain(["page-faults"]);
        assert_eq!(usual_event(late, Base::Time), None, "intervals do not hold it");
    }

    #[test]
    fn levels_are_parts_of_the_mean() {
        assert_eq!([0.0, 0.099, 0.1, 0.29, 0.3, 0.89, 0.9, 7.0].map(level_of), [0, 0, 1, 1, 2, 2, 3, 3]);
        let mut meter = Meter::new(Rules::Published, Signal::new(&[0], Base::Time));
        assert_eq!(meter.push(&interval(&[100])), None, "the first has nothing before it");
        // Mean 110, change 20: 18 %.
        assert_eq!(meter.push(&interval(&[120])), Some(Variation { level: 1, rising: true }));
        // Mean 80, change −100.
        assert_eq!(meter.push(&interval(&[20])), Some(Variation { level: 3, rising: false }));
        assert_eq!(meter.push(&interval(&[20])), Some(Variation { level: 0, rising: false }));
    }

    #[test]
    fn densities_do_not_depend_on_the_length_of_intervals() {
        let mut meter = Meter::new(Rules::Published, Signal::new(&[0], Base::Time));
        meter.push(&interval(&[100]));
        let long = Interval { on_cpu: 7000, ..interval(&[700]) };
        assert_eq!(meter.push(&long), Some(Variation { level: 0, rising: false }));
        let mut meter = Meter::new(Rules::Published, Signal::new(&[0], Base::Event(1)));
        meter.push(&interval(&[100, 1000]));
        assert_eq!(meter.push(&interval(&[50, 500])), Some(Variation { level: 0, rising: false }));
    }

    #[test]
    fn of_several_events_the_strongest_counts() {
        let mut meter = Meter::new(Rules::Published, Signal::new(&[0, 1], Base::Time));
        meter.push(&interval(&[100, 100]));
        assert_eq!(meter.push(&interval(&[101, 60])), Some(Variation { level: 2, rising: false }));
        assert_eq!(meter.push(&interval(&[300, 61])), Some(Variation { level: 3, rising: true }));
    }

    /// Variations of a third of the mean are of level 2, until they turn out to be usual.
    #[test]
    fn usual_variations_lose_their_level() {
        let mut meter = Meter::new(Rules::NoiseGated, Signal::new(&[0], Base::Time));
        let mut levels =
            (0..400).filter_map(|index| meter.push(&interval(&[if index % 2 == 0 { 84 } else { 116 }])));
        assert_eq!(levels.next().map(|variation| variation.level), Some(2));
        assert_eq!(levels.last().map(|variation| variation.level), Some(0));
    }

    #[test]
    fn nothing_is_compared_across_a_gap_or_an_empty_interval() {
        let mut meter = Meter::new(Rules::Published, Signal::new(&[0], Base::Time));
        meter.push(&interval(&[100]));
        assert_eq!(meter.push(&Interval { after_gap: true, ..interval(&[900]) }), None);
        assert!(meter.push(&interval(&[900])).is_some());
        assert_eq!(meter.push(&Interval { on_cpu: 0, ..interval(&[900]) }), None);
        assert_eq!(meter.push(&interval(&[900])), None);
    }
}
