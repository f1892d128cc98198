//! How the profiles' event tables are written.

use super::{DataRecord, EventSpec};
use crate::event::Event as E;
use crate::event::EventSet;

/// An event that any of the first four general-purpose counters counts.
pub(super) const fn event(name: &'static str, select: u8, umask: u16, counts: &[E]) -> EventSpec {
    EventSpec {
        name,
        select,
        umask,
        cmask: 0,
        invert: false,
        counters: 0xF,
        precise: false,
        data: DataRecord::None,
        counts: EventSet::of(counts),
        offcore: None,
    }
}

/// A precise event whose records hold no data address.
pub(super) const fn precise(name: &'static str, select: u8, umask: u16, counts: &[E]) -> EventSpec {
    EventSpec { precise: true, ..event(name, select, umask, counts) }
}

/// A precise event whose records hold the address of the load.
pub(super) const fn load(name: &'static str, select: u8, umask: u16, counts: &[E]) -> EventSpec {
    EventSpec { data: DataRecord::Load, ..precise(name, select, umask, counts) }
}

/// A precise event whose records hold the address of the store.
pub(super) const fn store(name: &'static str, select: u8, umask: u16, counts: &[E]) -> EventSpec {
    EventSpec { data: DataRecord::Store, ..precise(name, select, umask, counts) }
}

/// An event that is defined with a counter mask: it counts cycles.
pub(super) const fn cycles(name: &'static str, select: u8, umask: u16, cmask: u8, counts: &[E]) -> EventSpec {
    EventSpec { cmask, ..event(name, select, umask, counts) }
}

/// As `cycles`, with the comparison inverted: "fewer than `cmask`", which with 16 is every cycle.
pub(super) const fn precise_cycles(name: &'static str, select: u8, umask: u16) -> EventSpec {
    EventSpec { cmask: 16, invert: true, ..precise(name, select, umask, &[E::Cycle]) }
}

/// The event of the load latency facility: it counts loads above the threshold.
pub(super) const fn load_latency(name: &'static str, select: u8, umask: u16) -> EventSpec {
    EventSpec { data: DataRecord::LoadLatency, ..precise(name, select, umask, &[E::LoadLatency]) }
}

/// The event of the precise store facility.
pub(super) const fn precise_store(name: &'static str, select: u8, umask: u16) -> EventSpec {
    EventSpec { data: DataRecord::PreciseStore, ..precise(name, select, umask, &[E::Store]) }
}

/// `spec` on these general-purpose counters alone.
pub(super) const fn on(counters: u64, spec: EventSpec) -> EventSpec {
    EventSpec { counters, ..spec }
}

/// The event that MSR_OFFCORE_RSP_`register` makes specific.
pub(super) const fn offcore(name: &'static str, select: u8, register: u8) -> EventSpec {
    EventSpec { offcore: Some(register), ..event(name, select, 0x01, OFFCORE) }
}

/// Every response from beyond L2 that the model tells apart.
const OFFCORE: &[E] =
    &[E::L3ReadHit, E::L3RfoHit, E::L3CodeHit, E::LlcReadMiss, E::LlcWriteMiss, E::LlcInstructionMiss];

/// The event of the store latency facility.
pub(super) const fn store_latency(name: &'static str, select: u8, umask: u16) -> EventSpec {
    EventSpec { data: DataRecord::StoreLatency, ..precise(name, select, umask, &[E::Store]) }
}
