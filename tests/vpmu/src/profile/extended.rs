//! Facts that only parts with PerfMon version 5 and later have.

use crate::profile::Profile;

/// What came with PerfMon version 5 and later, or beside it. Sections are those of the SDM's editions since
/// 2023, where Vol. 3B chapter 19 is "Last Branch Records" and chapter 20 "Performance Monitoring".
#[derive(Debug, Clone, Copy)]
pub struct Extended {
    /// Fixed-function counters below [`crate::profile::Perfmon::fixed_counters`] that do not exist: their bit
    /// in `CPUID.0AH:ECX` is 0 (Vol. 3B 20.2.5.2).
    pub absent_fixed: u64,
    /// Fixed-function counters that can be used for PEBS, as a bit mask (Vol. 3B 20.9.1, "Extended PEBS").
    pub pebs_fixed: u64,
    /// How PEBS records describe a memory access.
    pub memory_info: MemoryInfo,
    /// The event (umask and event select) that must be counted for load latency to be sampled.
    pub load_auxiliary: Option<u16>,
    /// Architectural last-branch records instead of model-specific ones.
    pub arch_lbr: Option<ArchitecturalLbr>,
    /// IA32_PERF_GLOBAL_CTRL has EN_PERF_METRICS (bit 48), though IA32_PERF_CAPABILITIES tells of no top-down
    /// metrics: an erratum by which Linux sets the bit all the same (intel_pmu_broken_perf_cap). It does nothing.
    pub hidden_metrics: bool,
    /// `CPUID` leaf 23H.
    pub perfmon_extension: Option<PerfmonExtension>,
}

impl Extended {
    /// A part before version 5.
    pub const NONE: Self = Self {
        absent_fixed: 0,
        pebs_fixed: 0,
        memory_info: MemoryInfo::IceLake,
        load_auxiliary: None,
        arch_lbr: None,
        hidden_metrics: false,
        perfmon_extension: None,
    };
}

/// What the memory group of an adaptive or architectural PEBS record holds (Vol. 3B 20.9.2.2.2, "Memory
/// Access Info").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryInfo {
    /// The latency is one number; the auxiliary word has the data source in bits 3:0, STLB miss in 4, lock in
    /// 5.
    IceLake,
    /// The latency of the instruction and that of the access are told apart; the auxiliary word is Ice
    /// Lake's.
    GoldenCove,
    /// Latencies as Golden Cove's; the auxiliary word has the data source in bits 3:0, lock in 4, STLB miss
    /// in 5.
    Gracemont,
    /// Latencies as Golden Cove's; the auxiliary word has the data source in bits 4:0, lock in 5, STLB miss
    /// in 6.
    Crestmont,
    /// Latencies as Golden Cove's; the auxiliary word has the data source in bits 7:0, by codes of its own,
    /// STLB miss in 10, lock in 11.
    LionCove,
}

/// Architectural last-branch records (Vol. 3B chapter 19, `CPUID` leaf 1CH).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchitecturalLbr {
    /// `CPUID.1CH:EAX`: bit n of 7:0 says that a depth of 8 × (n + 1) can be chosen.
    pub depths: u8,
}

impl ArchitecturalLbr {
    /// The deepest stack.
    #[must_use]
    pub fn max_depth(self) -> usize {
        8 * (8 - self.depths.leading_zeros() as usize)
    }

    /// Whether IA32_LBR_DEPTH can be set to `depth`.
    #[must_use]
    pub fn supports(self, depth: u64) -> bool {
        (8..=64).contains(&depth) && depth.is_multiple_of(8) && self.depths >> (depth / 8 - 1) & 1 != 0
    }
}

/// The architectural performance monitoring extension (`CPUID` leaf 23H; Intel Architecture Instruction Set
/// Extensions Programming Reference, chapter on architectural PerfMon extensions): which counters this core
/// has, where leaf 0AH says what all cores of the part have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfmonExtension {
    /// Event selects have UnitMask2 (`CPUID.23H.0:EBX` bit 0).
    pub unit_mask2: bool,
    /// Event selects have the EQ bit (`CPUID.23H.0:EBX` bit 1).
    pub equal: bool,
    /// Auto counter reload.
    pub reload: Option<AutoCounterReload>,
    /// Architectural PEBS.
    pub pebs: Option<ArchitecturalPebs>,
}

/// Auto counter reload (`CPUID.23H.2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoCounterReload {
    /// General-purpose counters that can be reloaded (EAX).
    pub general: u32,
    /// Fixed-function counters that can be reloaded (EBX).
    pub fixed: u32,
    /// General-purpose counters whose overflow can reload (ECX).
    pub general_causes: u32,
    /// Fixed-function counters whose overflow can reload (EDX).
    pub fixed_causes: u32,
}

impl AutoCounterReload {
    /// What can be reloaded, with fixed-function counters from bit 32 on.
    #[must_use]
    pub fn reloadable(self) -> u64 {
        u64::from(self.general) | u64::from(self.fixed) << 32
    }

    /// What can cause a reload, with fixed-function counters from bit 32 on.
    #[must_use]
    pub fn causes(self) -> u64 {
        u64::from(self.general_causes) | u64::from(self.fixed_causes) << 32
    }
}

/// Architectural PEBS (`CPUID.23H.4` and `.5`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchitecturalPebs {
    /// General-purpose counters that can be used for it (`CPUID.23H.5:EAX`).
    pub general: u32,
    /// General-purpose counters whose samples are precisely distributed (`CPUID.23H.5:EBX`).
    pub pdist_general: u32,
    /// Fixed-function counters whose samples are precisely distributed (`CPUID.23H.5:EDX`).
    pub pdist_fixed: u32,
    /// Record groups: the bits of IA32_PMC_GPn_CFG_C 63:32 that can be set (`CPUID.23H.4:EBX`).
    pub groups: u32,
}

impl Extended {
    /// What leaf 23H says of auto counter reload.
    #[must_use]
    pub fn auto_counter_reload(&self) -> Option<AutoCounterReload> {
        self.perfmon_extension.and_then(|extension| extension.reload)
    }

    /// What leaf 23H says of architectural PEBS.
    #[must_use]
    pub fn architectural_pebs(&self) -> Option<ArchitecturalPebs> {
        self.perfmon_extension.and_then(|extension| extension.pebs)
    }
}

/// What this core of a hybrid part is (SDM Vol. 2A, CPUID, leaf 1AH), and what the part's other cores are.
#[derive(Debug, Clone, Copy)]
pub struct Hybrid {
    /// `CPUID.1AH:EAX[31:24]`: 20H for an Intel Atom core, 40H for an Intel Core one.
    pub core_type: u8,
    /// `CPUID.1AH:EAX[23:0]`.
    pub native_model: u32,
    /// The cores of the other type, which have the higher CPU numbers; `None` in their own description.
    pub efficient: Option<&'static Profile>,
    /// The cores of a third type, which have the highest; the efficient ones' description has them, too.
    pub low_power: Option<&'static Profile>,
}

impl Hybrid {
    /// The part's other cores, in order of their CPU numbers.
    pub fn others(self) -> impl Iterator<Item = &'static Profile> + Clone {
        self.efficient.into_iter().chain(self.low_power)
    }
}

impl Profile {
    /// The description of logical processor `index` of `cpus`: this one, or on a hybrid part, for the second
    /// half, that of the efficient cores; with three types of cores each has a third. The first processor is a
    /// performance core.
    #[must_use]
    pub fn of_cpu(&'static self, index: u32, cpus: u32) -> &'static Self {
        let others = self.hybrid.into_iter().flat_map(Hybrid::others);
        let types = others.clone().count() as u32 + 1;
        let place = (index * types / cpus.max(1)) as usize;
        std::iter::once(self).chain(others).nth(place).unwrap_or(self)
    }
}
