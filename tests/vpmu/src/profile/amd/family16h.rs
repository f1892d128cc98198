//! AMD A4-5000 (Jaguar), family 16h model 0.

use super::family16h_events::EVENTS;
use super::{Amd, CONTROL_12_BIT};
use crate::micro::{CacheGeometry, Geometry, Indexing};
use crate::profile::{Microarchitecture, PmuKind, Profile, TlbGeometry};

/// L2 is the last level: a last-level cache of one line never has what L2 lacks.
const NO_LLC: CacheGeometry = CacheGeometry { size_bytes: 64, associativity: 1, line_bytes: 64 };

/// Family 16h: four counters at the old addresses, instruction-based sampling (BKDG 48751, 3.15).
///
/// Shapes: Software Optimization Guide for AMD Family 16h Processors (52128), 2.5 to 2.9; L2, which four cores share, is taken for
/// the core's own. Latencies of memory and page walks are chosen.
pub static FAMILY_16H: Profile = Profile {
    name: "family16h",
    // Extended family 7, extended model 0, model 0, stepping 1.
    signature: 0x0070_0F01,
    pmu: PmuKind::Amd(&Amd {
        counters: 4,
        extended: false,
        control_mask: CONTROL_12_BIT,
        version_2: false,
        // Up to RipInvalidChk.
        ibs: 0xFF,
        events: &[EVENTS],
    }),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 2, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 2 << 20, associativity: 16, line_bytes: 64 }),
        llc: NO_LLC,
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 2,
        l1d_latency_cycles: 3,
        l2_latency_cycles: 25,
        llc_latency_cycles: 150,
        memory_latency_cycles: 150,
        itlb: TlbGeometry { entries: 32, associativity: 32 },
        dtlb: TlbGeometry { entries: 40, associativity: 40 },
        stlb: TlbGeometry { entries: 512, associativity: 4 },
        stlb_latency_cycles: 6,
        walk_latency_cycles: 30,
        mispredict_cycles: 14,
        direction_bits: 12,
        target_bits: 10,
        return_stack: 16,
        crystal_ratio: 15,
    },
    hybrid: None,
};
