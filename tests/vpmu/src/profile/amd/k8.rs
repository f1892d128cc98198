//! AMD Opteron and Athlon 64 (K8), family 0Fh model 41h: one core of the dual-core Opteron.

use super::k8_events::EVENTS;
use super::{Amd, CONTROL_8_BIT};
use crate::micro::{CacheGeometry, Geometry, Indexing};
use crate::profile::{Microarchitecture, PmuKind, Profile, TlbGeometry};

/// There is no cache behind the second level, and the model has no hierarchy without one that the cores share: it is
/// one line, which cannot hold what a core's own second level lacks.
const NO_LLC: CacheGeometry = CacheGeometry { size_bytes: 64, associativity: 1, line_bytes: 64 };

/// K8: four counters without global control, status or sampling (BKDG 32559, "Performance Monitoring"); K7's have the
/// same registers (22007, appendix D).
///
/// Shapes: Software Optimization Guide for AMD64 Processors (25112), appendix A; latencies of memory and page walks
/// are chosen.
pub static K8: Profile = Profile {
    name: "k8",
    // Family 0Fh, extended model 4, model 1, stepping 2.
    signature: 0x0004_0F12,
    pmu: PmuKind::Amd(&Amd {
        counters: 4,
        extended: false,
        control_mask: CONTROL_8_BIT,
        version_2: false,
        ibs: 0,
        events: &[EVENTS],
    }),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 2, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 64 << 10, associativity: 2, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 1 << 20, associativity: 16, line_bytes: 64 }),
        llc: NO_LLC,
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 3,
        l1d_latency_cycles: 3,
        l2_latency_cycles: 12,
        llc_latency_cycles: 120,
        memory_latency_cycles: 120,
        itlb: TlbGeometry { entries: 32, associativity: 32 },
        dtlb: TlbGeometry { entries: 32, associativity: 32 },
        stlb: TlbGeometry { entries: 512, associativity: 4 },
        stlb_latency_cycles: 5,
        walk_latency_cycles: 30,
        mispredict_cycles: 11,
        direction_bits: 14,
        target_bits: 11,
        return_stack: 12,
        crystal_ratio: 10,
    },
    hybrid: None,
};
