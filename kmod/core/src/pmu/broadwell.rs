//! Broadwell: PerfMon version 3, PEBS format 2 (SDM Vol. 3B 20.3.7).

use super::super::abi::CoreType;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, Generation,
    PreciseRule, Quirks, LATENCY,
};

/// General counters 0 to 3: those that exist with hyper-threading on, and that can write PEBS records.
const LOW: u16 = 0x0F;
/// Every general counter that the processor has.
const ANY: u16 = 0xFF;

/// Broadwell clients and servers.
pub const BROADWELL: Generation = Generation {
    name: "broadwell",
    models: &[0x3D, 0x47, 0x4F, 0x56],
    hybrid_models: &[],
    core_type: CoreType::Any,
    events: &EVENTS,
    constrained: &CONSTRAINED,
    fixed: &[],
    precise: &PRECISE,
    extra: &EXTRA,
    // Erratum BDE70: the others do not count user mode alone.
    quirks: Quirks { user_counters: LOW, ..Quirks::NONE },
    pebs_formats: &[2],
    pebs_counters: 0x0F,
    lbr_format: 4,
    errata: &[],
};

/// Intel's event lists (perfmon, BDW, BDW-DE and BDX), by event select.
const EVENTS: [EventRule; 65] = [
    rule(0x03, 0x0A, ANY),  // LD_BLOCKS
    rule(0x05, 0x03, ANY),  // MISALIGN_MEM_REF
    rule(0x07, 0x01, ANY),  // LD_BLOCKS_PARTIAL
    rule(0x08, 0x7F, ANY),  // DTLB_LOAD_MISSES
    rule(0x0D, 0x0B, ANY),  // INT_MISC
    rule(0x0E, 0x71, ANY),  // UOPS_ISSUED
    rule(0x14, 0x01, ANY),  // ARITH
    rule(0x24, 0xFF, ANY),  // L2_RQSTS
    rule(0x27, 0x50, ANY),  // L2_DEMAND_RQSTS
    rule(0x2E, 0x4F, ANY),  // LONGEST_LAT_CACHE
    rule(0x3C, 0x03, ANY),  // CPU_CLK_THREAD_UNHALTED, CPU_CLK_UNHALTED
    rule(0x48, 0x03, ANY),  // L1D_PEND_MISS
    rule(0x49, 0x7F, ANY),  // DTLB_STORE_MISSES
    rule(0x4C, 0x03, ANY),  // LOAD_HIT_PRE
    rule(0x4F, 0x10, ANY),  // EPT
    rule(0x51, 0x01, ANY),  // L1D
    rule(0x54, 0x7F, ANY),  // TX_MEM
    rule(0x58, 0x0F, ANY),  // MOVE_ELIMINATION
    rule(0x5C, 0x03, ANY),  // CPL_CYCLES
    rule(0x5D, 0x1F, ANY),  // TX_EXEC
    rule(0x5E, 0x01, ANY),  // RS_EVENTS
    rule(0x60, 0x0F, ANY),  // OFFCORE_REQUESTS_OUTSTANDING
    rule(0x63, 0x03, ANY),  // LOCK_CYCLES
    rule(0x79, 0x3E, ANY),  // IDQ
    rule(0x80, 0x07, ANY),  // ICACHE
    rule(0x85, 0x7F, ANY),  // ITLB_MISSES
    rule(0x87, 0x01, ANY),  // ILD_STALL
    rule(0x88, 0xFF, ANY),  // BR_INST_EXEC
    rule(0x89, 0xFF, ANY),  // BR_MISP_EXEC
    rule(0x9C, 0x01, ANY),  // IDQ_UOPS_NOT_DELIVERED
    rule(0xA0, 0x03, ANY),  // UOP_DISPATCHES_CANCELLED
    rule(0xA1, 0xFF, ANY),  // UOPS_DISPATCHED_PORT, UOPS_EXECUTED_PORT
    rule(0xA2, 0x1D, ANY),  // RESOURCE_STALLS
    rule(0xA3, 0x0F, ANY),  // CYCLE_ACTIVITY
    rule(0xA8, 0x01, ANY),  // LSD
    rule(0xAB, 0x02, ANY),  // DSB2MITE_SWITCHES
    rule(0xAE, 0x01, ANY),  // ITLB
    rule(0xB0, 0x8F, ANY),  // OFFCORE_REQUESTS
    rule(0xB1, 0x03, ANY),  // UOPS_EXECUTED
    rule(0xB2, 0x01, ANY),  // OFFCORE_REQUESTS_BUFFER
    rule(0xB7, 0x01, ANY),  // OFFCORE_RESPONSE
    rule(0xBB, 0x01, ANY),  // OFFCORE_RESPONSE
    rule(0xBC, 0x3F, ANY),  // PAGE_WALKER_LOADS
    rule(0xBD, 0x21, ANY),  // TLB_FLUSH
    rule(0xC0, 0x03, ANY),  // INST_RETIRED
    rule(0xC1, 0x58, ANY),  // OTHER_ASSISTS
    rule(0xC2, 0x03, ANY),  // UOPS_RETIRED
    rule(0xC3, 0x27, ANY),  // MACHINE_CLEARS
    rule(0xC4, 0x7F, ANY),  // BR_INST_RETIRED
    rule(0xC5, 0x2D, ANY),  // BR_MISP_RETIRED
    rule(0xC7, 0xFF, ANY),  // FP_ARITH_INST_RETIRED
    rule(0xC8, 0xFF, ANY),  // HLE_RETIRED
    rule(0xC9, 0xFF, ANY),  // RTM_RETIRED
    rule(0xCA, 0x1E, ANY),  // FP_ASSIST
    rule(0xCC, 0x20, ANY),  // ROB_MISC_EVENTS
    rule(0xCD, 0x01, 0x08), // MEM_TRANS_RETIRED
    rule(0xD0, 0xF3, LOW),  // MEM_UOPS_RETIRED
    rule(0xD1, 0x7F, LOW),  // MEM_LOAD_UOPS_RETIRED
    rule(0xD2, 0x0F, LOW),  // MEM_LOAD_UOPS_L3_HIT_RETIRED
    rule(0xD3, 0x35, LOW),  // MEM_LOAD_UOPS_L3_MISS_RETIRED
    rule(0xE6, 0x1F, ANY),  // BACLEARS
    rule(0xF0, 0xFF, ANY),  // L2_TRANS
    rule(0xF1, 0x07, ANY),  // L2_LINES_IN
    rule(0xF2, 0x05, ANY),  // L2_LINES_OUT
    rule(0xF4, 0x10, ANY),  // SQ_MISC
];

/// Unit masks that fewer counters count than the rest of their event select (the same lists). Whatever has bit 3 of A3H's is
/// for counter 2, as in Linux (`INTEL_UBIT_EVENT_CONSTRAINT` in `intel_bdw_event_constraints`).
const CONSTRAINED: [Constraint; 11] = [
    Constraint { encoding: 0x0148, counters: 0x04 },
    Constraint { encoding: 0x08A3, counters: 0x04 },
    Constraint { encoding: 0x09A3, counters: 0x04 },
    Constraint { encoding: 0x0AA3, counters: 0x04 },
    Constraint { encoding: 0x0BA3, counters: 0x04 },
    Constraint { encoding: 0x0CA3, counters: 0x04 },
    Constraint { encoding: 0x0DA3, counters: 0x04 },
    Constraint { encoding: 0x0EA3, counters: 0x04 },
    Constraint { encoding: 0x0FA3, counters: 0x04 },
    Constraint { encoding: 0x01C0, counters: 0x02 },
    Constraint { encoding: 0x019C, counters: LOW },
];

/// Events whose records name the instruction that caused them. Not here: events of micro-operations retired, of which one
/// instruction is several, so that the counter passes its overflow by more than one and records times period would not
/// agree with the count.
const PRECISE: [PreciseRule; 35] = [
    counted_as(0x01C0, 0x02, 0x00C0), // INST_RETIRED.PREC_DIST
    precise(0x01C4, LOW),             // BR_INST_RETIRED.CONDITIONAL
    precise(0x02C4, LOW),             // BR_INST_RETIRED.NEAR_CALL
    counted_as(0x04C4, LOW, 0x00C4),  // BR_INST_RETIRED.ALL_BRANCHES_PEBS
    precise(0x08C4, LOW),             // BR_INST_RETIRED.NEAR_RETURN
    precise(0x20C4, LOW),             // BR_INST_RETIRED.NEAR_TAKEN
    precise(0x01C5, LOW),             // BR_MISP_RETIRED.CONDITIONAL
    counted_as(0x04C5, LOW, 0x00C5),  // BR_MISP_RETIRED.ALL_BRANCHES_PEBS
    precise(0x08C5, LOW),             // BR_MISP_RETIRED.RET
    precise(0x20C5, LOW),             // BR_MISP_RETIRED.NEAR_TAKEN
    precise(0x04C8, LOW),             // HLE_RETIRED.ABORTED
    precise(0x04C9, LOW),             // RTM_RETIRED.ABORTED
    only_precise(0x01CD, 0x08),       // MEM_TRANS_RETIRED.LOAD_LATENCY
    precise(0x11D0, LOW),             // MEM_UOPS_RETIRED.STLB_MISS_LOADS
    precise(0x12D0, LOW),             // MEM_UOPS_RETIRED.STLB_MISS_STORES
    precise(0x21D0, LOW),             // MEM_UOPS_RETIRED.LOCK_LOADS
    precise(0x41D0, LOW),             // MEM_UOPS_RETIRED.SPLIT_LOADS
    precise(0x42D0, LOW),             // MEM_UOPS_RETIRED.SPLIT_STORES
    precise(0x81D0, LOW),             // MEM_UOPS_RETIRED.ALL_LOADS
    precise(0x82D0, LOW),             // MEM_UOPS_RETIRED.ALL_STORES
    precise(0x01D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L1_HIT
    precise(0x02D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L2_HIT
    precise(0x04D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L3_HIT
    precise(0x08D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L1_MISS
    precise(0x10D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L2_MISS
    precise(0x20D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L3_MISS
    precise(0x40D1, LOW),             // MEM_LOAD_UOPS_RETIRED.HIT_LFB
    precise(0x01D2, LOW),             // MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_MISS
    precise(0x02D2, LOW),             // MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_HIT
    precise(0x04D2, LOW),             // MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_HITM
    precise(0x08D2, LOW),             // MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_NONE
    precise(0x01D3, LOW),             // MEM_LOAD_UOPS_L3_MISS_RETIRED.LOCAL_DRAM
    precise(0x04D3, LOW),             // MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_DRAM
    precise(0x10D3, LOW),             // MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_HITM
    precise(0x20D3, LOW),             // MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_FWD
];

/// Events that need a register beside their encoding, and the bits that it takes (as Linux's `extra_reg` tables for this
/// core).
const EXTRA: [ExtraRule; 3] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0x3F_FFFF_8FFF },
    ExtraRule { encoding: 0x01BB, register: ExtraRegister::OffcoreRsp1, bits: 0x3F_FFFF_8FFF },
    ExtraRule { encoding: 0x01CD, register: ExtraRegister::LoadLatency, bits: LATENCY },
];
