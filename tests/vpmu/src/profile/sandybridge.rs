//! 2nd generation Intel Core (client Sandy Bridge), family 6 model 42, with Hyper-Threading on.

use super::sandybridge_events::EVENTS;
use super::skylake_events::FIXED_EVENTS;
use super::version3::{L1D, L2, NEHALEM, SANDY_BRIDGE_PMU};
use super::{Microarchitecture, PmuKind, Profile};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Sandy Bridge: PerfMon version 3, PEBS record format 1, precise stores, full-width counter writes
/// (SDM Vol. 3B 18.9).
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Sandy Bridge microarchitecture"; the last-level cache is that of the Core i7-2600 (8 MiB).
pub static SANDY_BRIDGE: Profile = Profile {
    name: "sandybridge",
    // Family 6, display model 42, stepping 7.
    signature: 0x0002_06A7,
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
