//! The online detector: interval in, what it means out (§3, Figure 1).

use super::Rules;
use super::channel::{Channels, Prediction};
use super::database::{PATTERNS_DEFAULT, PatternDatabase};
use super::distance::{Repetition, within_tolerance};
use super::interval::Interval;
use super::level::{Meter, Signal, Variation};
use super::shape::{PatternKey, ShapeBuilder};

/// Finds and predicts repetitive phases of one subject, a thread or a process. Its memory is allocated once, and its work for
/// an interval is bounded.
#[derive(Clone, Debug)]
pub struct Detector {
    meter: Meter,
    builder: ShapeBuilder,
    database: PatternDatabase,
    channels: Channels,
    /// Index of the next interval.
    index: u64,
    /// Time on a CPU up to the next interval.
    clock: u64,
    /// When the shape under construction began.
    began: u64,
}

/// A pattern that has just been completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Which.
    pub key: PatternKey,
    /// Index of the interval whose variation began it.
    pub first: u64,
    /// Index of the last interval that its codes describe.
    pub last: u64,
    /// Time on a CPU at which it began, in TSC ticks.
    pub at: u64,
    /// The same pattern was seen before (§3.2).
    pub recurrent: bool,
    /// A repetitive phase: the pattern came when predicted, and its length is the program's predicted one. Then this is the time
    /// since the occurrence that it repeats, in TSC ticks on a CPU.
    pub repeats: Option<u64>,
    /// When this pattern should come again.
    pub next: Option<Repetition>,
    /// The program's prediction has another length than before, or there was none.
    pub changed: bool,
}

/// What one interval has brought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Index of the interval, from 0.
    pub index: u64,
    /// Density of the signal's first event; `None` where it cannot be known.
    pub density: Option<f64>,
    /// Variation against the interval before.
    pub variation: Option<Variation>,
    /// The pattern that it completed.
    pub occurrence: Option<Occurrence>,
}

impl Detector {
    /// A detector that has seen nothing, with a database of the default size.
    #[must_use]
    pub fn new(rules: Rules, signal: Signal) -> Self {
        Self::with_capacity(rules, signal, PATTERNS_DEFAULT)
    }

    /// The same with a database for this many patterns.
    #[must_use]
    pub fn with_capacity(rules: Rules, signal: Signal, patterns: usize) -> Self {
        Self {
            meter: Meter::new(rules, signal),
            builder: ShapeBuilder::new(rules),
            database: PatternDatabase::new(rules, patterns),
            channels: Channels::default(),
            index: 0,
            clock: 0,
            began: 0,
        }
    }

    /// Takes the next interval.
    pub fn push(&mut self, interval: &Interval) -> Step {
        let index = self.index;
        let start = self.clock;
        self.index += 1;
        self.clock = self.clock.saturating_add(interval.on_cpu);
        if interval.after_gap {
            // The clock lacks the time that was lost.
            self.database.interrupt();
        }
        let variation = self.meter.push(interval);
        let occurrence = match variation {
            Some(variation) => self.vary(variation, index, start),
            None => {
                self.builder.interrupt();
                None
            }
        };
        Step { index, density: self.meter.signal().density(interval), variation, occurrence }
    }

    fn vary(&mut self, variation: Variation, index: u64, start: u64) -> Option<Occurrence> {
        let idle = self.builder.is_idle();
        let began = self.began;
        let shape = self.builder.push(variation, index);
        // A shape begins where none was under construction, or where a larger variation has ended one.
        if idle || (shape.is_some() && !self.builder.is_idle()) {
            self.began = start;
        }
        let shape = shape?;
        // One of a single variation begins where it is completed.
        let began = if shape.first == index { start } else { began };
        let before = self.channels.best();
        let found = self.database.occur(shape.key, began);
        if let Some(next) = found.next {
            self.channels.update(next);
        }
        let as_predicted = |expected: Repetition| {
            before.is_some_and(|global| within_tolerance(expected.length, global.length))
        };
        let now = self.channels.best();
        Some(Occurrence {
            key: shape.key,
            first: shape.first,
            last: shape.last,
            at: began,
            recurrent: found.recurrent,
            repeats: found.repeats.filter(|_| found.expected.is_some_and(as_predicted)),
            next: found.next,
            changed: before.map(|global| global.length) != now.map(|global| global.length),
        })
    }

    /// What is expected of the program as a whole.
    #[must_use]
    pub fn prediction(&self) -> Option<Prediction> {
        self.channels.best()
    }

    /// The patterns.
    #[must_use]
    pub fn database(&self) -> &PatternDatabase {
        &self.database
    }

    /// Bytes that the detector takes, which never change.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.database.bytes()
    }
}
