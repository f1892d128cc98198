//! Nehalem: PerfMon version 3, PEBS format 1 (SDM Vol. 3B 20.3.1).

use super::super::abi::CoreType;
use super::{
    counted_as, only_precise, precise, rule, EventRule, ExtraRegister, ExtraRule, Generation, PreciseRule,
    Quirks, LATENCY,
};

/// Every general counter that the processor has.
const ANY: u16 = 0x0F;

/// Nehalem: clients (with the parts called Lynnfield, Clarksfield and Havendale), two-socket and large servers.
pub const NEHALEM: Generation = Generation {
    name: "nehalem",
    models: &[0x1A, 0x1E, 0x1F, 0x2E],
    hybrid_models: &[],
    core_type: CoreType::Any,
    events: &EVENTS,
    constrained: &[],
    fixed: &[],
    precise: &PRECISE,
    extra: &EXTRA,
    quirks: Quirks { core_has_offcore: true, counters_stick: true, ..Quirks::NONE },
    pebs_formats: &[1],
    pebs_counters: 0x0F,
    lbr_format: 3,
    errata: &[],
};

/// Intel's event lists (perfmon, NHM-EP and NHM-EX), by event select.
const EVENTS: [EventRule; 77] = [
    rule(0x04, 0x07, ANY),  // SB_DRAIN
    rule(0x06, 0x0C, ANY),  // STORE_BLOCKS
    rule(0x07, 0x01, ANY),  // PARTIAL_ADDRESS_ALIAS
    rule(0x08, 0x33, ANY),  // DTLB_LOAD_MISSES
    rule(0x0B, 0x13, ANY),  // MEM_INST_RETIRED
    rule(0x0C, 0x01, ANY),  // MEM_STORE_RETIRED
    rule(0x0E, 0x03, ANY),  // UOPS_ISSUED
    rule(0x0F, 0xBA, ANY),  // MEM_UNCORE_RETIRED
    rule(0x10, 0xFF, ANY),  // FP_COMP_OPS_EXE
    rule(0x12, 0x7F, ANY),  // SIMD_INT_128
    rule(0x13, 0x07, ANY),  // LOAD_DISPATCH
    rule(0x14, 0x03, ANY),  // ARITH
    rule(0x17, 0x01, ANY),  // INST_QUEUE_WRITES
    rule(0x18, 0x01, ANY),  // INST_DECODED
    rule(0x19, 0x01, ANY),  // TWO_UOP_INSTS_DECODED
    rule(0x1E, 0x01, ANY),  // INST_QUEUE_WRITE_CYCLES
    rule(0x20, 0x01, ANY),  // LSD_OVERFLOW
    rule(0x24, 0xFF, ANY),  // L2_RQSTS
    rule(0x26, 0xFF, ANY),  // L2_DATA_RQSTS
    rule(0x27, 0xFF, ANY),  // L2_WRITE
    rule(0x28, 0x0F, ANY),  // L1D_WB_L2
    rule(0x2E, 0x4F, ANY),  // LONGEST_LAT_CACHE
    rule(0x3C, 0x01, ANY),  // CPU_CLK_UNHALTED
    rule(0x40, 0x0F, 0x03), // L1D_CACHE_LD
    rule(0x41, 0x0E, 0x03), // L1D_CACHE_ST
    rule(0x42, 0x0F, 0x03), // L1D_CACHE_LOCK
    rule(0x43, 0x03, 0x03), // L1D_ALL_REF
    rule(0x49, 0x13, ANY),  // DTLB_MISSES
    rule(0x4C, 0x01, 0x03), // LOAD_HIT_PRE
    rule(0x4E, 0x07, 0x03), // L1D_PREFETCH
    rule(0x51, 0x0F, 0x03), // L1D
    rule(0x52, 0x01, 0x03), // L1D_CACHE_PREFETCH_LOCK_FB_HIT
    rule(0x53, 0x01, 0x03), // L1D_CACHE_LOCK_FB_HIT
    rule(0x63, 0x03, 0x03), // CACHE_LOCK_CYCLES
    rule(0x6C, 0x01, ANY),  // IO_TRANSACTIONS
    rule(0x80, 0x07, ANY),  // L1I
    rule(0x82, 0x01, ANY),  // LARGE_ITLB
    rule(0x85, 0x03, ANY),  // ITLB_MISSES
    rule(0x87, 0x0F, ANY),  // ILD_STALL
    rule(0x88, 0x7F, ANY),  // BR_INST_EXEC
    rule(0x89, 0x7F, ANY),  // BR_MISP_EXEC
    rule(0xA2, 0xFF, ANY),  // RESOURCE_STALLS
    rule(0xA6, 0x01, ANY),  // MACRO_INSTS
    rule(0xA7, 0x01, ANY),  // BACLEAR_FORCE_IQ
    rule(0xA8, 0x01, ANY),  // LSD
    rule(0xAE, 0x01, ANY),  // ITLB_FLUSH
    rule(0xB0, 0x40, ANY),  // OFFCORE_REQUESTS
    rule(0xB1, 0xFF, ANY),  // UOPS_EXECUTED
    rule(0xB2, 0x01, ANY),  // OFFCORE_REQUESTS_SQ_FULL
    rule(0xB7, 0x01, ANY),  // OFFCORE_RESPONSE
    rule(0xB8, 0x07, ANY),  // SNOOP_RESPONSE
    rule(0xC0, 0x07, ANY),  // INST_RETIRED
    rule(0xC2, 0x07, ANY),  // UOPS_RETIRED
    rule(0xC3, 0x07, ANY),  // MACHINE_CLEARS
    rule(0xC4, 0x07, ANY),  // BR_INST_RETIRED
    rule(0xC5, 0x02, ANY),  // BR_MISP_RETIRED
    rule(0xC7, 0x1F, ANY),  // SSEX_UOPS_RETIRED
    rule(0xC8, 0x20, ANY),  // ITLB_MISS_RETIRED
    rule(0xCB, 0xDF, ANY),  // MEM_LOAD_RETIRED
    rule(0xCC, 0x03, ANY),  // FP_MMX_TRANS
    rule(0xD0, 0x01, ANY),  // MACRO_INSTS
    rule(0xD1, 0x0F, ANY),  // UOPS_DECODED
    rule(0xD2, 0x0F, ANY),  // RAT_STALLS
    rule(0xD4, 0x01, ANY),  // SEG_RENAME_STALLS
    rule(0xD5, 0x01, ANY),  // ES_REG_RENAMES
    rule(0xDB, 0x01, ANY),  // UOP_UNFUSION
    rule(0xE0, 0x01, ANY),  // BR_INST_DECODED
    rule(0xE5, 0x01, ANY),  // BPU_MISSED_CALL_RET
    rule(0xE6, 0x03, ANY),  // BACLEAR
    rule(0xE8, 0x03, ANY),  // BPU_CLEARS
    rule(0xF0, 0xFF, ANY),  // L2_TRANSACTIONS
    rule(0xF1, 0x07, ANY),  // L2_LINES_IN
    rule(0xF2, 0x0F, ANY),  // L2_LINES_OUT
    rule(0xF4, 0x10, ANY),  // SQ_MISC
    rule(0xF6, 0x01, ANY),  // SQ_FULL_STALL_CYCLES
    rule(0xF7, 0x07, ANY),  // FP_ASSIST
    rule(0xFD, 0x7F, ANY),  // SIMD_INT_64
];

/// Events whose records name the instruction that caused them. Not here: events of micro-operations retired, of which one
/// instruction is several, so that the counter passes its overflow by more than one and records times period would not
/// agree with the count.
const PRECISE: [PreciseRule; 25] = [
    // INST_RETIRED.ANY, the architectural encoding of INST_RETIRED.ANY_P.
    precise(0x00C0, ANY),
    precise(0x010B, ANY),            // MEM_INST_RETIRED.LOADS
    precise(0x020B, ANY),            // MEM_INST_RETIRED.STORES
    only_precise(0x100B, ANY),       // MEM_INST_RETIRED.LATENCY
    precise(0x010C, ANY),            // MEM_STORE_RETIRED.DTLB_MISS
    precise(0x020F, ANY),            // MEM_UNCORE_RETIRED.OTHER_CORE_L2_HITM
    precise(0x080F, ANY),            // MEM_UNCORE_RETIRED.REMOTE_CACHE_LOCAL_HOME_HIT
    precise(0x100F, ANY),            // MEM_UNCORE_RETIRED.REMOTE_DRAM
    precise(0x200F, ANY),            // MEM_UNCORE_RETIRED.LOCAL_DRAM
    precise(0x800F, ANY),            // MEM_UNCORE_RETIRED.UNCACHEABLE
    counted_as(0x01C0, ANY, 0x00C0), // INST_RETIRED.ANY_P
    precise(0x02C0, ANY),            // INST_RETIRED.X87
    precise(0x04C0, ANY),            // INST_RETIRED.MMX
    precise(0x01C4, ANY),            // BR_INST_RETIRED.CONDITIONAL
    precise(0x02C4, ANY),            // BR_INST_RETIRED.NEAR_CALL
    counted_as(0x04C4, ANY, 0x00C4), // BR_INST_RETIRED.ALL_BRANCHES
    precise(0x02C5, ANY),            // BR_MISP_RETIRED.NEAR_CALL
    precise(0x20C8, ANY),            // ITLB_MISS_RETIRED
    precise(0x01CB, ANY),            // MEM_LOAD_RETIRED.L1D_HIT
    precise(0x02CB, ANY),            // MEM_LOAD_RETIRED.L2_HIT
    precise(0x04CB, ANY),            // MEM_LOAD_RETIRED.LLC_UNSHARED_HIT
    precise(0x08CB, ANY),            // MEM_LOAD_RETIRED.OTHER_CORE_L2_HIT_HITM
    precise(0x10CB, ANY),            // MEM_LOAD_RETIRED.LLC_MISS
    precise(0x40CB, ANY),            // MEM_LOAD_RETIRED.HIT_LFB
    precise(0x80CB, ANY),            // MEM_LOAD_RETIRED.DTLB_MISS
];

/// Events that need a register beside their encoding, and the bits that it takes (as Linux's `extra_reg` tables for this
/// core).
const EXTRA: [ExtraRule; 2] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0xFFFF },
    ExtraRule { encoding: 0x100B, register: ExtraRegister::LoadLatency, bits: LATENCY },
];
