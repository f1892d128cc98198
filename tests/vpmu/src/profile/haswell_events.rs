//! Haswell's events: names and encodings of Intel's event list for the client part (SDM Vol. 3B,
//! chapter 19), as far as the model gives them a meaning. An encoding that is not here counts nothing.
//! Records of loads and stores hold their address (18.11.3, data address profiling).

use super::EventSpec;
use super::spec::{cycles, event, load, load_latency, offcore, on, precise, precise_cycles, store};
use crate::event::Event as E;

/// General-purpose events.
pub(super) static EVENTS: &[EventSpec] = &[
    // Instructions. One fused micro-operation is modelled for each, and everything issued retires.
    event("INST_RETIRED.ANY_P", 0xC0, 0x00, &[E::Instruction]),
    on(0b10, precise("INST_RETIRED.PREC_DIST", 0xC0, 0x01, &[E::Instruction])),
    precise("UOPS_RETIRED.ALL", 0xC2, 0x01, &[E::Instruction]),
    precise("UOPS_RETIRED.RETIRE_SLOTS", 0xC2, 0x02, &[E::Instruction]),
    event("UOPS_ISSUED.ANY", 0x0E, 0x01, &[E::Instruction]),
    on(0b10, precise_cycles("INST_RETIRED.TOTAL_CYCLES_PS", 0xC0, 0x01)),
    precise_cycles("UOPS_RETIRED.TOTAL_CYCLES", 0xC2, 0x01),
    // Branches. Nothing executes speculatively.
    event("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x00, &[E::Branch]),
    precise("BR_INST_RETIRED.CONDITIONAL", 0xC4, 0x01, &[E::BranchConditional]),
    precise("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x02, &[E::BranchCall]),
    precise("BR_INST_RETIRED.ALL_BRANCHES_PEBS", 0xC4, 0x04, &[E::Branch]),
    precise("BR_INST_RETIRED.NEAR_RETURN", 0xC4, 0x08, &[E::BranchReturn]),
    event("BR_INST_RETIRED.NOT_TAKEN", 0xC4, 0x10, &[E::BranchNotTaken]),
    precise("BR_INST_RETIRED.NEAR_TAKEN", 0xC4, 0x20, &[E::BranchTaken]),
    event("BR_INST_RETIRED.FAR_BRANCH", 0xC4, 0x40, &[E::BranchFar]),
    event("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x00, &[E::BranchMispredicted]),
    precise("BR_MISP_RETIRED.CONDITIONAL", 0xC5, 0x01, &[E::BranchConditionalMispredicted]),
    precise("BR_MISP_RETIRED.ALL_BRANCHES_PEBS", 0xC5, 0x04, &[E::BranchMispredicted]),
    precise("BR_MISP_RETIRED.NEAR_TAKEN", 0xC5, 0x20, &[E::BranchTakenMispredicted]),
    event("BR_INST_EXEC.ALL_BRANCHES", 0x88, 0xFF, &[E::Branch]),
    event("BR_INST_EXEC.ALL_CONDITIONAL", 0x88, 0xC1, &[E::BranchConditional]),
    event("BR_INST_EXEC.ALL_INDIRECT_NEAR_RETURN", 0x88, 0xC8, &[E::BranchReturn]),
    event("BR_MISP_EXEC.ALL_BRANCHES", 0x89, 0xFF, &[E::BranchMispredicted]),
    event("BR_MISP_EXEC.ALL_CONDITIONAL", 0x89, 0xC1, &[E::BranchConditionalMispredicted]),
    // Loads and stores.
    load("MEM_UOPS_RETIRED.STLB_MISS_LOADS", 0xD0, 0x11, &[E::LoadStlbMiss]),
    store("MEM_UOPS_RETIRED.STLB_MISS_STORES", 0xD0, 0x12, &[E::StoreStlbMiss]),
    load("MEM_UOPS_RETIRED.SPLIT_LOADS", 0xD0, 0x41, &[E::LoadSplit]),
    store("MEM_UOPS_RETIRED.SPLIT_STORES", 0xD0, 0x42, &[E::StoreSplit]),
    load("MEM_UOPS_RETIRED.ALL_LOADS", 0xD0, 0x81, &[E::Load]),
    store("MEM_UOPS_RETIRED.ALL_STORES", 0xD0, 0x82, &[E::Store]),
    load("MEM_LOAD_UOPS_RETIRED.L1_HIT", 0xD1, 0x01, &[E::LoadL1Hit]),
    load("MEM_LOAD_UOPS_RETIRED.L2_HIT", 0xD1, 0x02, &[E::LoadL2Hit]),
    load("MEM_LOAD_UOPS_RETIRED.L3_HIT", 0xD1, 0x04, &[E::LoadL3Hit]),
    load("MEM_LOAD_UOPS_RETIRED.L1_MISS", 0xD1, 0x08, &[E::LoadL1Miss]),
    load("MEM_LOAD_UOPS_RETIRED.L2_MISS", 0xD1, 0x10, &[E::LoadL2Miss]),
    load("MEM_LOAD_UOPS_RETIRED.L3_MISS", 0xD1, 0x20, &[E::LoadL3Miss]),
    load("MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, &[E::LoadL3Hit]),
    load("MEM_LOAD_UOPS_L3_MISS_RETIRED.LOCAL_DRAM", 0xD3, 0x01, &[E::LoadL3Miss]),
    load_latency("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01),
    // Clocks.
    event("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, &[E::Cycle]),
    event("CPU_CLK_UNHALTED.REF_XCLK", 0x3C, 0x01, &[E::CrystalCycle]),
    // Caches.
    event("L1D.REPLACEMENT", 0x51, 0x01, &[E::L1dReadMiss, E::L1dWriteMiss]),
    event("ICACHE.MISSES", 0x80, 0x02, &[E::L1iMiss]),
    event("ICACHE.IFETCH_STALL", 0x80, 0x04, &[E::StallInstructionCache]),
    event("L2_RQSTS.DEMAND_DATA_RD_HIT", 0x24, 0xC1, &[E::L2ReadHit]),
    event("L2_RQSTS.DEMAND_DATA_RD_MISS", 0x24, 0x21, &[E::L2ReadMiss]),
    event("L2_RQSTS.ALL_DEMAND_DATA_RD", 0x24, 0xE1, &[E::L2ReadHit, E::L2ReadMiss]),
    event("L2_RQSTS.RFO_HIT", 0x24, 0xC2, &[E::L2RfoHit]),
    event("L2_RQSTS.RFO_MISS", 0x24, 0x22, &[E::L2RfoMiss]),
    event("L2_RQSTS.ALL_RFO", 0x24, 0xE2, &[E::L2RfoHit, E::L2RfoMiss]),
    event("L2_RQSTS.CODE_RD_HIT", 0x24, 0xC4, &[E::L2CodeHit]),
    event("L2_RQSTS.CODE_RD_MISS", 0x24, 0x24, &[E::L2CodeMiss]),
    event("L2_RQSTS.ALL_CODE_RD", 0x24, 0xE4, &[E::L2CodeHit, E::L2CodeMiss]),
    event("L2_RQSTS.ALL_DEMAND_MISS", 0x24, 0x27, L2_MISSES),
    event("L2_RQSTS.MISS", 0x24, 0x3F, L2_MISSES),
    event("L2_RQSTS.ALL_DEMAND_REFERENCES", 0x24, 0xE7, L2_REFERENCES),
    event("L2_RQSTS.REFERENCES", 0x24, 0xFF, L2_REFERENCES),
    event("L2_LINES_IN.ALL", 0xF1, 0x07, L2_MISSES),
    event("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, &[E::LlcReadMiss, E::LlcWriteMiss, E::LlcInstructionMiss]),
    event("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, L2_MISSES),
    event("OFFCORE_REQUESTS.DEMAND_DATA_RD", 0xB0, 0x01, &[E::L2ReadMiss]),
    event("OFFCORE_REQUESTS.DEMAND_CODE_RD", 0xB0, 0x02, &[E::L2CodeMiss]),
    event("OFFCORE_REQUESTS.DEMAND_RFO", 0xB0, 0x04, &[E::L2RfoMiss]),
    offcore("OFFCORE_RESPONSE_0", 0xB7, 0),
    offcore("OFFCORE_RESPONSE_1", 0xBB, 1),
    // Translation. All pages are modelled as 4-KiB pages, and every walk completes.
    event("DTLB_LOAD_MISSES.MISS_CAUSES_A_WALK", 0x08, 0x01, &[E::DtlbLoadWalk]),
    event("DTLB_LOAD_MISSES.WALK_COMPLETED_4K", 0x08, 0x02, &[E::DtlbLoadWalk]),
    event("DTLB_LOAD_MISSES.WALK_COMPLETED", 0x08, 0x0E, &[E::DtlbLoadWalk]),
    event("DTLB_LOAD_MISSES.STLB_HIT_4K", 0x08, 0x20, &[E::DtlbLoadStlbHit]),
    event("DTLB_LOAD_MISSES.STLB_HIT", 0x08, 0x60, &[E::DtlbLoadStlbHit]),
    event("DTLB_STORE_MISSES.MISS_CAUSES_A_WALK", 0x49, 0x01, &[E::DtlbStoreWalk]),
    event("DTLB_STORE_MISSES.WALK_COMPLETED_4K", 0x49, 0x02, &[E::DtlbStoreWalk]),
    event("DTLB_STORE_MISSES.WALK_COMPLETED", 0x49, 0x0E, &[E::DtlbStoreWalk]),
    event("DTLB_STORE_MISSES.STLB_HIT_4K", 0x49, 0x20, &[E::DtlbStoreStlbHit]),
    event("DTLB_STORE_MISSES.STLB_HIT", 0x49, 0x60, &[E::DtlbStoreStlbHit]),
    event("ITLB_MISSES.MISS_CAUSES_A_WALK", 0x85, 0x01, &[E::ItlbWalk]),
    event("ITLB_MISSES.WALK_COMPLETED_4K", 0x85, 0x02, &[E::ItlbWalk]),
    event("ITLB_MISSES.WALK_COMPLETED", 0x85, 0x0E, &[E::ItlbWalk]),
    event("ITLB_MISSES.STLB_HIT_4K", 0x85, 0x20, &[E::ItlbStlbHit]),
    event("ITLB_MISSES.STLB_HIT", 0x85, 0x60, &[E::ItlbStlbHit]),
    // Stalls. In the model, a cycle with a miss outstanding is a stalled cycle.
    event("RESOURCE_STALLS.ANY", 0xA2, 0x01, &[E::StallMemory]),
    on(0b100, event("L1D_PEND_MISS.PENDING", 0x48, 0x01, &[E::StallL1dMiss])),
    on(0b100, cycles("L1D_PEND_MISS.PENDING_CYCLES", 0x48, 0x01, 1, &[E::StallL1dMiss])),
    cycles("CYCLE_ACTIVITY.CYCLES_NO_EXECUTE", 0xA3, 0x04, 4, &[E::StallTotal]),
    cycles("CYCLE_ACTIVITY.CYCLES_LDM_PENDING", 0xA3, 0x02, 2, &[E::StallMemory]),
    cycles("CYCLE_ACTIVITY.STALLS_LDM_PENDING", 0xA3, 0x06, 6, &[E::StallMemory]),
    on(0b100, cycles("CYCLE_ACTIVITY.CYCLES_L1D_PENDING", 0xA3, 0x08, 8, &[E::StallL1dMiss])),
    on(0b100, cycles("CYCLE_ACTIVITY.STALLS_L1D_PENDING", 0xA3, 0x0C, 12, &[E::StallL1dMiss])),
    cycles("CYCLE_ACTIVITY.CYCLES_L2_PENDING", 0xA3, 0x01, 1, &[E::StallL2Miss]),
    cycles("CYCLE_ACTIVITY.STALLS_L2_PENDING", 0xA3, 0x05, 5, &[E::StallL2Miss]),
];

const L2_MISSES: &[E] = &[E::L2ReadMiss, E::L2RfoMiss, E::L2CodeMiss];

const L2_REFERENCES: &[E] =
    &[E::L2ReadHit, E::L2ReadMiss, E::L2RfoHit, E::L2RfoMiss, E::L2CodeHit, E::L2CodeMiss];
