//! The efficient cores of 12th generation Intel Core (Alder Lake): Gracemont.

use super::gracemont_events::{EVENTS, FIXED_EVENTS};
use super::{
    ArchitecturalLbr, Extended, Hybrid, MemoryInfo, Microarchitecture, OffcoreResponse, Perfmon, PmuKind,
    Profile, TlbGeometry,
};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// `CPUID.01H:EAX` is the same on all cores of the part.
pub(super) const ALDER_LAKE_SIGNATURE: u32 = 0x0009_0672;
/// All cores of the part share it.
pub(super) const ALDER_LAKE_LLC: CacheGeometry =
    CacheGeometry { size_bytes: 12 << 20, associativity: 12, line_bytes: 64 };

/// Gracemont: PerfMon version 5 with 6 general-purpose and 3 fixed-function counters.
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Gracemont microarchitecture"; 2 MiB of L2 are shared by four cores, here each has its
/// own. The latencies beyond L2 are chosen.
pub(super) static ALDER_LAKE_EFFICIENT: Profile = Profile {
    name: "alderlake-efficient",
    signature: ALDER_LAKE_SIGNATURE,
    pmu: PmuKind::Perfmon(&Perfmon {
        version: 5,
        general_counters: 6,
        fixed_counters: 3,
        counter_bits: 48,
        // As Golden Cove's.
        capabilities: 0x74FF,
        pebs_counters: 0x3F,
        pebs_enable_mask: 0x7_0000_003F,
        data_source_tlb_lock: true,
        // Intel's event list, OCR.*.
        offcore: OffcoreResponse {
            registers: 2,
            mask: 0x3_F03F_FFFF_FFFF,
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
            memory_info: MemoryInfo::Gracemont,
            arch_lbr: Some(ArchitecturalLbr { depths: 0b1011 }),
            ..Extended::NONE
        },
    }),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 8, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 2 << 20, associativity: 16, line_bytes: 64 }),
        llc: ALDER_LAKE_LLC,
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 5,
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
    },
    hybrid: Some(Hybrid { core_type: 0x20, native_model: 1, efficient: None, low_power: None }),
};
