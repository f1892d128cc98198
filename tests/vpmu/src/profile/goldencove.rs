//! Parts with Golden Cove and Redwood Cove cores: Sapphire Rapids, Granite Rapids, and the performance cores
//! of Alder Lake and Meteor Lake.

use super::crestmont::{METEOR_LAKE_EFFICIENT, METEOR_LAKE_LLC, METEOR_LAKE_SIGNATURE, OWN_COUNTERS};
use super::goldencove_events::{EVENTS, FIXED_EVENTS};
use super::gracemont::ALDER_LAKE_EFFICIENT;
use super::{
    ArchitecturalLbr, Extended, Hybrid, MemoryInfo, Microarchitecture, OffcoreResponse, Perfmon, PmuKind,
    Profile, TlbGeometry,
};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Umask and event select of the event without which Golden Cove samples no load latency.
const LOAD_AUXILIARY: u16 = 0x8203;

/// The core's PMU: PerfMon version 5, adaptive PEBS, architectural branch records of depth 8, 16 and 32.
const PMU: Perfmon = Perfmon {
    version: 5,
    general_counters: 8,
    fixed_counters: 4,
    counter_bits: 48,
    // Architectural LBR (5:0 all set), PEBS_TRAP (6), PEBS_ARCH_REG (7), PEBS format 4 (11:8),
    // FREEZE_WHILE_SMM (12), FW_WRITE (13), PEBS_BASELINE (14). No top-down metrics (15).
    capabilities: 0x74FF,
    pebs_counters: 0xFF,
    // 8 general-purpose and 4 fixed-function counters (SDM Vol. 3B 20.9.1).
    pebs_enable_mask: 0xF_0000_00FF,
    data_source_tlb_lock: true,
    // Intel's event lists, OCR.*.
    offcore: OffcoreResponse {
        registers: 2,
        mask: 0x3F_FFFF_FFFF,
        any: 1 << 16,
        hit: 1 << 19,
        memory: 1 << 26,
        snoop: 0x3F_8000_0000,
    },
    frontend_mask: 0x7F_FF1F,
    lbr_depth: 0,
    lbr_select_mask: 0,
    // As Skylake's. LBR (0) can be set and does nothing: IA32_LBR_CTL has its own enable bit (Vol. 3B
    // 19.1.1).
    debugctl_mask: 0x7FC3,
    extended: Extended {
        pebs_fixed: 0xF,
        memory_info: MemoryInfo::GoldenCove,
        load_auxiliary: Some(LOAD_AUXILIARY),
        arch_lbr: Some(ArchitecturalLbr { depths: 0b1011 }),
        ..Extended::NONE
    },
};

/// The core: Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), sections "Golden Cove
/// microarchitecture" and "Sapphire Rapids". The latencies beyond L2 are chosen.
const CORE: Microarchitecture = Microarchitecture {
    retire_width: 6,
    l1d_latency_cycles: 5,
    l2_latency_cycles: 15,
    llc_latency_cycles: 70,
    memory_latency_cycles: 300,
    itlb: TlbGeometry { entries: 256, associativity: 8 },
    dtlb: TlbGeometry { entries: 96, associativity: 6 },
    stlb: TlbGeometry { entries: 2048, associativity: 16 },
    stlb_latency_cycles: 7,
    walk_latency_cycles: 30,
    mispredict_cycles: 17,
    direction_bits: 14,
    target_bits: 12,
    return_stack: 16,
    crystal_ratio: 80,
};

/// Caches of a server part: 2 MiB of L2 per core; the last-level cache is that of 16 cores (30 MiB).
const SERVER_CACHES: Geometry = Geometry {
    l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
    l1d: CacheGeometry { size_bytes: 48 << 10, associativity: 12, line_bytes: 64 },
    l2: Some(CacheGeometry { size_bytes: 2 << 20, associativity: 16, line_bytes: 64 }),
    llc: CacheGeometry { size_bytes: 30 << 20, associativity: 15, line_bytes: 64 },
    indexing: Indexing::Physical,
};

/// 4th generation Xeon Scalable (Sapphire Rapids), family 6 model 143.
pub static SAPPHIRE_RAPIDS: Profile = Profile {
    name: "sapphirerapids",
    // Family 6, extended model 8, model 15 (display model 143), stepping 8.
    signature: 0x0008_06F8,
    pmu: PmuKind::Perfmon(&PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: SERVER_CACHES,
    microarchitecture: CORE,
    hybrid: None,
};

/// Xeon 6 with performance cores (Granite Rapids), family 6 model 173: Redwood Cove. Load latency needs no
/// auxiliary event, and PEBS records have the retire latency (IA32_PERF_CAPABILITIES.PEBS_TIMING_INFO).
///
/// Its PEBS format is not in the manuals; 5 is chosen, format 4 with room for more counters in the DS area,
/// so that a profile has it.
pub static GRANITE_RAPIDS: Profile = Profile {
    name: "graniterapids",
    // Family 6, extended model 10, model 13 (display model 173), stepping 1.
    signature: 0x000A_06D1,
    pmu: PmuKind::Perfmon(&Perfmon {
        capabilities: 0x2_75FF,
        extended: Extended { load_auxiliary: None, ..PMU.extended },
        ..PMU
    }),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 16, line_bytes: 64 },
        ..SERVER_CACHES
    },
    microarchitecture: CORE,
    hybrid: None,
};

/// 12th generation Intel Core (Alder Lake), family 6 model 151: its performance cores, and through
/// [`Profile::of_cpu`] its efficient ones. The last-level cache is that of a part with 12 MiB.
pub static ALDER_LAKE: Profile = Profile {
    name: "alderlake",
    // Family 6, extended model 9, model 7 (display model 151), stepping 2.
    signature: super::gracemont::ALDER_LAKE_SIGNATURE,
    pmu: PmuKind::Perfmon(&PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l2: Some(CacheGeometry { size_bytes: 1280 << 10, associativity: 10, line_bytes: 64 }),
        llc: super::gracemont::ALDER_LAKE_LLC,
        ..SERVER_CACHES
    },
    microarchitecture: CORE,
    hybrid: Some(Hybrid {
        core_type: 0x40,
        native_model: 1,
        efficient: Some(&ALDER_LAKE_EFFICIENT),
        low_power: None,
    }),
};

/// Intel Core Ultra, first series (Meteor Lake), family 6 model 170: its performance cores, Redwood Cove, and
/// through [`Profile::of_cpu`] its efficient ones. The retire latency, which Redwood Cove's records have, is left
/// to Granite Rapids.
pub static METEOR_LAKE: Profile = Profile {
    name: "meteorlake",
    // Family 6, extended model 10, model 10 (display model 170), stepping 4.
    signature: METEOR_LAKE_SIGNATURE,
    pmu: PmuKind::Perfmon(&Perfmon {
        extended: Extended {
            load_auxiliary: None,
            hidden_metrics: true,
            perfmon_extension: Some(OWN_COUNTERS),
            ..PMU.extended
        },
        ..PMU
    }),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 64 << 10, associativity: 16, line_bytes: 64 },
        llc: METEOR_LAKE_LLC,
        ..SERVER_CACHES
    },
    microarchitecture: CORE,
    hybrid: Some(Hybrid {
        core_type: 0x40,
        native_model: 2,
        efficient: Some(&METEOR_LAKE_EFFICIENT),
        low_power: None,
    }),
};
