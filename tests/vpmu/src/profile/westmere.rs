//! Westmere (client), family 6 model 37, with Hyper-Threading on.

use super::skylake_events::FIXED_EVENTS;
use super::version3::{L1D, L2, NEHALEM, NEHALEM_PMU, WESTMERE_OFFCORE};
use super::westmere_events::EVENTS;
use super::{Microarchitecture, Perfmon, PmuKind, Profile};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Westmere: as Nehalem, with a second off-core response register (SDM Vol. 3B, figure 18-24).
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Nehalem microarchitecture"; the last-level cache is that of the Core i5-660 (4 MiB).
pub static WESTMERE: Profile = Profile {
    name: "westmere",
    // Family 6, display model 37, stepping 5.
    signature: 0x0002_0655,
    pmu: PmuKind::Perfmon(&Perfmon { offcore: WESTMERE_OFFCORE, data_source_tlb_lock: true, ..NEHALEM_PMU }),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 4, line_bytes: 64 },
        l1d: L1D,
        l2: Some(L2),
        llc: CacheGeometry { size_bytes: 4 << 20, associativity: 16, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        llc_latency_cycles: 40,
        memory_latency_cycles: 200,
        // 3.33 GHz over 133 MHz.
        crystal_ratio: 25,
        ..NEHALEM
    },
    hybrid: None,
};
