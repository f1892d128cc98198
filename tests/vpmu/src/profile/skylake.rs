//! 6th generation Intel Core (client Skylake), family 6 model 94, with Hyper-Threading on.

use super::skylake_events::{EVENTS, FIXED_EVENTS};
use super::{Extended, Microarchitecture, OffcoreResponse, Perfmon, PmuKind, Profile, TlbGeometry};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Client Skylake: PerfMon version 4, PEBS record format 3.
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Skylake microarchitecture", tables "Cache parameters" and "TLB parameters"; the
/// last-level cache is that of the Core i7-6700 (8 MiB). See docs/pmu-model.md for what is simplified.
pub static SKYLAKE: Profile = Profile {
    name: "skylake",
    // Family 6, extended model 5, model 14 (display model 94), stepping 3.
    signature: 0x0005_06E3,
    pmu: PmuKind::Perfmon(&Perfmon {
        version: 4,
        general_counters: 4,
        fixed_counters: 3,
        counter_bits: 48,
        // LBR format 5 (5:0), PEBS_TRAP (6), PEBS_ARCH_REG (7), PEBS format 3 (11:8), FREEZE_WHILE_SMM (12),
        // FW_WRITE (13).
        capabilities: 0x33C5,
        pebs_counters: 0xF,
        // PEBS_EN and LL_EN of each counter (SDM Vol. 3B, figure 18-21).
        pebs_enable_mask: 0xF_0000_000F,
        data_source_tlb_lock: true,
        // Request type 15:0 (bit 15: other), supplier 30:16, snoop 37:31 (SDM Vol. 3B 18.13.3): L3_HIT_E is
        // bit 19, L3_MISS_LOCAL_DRAM bit 26.
        offcore: OffcoreResponse {
            registers: 2,
            mask: 0x3F_FFFF_8FFF,
            any: 1 << 16,
            hit: 1 << 19,
            memory: 1 << 26,
            snoop: 0x3F_8000_0000,
        },
        // EVTSEL 2:0 and 4, IDQ_Bubble_Length 19:8, IDQ_Bubble_Width 22:20 (SDM Vol. 3B 18.13.2).
        frontend_mask: 0x7F_FF17,
        lbr_depth: 32,
        lbr_select_mask: 0x3FF,
        // LBR, BTF, TR, BTS, BTINT, BTS_OFF_OS, BTS_OFF_USR, FREEZE_LBRS_ON_PMI, FREEZE_PERFMON_ON_PMI,
        // ENABLE_UNCORE_PMI, FREEZE_WHILE_SMM. RTM (15) is reserved on a part without TSX.
        debugctl_mask: 0x7FC3,
        extended: Extended::NONE,
    }),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 256 << 10, associativity: 4, line_bytes: 64 }),
        llc: CacheGeometry { size_bytes: 8 << 20, associativity: 16, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 4,
        l1d_latency_cycles: 4,
        l2_latency_cycles: 12,
        llc_latency_cycles: 44,
        memory_latency_cycles: 240,
        itlb: TlbGeometry { entries: 128, associativity: 8 },
        dtlb: TlbGeometry { entries: 64, associativity: 4 },
        stlb: TlbGeometry { entries: 1536, associativity: 12 },
        stlb_latency_cycles: 9,
        walk_latency_cycles: 30,
        mispredict_cycles: 16,
        direction_bits: 14,
        target_bits: 12,
        return_stack: 16,
        crystal_ratio: 100,
    },
    hybrid: None,
};
