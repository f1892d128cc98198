//! AMD Ryzen 5000, 7000 and 9000: Zen 3 (family 19h model 21h), Zen 4 (family 19h model 61h) and Zen 5 (family 1Ah model 44h).

use super::zen_events::{EVENTS, ZEN_3_AND_4};
use super::{Amd, CONTROL_12_BIT, ibs};
use crate::micro::{CacheGeometry, Geometry, Indexing};
use crate::profile::{Microarchitecture, PmuKind, Profile, TlbGeometry};

/// Six counters, sampling (PPR 56214).
const ZEN_3_PMU: Amd = Amd {
    counters: 6,
    extended: true,
    control_mask: CONTROL_12_BIT,
    version_2: false,
    ibs: 0x3FF,
    events: &[EVENTS, ZEN_3_AND_4],
};

/// Shapes: Software Optimization Guide for AMD EPYC 7003 Processors (56665), 2.6 to 2.8; the last-level cache is that of
/// one core complex die. Latencies of L3 and memory are chosen.
const ZEN_3_CACHES: Geometry = Geometry {
    l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l2: Some(CacheGeometry { size_bytes: 512 << 10, associativity: 8, line_bytes: 64 }),
    llc: CacheGeometry { size_bytes: 32 << 20, associativity: 16, line_bytes: 64 },
    indexing: Indexing::Physical,
};

const ZEN_3_CORE: Microarchitecture = Microarchitecture {
    retire_width: 8,
    l1d_latency_cycles: 4,
    l2_latency_cycles: 12,
    llc_latency_cycles: 46,
    memory_latency_cycles: 300,
    itlb: TlbGeometry { entries: 64, associativity: 64 },
    dtlb: TlbGeometry { entries: 64, associativity: 64 },
    stlb: TlbGeometry { entries: 2048, associativity: 8 },
    stlb_latency_cycles: 7,
    walk_latency_cycles: 30,
    mispredict_cycles: 13,
    direction_bits: 14,
    target_bits: 12,
    return_stack: 32,
    crystal_ratio: 34,
};

/// Zen 3.
pub static ZEN_3: Profile = Profile {
    name: "zen3",
    // Extended family 0AH, extended model 2, model 1, stepping 0.
    signature: 0x00A2_0F10,
    pmu: PmuKind::Amd(&ZEN_3_PMU),
    events: &[],
    fixed_events: &[],
    geometry: ZEN_3_CACHES,
    microarchitecture: ZEN_3_CORE,
    hybrid: None,
};

const ZEN_4_PMU: Amd = Amd { version_2: true, ibs: 0x3FF | ibs::ZEN4_EXTENSIONS, ..ZEN_3_PMU };

const ZEN_4_CORE: Microarchitecture = Microarchitecture {
    l2_latency_cycles: 14,
    llc_latency_cycles: 50,
    dtlb: TlbGeometry { entries: 72, associativity: 72 },
    stlb: TlbGeometry { entries: 3072, associativity: 24 },
    ..ZEN_3_CORE
};

/// Zen 4: global control and status, and the extensions of instruction-based sampling (PPR 56713). No branch records
/// (LbrStack).
pub static ZEN_4: Profile = Profile {
    name: "zen4",
    // Extended family 0AH, extended model 6, model 1, stepping 2.
    signature: 0x00A6_0F12,
    pmu: PmuKind::Amd(&ZEN_4_PMU),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l2: Some(CacheGeometry { size_bytes: 1 << 20, associativity: 8, line_bytes: 64 }),
        ..ZEN_3_CACHES
    },
    microarchitecture: ZEN_4_CORE,
    hybrid: None,
};

/// Zen 5: other events, and the shapes of the Software Optimization Guide for the AMD Zen5 Microarchitecture (58455). The filters
/// of IBS that came with it (by latency of loads) are not modelled.
pub static ZEN_5: Profile = Profile {
    name: "zen5",
    // Extended family 0BH, extended model 4, model 4, stepping 0.
    signature: 0x00B4_0F40,
    pmu: PmuKind::Amd(&Amd { events: &[EVENTS], ..ZEN_4_PMU }),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l1d: CacheGeometry { size_bytes: 48 << 10, associativity: 12, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 1 << 20, associativity: 16, line_bytes: 64 }),
        ..ZEN_3_CACHES
    },
    microarchitecture: Microarchitecture {
        dtlb: TlbGeometry { entries: 96, associativity: 96 },
        stlb: TlbGeometry { entries: 4096, associativity: 16 },
        return_stack: 52,
        ..ZEN_4_CORE
    },
    hybrid: None,
};
