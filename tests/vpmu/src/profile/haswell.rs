//! 4th generation Intel Core (client Haswell), family 6 model 60, with Hyper-Threading on.

use super::haswell_events::EVENTS;
use super::skylake_events::FIXED_EVENTS;
use super::version3::{HASWELL_PMU, L1D, L2, NEHALEM};
use super::{Microarchitecture, PmuKind, Profile, TlbGeometry};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Haswell: PerfMon version 3, PEBS record format 2 with data address profiling, call-stack branch records
/// (SDM Vol. 3B 18.11). No TSX: its bits are reserved.
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Haswell microarchitecture"; the last-level cache is that of the Core i7-4770 (8 MiB).
pub static HASWELL: Profile = Profile {
    name: "haswell",
    // Family 6, display model 60, stepping 3.
    signature: 0x0003_06C3,
    pmu: PmuKind::Perfmon(&HASWELL_PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: L1D,
        l1d: L1D,
        l2: Some(L2),
        llc: CacheGeometry { size_bytes: 8 << 20, associativity: 16, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        l2_latency_cycles: 11,
        llc_latency_cycles: 34,
        memory_latency_cycles: 204,
        stlb: TlbGeometry { entries: 1024, associativity: 8 },
        mispredict_cycles: 16,
        direction_bits: 14,
        target_bits: 12,
        // 3.4 GHz over 100 MHz.
        crystal_ratio: 34,
        ..NEHALEM
    },
    hybrid: None,
};
