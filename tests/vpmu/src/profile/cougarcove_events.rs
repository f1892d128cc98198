//! Cougar Cove's events: names, encodings and counters of Intel's event list for the performance cores of
//! Panther Lake, as far as the model gives them a meaning. An encoding that is not here counts nothing.

use super::EventSpec;
use super::spec::{cycles, event, load, load_latency, offcore, on, precise, store, store_latency};
use crate::event::Event as E;

/// General-purpose events.
pub(super) static EVENTS: &[EventSpec] = &[
    // Retirement.
    on(ANY, event("TOPDOWN.SLOTS_P", 0xA4, 0x01, &[E::Slot])),
    on(ANY, event("UOPS_ISSUED.ANY", 0xAE, 0x01, &[E::Instruction])),
    on(ANY, precise("INST_RETIRED.ANY_P", 0xC0, 0x00, &[E::Instruction])),
    on(ANY, event("UOPS_RETIRED.SLOTS", 0xC2, 0x02, &[E::Instruction])),
    // Branches.
    on(ANY, precise("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x00, &[E::Branch])),
    on(ANY, precise("BR_INST_RETIRED.FAR_BRANCH", 0xC4, 0x100, &[E::BranchFar])),
    on(ANY, precise("BR_INST_RETIRED.COND_NTAKEN", 0xC4, 0x04, &[E::BranchNotTaken])),
    on(ANY, precise("BR_INST_RETIRED.COND", 0xC4, 0x07, &[E::BranchConditional])),
    on(ANY, precise("BR_INST_RETIRED.NEAR_RETURN", 0xC4, 0x08, &[E::BranchReturn])),
    on(ANY, precise("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x30, &[E::BranchCall])),
    on(ANY, precise("BR_INST_RETIRED.NEAR_TAKEN", 0xC4, 0xFB, &[E::BranchTaken])),
    on(ANY, precise("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x00, &[E::BranchMispredicted])),
    on(ANY, precise("BR_MISP_RETIRED.COND", 0xC5, 0x07, &[E::BranchConditionalMispredicted])),
    on(ANY, precise("BR_MISP_RETIRED.NEAR_INDIRECT_CALL", 0xC5, 0x10, &[E::BranchCallMispredicted])),
    on(ANY, precise("BR_MISP_RETIRED.NEAR_TAKEN", 0xC5, 0xFB, &[E::BranchTakenMispredicted])),
    // Loads and stores.
    on(0x3FC, load_latency("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01)),
    on(0x3, store_latency("MEM_TRANS_RETIRED.STORE_SAMPLE", 0xCD, 0x02)),
    load("MEM_INST_RETIRED.STLB_MISS_LOADS", 0xD0, 0x11, &[E::LoadStlbMiss]),
    store("MEM_INST_RETIRED.STLB_MISS_STORES", 0xD0, 0x12, &[E::StoreStlbMiss]),
    load("MEM_INST_RETIRED.SPLIT_LOADS", 0xD0, 0x41, &[E::LoadSplit]),
    store("MEM_INST_RETIRED.SPLIT_STORES", 0xD0, 0x42, &[E::StoreSplit]),
    load("MEM_INST_RETIRED.ALL_LOADS", 0xD0, 0x81, &[E::Load]),
    store("MEM_INST_RETIRED.ALL_STORES", 0xD0, 0x82, &[E::Store]),
    // The model has one level of L1: what hits the second is not told apart.
    load("MEM_LOAD_RETIRED.L1_HIT_L0", 0xD1, 0x01, &[E::LoadL1Hit]),
    load("MEM_LOAD_RETIRED.L1_HIT", 0xD1, 0x101, &[E::LoadL1Hit]),
    load("MEM_LOAD_RETIRED.L2_HIT", 0xD1, 0x02, &[E::LoadL2Hit]),
    load("MEM_LOAD_RETIRED.L3_HIT", 0xD1, 0x04, &[E::LoadL3Hit]),
    load("MEM_LOAD_RETIRED.L1_MISS", 0xD1, 0x08, &[E::LoadL1Miss]),
    load("MEM_LOAD_RETIRED.L2_MISS", 0xD1, 0x10, &[E::LoadL2Miss]),
    load("MEM_LOAD_RETIRED.L3_MISS", 0xD1, 0x20, &[E::LoadL3Miss]),
    // Clocks.
    on(ANY, event("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, &[E::Cycle])),
    on(ANY, event("CPU_CLK_UNHALTED.REF_TSC_P", 0x3C, 0x01, &[E::ReferenceCycle])),
    // Caches.
    on(ANY, event("OFFCORE_REQUESTS.DEMAND_DATA_RD", 0x21, 0x01, &[E::L2ReadMiss])),
    on(ANY, event("OFFCORE_REQUESTS.DEMAND_CODE_RD", 0x21, 0x02, &[E::L2CodeMiss])),
    on(ANY, event("OFFCORE_REQUESTS.DEMAND_RFO", 0x21, 0x04, &[E::L2RfoMiss])),
    on(ANY, event("OFFCORE_REQUESTS.L3_MISS_DEMAND_DATA_RD", 0x21, 0x10, &[E::LlcReadMiss])),
    on(ANY, event("L2_RQSTS.DEMAND_DATA_RD_MISS", 0x24, 0x21, &[E::L2ReadMiss])),
    on(ANY, event("L2_RQSTS.RFO_MISS", 0x24, 0x22, &[E::L2RfoMiss])),
    on(ANY, event("L2_RQSTS.CODE_RD_MISS", 0x24, 0x24, &[E::L2CodeMiss])),
    on(ANY, event("L2_RQSTS.MISS", 0x24, 0x3F, L2_MISSES)),
    on(ANY, event("L2_RQSTS.DEMAND_DATA_RD_HIT", 0x24, 0x41, &[E::L2ReadHit])),
    on(ANY, event("L2_RQSTS.RFO_HIT", 0x24, 0x42, &[E::L2RfoHit])),
    on(ANY, event("L2_RQSTS.CODE_RD_HIT", 0x24, 0x44, &[E::L2CodeHit])),
    on(ANY, event("L2_RQSTS.ALL_DEMAND_DATA_RD", 0x24, 0xE1, &[E::L2ReadHit, E::L2ReadMiss])),
    on(ANY, event("L2_RQSTS.ALL_CODE_RD", 0x24, 0xE4, &[E::L2CodeHit, E::L2CodeMiss])),
    on(ANY, event("L2_RQSTS.REFERENCES", 0x24, 0xFF, L2_REFERENCES)),
    on(ANY, event("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, LLC_MISSES)),
    on(ANY, event("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, L2_MISSES)),
    on(ANY, event("L1D.REPLACEMENT", 0x51, 0x05, &[E::L1dReadMiss, E::L1dWriteMiss])),
    on(ANY, event("ICACHE_DATA.STALLS", 0x80, 0x04, &[E::StallInstructionCache])),
    on(ANY, event("ICACHE_TAG.STALLS", 0x83, 0x04, &[E::StallInstructionTlb])),
    // Translation. All pages are modelled as 4-KiB pages, and every walk completes.
    on(ANY, event("ITLB_MISSES.WALK_COMPLETED_4K", 0x11, 0x02, &[E::ItlbWalk])),
    on(ANY, event("ITLB_MISSES.WALK_COMPLETED", 0x11, 0x0E, &[E::ItlbWalk])),
    on(ANY, event("ITLB_MISSES.STLB_HIT", 0x11, 0x120, &[E::ItlbStlbHit])),
    on(ANY, event("DTLB_LOAD_MISSES.WALK_COMPLETED_4K", 0x12, 0x02, &[E::DtlbLoadWalk])),
    on(ANY, event("DTLB_LOAD_MISSES.WALK_COMPLETED", 0x12, 0x0E, &[E::DtlbLoadWalk])),
    on(ANY, event("DTLB_LOAD_MISSES.STLB_HIT", 0x12, 0x320, &[E::DtlbLoadStlbHit])),
    on(ANY, event("DTLB_STORE_MISSES.WALK_COMPLETED_4K", 0x13, 0x02, &[E::DtlbStoreWalk])),
    on(ANY, event("DTLB_STORE_MISSES.WALK_COMPLETED", 0x13, 0x0E, &[E::DtlbStoreWalk])),
    on(ANY, event("DTLB_STORE_MISSES.STLB_HIT", 0x13, 0x320, &[E::DtlbStoreStlbHit])),
    // Stalls. In the model, a cycle with a miss outstanding is a stalled cycle.
    on(ANY, cycles("CYCLE_ACTIVITY.STALLS_TOTAL", 0xA3, 0x04, 4, &[E::StallTotal])),
    // Off-core responses.
    on(ANY, offcore("OFFCORE_RESPONSE_0", 0x2A, 0)),
    on(ANY, offcore("OFFCORE_RESPONSE_1", 0x2B, 1)),
];

const L2_REFERENCES: &[E] =
    &[E::L2ReadHit, E::L2ReadMiss, E::L2RfoHit, E::L2RfoMiss, E::L2CodeHit, E::L2CodeMiss];
const L2_MISSES: &[E] = &[E::L2ReadMiss, E::L2RfoMiss, E::L2CodeMiss];
const LLC_MISSES: &[E] = &[E::LlcReadMiss, E::LlcWriteMiss, E::LlcInstructionMiss];

/// Every general-purpose counter.
const ANY: u64 = 0x3FF;

/// Fixed-function counters 0 to 3. `select` and `umask` are the pseudo-encodings that Intel's event lists
/// use.
pub(super) static FIXED_EVENTS: &[EventSpec] = &[
    precise("INST_RETIRED.ANY", 0x00, 0x01, &[E::Instruction]),
    event("CPU_CLK_UNHALTED.THREAD", 0x00, 0x02, &[E::Cycle]),
    event("CPU_CLK_UNHALTED.REF_TSC", 0x00, 0x03, &[E::ReferenceCycle]),
    event("TOPDOWN.SLOTS", 0x00, 0x04, &[E::Slot]),
];
