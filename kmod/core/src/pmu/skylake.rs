//! Skylake and the processors with its core: PerfMon version 4, PEBS format 3 (SDM Vol. 3B 20.3.8).

use super::super::abi::CoreType;
use super::{
    counted_as, only_precise, precise as sampled, rule, Constraint, EventRule, ExtraRegister, ExtraRule,
    Generation, PreciseRule, Quirks, LATENCY,
};

/// General counters 0 to 3: those that exist with hyper-threading on, and that can write PEBS records.
const LOW: u16 = 0x0F;
/// Every general counter that the processor has.
const ANY: u16 = 0xFF;

/// Skylake, Kaby Lake, Coffee Lake, Comet Lake; Skylake, Cascade Lake and Cooper Lake servers.
pub const SKYLAKE: Generation = Generation {
    name: "skylake",
    models: &[0x4E, 0x55, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6],
    events: &EVENTS,
    precise: &PRECISE,
    hybrid_models: &[],
    core_type: CoreType::Any,
    constrained: &CONSTRAINED,
    fixed: &[],
    extra: &EXTRA,
    quirks: Quirks::NONE,
    pebs_formats: &[3],
    pebs_counters: LOW,
    lbr_format: 5,
    errata: &[],
};

const fn any(select: u16, unit_mask_bits: u16) -> EventRule {
    rule(select, unit_mask_bits, ANY)
}

const fn low(select: u16, unit_mask_bits: u16) -> EventRule {
    rule(select, unit_mask_bits, LOW)
}

/// Intel's event lists for Skylake, client and server (perfmon, SKL and SKX), by event select. Events of memory
/// instructions are counted by counters 0 to 3 only.
const EVENTS: [EventRule; 68] = [
    any(0x03, 0x0A), // LD_BLOCKS
    any(0x07, 0x01), // LD_BLOCKS_PARTIAL
    any(0x08, 0x3F), // DTLB_LOAD_MISSES
    any(0x09, 0x01), // MEMORY_DISAMBIGUATION
    any(0x0D, 0x81), // INT_MISC
    any(0x0E, 0x23), // UOPS_ISSUED
    any(0x14, 0x01), // ARITH
    any(0x24, 0xFF), // L2_RQSTS
    any(0x28, 0x78), // CORE_POWER
    any(0x2E, 0x4F), // LONGEST_LAT_CACHE
    any(0x32, 0x0F), // SW_PREFETCH_ACCESS
    any(0x3C, 0x03), // CPU_CLK_UNHALTED
    any(0x48, 0x03), // L1D_PEND_MISS
    any(0x49, 0x3F), // DTLB_STORE_MISSES
    any(0x4C, 0x01), // LOAD_HIT_PRE
    any(0x4F, 0x10), // EPT
    any(0x51, 0x01), // L1D
    any(0x54, 0x7F), // TX_MEM
    any(0x59, 0x01), // PARTIAL_RAT_STALLS
    any(0x5D, 0x1F), // TX_EXEC
    any(0x5E, 0x01), // RS_EVENTS
    any(0x60, 0x1F), // OFFCORE_REQUESTS_OUTSTANDING
    any(0x79, 0x3C), // IDQ
    any(0x80, 0x04), // ICACHE_16B
    any(0x83, 0x07), // ICACHE_64B
    any(0x85, 0x3F), // ITLB_MISSES
    any(0x87, 0x01), // ILD_STALL
    any(0x9C, 0x01), // IDQ_UOPS_NOT_DELIVERED
    any(0xA1, 0xFF), // UOPS_DISPATCHED_PORT
    any(0xA2, 0x09), // RESOURCE_STALLS
    any(0xA3, 0x1F), // CYCLE_ACTIVITY
    any(0xA6, 0x5F), // EXE_ACTIVITY
    any(0xA8, 0x01), // LSD
    any(0xAB, 0x03), // DSB2MITE_SWITCHES
    any(0xAE, 0x01), // ITLB
    any(0xB0, 0x9F), // OFFCORE_REQUESTS
    any(0xB1, 0x13), // UOPS_EXECUTED
    any(0xB2, 0x01), // OFFCORE_REQUESTS_BUFFER
    any(0xB7, 0x01), // OFFCORE_RESPONSE
    any(0xBB, 0x01), // OFFCORE_RESPONSE
    any(0xBD, 0x21), // TLB_FLUSH
    any(0xC0, 0x01), // INST_RETIRED
    any(0xC1, 0x3F), // OTHER_ASSISTS
    any(0xC2, 0x03), // UOPS_RETIRED
    any(0xC3, 0x07), // MACHINE_CLEARS
    any(0xC4, 0x7F), // BR_INST_RETIRED
    any(0xC5, 0x27), // BR_MISP_RETIRED
    low(0xC6, 0x01), // FRONTEND_RETIRED
    any(0xC7, 0xFF), // FP_ARITH_INST_RETIRED
    any(0xC8, 0xFF), // HLE_RETIRED
    any(0xC9, 0xFF), // RTM_RETIRED
    any(0xCA, 0x1E), // FP_ASSIST
    any(0xCB, 0x01), // HW_INTERRUPTS
    any(0xCC, 0x60), // ROB_MISC_EVENTS
    low(0xCD, 0x01), // MEM_TRANS_RETIRED
    low(0xD0, 0xF3), // MEM_INST_RETIRED
    low(0xD1, 0x7F), // MEM_LOAD_RETIRED
    low(0xD2, 0x0F), // MEM_LOAD_L3_HIT_RETIRED
    low(0xD3, 0x1F), // MEM_LOAD_L3_MISS_RETIRED
    low(0xD4, 0x04), // MEM_LOAD_MISC_RETIRED
    any(0xE6, 0x01), // BACLEARS
    any(0xEC, 0x02), // CPU_CLK_UNHALTED, by distributed cycles
    any(0xEF, 0x7F), // CORE_SNOOP_RESPONSE
    any(0xF0, 0x40), // L2_TRANS
    any(0xF1, 0x1F), // L2_LINES_IN
    any(0xF2, 0x07), // L2_LINES_OUT
    any(0xF4, 0x10), // SQ_MISC
    any(0xFE, 0x06), // IDI_MISC
];

/// What one counter alone counts, also without a record.
const CONSTRAINED: [Constraint; 1] = [Constraint { encoding: 0x01C0, counters: 0x02 }]; // INST_RETIRED.PREC_DIST

const fn precise(encoding: u64) -> PreciseRule {
    sampled(encoding, LOW)
}

/// Precise events (Vol. 3B 20.3.8.1.2, table 20-21). Not here: UOPS_RETIRED, of which one instruction is several, so that
/// the counter passes its overflow by more than one and records times period would not agree with the count.
const PRECISE: [PreciseRule; 36] = [
    // INST_RETIRED.PREC_DIST, on counter 1 only; what it counts is every retired instruction.
    counted_as(0x01C0, 0x02, 0x00C0),
    precise(0x01C4), // BR_INST_RETIRED.CONDITIONAL
    precise(0x02C4), // BR_INST_RETIRED.NEAR_CALL
    // BR_INST_RETIRED.ALL_BRANCHES_PEBS, the precise twin of the architectural event.
    counted_as(0x04C4, LOW, 0x00C4),
    precise(0x08C4), // BR_INST_RETIRED.NEAR_RETURN
    precise(0x20C4), // BR_INST_RETIRED.NEAR_TAKEN
    precise(0x40C4), // BR_INST_RETIRED.FAR_BRANCH
    precise(0x01C5), // BR_MISP_RETIRED.CONDITIONAL
    precise(0x02C5), // BR_MISP_RETIRED.NEAR_CALL
    // BR_MISP_RETIRED.ALL_BRANCHES_PEBS
    counted_as(0x04C5, LOW, 0x00C5),
    precise(0x20C5),           // BR_MISP_RETIRED.NEAR_TAKEN
    precise(0x01C6),           // FRONTEND_RETIRED
    precise(0x04C8),           // HLE_RETIRED.ABORTED
    precise(0x04C9),           // RTM_RETIRED.ABORTED
    only_precise(0x01CD, LOW), // MEM_TRANS_RETIRED.LOAD_LATENCY
    precise(0x11D0),           // MEM_INST_RETIRED.STLB_MISS_LOADS
    precise(0x12D0),           // MEM_INST_RETIRED.STLB_MISS_STORES
    precise(0x21D0),           // MEM_INST_RETIRED.LOCK_LOADS
    precise(0x41D0),           // MEM_INST_RETIRED.SPLIT_LOADS
    precise(0x42D0),           // MEM_INST_RETIRED.SPLIT_STORES
    precise(0x81D0),           // MEM_INST_RETIRED.ALL_LOADS
    precise(0x82D0),           // MEM_INST_RETIRED.ALL_STORES
    precise(0x01D1),           // MEM_LOAD_RETIRED.L1_HIT
    precise(0x02D1),           // MEM_LOAD_RETIRED.L2_HIT
    precise(0x04D1),           // MEM_LOAD_RETIRED.L3_HIT
    precise(0x08D1),           // MEM_LOAD_RETIRED.L1_MISS
    precise(0x10D1),           // MEM_LOAD_RETIRED.L2_MISS
    precise(0x20D1),           // MEM_LOAD_RETIRED.L3_MISS
    precise(0x40D1),           // MEM_LOAD_RETIRED.FB_HIT
    precise(0x01D2),           // MEM_LOAD_L3_HIT_RETIRED.XSNP_MISS
    precise(0x02D2),           // MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT
    precise(0x04D2),           // MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM
    precise(0x08D2),           // MEM_LOAD_L3_HIT_RETIRED.XSNP_NONE
    precise(0x01D3),           // MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM
    precise(0x02D3),           // MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM
    precise(0x04D4),           // MEM_LOAD_MISC_RETIRED.UC
];

/// Events that need a register beside their encoding, and the bits that it takes (as Linux's `extra_reg` tables for this
/// core).
const EXTRA: [ExtraRule; 4] = [
    ExtraRule { encoding: 0x01B7, register: ExtraRegister::OffcoreRsp0, bits: 0x3F_FFFF_8FFF },
    ExtraRule { encoding: 0x01BB, register: ExtraRegister::OffcoreRsp1, bits: 0x3F_FFFF_8FFF },
    ExtraRule { encoding: 0x01CD, register: ExtraRegister::LoadLatency, bits: LATENCY },
    ExtraRule { encoding: 0x01C6, register: ExtraRegister::Frontend, bits: 0x7F_FF17 },
];
