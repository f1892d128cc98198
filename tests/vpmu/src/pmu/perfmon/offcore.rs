//! The off-core response facility: MSR_OFFCORE_RSP_x (SDM Vol. 3B 18.8.1.3 and 18.9.5).
//!
//! "A valid request type must have at least one bit set [...]. A valid response type must be a non-zero value
//! of ANY | [(OR of supplier bits) & (OR of snoop bits)]" (18.9.5.1). No other core is ever asked for a line
//! here: a line comes from the last-level cache, in state E, without a snoop, or from local memory, of whose
//! snoops nothing is known.

use super::Perfmon;
use crate::event::{Event, EventSet};
use crate::profile::{self, EventSpec};

/// Request types, on every part: demand data read, demand read for ownership, demand code read.
const REQUESTS: [(u64, Event, Event); 3] = [
    (1, Event::L3ReadHit, Event::LlcReadMiss),
    (1 << 1, Event::L3RfoHit, Event::LlcWriteMiss),
    (1 << 2, Event::L3CodeHit, Event::LlcInstructionMiss),
];
/// Snoop results SNP_NONE and SNP_NOT_NEEDED (table 18-38).
const SNOOP_NONE: u64 = 1 << 31;
const SNOOP_NOT_NEEDED: u64 = 1 << 32;

impl Perfmon {
    /// What `event` counts: for an off-core response event, what its register chooses.
    pub(super) fn responses(&self, event: &EventSpec) -> EventSet {
        match event.offcore.and_then(|index| self.registers.offcore.get(usize::from(index))) {
            Some(&select) => event.counts.intersection(chosen(self.facts, select)),
            None => event.counts,
        }
    }
}

/// The responses that `select` asks for.
fn chosen(pmu: &profile::Perfmon, select: u64) -> EventSet {
    let layout = &pmu.offcore;
    // The event lists of Golden Cove and later combine local memory with "not needed" too.
    let unsnooped = if pmu.version >= 5 { SNOOP_NONE | SNOOP_NOT_NEEDED } else { SNOOP_NONE };
    let asks = |supplier: u64, snoop: u64| {
        let snooped = layout.snoop == 0 || select & layout.snoop & snoop != 0;
        select & layout.any != 0 || select & supplier != 0 && snooped
    };
    let (hit, memory) = (asks(layout.hit, SNOOP_NOT_NEEDED), asks(layout.memory, unsnooped));
    let mut events = EventSet::EMPTY;
    for (_, from_cache, from_memory) in REQUESTS.into_iter().filter(|(request, ..)| select & request != 0) {
        if hit {
            events.insert(from_cache);
        }
        if memory {
            events.insert(from_memory);
        }
    }
    events
}
