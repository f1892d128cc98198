//! Core 2: PerfMon version 2, PEBS format 0 (SDM Vol. 3B, "Performance Monitoring (Processors Based on Intel Core
//! Microarchitecture)").

use super::super::abi::CoreType;
use super::{precise, rule, EventRule, Generation, Microcode, PreciseRule, Quirks};

/// Both general counters.
const ANY: u16 = 0x03;

/// Core 2 after its first model, with the Xeons and Celerons of the same core.
pub const CORE2: Generation = Generation {
    name: "core2",
    models: &[0x16, 0x17, 0x1D],
    hybrid_models: &[],
    core_type: CoreType::Any,
    events: &EVENTS,
    constrained: &[],
    fixed: &[],
    precise: &PRECISE,
    extra: &[],
    quirks: Quirks { one_page_of_records: true, ..Quirks::NONE },
    pebs_formats: &[0],
    pebs_counters: 0x01,
    // Its four records have no filter for privilege levels: none is used.
    lbr_format: 0,
    errata: &[],
};

/// The first Core 2, whose PEBS does not work: errata AJ68, AJ69 and AJ106, for which the kernel's perf refuses it too
/// (`intel_clovertown_quirk`).
pub const MEROM: Generation = Generation {
    name: "merom",
    models: &[0x0F],
    errata: &[Microcode { model: 0x0F, stepping: 0, revision: u32::MAX }],
    ..CORE2
};

/// The SDM's list for the Core microarchitecture, by event select. Which counter an event needs is said there in its comment.
const EVENTS: [EventRule; 119] = [
    rule(0x03, 0x3E, ANY),  // LOAD_BLOCK
    rule(0x04, 0x0B, ANY),  // STORE_BLOCK
    rule(0x06, 0x00, ANY),  // SEGMENT_REG_LOADS
    rule(0x07, 0x03, ANY),  // SSE_PRE_EXEC
    rule(0x08, 0x0F, ANY),  // DTLB_MISSES
    rule(0x09, 0x03, ANY),  // MEMORY_DISAMBIGUATION
    rule(0x0C, 0x03, ANY),  // PAGE_WALKS
    rule(0x10, 0x00, 0x01), // FP_COMP_OPS_EXE
    rule(0x11, 0x00, 0x02), // FP_ASSIST
    rule(0x12, 0x00, 0x02), // MUL
    rule(0x13, 0x00, 0x02), // DIV
    rule(0x14, 0x00, 0x01), // CYCLES_DIV_BUSY
    rule(0x18, 0x00, 0x01), // IDLE_DURING_DIV
    rule(0x19, 0x03, 0x02), // DELAYED_BYPASS
    rule(0x21, 0xC0, ANY),  // L2_ADS
    rule(0x23, 0xC0, ANY),  // L2_DBUS_BUSY_RD
    rule(0x24, 0xF0, ANY),  // L2_LINES_IN
    rule(0x25, 0xC0, ANY),  // L2_M_LINES_IN
    rule(0x26, 0xF0, ANY),  // L2_LINES_OUT
    rule(0x27, 0xF0, ANY),  // L2_M_LINES_OUT
    rule(0x28, 0xCF, ANY),  // L2_IFETCH
    rule(0x29, 0xFF, ANY),  // L2_LD
    rule(0x2A, 0xCF, ANY),  // L2_ST
    rule(0x2B, 0xCF, ANY),  // L2_LOCK
    rule(0x2E, 0xFF, ANY),  // L2_RQSTS
    rule(0x30, 0xFF, ANY),  // L2_REJECT_BUSQ
    rule(0x32, 0xC0, ANY),  // L2_NO_REQ
    rule(0x3A, 0x00, ANY),  // EIST_TRANS
    rule(0x3B, 0xC0, ANY),  // THERMAL_TRIP
    rule(0x3C, 0x03, ANY),  // CPU_CLK_UNHALTED
    rule(0x40, 0x0F, ANY),  // L1D_CACHE_LD
    rule(0x41, 0x0F, ANY),  // L1D_CACHE_ST
    rule(0x42, 0x1F, ANY),  // L1D_CACHE_LOCK
    rule(0x43, 0x03, ANY),  // L1D_ALL_REF
    rule(0x45, 0x0F, ANY),  // L1D_REPL
    rule(0x46, 0x00, ANY),  // L1D_M_REPL
    rule(0x47, 0x00, ANY),  // L1D_M_EVICT
    rule(0x48, 0x00, ANY),  // L1D_PEND_MISS
    rule(0x49, 0x03, ANY),  // L1D_SPLIT
    rule(0x4B, 0x03, ANY),  // SSE_PRE_MISS
    rule(0x4C, 0x00, ANY),  // LOAD_HIT_PRE
    rule(0x4E, 0x10, ANY),  // L1D_PREFETCH
    rule(0x60, 0xE0, ANY),  // BUS_REQUEST_OUTSTANDING
    rule(0x61, 0x20, ANY),  // BUS_BNR_DRV
    rule(0x62, 0x20, ANY),  // BUS_DRDY_CLOCKS
    rule(0x63, 0xE0, ANY),  // BUS_LOCK_CLOCKS
    rule(0x64, 0xC0, ANY),  // BUS_DATA_RCV
    rule(0x65, 0xE0, ANY),  // BUS_TRANS_BRD
    rule(0x66, 0xE0, ANY),  // BUS_TRANS_RFO
    rule(0x67, 0xE0, ANY),  // BUS_TRANS_WB
    rule(0x68, 0xE0, ANY),  // BUS_TRANS_IFETCH
    rule(0x69, 0xE0, ANY),  // BUS_TRANS_INVAL
    rule(0x6A, 0xE0, ANY),  // BUS_TRANS_PWR
    rule(0x6B, 0xE0, ANY),  // BUS_TRANS_P
    rule(0x6C, 0xE0, ANY),  // BUS_TRANS_IO
    rule(0x6D, 0xE0, ANY),  // BUS_TRANS_DEF
    rule(0x6E, 0xE0, ANY),  // BUS_TRANS_BURST
    rule(0x6F, 0xE0, ANY),  // BUS_TRANS_MEM
    rule(0x70, 0xE0, ANY),  // BUS_TRANS_ANY
    rule(0x77, 0x2B, ANY),  // EXT_SNOOP
    rule(0x78, 0xC3, ANY),  // CMP_SNOOP
    rule(0x7A, 0x20, ANY),  // BUS_HIT_DRV
    rule(0x7B, 0x20, ANY),  // BUS_HITM_DRV
    rule(0x7D, 0xC0, ANY),  // BUSQ_EMPTY
    rule(0x7E, 0xE0, ANY),  // SNOOP_STALL_DRV
    rule(0x7F, 0xC0, ANY),  // BUS_IO_WAIT
    rule(0x80, 0x00, ANY),  // L1I_READS
    rule(0x81, 0x00, ANY),  // L1I_MISSES
    rule(0x82, 0x52, ANY),  // ITLB
    rule(0x83, 0x02, ANY),  // INST_QUEUE
    rule(0x86, 0x00, ANY),  // CYCLES_L1I_MEM_STALLED
    rule(0x87, 0x00, ANY),  // ILD_STALL
    rule(0x88, 0x00, ANY),  // BR_INST_EXEC
    rule(0x89, 0x00, ANY),  // BR_MISSP_EXEC
    rule(0x8A, 0x00, ANY),  // BR_BAC_MISSP_EXEC
    rule(0x8B, 0x00, ANY),  // BR_CND_EXEC
    rule(0x8C, 0x00, ANY),  // BR_CND_MISSP_EXEC
    rule(0x8D, 0x00, ANY),  // BR_IND_EXEC
    rule(0x8E, 0x00, ANY),  // BR_IND_MISSP_EXEC
    rule(0x8F, 0x00, ANY),  // BR_RET_EXEC
    rule(0x90, 0x00, ANY),  // BR_RET_MISSP_EXEC
    rule(0x91, 0x00, ANY),  // BR_RET_BAC_MISSP_EXEC
    rule(0x92, 0x00, ANY),  // BR_CALL_EXEC
    rule(0x93, 0x00, ANY),  // BR_CALL_MISSP_EXEC
    rule(0x94, 0x00, ANY),  // BR_IND_CALL_EXEC
    rule(0x97, 0x00, ANY),  // BR_TKN_BUBBLE_1
    rule(0x98, 0x00, ANY),  // BR_TKN_BUBBLE_2
    rule(0xA0, 0x00, ANY),  // RS_UOPS_DISPATCHED
    rule(0xA1, 0x3F, 0x01), // RS_UOPS_DISPATCHED
    rule(0xAA, 0x09, ANY),  // MACRO_INSTS
    rule(0xAB, 0x03, ANY),  // ESP
    rule(0xB0, 0x00, ANY),  // SIMD_UOPS_EXEC
    rule(0xB1, 0x00, ANY),  // SIMD_SAT_UOP_EXEC
    rule(0xB3, 0x3F, ANY),  // SIMD_UOP_TYPE_EXEC
    rule(0xC0, 0x0F, ANY),  // INST_RETIRED
    rule(0xC1, 0xFF, ANY),  // X87_OPS_RETIRED
    rule(0xC2, 0x0F, ANY),  // UOPS_RETIRED
    rule(0xC3, 0x05, ANY),  // MACHINE_NUKES
    rule(0xC4, 0x0F, ANY),  // BR_INST_RETIRED
    rule(0xC5, 0x00, ANY),  // BR_INST_RETIRED.MISPRED
    rule(0xC6, 0x03, ANY),  // CYCLES_INT
    rule(0xC7, 0x1F, ANY),  // SIMD_INST_RETIRED
    rule(0xC8, 0x00, ANY),  // HW_INT_RCV
    rule(0xC9, 0x00, 0x01), // ITLB_MISS_RETIRED
    rule(0xCA, 0x0F, ANY),  // SIMD_COMP_INST_RETIRED
    rule(0xCB, 0x1F, 0x01), // MEM_LOAD_RETIRED
    rule(0xCC, 0x03, ANY),  // FP_MMX_TRANS
    rule(0xCD, 0x00, ANY),  // SIMD_ASSIST
    rule(0xCE, 0x00, ANY),  // SIMD_INSTR_RETIRED
    rule(0xCF, 0x00, ANY),  // SIMD_SAT_INSTR_RETIRED
    rule(0xD2, 0x0F, ANY),  // RAT_STALLS
    rule(0xD4, 0x0F, ANY),  // SEG_RENAME_STALLS
    rule(0xD5, 0x0F, ANY),  // SEG_REG_RENAMES
    rule(0xDC, 0x1F, ANY),  // RESOURCE_STALLS
    rule(0xE0, 0x00, ANY),  // BR_INST_DECODED
    rule(0xE4, 0x00, ANY),  // BOGUS_BR
    rule(0xE6, 0x00, ANY),  // BACLEARS
    rule(0xF0, 0x00, ANY),  // PREF_RQSTS_UP
    rule(0xF8, 0x00, ANY),  // PREF_RQSTS_DN
];

/// The events of "Table: Performance Events That Support PEBS" of the Core microarchitecture, except X87_OPS_RETIRED.ANY, of
/// which one instruction can be several. PEBS is on counter 0 only.
const PRECISE: [PreciseRule; 8] = [
    precise(0x00C0, 0x01), // INST_RETIRED.ANY_P
    precise(0x00C5, 0x01), // BR_INST_RETIRED.MISPRED
    precise(0x1FC7, 0x01), // SIMD_INST_RETIRED.ANY
    precise(0x01CB, 0x01), // MEM_LOAD_RETIRED.L1D_MISS
    precise(0x02CB, 0x01), // MEM_LOAD_RETIRED.L1D_LINE_MISS
    precise(0x04CB, 0x01), // MEM_LOAD_RETIRED.L2_MISS
    precise(0x08CB, 0x01), // MEM_LOAD_RETIRED.L2_LINE_MISS
    precise(0x10CB, 0x01), // MEM_LOAD_RETIRED.DTLB_MISS
];
