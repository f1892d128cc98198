//! 3rd generation Intel Core (client Ivy Bridge), family 6 model 58, with Hyper-Threading on.

use super::ivybridge_events::EVENTS;
use super::skylake_events::FIXED_EVENTS;
use super::version3::{L1D, L2, NEHALEM, SANDY_BRIDGE_PMU};
use super::{Microarchitecture, PmuKind, Profile};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Ivy Bridge: the PMU of Sandy Bridge with other events (SDM Vol. 3B 18.10).
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Sandy Bridge microarchitecture"; the last-level cache is that of the Core i7-3770 (8 MiB).
pub static IVY_BRIDGE: Profile = Profile {
    name: "ivybridge",
    // Family 6, display model 58, stepping 9.
    signature: 0x0003_06A9,
    pmu: PmuKind::Perfmon(&SANDY_BRIDGE_PMU),
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
        l2_latency_cycles: 12,
        llc_latency_cycles: 30,
        memory_latency_cycles: 204,
        mispredict_cycles: 16,
        // 3.4 GHz over 100 MHz.
        crystal_ratio: 34,
        ..NEHALEM
    },
    hybrid: None,
};
