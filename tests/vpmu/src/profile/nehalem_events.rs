//! Nehalem's events: names and encodings of Intel's event list for Nehalem-EP (SDM Vol. 3B,
//! chapter 19), as far as the model gives them a meaning. An encoding that is not here counts nothing.
//! A record's data address is defined for load latency alone (18.8.1.2).

use super::EventSpec;
use super::spec::{event, load_latency, offcore, on, precise, precise_cycles};
use crate::event::Event as E;

/// General-purpose events.
pub(super) static EVENTS: &[EventSpec] = &[
    // Instructions. One fused micro-operation is modelled for each, and everything issued retires.
    precise("INST_RETIRED.ANY", 0xC0, 0x00, &[E::Instruction]),
    precise("INST_RETIRED.ANY_P", 0xC0, 0x01, &[E::Instruction]),
    precise("UOPS_RETIRED.ANY", 0xC2, 0x01, &[E::Instruction]),
    precise("UOPS_RETIRED.RETIRE_SLOTS", 0xC2, 0x02, &[E::Instruction]),
    event("UOPS_ISSUED.ANY", 0x0E, 0x01, &[E::Instruction]),
    precise_cycles("INST_RETIRED.TOTAL_CYCLES", 0xC0, 0x00),
    precise_cycles("INST_RETIRED.TOTAL_CYCLES_PS", 0xC0, 0x01),
    precise_cycles("UOPS_RETIRED.TOTAL_CYCLES", 0xC2, 0x01),
    // Branches. Nothing executes speculatively.
    event("BRANCH_INSTRUCTIONS_RETIRED", 0xC4, 0x00, &[E::Branch]),
    event("BRANCH_MISSES_RETIRED", 0xC5, 0x00, &[E::BranchMispredicted]),
    precise("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x04, &[E::Branch]),
    precise("BR_INST_RETIRED.CONDITIONAL", 0xC4, 0x01, &[E::BranchConditional]),
    precise("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x02, &[E::BranchCall]),
    precise("BR_MISP_RETIRED.NEAR_CALL", 0xC5, 0x02, &[E::BranchCallMispredicted]),
    event("BR_INST_EXEC.ANY", 0x88, 0x7F, &[E::Branch]),
    event("BR_INST_EXEC.COND", 0x88, 0x01, &[E::BranchConditional]),
    event("BR_INST_EXEC.NEAR_CALLS", 0x88, 0x30, &[E::BranchCall]),
    event("BR_INST_EXEC.RETURN_NEAR", 0x88, 0x08, &[E::BranchReturn]),
    event("BR_INST_EXEC.TAKEN", 0x88, 0x40, &[E::BranchTaken]),
    event("BR_MISP_EXEC.ANY", 0x89, 0x7F, &[E::BranchMispredicted]),
    event("BR_MISP_EXEC.COND", 0x89, 0x01, &[E::BranchConditionalMispredicted]),
    event("BR_MISP_EXEC.NEAR_CALLS", 0x89, 0x30, &[E::BranchCallMispredicted]),
    event("BR_MISP_EXEC.TAKEN", 0x89, 0x40, &[E::BranchTakenMispredicted]),
    // Loads and stores.
    precise("MEM_INST_RETIRED.LOADS", 0x0B, 0x01, &[E::Load]),
    precise("MEM_INST_RETIRED.STORES", 0x0B, 0x02, &[E::Store]),
    precise("MEM_LOAD_RETIRED.L1D_HIT", 0xCB, 0x01, &[E::LoadL1Hit]),
    precise("MEM_LOAD_RETIRED.L2_HIT", 0xCB, 0x02, &[E::LoadL2Hit]),
    precise("MEM_LOAD_RETIRED.LLC_UNSHARED_HIT", 0xCB, 0x04, &[E::LoadL3Hit]),
    precise("MEM_LOAD_RETIRED.LLC_MISS", 0xCB, 0x10, &[E::LoadL3Miss]),
    precise("MEM_LOAD_RETIRED.DTLB_MISS", 0xCB, 0x80, &[E::LoadStlbMiss]),
    precise("MEM_STORE_RETIRED.DTLB_MISS", 0x0C, 0x01, &[E::StoreStlbMiss]),
    precise("MEM_UNCORE_RETIRED.LOCAL_DRAM", 0x0F, 0x20, &[E::LoadL3Miss]),
    load_latency("MEM_INST_RETIRED.LATENCY_ABOVE_THRESHOLD", 0x0B, 0x10),
    // Clocks.
    event("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, &[E::Cycle]),
    event("CPU_CLK_UNHALTED.REF_P", 0x3C, 0x01, &[E::CrystalCycle]),
    // Caches.
    on(0b11, event("L1D.REPL", 0x51, 0x01, &[E::L1dReadMiss, E::L1dWriteMiss])),
    on(0b11, event("L1D_CACHE_LD.MESI", 0x40, 0x0F, &[E::L1dRead])),
    on(0b11, event("L1D_CACHE_LD.I_STATE", 0x40, 0x01, &[E::L1dReadMiss])),
    on(0b11, event("L1D_ALL_REF.ANY", 0x43, 0x01, &[E::L1dRead, E::L1dWrite])),
    event("L1I.READS", 0x80, 0x03, &[E::L1iRead]),
    event("L1I.MISSES", 0x80, 0x02, &[E::L1iMiss]),
    event("L1I.CYCLES_STALLED", 0x80, 0x04, &[E::StallInstructionCache]),
    event("L2_RQSTS.LD_HIT", 0x24, 0x01, &[E::L2ReadHit]),
    event("L2_RQSTS.LD_MISS", 0x24, 0x02, &[E::L2ReadMiss]),
    event("L2_RQSTS.LOADS", 0x24, 0x03, &[E::L2ReadHit, E::L2ReadMiss]),
    event("L2_RQSTS.RFOS", 0x24, 0x0C, &[E::L2RfoHit, E::L2RfoMiss]),
    event("L2_RQSTS.IFETCH_HIT", 0x24, 0x10, &[E::L2CodeHit]),
    event("L2_RQSTS.IFETCH_MISS", 0x24, 0x20, &[E::L2CodeMiss]),
    event("L2_RQSTS.IFETCHES", 0x24, 0x30, &[E::L2CodeHit, E::L2CodeMiss]),
    event("L2_RQSTS.RFO_HIT", 0x24, 0x04, &[E::L2RfoHit]),
    event("L2_RQSTS.RFO_MISS", 0x24, 0x08, &[E::L2RfoMiss]),
    event("L2_RQSTS.MISS", 0x24, 0xAA, L2_MISSES),
    event("L2_RQSTS.REFERENCES", 0x24, 0xFF, L2_REFERENCES),
    event("L2_LINES_IN.ANY", 0xF1, 0x07, L2_MISSES),
    event("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, &[E::LlcReadMiss, E::LlcWriteMiss, E::LlcInstructionMiss]),
    event("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, L2_MISSES),
    offcore("OFFCORE_RESPONSE_0", 0xB7, 0),
    // Translation. All pages are modelled as 4-KiB pages, and every walk completes.
    event("DTLB_LOAD_MISSES.ANY", 0x08, 0x01, &[E::DtlbLoadWalk]),
    event("DTLB_LOAD_MISSES.WALK_COMPLETED", 0x08, 0x02, &[E::DtlbLoadWalk]),
    event("DTLB_LOAD_MISSES.STLB_HIT", 0x08, 0x10, &[E::DtlbLoadStlbHit]),
    event("DTLB_MISSES.ANY", 0x49, 0x01, &[E::DtlbLoadWalk, E::DtlbStoreWalk]),
    event("DTLB_MISSES.WALK_COMPLETED", 0x49, 0x02, &[E::DtlbLoadWalk, E::DtlbStoreWalk]),
    event("DTLB_MISSES.STLB_HIT", 0x49, 0x10, &[E::DtlbLoadStlbHit, E::DtlbStoreStlbHit]),
    event("ITLB_MISSES.ANY", 0x85, 0x01, &[E::ItlbWalk]),
    event("ITLB_MISSES.WALK_COMPLETED", 0x85, 0x02, &[E::ItlbWalk]),
    precise("ITLB_MISS_RETIRED", 0xC8, 0x20, &[E::ItlbWalk]),
    // Stalls. In the model, a cycle with a miss outstanding is a stalled cycle.
    event("RESOURCE_STALLS.ANY", 0xA2, 0x01, &[E::StallMemory]),
];

const L2_MISSES: &[E] = &[E::L2ReadMiss, E::L2RfoMiss, E::L2CodeMiss];

const L2_REFERENCES: &[E] =
    &[E::L2ReadHit, E::L2ReadMiss, E::L2RfoHit, E::L2RfoMiss, E::L2CodeHit, E::L2CodeMiss];
