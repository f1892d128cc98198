//! Which pairs get a layout that is on trial, and which are its control group.
//!
//! The choice is made by chance when a pair is promoted, after everything else has spoken for it. Both objects are marked in their
//! headers, so that a sample shows in which group it is. So is what the child refers to by its own advised field: a pair with the
//! parent takes from the child the place beside that, which has to be counted as well.

use std::collections::BTreeMap;

use libhpm::analysis::coallocation::{Exposure, Group};

use super::Pairing;
use crate::header::{Header, reference_slots};
use crate::heap::Heap;
use crate::observe::{By, Observer};

/// The trial and the group that an object was promoted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the trial, from 1 to [`Mark::TRIALS_MAX`].
    pub trial: u16,
    /// The group.
    pub group: Group,
}

impl Mark {
    /// Headers have 13 bits for it.
    pub const TRIALS_MAX: u16 = (1 << 13) - 1;
}

/// A comparison of what is advised for a type with another layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment {
    /// Number of the trial.
    pub trial: u16,
    /// Of [`Allotment::PARTS`] pairs so many get what is advised, on average; the others are the control group.
    pub treated: u32,
    /// The control group's layout: the empty bytes between the two objects; `None` for objects that are promoted one by one.
    pub control: Option<u32>,
}

impl Allotment {
    /// Parts that the pairs are divided into.
    pub const PARTS: u32 = 16;
}

/// Seed of the choices.
const SEED: u64 = 0x636f_6e74_726f_6c00;

/// The trials of a heap.
#[derive(Debug)]
pub(crate) struct Groups {
    /// By type.
    allotments: BTreeMap<u16, Allotment>,
    /// Pairs in each group, by trial.
    exposures: BTreeMap<u16, Exposure>,
    random: fastrand::Rng,
}

impl Default for Groups {
    fn default() -> Self {
        let random = fastrand::Rng::with_seed(SEED);
        Self { allotments: BTreeMap::new(), exposures: BTreeMap::new(), random }
    }
}

impl<O: Observer> Heap<O> {
    /// From the next collection on some pairs of a type's objects do not get the layout that is advised; `None` ends the trial.
    /// What is marked already stays so.
    ///
    /// # Panics
    /// If the trial's number does not fit a header, or more than all pairs would be treated.
    pub fn put_on_trial(&mut self, class: u16, allotment: Option<Allotment>) {
        let Some(allotment) = allotment else {
            self.groups.allotments.remove(&class);
            return;
        };
        assert!((1..=Mark::TRIALS_MAX).contains(&allotment.trial), "{} is no trial", allotment.trial);
        assert!(allotment.treated <= Allotment::PARTS, "{} parts are too many", allotment.treated);
        self.groups.allotments.insert(class, allotment);
    }

    /// How many pairs a trial has put into each group.
    #[must_use]
    pub fn exposure(&self, trial: u16) -> Exposure {
        self.groups.exposures.get(&trial).copied().unwrap_or_default()
    }

    /// The gap of a pair of young objects that may be promoted together: the advised one, or, where that is on trial, perhaps
    /// that of the control group. `None` for objects that are promoted one by one.
    pub(crate) fn gap_by_chance(
        &mut self,
        parent: (u32, Header),
        child: u32,
        advised: Pairing,
    ) -> Option<u32> {
        let (parent, header) = parent;
        let Some(&Allotment { trial, treated, control }) = self.groups.allotments.get(&header.class()) else {
            return Some(advised.gap);
        };
        let (group, gap) = if self.groups.random.u32(0..Allotment::PARTS) < treated {
            (Group::Treated, Some(advised.gap))
        } else {
            (Group::Control, control)
        };
        let child_header = self.memory.header(child, By::Collector);
        // What another trial counts is not counted here; that is so by no choice of this one's, hence in both groups alike.
        if header.mark().is_none() && child_header.mark().is_none() {
            let mark = Mark { trial, group };
            self.groups.exposures.entry(trial).or_default().count(group);
            self.memory.set_header(parent, header.with_mark(mark), By::Collector);
            self.memory.set_header(child, child_header.with_mark(mark), By::Collector);
            self.mark_grandchild(child, child_header, mark);
        }
        gap
    }

    /// Marks what a child refers to by its own advised field.
    fn mark_grandchild(&mut self, child: u32, header: Header, mark: Mark) {
        let Some(pairing) = self.advice.of(header.class()) else { return };
        let shape = self.types[usize::from(header.class())];
        let Some(slot) = reference_slots(child, shape, 0).nth(usize::from(pairing.field)) else { return };
        let object: u32 = self.memory.load(slot, By::Collector);
        if !self.ranges.nursery.contains(&object) {
            return;
        }
        let header = self.memory.header(object, By::Collector);
        if !header.is_forwarded() && header.mark().is_none() {
            self.memory.set_header(object, header.with_mark(mark), By::Collector);
        }
    }
}
