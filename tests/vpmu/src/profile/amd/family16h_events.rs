//! Events of family 16h (BKDG 48751, 3.15 "Performance Monitor Events") that mean something in the model.
//!
//! As for family 0Fh, lines are Exclusive. Events of L2 and of the northbridge have counters of their own, which are not modelled.

use super::{AmdEvent, bit, plain, units};
use crate::event::Event as E;

pub(super) static EVENTS: &[AmdEvent] = &[
    units("LS Dispatch", 0x29, &[bit(0x01, &[E::Load]), bit(0x02, &[E::Store])]),
    plain("Data Cache Accesses", 0x40, &[E::L1dRead, E::L1dWrite]),
    plain("Data Cache Misses", 0x41, &[E::L1dReadMiss, E::L1dWriteMiss]),
    units("Data Cache Refills from L2", 0x42, &[bit(0x04, &[E::L2ReadHit, E::L2RfoHit])]),
    units("Data Cache Refills from System", 0x43, &[bit(0x04, &[E::L2ReadMiss, E::L2RfoMiss])]),
    plain("L1 DTLB Miss and L2 DTLB Hit", 0x45, &[E::DtlbLoadStlbHit, E::DtlbStoreStlbHit]),
    // Misses of both levels; bits 0 and 1 are those of the first, whether or not the second had it.
    units(
        "DTLB Miss",
        0x46,
        &[
            bit(0x01, &[E::DtlbStoreStlbHit, E::DtlbStoreWalk]),
            bit(0x02, &[E::DtlbLoadStlbHit, E::DtlbLoadWalk]),
            bit(0x04, &[E::DtlbStoreWalk]),
            bit(0x08, &[E::DtlbLoadWalk]),
        ],
    ),
    plain("CPU Clocks not Halted", 0x76, &[E::Cycle]),
    plain("Instruction Cache Fetches", 0x80, &[E::L1iRead]),
    plain("Instruction Cache Misses", 0x81, &[E::L1iMiss]),
    plain("Instruction Cache Refills from L2", 0x82, &[E::L2CodeHit]),
    plain("Instruction Cache Refills from System", 0x83, &[E::L2CodeMiss]),
    plain("L1 ITLB Miss, L2 ITLB Hit", 0x84, &[E::ItlbStlbHit]),
    units("ITLB Miss", 0x85, &[bit(0x01, &[E::ItlbWalk])]),
    plain("Retired Instructions", 0xC0, &[E::Instruction]),
    plain("Retired uops", 0xC1, &[E::Instruction]),
    plain("Retired Branch Instructions", 0xC2, &[E::Branch]),
    plain("Retired Mispredicted Branch Instructions", 0xC3, &[E::BranchMispredicted]),
    plain("Retired Taken Branch Instructions", 0xC4, &[E::BranchTaken, E::BranchFar]),
    plain("Retired Taken Branch Instructions Mispredicted", 0xC5, &[E::BranchTakenMispredicted]),
    plain("Retired Far Control Transfers", 0xC6, &[E::BranchFar]),
    plain("Retired Near Returns", 0xC8, &[E::BranchReturn]),
];
