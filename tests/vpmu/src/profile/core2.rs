//! Intel Core 2 (Penryn), family 6 model 23.

use super::core2_events::EVENTS;
use super::skylake_events::FIXED_EVENTS;
use super::{Extended, Microarchitecture, OffcoreResponse, Perfmon, PmuKind, Profile, TlbGeometry};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Core 2: PerfMon version 2, PEBS record format 0 on IA32_PMC0 alone (SDM Vol. 3B 18.4). Model 23 rather than 15, on
/// which Linux refuses PEBS for an erratum (intel_clovertown_quirk).
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), section
/// "Intel Core microarchitecture"; the second-level cache is that of the Core 2 Duo E8000 series (6 MiB).
pub static CORE2: Profile = Profile {
    name: "core2",
    // Family 6, display model 23, stepping 10.
    signature: 0x0001_067A,
    pmu: PmuKind::Perfmon(&PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: CACHES,
    microarchitecture: MICROARCHITECTURE,
    hybrid: None,
};

pub(super) const PMU: Perfmon = Perfmon {
    version: 2,
    general_counters: 2,
    fixed_counters: 3,
    // Both kinds of counters (18.4.1; SDM Vol. 2B, RDPMC: "40-bits wide").
    counter_bits: 40,
    // PEBS_TRAP (6) and PEBS_ARCH_REG (7); PEBS format 0 (11:8). The four branch records are not modelled.
    capabilities: 0xC0,
    pebs_counters: 0b1,
    // ENABLE PMC0 (18.4.4.3, table 18-11).
    pebs_enable_mask: 0b1,
    data_source_tlb_lock: false,
    offcore: OffcoreResponse { registers: 0, mask: 0, any: 0, hit: 0, memory: 0, snoop: 0 },
    frontend_mask: 0,
    lbr_depth: 0,
    lbr_select_mask: 0,
    // LBR, BTF, TR, BTS, BTINT, BTS_OFF_OS, BTS_OFF_USR, FREEZE_LBRS_ON_PMI, FREEZE_PERFMON_ON_PMI (17.4.1).
    debugctl_mask: 0x1FC3,
    extended: Extended::NONE,
};

/// The second level is the last, and shared by the cores.
pub(super) const CACHES: Geometry = Geometry {
    l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l2: None,
    llc: CacheGeometry { size_bytes: 6 << 20, associativity: 24, line_bytes: 64 },
    indexing: Indexing::Physical,
};

pub(super) const MICROARCHITECTURE: Microarchitecture = Microarchitecture {
    retire_width: 4,
    l1d_latency_cycles: 3,
    l2_latency_cycles: 15,
    llc_latency_cycles: 15,
    memory_latency_cycles: 180,
    itlb: TlbGeometry { entries: 128, associativity: 4 },
    // DTLB0 and DTLB1. Stores have no DTLB0 and instructions no second level on the part; here they share both.
    dtlb: TlbGeometry { entries: 16, associativity: 4 },
    stlb: TlbGeometry { entries: 256, associativity: 4 },
    stlb_latency_cycles: 2,
    walk_latency_cycles: 30,
    mispredict_cycles: 15,
    direction_bits: 13,
    target_bits: 11,
    return_stack: 16,
    // 3 GHz over a bus clock of 333 MHz.
    crystal_ratio: 9,
};
