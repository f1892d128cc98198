//! Darkmont's events: names, encodings and counters of Intel's event list for Clearwater Forest, as far as
//! the model gives them a meaning. An encoding that is not here counts nothing.

use super::EventSpec;
use super::spec::{event, load, load_latency, offcore, on, precise, store, store_latency};
use crate::event::Event as E;

/// General-purpose events.
pub(super) static EVENTS: &[EventSpec] = &[
    // Retirement.
    on(ANY, event("UOPS_ISSUED.ANY", 0x0E, 0x00, &[E::Instruction])),
    on(ANY, precise("INST_RETIRED.ANY_P", 0xC0, 0x00, &[E::Instruction])),
    on(ANY, precise("TOPDOWN_RETIRING.ALL_P", 0xC2, 0x02, &[E::Instruction])),
    // Branches.
    on(ANY, precise("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x00, &[E::Branch])),
    on(ANY, precise("BR_INST_RETIRED.COND_NTAKEN", 0xC4, 0x04, &[E::BranchNotTaken])),
    on(ANY, precise("BR_INST_RETIRED.COND", 0xC4, 0x07, &[E::BranchConditional])),
    on(ANY, precise("BR_INST_RETIRED.NEAR_RETURN", 0xC4, 0x08, &[E::BranchReturn])),
    on(ANY, precise("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x30, &[E::BranchCall])),
    on(ANY, precise("BR_INST_RETIRED.NEAR_TAKEN", 0xC4, 0xFB, &[E::BranchTaken])),
    on(ANY, precise("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x00, &[E::BranchMispredicted])),
    // Loads and stores.
    on(ANY, load_latency("MEM_UOPS_RETIRED.LOAD_LATENCY", 0xD0, 0x05)),
    on(ANY, store_latency("MEM_UOPS_RETIRED.STORE_LATENCY", 0xD0, 0x06)),
    on(ANY, load("MEM_UOPS_RETIRED.STLB_MISS_LOADS", 0xD0, 0x11, &[E::LoadStlbMiss])),
    on(ANY, store("MEM_UOPS_RETIRED.STLB_MISS_STORES", 0xD0, 0x12, &[E::StoreStlbMiss])),
    on(ANY, load("MEM_UOPS_RETIRED.SPLIT_LOADS", 0xD0, 0x41, &[E::LoadSplit])),
    on(ANY, store("MEM_UOPS_RETIRED.SPLIT_STORES", 0xD0, 0x42, &[E::StoreSplit])),
    on(ANY, load("MEM_UOPS_RETIRED.ALL_LOADS", 0xD0, 0x81, &[E::Load])),
    on(ANY, store("MEM_UOPS_RETIRED.ALL_STORES", 0xD0, 0x82, &[E::Store])),
    on(ANY, load("MEM_LOAD_UOPS_RETIRED.L1_HIT", 0xD1, 0x01, &[E::LoadL1Hit])),
    on(ANY, load("MEM_LOAD_UOPS_RETIRED.L2_HIT", 0xD1, 0x02, &[E::LoadL2Hit])),
    on(ANY, load("MEM_LOAD_UOPS_RETIRED.L3_HIT", 0xD1, 0x1C, &[E::LoadL3Hit])),
    on(ANY, load("MEM_LOAD_UOPS_RETIRED.L1_MISS", 0xD1, 0x40, &[E::LoadL1Miss])),
    on(ANY, load("MEM_LOAD_UOPS_RETIRED.L2_MISS", 0xD1, 0x80, &[E::LoadL2Miss])),
    // Clocks.
    on(ANY, event("CPU_CLK_UNHALTED.CORE_P", 0x3C, 0x00, &[E::Cycle])),
    on(ANY, event("CPU_CLK_UNHALTED.REF_TSC_P", 0x3C, 0x01, &[E::ReferenceCycle])),
    // Caches.
    on(ANY, event("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, LLC_MISSES)),
    on(ANY, event("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, L2_MISSES)),
    on(ANY, event("L2_REQUEST.MISS", 0x24, 0x17F, L2_MISSES)),
    on(ANY, event("L2_REQUEST.DEMAND_CODE_RD_MISS", 0x24, 0x44, &[E::L2CodeMiss])),
    on(ANY, event("L2_REQUEST.DEMAND_CODE_RD_HIT", 0x24, 0x84, &[E::L2CodeHit])),
    on(ANY, event("L2_REQUEST.HIT", 0x24, 0x1BF, &[E::L2ReadHit, E::L2RfoHit, E::L2CodeHit])),
    on(ANY, event("L2_REQUEST.ALL", 0x24, 0x1FF, L2_REFERENCES)),
    on(ANY, event("ICACHE.MISSES", 0x80, 0x02, &[E::L1iMiss])),
    on(ANY, event("ICACHE.ACCESSES", 0x80, 0x03, &[E::L1iRead])),
    // Translation. All pages are modelled as 4-KiB pages, and every walk completes.
    on(ANY, event("DTLB_LOAD_MISSES.MISS_CAUSED_WALK", 0x08, 0x01, &[E::DtlbLoadWalk])),
    on(ANY, event("DTLB_LOAD_MISSES.WALK_COMPLETED_4K", 0x08, 0x02, &[E::DtlbLoadWalk])),
    on(ANY, event("DTLB_LOAD_MISSES.WALK_COMPLETED", 0x08, 0x0E, &[E::DtlbLoadWalk])),
    on(ANY, event("DTLB_LOAD_MISSES.STLB_HIT", 0x08, 0x20, &[E::DtlbLoadStlbHit])),
    on(ANY, event("DTLB_STORE_MISSES.MISS_CAUSED_WALK", 0x49, 0x01, &[E::DtlbStoreWalk])),
    on(ANY, event("DTLB_STORE_MISSES.WALK_COMPLETED_4K", 0x49, 0x02, &[E::DtlbStoreWalk])),
    on(ANY, event("DTLB_STORE_MISSES.WALK_COMPLETED", 0x49, 0x0E, &[E::DtlbStoreWalk])),
    on(ANY, event("DTLB_STORE_MISSES.STLB_HIT", 0x49, 0x20, &[E::DtlbStoreStlbHit])),
    on(ANY, event("ITLB_MISSES.MISS_CAUSED_WALK", 0x85, 0x01, &[E::ItlbWalk])),
    on(ANY, event("ITLB_MISSES.WALK_COMPLETED_4K", 0x85, 0x02, &[E::ItlbWalk])),
    on(ANY, event("ITLB_MISSES.WALK_COMPLETED", 0x85, 0x0E, &[E::ItlbWalk])),
    on(ANY, event("ITLB_MISSES.STLB_HIT", 0x85, 0x20, &[E::ItlbStlbHit])),
    // Off-core responses.
    on(ANY, offcore("OFFCORE_RESPONSE_0", 0xB7, 0)),
    on(ANY, EventSpec { umask: 0x02, ..offcore("OFFCORE_RESPONSE_1", 0xB7, 1) }),
];
const L2_REFERENCES: &[E] =
    &[E::L2ReadHit, E::L2ReadMiss, E::L2RfoHit, E::L2RfoMiss, E::L2CodeHit, E::L2CodeMiss];
const L2_MISSES: &[E] = &[E::L2ReadMiss, E::L2RfoMiss, E::L2CodeMiss];
const LLC_MISSES: &[E] = &[E::LlcReadMiss, E::LlcWriteMiss, E::LlcInstructionMiss];

/// Every general-purpose counter.
const ANY: u64 = 0xFF;

/// Fixed-function counters 0 to 6, of which 3 does not exist. `select` and `umask` are the pseudo-encodings
/// that Intel's event lists use. Slots lost to bad speculation and to the front end are not modelled.
pub(super) static FIXED_EVENTS: &[EventSpec] = &[
    precise("INST_RETIRED.ANY", 0x00, 0x01, &[E::Instruction]),
    event("CPU_CLK_UNHALTED.CORE", 0x00, 0x02, &[E::Cycle]),
    event("CPU_CLK_UNHALTED.REF_TSC", 0x00, 0x03, &[E::ReferenceCycle]),
    event("(none)", 0x00, 0x04, &[]),
    event("TOPDOWN_BAD_SPECULATION.ALL", 0x00, 0x05, &[]),
    event("TOPDOWN_FE_BOUND.ALL", 0x00, 0x06, &[]),
    precise("TOPDOWN_RETIRING.ALL", 0x00, 0x07, &[E::Instruction]),
];
