//! 10th generation Intel Core (client Ice Lake), family 6 model 125: Sunny Cove cores.

use super::icelake_events::{EVENTS, FIXED_EVENTS};
use super::{
    Extended, MemoryInfo, Microarchitecture, OffcoreResponse, Perfmon, PmuKind, Profile, TlbGeometry,
};
use crate::micro::{CacheGeometry, Geometry, Indexing};

/// Client Ice Lake: PerfMon version 5, PEBS record format 4 (adaptive, extended).
///
/// Cache and TLB shapes and latencies: Intel 64 and IA-32 Architectures Optimization Reference Manual
/// (248966), section "Ice Lake Client microarchitecture", tables "Cache parameters" and "TLB parameters"; the
/// last-level cache is that of a part with four cores (8 MiB).
pub static ICE_LAKE: Profile = Profile {
    name: "icelake",
    // Family 6, extended model 7, model 13 (display model 125).
    signature: 0x0007_06D0,
    pmu: PmuKind::Perfmon(&Perfmon {
        version: 5,
        general_counters: 8,
        fixed_counters: 4,
        counter_bits: 48,
        // LBR format 5 (5:0), PEBS_TRAP (6), PEBS_ARCH_REG (7), PEBS format 4 (11:8), FREEZE_WHILE_SMM (12),
        // FW_WRITE (13), PEBS_BASELINE (14). No top-down metrics (15).
        capabilities: 0x74C5,
        pebs_counters: 0xFF,
        // 8 general-purpose and 4 fixed-function counters (SDM Vol. 3B 20.9.1).
        pebs_enable_mask: 0xF_0000_00FF,
        data_source_tlb_lock: true,
        // As client Skylake's, with bit 14 reserved (Intel's event list, OCR.*).
        offcore: OffcoreResponse {
            registers: 2,
            mask: 0x3F_FFFF_BFFF,
            any: 1 << 16,
            hit: 1 << 19,
            memory: 1 << 26,
            snoop: 0x3F_8000_0000,
        },
        frontend_mask: 0x7F_FF17,
        lbr_depth: 32,
        lbr_select_mask: 0x3FF,
        debugctl_mask: 0x7FC3,
        extended: Extended { pebs_fixed: 0xF, memory_info: MemoryInfo::IceLake, ..Extended::NONE },
    }),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: Geometry {
        l1i: CacheGeometry { size_bytes: 32 << 10, associativity: 8, line_bytes: 64 },
        l1d: CacheGeometry { size_bytes: 48 << 10, associativity: 12, line_bytes: 64 },
        l2: Some(CacheGeometry { size_bytes: 512 << 10, associativity: 8, line_bytes: 64 }),
        llc: CacheGeometry { size_bytes: 8 << 20, associativity: 16, line_bytes: 64 },
        indexing: Indexing::Physical,
    },
    microarchitecture: Microarchitecture {
        retire_width: 5,
        l1d_latency_cycles: 5,
        l2_latency_cycles: 13,
        llc_latency_cycles: 42,
        memory_latency_cycles: 240,
        itlb: TlbGeometry { entries: 128, associativity: 8 },
        dtlb: TlbGeometry { entries: 64, associativity: 4 },
        stlb: TlbGeometry { entries: 2048, associativity: 16 },
        stlb_latency_cycles: 7,
        walk_latency_cycles: 30,
        mispredict_cycles: 17,
        direction_bits: 14,
        target_bits: 12,
        return_stack: 16,
        crystal_ratio: 100,
    },
    hybrid: None,
};
