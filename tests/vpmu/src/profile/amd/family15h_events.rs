//! Events of family 15h (BKDG 42301, "Core Performance Counter Events") that mean something in the model, and the counters that
//! count them, as Linux's driver quotes the BKDG (`arch/x86/events/amd/core.c`): PERF_CTL[5:0] where
//! nothing is said, PERF_CTL[2:0] for what the module's cores share and for the decoder.

use super::{AmdEvent, bit, plain, units};
use crate::event::Event as E;

/// PERF_CTL[2:0].
const LOW: u8 = 0b111;

pub(super) static EVENTS: &[AmdEvent] = &[
    units("LS Dispatch", 0x29, &[bit(0x01, &[E::Load]), bit(0x02, &[E::Store])]),
    plain("Data Cache Accesses", 0x40, &[E::L1dRead, E::L1dWrite]),
    units("Data Cache Misses", 0x41, &[bit(0x01, &[E::L1dReadMiss, E::L1dWriteMiss])]),
    units(
        "Data Cache Refills from L2 or System",
        0x42,
        &[bit(0x01, &[E::L2ReadHit, E::L2RfoHit, E::L2ReadMiss, E::L2RfoMiss])],
    ),
    plain("Data Cache Refills from System", 0x43, &[E::L2ReadMiss, E::L2RfoMiss]).on(LOW),
    units(
        "Unified TLB Hit",
        0x45,
        &[bit(0x01, &[E::DtlbLoadStlbHit, E::DtlbStoreStlbHit]), bit(0x10, &[E::ItlbStlbHit])],
    )
    .on(LOW),
    units(
        "Unified TLB Miss",
        0x46,
        &[bit(0x01, &[E::DtlbLoadWalk, E::DtlbStoreWalk]), bit(0x10, &[E::ItlbWalk])],
    )
    .on(LOW),
    plain("CPU Clocks not Halted", 0x76, &[E::Cycle]).on(LOW),
    units(
        "Requests to L2 Cache",
        0x7D,
        &[
            bit(0x01, &[E::L2CodeHit, E::L2CodeMiss]),
            bit(0x02, &[E::L2ReadHit, E::L2ReadMiss, E::L2RfoHit, E::L2RfoMiss]),
        ],
    )
    .on(LOW),
    units("L2 Cache Misses", 0x7E, &[bit(0x01, &[E::L2CodeMiss]), bit(0x02, &[E::L2ReadMiss, E::L2RfoMiss])])
        .on(LOW),
    plain("Instruction Cache Fetches", 0x80, &[E::L1iRead]).on(LOW),
    plain("Instruction Cache Misses", 0x81, &[E::L1iMiss]).on(LOW),
    plain("Instruction Cache Refills from L2", 0x82, &[E::L2CodeHit]).on(LOW),
    plain("Instruction Cache Refills from System", 0x83, &[E::L2CodeMiss]).on(LOW),
    plain("L1 ITLB Miss, L2 ITLB Hit", 0x84, &[E::ItlbStlbHit]).on(LOW),
    units("L1 ITLB Miss, L2 ITLB Miss", 0x85, &[bit(0x01, &[E::ItlbWalk])]).on(LOW),
    plain("Retired Instructions", 0xC0, &[E::Instruction]),
    plain("Retired uops", 0xC1, &[E::Instruction]),
    plain("Retired Branch Instructions", 0xC2, &[E::Branch]),
    plain("Retired Mispredicted Branch Instructions", 0xC3, &[E::BranchMispredicted]),
    plain("Retired Taken Branch Instructions", 0xC4, &[E::BranchTaken, E::BranchFar]),
    plain("Retired Taken Branch Instructions Mispredicted", 0xC5, &[E::BranchTakenMispredicted]),
    plain("Retired Far Control Transfers", 0xC6, &[E::BranchFar]),
    plain("Retired Near Returns", 0xC8, &[E::BranchReturn]),
];
