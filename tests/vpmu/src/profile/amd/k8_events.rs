//! Events of family 0Fh (BKDG 32559, "Performance Monitor Events") that mean something in the model.
//!
//! The model keeps no coherence states: a line that the second-level cache or the system gave is Exclusive.

use super::{AmdEvent, bit, plain, units};
use crate::event::Event as E;

pub(super) static EVENTS: &[AmdEvent] = &[
    plain("Data Cache Accesses", 0x40, &[E::L1dRead, E::L1dWrite]),
    plain("Data Cache Misses", 0x41, &[E::L1dReadMiss, E::L1dWriteMiss]),
    units(
        "Data Cache Refills from L2 or System",
        0x42,
        &[bit(0x01, &[E::L2ReadMiss, E::L2RfoMiss]), bit(0x04, &[E::L2ReadHit, E::L2RfoHit])],
    ),
    units("Data Cache Refills from System", 0x43, &[bit(0x04, &[E::L2ReadMiss, E::L2RfoMiss])]),
    plain("L1 DTLB Miss and L2 DTLB Hit", 0x45, &[E::DtlbLoadStlbHit, E::DtlbStoreStlbHit]),
    plain("L1 DTLB and L2 DTLB Miss", 0x46, &[E::DtlbLoadWalk, E::DtlbStoreWalk]),
    plain("CPU Clocks Not Halted", 0x76, &[E::Cycle]),
    units(
        "Requests to L2 Cache",
        0x7D,
        &[
            bit(0x01, &[E::L2CodeHit, E::L2CodeMiss]),
            bit(0x02, &[E::L2ReadHit, E::L2ReadMiss, E::L2RfoHit, E::L2RfoMiss]),
        ],
    ),
    units("L2 Cache Misses", 0x7E, &[bit(0x01, &[E::L2CodeMiss]), bit(0x02, &[E::L2ReadMiss, E::L2RfoMiss])]),
    plain("Instruction Cache Fetches", 0x80, &[E::L1iRead]),
    plain("Instruction Cache Misses", 0x81, &[E::L1iMiss]),
    plain("Instruction Cache Refills from L2", 0x82, &[E::L2CodeHit]),
    plain("Instruction Cache Refills from System", 0x83, &[E::L2CodeMiss]),
    plain("L1 ITLB Miss, L2 ITLB Hit", 0x84, &[E::ItlbStlbHit]),
    plain("L1 ITLB Miss, L2 ITLB Miss", 0x85, &[E::ItlbWalk]),
    plain("Retired Instructions", 0xC0, &[E::Instruction]),
    plain("Retired uops", 0xC1, &[E::Instruction]),
    plain("Retired Branch Instructions", 0xC2, &[E::Branch]),
    plain("Retired Mispredicted Branch Instructions", 0xC3, &[E::BranchMispredicted]),
    plain("Retired Taken Branch Instructions", 0xC4, &[E::BranchTaken, E::BranchFar]),
    plain("Retired Taken Branch Instructions Mispredicted", 0xC5, &[E::BranchTakenMispredicted]),
    plain("Retired Far Control Transfers", 0xC6, &[E::BranchFar]),
    plain("Retired Near Returns", 0xC8, &[E::BranchReturn]),
];
