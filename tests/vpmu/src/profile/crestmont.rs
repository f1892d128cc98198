//! Crestmont: Xeon 6 with efficient cores (Sierra Forest), and the efficient cores of Intel Core Ultra (Meteor
//! Lake).

use super::crestmont_events::{EVENTS, FIXED_EVENTS};
use super::{
    ArchitecturalLbr, Extended, Hybrid, MemoryInfo, Microarchitecture, OffcoreResponse, Perfmon,
    PerfmonExtension, PmuKind, Profile, TlbGeometry,
};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// `CPUID.01H:EAX` is the same on all cores of the part.
pub(super) const METEOR_LAKE_SIGNATURE: u32 = 0x000A_06A4;
/// All cores of the part share it; the low-power ones, which are on another die, have none and are not modelled.
pub(super) const METEOR_LAKE_LLC: CacheGeometry =
    CacheGeometry { size_bytes: 24 << 20, associativity: 12, line_bytes: 64 };
/// `CPUID` leaf 23H tells of each core's own counters, and of nothing else: PEBS is not architectural, and
/// version 5 has no EQ bit.
pub(super) const OWN_COUNTERS: PerfmonExtension =
    PerfmonExtension { unit_mask2: false, equal: false, reload: None, pebs: None };

/// The core's PMU: PerfMon version 5 with 8 general-purpose and 3 fixed-function counters. Linux reports these,
/// PEBS of format 4 and records of depth 32 on Meteor Lake; that Sierra Forest has them, too, is assumed.
pub(super) const PMU: Perfmon = Perfmon {
    version: 5,
    general_counters: 8,
    fixed_counters: 3,
    counter_bits: 48,
    // As Golden Cove's.
    capabilities: 0x74FF,
    pebs_counters: 0xFF,
    pebs_enable_mask: 0x7_0000_00FF,
    data_source_tlb_lock: true,
    // Intel's event lists, OCR.*, and for the mask Linux (intel_cmt_extra_regs).
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
        pebs_fixed: 0b111,
        memory_info: MemoryInfo::Crestmont,
        arch_lbr: Some(ArchitecturalLbr { depths: 0b1011 }),
        perfmon_extension: Some(OWN_COUNTERS),
        ..Extended::NONE
    },
};

/// Six micro-operations are allocated a cycle (the metrics beside Intel's event lists); the rest is Gracemont's.
pub(super) const CORE: Microarchitecture = Microarchitecture {
    retire_width: 6,
    l1d_latency_cycles: 4,
    l2_latency_cycles: 17,
    llc_latency_cycles: 70,
    memory_latency_cycles: 300,
    itlb: TlbGeometry { entries: 64, associativity: 64 },
    dtlb: TlbGeometry { entries: 32, associativity: 32 },
    stlb: TlbGeometry { entries: 2048, associativity: 4 },
    stlb_latency_cycles: 9,
    walk_latency_cycles: 30,
    mispredict_cycles: 16,
    direction_bits: 14,
    target_bits: 12,
    return_stack: 16,
    crystal_ratio: 80,
};

pub(super) const SERVER_CACHES: Geometry = Geometry {
    l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 8, line_bytes: 64 },
    l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l2: Some(CacheGeometry { size_bytes: 4 << 20, associativity: 16, line_bytes: 64 }),
    llc: CacheGeometry { size_bytes: 24 << 20, associativity: 12, line_bytes: 64 },
    indexing: Indexing::Physical,
};

/// Xeon 6 with efficient cores (Sierra Forest), family 6 model 175. The last-level cache is the share of 32 of
/// its 144 cores.
pub static SIERRA_FOREST: Profile = Profile {
    name: "sierraforest",
    // Family 6, extended model 10, model 15 (display model 175), stepping 3.
    signature: 0x000A_06F3,
    pmu: PmuKind::Perfmon(&PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: SERVER_CACHES,
    microarchitecture: CORE,
    hybrid: None,
};

/// Meteor Lake's efficient cores.
pub(super) static METEOR_LAKE_EFFICIENT: Profile = Profile {
    name: "meteorlake-efficient",
    signature: METEOR_LAKE_SIGNATURE,
    pmu: PmuKind::Perfmon(&PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l2: Some(CacheGeometry { size_bytes: 2 << 20, associativity: 16, line_bytes: 64 }),
        llc: METEOR_LAKE_LLC,
        ..SERVER_CACHES
    },
    microarchitecture: CORE,
    hybrid: Some(Hybrid { core_type: 0x20, native_model: 2, efficient: None, low_power: None }),
};
