//! Counting cycle by cycle: a counter that counts cycles in which something happened often enough.

use crate::event::{Event, EventSet, MicroEvents};
use serde::{Deserialize, Serialize};

/// What a cycle-wise counter remembers between events.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct CycleState {
    /// Events so far in the cycle that has not ended.
    pending: u64,
    /// Whether the condition held in the last cycle (for E, edge detection).
    asserted: bool,
}

/// How a count is filtered by cycles: CMASK, INV and E of IA32_PERFEVTSELx (SDM Vol. 3B 18.2.1.1), COMPARE, COMPLEMENT,
/// THRESHOLD and EDGE of NetBurst's CCCRs (18.15.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CycleFilter {
    /// A cycle qualifies with at least this many events.
    pub(super) cmask: u64,
    /// A cycle qualifies with fewer than `cmask` events instead.
    pub(super) invert: bool,
    /// A cycle qualifies with exactly `cmask` events (inverted: with any other number) instead.
    pub(super) equal: bool,
    /// Count only the first of successive qualifying cycles.
    pub(super) edge: bool,
}

impl CycleState {
    /// `n` events belong to the cycle that has not ended.
    pub(super) fn happened(&mut self, n: u64) {
        self.pending += n;
    }

    /// How many cycles that `events` ended qualify. The model's time passes in the cycles of each report: its
    /// non-stalled cycles come first, then the stalled ones; what it reports as having happened once belongs
    /// to the cycle that follows.
    pub(super) fn qualifying(&mut self, filter: CycleFilter, events: &MicroEvents, counts: EventSet) -> u64 {
        let level =
            u64::from(counts.contains(Event::Cycle)) + u64::from(counts.contains(Event::ReferenceCycle));
        let stalled = level + u64::from(events.stalled.intersection(counts).len());
        let busy_cycles = u64::from(events.cycles - events.stall_cycles);
        let mut n = 0;
        let mut run = |state: &mut Self, cycles: u64, happened: u64| {
            if cycles > 0 {
                let enough = if filter.equal { happened == filter.cmask } else { happened >= filter.cmask };
                let qualifies = enough != filter.invert;
                n += match (qualifies, filter.edge) {
                    (false, _) => 0,
                    (true, false) => cycles,
                    (true, true) => u64::from(!state.asserted),
                };
                state.asserted = qualifies;
                state.pending = 0;
            }
        };
        if events.cycles > 0 {
            let first = self.pending;
            if busy_cycles > 0 {
                run(self, 1, first + level);
                run(self, busy_cycles - 1, level);
                run(self, u64::from(events.stall_cycles), stalled);
            } else {
                run(self, 1, first + stalled);
                run(self, u64::from(events.stall_cycles) - 1, stalled);
            }
        }
        self.pending += u64::from(events.once.intersection(counts).len())
            + if counts.contains(Event::CrystalCycle) { u64::from(events.crystal_cycles) } else { 0 };
        n
    }
}
