//! Events of Zen 3 and Zen 4 (PPR 56214 and 56713, "Core Performance Monitor Counters"), and what AMD's list for perf has of them
//! on Zen 5 (`pmu-events/arch/x86/amdzen5`), that mean something in the model, which has neither prefetchers nor other cores' lines, nor pages larger than 4 KiB.

use super::{AmdEvent, bit, plain, units};
use crate::event::{Event as E, EventSet};

/// Sources of a data cache fill (PMCx043, PMCx044): the local L2, the L3 of the core complex, local memory.
const FILLS: &[(u8, EventSet)] = &[
    bit(0x01, &[E::L2ReadHit, E::L2RfoHit]),
    bit(0x02, &[E::L3ReadHit, E::L3RfoHit]),
    bit(0x08, &[E::LlcReadMiss, E::LlcWriteMiss]),
];

/// Not on Zen 5.
pub(super) static ZEN_3_AND_4: &[AmdEvent] = &[plain("LsDcAccesses", 0x40, &[E::L1dRead, E::L1dWrite])];

/// Of all three.
pub(super) static EVENTS: &[AmdEvent] = &[
    // LdDispatch, StoreDispatch. An instruction that does both is one of each here, and no LdStDispatch.
    units("LsDispatch", 0x29, &[bit(0x01, &[E::Load]), bit(0x02, &[E::Store])]),
    units("LsMabAlloc", 0x41, &[bit(0x01, &[E::L1dReadMiss]), bit(0x02, &[E::L1dWriteMiss])]),
    units("LsDmndFillsFromSys", 0x43, FILLS),
    units("LsAnyFillsFromSys", 0x44, FILLS),
    units(
        "LsL1DTlbMiss",
        0x45,
        &[
            bit(0x01, &[E::DtlbLoadStlbHit, E::DtlbStoreStlbHit]),
            bit(0x10, &[E::DtlbLoadWalk, E::DtlbStoreWalk]),
        ],
    ),
    // Loads that cross a cache line (MA64).
    units("LsMisalLoads", 0x47, &[bit(0x01, &[E::LoadSplit])]),
    units(
        "L2RequestG1",
        0x60,
        &[
            bit(0x80, &[E::L2ReadHit, E::L2ReadMiss]),
            bit(0x40, &[E::L2RfoHit, E::L2RfoMiss]),
            bit(0x10, &[E::L2CodeHit, E::L2CodeMiss]),
        ],
    ),
    units(
        "L2CacheReqStat",
        0x64,
        &[
            bit(0x40, &[E::L2ReadHit]),
            bit(0x10, &[E::L2RfoHit]),
            bit(0x08, &[E::L2ReadMiss, E::L2RfoMiss]),
            // Code is not modifiable.
            bit(0x02, &[E::L2CodeHit]),
            bit(0x01, &[E::L2CodeMiss]),
        ],
    ),
    plain("LsNotHaltedCyc", 0x76, &[E::Cycle]),
    plain("IcCacheFillL2", 0x82, &[E::L2CodeHit]),
    plain("IcCacheFillSys", 0x83, &[E::L2CodeMiss]),
    plain("BpL1TlbMissL2TlbHit", 0x84, &[E::ItlbStlbHit]),
    units("BpL1TlbMissL2TlbMiss", 0x85, &[bit(0x01, &[E::ItlbWalk])]),
    plain("ExRetInstr", 0xC0, &[E::Instruction]),
    plain("ExRetOps", 0xC1, &[E::Instruction]),
    plain("ExRetBrn", 0xC2, &[E::Branch]),
    plain("ExRetBrnMisp", 0xC3, &[E::BranchMispredicted]),
    plain("ExRetBrnTkn", 0xC4, &[E::BranchTaken, E::BranchFar]),
    plain("ExRetBrnTknMisp", 0xC5, &[E::BranchTakenMispredicted]),
    plain("ExRetBrnFar", 0xC6, &[E::BranchFar]),
    plain("ExRetNearRet", 0xC8, &[E::BranchReturn]),
    plain("ExRetCond", 0xD1, &[E::BranchConditional]),
    plain("ExRetMsprdBrnchInstrDirMsmtch", 0x1C7, &[E::BranchConditionalMispredicted]),
];
