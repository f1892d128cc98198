//! What `CPUID` says of the PMU.

use super::Perfmon;
use super::extended::has_ds_pebs;
use crate::pmu::CpuidRegs;
use crate::profile::{self, ArchitecturalLbr, Hybrid, PerfmonExtension, Profile};

/// `CPUID.01H:ECX`: 64-bit DS layout.
const DTES64: u32 = 1 << 2;
/// `CPUID.01H:ECX`: IA32_PERF_CAPABILITIES exists.
const PDCM: u32 = 1 << 15;
/// `CPUID.01H:EDX`: debug store.
const DS: u32 = 1 << 21;
/// `CPUID.07H.0:EBX`: Processor Trace.
const INTEL_PT: u32 = 1 << 25;
/// `CPUID.07H.0:EDX`: the part has cores of more than one type.
const HYBRID: u32 = 1 << 15;
/// `CPUID.07H.0:EDX`: architectural last-branch records.
const ARCH_LBR: u32 = 1 << 19;
/// `CPUID.07H.1:EAX`: leaf 23H.
const ARCH_PERFMON_EXT: u32 = 1 << 8;
/// `CPUID.23H.0:EBX`: counters can be kept from `RDPMC` in user mode.
const RDPMC_USER_DISABLE: u32 = 1 << 2;
/// `CPUID.0AH:EDX`: AnyThread is deprecated.
const ANY_THREAD_DEPRECATED: u32 = 1 << 15;
/// `CPUID.1CH:EAX`: branch records hold linear addresses, not offsets.
const LBR_LIP: u32 = 1 << 31;

const FEATURES: u32 = 0x07;
const PERFMON: u32 = 0x0A;
const TRACE: u32 = 0x14;
const HYBRID_INFORMATION: u32 = 0x1A;
const LAST_BRANCH: u32 = 0x1C;
const PERFMON_EXTENDED: u32 = 0x23;

impl Perfmon {
    /// Overlays the profile onto the machine's answer (SDM Vol. 2A, CPUID).
    pub(in crate::pmu) fn cpuid(&self, leaf: u32, subleaf: u32, regs: &mut CpuidRegs) {
        overlay(self.profile, self.facts, leaf, subleaf, regs);
        if self.options.processor_trace {
            with_processor_trace(leaf, subleaf, regs);
        }
        if (leaf, subleaf) == (PERFMON_EXTENDED, 0) && self.has_rdpmc_user_disable() {
            regs.ebx |= RDPMC_USER_DISABLE;
        }
    }

    /// IA32_MISC_ENABLE: performance monitoring is available (7), PEBS by way of the DS area is not unavailable (12)
    /// unless PEBS is architectural, branch trace storage is (11): it is not modelled.
    pub(in crate::pmu) fn misc_enable(&self, machine: u64) -> u64 {
        const PERFMON_AVAILABLE: u64 = 1 << 7;
        const BTS_UNAVAILABLE: u64 = 1 << 11;
        const PEBS_UNAVAILABLE: u64 = 1 << 12;
        let unavailable = if has_ds_pebs(self.facts) { 0 } else { PEBS_UNAVAILABLE };
        machine & !PEBS_UNAVAILABLE | PERFMON_AVAILABLE | BTS_UNAVAILABLE | unavailable
    }
}

fn overlay(profile: &Profile, facts: &profile::Perfmon, leaf: u32, subleaf: u32, regs: &mut CpuidRegs) {
    let extended = &facts.extended;
    match (leaf, subleaf) {
        (0, _) => regs.eax = regs.eax.max(highest_leaf(profile, facts)),
        (1, _) => {
            regs.eax = profile.signature;
            let set = |word: &mut u32, bit: u32, on: bool| *word = *word & !bit | if on { bit } else { 0 };
            set(&mut regs.ecx, PDCM, facts.has_capabilities());
            set(&mut regs.ecx, DTES64, has_ds_pebs(facts));
            set(&mut regs.edx, DS, has_ds_pebs(facts));
        }
        (FEATURES, 0) => {
            regs.eax = regs.eax.max(extended.perfmon_extension.map_or(0, |_| 1));
            regs.edx |= profile.hybrid.map_or(0, |_| HYBRID) | extended.arch_lbr.map_or(0, |_| ARCH_LBR);
        }
        (FEATURES, 1) => regs.eax |= extended.perfmon_extension.map_or(0, |_| ARCH_PERFMON_EXT),
        (PERFMON, _) => *regs = perfmon(profile, facts),
        (HYBRID_INFORMATION, 0) => {
            let eax = profile.hybrid.map_or(0, |core| u32::from(core.core_type) << 24 | core.native_model);
            *regs = CpuidRegs { eax, ..CpuidRegs::default() };
        }
        (LAST_BRANCH, _) => *regs = extended.arch_lbr.map(last_branch).unwrap_or_default(),
        (PERFMON_EXTENDED, _) => {
            let answer = |extension| perfmon_extended(profile, facts, extension, subleaf);
            *regs = extended.perfmon_extension.map(answer).unwrap_or_default();
        }
        _ => {}
    }
}

/// Says that there is Processor Trace, and of its capabilities none (SDM Vol. 3C 33.3.1), so that Linux's driver leaves it alone.
fn with_processor_trace(leaf: u32, subleaf: u32, regs: &mut CpuidRegs) {
    match (leaf, subleaf) {
        (0, _) => regs.eax = regs.eax.max(TRACE),
        (FEATURES, 0) => regs.ebx |= INTEL_PT,
        (TRACE, _) => *regs = CpuidRegs::default(),
        _ => {}
    }
}

fn highest_leaf(profile: &Profile, facts: &profile::Perfmon) -> u32 {
    let extended = &facts.extended;
    let leaves = [
        Some(PERFMON),
        profile.hybrid.map(|_| HYBRID_INFORMATION),
        extended.arch_lbr.map(|_| LAST_BRANCH),
        extended.perfmon_extension.map(|_| PERFMON_EXTENDED),
    ];
    leaves.into_iter().flatten().max().unwrap_or(PERFMON)
}

/// Architectural events, all of them available (SDM Vol. 3B, table 18-1): seven, and "Topdown Slots" where
/// there is that event.
fn architectural_events(profile: &Profile) -> u32 {
    7 + u32::from(profile.events.iter().any(|event| (event.select, event.umask) == (0xA4, 0x01)))
}

/// The fixed-function counters that exist, as a bit mask.
fn fixed_counters(facts: &profile::Perfmon) -> u32 {
    // At most 16 counters.
    ((1 << facts.fixed_counters) - 1) & !(facts.extended.absent_fixed as u32)
}

/// Every core of a hybrid part answers alike: what all of its cores have. What the performance cores have beyond
/// that Linux knows of Alder Lake (arch/x86/events/intel/core.c, intel_pmu_init), and reads in leaf 23H on later
/// parts. In a part with three types of cores those of the third are the smallest.
fn perfmon(profile: &Profile, facts: &profile::Perfmon) -> CpuidRegs {
    let others = profile.hybrid.into_iter().flat_map(Hybrid::others);
    let others = others.filter_map(|core| Some((core, core.perfmon()?)));
    let fixed = others.clone().fold(fixed_counters(facts), |fixed, (_, pmu)| fixed & fixed_counters(pmu));
    let (common, pmu) = others.last().unwrap_or((profile, facts));
    let bits = u32::from(pmu.counter_bits);
    let version_5 = pmu.version >= 5;
    // "Supported only if Architectural Performance Monitoring Version ID > 1".
    let fixed_bits = if pmu.version > 1 { bits << 5 } else { 0 };
    CpuidRegs {
        eax: u32::from(pmu.version)
            | u32::from(pmu.general_counters) << 8
            | bits << 16
            | architectural_events(common) << 24,
        // A set bit would mean "not available".
        ebx: 0,
        ecx: if version_5 { fixed } else { 0 },
        // The number of fixed-function counters counts those without a gap before them.
        edx: fixed.trailing_ones() | fixed_bits | if version_5 { ANY_THREAD_DEPRECATED } else { 0 },
    }
}

/// Depths; filtering by privilege and kind, and call stacks; misprediction, cycles and branch type of each
/// record.
fn last_branch(lbr: ArchitecturalLbr) -> CpuidRegs {
    CpuidRegs { eax: u32::from(lbr.depths) | LBR_LIP, ebx: 0b111, ecx: 0b111, edx: 0 }
}

/// Sub-leaves 0 (which there are), 1 (counters), 3 (architectural events), with auto counter reload 2, and with architectural
/// PEBS 4 and 5.
fn perfmon_extended(
    profile: &Profile,
    facts: &profile::Perfmon,
    extension: PerfmonExtension,
    subleaf: u32,
) -> CpuidRegs {
    let none = CpuidRegs::default();
    match (subleaf, extension.pebs) {
        // Perhaps UnitMask2 and the EQ bit (EBX); slots per cycle (ECX 7:0).
        (0, pebs) => CpuidRegs {
            eax: 0b1011
                | if extension.reload.is_some() { 0b100 } else { 0 }
                | if pebs.is_some() { 0b11_0000 } else { 0 },
            ebx: u32::from(extension.unit_mask2) | u32::from(extension.equal) << 1,
            ecx: profile.microarchitecture.retire_width,
            ..none
        },
        (1, _) => CpuidRegs { eax: (1 << facts.general_counters) - 1, ebx: fixed_counters(facts), ..none },
        (2, _) => extension.reload.map_or(none, |acr| CpuidRegs {
            eax: acr.general,
            ebx: acr.fixed,
            ecx: acr.general_causes,
            edx: acr.fixed_causes,
        }),
        (3, _) => CpuidRegs { eax: (1 << architectural_events(profile)) - 1, ..none },
        (4, Some(pebs)) => CpuidRegs { ebx: pebs.groups, ..none },
        (5, Some(pebs)) => CpuidRegs {
            eax: pebs.general,
            ebx: pebs.pdist_general,
            // Fixed-function counters have 32 bits there.
            ecx: facts.extended.pebs_fixed as u32,
            edx: pebs.pdist_fixed,
        },
        _ => none,
    }
}
