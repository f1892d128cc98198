//! PerfMon version 1 as on Core Duo, family 6 model 14. That part runs no 64-bit code; the profile has its PMU on a core that
//! does.

use super::core2::{CACHES, MICROARCHITECTURE, PMU};
use super::core2_events::{MISSES, REFERENCES};
use super::spec::{event, on};
use super::{EventSpec, Perfmon, PmuKind, Profile};
use crate::event::Event as E;

/// Architectural performance monitoring, version 1 (SDM Vol. 3B 18.2.1, 18.3): two counters of 40 bits, no fixed-function
/// counters, no global control or status, no PEBS. The microarchitecture is that of `core2`.
pub static PERFMON1: Profile = Profile {
    name: "perfmon1",
    // Family 6, display model 14, stepping 12.
    signature: 0x0000_06EC,
    pmu: PmuKind::Perfmon(&Perfmon {
        version: 1,
        fixed_counters: 0,
        capabilities: 0,
        pebs_counters: 0,
        pebs_enable_mask: 0,
        // LBR, BTF, TR, BTS, BTINT (17.4.1 and the part's own section).
        debugctl_mask: 0x1C3,
        ..PMU
    }),
    events: EVENTS,
    fixed_events: &[],
    geometry: CACHES,
    microarchitecture: MICROARCHITECTURE,
    hybrid: None,
};

const fn either(name: &'static str, select: u8, umask: u16, counts: &[E]) -> EventSpec {
    on(0b11, event(name, select, umask, counts))
}

/// The architectural events alone (table 18-1).
static EVENTS: &[EventSpec] = &[
    either("UnHalted Core Cycles", 0x3C, 0x00, &[E::Cycle]),
    either("UnHalted Reference Cycles", 0x3C, 0x01, &[E::CrystalCycle]),
    either("Instruction Retired", 0xC0, 0x00, &[E::Instruction]),
    either("LLC Reference", 0x2E, 0x4F, REFERENCES),
    either("LLC Misses", 0x2E, 0x41, MISSES),
    either("Branch Instruction Retired", 0xC4, 0x00, &[E::Branch]),
    either("Branch Misses Retired", 0xC5, 0x00, &[E::BranchMispredicted]),
];
