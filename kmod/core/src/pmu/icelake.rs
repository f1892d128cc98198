//! Ice Lake and its siblings: PerfMon version 5, adaptive PEBS (format 4) on every counter (SDM Vol. 3B 20.3.9, 20.9).

use super::super::abi::CoreType;
use super::super::allocate::CounterSet;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, FixedRule,
    Generation, PreciseRule, Quirks, LATENCY,
};

/// Every general counter that the processor has.
const ANY: u16 = 0xFF;
/// General counters 0 to 3.
const LOW: u16 = 0x0F;

/// Ice Lake servers and clients, Tiger Lake, Rocket Lake.
pub const ICELAKE: Generation = Generation {
    name: "icelake",
    models: &[0x6A, 0x6C, 0x7D, 0x7E, 0x8C, 0x8D, 0xA7],
    hybrid_models: &[],
    core_type: CoreType::Any,
    events: &EVENTS,
    constrained: &CONSTRAINED,
    fixed: &FIXED,
    precise: &PRECISE,
    extra: &EXTRA,
    quirks: Quirks::NONE,
    pebs_formats: &[4],
    pebs_counters: 0xFF,
    lbr_format: 5,
    errata: &[],
};

/// Intel's event lists (perfmon, ICL, ICX, TGL and RKL), by event select.
const EVENTS: [EventRule; 64] = [
    rule(0x03, 0x0A, LOW), // LD_BLOCKS
    rule(0x07, 0x01, LOW), // LD_BLOCKS_PARTIAL
    rule(0x08, 0x3E, LOW), // DTLB_LOAD_MISSES
    rule(0x0D, 0x93, ANY), // INT_MISC
    rule(0x0E, 0x03, ANY), // UOPS_ISSUED
    rule(0x14, 0x09, ANY), // ARITH
    rule(0x24, 0xFF, LOW), // L2_RQSTS
    rule(0x28, 0x3F, LOW), // CORE_POWER
    rule(0x2E, 0x4F, ANY), // LONGEST_LAT_CACHE
    rule(0x32, 0x0F, LOW), // SW_PREFETCH_ACCESS
    rule(0x3C, 0x0B, ANY), // CPU_CLK_UNHALTED
    rule(0x48, 0x07, LOW), // L1D_PEND_MISS
    rule(0x49, 0x3E, LOW), // DTLB_STORE_MISSES
    rule(0x4C, 0x01, LOW), // LOAD_HIT_PREFETCH
    rule(0x51, 0x01, LOW), // L1D
    rule(0x54, 0xFF, LOW), // TX_MEM
    rule(0x55, 0x01, LOW), // INST_DECODED
    rule(0x56, 0x01, LOW), // UOPS_DECODED
    rule(0x5D, 0x06, ANY), // TX_EXEC
    rule(0x5E, 0x01, ANY), // RS_EVENTS
    rule(0x60, 0x1F, LOW), // OFFCORE_REQUESTS_OUTSTANDING
    rule(0x63, 0x02, LOW), // LOCK_CYCLES
    rule(0x79, 0x3C, LOW), // IDQ
    rule(0x80, 0x04, LOW), // ICACHE_16B, ICACHE_DATA
    rule(0x83, 0x07, LOW), // ICACHE_64B, ICACHE_TAG
    rule(0x85, 0x3E, LOW), // ITLB_MISSES
    rule(0x87, 0x01, LOW), // DECODE, ILD_STALL
    rule(0x9C, 0x01, ANY), // IDQ_UOPS_NOT_DELIVERED
    rule(0xA1, 0xF7, ANY), // UOPS_DISPATCHED
    rule(0xA2, 0x0A, ANY), // RESOURCE_STALLS
    rule(0xA3, 0x1F, LOW), // CYCLE_ACTIVITY
    rule(0xA4, 0x03, ANY), // TOPDOWN
    rule(0xA6, 0xFF, ANY), // EXE_ACTIVITY
    rule(0xA8, 0x01, LOW), // LSD
    rule(0xAB, 0x02, LOW), // DSB2MITE_SWITCHES
    rule(0xB0, 0x9F, LOW), // OFFCORE_REQUESTS
    rule(0xB1, 0x13, ANY), // UOPS_EXECUTED
    rule(0xB7, 0x01, LOW), // OCR
    rule(0xBB, 0x01, LOW), // OCR
    rule(0xBD, 0x21, LOW), // TLB_FLUSH
    rule(0xC0, 0x03, ANY), // INST_RETIRED
    rule(0xC1, 0x07, ANY), // ASSISTS
    rule(0xC2, 0x02, ANY), // UOPS_RETIRED
    rule(0xC3, 0x07, ANY), // MACHINE_CLEARS
    rule(0xC4, 0xFB, ANY), // BR_INST_RETIRED
    rule(0xC5, 0xBB, ANY), // BR_MISP_RETIRED
    rule(0xC6, 0x01, ANY), // FRONTEND_RETIRED
    rule(0xC7, 0xFF, ANY), // FP_ARITH_INST_RETIRED
    rule(0xC8, 0xAF, ANY), // HLE_RETIRED
    rule(0xC9, 0xEF, ANY), // RTM_RETIRED
    rule(0xCC, 0x60, ANY), // MISC_RETIRED
    rule(0xCD, 0x01, ANY), // MEM_TRANS_RETIRED
    rule(0xD0, 0xF3, LOW), // MEM_INST_RETIRED
    rule(0xD1, 0xFF, LOW), // MEM_LOAD_RETIRED
    rule(0xD2, 0x0F, LOW), // MEM_LOAD_L3_HIT_RETIRED
    rule(0xD3, 0x1F, LOW), // MEM_LOAD_L3_MISS_RETIRED
    rule(0xD4, 0x04, LOW), // MEM_LOAD_MISC_RETIRED
    rule(0xE6, 0x01, LOW), // BACLEARS
    rule(0xEC, 0x02, ANY), // CPU_CLK_UNHALTED
    rule(0xEF, 0x7F, LOW), // CORE_SNOOP_RESPONSE
    rule(0xF0, 0x40, LOW), // L2_TRANS
    rule(0xF1, 0x1F, LOW), // L2_LINES_IN
    rule(0xF2, 0x07, LOW), // L2_LINES_OUT
    rule(0xF4, 0x14, LOW), // SQ_MISC
];

/// Unit masks that more counters count than the rest of their event select (the same lists; Linux: `intel_icl_event_constraints`).
const CONSTRAINED: [Constraint; 3] = [
    Constraint { encoding: 0x04A3, counters: ANY },
    Constraint { encoding: 0x10A3, counters: ANY },
    Constraint { encoding: 0x14A3, counters: ANY },
];

/// What fixed counters count beside the first three.
const FIXED: [FixedRule; 1] = [
    FixedRule { encoding: 0x0400, counter: 3 }, // TOPDOWN.SLOTS
];

/// Events whose records name the instruction that caused them. Not here: events of micro-operations retired, of which one
/// instruction is several, so that the counter passes its overflow by more than one and records times period would not
/// agree with the count.
const PRECISE: [PreciseRule; 50] = [
    // INST_RETIRED.ANY on fixed counter 0.
    PreciseRule { counters: CounterSet::one_fixed(0), ..counted_as(0x0100, ANY, 0x00C0) },
    precise(0x00C0, ANY),      // INST_RETIRED.ANY_P
    precise(0x02C0, ANY),      // INST_RETIRED.NOP
    precise(0x00C4, ANY),      // BR_INST_RETIRED.ALL_BRANCHES
    precise(0x01C4, ANY),      // BR_INST_RETIRED.COND_TAKEN
    precise(0x02C4, ANY),      // BR_INST_RETIRED.NEAR_CALL
    precise(0x08C4, ANY),      // BR_INST_RETIRED.NEAR_RETURN
    precise(0x10C4, ANY),      // BR_INST_RETIRED.COND_NTAKEN
    precise(0x11C4, ANY),      // BR_INST_RETIRED.COND
    precise(0x20C4, ANY),      // BR_INST_RETIRED.NEAR_TAKEN
    precise(0x40C4, ANY),      // BR_INST_RETIRED.FAR_BRANCH
    precise(0x80C4, ANY),      // BR_INST_RETIRED.INDIRECT
    precise(0x00C5, ANY),      // BR_MISP_RETIRED.ALL_BRANCHES
    precise(0x01C5, ANY),      // BR_MISP_RETIRED.COND_TAKEN
    precise(0x02C5, ANY),      // BR_MISP_RETIRED.INDIRECT_CALL
    precise(0x08C5, ANY),      // BR_MISP_RETIRED.RET
    precise(0x10C5, ANY),      // BR_MISP_RETIRED.COND_NTAKEN
    precise(0x11C5, ANY),      // BR_MISP_RETIRED.COND
    precise(0x20C5, ANY),      // BR_MISP_RETIRED.NEAR_TAKEN
    precise(0x80C5, ANY),      // BR_MISP_RETIRED.INDIRECT
    precise(0x01C6, ANY),      // FRONTEND_RETIRED
    precise(0x04C8, ANY),      // HLE_RETIRED.ABORTED
    precise(0x04C9, ANY),      // RTM_RETIRED.ABORTED
    only_precise(0x01CD, ANY), // MEM_TRANS_RETIRED.LOAD_LATENCY
    precise(0x11D0, LOW),      // MEM_INST_RETIRED.STLB_MISS_LOADS
    precise(0x12D0, LOW),      // MEM_INST_RETIRED.STLB_MISS_STORES
    precise(0x21D0, LOW),      // MEM_INST_RETIRED.LOCK_LOADS
    precise(0x41D0, LOW),      // MEM_INST_RETIRED.SPLIT_LOADS
    precise(0x42D0, LOW),      // MEM_INST_RETIRED.SPLIT_STORES
    precise(0x81D0, LOW),      // MEM_INST_RETIRED.ALL_LOADS
    precise(0x82D0, LOW),      // MEM_INST_RETIRED.ALL_STORES
    precise(0x83D0, LOW),      // MEM_INST_RETIRED.ANY
    precise(0x01D1, LOW),      // MEM_LOAD_RETIRED.L1_HIT
    precise(0x02D1, LOW),      // MEM_LOAD_RETIRED.L2_HIT
    precise(0x04D1, LOW),      // MEM_LOAD_RETIRED.L3_HIT
    precise(0x08D1, LOW),      // MEM_LOAD_RETIRED.L1_MISS
    precise(0x10D1, LOW),      // MEM_LOAD_RETIRED.L2_MISS
    precise(0x20D1, LOW),      // MEM_LOAD_RETIRED.L3_MISS
    precise(0x40D1, LOW),      // MEM_LOAD_RETIRED.FB_HIT
    precise(0x80D1, LOW),      // MEM_LOAD_RETIRED.LOCAL_PMM
    precise(0x01D2, LOW),      // MEM_LOAD_L3_HIT_RETIRED.XSNP_MISS
    precise(0x02D2, LOW),      // MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT
    precise(0x04D2, LOW),      // MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM
    precise(0x08D2, LOW),      // MEM_LOAD_L3_HIT_RETIRED.XSNP_NONE
    precise(0x01D3, LOW),      // MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM
    precise(0x02D3, LOW),      // MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM
    precise(0x04D3, LOW),      // MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM
    precise(0x08D3, LOW),      // MEM_LOAD_L3_MISS_RETIRED.REMOTE_FWD
    precise(0x10D3, LOW),      // MEM_LOAD_L3_MISS_RETIRED.REMOTE_PMM
    precise(0x04D4, LOW),      // MEM_LOAD_MISC_RETIRED.UC
];

/// Events that need a register beside their encoding, and the bits that it takes (as Linux's `extra_reg` tables for this
/// core).
const EXTRA: [ExtraRule; 4] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0x3F_FFFF_BFFF },
    ExtraRule { encoding: 0x01BB, register: ExtraRegister::OffcoreRsp1, bits: 0x3F_FFFF_BFFF },
    ExtraRule { encoding: 0x01CD, register: ExtraRegister::LoadLatency, bits: LATENCY },
    ExtraRule { encoding: 0x01C6, register: ExtraRegister::Frontend, bits: 0x7F_FF17 },
];
