//! Skymont: PerfMon version 6, adaptive PEBS of format 6, or 5 on Arrow Lake-H. On hybrid processors the E-cores.

use super::super::abi::CoreType;
use super::super::allocate::CounterSet;
use super::super::lbr::ARCHITECTURAL_LBR;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, FixedRule,
    Generation, PreciseRule, Quirks, LATENCY, LUNAR_LAKE,
};

/// Every general counter that the processor has.
const ANY: u16 = 0xFF;

/// The E-cores of Lunar Lake, Arrow Lake and Arrow Lake-H.
pub const SKYMONT: Generation = Generation {
    name: "skymont",
    models: &[],
    hybrid_models: LUNAR_LAKE,
    core_type: CoreType::Atom,
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

/// Intel's event lists (perfmon, the E-cores of LNL and ARL), by event select. Where loads were served that missed L2 or L3 Lunar Lake
/// counts by D3H, Arrow Lake by D1H and D4H.
const EVENTS: [EventRule; 59] = [
    rule(0x03, 0x1F, ANY), // LD_BLOCKS
    rule(0x04, 0x07, ANY), // MEM_SCHEDULER_BLOCK
    rule(0x05, 0xFF, ANY), // LD_HEAD
    rule(0x08, 0xBF, ANY), // DTLB_LOAD_MISSES
    rule(0x0E, 0x00, ANY), // UOPS_ISSUED
    rule(0x13, 0x06, ANY), // MISALIGN_MEM_REF
    rule(0x24, 0x07, ANY), // L2_REQUEST
    rule(0x25, 0x1F, ANY), // L2_LINES_IN
    rule(0x26, 0x07, ANY), // L2_LINES_OUT
    rule(0x28, 0x0F, ANY), // L2_PREFETCHES_THROTTLED
    rule(0x29, 0x1F, ANY), // LLC_PREFETCHES_THROTTLED
    rule(0x2E, 0x4F, ANY), // LONGEST_LAT_CACHE
    rule(0x30, 0x00, ANY), // L2_REJECT_XQ
    rule(0x31, 0x00, ANY), // CORE_REJECT_L2Q
    rule(0x32, 0x1F, ANY), // DYNAMIC_PREFETCH_THROTTLER
    rule(0x34, 0xFF, ANY), // MEM_BOUND_STALLS_LOAD
    rule(0x35, 0x7F, ANY), // MEM_BOUND_STALLS_IFETCH
    rule(0x3C, 0x01, ANY), // CPU_CLK_UNHALTED
    rule(0x49, 0xBF, ANY), // DTLB_STORE_MISSES
    rule(0x4C, 0x02, ANY), // LOAD_HIT_PREFETCH
    rule(0x51, 0x01, ANY), // DL1
    rule(0x63, 0x0F, ANY), // BUS_LOCK
    rule(0x71, 0xFF, ANY), // TOPDOWN_FE_BOUND
    rule(0x72, 0x00, ANY), // TOPDOWN_RETIRING
    rule(0x73, 0x07, ANY), // TOPDOWN_BAD_SPECULATION
    rule(0x74, 0x7B, ANY), // TOPDOWN_BE_BOUND
    rule(0x75, 0x0F, ANY), // SERIALIZATION
    rule(0x80, 0x03, ANY), // ICACHE
    rule(0x81, 0x04, ANY), // ITLB
    rule(0x85, 0xBF, ANY), // ITLB_MISSES
    rule(0x9C, 0x01, ANY), // TOPDOWN_FE_BOUND
    rule(0xA4, 0x02, ANY), // TOPDOWN_BE_BOUND
    rule(0xB2, 0x1F, ANY), // FP_VINT_UOPS_EXECUTED
    rule(0xB3, 0xFF, ANY), // INT_UOPS_EXECUTED
    rule(0xB7, 0x03, ANY), // OCR
    rule(0xBC, 0x03, ANY), // PAGE_WALKER_LOADS
    rule(0xBD, 0x20, ANY), // TLB_FLUSHES
    rule(0xC0, 0x00, ANY), // INST_RETIRED
    rule(0xC2, 0x3F, ANY), // TOPDOWN_RETIRING, UOPS_RETIRED
    rule(0xC3, 0xFF, ANY), // MACHINE_CLEARS
    rule(0xC4, 0xFF, ANY), // BR_INST_RETIRED
    rule(0xC5, 0xFF, ANY), // BR_MISP_RETIRED
    rule(0xC6, 0xFF, ANY), // FRONTEND_RETIRED
    rule(0xC7, 0x3F, ANY), // FP_INST_RETIRED
    rule(0xC8, 0x03, ANY), // FP_FLOPS_RETIRED
    rule(0xC9, 0x3F, ANY), // FRONTEND_RETIRED_SOURCE
    rule(0xCD, 0x0F, ANY), // ARITH
    rule(0xD0, 0xFF, ANY), // MEM_UOPS_RETIRED
    rule(0xD1, 0xFF, ANY), // MEM_LOAD_UOPS_RETIRED
    rule(0xD3, 0x41, ANY), // MEM_LOAD_UOPS_L3_MISS_RETIRED, MEM_LOAD_UOPS_LLC_MISS_RETIRED
    rule(0xD4, 0x0A, ANY), // MEM_LOAD_UOPS_MISC_RETIRED
    rule(0xE0, 0xFF, ANY), // MISC_RETIRED1
    rule(0xE1, 0x1B, ANY), // MISC_RETIRED2
    rule(0xE4, 0x01, ANY), // MISC_RETIRED
    rule(0xE6, 0x1F, ANY), // BACLEARS
    rule(0xE7, 0x07, ANY), // MS_DECODED
    rule(0xE8, 0x00, ANY), // BTCLEAR
    rule(0xE9, 0x01, ANY), // DECODE_RESTRICTION
    rule(0xF4, 0x07, ANY), // XQ_PROMOTION
];

/// Unit masks that other counters count than the rest of their event select (the same lists).
const CONSTRAINED: [Constraint; 1] = [Constraint { encoding: 0x05D0, counters: 0x03 }];

/// What fixed counters count beside the first three.
const FIXED: [FixedRule; 7] = [
    FixedRule { encoding: 0x013C, counter: 2 }, // CPU_CLK_UNHALTED.REF_TSC_P
    FixedRule { encoding: 0x0500, counter: 4 }, // TOPDOWN_BAD_SPECULATION.ALL
    FixedRule { encoding: 0x0073, counter: 4 }, // TOPDOWN_BAD_SPECULATION.ALL_P
    FixedRule { encoding: 0x0600, counter: 5 }, // TOPDOWN_FE_BOUND.ALL
    FixedRule { encoding: 0x019C, counter: 5 }, // TOPDOWN_FE_BOUND.ALL_P
    FixedRule { encoding: 0x0700, counter: 6 }, // TOPDOWN_RETIRING.ALL
    FixedRule { encoding: 0x02C2, counter: 6 }, // TOPDOWN_RETIRING.ALL_P
];

/// Events whose records name the instruction that caused them: those that the lists mark as precise. Not here: events of
/// micro-operations retired and of floating-point operations, of which one instruction is several, so that the counter passes its
/// overflow by more than one and records times period would not agree with the count; and what no instruction does, such as faults.
const PRECISE: [PreciseRule; 83] = [
    // INST_RETIRED.ANY on fixed counter 0.
    PreciseRule { counters: CounterSet::one_fixed(0), ..counted_as(0x0100, ANY, 0x00C0) },
    precise(0x0103, ANY),            // LD_BLOCKS.DATA_UNKNOWN
    precise(0x0203, ANY),            // LD_BLOCKS.STORE_FORWARD
    precise(0x0403, ANY),            // LD_BLOCKS.ADDRESS_ALIAS
    precise(0x0803, ANY),            // LD_BLOCKS.DTLB_MISS
    precise(0x1F03, ANY),            // LD_BLOCKS.ALL
    precise(0x0213, ANY),            // MISALIGN_MEM_REF.LOAD_PAGE_SPLIT
    precise(0x0413, ANY),            // MISALIGN_MEM_REF.STORE_PAGE_SPLIT
    precise(0x00C0, ANY),            // INST_RETIRED.ANY_P
    precise(0x00C4, ANY),            // BR_INST_RETIRED.ALL_BRANCHES
    precise(0x7EC4, ANY),            // BR_INST_RETIRED.COND
    precise(0x7FC4, ANY),            // BR_INST_RETIRED.COND_NTAKEN
    precise(0x80C4, ANY),            // BR_INST_RETIRED.TAKEN
    precise(0xBFC4, ANY),            // BR_INST_RETIRED.FAR_BRANCH
    precise(0xC0C4, ANY),            // BR_INST_RETIRED.NEAR_TAKEN
    precise(0xDFC4, ANY),            // BR_INST_RETIRED.REL_JMP
    precise(0xEBC4, ANY),            // BR_INST_RETIRED.INDIRECT
    precise(0xEFC4, ANY),            // BR_INST_RETIRED.INDIRECT_JMP
    precise(0xF7C4, ANY),            // BR_INST_RETIRED.NEAR_RETURN
    precise(0xF9C4, ANY),            // BR_INST_RETIRED.NEAR_CALL
    precise(0xFBC4, ANY),            // BR_INST_RETIRED.INDIRECT_CALL
    precise(0xFDC4, ANY),            // BR_INST_RETIRED.REL_CALL
    precise(0xFEC4, ANY),            // BR_INST_RETIRED.COND_TAKEN
    precise(0x00C5, ANY),            // BR_MISP_RETIRED.ALL_BRANCHES
    precise(0x7EC5, ANY),            // BR_MISP_RETIRED.COND
    precise(0x7FC5, ANY),            // BR_MISP_RETIRED.COND_NTAKEN
    precise(0x80C5, ANY),            // BR_MISP_RETIRED.NEAR_TAKEN
    precise(0xEBC5, ANY),            // BR_MISP_RETIRED.INDIRECT
    precise(0xEFC5, ANY),            // BR_MISP_RETIRED.INDIRECT_JMP
    precise(0xF7C5, ANY),            // BR_MISP_RETIRED.RETURN
    precise(0xFBC5, ANY),            // BR_MISP_RETIRED.INDIRECT_CALL
    precise(0xFEC5, ANY),            // BR_MISP_RETIRED.COND_TAKEN
    precise(0x00C6, ANY),            // FRONTEND_RETIRED.ALL
    precise(0x01C6, ANY),            // FRONTEND_RETIRED.CISC
    precise(0x02C6, ANY),            // FRONTEND_RETIRED.BRANCH_DETECT
    precise(0x04C6, ANY),            // FRONTEND_RETIRED.PREDECODE
    precise(0x08C6, ANY),            // FRONTEND_RETIRED.DECODE
    precise(0x10C6, ANY),            // FRONTEND_RETIRED.ITLB_MISS
    precise(0x20C6, ANY),            // FRONTEND_RETIRED.ICACHE
    precise(0x40C6, ANY),            // FRONTEND_RETIRED.BRANCH_RESTEER
    precise(0x80C6, ANY),            // FRONTEND_RETIRED.OTHER
    precise(0x01C7, ANY),            // FP_INST_RETIRED.32B_SP
    precise(0x02C7, ANY),            // FP_INST_RETIRED.64B_DP
    precise(0x04C7, ANY),            // FP_INST_RETIRED.128B_SP
    precise(0x08C7, ANY),            // FP_INST_RETIRED.128B_DP
    precise(0x10C7, ANY),            // FP_INST_RETIRED.256B_SP
    precise(0x20C7, ANY),            // FP_INST_RETIRED.256B_DP
    precise(0x3FC7, ANY),            // FP_INST_RETIRED.ALL
    precise(0x01C9, ANY),            // FRONTEND_RETIRED_SOURCE.ICACHE_L2_HIT
    precise(0x06C9, ANY),            // FRONTEND_RETIRED_SOURCE.ICACHE_L3_HIT
    precise(0x0EC9, ANY),            // FRONTEND_RETIRED_SOURCE.ICACHE_L2_MISS
    precise(0x10C9, ANY),            // FRONTEND_RETIRED_SOURCE.ITLB_STLB_HIT
    precise(0x20C9, ANY),            // FRONTEND_RETIRED_SOURCE.ITLB_STLB_MISS
    only_precise(0x05D0, 0x03),      // MEM_UOPS_RETIRED.LOAD_LATENCY
    counted_as(0x06D0, ANY, 0x82D0), // MEM_UOPS_RETIRED.STORE_LATENCY
    precise(0x09D0, ANY),            // MEM_UOPS_RETIRED.MRN_LOADS
    precise(0x0AD0, ANY),            // MEM_UOPS_RETIRED.MRN_STORES
    precise(0x11D0, ANY),            // MEM_UOPS_RETIRED.STLB_MISS_LOADS
    precise(0x12D0, ANY),            // MEM_UOPS_RETIRED.STLB_MISS_STORES
    precise(0x13D0, ANY),            // MEM_UOPS_RETIRED.STLB_MISS
    precise(0x21D0, ANY),            // MEM_UOPS_RETIRED.LOCK_LOADS
    precise(0x41D0, ANY),            // MEM_UOPS_RETIRED.SPLIT_LOADS
    precise(0x42D0, ANY),            // MEM_UOPS_RETIRED.SPLIT_STORES
    precise(0x43D0, ANY),            // MEM_UOPS_RETIRED.SPLIT
    precise(0x81D0, ANY),            // MEM_UOPS_RETIRED.ALL_LOADS
    precise(0x82D0, ANY),            // MEM_UOPS_RETIRED.ALL_STORES
    precise(0x83D0, ANY),            // MEM_UOPS_RETIRED.ALL
    precise(0x01D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L1_HIT
    precise(0x02D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L2_HIT
    precise(0x04D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L3_HIT_NO_SNOOP
    precise(0x1CD1, ANY),            // MEM_LOAD_UOPS_RETIRED.L3_HIT
    precise(0x20D1, ANY),            // MEM_LOAD_UOPS_RETIRED.WCB_HIT
    precise(0x40D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L1_MISS
    precise(0x80D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L2_MISS
    precise(0x01D3, ANY),            // MEM_LOAD_UOPS_LLC_MISS_RETIRED.LOCAL_DRAM
    precise(0x40D3, ANY),            // MEM_LOAD_UOPS_LLC_MISS_RETIRED.MEMSIDE_CACHE
    precise(0x02D4, ANY),            // MEM_LOAD_UOPS_MISC_RETIRED.LOCAL_DRAM
    precise(0x08D4, ANY),            // MEM_LOAD_UOPS_MISC_RETIRED.L3_HIT_SNOOP_HITM
    precise(0x00E0, ANY),            // MISC_RETIRED1.WRMSR
    precise(0x01E0, ANY),            // MISC_RETIRED1.RDPMC_RDTSC_P
    precise(0x02E0, ANY),            // MISC_RETIRED1.LFENCE
    precise(0xFFE0, ANY),            // MISC_RETIRED1.CL_INST
    precise(0x01E4, ANY),            // MISC_RETIRED.LBR_INSERTS
];

/// Events that need a register beside their encoding, and the bits that it takes: as Crestmont's, also in what Linux has beyond
/// them.
const EXTRA: [ExtraRule; 3] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0x000F_F3FF_FFFF_FFFF },
    ExtraRule { encoding: 0x02B7, register: ExtraRegister::OffcoreRsp1, bits: 0x000F_F3FF_FFFF_FFFF },
    ExtraRule { encoding: 0x05D0, register: ExtraRegister::LoadLatency, bits: LATENCY },
];
