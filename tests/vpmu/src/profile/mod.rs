//! The processors that can be modelled: one declarative description each.
//!
//! A profile only states facts; what they mean is implemented once, in [`crate::pmu`] and [`crate::micro`].

pub mod amd;
mod arrowlake;
mod broadwell;
mod broadwell_events;
mod clearwaterforest;
mod core2;
mod core2_events;
mod cougarcove_events;
mod crestmont;
mod crestmont_events;
mod darkmont_events;
mod extended;
mod goldencove;
mod goldencove_events;
mod gracemont;
mod gracemont_events;
mod haswell;
mod haswell_events;
mod icelake;
mod icelake_events;
mod ivybridge;
mod ivybridge_events;
mod lioncove_events;
mod lunarlake;
mod nehalem;
mod nehalem_events;
mod netburst;
mod netburst_events;
mod pantherlake;
mod perfmon1;
mod prescott;
mod sandybridge;
mod sandybridge_events;
mod skylake;
mod skylake_events;
mod skymont_events;
mod spec;
mod version3;
mod westmere;
mod westmere_events;

use crate::event::EventSet;
use crate::micro::Geometry;

pub use amd::Amd;
pub use arrowlake::ARROW_LAKE_H;
pub use broadwell::BROADWELL;
pub use clearwaterforest::CLEARWATER_FOREST;
pub use core2::CORE2;
pub use crestmont::SIERRA_FOREST;
pub use extended::{
    ArchitecturalLbr, ArchitecturalPebs, AutoCounterReload, Extended, Hybrid, MemoryInfo, PerfmonExtension,
};
pub use goldencove::{ALDER_LAKE, GRANITE_RAPIDS, METEOR_LAKE, SAPPHIRE_RAPIDS};
pub use haswell::HASWELL;
pub use icelake::ICE_LAKE;
pub use ivybridge::IVY_BRIDGE;
pub use lunarlake::LUNAR_LAKE;
pub use nehalem::NEHALEM;
pub use netburst::{Escr, Masked, Meaning, Netburst, NetburstEvent, RAT_ESCRS, SAAT_ESCR0, SAAT_ESCR1, Term};
pub use pantherlake::PANTHER_LAKE;
pub use perfmon1::PERFMON1;
pub use prescott::PRESCOTT;
pub use sandybridge::SANDY_BRIDGE;
pub use skylake::SKYLAKE;
pub use westmere::WESTMERE;

/// A processor: its PMU and its microarchitecture.
#[derive(Debug)]
pub struct Profile {
    /// The name by which a user chooses it, for example `skylake`.
    pub name: &'static str,
    /// `CPUID.01H:EAX`: extended family, extended model, type, family, model and stepping (SDM Vol. 2A,
    /// CPUID).
    pub signature: u32,
    /// Its performance-monitoring unit.
    pub pmu: PmuKind,
    /// Events that can be programmed into a general-purpose counter of architectural performance monitoring;
    /// other kinds of PMU have tables of their own form.
    pub events: &'static [EventSpec],
    /// What each fixed-function counter counts, in index order (SDM Vol. 3B, table 18-2).
    pub fixed_events: &'static [EventSpec],
    /// Shape of the caches.
    pub geometry: Geometry,
    /// Everything else of the microarchitecture.
    pub microarchitecture: Microarchitecture,
    /// If it is one kind of core of a hybrid part: which.
    pub hybrid: Option<Hybrid>,
}

/// Which kind of PMU a processor has, and its facts.
#[derive(Debug, Clone, Copy)]
pub enum PmuKind {
    /// AMD's core performance counters and instruction-based sampling.
    Amd(&'static Amd),
    /// Intel's architectural performance monitoring.
    Perfmon(&'static Perfmon),
    /// That of Intel's NetBurst microarchitecture.
    Netburst(&'static Netburst),
}

/// An Intel PMU with architectural performance monitoring (SDM Vol. 3B 18.2).
#[derive(Debug)]
pub struct Perfmon {
    /// Architectural performance monitoring version (`CPUID.0AH:EAX[7:0]`).
    pub version: u8,
    /// General-purpose counters per logical processor (`CPUID.0AH:EAX[15:8]`).
    pub general_counters: u8,
    /// Fixed-function counters (`CPUID.0AH:EDX[4:0]`).
    pub fixed_counters: u8,
    /// Width of every counter in bits (`CPUID.0AH:EAX[23:16]` and `EDX[12:5]`).
    pub counter_bits: u8,
    /// The value of IA32_PERF_CAPABILITIES (SDM Vol. 3B 18.18).
    pub capabilities: u64,
    /// General-purpose counters that can be used for PEBS, as a bit mask.
    pub pebs_counters: u64,
    /// Bits of IA32_PEBS_ENABLE that are not reserved.
    pub pebs_enable_mask: u64,
    /// Whether the data source of a load tells of the second-level TLB (bit 4) and of a locked access (bit
    /// 5).
    pub data_source_tlb_lock: bool,
    /// MSR_OFFCORE_RSP_x.
    pub offcore: OffcoreResponse,
    /// Bits of MSR_PEBS_FRONTEND that are not reserved.
    pub frontend_mask: u64,
    /// Entries of the last-branch-record stack, a power of two.
    pub lbr_depth: u8,
    /// Bits of MSR_LBR_SELECT that are not reserved.
    pub lbr_select_mask: u64,
    /// Bits of IA32_DEBUGCTL that are not reserved.
    pub debugctl_mask: u64,
    /// What came with version 5 and later.
    pub extended: Extended,
}

/// The off-core response facility: MSR_OFFCORE_RSP_x choose by request and response what the events
/// `OFFCORE_RESPONSE_x` count (SDM Vol. 3B 18.8.1.3, 18.9.5). Requests are those of bits 0 (demand data
/// read), 1 (demand read for ownership) and 2 (demand code read) on every part. All masks are of the
/// register's bits.
#[derive(Debug)]
pub struct OffcoreResponse {
    /// How many of these registers there are, from MSR_OFFCORE_RSP_0 on: 0, 1 or 2.
    pub registers: u8,
    /// Bits that are not reserved.
    pub mask: u64,
    /// "Any response" (bit 16); 0 if the part has no such bit.
    pub any: u64,
    /// Supplier: the last-level cache had the line and no other core had to be asked for it.
    pub hit: u64,
    /// Supplier: local memory.
    pub memory: u64,
    /// Snoop results, one of which must be chosen beside a supplier; 0 if the part does not ask for them.
    pub snoop: u64,
}

/// Which data address a PEBS record of an event holds (SDM Vol. 3B 18.11.3, data address profiling).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataRecord {
    /// None: the event has nothing to do with memory.
    None,
    /// Address of the load.
    Load,
    /// Address of the load, its latency and its data source (SDM Vol. 3B 18.9.4.2, load latency facility).
    LoadLatency,
    /// Address of the store, and whether it hit the L1 data cache.
    Store,
    /// Address of the store, its latency and its data source (SDM Vol. 3B 20.9.8, store latency facility).
    StoreLatency,
    /// Address of the store and its status, if IA32_PEBS_ENABLE.PS_EN is set (SDM Vol. 3B 18.9.4.3, precise
    /// store).
    PreciseStore,
}

/// One hardware event: how it is programmed and what it counts.
#[derive(Debug)]
pub struct EventSpec {
    /// The vendor's name, for example `MEM_LOAD_RETIRED.L1_MISS`.
    pub name: &'static str,
    /// IA32_PERFEVTSELx bits 7:0.
    pub select: u8,
    /// Unit mask: bits 7:0 are IA32_PERFEVTSELx bits 15:8, bits 15:8 its UnitMask2 (bits 47:40), which Intel's
    /// event lists call `UMaskExt`.
    pub umask: u16,
    /// IA32_PERFEVTSELx bits 31:24 if they are part of the event's definition; 0 leaves CMASK, INV and E to
    /// the user.
    pub cmask: u8,
    /// IA32_PERFEVTSELx bit 23, if `cmask` is part of the definition.
    pub invert: bool,
    /// General-purpose counters that can count it, as a bit mask; on others it counts nothing.
    pub counters: u64,
    /// Whether it is a precise event, usable for PEBS.
    pub precise: bool,
    /// Which data address its PEBS records hold.
    pub data: DataRecord,
    /// What it counts: the sum of these.
    pub counts: EventSet,
    /// The MSR_OFFCORE_RSP_x that chooses among `counts`: x.
    pub offcore: Option<u8>,
}

impl EventSpec {
    /// Event select and unit mask at their places in IA32_PERFEVTSELx.
    #[must_use]
    pub fn encoding(&self) -> u64 {
        let [umask, umask2] = self.umask.to_le_bytes().map(u64::from);
        u64::from(self.select) | umask << 8 | umask2 << 40
    }
}

/// Latencies and structures beside the caches. Cycles are core clock cycles.
#[derive(Debug)]
pub struct Microarchitecture {
    /// Instructions that retire in one cycle when nothing stalls.
    pub retire_width: u32,
    /// Load-to-use latency of an L1 data cache hit.
    pub l1d_latency_cycles: u16,
    /// Load-to-use latency of an L2 hit.
    pub l2_latency_cycles: u16,
    /// Load-to-use latency of a last-level cache hit.
    pub llc_latency_cycles: u16,
    /// Load-to-use latency of an access to memory.
    pub memory_latency_cycles: u16,
    /// First-level instruction TLB.
    pub itlb: TlbGeometry,
    /// First-level data TLB.
    pub dtlb: TlbGeometry,
    /// Second-level TLB, for instructions and data.
    pub stlb: TlbGeometry,
    /// Penalty of a first-level TLB miss that hits the second level.
    pub stlb_latency_cycles: u16,
    /// Penalty of a page walk.
    pub walk_latency_cycles: u16,
    /// Penalty of a mispredicted branch.
    pub mispredict_cycles: u16,
    /// log2 of the entries of the direction predictor.
    pub direction_bits: u8,
    /// log2 of the entries of the branch target buffer.
    pub target_bits: u8,
    /// Entries of the return stack.
    pub return_stack: u8,
    /// Core clock cycles per core crystal clock cycle.
    pub crystal_ratio: u32,
}

/// Size and shape of a TLB for 4-KiB pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlbGeometry {
    /// Entries in all; 0 if there is no such TLB.
    pub entries: u32,
    /// Ways per set.
    pub associativity: u32,
}

impl TlbGeometry {
    /// No TLB: nothing is ever found.
    pub const NONE: Self = Self { entries: 0, associativity: 1 };
}

/// Every profile with architectural performance monitoring of version 3 or later; a hybrid part is one, described by
/// its performance cores.
pub static ALL: &[&Profile] = &[
    &NEHALEM,
    &WESTMERE,
    &SANDY_BRIDGE,
    &IVY_BRIDGE,
    &HASWELL,
    &BROADWELL,
    &SKYLAKE,
    &ICE_LAKE,
    &SAPPHIRE_RAPIDS,
    &GRANITE_RAPIDS,
    &ALDER_LAKE,
    &METEOR_LAKE,
    &SIERRA_FOREST,
    &LUNAR_LAKE,
    &ARROW_LAKE_H,
    &CLEARWATER_FOREST,
    &PANTHER_LAKE,
];

/// Every profile that a user can choose, by kind of PMU.
pub static KINDS: &[&[&Profile]] = &[ALL, EARLY, NETBURST, amd::ALL];

/// Every profile with version 1 or 2 of architectural performance monitoring.
pub static EARLY: &[&Profile] = &[&PERFMON1, &CORE2];

/// Every profile with NetBurst's PMU.
pub static NETBURST: &[&Profile] = &[&PRESCOTT];

/// Every profile that a user can choose.
pub fn every() -> impl Iterator<Item = &'static Profile> {
    KINDS.iter().copied().flatten().copied()
}

/// Every core with architectural performance monitoring: the profiles, and the other cores of hybrid parts.
pub fn cores() -> impl Iterator<Item = &'static Profile> {
    let others = ALL.iter().filter_map(|profile| profile.hybrid).flat_map(Hybrid::others);
    EARLY.iter().chain(ALL).copied().chain(others)
}

/// The profile of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Profile> {
    every().find(|profile| profile.name == name)
}

impl Perfmon {
    /// The format of PEBS records (IA32_PERF_CAPABILITIES bits 11:8).
    #[must_use]
    pub fn pebs_format(&self) -> u8 {
        (self.capabilities >> 8 & 0xF) as u8
    }

    /// Bytes of the largest PEBS buffer that works. Core 2, which alone of these parts has format 0, hangs with more than a
    /// page when IA32_PERF_GLOBAL_CTRL is written (Linux, arch/x86/events/intel/ds.c, intel_ds_pebs_init).
    #[must_use]
    pub fn pebs_buffer_most(&self) -> u64 {
        if self.pebs_format() == 0 { 4096 } else { u64::MAX }
    }

    /// The format of last-branch records (IA32_PERF_CAPABILITIES bits 5:0).
    #[must_use]
    pub fn lbr_format(&self) -> u8 {
        (self.capabilities & 0x3F) as u8
    }

    /// Whether there are IA32_PERF_GLOBAL_CTRL and its companions (SDM Vol. 3B 18.2.2: from version 2 on).
    #[must_use]
    pub fn has_global_control(&self) -> bool {
        self.version >= 2
    }

    /// Whether IA32_PERF_CAPABILITIES exists (`CPUID.01H:ECX[15]`): on the modelled parts, from version 2 on.
    #[must_use]
    pub fn has_capabilities(&self) -> bool {
        self.version >= 2
    }

    /// Whether counters can be told to count any thread of the core (SDM Vol. 3B 18.2.3; deprecated in version 5).
    #[must_use]
    pub fn has_any_thread(&self) -> bool {
        matches!(self.version, 3 | 4)
    }

    /// Whether counters can be written in full width (IA32_PERF_CAPABILITIES bit 13, FW_WRITE).
    #[must_use]
    pub fn full_width_writes(&self) -> bool {
        self.capabilities >> 13 & 1 != 0
    }
}

impl Profile {
    /// The facts of its PMU, if that has architectural performance monitoring.
    #[must_use]
    pub fn perfmon(&self) -> Option<&'static Perfmon> {
        match self.pmu {
            PmuKind::Perfmon(facts) => Some(facts),
            PmuKind::Amd(_) | PmuKind::Netburst(_) => None,
        }
    }

    /// The facts of its PMU, if that is NetBurst's.
    #[must_use]
    pub fn netburst(&self) -> Option<&'static Netburst> {
        match self.pmu {
            PmuKind::Netburst(facts) => Some(facts),
            PmuKind::Amd(_) | PmuKind::Perfmon(_) => None,
        }
    }

    /// How many logical processors of a core share one PMU.
    #[must_use]
    pub fn pmu_threads(&self) -> u8 {
        self.netburst().map_or(1, |facts| facts.threads)
    }

    /// The facts of its PMU, if that is AMD's.
    #[must_use]
    pub fn amd(&self) -> Option<&'static Amd> {
        match self.pmu {
            PmuKind::Amd(facts) => Some(facts),
            PmuKind::Netburst(_) | PmuKind::Perfmon(_) => None,
        }
    }

    /// The event of this vendor's name, also among the fixed-function counters'.
    #[must_use]
    pub fn event(&self, name: &str) -> Option<&'static EventSpec> {
        self.events.iter().chain(self.fixed_events).find(|event| event.name == name)
    }
}
