//! Golden Cove and Raptor Cove: PerfMon version 5, adaptive PEBS (SDM Vol. 3B 20.3.10, 20.9). On hybrid processors the P-cores.

use super::super::abi::CoreType;
use super::super::allocate::CounterSet;
use super::super::lbr::ARCHITECTURAL_LBR;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, FixedRule,
    Generation, PreciseRule, Quirks, ALDER_LAKE, LATENCY,
};

/// Every general counter that the processor has.
const ANY: u16 = 0xFF;
/// General counters 0 to 3.
const LOW: u16 = 0x0F;

/// Sapphire Rapids, Emerald Rapids; the P-cores of Alder Lake and Raptor Lake.
pub const GOLDENCOVE: Generation = Generation {
    name: "goldencove",
    models: &[0x8F, 0xCF],
    hybrid_models: ALDER_LAKE,
    core_type: CoreType::Core,
    events: &EVENTS,
    constrained: &CONSTRAINED,
    fixed: &FIXED,
    precise: &PRECISE,
    extra: &EXTRA,
    quirks: Quirks::NONE,
    pebs_formats: &[4, 5],
    pebs_counters: 0xFF,
    lbr_format: ARCHITECTURAL_LBR,
    errata: &[],
};

/// Intel's event lists (perfmon, SPR, EMR and the P-cores of ADL), by event select.
const EVENTS: [EventRule; 71] = [
    rule(0x03, 0x8E, LOW),  // LD_BLOCKS
    rule(0x11, 0x3E, LOW),  // ITLB_MISSES
    rule(0x12, 0x3E, LOW),  // DTLB_LOAD_MISSES
    rule(0x13, 0x3E, LOW),  // DTLB_STORE_MISSES
    rule(0x20, 0x1F, LOW),  // OFFCORE_REQUESTS_OUTSTANDING
    rule(0x21, 0x9F, LOW),  // OFFCORE_REQUESTS
    rule(0x23, 0x40, LOW),  // L2_TRANS
    rule(0x24, 0xFF, LOW),  // L2_REQUEST, L2_RQSTS
    rule(0x25, 0x1F, LOW),  // L2_LINES_IN
    rule(0x26, 0x07, LOW),  // L2_LINES_OUT
    rule(0x27, 0x7F, LOW),  // CORE_SNOOP_RESPONSE
    rule(0x28, 0x0E, LOW),  // CORE_POWER
    rule(0x2A, 0x01, LOW),  // OCR
    rule(0x2B, 0x01, LOW),  // OCR
    rule(0x2C, 0x10, LOW),  // SQ_MISC
    rule(0x2D, 0x01, LOW),  // XQ
    rule(0x2E, 0x4F, ANY),  // LONGEST_LAT_CACHE
    rule(0x3C, 0x0B, ANY),  // CPU_CLK_UNHALTED
    rule(0x40, 0x0F, LOW),  // SW_PREFETCH_ACCESS
    rule(0x42, 0x02, LOW),  // LOCK_CYCLES
    rule(0x43, 0xFD, LOW),  // MEM_LOAD_COMPLETED
    rule(0x44, 0x01, LOW),  // MEM_STORE_RETIRED
    rule(0x47, 0x0F, LOW),  // MEMORY_ACTIVITY
    rule(0x48, 0x07, LOW),  // L1D_PEND_MISS
    rule(0x4C, 0x01, LOW),  // LOAD_HIT_PREFETCH
    rule(0x51, 0x21, LOW),  // L1D
    rule(0x54, 0x83, LOW),  // TX_MEM
    rule(0x60, 0x01, LOW),  // BACLEARS
    rule(0x61, 0x02, LOW),  // DSB2MITE_SWITCHES
    rule(0x75, 0x01, LOW),  // INST_DECODED
    rule(0x76, 0x01, LOW),  // UOPS_DECODED
    rule(0x79, 0x2C, LOW),  // IDQ
    rule(0x80, 0x04, LOW),  // ICACHE_DATA
    rule(0x83, 0x1C, LOW),  // ICACHE_TAG
    rule(0x87, 0x03, LOW),  // DECODE
    rule(0x9C, 0x01, ANY),  // IDQ_BUBBLES, IDQ_UOPS_NOT_DELIVERED
    rule(0xA2, 0x0A, ANY),  // RESOURCE_STALLS
    rule(0xA3, 0x1F, ANY),  // CYCLE_ACTIVITY
    rule(0xA4, 0x1F, ANY),  // TOPDOWN
    rule(0xA5, 0x07, ANY),  // RS, RS_EMPTY
    rule(0xA6, 0xFF, ANY),  // EXE_ACTIVITY
    rule(0xA8, 0x01, ANY),  // LSD
    rule(0xAD, 0xF1, ANY),  // INT_MISC
    rule(0xAE, 0x01, ANY),  // UOPS_ISSUED
    rule(0xB0, 0x09, ANY),  // ARITH
    rule(0xB1, 0x13, ANY),  // UOPS_EXECUTED
    rule(0xB2, 0xF7, ANY),  // UOPS_DISPATCHED
    rule(0xB3, 0x07, ANY),  // FP_ARITH_DISPATCHED
    rule(0xB7, 0x02, ANY),  // EXE
    rule(0xC0, 0x1A, ANY),  // INST_RETIRED
    rule(0xC1, 0x1F, ANY),  // ASSISTS
    rule(0xC2, 0x07, ANY),  // UOPS_RETIRED
    rule(0xC3, 0x07, ANY),  // MACHINE_CLEARS
    rule(0xC4, 0xFB, ANY),  // BR_INST_RETIRED
    rule(0xC5, 0xBB, ANY),  // BR_MISP_RETIRED
    rule(0xC6, 0x01, ANY),  // FRONTEND_RETIRED
    rule(0xC7, 0xFF, ANY),  // FP_ARITH_INST_RETIRED
    rule(0xC9, 0xEF, ANY),  // RTM_RETIRED
    rule(0xCB, 0x07, ANY),  // HW_INTERRUPTS
    rule(0xCC, 0x20, ANY),  // MISC_RETIRED
    rule(0xCD, 0x03, 0xFE), // MEM_TRANS_RETIRED
    rule(0xCF, 0x1F, ANY),  // FP_ARITH_INST_RETIRED2
    rule(0xD0, 0xF3, LOW),  // MEM_INST_RETIRED
    rule(0xD1, 0xFF, LOW),  // MEM_LOAD_RETIRED
    rule(0xD2, 0x0F, LOW),  // MEM_LOAD_L3_HIT_RETIRED
    rule(0xD3, 0x1F, LOW),  // MEM_LOAD_L3_MISS_RETIRED
    rule(0xD4, 0x04, LOW),  // MEM_LOAD_MISC_RETIRED
    rule(0xE0, 0x20, ANY),  // MISC2_RETIRED
    rule(0xE5, 0x03, ANY),  // MEM_UOP_RETIRED
    rule(0xE7, 0xFF, ANY),  // INT_VEC_RETIRED
    rule(0xEC, 0x72, ANY),  // CPU_CLK_UNHALTED
];

/// Unit masks that fewer counters count than the rest of their event select (the same lists).
const CONSTRAINED: [Constraint; 9] = [
    Constraint { encoding: 0x01A3, counters: LOW },
    Constraint { encoding: 0x02A3, counters: LOW },
    Constraint { encoding: 0x05A3, counters: LOW },
    Constraint { encoding: 0x06A3, counters: LOW },
    Constraint { encoding: 0x08A3, counters: LOW },
    Constraint { encoding: 0x0CA3, counters: LOW },
    Constraint { encoding: 0x04A4, counters: 0x01 },
    Constraint { encoding: 0x08A4, counters: 0x01 },
    Constraint { encoding: 0x02CD, counters: 0x01 },
];

/// What fixed counters count beside the first three.
const FIXED: [FixedRule; 2] = [
    FixedRule { encoding: 0x013C, counter: 2 }, // CPU_CLK_UNHALTED.REF_TSC_P
    FixedRule { encoding: 0x0400, counter: 3 }, // TOPDOWN.SLOTS
];

/// Events whose records name the instruction that caused them. Not here: events of micro-operations retired, of which one
/// instruction is several, so that the counter passes its overflow by more than one and records times period would not
/// agree with the count.
const PRECISE: [PreciseRule; 52] = [
    // INST_RETIRED.ANY on fixed counter 0.
    PreciseRule { counters: CounterSet::one_fixed(0), ..counted_as(0x0100, ANY, 0x00C0) },
    precise(0x0144, LOW),       // MEM_STORE_RETIRED.L2_HIT
    precise(0x00C0, 0xFE),      // INST_RETIRED.ANY_P
    precise(0x02C0, 0xFE),      // INST_RETIRED.NOP
    precise(0x10C0, 0xFE),      // INST_RETIRED.MACRO_FUSED
    precise(0x00C4, ANY),       // BR_INST_RETIRED.ALL_BRANCHES
    precise(0x01C4, ANY),       // BR_INST_RETIRED.COND_TAKEN
    precise(0x02C4, ANY),       // BR_INST_RETIRED.NEAR_CALL
    precise(0x08C4, ANY),       // BR_INST_RETIRED.NEAR_RETURN
    precise(0x10C4, ANY),       // BR_INST_RETIRED.COND_NTAKEN
    precise(0x11C4, ANY),       // BR_INST_RETIRED.COND
    precise(0x20C4, ANY),       // BR_INST_RETIRED.NEAR_TAKEN
    precise(0x40C4, ANY),       // BR_INST_RETIRED.FAR_BRANCH
    precise(0x80C4, ANY),       // BR_INST_RETIRED.INDIRECT
    precise(0x00C5, ANY),       // BR_MISP_RETIRED.ALL_BRANCHES
    precise(0x01C5, ANY),       // BR_MISP_RETIRED.COND_TAKEN
    precise(0x02C5, ANY),       // BR_MISP_RETIRED.INDIRECT_CALL
    precise(0x08C5, ANY),       // BR_MISP_RETIRED.RET
    precise(0x10C5, ANY),       // BR_MISP_RETIRED.COND_NTAKEN
    precise(0x11C5, ANY),       // BR_MISP_RETIRED.COND
    precise(0x20C5, ANY),       // BR_MISP_RETIRED.NEAR_TAKEN
    precise(0x80C5, ANY),       // BR_MISP_RETIRED.INDIRECT
    precise(0x01C6, ANY),       // FRONTEND_RETIRED
    precise(0x04C9, ANY),       // RTM_RETIRED.ABORTED
    only_precise(0x01CD, 0xFE), // MEM_TRANS_RETIRED.LOAD_LATENCY
    only_precise(0x02CD, 0x01), // MEM_TRANS_RETIRED.STORE_SAMPLE
    precise(0x11D0, LOW),       // MEM_INST_RETIRED.STLB_MISS_LOADS
    precise(0x12D0, LOW),       // MEM_INST_RETIRED.STLB_MISS_STORES
    precise(0x21D0, LOW),       // MEM_INST_RETIRED.LOCK_LOADS
    precise(0x41D0, LOW),       // MEM_INST_RETIRED.SPLIT_LOADS
    precise(0x42D0, LOW),       // MEM_INST_RETIRED.SPLIT_STORES
    precise(0x81D0, LOW),       // MEM_INST_RETIRED.ALL_LOADS
    precise(0x82D0, LOW),       // MEM_INST_RETIRED.ALL_STORES
    precise(0x83D0, LOW),       // MEM_INST_RETIRED.ANY
    precise(0x01D1, LOW),       // MEM_LOAD_RETIRED.L1_HIT
    precise(0x02D1, LOW),       // MEM_LOAD_RETIRED.L2_HIT
    precise(0x04D1, LOW),       // MEM_LOAD_RETIRED.L3_HIT
    precise(0x08D1, LOW),       // MEM_LOAD_RETIRED.L1_MISS
    precise(0x10D1, LOW),       // MEM_LOAD_RETIRED.L2_MISS
    precise(0x20D1, LOW),       // MEM_LOAD_RETIRED.L3_MISS
    precise(0x40D1, LOW),       // MEM_LOAD_RETIRED.FB_HIT
    precise(0x80D1, LOW),       // MEM_LOAD_RETIRED.LOCAL_PMM
    precise(0x01D2, LOW),       // MEM_LOAD_L3_HIT_RETIRED.XSNP_MISS
    precise(0x02D2, LOW),       // MEM_LOAD_L3_HIT_RETIRED.XSNP_NO_FWD
    precise(0x04D2, LOW),       // MEM_LOAD_L3_HIT_RETIRED.XSNP_FWD
    precise(0x08D2, LOW),       // MEM_LOAD_L3_HIT_RETIRED.XSNP_NONE
    precise(0x01D3, LOW),       // MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM
    precise(0x02D3, LOW),       // MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM
    precise(0x04D3, LOW),       // MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM
    precise(0x08D3, LOW),       // MEM_LOAD_L3_MISS_RETIRED.REMOTE_FWD
    precise(0x10D3, LOW),       // MEM_LOAD_L3_MISS_RETIRED.REMOTE_PMM
    precise(0x04D4, LOW),       // MEM_LOAD_MISC_RETIRED.UC
];

/// Events that need a register beside their encoding, and the bits that it takes (as Linux's `extra_reg` tables for this
/// core).
const EXTRA: [ExtraRule; 6] = [
    ExtraRule { encoding: 0x012A, register: ExtraRegister::OffcoreRsp0, bits: 0x3F_FFFF_FFFF },
    ExtraRule { encoding: 0x012B, register: ExtraRegister::OffcoreRsp1, bits: 0x3F_FFFF_FFFF },
    ExtraRule { encoding: 0x01CD, register: ExtraRegister::LoadLatency, bits: LATENCY },
    ExtraRule { encoding: 0x01C6, register: ExtraRegister::Frontend, bits: 0x7F_FF1F },
    ExtraRule { encoding: 0x40AD, register: ExtraRegister::Frontend, bits: 0x7 },
    ExtraRule { encoding: 0x04C2, register: ExtraRegister::Frontend, bits: 0x8 },
];
