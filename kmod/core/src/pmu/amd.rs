//! AMD's core performance counters: where their registers are, and which of them a processor has.
//!
//! "APM" is the AMD64 Architecture Programmer's Manual, Vol. 2, chapter 13 ("Software Debug and Performance Resources"), "PPR"
//! the Processor Programming Reference, "BKDG" the BIOS and Kernel Developer's Guide of a family (0FH: 32559, 10H: 31116).
//!
//! K7 and K8 have four counters, switched on by themselves. Later families have six at other addresses. PerfMonV2 adds
//! registers like those of Intel's version 2: one that starts and stops, one that says which counters overflowed.

use super::super::abi::{CoreType, Reason};
use super::super::allocate::{Counter, CounterSet};
use super::super::detect::{Cpuid, CpuidRegisters};
use super::super::ibs::{Ibs, COUNT_OPS};
use super::super::Refusal;
use super::architectural::Perfmon;
use super::{amd_family10h, amd_family15h, amd_family16h, amd_family17h, amd_k8, amd_zen3, amd_zen4};
use super::{counted_as, rule, EventRule, Generation, Interface, Pmu, PreciseRule, Quirks, Reload};

/// PerfEvtSel0 of K7 and K8, one register after the other (APM 13.2.2).
const PERF_LEGACY_CTL0: u32 = 0xC001_0000;
/// PerfCtr0 of K7 and K8, one register after the other (APM 13.2.1).
const PERF_LEGACY_CTR0: u32 = 0xC001_0004;
/// PERF_CTL0, the first extended event select; each is followed by its counter (APM 13.2.1, "Core Performance Counters").
pub const PERF_CTL0: u32 = 0xC001_0200;
/// PerfCntrGlobalStatus: a bit for each counter that has overflowed (APM 13.2.1, "Performance Monitoring Version 2").
pub const PERF_CNTR_GLOBAL_STATUS: u32 = 0xC000_0300;
/// PerfCntrGlobalCtl: a bit for each counter that may count.
pub const PERF_CNTR_GLOBAL_CTL: u32 = 0xC000_0301;
/// PerfCntrGlobalStatusClr: a 1 clears that bit of PerfCntrGlobalStatus.
pub const PERF_CNTR_GLOBAL_STATUS_CLR: u32 = 0xC000_0302;

/// What AMD's generations have none of: fixed counters, PEBS, events bound to some counters.
pub(super) const BASE: Generation = Generation {
    name: "",
    models: &[],
    hybrid_models: &[],
    core_type: CoreType::Any,
    events: &[],
    constrained: &[],
    fixed: &[],
    precise: &[],
    extra: &[],
    quirks: Quirks::NONE,
    pebs_formats: &[],
    pebs_counters: 0,
    lbr_format: 0,
    errata: &[],
};

/// An event that each of four counters counts.
pub(super) const fn any_of_four(select: u16, unit_mask_bits: u16) -> EventRule {
    rule(select, unit_mask_bits, 0x0F)
}

/// An event that each of six counters counts.
pub(super) const fn any_of_six(select: u16, unit_mask_bits: u16) -> EventRule {
    rule(select, unit_mask_bits, 0x3F)
}

/// Two tables as one, in the order of their event selects, which must all differ.
pub(super) const fn merged<const A: usize, const B: usize, const BOTH: usize>(
    one: &[EventRule; A],
    other: &[EventRule; B],
) -> [EventRule; BOTH] {
    assert!(A + B == BOTH);
    let mut all = [const { rule(0, 0, 0) }; BOTH];
    let (mut a, mut b) = (0, 0);
    while a + b < BOTH {
        let next = if b == B || a < A && one[a].select < other[b].select { &one[a] } else { &other[b] };
        assert!(a + b == 0 || all[a + b - 1].select < next.select);
        all[a + b] = rule(next.select, next.unit_mask_bits, next.counters);
        if a < A && next.select == one[a].select {
            a += 1;
        } else {
            b += 1;
        }
    }
    all
}

/// What instruction-based sampling samples, by the event that counts what it counts (as perf: `core_pmu_ibs_config`; it counts
/// ops when they are dispatched, and all privilege levels): cycles, ops, and fetches by the event with this encoding.
pub(super) const fn sampled_by_ibs(fetches: u64) -> [PreciseRule; 3] {
    const OP: CounterSet = CounterSet::one(Counter::IBS_OP);
    const FETCH: CounterSet = CounterSet::one(Counter::IBS_FETCH);
    [
        PreciseRule { counters: OP, ..counted_as(0x76, 0, 0x76) },
        PreciseRule { counters: OP, pebs_enable: COUNT_OPS, ..counted_as(0xC1, 0, 0xC1) },
        PreciseRule { counters: FETCH, ..counted_as(fetches, 0, fetches) },
    ]
}

/// Bits of a counter (APM 13.2.1).
const COUNTER_WIDTH: u32 = 48;

/// What differs between AMD's PMUs beside their events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amd {
    /// The counters are at the extended addresses (PerfCtrExtCore).
    pub extended: bool,
    /// PerfMonV2: there are PerfCntrGlobalCtl, -Status and -StatusClr.
    pub global: bool,
    /// Its instruction-based sampling.
    pub ibs: Option<Ibs>,
}

impl Amd {
    /// From one counter's register to the next one's, and from one event select to the next.
    #[must_use]
    pub const fn step(&self) -> u32 {
        if self.extended {
            2
        } else {
            1
        }
    }

    /// The event select register of a counter.
    #[must_use]
    pub const fn select_register(&self, counter: Counter) -> u32 {
        let first = if self.extended { PERF_CTL0 } else { PERF_LEGACY_CTL0 };
        first + self.step() * counter.place() as u32
    }

    /// A counter.
    #[must_use]
    pub const fn counter_register(&self, counter: Counter) -> u32 {
        let first = if self.extended { PERF_CTL0 + 1 } else { PERF_LEGACY_CTR0 };
        first + self.step() * counter.place() as u32
    }
}

/// The generation of AMD's processor of this family and model, if hpm knows it (models as in Linux's `bsp_init_amd`, of Zen 2
/// also some that perf's list of processors gives to it, `mapfile.csv`).
#[must_use]
pub const fn generation_of(family: u32, model: u32) -> Option<&'static Generation> {
    Some(match (family, model) {
        (0x0F, _) => &amd_k8::K8,
        (0x10, _) => &amd_family10h::FAMILY_10H,
        (0x15, _) => &amd_family15h::FAMILY_15H,
        (0x16, _) => &amd_family16h::FAMILY_16H,
        (0x17, 0x00..=0x2F) => &amd_family17h::ZEN_1,
        (0x17, 0x30..=0x3F | 0x47 | 0x60..=0x7F | 0x84..=0x87 | 0x90..=0xAF) => &amd_family17h::ZEN_2,
        (0x19, 0x00..=0x0F | 0x20..=0x5F) => &amd_zen3::ZEN_3,
        (0x19, 0x10..=0x1F | 0x60..=0xAF) => &amd_zen4::ZEN_4,
        (0x1A, 0x00..=0x2F | 0x40..=0x4F | 0x60..=0x7F) => &amd_zen4::ZEN_5,
        _ => return None,
    })
}

/// The PMU of AMD's processor of this family and model. Touches no register.
///
/// # Errors
/// [`Reason::UnknownPmu`], or [`Reason::NoPmu`] when a hypervisor hides the counters.
pub(in super::super) fn detect<C: Cpuid>(cpuid: &mut C, family: u32, model: u32) -> Result<Pmu, Refusal> {
    let unknown = Refusal::new(Reason::UnknownPmu, [family.into(), model.into()]);
    let generation = generation_of(family, model).ok_or(unknown)?;
    let last = cpuid.cpuid(0x8000_0000, 0).eax;
    let mut leaf = |leaf: u32| if leaf <= last { cpuid.cpuid(leaf, 0) } else { CpuidRegisters::default() };
    let features = leaf(0x8000_0001).ecx;
    // PerfCtrExtCore, and PerfMonV2 with its number of counters (APM Vol. 3, appendix E.4.2, E.4.19).
    let extended = features >> 23 & 1 == 1;
    let version_2 = leaf(0x8000_0022);
    let global = extended && version_2.eax & 1 == 1;
    let counters = match (global, extended) {
        (true, _) => version_2.ebx & 0xF,
        (false, true) => 6,
        (false, false) => 4,
    };
    let perfmon = Perfmon {
        version: if global { 2 } else { 1 },
        general: (1 << counters) - 1,
        general_width: COUNTER_WIDTH,
        ..Perfmon::default()
    }
    .usable();
    if perfmon.general == 0 {
        return Err(Refusal::new(Reason::NoPmu, [0; 2]));
    }
    let ibs =
        if features >> 10 & 1 == 1 { Some(Ibs::new(leaf(0x8000_001B).eax, family, model)) } else { None };
    Ok(Pmu {
        generation,
        core_type: CoreType::Any,
        perfmon,
        full_width_writes: true,
        pebs: Err(Refusal::new(Reason::NoPebs, [0; 2])),
        lbr: None,
        unit_mask2: false,
        compares_equal: false,
        rdpmc_user_disable: false,
        reload: Reload::NONE,
        shares_offcore: false,
        interface: Interface::Amd(Amd { extended, global, ibs }),
    })
}
