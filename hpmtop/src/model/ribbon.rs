//! The phases of one process as they are drawn: a segment for each time that a pattern has begun something new.

use std::collections::{BTreeMap, VecDeque};

use libhpm::analysis::phase::{Occurrence, PatternKey, Prediction};

use super::batch::{EVENTS, PhaseNews};

/// Intervals that are kept of each process.
const INTERVALS_MAX: usize = 4096;
/// Intervals before which nothing is said of phases that are not there.
const INTERVALS_MIN: u64 = 24;
/// Patterns whose sums are kept.
const PATTERNS_MAX: usize = 64;

/// One interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Density of what is watched; `None` where it is not known.
    pub(crate) density: Option<f64>,
    /// The pattern that began the segment it lies in; `None` before the first one.
    pub(crate) pattern: Option<PatternKey>,
    /// That pattern came when it was predicted.
    pub(crate) predicted: bool,
    /// A segment begins with it.
    pub(crate) begins: bool,
}

/// What is known of a pattern's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PatternSums {
    /// How often it came.
    pub(crate) occurrences: u64,
    /// How often it came when predicted.
    pub(crate) predicted: u64,
    /// Time on a CPU of its segments, in TSC ticks.
    pub(crate) on_cpu: u64,
    pub(crate) counts: [u64; EVENTS],
    /// When it should come again: TSC ticks on a CPU after its last occurrence, and how sure that is, 0 to 15.
    pub(crate) next: Option<(u64, u8)>,
    /// When it came last, in TSC ticks on a CPU.
    pub(crate) last: u64,
}

/// The phases of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ribbon {
    pub(crate) stretches: VecDeque<Stretch>,
    pub(crate) patterns: BTreeMap<PatternKey, PatternSums>,
    /// Patterns in the order in which they came first, which decides on their colours.
    pub(crate) order: Vec<PatternKey>,
    /// The pattern that came last.
    pub(crate) current: Option<PatternKey>,
    current_predicted: bool,
    /// What is expected of the process as a whole.
    pub(crate) prediction: Option<Prediction>,
    /// Time on a CPU, in TSC ticks.
    pub(crate) clock: u64,
    /// Intervals so far.
    pub(crate) intervals: u64,
    /// Of these, those that cannot be compared with the one before, because quanta were lost.
    pub(crate) torn: u64,
    /// Quanta that ended before they started and make no intervals.
    pub(crate) disordered: u64,
    /// Patterns that came, in all.
    pub(crate) changes: u64,
}

impl Ribbon {
    /// Takes the next interval.
    pub(crate) fn push(&mut self, news: &PhaseNews) {
        self.torn += u64::from(self.intervals > 0 && news.step.variation.is_none());
        self.intervals += 1;
        self.clock += news.interval.on_cpu;
        self.prediction = news.prediction;
        self.stretches.push_back(Stretch {
            start_ns: news.start_ns,
            end_ns: news.end_ns,
            density: news.step.density,
            pattern: self.current,
            predicted: self.current_predicted,
            begins: false,
        });
        if let Some(occurrence) = &news.step.occurrence {
            self.occur(occurrence, news.step.index);
        }
        if let Some(sums) = self.current.and_then(|key| self.patterns.get_mut(&key)) {
            sums.on_cpu += news.interval.on_cpu;
            for (sum, count) in sums.counts.iter_mut().zip(news.interval.counts) {
                *sum = sum.saturating_add(count);
            }
        }
        if self.stretches.len() > INTERVALS_MAX {
            self.stretches.pop_front();
        }
    }

    /// A pattern is complete: what lies behind its beginning is its segment.
    fn occur(&mut self, occurrence: &Occurrence, index: u64) {
        let key = occurrence.key;
        if !self.patterns.contains_key(&key) {
            if self.patterns.len() >= PATTERNS_MAX {
                return;
            }
            self.order.push(key);
        }
        let sums = self.patterns.entry(key).or_default();
        sums.occurrences += 1;
        sums.predicted += u64::from(occurrence.repeats.is_some());
        sums.next = occurrence.next.map(|next| (next.length, next.confidence));
        sums.last = occurrence.at;
        self.changes += 1;
        self.current = Some(key);
        self.current_predicted = occurrence.repeats.is_some();
        // The shape began some intervals ago.
        let back = (index - occurrence.first.min(index) + 1) as usize;
        for stretch in self.stretches.iter_mut().rev().take(back) {
            stretch.pattern = Some(key);
            stretch.predicted = self.current_predicted;
            stretch.begins = false;
        }
        let first = self.stretches.len().saturating_sub(back);
        if let Some(stretch) = self.stretches.get_mut(first) {
            stretch.begins = true;
        }
    }

    /// Why there is no pattern; `None` when there is one.
    pub(crate) fn no_phases(&self) -> Option<&'static str> {
        match self.current {
            Some(_) => None,
            None if self.disordered > self.intervals => {
                Some("no phases: time goes backwards, most quanta end before they start")
            }
            None if self.torn * 2 > self.intervals => Some(
                "no phases: most intervals cannot be compared with the one before, because quanta were lost or another session's",
            ),
            None if self.intervals < INTERVALS_MIN => Some("no phases yet: there are too few intervals"),
            None => Some(
                "no phases: what is watched has not varied by a tenth of its mean, or not more than usually",
            ),
        }
    }

    /// The colour of a pattern: its place in the order of first appearances.
    pub(crate) fn colour(&self, key: PatternKey) -> usize {
        self.order.iter().position(|known| *known == key).unwrap_or(0)
    }

    /// The pattern that should come next, after how many TSC ticks on a CPU, and how sure that is. What is overdue by more
    /// than its own length is not expected any more.
    pub(crate) fn expected(&self) -> Option<(PatternKey, u64, u8)> {
        let due = |(key, sums): (&PatternKey, &PatternSums)| {
            let (length, confidence) = sums.next?;
            let at = sums.last + length;
            (confidence > 0 && at + length > self.clock)
                .then(|| (*key, at.saturating_sub(self.clock), confidence))
        };
        self.patterns.iter().filter_map(due).min_by_key(|(_, left, confidence)| (*left, u8::MAX - confidence))
    }
}

#[cfg(test)]
mod tests {
    use libhpm::analysis::phase::synthetic::labelled_set;
    use libhpm::analysis::phase::{Base, Detector, Rules, Signal};

    use super::*;

    /// A ribbon of a stream of which it is known where it changes.
    fn ribbon() -> Ribbon {
        let steps = labelled_set(0.0).into_iter().find(|recipe| recipe.name == "steps").unwrap();
        let mut detector = Detector::new(Rules::NoiseGated, Signal::new(&[0], Base::Time));
        let mut ribbon = Ribbon::default();
        for interval in steps.stream(1200, 1).intervals {
            let step = detector.push(&interval);
            let prediction = detector.prediction();
            let (start_ns, end_ns) = (interval.start, interval.end);
            ribbon.push(&PhaseNews { pid: 1, start_ns, end_ns, interval, step, prediction });
        }
        ribbon
    }

    #[test]
    fn a_program_of_steps_has_segments_that_were_predicted() {
        let ribbon = ribbon();
        assert!(ribbon.patterns.len() >= 2, "{:?}", ribbon.patterns);
        assert!(ribbon.patterns.values().any(|sums| sums.predicted > 3));
        assert!(ribbon.prediction.is_some());
        let later = ribbon.stretches.iter().skip(600);
        assert!(later.clone().all(|stretch| stretch.pattern.is_some()), "something began every segment");
        assert!(later.clone().filter(|stretch| stretch.predicted).count() > 200);
        assert!(later.filter(|stretch| stretch.begins).count() > 5, "segments are told from each other");
        let covered: u64 = ribbon.patterns.values().map(|sums| sums.on_cpu).sum();
        assert!(covered <= ribbon.clock);
    }

    #[test]
    fn what_is_expected_next_is_ahead() {
        let ribbon = ribbon();
        let (key, left, confidence) = ribbon.expected().expect("it repeats");
        assert!(confidence > 2 && left < ribbon.clock / 4, "{key} in {left}, {confidence}");
    }
}
