//! AMD Opteron and Phenom II (K10), family 10h model 4.

use super::family10h_events::EVENTS;
use super::{Amd, CONTROL_12_BIT, ibs};
use crate::micro::{CacheGeometry, Geometry, Indexing};
use crate::profile::{Microarchitecture, PmuKind, Profile, TlbGeometry};

/// Family 10h: the counters of K8 with longer event selects, and instruction-based sampling (BKDG 31116, 3.12).
///
/// Shapes: Software Optimization Guide for AMD Family 10h and 12h Processors (40546), appendix A; the last-level cache
/// is that of model 4 (6 MiB); latencies beyond L2 are chosen.
pub static FAMILY_10H: Profile = Profile {
    name: "family10h",
    // Family 10h, model 4, stepping 2.
    signature: 0x0010_0F42,
    pmu: PmuKind::Amd(&Amd {
        counters: 4,
        extended: false,
        control_mask: CONTROL_12_BIT,
        version_2: false,
        ibs: ibs::IBSFFV | ibs::FETCH_SAM | ibs::OP_SAM | ibs::RD_WR_OP_CNT | ibs::OP_CNT,
        events: &[EVENTS],
    }),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 2, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 64 << 10, associativity: 2, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 512 << 10, associativity: 16, line_bytes: 64 }),
        llc: CacheGeometry { size_bytes: 6 << 20, associativity: 48, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 3,
        l1d_latency_cycles: 3,
        l2_latency_cycles: 15,
        llc_latency_cycles: 45,
        memory_latency_cycles: 180,
        itlb: TlbGeometry { entries: 32, associativity: 32 },
        dtlb: TlbGeometry { entries: 48, associativity: 48 },
        stlb: TlbGeometry { entries: 512, associativity: 4 },
        stlb_latency_cycles: 5,
        walk_latency_cycles: 30,
        mispredict_cycles: 12,
        direction_bits: 14,
        target_bits: 11,
        return_stack: 24,
        crystal_ratio: 14,
    },
    hybrid: None,
};
