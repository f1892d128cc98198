//! 5th generation Intel Core (client Broadwell), family 6 model 61, with Hyper-Threading on.

use super::broadwell_events::EVENTS;
use super::skylake_events::FIXED_EVENTS;
use super::version3::{BROADWELL_OFFCORE, HASWELL_PMU, L1D, L2, NEHALEM};
use super::{Microarchitecture, Perfmon, PmuKind, Profile, TlbGeometry};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Broadwell: the PMU of Haswell with other off-core suppliers and events (SDM Vol. 3B 18.12). No TSX.
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Broadwell microarchitecture"; the last-level cache is that of the Core i7-5557U (4 MiB).
pub static BROADWELL: Profile = Profile {
    name: "broadwell",
    // Family 6, display model 61, stepping 4.
    signature: 0x0003_06D4,
    pmu: PmuKind::Perfmon(&Perfmon { offcore: BROADWELL_OFFCORE, ..HASWELL_PMU }),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: L1D,
        l1d: L1D,
        l2: Some(L2),
        llc: CacheGeometry { size_bytes: 4 << 20, associativity: 16, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        l2_latency_cycles: 12,
        llc_latency_cycles: 34,
        memory_latency_cycles: 186,
        stlb: TlbGeometry { entries: 1536, associativity: 6 },
        mispredict_cycles: 16,
        direction_bits: 14,
        target_bits: 12,
        // 3.1 GHz over 100 MHz.
        crystal_ratio: 31,
        ..NEHALEM
    },
    hybrid: None,
};
