//! 1st generation Intel Core (Nehalem), family 6 model 26, with Hyper-Threading on.

use super::nehalem_events::EVENTS;
use super::skylake_events::FIXED_EVENTS;
use super::version3::{L1D, L2, NEHALEM as MICROARCHITECTURE, NEHALEM_PMU};
use super::{PmuKind, Profile};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Nehalem: PerfMon version 3, PEBS record format 1, load latency on any counter (SDM Vol. 3B 18.8).
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Nehalem microarchitecture"; the last-level cache is that of the Core i7-920 (8 MiB).
pub static NEHALEM: Profile = Profile {
    name: "nehalem",
    // Family 6, display model 26, stepping 5.
    signature: 0x0001_06A5,
    pmu: PmuKind::Perfmon(&NEHALEM_PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 4, line_bytes: 64 },
        l1d: L1D,
        l2: Some(L2),
        llc: CacheGeometry { size_bytes: 8 << 20, associativity: 16, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: MICROARCHITECTURE,
    hybrid: None,
};
