//! Sandy Bridge: PerfMon version 3, PEBS format 1 with precise stores (SDM Vol. 3B 20.3.4).

use super::super::abi::CoreType;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, Generation,
    Microcode, PreciseRule, Quirks, LATENCY,
};

/// General counters 0 to 3: those that exist with hyper-threading on, and that can write PEBS records.
const LOW: u16 = 0x0F;
/// Every general counter that the processor has.
const ANY: u16 = 0xFF;
/// IA32_PEBS_ENABLE.PS_EN: precise stores (20.3.4.4.3).
const PS_EN: u64 = 1 << 63;

/// Sandy Bridge client and server.
pub const SANDYBRIDGE: Generation = Generation {
    name: "sandybridge",
    models: &[0x2A, 0x2D],
    hybrid_models: &[],
    core_type: CoreType::Any,
    events: &EVENTS,
    constrained: &CONSTRAINED,
    fixed: &[],
    precise: &PRECISE,
    extra: &EXTRA,
    quirks: Quirks::NONE,
    pebs_formats: &[1],
    pebs_counters: 0x0F,
    lbr_format: 3,
    errata: &ERRATA,
};

/// The microcode from which on PEBS works, by model and stepping (erratum BJ72 and BT66; as Linux's `pebs_ucodes`).
const ERRATA: [Microcode; 3] = [
    Microcode { model: 0x2A, stepping: 7, revision: 0x28 },
    Microcode { model: 0x2D, stepping: 6, revision: 0x618 },
    Microcode { model: 0x2D, stepping: 7, revision: 0x70C },
];

/// Intel's event lists (perfmon, SNB and JKT), by event select.
const EVENTS: [EventRule; 69] = [
    rule(0x03, 0x1B, ANY),  // LD_BLOCKS
    rule(0x05, 0x03, ANY),  // MISALIGN_MEM_REF
    rule(0x07, 0x09, ANY),  // LD_BLOCKS_PARTIAL
    rule(0x08, 0x17, ANY),  // DTLB_LOAD_MISSES
    rule(0x0D, 0x43, ANY),  // INT_MISC
    rule(0x0E, 0x01, ANY),  // UOPS_ISSUED
    rule(0x10, 0xF1, ANY),  // FP_COMP_OPS_EXE
    rule(0x11, 0x03, ANY),  // SIMD_FP_256
    rule(0x14, 0x01, ANY),  // ARITH
    rule(0x17, 0x01, ANY),  // INSTS_WRITTEN_TO_IQ
    rule(0x24, 0xFF, ANY),  // L2_RQSTS
    rule(0x27, 0x0F, ANY),  // L2_STORE_LOCK_RQSTS
    rule(0x28, 0x0F, ANY),  // L2_L1D_WB_RQSTS
    rule(0x2E, 0x4F, ANY),  // LONGEST_LAT_CACHE
    rule(0x3C, 0x03, ANY),  // CPU_CLK_THREAD_UNHALTED, CPU_CLK_UNHALTED
    rule(0x48, 0x03, 0x04), // L1D_PEND_MISS: all of it on counter 2, as Linux has it (`intel_snb_event_constraints`)
    rule(0x49, 0x17, ANY),  // DTLB_STORE_MISSES
    rule(0x4C, 0x03, ANY),  // LOAD_HIT_PRE
    rule(0x4E, 0x02, ANY),  // HW_PRE_REQ
    rule(0x4F, 0x10, ANY),  // EPT
    rule(0x51, 0x0F, ANY),  // L1D
    rule(0x59, 0xE0, ANY),  // PARTIAL_RAT_STALLS
    rule(0x5B, 0x4F, ANY),  // RESOURCE_STALLS2
    rule(0x5C, 0x03, ANY),  // CPL_CYCLES
    rule(0x5E, 0x01, ANY),  // RS_EVENTS
    rule(0x60, 0x0D, ANY),  // OFFCORE_REQUESTS_OUTSTANDING
    rule(0x63, 0x03, ANY),  // LOCK_CYCLES
    rule(0x79, 0x3E, ANY),  // IDQ
    rule(0x80, 0x03, ANY),  // ICACHE
    rule(0x85, 0x17, ANY),  // ITLB_MISSES
    rule(0x87, 0x05, ANY),  // ILD_STALL
    rule(0x88, 0xFF, ANY),  // BR_INST_EXEC
    rule(0x89, 0xFF, ANY),  // BR_MISP_EXEC
    rule(0x9C, 0x01, ANY),  // IDQ_UOPS_NOT_DELIVERED
    rule(0xA1, 0xFF, ANY),  // UOPS_DISPATCHED_PORT
    rule(0xA2, 0xFF, ANY),  // RESOURCE_STALLS
    rule(0xA3, 0x07, ANY),  // CYCLE_ACTIVITY
    rule(0xA8, 0x01, ANY),  // LSD
    rule(0xAB, 0x03, ANY),  // DSB2MITE_SWITCHES
    rule(0xAC, 0x0A, ANY),  // DSB_FILL
    rule(0xAE, 0x01, ANY),  // ITLB
    rule(0xB0, 0x0F, ANY),  // OFFCORE_REQUESTS
    rule(0xB1, 0x03, ANY),  // UOPS_DISPATCHED, UOPS_EXECUTED
    rule(0xB2, 0x01, ANY),  // OFFCORE_REQUESTS_BUFFER
    rule(0xB6, 0x01, ANY),  // AGU_BYPASS_CANCEL
    rule(0xB7, 0x01, ANY),  // OFFCORE_RESPONSE
    rule(0xBB, 0x01, ANY),  // OFFCORE_RESPONSE
    rule(0xBD, 0x21, ANY),  // TLB_FLUSH
    rule(0xBE, 0x01, ANY),  // PAGE_WALKS
    rule(0xBF, 0x05, ANY),  // L1D_BLOCKS
    rule(0xC0, 0x01, ANY),  // INST_RETIRED
    rule(0xC1, 0x3A, ANY),  // OTHER_ASSISTS
    rule(0xC2, 0x03, ANY),  // UOPS_RETIRED
    rule(0xC3, 0x27, ANY),  // MACHINE_CLEARS
    rule(0xC4, 0x7F, ANY),  // BR_INST_RETIRED
    rule(0xC5, 0x37, ANY),  // BR_MISP_RETIRED
    rule(0xCA, 0x1E, ANY),  // FP_ASSIST
    rule(0xCC, 0x20, ANY),  // ROB_MISC_EVENTS
    rule(0xCD, 0x03, 0x08), // MEM_TRANS_RETIRED
    rule(0xD0, 0xF3, LOW),  // MEM_UOPS_RETIRED
    rule(0xD1, 0x67, LOW),  // MEM_LOAD_UOPS_RETIRED
    rule(0xD2, 0x0F, LOW),  // MEM_LOAD_UOPS_LLC_HIT_RETIRED
    rule(0xD3, 0x05, LOW),  // MEM_LOAD_UOPS_LLC_MISS_RETIRED
    rule(0xD4, 0x02, LOW),  // MEM_LOAD_UOPS_MISC_RETIRED
    rule(0xE6, 0x1F, ANY),  // BACLEARS
    rule(0xF0, 0xFF, ANY),  // L2_TRANS
    rule(0xF1, 0x07, ANY),  // L2_LINES_IN
    rule(0xF2, 0x0F, ANY),  // L2_LINES_OUT
    rule(0xF4, 0x10, ANY),  // SQ_MISC
];

/// Unit masks that fewer counters count than the rest of their event select (the same lists).
const CONSTRAINED: [Constraint; 5] = [
    Constraint { encoding: 0x02A3, counters: 0x04 },
    Constraint { encoding: 0x06A3, counters: 0x04 },
    Constraint { encoding: 0x01C0, counters: 0x02 },
    Constraint { encoding: 0x04A3, counters: LOW },
    Constraint { encoding: 0x05A3, counters: LOW },
];

/// Events whose records name the instruction that caused them. Not here: events of micro-operations retired, of which one
/// instruction is several, so that the counter passes its overflow by more than one and records times period would not
/// agree with the count.
const PRECISE: [PreciseRule; 29] = [
    counted_as(0x01C0, 0x02, 0x00C0), // INST_RETIRED.PREC_DIST
    precise(0x01C4, LOW),             // BR_INST_RETIRED.CONDITIONAL
    precise(0x02C4, LOW),             // BR_INST_RETIRED.NEAR_CALL
    counted_as(0x04C4, LOW, 0x00C4),  // BR_INST_RETIRED.ALL_BRANCHES_PEBS
    precise(0x08C4, LOW),             // BR_INST_RETIRED.NEAR_RETURN
    precise(0x20C4, LOW),             // BR_INST_RETIRED.NEAR_TAKEN
    precise(0x01C5, LOW),             // BR_MISP_RETIRED.CONDITIONAL
    precise(0x02C5, LOW),             // BR_MISP_RETIRED.NEAR_CALL
    counted_as(0x04C5, LOW, 0x00C5),  // BR_MISP_RETIRED.ALL_BRANCHES_PEBS
    precise(0x10C5, LOW),             // BR_MISP_RETIRED.NOT_TAKEN
    precise(0x20C5, LOW),             // BR_MISP_RETIRED.TAKEN
    only_precise(0x01CD, 0x08),       // MEM_TRANS_RETIRED.LOAD_LATENCY
    PreciseRule { pebs_enable: PS_EN, ..only_precise(0x02CD, 0x08) }, // MEM_TRANS_RETIRED.PRECISE_STORE
    precise(0x11D0, LOW),             // MEM_UOPS_RETIRED.STLB_MISS_LOADS
    precise(0x12D0, LOW),             // MEM_UOPS_RETIRED.STLB_MISS_STORES
    precise(0x21D0, LOW),             // MEM_UOPS_RETIRED.LOCK_LOADS
    precise(0x41D0, LOW),             // MEM_UOPS_RETIRED.SPLIT_LOADS
    precise(0x42D0, LOW),             // MEM_UOPS_RETIRED.SPLIT_STORES
    precise(0x81D0, LOW),             // MEM_UOPS_RETIRED.ALL_LOADS
    precise(0x82D0, LOW),             // MEM_UOPS_RETIRED.ALL_STORES
    precise(0x01D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L1_HIT
    precise(0x02D1, LOW),             // MEM_LOAD_UOPS_RETIRED.L2_HIT
    precise(0x04D1, LOW),             // MEM_LOAD_UOPS_RETIRED.LLC_HIT
    precise(0x40D1, LOW),             // MEM_LOAD_UOPS_RETIRED.HIT_LFB
    precise(0x01D2, LOW),             // MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_MISS
    precise(0x02D2, LOW),             // MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HIT
    precise(0x04D2, LOW),             // MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HITM
    precise(0x08D2, LOW),             // MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_NONE
    precise(0x02D4, LOW),             // MEM_LOAD_UOPS_MISC_RETIRED.LLC_MISS
];

/// Events that need a register beside their encoding, and the bits that it takes on clients and servers alike (as Linux's
/// `extra_reg` tables for this core).
const EXTRA: [ExtraRule; 3] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0x3F_807F_8FFF },
    ExtraRule { encoding: 0x01BB, register: ExtraRegister::OffcoreRsp1, bits: 0x3F_807F_8FFF },
    ExtraRule { encoding: 0x01CD, register: ExtraRegister::LoadLatency, bits: LATENCY },
];
