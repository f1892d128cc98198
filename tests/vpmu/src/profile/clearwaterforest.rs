//! Xeon 6+ with efficient cores (Clearwater Forest), family 6 model 221: Darkmont.

use super::darkmont_events::{EVENTS, FIXED_EVENTS};
use super::{
    ArchitecturalLbr, ArchitecturalPebs, AutoCounterReload, Extended, MemoryInfo, Microarchitecture,
    OffcoreResponse, Perfmon, PerfmonExtension, PmuKind, Profile, TlbGeometry,
};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Auto counter reload of Darkmont and Skymont. Known of it: Linux enables it on both (intel_pmu_init_skt), and on Panther Lake
/// "GP counter 0 and 1 doesn't support auto counter reload", so that bit 0 of CFG_B faults ("Fix IA32_PMC_x_CFG_B MSRs access
/// error"), where the value that faulted, for IA32_PMC_FX1_CFG_B, also has bit 33: fixed-function counter 1 is taken to be in both masks,
/// for Linux assigns such events within them. Assumed: that all other general-purpose counters are, too, also on Clearwater Forest and
/// Skymont, and that no other fixed-function counter is.
pub(super) const ACR: AutoCounterReload =
    AutoCounterReload { general: 0xFC, fixed: 0b10, general_causes: 0xFC, fixed_causes: 0b10 };

/// Darkmont's PMU.
pub(super) const DARKMONT_PMU: Perfmon = Perfmon {
    version: 6,
    general_counters: 8,
    // 0 to 2 and 4 to 6.
    fixed_counters: 7,
    counter_bits: 48,
    // Architectural LBR (5:0 all set), PEBS_TRAP (6), PEBS_ARCH_REG (7), architectural PEBS (11:8 all
    // set), FREEZE_WHILE_SMM (12), FW_WRITE (13).
    capabilities: 0x3FFF,
    pebs_counters: 0xFF,
    // There is no such register.
    pebs_enable_mask: 0,
    data_source_tlb_lock: true,
    // Intel's event list, OCR.*.
    offcore: OffcoreResponse {
        registers: 2,
        mask: 0xF_F3FF_FFFF_FFFF,
        any: 1 << 16,
        hit: 1 << 19,
        memory: 1 << 26,
        snoop: 0x3F_8000_0000,
    },
    frontend_mask: 0,
    lbr_depth: 0,
    lbr_select_mask: 0,
    debugctl_mask: 0x7FC3,
    extended: Extended {
        absent_fixed: 1 << 3,
        pebs_fixed: 0b111,
        memory_info: MemoryInfo::Crestmont,
        arch_lbr: Some(ArchitecturalLbr { depths: 0b1011 }),
        perfmon_extension: Some(PerfmonExtension {
            unit_mask2: true,
            equal: true,
            reload: Some(ACR),
            pebs: Some(ArchitecturalPebs {
                general: 0xFF,
                pdist_general: 0b1,
                pdist_fixed: 0b1,
                // AUX (30), GPR (29), XMM (17), LBR (9:8).
                groups: 0x6002_0300,
            }),
        }),
        ..Extended::NONE
    },
};

/// Clearwater Forest: PerfMon version 6 with `CPUID` leaf 23H, architectural PEBS and branch records.
///
/// Which counters can be used for PEBS and which groups a record can have is for `CPUID` to say and not in
/// the manuals: here all general-purpose counters and fixed-function counters 0 to 2, and the groups
/// auxiliary, GPR, XMM and LBR. Cache and TLB shapes follow what Intel has shown of Skymont and Darkmont; the
/// latencies are chosen.
pub static CLEARWATER_FOREST: Profile = Profile {
    name: "clearwaterforest",
    // Family 6, extended model 13, model 13 (display model 221).
    signature: 0x000D_06D0,
    pmu: PmuKind::Perfmon(&DARKMONT_PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 8, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 4 << 20, associativity: 16, line_bytes: 64 }),
        llc: CacheGeometry { size_bytes: 32 << 20, associativity: 16, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 8,
        l1d_latency_cycles: 4,
        l2_latency_cycles: 19,
        llc_latency_cycles: 70,
        memory_latency_cycles: 300,
        itlb: TlbGeometry { entries: 128, associativity: 128 },
        dtlb: TlbGeometry { entries: 48, associativity: 48 },
        stlb: TlbGeometry { entries: 4096, associativity: 4 },
        stlb_latency_cycles: 9,
        walk_latency_cycles: 30,
        mispredict_cycles: 16,
        direction_bits: 14,
        target_bits: 12,
        return_stack: 16,
        crystal_ratio: 80,
    },
    hybrid: None,
};
