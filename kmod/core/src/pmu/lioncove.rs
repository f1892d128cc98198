//! Lion Cove: PerfMon version 6, adaptive PEBS of format 6, or 5 on Arrow Lake-H. On hybrid processors the P-cores.

use super::super::abi::CoreType;
use super::super::allocate::CounterSet;
use super::super::lbr::ARCHITECTURAL_LBR;
use super::super::registers::PerfEvtSel;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, FixedRule,
    Generation, PreciseRule, Quirks, LATENCY, LUNAR_LAKE,
};

/// Every general counter that hpm uses: the processor has ten.
const ANY: u16 = 0xFF;
/// General counters 0 to 3.
const LOW: u16 = 0x0F;

/// The P-cores of Lunar Lake, Arrow Lake and Arrow Lake-H.
pub const LIONCOVE: Generation = Generation {
    name: "lioncove",
    models: &[],
    hybrid_models: LUNAR_LAKE,
    core_type: CoreType::Core,
    events: &EVENTS,
    constrained: &CONSTRAINED,
    fixed: &FIXED,
    precise: &PRECISE,
    extra: &EXTRA,
    quirks: Quirks::NONE,
    pebs_formats: &[5, 6],
    pebs_counters: 0xFF,
    lbr_format: ARCHITECTURAL_LBR,
    errata: &[],
};

/// Intel's event lists (perfmon, the P-cores of LNL and ARL), by event select; unit masks above FFH need UMASK2.
const EVENTS: [EventRule; 63] = [
    rule(0x02, 0x07, ANY),   // DEPENDENT_LOADS
    rule(0x03, 0xAF, ANY),   // LD_BLOCKS
    rule(0x11, 0x13E, ANY),  // ITLB_MISSES
    rule(0x12, 0x33E, ANY),  // DTLB_LOAD_MISSES
    rule(0x13, 0x33E, ANY),  // DTLB_STORE_MISSES
    rule(0x20, 0x1F, LOW),   // OFFCORE_REQUESTS_OUTSTANDING
    rule(0x21, 0x9F, ANY),   // OFFCORE_REQUESTS
    rule(0x24, 0xFF, ANY),   // L2_REQUEST, L2_RQSTS
    rule(0x25, 0x1F, ANY),   // L2_LINES_IN
    rule(0x26, 0x07, ANY),   // L2_LINES_OUT
    rule(0x2A, 0x01, ANY),   // OCR
    rule(0x2B, 0x01, ANY),   // OCR
    rule(0x2C, 0x10, ANY),   // SQ_MISC
    rule(0x2D, 0x01, ANY),   // XQ
    rule(0x2E, 0x4F, ANY),   // LONGEST_LAT_CACHE
    rule(0x3C, 0x01, ANY),   // CPU_CLK_UNHALTED
    rule(0x40, 0x0F, ANY),   // SW_PREFETCH_ACCESS
    rule(0x42, 0x02, ANY),   // LOCK_CYCLES
    rule(0x44, 0x401, ANY),  // MEM_STORE_RETIRED
    rule(0x46, 0x0F, ANY),   // MEMORY_STALLS
    rule(0x48, 0x01, 0x04),  // L1D_PENDING
    rule(0x49, 0x07, ANY),   // L1D_MISS
    rule(0x51, 0x05, ANY),   // L1D
    rule(0x60, 0x01, ANY),   // BACLEARS
    rule(0x61, 0x02, ANY),   // DSB2MITE_SWITCHES
    rule(0x75, 0x01, 0x04),  // INST_DECODED
    rule(0x76, 0x01, ANY),   // UOPS_DECODED
    rule(0x79, 0x2C, ANY),   // IDQ
    rule(0x80, 0x04, ANY),   // ICACHE_DATA
    rule(0x83, 0x1C, ANY),   // ICACHE_TAG
    rule(0x87, 0x03, ANY),   // DECODE
    rule(0x9C, 0x05, ANY),   // IDQ_BUBBLES
    rule(0xA2, 0x02, ANY),   // BE_STALLS
    rule(0xA3, 0x14, ANY),   // CYCLE_ACTIVITY
    rule(0xA4, 0x1F, ANY),   // TOPDOWN
    rule(0xA5, 0x07, ANY),   // RS
    rule(0xA6, 0xFF, ANY),   // EXE_ACTIVITY
    rule(0xA8, 0x01, ANY),   // LSD
    rule(0xAD, 0xD1, ANY),   // INT_MISC
    rule(0xAE, 0x01, ANY),   // UOPS_ISSUED
    rule(0xB0, 0x09, ANY),   // ARITH
    rule(0xB1, 0x11, 0x08),  // UOPS_EXECUTED
    rule(0xB2, 0xFF, ANY),   // UOPS_DISPATCHED
    rule(0xB3, 0x0F, ANY),   // FP_ARITH_DISPATCHED
    rule(0xC0, 0x3A, ANY),   // INST_RETIRED
    rule(0xC1, 0x1F, ANY),   // ASSISTS
    rule(0xC2, 0x07, ANY),   // UOPS_RETIRED
    rule(0xC3, 0x07, ANY),   // MACHINE_CLEARS
    rule(0xC4, 0x1FB, ANY),  // BR_INST_RETIRED
    rule(0xC5, 0x81FF, ANY), // BR_MISP_RETIRED
    rule(0xC6, 0x03, ANY),   // FRONTEND_RETIRED
    rule(0xC7, 0x3F, ANY),   // FP_ARITH_INST_RETIRED, FP_ARITH_OPS_RETIRED
    rule(0xCD, 0x03, 0xFC),  // MEM_TRANS_RETIRED
    rule(0xD0, 0xFF, LOW),   // MEM_INST_RETIRED
    rule(0xD1, 0x17F, LOW),  // MEM_LOAD_RETIRED
    rule(0xD2, 0x17, LOW),   // MEM_LOAD_L3_HIT_RETIRED
    rule(0xD3, 0x100, LOW),  // MEM_LOAD_L3_MISS_RETIRED
    rule(0xD4, 0x04, LOW),   // MEM_LOAD_MISC_RETIRED
    rule(0xE0, 0x20, ANY),   // MISC2_RETIRED
    rule(0xE4, 0x01, ANY),   // MISC_RETIRED
    rule(0xE5, 0x0F, ANY),   // MEM_UOP_RETIRED
    rule(0xE7, 0xFF, ANY),   // INT_VEC_RETIRED
    rule(0xEC, 0x70, ANY),   // CPU_CLK_UNHALTED
];

/// Unit masks that other counters count than the rest of their event select (the same lists).
const CONSTRAINED: [Constraint; 6] = [
    Constraint { encoding: 0x04A4, counters: 0x01 },
    Constraint { encoding: 0x08A4, counters: 0x01 },
    Constraint { encoding: 0x10A4, counters: 0x08 },
    Constraint { encoding: 0x10B1, counters: ANY },
    Constraint { encoding: 0x02CD, counters: 0x03 },
    Constraint { encoding: 0x87D0, counters: ANY },
];

/// What fixed counters count beside the first three.
const FIXED: [FixedRule; 2] = [
    FixedRule { encoding: 0x013C, counter: 2 }, // CPU_CLK_UNHALTED.REF_TSC_P
    FixedRule { encoding: 0x0400, counter: 3 }, // TOPDOWN.SLOTS
];

/// UMASK2 of 1.
const UMASK2: u64 = PerfEvtSel(0).with_unit_mask2(1).0;

/// Events whose records name the instruction that caused them: those that the lists mark as precise, without the iterations of
/// string instructions, of which one has many, so that records times period would not agree with the count, and
/// without the costs of mispredicted branches (BR_MISP_RETIRED.*_COST), whose records name the instruction that follows.
const PRECISE: [PreciseRule; 61] = [
    // INST_RETIRED.ANY on fixed counter 0.
    PreciseRule { counters: CounterSet::one_fixed(0), ..counted_as(0x0100, ANY, 0x00C0) },
    precise(0x00C0, ANY),          // INST_RETIRED.ANY_P
    precise(0x02C0, ANY),          // INST_RETIRED.NOP
    precise(0x10C0, ANY),          // INST_RETIRED.BR_FUSED
    precise(0x30C0, ANY),          // INST_RETIRED.MACRO_FUSED
    precise(0x00C4, ANY),          // BR_INST_RETIRED.ALL_BRANCHES
    precise(0x01C4, ANY),          // BR_INST_RETIRED.COND_TAKEN_BWD
    precise(UMASK2 | 0x01C4, ANY), // BR_INST_RETIRED.COND_TAKEN
    precise(0x02C4, ANY),          // BR_INST_RETIRED.NEAR_CALL
    precise(UMASK2 | 0x02C4, ANY), // BR_INST_RETIRED.COND_TAKEN_FWD
    precise(0x08C4, ANY),          // BR_INST_RETIRED.NEAR_RETURN
    precise(0x10C4, ANY),          // BR_INST_RETIRED.COND_NTAKEN
    precise(UMASK2 | 0x11C4, ANY), // BR_INST_RETIRED.COND
    precise(0x20C4, ANY),          // BR_INST_RETIRED.NEAR_TAKEN
    precise(0x40C4, ANY),          // BR_INST_RETIRED.FAR_BRANCH
    precise(0x80C4, ANY),          // BR_INST_RETIRED.INDIRECT
    precise(0x00C5, ANY),          // BR_MISP_RETIRED.ALL_BRANCHES
    precise(UMASK2 | 0x00C5, ANY), // BR_MISP_RETIRED.COND_TAKEN_FWD
    precise(0x01C5, ANY),          // BR_MISP_RETIRED.COND_TAKEN_BWD
    precise(UMASK2 | 0x01C5, ANY), // BR_MISP_RETIRED.COND_TAKEN
    precise(0x02C5, ANY),          // BR_MISP_RETIRED.INDIRECT_CALL
    precise(0x08C5, ANY),          // BR_MISP_RETIRED.RET
    precise(0x10C5, ANY),          // BR_MISP_RETIRED.COND_NTAKEN
    precise(UMASK2 | 0x11C5, ANY), // BR_MISP_RETIRED.COND
    precise(0x20C5, ANY),          // BR_MISP_RETIRED.NEAR_TAKEN
    precise(0x80C5, ANY),          // BR_MISP_RETIRED.INDIRECT
    precise(0x02C6, ANY),          // FRONTEND_RETIRED
    precise(0x03C6, ANY),          // FRONTEND_RETIRED
    only_precise(0x01CD, 0xFC),    // MEM_TRANS_RETIRED.LOAD_LATENCY
    only_precise(0x02CD, 0x03),    // MEM_TRANS_RETIRED.STORE_SAMPLE
    precise(0x09D0, LOW),          // MEM_INST_RETIRED.STLB_HIT_LOADS
    precise(0x0AD0, LOW),          // MEM_INST_RETIRED.STLB_HIT_STORES
    precise(0x0CD0, LOW),          // MEM_INST_RETIRED.STLB_HIT_SWPF
    precise(0x0FD0, LOW),          // MEM_INST_RETIRED.STLB_HIT_ANY
    precise(0x11D0, LOW),          // MEM_INST_RETIRED.STLB_MISS_LOADS
    precise(0x12D0, LOW),          // MEM_INST_RETIRED.STLB_MISS_STORES
    precise(0x14D0, LOW),          // MEM_INST_RETIRED.STLB_MISS_SWPF
    precise(0x17D0, LOW),          // MEM_INST_RETIRED.STLB_MISS_ANY
    precise(0x21D0, LOW),          // MEM_INST_RETIRED.LOCK_LOADS
    precise(0x41D0, LOW),          // MEM_INST_RETIRED.SPLIT_LOADS
    precise(0x42D0, LOW),          // MEM_INST_RETIRED.SPLIT_STORES
    precise(0x81D0, LOW),          // MEM_INST_RETIRED.ALL_LOADS
    precise(0x82D0, LOW),          // MEM_INST_RETIRED.ALL_STORES
    precise(0x84D0, LOW),          // MEM_INST_RETIRED.ALL_SWPF
    precise(0x87D0, ANY),          // MEM_INST_RETIRED.ANY
    precise(UMASK2 | 0x00D1, LOW), // MEM_LOAD_RETIRED.L1_HIT_L1
    precise(0x01D1, LOW),          // MEM_LOAD_RETIRED.L1_HIT_L0
    precise(UMASK2 | 0x01D1, LOW), // MEM_LOAD_RETIRED.L1_HIT
    precise(0x02D1, LOW),          // MEM_LOAD_RETIRED.L2_HIT
    precise(0x04D1, LOW),          // MEM_LOAD_RETIRED.L3_HIT
    precise(0x08D1, LOW),          // MEM_LOAD_RETIRED.L1_MISS
    precise(0x10D1, LOW),          // MEM_LOAD_RETIRED.L2_MISS
    precise(0x20D1, LOW),          // MEM_LOAD_RETIRED.L3_MISS
    precise(0x40D1, LOW),          // MEM_LOAD_RETIRED.FB_HIT
    precise(0x01D2, LOW),          // MEM_LOAD_L3_HIT_RETIRED.XSNP_MISS
    precise(0x02D2, LOW),          // MEM_LOAD_L3_HIT_RETIRED.XSNP_NO_FWD
    precise(0x04D2, LOW),          // MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM
    precise(0x10D2, LOW),          // MEM_LOAD_L3_HIT_RETIRED.XSNP_FWD
    precise(UMASK2 | 0x00D3, LOW), // MEM_LOAD_L3_MISS_RETIRED.MEMSIDE_CACHE
    precise(0x04D4, LOW),          // MEM_LOAD_MISC_RETIRED.UC
    precise(0x01E4, ANY),          // MISC_RETIRED.LBR_INSERTS
];

/// Events that need a register beside their encoding, and the bits that it takes (as Linux's `extra_reg` tables for this
/// core).
const EXTRA: [ExtraRule; 7] = [
    ExtraRule { encoding: 0x012A, register: ExtraRegister::OffcoreRsp0, bits: 0xFFF_FFFF_FFFF },
    ExtraRule { encoding: 0x012B, register: ExtraRegister::OffcoreRsp1, bits: 0xFFF_FFFF_FFFF },
    ExtraRule { encoding: 0x01CD, register: ExtraRegister::LoadLatency, bits: LATENCY },
    ExtraRule { encoding: 0x02C6, register: ExtraRegister::Frontend, bits: 0x9 },
    ExtraRule { encoding: 0x03C6, register: ExtraRegister::Frontend, bits: 0x7F_FF1F },
    ExtraRule { encoding: 0x40AD, register: ExtraRegister::Frontend, bits: 0xF },
    ExtraRule { encoding: 0x04C2, register: ExtraRegister::Frontend, bits: 0x8 },
];
