//! Pentium 4 with 64-bit extensions (Prescott; as a server part, Nocona), family 15 model 4, with Hyper-Threading on.

use super::netburst::HYPER_THREADED;
use super::{Microarchitecture, PmuKind, Profile, TlbGeometry};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Prescott: NetBurst's PMU, shared by the two logical processors of a core (SDM Vol. 3B 18.16).
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), section
/// "Intel NetBurst microarchitecture". The trace cache of 12 K micro-operations is approximated by an instruction cache;
/// docs/pmu-model.md says what was chosen.
pub static PRESCOTT: Profile = Profile {
    name: "prescott",
    // Family 15, model 4, stepping 1.
    signature: 0x0000_0F41,
    pmu: PmuKind::Netburst(&HYPER_THREADED),
    events: &[],
    fixed_events: &[],
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 16 << 10, associativity: 8, line_bytes: 64 },
        // The second level is the last.
        l2: None,
        llc: CacheGeometry { size_bytes: 1 << 20, associativity: 8, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 3,
        l1d_latency_cycles: 4,
        l2_latency_cycles: 18,
        llc_latency_cycles: 18,
        memory_latency_cycles: 192,
        itlb: TlbGeometry { entries: 128, associativity: 4 },
        dtlb: TlbGeometry { entries: 64, associativity: 64 },
        stlb: TlbGeometry::NONE,
        stlb_latency_cycles: 0,
        walk_latency_cycles: 30,
        mispredict_cycles: 30,
        direction_bits: 12,
        target_bits: 12,
        return_stack: 16,
        // 3.2 GHz over a bus clock of 200 MHz.
        crystal_ratio: 16,
    },
    hybrid: None,
};
