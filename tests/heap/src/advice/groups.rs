//! Which pairs get a layout that is on trial, and which are its control group.
//!
//! The choice is made by chance when a pair is promoted, after everything else has spoken for it. Both objects are marked in their
//! headers, so that a sample shows in which group it is. So is what the child refers to by its own advised field: a pair with the
//! parent takes from the child the place beside that, which has to be counted as well.

use std::collections::BTreeMap;

use libhpm::analysis::coallocation::{Exposure, Group};

use super::Pairing;
use crate::header::reference_slots;
use crate::heap::Heap;
use crate::observe::{By, Observer};
use crate::row::Row;

/// A trial and the group that an object was promoted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Number of the trial, from 1 to [`Mark::TRIALS_MAX`].
    pub trial: u16,
    /// The group.
    pub group: Group,
}

impl Mark {
    /// Far more than there will be.
    pub const TRIALS_MAX: u16 = 1000;
}

/// The marks of an object: it may be the child of one pair and the parent of another, of which each is on trial for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks([Option<Mark>; 2]);

impl Marks {
    /// Headers have 14 bits for the number of a combination of marks.
    const NUMBER_MAX: u16 = (1 << 14) - 1;

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Mark> + use<> {
        self.0.into_iter().flatten()
    }

    /// With one more; `None` where there is no room, or the trial is among them.
    fn with(mut self, mark: Mark) -> Option<Self> {
        if self.iter().any(|known| known.trial == mark.trial) {
            return None;
        }
        *self.0.iter_mut().find(|place| place.is_none())? = Some(mark);
        Some(self)
    }
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
    /// What numbers in headers mean, from 1 on.
    marks: Vec<Marks>,
    /// Which number means one mark more than another, what is in use now at the end: there are few, and collections ask for them often.
    more: Vec<(u16, Mark, u16)>,
    random: fastrand::Rng,
}

impl Default for Groups {
    fn default() -> Self {
        let random = fastrand::Rng::with_seed(SEED);
        Self {
            allotments: BTreeMap::new(),
            exposures: BTreeMap::new(),
            marks: Vec::new(),
            more: Vec::new(),
            random,
        }
    }
}

impl Groups {
    /// What an object is marked with that has this number in its header.
    pub(crate) fn marks(&self, number: u16) -> Marks {
        usize::from(number)
            .checked_sub(1)
            .and_then(|place| self.marks.get(place))
            .copied()
            .unwrap_or_default()
    }

    /// The number for what a number means with one mark more; `None` where there is no room for it.
    fn with(&mut self, number: u16, mark: Mark) -> Option<u16> {
        let known = self.more.iter().rev().find(|(old, more, _)| *old == number && *more == mark);
        if let Some((_, _, known)) = known {
            return Some(*known);
        }
        let marks = self.marks(number).with(mark)?;
        let new = u16::try_from(self.marks.len() + 1).ok().filter(|new| *new <= Marks::NUMBER_MAX)?;
        self.marks.push(marks);
        self.more.push((number, mark, new));
        Some(new)
    }

    /// Whether an object with this number is of the control group of what is compared for a type now.
    pub(crate) fn is_control(&self, number: u16, class: u16) -> bool {
        self.allotments.get(&class).is_some_and(|allotment| {
            let marks = self.marks(number);
            marks.iter().any(|mark| mark.trial == allotment.trial && mark.group == Group::Control)
        })
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

    /// The gap between a row and a young object that may follow it: the advised one, or, where that is on trial, perhaps that of the
    /// control group. `None` for objects that are promoted one by one.
    pub(crate) fn gap_by_chance(&mut self, row: &Row, child: u32, advised: Pairing) -> Option<u32> {
        let parent = row.last().object;
        let header = self.memory.header(parent, By::Collector);
        let Some(&allotment) = self.groups.allotments.get(&header.class()) else {
            return Some(advised.gap);
        };
        let Allotment { trial, treated, control, .. } = allotment;
        let (group, gap) = if self.groups.random.u32(0..Allotment::PARTS) < treated {
            (Group::Treated, Some(advised.gap))
        } else {
            (Group::Control, control)
        };
        // What is marked as often as it can be is not counted; that is so by no choice of this trial's, hence in both groups alike.
        let mark = Mark { trial, group };
        if self.takes_mark(parent, mark) && self.takes_mark(child, mark) {
            self.groups.exposures.entry(trial).or_default().count(group);
            let grandchild = self.young_grandchild(child);
            let members = row.members().iter().map(|member| member.object);
            members.chain([child]).chain(grandchild).for_each(|object| self.mark_object(object, mark));
        }
        gap
    }

    fn takes_mark(&mut self, object: u32, mark: Mark) -> bool {
        let number = self.memory.header(object, By::Collector).marks();
        self.groups.with(number, mark).is_some()
    }

    fn mark_object(&mut self, object: u32, mark: Mark) {
        let header = self.memory.header(object, By::Collector);
        if let Some(number) = self.groups.with(header.marks(), mark) {
            self.memory.set_header(object, header.with_marks(number), By::Collector);
        }
    }

    /// What a child refers to by its own advised field.
    fn young_grandchild(&self, child: u32) -> Option<u32> {
        let class = self.memory.header(child, By::Collector).class();
        let pairing = self.advice.of(class)?;
        let shape = self.types[usize::from(class)];
        let slot = reference_slots(child, shape, 0).nth(usize::from(pairing.field))?;
        let object: u32 = self.memory.load(slot, By::Collector);
        let is_young = self.ranges.nursery.contains(&object);
        (is_young && !self.memory.header(object, By::Collector).is_forwarded()).then_some(object)
    }
}
