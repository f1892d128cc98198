//! What an access or a branch comes to, as events: tables, so that the hot path only looks up.

use super::BranchKind;
use super::tlb::Found;
use crate::event::{Event as E, EventSet};
use serde::{Deserialize, Serialize};

/// Where the data of an access came from: the deepest level that had to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataSource {
    /// The L1 data cache.
    L1 = 0,
    /// The second-level cache.
    L2 = 1,
    /// The last-level cache.
    L3 = 2,
    /// Local memory.
    Memory = 3,
}

/// What the microarchitecture did for one data access; goes into PEBS records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataOutcome {
    /// Where the data came from.
    pub source: DataSource,
    /// Cycles from dispatch to data.
    pub latency_cycles: u16,
    /// Whether the second-level TLB missed.
    pub stlb_miss: bool,
}

/// Events of an instruction fetch, by source.
pub(super) const FETCH: [EventSet; 4] = [
    EventSet::of(&[E::L1iRead]),
    EventSet::of(&[E::L1iRead, E::L1iMiss, E::L2CodeHit]),
    EventSet::of(&[E::L1iRead, E::L1iMiss, E::L2CodeMiss, E::L3CodeHit]),
    EventSet::of(&[E::L1iRead, E::L1iMiss, E::L2CodeMiss, E::LlcInstructionMiss]),
];

/// Events of a load, by source.
const LOAD: [EventSet; 4] = [
    EventSet::of(&[E::L1dRead, E::LoadLatency, E::LoadL1Hit]),
    EventSet::of(&[E::L1dRead, E::LoadLatency, E::LoadL1Miss, E::L1dReadMiss, E::LoadL2Hit, E::L2ReadHit]),
    EventSet::of(&[
        E::L1dRead,
        E::LoadLatency,
        E::LoadL1Miss,
        E::L1dReadMiss,
        E::LoadL2Miss,
        E::L2ReadMiss,
        E::LoadL3Hit,
        E::L3ReadHit,
    ]),
    EventSet::of(&[
        E::L1dRead,
        E::LoadLatency,
        E::LoadL1Miss,
        E::L1dReadMiss,
        E::LoadL2Miss,
        E::L2ReadMiss,
        E::LoadL3Miss,
        E::LlcReadMiss,
    ]),
];

/// Events of a store, by source: a miss reads the line for ownership.
const STORE: [EventSet; 4] = [
    EventSet::of(&[E::L1dWrite]),
    EventSet::of(&[E::L1dWrite, E::L1dWriteMiss, E::L2RfoHit]),
    EventSet::of(&[E::L1dWrite, E::L1dWriteMiss, E::L2RfoMiss, E::L3RfoHit]),
    EventSet::of(&[E::L1dWrite, E::L1dWriteMiss, E::L2RfoMiss, E::LlcWriteMiss]),
];

/// What a cycle spent waiting for a load is, by the load's source. (One that waits for the TLB alone has
/// source L1.)
pub(super) const LOAD_STALL: [EventSet; 4] = [
    EventSet::of(&[E::StallMemory]),
    EventSet::of(&[E::StallMemory, E::StallL1dMiss]),
    EventSet::of(&[E::StallMemory, E::StallL1dMiss, E::StallL2Miss]),
    EventSet::of(&[E::StallMemory, E::StallL1dMiss, E::StallL2Miss, E::StallL3Miss]),
];

/// Events of a data access.
#[inline]
pub(super) fn data_events(store: bool, source: DataSource, translation: Found, split: bool) -> EventSet {
    let mut events = if store { STORE[source as usize] } else { LOAD[source as usize] };
    match (translation, store) {
        (Found::First, _) => {}
        (Found::Second, false) => events.insert(E::DtlbLoadStlbHit),
        (Found::Second, true) => events.insert(E::DtlbStoreStlbHit),
        (Found::Walk, false) => events = events.union(EventSet::of(&[E::DtlbLoadWalk, E::LoadStlbMiss])),
        (Found::Walk, true) => events = events.union(EventSet::of(&[E::DtlbStoreWalk, E::StoreStlbMiss])),
    }
    if split {
        events.insert(if store { E::StoreSplit } else { E::LoadSplit });
    }
    events
}

/// Events of a branch.
pub(super) fn branch_events(kind: BranchKind, taken: bool, mispredicted: bool) -> EventSet {
    let mut events = EventSet::EMPTY;
    let (kind_event, mispredicted_event) = match kind {
        BranchKind::Conditional => (Some(E::BranchConditional), Some(E::BranchConditionalMispredicted)),
        BranchKind::DirectCall | BranchKind::IndirectCall => {
            (Some(E::BranchCall), Some(E::BranchCallMispredicted))
        }
        BranchKind::Return => (Some(E::BranchReturn), None),
        BranchKind::Far => (Some(E::BranchFar), None),
        BranchKind::DirectJump | BranchKind::IndirectJump => (None, None),
    };
    kind_event.into_iter().for_each(|event| events.insert(event));
    match (kind, taken) {
        (BranchKind::Far, _) => {}
        (_, true) => events.insert(E::BranchTaken),
        (_, false) => events.insert(E::BranchNotTaken),
    }
    if mispredicted {
        events.insert(E::BranchMispredicted);
        mispredicted_event.into_iter().for_each(|event| events.insert(event));
        if taken {
            events.insert(E::BranchTakenMispredicted);
        }
    }
    events
}
