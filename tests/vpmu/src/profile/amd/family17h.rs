//! AMD Ryzen 1000 and EPYC 7002: Zen 1 (family 17h model 1) and Zen 2 (family 17h model 31h).

use super::family17h_events::{BOTH, ZEN_1_ALONE, ZEN_2_ALONE};
use super::{Amd, CONTROL_12_BIT};
use crate::micro::{CacheGeometry, Geometry, Indexing};
use crate::profile::{Microarchitecture, PmuKind, Profile, TlbGeometry};

/// Six counters, sampling (PPR 54945).
const ZEN_1_PMU: Amd = Amd {
    counters: 6,
    extended: true,
    control_mask: CONTROL_12_BIT,
    version_2: false,
    ibs: 0x3FF,
    events: &[BOTH, ZEN_1_ALONE],
};

/// Zen 1.
///
/// Shapes: Software Optimization Guide for AMD Family 17h Processors (55723), 2.6 to 2.8; the last-level cache is that of
/// one core complex. Latencies of L3 and memory are chosen.
pub static ZEN_1: Profile = Profile {
    name: "zen1",
    // Extended family 8, extended model 0, model 1, stepping 1.
    signature: 0x0080_0F11,
    pmu: PmuKind::Amd(&ZEN_1_PMU),
    events: &[],
    fixed_events: &[],
    geometry: ZEN_1_CACHES,
    microarchitecture: ZEN_1_CORE,
    hybrid: None,
};

const ZEN_1_CACHES: Geometry = Geometry {
    l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 4, line_bytes: 64 },
    l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l2: Some(CacheGeometry { size_bytes: 512 << 10, associativity: 8, line_bytes: 64 }),
    llc: CacheGeometry { size_bytes: 8 << 20, associativity: 16, line_bytes: 64 },
    indexing: Indexing::Physical,
};

const ZEN_1_CORE: Microarchitecture = Microarchitecture {
    retire_width: 8,
    l1d_latency_cycles: 4,
    l2_latency_cycles: 12,
    llc_latency_cycles: 39,
    memory_latency_cycles: 300,
    itlb: TlbGeometry { entries: 64, associativity: 64 },
    dtlb: TlbGeometry { entries: 64, associativity: 64 },
    stlb: TlbGeometry { entries: 1536, associativity: 12 },
    stlb_latency_cycles: 7,
    walk_latency_cycles: 30,
    mispredict_cycles: 13,
    direction_bits: 13,
    target_bits: 12,
    return_stack: 32,
    crystal_ratio: 34,
};

/// Zen 2: other events (PPR 55803), and the shapes of 56305.
pub static ZEN_2: Profile = Profile {
    name: "zen2",
    // Extended family 8, extended model 3, model 1, stepping 0.
    signature: 0x0083_0F10,
    pmu: PmuKind::Amd(&Amd { events: &[BOTH, ZEN_2_ALONE], ..ZEN_1_PMU }),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        llc: CacheGeometry { size_bytes: 16 << 20, associativity: 16, line_bytes: 64 },
        ..ZEN_1_CACHES
    },
    microarchitecture: Microarchitecture {
        stlb: TlbGeometry { entries: 2048, associativity: 16 },
        direction_bits: 14,
        ..ZEN_1_CORE
    },
    hybrid: None,
};
