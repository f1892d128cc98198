//! Events of family 17h (PPR 54945 and 55803, "Core Performance Monitor Counters", as AMD's lists for perf have
//! them, `pmu-events/arch/x86/amdzen1` and `amdzen2`) that mean something in the model, which has neither prefetchers nor other cores' lines, nor pages larger than 4 KiB.

use super::{AmdEvent, bit, plain, units};
use crate::event::Event as E;

/// Of Zen 1 and Zen 2.
pub(super) static BOTH: &[AmdEvent] = &[
    // LdDispatch, StoreDispatch. An instruction that does both is one of each here, and no LdStDispatch.
    units("LsDispatch", 0x29, &[bit(0x01, &[E::Load]), bit(0x02, &[E::Store])]),
    plain("LsDcAccesses", 0x40, &[E::L1dRead, E::L1dWrite]),
    units("LsMabAlloc", 0x41, &[bit(0x01, &[E::L1dReadMiss]), bit(0x02, &[E::L1dWriteMiss])]),
    units(
        "LsL1DTlbMiss",
        0x45,
        &[
            bit(0x01, &[E::DtlbLoadStlbHit, E::DtlbStoreStlbHit]),
            bit(0x10, &[E::DtlbLoadWalk, E::DtlbStoreWalk]),
        ],
    ),
    plain("LsMisalAccesses", 0x47, &[E::LoadSplit]),
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
    // Windows of 32 bytes on the part; here an instruction is one fetch.
    plain("IcFw32", 0x80, &[E::L1iRead]),
    plain("IcFw32Miss", 0x81, &[E::L1iMiss]),
    plain("IcCacheFillL2", 0x82, &[E::L2CodeHit]),
    plain("IcCacheFillSys", 0x83, &[E::L2CodeMiss]),
    plain("BpL1TlbMissL2Hit", 0x84, &[E::ItlbStlbHit]),
    units("BpL1TlbMissL2Miss", 0x85, &[bit(0x01, &[E::ItlbWalk])]),
    plain("ExRetInstr", 0xC0, &[E::Instruction]),
    plain("ExRetCops", 0xC1, &[E::Instruction]),
    plain("ExRetBrn", 0xC2, &[E::Branch]),
    plain("ExRetBrnMisp", 0xC3, &[E::BranchMispredicted]),
    plain("ExRetBrnTkn", 0xC4, &[E::BranchTaken, E::BranchFar]),
    plain("ExRetBrnTknMisp", 0xC5, &[E::BranchTakenMispredicted]),
    plain("ExRetBrnFar", 0xC6, &[E::BranchFar]),
    plain("ExRetNearRet", 0xC8, &[E::BranchReturn]),
    plain("ExRetCond", 0xD1, &[E::BranchConditional]),
];

pub(super) static ZEN_1_ALONE: &[AmdEvent] =
    &[plain("ExRetCondMisp", 0xD2, &[E::BranchConditionalMispredicted])];

pub(super) static ZEN_2_ALONE: &[AmdEvent] = &[
    // By source: the local L2, L3 and other caches of the node, local memory.
    units(
        "LsRefillsFromSys",
        0x43,
        &[
            bit(0x01, &[E::L2ReadHit, E::L2RfoHit]),
            bit(0x02, &[E::L3ReadHit, E::L3RfoHit]),
            bit(0x08, &[E::LlcReadMiss, E::LlcWriteMiss]),
        ],
    ),
    plain("ExRetMsprdBrnchInstrDirMsmtch", 0x1C7, &[E::BranchConditionalMispredicted]),
];
