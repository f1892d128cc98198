//! Intel Core Ultra 200V (Lunar Lake), family 6 model 189: Lion Cove and Skymont.

use super::clearwaterforest::ACR;
use super::lioncove_events::{EVENTS, FIXED_EVENTS};
use super::skymont_events;
use super::{
    ArchitecturalLbr, Extended, Hybrid, MemoryInfo, Microarchitecture, OffcoreResponse, Perfmon,
    PerfmonExtension, PmuKind, Profile, TlbGeometry,
};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Family 6, extended model 11, model 13 (display model 189), stepping 1; the same on all cores of the part.
const SIGNATURE: u32 = 0x000B_06D1;
/// `CPUID` leaf 23H tells of each core's own counters, of the EQ bit and of UnitMask2; PEBS is not architectural.
const EXTENSION: PerfmonExtension =
    PerfmonExtension { unit_mask2: true, equal: true, reload: None, pebs: None };
/// Of Skymont's events none has a unit mask above FFH: that it has no UnitMask2 is assumed. It has auto counter reload, Lion Cove
/// has not (Linux: intel_pmu_init_skt).
const EFFICIENT_EXTENSION: PerfmonExtension =
    PerfmonExtension { unit_mask2: false, reload: Some(ACR), ..EXTENSION };

/// Lion Cove's PMU: PerfMon version 6, ten general-purpose counters, PEBS of format 6, whose group of counters
/// is not modelled.
pub(super) const PMU: Perfmon = Perfmon {
    version: 6,
    general_counters: 10,
    fixed_counters: 4,
    counter_bits: 48,
    // As Golden Cove's, with PEBS format 6 (11:8).
    capabilities: 0x76FF,
    pebs_counters: 0x3FF,
    pebs_enable_mask: 0xF_0000_03FF,
    data_source_tlb_lock: true,
    // Intel's event lists, OCR.*, and for the mask Linux (intel_lnc_extra_regs). Snoop results are bits 37 and
    // up; which of them means what the lists do not tell, so that none is asked for.
    offcore: OffcoreResponse {
        registers: 2,
        mask: 0xFFF_FFFF_FFFF,
        any: 1 << 16,
        hit: 1 << 21,
        memory: 1 << 31,
        snoop: 0,
    },
    frontend_mask: 0x7F_FF1F,
    lbr_depth: 0,
    lbr_select_mask: 0,
    debugctl_mask: 0x7FC3,
    extended: Extended {
        pebs_fixed: 0xF,
        memory_info: MemoryInfo::LionCove,
        arch_lbr: Some(ArchitecturalLbr { depths: 0b1011 }),
        perfmon_extension: Some(EXTENSION),
        ..Extended::NONE
    },
};

/// Skymont's: eight general-purpose counters, fixed-function counters 0 to 2 and 4 to 6.
pub(super) const EFFICIENT_PMU: Perfmon = Perfmon {
    general_counters: 8,
    fixed_counters: 7,
    pebs_counters: 0xFF,
    pebs_enable_mask: 0x7_0000_00FF,
    // As Crestmont's (Linux: intel_cmt_extra_regs).
    offcore: OffcoreResponse {
        mask: 0xF_F3FF_FFFF_FFFF,
        hit: 1 << 19,
        memory: 1 << 26,
        snoop: 0x3F_8000_0000,
        ..PMU.offcore
    },
    frontend_mask: 0,
    extended: Extended {
        absent_fixed: 1 << 3,
        pebs_fixed: 0b111,
        memory_info: MemoryInfo::Crestmont,
        perfmon_extension: Some(EFFICIENT_EXTENSION),
        ..PMU.extended
    },
    ..PMU
};

/// All sizes and latencies follow what Intel has shown of these cores, or are chosen. Eight slots a cycle (the
/// metrics beside Intel's event lists). Lion Cove's two levels of L1 are one here.
pub(super) const CORE: Microarchitecture = Microarchitecture {
    retire_width: 8,
    l1d_latency_cycles: 5,
    l2_latency_cycles: 17,
    llc_latency_cycles: 70,
    memory_latency_cycles: 300,
    itlb: TlbGeometry { entries: 256, associativity: 8 },
    dtlb: TlbGeometry { entries: 96, associativity: 6 },
    stlb: TlbGeometry { entries: 2048, associativity: 16 },
    stlb_latency_cycles: 7,
    walk_latency_cycles: 30,
    mispredict_cycles: 17,
    direction_bits: 14,
    target_bits: 12,
    return_stack: 16,
    crystal_ratio: 80,
};

pub(super) const EFFICIENT_CORE: Microarchitecture = Microarchitecture {
    l1d_latency_cycles: 4,
    l2_latency_cycles: 19,
    itlb: TlbGeometry { entries: 128, associativity: 128 },
    dtlb: TlbGeometry { entries: 48, associativity: 48 },
    stlb: TlbGeometry { entries: 4096, associativity: 4 },
    stlb_latency_cycles: 9,
    mispredict_cycles: 16,
    ..CORE
};

pub(super) const CACHES: Geometry = Geometry {
    l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 16, line_bytes: 64 },
    l1d: CacheGeometry { size_bytes: 48 << 10, associativity: 12, line_bytes: 64 },
    l2: Some(CacheGeometry { size_bytes: 2 << 20, associativity: 16, line_bytes: 64 }),
    llc: CacheGeometry { size_bytes: 12 << 20, associativity: 12, line_bytes: 64 },
    indexing: Indexing::Physical,
};

pub(super) const EFFICIENT_CACHES: Geometry = Geometry {
    l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 8, line_bytes: 64 },
    l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l2: Some(CacheGeometry { size_bytes: 4 << 20, associativity: 16, line_bytes: 64 }),
    ..CACHES
};

/// The performance cores, and through [`Profile::of_cpu`] the efficient ones.
pub static LUNAR_LAKE: Profile = Profile {
    name: "lunarlake",
    signature: SIGNATURE,
    pmu: PmuKind::Perfmon(&PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: CACHES,
    microarchitecture: CORE,
    hybrid: Some(Hybrid {
        core_type: 0x40,
        native_model: 3,
        efficient: Some(&LUNAR_LAKE_EFFICIENT),
        low_power: None,
    }),
};

static LUNAR_LAKE_EFFICIENT: Profile = Profile {
    name: "lunarlake-efficient",
    signature: SIGNATURE,
    pmu: PmuKind::Perfmon(&EFFICIENT_PMU),
    events: skymont_events::EVENTS,
    fixed_events: skymont_events::FIXED_EVENTS,
    geometry: EFFICIENT_CACHES,
    microarchitecture: EFFICIENT_CORE,
    hybrid: Some(Hybrid { core_type: 0x20, native_model: 3, efficient: None, low_power: None }),
};
