//! One counter: its value, and what it remembers of an overflow.

use super::rule::Rule;
use crate::event::{Basic, BasicCounts, EventSet, MicroEvents, Privilege};
use crate::pmu::cycles::CycleState;
use serde::{Deserialize, Serialize};

/// The width of every counter (SDM Vol. 3B 18.15.2).
pub(super) const BITS: u32 = 40;

/// A counter's state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Counter {
    /// The value; one bit wider than the counter between an overflow and the next `settle`.
    pub(super) value: u64,
    /// Increments since the last `settle` that FORCE_OVF makes overflows.
    pub(super) forced: u64,
    /// Logical processors that get an interrupt at the next event.
    pub(super) interrupt_waits: [bool; 2],
    /// Logical processors whose interrupt that event has made due.
    pub(super) interrupt_due: [bool; 2],
    /// It has overflowed and will write a PEBS record at the next event of its logical processor.
    pub(super) armed: bool,
    /// The event that an armed counter waited for has happened.
    pub(super) triggered: bool,
    /// Events since the overflow that armed it.
    pub(super) since_overflow: u64,
    /// Counting by cycles (COMPARE).
    pub(super) cycle: CycleState,
}

impl Counter {
    /// Counts `n` occurrences on logical processor `thread`.
    fn add(&mut self, rule: &Rule, n: u64, thread: usize) {
        if n == 0 {
            return;
        }
        self.value += n;
        if rule.force_overflow {
            self.forced += n;
        }
        for waits in [0, 1] {
            self.interrupt_due[waits] |= std::mem::take(&mut self.interrupt_waits[waits]);
        }
        if self.armed {
            self.since_overflow += n;
            self.triggered |= rule.pebs == Some(thread);
        }
    }

    pub(super) fn count_basic(&mut self, rule: &Rule, delta: &BasicCounts, thread: usize) {
        let mut n = 0;
        for privilege in [0, 1] {
            if rule.privileges[thread][privilege] {
                n += rule.basic(delta, privilege);
            }
        }
        match rule.filter {
            None => self.add(rule, n, thread),
            // They belong to the cycle that has not ended.
            Some(_) => self.cycle.happened(n),
        }
    }

    #[inline]
    pub(super) fn count(&mut self, rule: &Rule, events: &MicroEvents, privilege: Privilege, thread: usize) {
        if !rule.privileges[thread][privilege as usize] {
            return;
        }
        let terms = rule.terms.iter().filter(|term| term.holds(events.once)).count() as u64;
        match rule.filter {
            None => self.add(rule, events.occurrences(rule.sum) + terms, thread),
            Some(filter) => {
                let n = self.cycle.qualifying(filter, events, rule.sum);
                self.cycle.happened(terms);
                self.add(rule, n, thread);
            }
        }
    }

    /// Occurrences until something happens at the boundary.
    pub(super) fn distance(&self, rule: &Rule) -> u64 {
        let next =
            rule.force_overflow || self.armed && rule.pebs.is_some() || self.interrupt_waits != [false; 2];
        if next { 1 } else { (1u64 << BITS).saturating_sub(self.value) }
    }

    /// Whether the boundary of logical processor `thread` has something to do.
    pub(super) fn needs_settle(&self, thread: usize) -> bool {
        self.triggered && self.armed
            || self.value >> BITS != 0
            || self.forced > 0
            || self.interrupt_due[thread]
    }

    /// Forgets that it has overflowed.
    pub(super) fn disarm(&mut self) {
        self.armed = false;
        self.triggered = false;
        self.since_overflow = 0;
    }
}

/// Basic events as a set.
pub(super) fn basics() -> EventSet {
    Basic::ALL.iter().fold(EventSet::EMPTY, |set, &basic| set.union(EventSet::of(&[basic.into()])))
}
