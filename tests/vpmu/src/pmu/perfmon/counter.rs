//! One counter: its value, what it counts now, and its PEBS state.

use crate::event::{Basic, Event, EventSet, MicroEvents, Privilege};
use crate::pmu::Demand;
use crate::pmu::cycles::{CycleFilter, CycleState};
use crate::profile::{DataRecord, EventSpec};
use serde::{Deserialize, Serialize};

/// A counter's state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Counter {
    /// The value; one bit wider than the counter between an overflow and the next `settle`.
    pub(super) value: u64,
    /// It has overflowed and will write a PEBS record at its next event (SDM Vol. 3B 18.8.1.1).
    pub(super) armed: bool,
    /// The event an armed counter waited for has happened.
    pub(super) triggered: bool,
    /// Events since the overflow that armed it, or since it was last loaded.
    pub(super) since_overflow: u64,
    /// It was reloaded while armed and has overflowed once more: it is armed again when its record has been written.
    pub(super) overflowed_again: bool,
    /// Counting by cycles (CMASK, E).
    pub(super) cycle: CycleState,
    /// What it counts. Derived from the registers, hence not part of the saved state.
    #[serde(skip)]
    pub(super) rule: Rule,
}

/// What a counter counts, as the control registers say now. The default counts nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rule {
    /// At which privilege levels, by index; all false if the counter is off.
    pub(super) privileges: [bool; 2],
    /// The event; `None` if the encoding has no meaning on this counter.
    pub(super) event: Option<&'static EventSpec>,
    /// What the event counts.
    pub(super) counts: EventSet,
    /// Cycle-wise counting.
    pub(super) filter: Option<CycleFilter>,
    /// Loads count only above this latency.
    pub(super) latency_above_cycles: u16,
    /// It is a precise event: its records are written at the event after the overflow.
    pub(super) precise: bool,
    /// Overflow arms PEBS.
    pub(super) pebs: bool,
    /// Overflow requests a PMI.
    pub(super) interrupt: bool,
}

impl Rule {
    /// Whether it counts anything at all.
    pub(super) fn is_on(&self) -> bool {
        self.event.is_some() && self.privileges != [false; 2]
    }

    /// Whether it may write PEBS records.
    pub(super) fn records(&self) -> bool {
        self.pebs && self.is_on()
    }

    /// What must be observed for it.
    pub(super) fn demand(&self) -> Demand {
        let Some(event) = self.event.filter(|_| self.is_on()) else { return Demand::Nothing };
        let basics =
            Basic::ALL.iter().fold(EventSet::EMPTY, |set, &basic| set.union(EventSet::of(&[basic.into()])));
        if self.filter.is_some() || !event.counts.difference(basics).is_empty() {
            return Demand::Microarchitecture;
        }
        match event.data {
            DataRecord::None => Demand::Basic,
            _ if !self.pebs => Demand::Basic,
            DataRecord::Load => Demand::DataAddresses,
            // A store's record says whether it hit the cache.
            DataRecord::Store
            | DataRecord::PreciseStore
            | DataRecord::LoadLatency
            | DataRecord::StoreLatency => Demand::Microarchitecture,
        }
    }
}

impl Counter {
    /// Counts `n` occurrences.
    fn add(&mut self, n: u64) {
        if n == 0 {
            return;
        }
        self.value = self.value.wrapping_add(n);
        if self.armed {
            self.since_overflow += n;
            self.triggered |= self.rule.pebs;
        }
    }

    /// Counts basic events: `delta[basic][privilege]`.
    pub(super) fn count_basic(&mut self, delta: &[[u64; 2]; 4]) {
        let counts = self.rule.counts;
        let mut n = 0;
        for basic in Basic::ALL {
            if counts.contains(basic.into()) {
                for privilege in Privilege::ALL {
                    if self.rule.privileges[privilege as usize] {
                        n += delta[basic as usize][privilege as usize];
                    }
                }
            }
        }
        match self.rule.filter {
            None => self.add(n),
            // They belong to the cycle that has not ended.
            Some(_) => self.cycle.happened(n),
        }
    }

    /// Counts what the microarchitecture reported.
    #[inline]
    pub(super) fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        if !self.rule.privileges[privilege as usize] {
            return;
        }
        let mut counts = self.rule.counts;
        if events.load_latency_cycles <= self.rule.latency_above_cycles {
            counts = counts.difference(EventSet::of(&[Event::LoadLatency]));
        }
        match self.rule.filter {
            None => self.add(events.occurrences(counts)),
            Some(filter) => {
                let n = self.cycle.qualifying(filter, events, counts);
                self.add(n);
            }
        }
    }

    /// Occurrences until something happens at the boundary.
    pub(super) fn distance(&self, bits: u8) -> u64 {
        if self.armed && self.rule.pebs { 1 } else { (1u64 << bits).saturating_sub(self.value) }
    }

    /// Whether the boundary has something to do.
    pub(super) fn needs_settle(&self, bits: u8) -> bool {
        self.triggered || self.value >> bits != 0
    }
}
