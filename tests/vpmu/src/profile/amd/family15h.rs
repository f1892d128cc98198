//! AMD Opteron 6200 (Bulldozer), family 15h model 1.

use super::family15h_events::EVENTS;
use super::{Amd, CONTROL_12_BIT};
use crate::micro::{CacheGeometry, Geometry, Indexing};
use crate::profile::{Microarchitecture, PmuKind, Profile, TlbGeometry};

/// Family 15h: six counters, most events on some of them only (BKDG 42301, 3.15 "Core Performance Counter Events").
///
/// Shapes: Software Optimization Guide for AMD Family 15h Processors (47414), 2.5 to 2.9, of one core with its module to itself; the
/// last-level cache is that of a die. Latencies of L3 and memory are chosen, and the direction predictor.
pub static FAMILY_15H: Profile = Profile {
    name: "family15h",
    // Extended family 6, extended model 0, model 1, stepping 2.
    signature: 0x0060_0F12,
    pmu: PmuKind::Amd(&Amd {
        counters: 6,
        extended: true,
        control_mask: CONTROL_12_BIT,
        version_2: false,
        // Up to RipInvalidChk.
        ibs: 0xFF,
        events: &[EVENTS],
    }),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 2, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 16 << 10, associativity: 4, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 2 << 20, associativity: 16, line_bytes: 64 }),
        llc: CacheGeometry { size_bytes: 8 << 20, associativity: 64, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 4,
        l1d_latency_cycles: 4,
        l2_latency_cycles: 20,
        llc_latency_cycles: 65,
        memory_latency_cycles: 220,
        itlb: TlbGeometry { entries: 48, associativity: 48 },
        dtlb: TlbGeometry { entries: 32, associativity: 32 },
        stlb: TlbGeometry { entries: 1024, associativity: 8 },
        stlb_latency_cycles: 7,
        walk_latency_cycles: 30,
        mispredict_cycles: 20,
        direction_bits: 14,
        target_bits: 12,
        return_stack: 24,
        crystal_ratio: 14,
    },
    hybrid: None,
};
