//! Misses by the reference field through which the missed object was reached.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A field that refers to another object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Field {
    /// The type that has it; where types are not known, the place that allocates such objects.
    pub parent: Arc<str>,
    /// Its name, a path for a field within a field; where it is not known, its offset as `+16`.
    pub name: Arc<str>,
}

impl Field {
    /// A field of a type.
    #[must_use]
    pub fn new(parent: &str, name: &str) -> Self {
        Self { parent: parent.into(), name: name.into() }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.parent, self.name)
    }
}

/// What a field was given. Samples are fractional, because one that can have come through several fields is shared among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Weight {
    /// Samples.
    pub samples: f64,
    /// Events that these stand for: each sample counts with its period.
    pub events: f64,
    /// Of the samples, those whose missed object was young.
    pub young: f64,
    /// Of each sample its share of the square of its period.
    #[serde(skip)]
    pub squares: f64,
}

impl Weight {
    /// A share (from 0 to 1) of a sample that stands for `period` events.
    #[must_use]
    pub fn part(share: f64, period: u64, young: bool) -> Self {
        let events = share * period as f64;
        let young = if young { share } else { 0.0 };
        Self { samples: share, events, young, squares: events * period as f64 }
    }

    /// Adds another weight to it.
    pub fn add(&mut self, other: Self) {
        self.samples += other.samples;
        self.events += other.events;
        self.young += other.young;
        self.squares += other.squares;
    }

    /// How many samples of one period would tell as much: [`crate::report::Sum::effective_samples`].
    #[must_use]
    pub fn effective_samples(&self) -> f64 {
        if self.squares > 0.0 { self.events * self.events / self.squares } else { 0.0 }
    }

    /// The part of the samples that missed young objects, from 0 to 1.
    #[must_use]
    pub fn young_share(&self) -> f64 {
        if self.samples > 0.0 { self.young / self.samples } else { 0.0 }
    }
}

/// Weights of fields (Table 5.1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weights {
    fields: BTreeMap<Field, Weight>,
    unattributed: Weight,
}

impl Weights {
    /// Gives a field a share (from 0 to 1) of a sample that stands for `period` events.
    pub fn add(&mut self, field: &Field, share: f64, period: u64, young: bool) {
        let weight = Weight::part(share, period, young);
        match self.fields.get_mut(field) {
            Some(known) => known.add(weight),
            None => {
                self.fields.insert(field.clone(), weight);
            }
        }
    }

    /// Counts the share of a sample that came through no known field: a parameter, a global variable, a local one.
    pub fn leave(&mut self, share: f64, period: u64) {
        self.unattributed.add(Weight::part(share, period, false));
    }

    /// The weight of a field.
    #[must_use]
    pub fn of(&self, field: &Field) -> Weight {
        self.fields.get(field).copied().unwrap_or_default()
    }

    /// What came through no known field.
    #[must_use]
    pub fn unattributed(&self) -> Weight {
        self.unattributed
    }

    /// All of it, attributed or not.
    #[must_use]
    pub fn all(&self) -> Weight {
        let mut all = self.unattributed;
        self.fields.values().for_each(|weight| all.add(*weight));
        all
    }

    /// The fields, the one with most events first.
    #[must_use]
    pub fn table(&self) -> Vec<(Field, Weight)> {
        let mut table: Vec<_> = self.fields.iter().map(|(field, weight)| (field.clone(), *weight)).collect();
        table.sort_by(|(a, one), (b, other)| other.events.total_cmp(&one.events).then_with(|| a.cmp(b)));
        table
    }
}
