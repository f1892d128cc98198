//! One counter.

use crate::event::{Basic, BasicCounts, EventSet, MicroEvents, Privilege};
use crate::pmu::Demand;
use crate::pmu::cycles::{CycleFilter, CycleState};
use serde::{Deserialize, Serialize};

/// Width of every counter (APM 13.2.1: "48-bit").
pub(super) const BITS: u32 = 48;
pub(super) const MASK: u64 = (1 << BITS) - 1;

/// A counter's state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Counter {
    /// The value; one bit wider than the counter between an overflow and the next `settle`.
    value: u64,
    cycle: CycleState,
    /// What it counts. Derived from the registers, hence not part of the saved state.
    #[serde(skip)]
    pub(super) rule: Rule,
}

/// What a counter counts, as the control registers say now. The default counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rule {
    /// At which privilege levels, by index; all false if the counter is off.
    pub(super) privileges: [bool; 2],
    /// What it counts: the sum of these.
    pub(super) counts: EventSet,
    /// Cycle-wise counting.
    pub(super) filter: Option<CycleFilter>,
    /// Overflow requests an interrupt.
    pub(super) interrupt: bool,
}

impl Rule {
    /// What must be observed for it.
    pub(super) fn demand(&self) -> Demand {
        let basics = EventSet::of(&Basic::ALL.map(Into::into));
        match self.privileges == [false; 2] || self.counts.is_empty() {
            true => Demand::Nothing,
            false if self.filter.is_none() && self.counts.difference(basics).is_empty() => Demand::Basic,
            false => Demand::Microarchitecture,
        }
    }
}

impl Counter {
    pub(super) fn value(&self) -> u64 {
        self.value & MASK
    }

    pub(super) fn set(&mut self, value: u64) {
        self.value = value & MASK;
    }

    /// A new event starts with no cycle half counted.
    pub(super) fn begin(&mut self) {
        self.cycle = CycleState::default();
    }

    /// Occurrences until it overflows.
    pub(super) fn distance(&self) -> u64 {
        (1u64 << BITS).saturating_sub(self.value)
    }

    pub(super) fn has_overflowed(&self) -> bool {
        self.value > MASK
    }

    /// Takes an overflow; whether there was one.
    pub(super) fn wrap(&mut self) -> bool {
        let overflowed = self.has_overflowed();
        self.value &= MASK;
        overflowed
    }

    pub(super) fn count_basic(&mut self, delta: &BasicCounts) {
        let counted = Basic::ALL.into_iter().filter(|&basic| self.rule.counts.contains(basic.into()));
        let levels = |basic: Basic| {
            Privilege::ALL
                .into_iter()
                .filter(|&privilege| self.rule.privileges[privilege as usize])
                .map(move |privilege| delta[basic as usize][privilege as usize])
        };
        let n: u64 = counted.flat_map(levels).sum();
        match self.rule.filter {
            None => self.value += n,
            // They belong to the cycle that has not ended.
            Some(_) => self.cycle.happened(n),
        }
    }

    #[inline]
    pub(super) fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        if self.rule.privileges[privilege as usize] {
            self.value += match self.rule.filter {
                None => events.occurrences(self.rule.counts),
                Some(filter) => self.cycle.qualifying(filter, events, self.rule.counts),
            };
        }
    }
}
