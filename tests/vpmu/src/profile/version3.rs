//! What the parts with PerfMon version 3, Nehalem to Broadwell, have in common.

use super::{Extended, Microarchitecture, OffcoreResponse, Perfmon, TlbGeometry};
use crate::micro::CacheGeometry;

/// The PMU of Nehalem (SDM Vol. 3B 18.8); later parts differ from it in what they name.
pub(super) const NEHALEM_PMU: Perfmon = Perfmon {
    version: 3,
    general_counters: 4,
    fixed_counters: 3,
    // Both kinds of counters (18.8: "The width of counter reported by CPUID.0AH:EAX[23:16] is 48 bits").
    counter_bits: 48,
    // LBR format 3 (5:0), PEBS_TRAP (6), PEBS_ARCH_REG (7), PEBS format 1 (11:8), FREEZE_WHILE_SMM (12).
    capabilities: 0x11C3,
    pebs_counters: 0xF,
    // PEBS_EN and LL_EN of each counter (figure 18-21).
    pebs_enable_mask: 0xF_0000_000F,
    data_source_tlb_lock: false,
    offcore: NEHALEM_OFFCORE,
    frontend_mask: 0,
    lbr_depth: 16,
    // CPL_EQ_0 to FAR_BRANCH (table 17-11).
    lbr_select_mask: 0x1FF,
    // LBR, BTF, TR, BTS, BTINT, BTS_OFF_OS, BTS_OFF_USR, FREEZE_LBRS_ON_PMI, FREEZE_PERFMON_ON_PMI,
    // UNCORE_PMI_EN, FREEZE_WHILE_SMM_EN (figure 17-11).
    debugctl_mask: 0x7FC3,
    extended: Extended::NONE,
};

/// MSR_OFFCORE_RSP_0 (18.8.1.3, table 18-26): request in bits 7:0, response in bits 15:8, of which UNCORE_HIT
/// is bit 8 and LOCAL_DRAM bit 14.
const NEHALEM_OFFCORE: OffcoreResponse =
    OffcoreResponse { registers: 1, mask: 0xFFFF, any: 0, hit: 1 << 8, memory: 1 << 14, snoop: 0 };

/// Westmere has two such registers (figure 18-24 shows both).
pub(super) const WESTMERE_OFFCORE: OffcoreResponse = OffcoreResponse { registers: 2, ..NEHALEM_OFFCORE };

/// MSR_OFFCORE_RSP_0 and _1 of client Sandy Bridge (18.9.5, tables 18-35 to 18-38): request 15:0 without 14:12,
/// supplier 22:16 (LLC_HITE is bit 19, LOCAL bit 22), snoop 37:31.
const SANDY_BRIDGE_OFFCORE: OffcoreResponse = OffcoreResponse {
    registers: 2,
    mask: 0x3F_807F_8FFF,
    any: 1 << 16,
    hit: 1 << 19,
    memory: 1 << 22,
    snoop: 0x3F_8000_0000,
};

/// Client Broadwell defines suppliers up to bit 30 (18.12).
pub(super) const BROADWELL_OFFCORE: OffcoreResponse =
    OffcoreResponse { mask: 0x3F_FFFF_8FFF, ..SANDY_BRIDGE_OFFCORE };

/// The PMU of Sandy Bridge (18.9).
pub(super) const SANDY_BRIDGE_PMU: Perfmon = Perfmon {
    // As Nehalem's, with FW_WRITE (13).
    capabilities: 0x31C3,
    // PS_EN (figure 18-35).
    pebs_enable_mask: 1 << 63 | 0xF_0000_000F,
    data_source_tlb_lock: true,
    offcore: SANDY_BRIDGE_OFFCORE,
    ..NEHALEM_PMU
};

/// The PMU of Haswell (18.11).
pub(super) const HASWELL_PMU: Perfmon = Perfmon {
    // LBR format 4, PEBS format 2; else as Sandy Bridge's.
    capabilities: 0x32C4,
    // Data address profiling takes the place of precise stores (18.11.3).
    pebs_enable_mask: 0xF_0000_000F,
    // EN_CALLSTACK (table 17-13).
    lbr_select_mask: 0x3FF,
    ..SANDY_BRIDGE_PMU
};

/// The level-one data cache of all these parts.
pub(super) const L1D: CacheGeometry =
    CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 };
/// Their second-level cache.
pub(super) const L2: CacheGeometry =
    CacheGeometry { size_bytes: 256 << 10, associativity: 8, line_bytes: 64 };

/// Nehalem's microarchitecture (Optimization Reference Manual, "Nehalem microarchitecture", tables "Cache
/// parameters" and "TLB parameters"); docs/pmu-model.md says what was chosen.
pub(super) const NEHALEM: Microarchitecture = Microarchitecture {
    retire_width: 4,
    l1d_latency_cycles: 4,
    l2_latency_cycles: 10,
    llc_latency_cycles: 38,
    memory_latency_cycles: 160,
    itlb: TlbGeometry { entries: 128, associativity: 4 },
    dtlb: TlbGeometry { entries: 64, associativity: 4 },
    stlb: TlbGeometry { entries: 512, associativity: 4 },
    stlb_latency_cycles: 7,
    walk_latency_cycles: 30,
    mispredict_cycles: 17,
    direction_bits: 13,
    target_bits: 11,
    return_stack: 16,
    // 2.66 GHz over a bus clock of 133 MHz, which is what CPU_CLK_UNHALTED.REF_P counts.
    crystal_ratio: 20,
};
