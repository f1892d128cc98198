//! Sandy Bridge's events: names and encodings of Intel's event list for the client part (SDM Vol. 3B,
//! chapter 19), as far as the model gives them a meaning. An encoding that is not here counts nothing.
//! A record's data address is defined for load latency and precise stores alone (18.9.4.1).

use super::EventSpec;
use super::spec::{cycles, event, load_latency, offcore, on, precise, precise_cycles, precise_store};
use crate::event::Event as E;

/// General-purpose events.
pub(super) static EVENTS: &[EventSpec] = &[
    // Instructions. One fused micro-operation is modelled for each, and everything issued retires.
    event("INST_RETIRED.ANY_P", 0xC0, 0x00, &[E::Instruction]),
    on(0b10, precise("INST_RETIRED.PREC_DIST", 0xC0, 0x01, &[E::Instruction])),
    precise("UOPS_RETIRED.ALL", 0xC2, 0x01, &[E::Instruction]),
    precise("UOPS_RETIRED.RETIRE_SLOTS", 0xC2, 0x02, &[E::Instruction]),
    event("UOPS_ISSUED.ANY", 0x0E, 0x01, &[E::Instruction]),
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
    precise("BR_MISP_RETIRED.NEAR_CALL", 0xC5, 0x02, &[E::BranchCallMispredicted]),
    precise("BR_MISP_RETIRED.ALL_BRANCHES_PEBS", 0xC5, 0x04, &[E::BranchMispredicted]),
    precise("BR_MISP_RETIRED.TAKEN", 0xC5, 0x20, &[E::BranchTakenMispredicted]),
    event("BR_INST_EXEC.ALL_BRANCHES", 0x88, 0xFF, &[E::Branch]),
    event("BR_INST_EXEC.ALL_CONDITIONAL", 0x88, 0xC1, &[E::BranchConditional]),
    event("BR_INST_EXEC.ALL_INDIRECT_NEAR_RETURN", 0x88, 0xC8, &[E::BranchReturn]),
    event("BR_MISP_EXEC.ALL_BRANCHES", 0x89, 0xFF, &[E::BranchMispredicted]),
    event("BR_MISP_EXEC.ALL_CONDITIONAL", 0x89, 0xC1, &[E::BranchConditionalMispredicted]),
    // Loads and stores.
    precise("MEM_UOPS_RETIRED.STLB_MISS_LOADS", 0xD0, 0x11, &[E::LoadStlbMiss]),
    precise("MEM_UOPS_RETIRED.STLB_MISS_STORES", 0xD0, 0x12, &[E::StoreStlbMiss]),
    precise("MEM_UOPS_RETIRED.SPLIT_LOADS", 0xD0, 0x41, &[E::LoadSplit]),
    precise("MEM_UOPS_RETIRED.SPLIT_STORES", 0xD0, 0x42, &[E::StoreSplit]),
    precise("MEM_UOPS_RETIRED.ALL_LOADS", 0xD0, 0x81, &[E::Load]),
    precise("MEM_UOPS_RETIRED.ALL_STORES", 0xD0, 0x82, &[E::Store]),
    precise("MEM_LOAD_UOPS_RETIRED.L1_HIT", 0xD1, 0x01, &[E::LoadL1Hit]),
    precise("MEM_LOAD_UOPS_RETIRED.L2_HIT", 0xD1, 0x02, &[E::LoadL2Hit]),
    precise("MEM_LOAD_UOPS_RETIRED.LLC_HIT", 0xD1, 0x04, &[E::LoadL3Hit]),
    precise("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, &[E::LoadL3Hit]),
    precise("MEM_LOAD_UOPS_MISC_RETIRED.LLC_MISS", 0xD4, 0x02, &[E::LoadL3Miss]),
    on(0b1000, load_latency("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01)),
    on(0b1000, precise_store("MEM_TRANS_RETIRED.PRECISE_STORE", 0xCD, 0x02)),
    // Clocks.
    event("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, &[E::Cycle]),
    event("CPU_CLK_UNHALTED.REF_XCLK", 0x3C, 0x01, &[E::CrystalCycle]),
    // Caches.
    event("L1D.REPLACEMENT", 0x51, 0x01, &[E::L1dReadMiss, E::L1dWriteMiss]),
    event("ICACHE.MISSES", 0x80, 0x02, &[E::L1iMiss]),
    event("L2_RQSTS.DEMAND_DATA_RD_HIT", 0x24, 0x01, &[E::L2ReadHit]),
    event("L2_RQSTS.ALL_DEMAND_DATA_RD", 0x24, 0x03, &[E::L2ReadHit, E::L2ReadMiss]),
    event("L2_RQSTS.RFO_HIT", 0x24, 0x04, &[E::L2RfoHit]),
    event("L2_RQSTS.RFO_MISS", 0x24, 0x08, &[E::L2RfoMiss]),
    event("L2_RQSTS.ALL_RFO", 0x24, 0x0C, &[E::L2RfoHit, E::L2RfoMiss]),
    event("L2_RQSTS.CODE_RD_HIT", 0x24, 0x10, &[E::L2CodeHit]),
    event("L2_RQSTS.CODE_RD_MISS", 0x24, 0x20, &[E::L2CodeMiss]),
    event("L2_RQSTS.ALL_CODE_RD", 0x24, 0x30, &[E::L2CodeHit, E::L2CodeMiss]),
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
    event("DTLB_LOAD_MISSES.WALK_COMPLETED", 0x08, 0x02, &[E::DtlbLoadWalk]),
    event("DTLB_LOAD_MISSES.STLB_HIT", 0x08, 0x10, &[E::DtlbLoadStlbHit]),
    event("DTLB_STORE_MISSES.MISS_CAUSES_A_WALK", 0x49, 0x01, &[E::DtlbStoreWalk]),
    event("DTLB_STORE_MISSES.WALK_COMPLETED", 0x49, 0x02, &[E::DtlbStoreWalk]),
    event("DTLB_STORE_MISSES.STLB_HIT", 0x49, 0x10, &[E::DtlbStoreStlbHit]),
    event("ITLB_MISSES.MISS_CAUSES_A_WALK", 0x85, 0x01, &[E::ItlbWalk]),
    event("ITLB_MISSES.WALK_COMPLETED", 0x85, 0x02, &[E::ItlbWalk]),
    event("ITLB_MISSES.STLB_HIT", 0x85, 0x10, &[E::ItlbStlbHit]),
    // Stalls. In the model, a cycle with a miss outstanding is a stalled cycle.
    event("RESOURCE_STALLS.ANY", 0xA2, 0x01, &[E::StallMemory]),
    on(0b100, event("L1D_PEND_MISS.PENDING", 0x48, 0x01, &[E::StallL1dMiss])),
    on(0b100, cycles("L1D_PEND_MISS.PENDING_CYCLES", 0x48, 0x01, 1, &[E::StallL1dMiss])),
    cycles("CYCLE_ACTIVITY.CYCLES_NO_DISPATCH", 0xA3, 0x04, 4, &[E::StallTotal]),
    on(0b100, cycles("CYCLE_ACTIVITY.CYCLES_L1D_PENDING", 0xA3, 0x02, 2, &[E::StallL1dMiss])),
    on(0b100, cycles("CYCLE_ACTIVITY.STALLS_L1D_PENDING", 0xA3, 0x06, 6, &[E::StallL1dMiss])),
    cycles("CYCLE_ACTIVITY.CYCLES_L2_PENDING", 0xA3, 0x01, 1, &[E::StallL2Miss]),
    cycles("CYCLE_ACTIVITY.STALLS_L2_PENDING", 0xA3, 0x05, 5, &[E::StallL2Miss]),
];

const L2_MISSES: &[E] = &[E::L2ReadMiss, E::L2RfoMiss, E::L2CodeMiss];
