//! Gracemont: PerfMon version 5, adaptive PEBS (SDM Vol. 3B 20.5, 20.9). On hybrid processors the E-cores.

use super::super::abi::CoreType;
use super::super::allocate::CounterSet;
use super::super::lbr::ARCHITECTURAL_LBR;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, FixedRule,
    Generation, PreciseRule, Quirks, ALDER_LAKE, LATENCY,
};

/// Every general counter that the processor has.
const ANY: u16 = 0x3F;

/// Alder Lake N; the E-cores of Alder Lake and Raptor Lake.
pub const GRACEMONT: Generation = Generation {
    name: "gracemont",
    models: &[0xBE],
    hybrid_models: ALDER_LAKE,
    core_type: CoreType::Atom,
    events: &EVENTS,
    constrained: &CONSTRAINED,
    fixed: &FIXED,
    precise: &PRECISE,
    extra: &EXTRA,
    quirks: Quirks::NONE,
    pebs_formats: &[4, 5],
    pebs_counters: 0x3F,
    lbr_format: ARCHITECTURAL_LBR,
    errata: &[],
};

/// Intel's event lists (perfmon, the E-cores of ADL, and ADL-N), by event select.
const EVENTS: [EventRule; 33] = [
    rule(0x03, 0x05, ANY), // LD_BLOCKS
    rule(0x04, 0x07, ANY), // MEM_SCHEDULER_BLOCK
    rule(0x05, 0xFF, ANY), // LD_HEAD
    rule(0x08, 0x0E, ANY), // DTLB_LOAD_MISSES
    rule(0x0E, 0x00, ANY), // UOPS_ISSUED
    rule(0x24, 0x03, ANY), // L2_REQUEST
    rule(0x2E, 0x4F, ANY), // LONGEST_LAT_CACHE
    rule(0x30, 0x00, ANY), // L2_REJECT_XQ
    rule(0x31, 0x00, ANY), // CORE_REJECT_L2Q
    rule(0x34, 0x3F, ANY), // MEM_BOUND_STALLS
    rule(0x3C, 0x01, ANY), // CPU_CLK_UNHALTED
    rule(0x49, 0x0E, ANY), // DTLB_STORE_MISSES
    rule(0x71, 0xFF, ANY), // TOPDOWN_FE_BOUND
    rule(0x73, 0x07, ANY), // TOPDOWN_BAD_SPECULATION
    rule(0x74, 0x7B, ANY), // TOPDOWN_BE_BOUND
    rule(0x75, 0x0E, ANY), // SERIALIZATION
    rule(0x80, 0x03, ANY), // ICACHE
    rule(0x85, 0x8F, ANY), // ITLB_MISSES
    rule(0xB7, 0x03, ANY), // OCR
    rule(0xC0, 0x00, ANY), // INST_RETIRED
    rule(0xC2, 0x1B, ANY), // TOPDOWN_RETIRING, UOPS_RETIRED
    rule(0xC3, 0xFF, ANY), // MACHINE_CLEARS
    rule(0xC4, 0xFF, ANY), // BR_INST_RETIRED
    rule(0xC5, 0xFF, ANY), // BR_MISP_RETIRED
    rule(0xCD, 0x0F, ANY), // ARITH
    rule(0xD0, 0xF7, ANY), // MEM_UOPS_RETIRED
    rule(0xD1, 0xBF, ANY), // MEM_LOAD_UOPS_RETIRED
    rule(0xD2, 0x60, ANY), // MEM_LOAD_UOPS_RETIRED_MISC
    rule(0xE0, 0xFF, ANY), // MISC_RETIRED1
    rule(0xE1, 0x11, ANY), // MISC_RETIRED2
    rule(0xE4, 0x01, ANY), // LBR_INSERTS, MISC_RETIRED
    rule(0xE6, 0x01, ANY), // BACLEARS
    rule(0xE8, 0x00, ANY), // BTCLEAR
];

/// Unit masks that fewer counters count than the rest of their event select (the same lists).
const CONSTRAINED: [Constraint; 1] = [Constraint { encoding: 0x05D0, counters: 0x03 }];

/// What fixed counters count beside the first three.
const FIXED: [FixedRule; 1] = [
    FixedRule { encoding: 0x013C, counter: 2 }, // CPU_CLK_UNHALTED.REF_TSC_P
];

/// Events whose records name the instruction that caused them. Not here: events of micro-operations retired, of which one
/// instruction is several, so that the counter passes its overflow by more than one and records times period would not
/// agree with the count.
const PRECISE: [PreciseRule; 44] = [
    // INST_RETIRED.ANY on fixed counter 0.
    PreciseRule { counters: CounterSet::one_fixed(0), ..counted_as(0x0100, ANY, 0x00C0) },
    precise(0x00C0, ANY),            // INST_RETIRED.ANY_P
    precise(0x00C4, ANY),            // BR_INST_RETIRED.ALL_BRANCHES
    precise(0x7EC4, ANY),            // BR_INST_RETIRED.COND
    precise(0x80C4, ANY),            // BR_INST_RETIRED.TAKEN
    precise(0xBFC4, ANY),            // BR_INST_RETIRED.FAR_BRANCH
    precise(0xC0C4, ANY),            // BR_INST_RETIRED.NEAR_TAKEN
    precise(0xDFC4, ANY),            // BR_INST_RETIRED.REL_JMP
    precise(0xEBC4, ANY),            // BR_INST_RETIRED.INDIRECT
    precise(0xEFC4, ANY),            // BR_INST_RETIRED.INDIRECT_JMP
    precise(0xF7C4, ANY),            // BR_INST_RETIRED.NEAR_RETURN
    precise(0xF9C4, ANY),            // BR_INST_RETIRED.CALL
    precise(0xFBC4, ANY),            // BR_INST_RETIRED.INDIRECT_CALL
    precise(0xFDC4, ANY),            // BR_INST_RETIRED.REL_CALL
    precise(0xFEC4, ANY),            // BR_INST_RETIRED.COND_TAKEN
    precise(0x00C5, ANY),            // BR_MISP_RETIRED.ALL_BRANCHES
    precise(0x7EC5, ANY),            // BR_MISP_RETIRED.COND
    precise(0x80C5, ANY),            // BR_MISP_RETIRED.NEAR_TAKEN
    precise(0xEBC5, ANY),            // BR_MISP_RETIRED.INDIRECT
    precise(0xEFC5, ANY),            // BR_MISP_RETIRED.INDIRECT_JMP
    precise(0xF7C5, ANY),            // BR_MISP_RETIRED.RETURN
    precise(0xFBC5, ANY),            // BR_MISP_RETIRED.INDIRECT_CALL
    precise(0xFEC5, ANY),            // BR_MISP_RETIRED.COND_TAKEN
    only_precise(0x05D0, 0x03),      // MEM_UOPS_RETIRED.LOAD_LATENCY
    counted_as(0x06D0, ANY, 0x82D0), // MEM_UOPS_RETIRED.STORE_LATENCY
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
    precise(0x04D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L3_HIT
    precise(0x08D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L1_MISS
    precise(0x10D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L2_MISS
    precise(0x20D1, ANY),            // MEM_LOAD_UOPS_RETIRED.HITM
    precise(0x80D1, ANY),            // MEM_LOAD_UOPS_RETIRED.DRAM_HIT
    precise(0x20D2, ANY),            // MEM_LOAD_UOPS_RETIRED_MISC.L3_MISS
    precise(0x40D2, ANY),            // MEM_LOAD_UOPS_RETIRED_MISC.HIT_E_F
];

/// Events that need a register beside their encoding, and the bits that it takes: those of Linux's `extra_reg` tables for this
/// core, and bits 44 to 49, by which the event lists name uncacheable reads, streaming stores and write-backs.
const EXTRA: [ExtraRule; 3] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0x0003_F03F_FFFF_FFFF },
    ExtraRule { encoding: 0x02B7, register: ExtraRegister::OffcoreRsp1, bits: 0x0003_F03F_FFFF_FFFF },
    ExtraRule { encoding: 0x05D0, register: ExtraRegister::LoadLatency, bits: LATENCY },
];
