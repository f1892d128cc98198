//! Crestmont: PerfMon version 5, adaptive PEBS (SDM Vol. 3B 20.5, 20.9). On hybrid processors the E-cores.

use super::super::abi::CoreType;
use super::super::allocate::CounterSet;
use super::super::lbr::ARCHITECTURAL_LBR;
use super::{
    counted_as, only_precise, precise, rule, Constraint, EventRule, ExtraRegister, ExtraRule, FixedRule,
    Generation, PreciseRule, Quirks, LATENCY, METEOR_LAKE,
};

/// Every general counter that the processor has.
const ANY: u16 = 0xFF;

/// Sierra Forest, Grand Ridge; the E-cores of Meteor Lake and Arrow Lake-U; the low-power cores of Arrow Lake-H.
pub const CRESTMONT: Generation = Generation {
    name: "crestmont",
    models: &[0xAF, 0xB6],
    hybrid_models: METEOR_LAKE,
    core_type: CoreType::Atom,
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

/// Intel's event lists (perfmon, SRF, GRR and the E-cores of MTL), by event select. Where loads were served that missed L3 the servers
/// count by D3H, Meteor Lake by D4H alone.
const EVENTS: [EventRule; 45] = [
    rule(0x03, 0x07, ANY), // LD_BLOCKS
    rule(0x04, 0x07, ANY), // MEM_SCHEDULER_BLOCK
    rule(0x05, 0xFF, ANY), // LD_HEAD
    rule(0x08, 0x3E, ANY), // DTLB_LOAD_MISSES
    rule(0x0E, 0x00, ANY), // UOPS_ISSUED
    rule(0x13, 0x06, ANY), // MISALIGN_MEM_REF
    rule(0x24, 0x07, ANY), // L2_REQUEST
    rule(0x25, 0x1E, ANY), // L2_LINES_IN
    rule(0x26, 0x03, ANY), // L2_LINES_OUT
    rule(0x2E, 0x4F, ANY), // LONGEST_LAT_CACHE
    rule(0x30, 0x00, ANY), // L2_REJECT_XQ
    rule(0x31, 0x00, ANY), // CORE_REJECT_L2Q
    rule(0x34, 0xFF, ANY), // MEM_BOUND_STALLS_LOAD
    rule(0x35, 0x7F, ANY), // MEM_BOUND_STALLS_IFETCH
    rule(0x3C, 0x01, ANY), // CPU_CLK_UNHALTED
    rule(0x49, 0x3E, ANY), // DTLB_STORE_MISSES
    rule(0x51, 0x01, ANY), // DL1
    rule(0x71, 0xFF, ANY), // TOPDOWN_FE_BOUND
    rule(0x72, 0x00, ANY), // TOPDOWN_RETIRING
    rule(0x73, 0x07, ANY), // TOPDOWN_BAD_SPECULATION
    rule(0x74, 0x7B, ANY), // TOPDOWN_BE_BOUND
    rule(0x75, 0x0E, ANY), // SERIALIZATION
    rule(0x80, 0x03, ANY), // ICACHE
    rule(0x85, 0x3F, ANY), // ITLB_MISSES
    rule(0xB2, 0x0F, ANY), // FP_VINT_UOPS_EXECUTED
    rule(0xB3, 0xFF, ANY), // INT_UOPS_EXECUTED
    rule(0xB7, 0x03, ANY), // OCR
    rule(0xC0, 0x00, ANY), // INST_RETIRED
    rule(0xC2, 0x1B, ANY), // UOPS_RETIRED
    rule(0xC3, 0xFF, ANY), // MACHINE_CLEARS
    rule(0xC4, 0xFF, ANY), // BR_INST_RETIRED
    rule(0xC5, 0xFF, ANY), // BR_MISP_RETIRED
    rule(0xC6, 0xFF, ANY), // FRONTEND_RETIRED
    rule(0xC7, 0x2F, ANY), // FP_INST_RETIRED
    rule(0xC8, 0x03, ANY), // FP_FLOPS_RETIRED
    rule(0xCD, 0x0F, ANY), // ARITH
    rule(0xD0, 0xF7, ANY), // MEM_UOPS_RETIRED
    rule(0xD1, 0xFF, ANY), // MEM_LOAD_UOPS_RETIRED
    rule(0xD3, 0xFF, ANY), // MEM_LOAD_UOPS_L3_MISS_RETIRED
    rule(0xD4, 0x3A, ANY), // MEM_LOAD_UOPS_MISC_RETIRED
    rule(0xE0, 0xFF, ANY), // MISC_RETIRED1
    rule(0xE1, 0x11, ANY), // MISC_RETIRED2
    rule(0xE4, 0x01, ANY), // LBR_INSERTS, MISC_RETIRED
    rule(0xE6, 0x01, ANY), // BACLEARS
    rule(0xE7, 0x04, ANY), // MS_DECODED
];

/// Unit masks that fewer counters count than the rest of their event select (the same lists).
const CONSTRAINED: [Constraint; 1] = [Constraint { encoding: 0x05D0, counters: 0x03 }];

/// What fixed counters count beside the first three.
const FIXED: [FixedRule; 1] = [
    FixedRule { encoding: 0x013C, counter: 2 }, // CPU_CLK_UNHALTED.REF_TSC_P
];

/// Events whose records name the instruction that caused them: those that the lists mark as precise. Not here: events of
/// micro-operations retired and of floating-point operations, of which one instruction is several, so that the counter passes its
/// overflow by more than one and records times period would not agree with the count; and what no instruction does, such as faults.
const PRECISE: [PreciseRule; 74] = [
    // INST_RETIRED.ANY on fixed counter 0.
    PreciseRule { counters: CounterSet::one_fixed(0), ..counted_as(0x0100, ANY, 0x00C0) },
    precise(0x0103, ANY),            // LD_BLOCKS.DATA_UNKNOWN
    precise(0x0203, ANY),            // LD_BLOCKS.STORE_FORWARD
    precise(0x0403, ANY),            // LD_BLOCKS.ADDRESS_ALIAS
    precise(0x0213, ANY),            // MISALIGN_MEM_REF.LOAD_PAGE_SPLIT
    precise(0x0413, ANY),            // MISALIGN_MEM_REF.STORE_PAGE_SPLIT
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
    precise(0xF9C4, ANY),            // BR_INST_RETIRED.NEAR_CALL
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
    precise(0x20C7, ANY),            // FP_INST_RETIRED.256B_DP
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
    precise(0x1CD1, ANY),            // MEM_LOAD_UOPS_RETIRED.L3_HIT
    precise(0x20D1, ANY),            // MEM_LOAD_UOPS_RETIRED.WCB_HIT
    precise(0x40D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L1_MISS
    precise(0x80D1, ANY),            // MEM_LOAD_UOPS_RETIRED.L2_MISS
    precise(0x01D3, ANY),            // MEM_LOAD_UOPS_L3_MISS_RETIRED.LOCAL_DRAM
    precise(0x02D3, ANY),            // MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_DRAM_OR_NOFWD
    precise(0x04D3, ANY),            // MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_FWD_NONM
    precise(0x08D3, ANY),            // MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_FWD_HITM
    precise(0xFFD3, ANY),            // MEM_LOAD_UOPS_L3_MISS_RETIRED.ALL
    precise(0x02D4, ANY),            // MEM_LOAD_UOPS_MISC_RETIRED.LOCAL_DRAM
    precise(0x08D4, ANY),            // MEM_LOAD_UOPS_MISC_RETIRED.L3_HIT_SNOOP_HITM
    precise(0x10D4, ANY),            // MEM_LOAD_UOPS_MISC_RETIRED.L3_HIT_SNOOP_WITH_FWD
    precise(0x20D4, ANY),            // MEM_LOAD_UOPS_MISC_RETIRED.L3_HIT_SNOOP_NO_FWD
    precise(0x02E0, ANY),            // MISC_RETIRED1.LFENCE
    precise(0xFFE0, ANY),            // MISC_RETIRED1.CL_INST
    precise(0x10E1, ANY),            // MISC_RETIRED2.KEYLOCKER_ACCESS
    precise(0x11E1, ANY),            // MISC_RETIRED2.KEYLOCKER_MISS
    precise(0x01E4, ANY),            // MISC_RETIRED.LBR_INSERTS
];

/// Events that need a register beside their encoding, and the bits that it takes: as Linux's `extra_reg` tables for this core,
/// without bit 63 of the first register, which the second does not have and no event of the lists needs, and without the
/// registers of event 27H (MSR_SNOOP_RSP_0 and _1), which no list names.
const EXTRA: [ExtraRule; 3] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0x000F_F3FF_FFFF_FFFF },
    ExtraRule { encoding: 0x02B7, register: ExtraRegister::OffcoreRsp1, bits: 0x000F_F3FF_FFFF_FFFF },
    ExtraRule { encoding: 0x05D0, register: ExtraRegister::LoadLatency, bits: LATENCY },
];
