//! The PMUs that hpm knows: what is common ([`architectural`] to Intel's, [`amd`] to AMD's), and one file per generation.

pub mod amd;
pub mod amd_family10h;
pub mod amd_family15h;
pub mod amd_family16h;
pub mod amd_family17h;
pub mod amd_k8;
pub mod amd_zen3;
pub mod amd_zen4;
pub mod architectural;
pub mod broadwell;
pub mod core2;
pub mod cougarcove;
pub mod crestmont;
pub mod darkmont;
pub mod goldencove;
pub mod gracemont;
pub mod haswell;
pub mod icelake;
pub mod ivybridge;
pub mod lioncove;
pub mod nehalem;
pub mod netburst;
pub mod redwoodcove;
mod rules;
pub mod sandybridge;
pub mod skylake;
pub mod skymont;
pub mod westmere;

use self::amd::Amd;
use self::architectural::Perfmon;
use self::rules::{counted_as, only_precise, precise, rule, LATENCY};
pub use self::rules::{Constraint, EventRule, ExtraRegister, ExtraRule, FixedRule, Microcode, PreciseRule};
use super::abi::CoreType;
use super::allocate::CounterSet;
use super::lbr::Lbr;
use super::registers::{PerfEvtSel, IA32_PERF_GLOBAL_CTRL};
use super::Refusal;

/// Every generation that hpm knows, each vendor's in the order in which they appeared.
pub const GENERATIONS: [&Generation; 27] = [
    &core2::MEROM,
    &core2::CORE2,
    &nehalem::NEHALEM,
    &westmere::WESTMERE,
    &sandybridge::SANDYBRIDGE,
    &ivybridge::IVYBRIDGE,
    &haswell::HASWELL,
    &broadwell::BROADWELL,
    &skylake::SKYLAKE,
    &icelake::ICELAKE,
    &goldencove::GOLDENCOVE,
    &redwoodcove::REDWOODCOVE,
    &lioncove::LIONCOVE,
    &cougarcove::COUGARCOVE,
    &gracemont::GRACEMONT,
    &crestmont::CRESTMONT,
    &skymont::SKYMONT,
    &darkmont::DARKMONT,
    &amd_k8::K8,
    &amd_family10h::FAMILY_10H,
    &amd_family15h::FAMILY_15H,
    &amd_family16h::FAMILY_16H,
    &amd_family17h::ZEN_1,
    &amd_family17h::ZEN_2,
    &amd_zen3::ZEN_3,
    &amd_zen4::ZEN_4,
    &amd_zen4::ZEN_5,
];

/// Alder Lake and Raptor Lake: P-cores and E-cores in one processor.
const ALDER_LAKE: &[u32] = &[0x97, 0x9A, 0xB7, 0xBA, 0xBF];
/// Meteor Lake, and Arrow Lake-U, which is the same.
const METEOR_LAKE: &[u32] = &[0xAA, 0xAC, 0xB5];
/// Lunar Lake, Arrow Lake and Arrow Lake-H.
const LUNAR_LAKE: &[u32] = &[0xBD, 0xC5, 0xC6];
/// Panther Lake and Wildcat Lake.
const PANTHER_LAKE: &[u32] = &[0xCC, 0xD5, 0xE5];
/// Arrow Lake-H, which has low-power cores beside Lunar Lake's two types, and of what generation those are.
const THREE_TYPES: (u32, &Generation) = (0xC5, &crestmont::CRESTMONT);

/// How a PMU is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// As Intel's architectural performance monitoring (SDM Vol. 3B 20.2), of version 2 or later.
    Architectural,
    /// As NetBurst (SDM Vol. 3B 18.15).
    NetBurst(netburst::Unit),
    /// As AMD's core performance counters (AMD64 Architecture Programmer's Manual Vol. 2, chapter 13).
    Amd(Amd),
}

/// A PMU that hpm can program, as found on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Pmu {
    /// How it is programmed.
    pub interface: Interface,
    /// What its generation can count, and how.
    pub generation: &'static Generation,
    /// Of which cores it is the PMU: [`CoreType::Any`] on a processor that is not hybrid.
    pub core_type: CoreType,
    /// What CPUID says of its counters.
    pub perfmon: Perfmon,
    /// Whether general counters can be written in full width (IA32_PERF_CAPABILITIES.FW_WRITE).
    pub full_width_writes: bool,
    /// How it writes precise records, or why it does not.
    pub pebs: Result<Pebs, Refusal>,
    /// Its last branch records, if it has such as hpm knows.
    pub lbr: Option<Lbr>,
    /// Whether unit masks have 16 bits ([`super::registers::PerfEvtSel::unit_mask2`]).
    pub unit_mask2: bool,
    /// Whether CMASK can be compared for equality ([`super::registers::PerfEvtSel::eq`]).
    pub compares_equal: bool,
    /// Whether single counters can be kept from RDPMC in user mode ([`super::registers::PerfEvtSel::rdpmc_usr_disable`]).
    pub rdpmc_user_disable: bool,
    /// Which of its counters set each other back.
    pub reload: Reload,
    /// Several logical processors share one set of off-core response registers, so that one's value is for the others' events, too.
    pub shares_offcore: bool,
}

/// How a PMU writes PEBS records. A counter's overflow arms PEBS; the next event is recorded and the counter goes on from
/// its reset value, to which that event counts already: a reset of -n gives a record every n events (SDM Vol. 3B
/// 20.3.1.1.1, and what Linux's accounting of auto-reload rests on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pebs {
    /// Record format (IA32_PERF_CAPABILITIES, bits 11:8); 15 says that PEBS is architectural.
    pub format: u16,
    /// Counters that can write records.
    pub counters: CounterSet,
    /// Groups of an adaptive or architectural record that it can write beside the basic one, as bits of
    /// MSR_PEBS_DATA_CFG; 0 when all records are alike.
    pub groups: u64,
}

impl Pebs {
    /// Whether it is architectural: the buffer is described by registers, and each counter's period is in CFG_C.
    pub(super) const fn is_architectural(self) -> bool {
        self.format == super::layout::ARCHITECTURAL
    }
}

/// Auto counter reload (CPUID.23H.2): a counter's CFG_B says which counters' overflows set it to the value in its CFG_C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reload {
    /// Counters that others can set back.
    pub reloaded: CounterSet,
    /// Of these the ones that can set back others, and themselves: those that can measure a window.
    pub windows: CounterSet,
}

impl Reload {
    /// No counter.
    pub(super) const NONE: Self = Self { reloaded: CounterSet::EMPTY, windows: CounterSet::EMPTY };
}

/// What is the same on all cores of one generation.
#[derive(Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its name.
    pub name: &'static str,
    /// Display models of family 6 all of whose cores have it (SDM Vol. 4, table 2-1, and Linux's `intel-family.h`); none of
    /// AMD's, for which see [`amd::generation_of`].
    pub models: &'static [u32],
    /// Display models of family 6 whose cores of `core_type` have it.
    pub hybrid_models: &'static [u32],
    /// The type of its cores in a hybrid processor.
    pub core_type: CoreType,
    /// Events of general counters, in order of event select.
    pub events: &'static [EventRule],
    /// Encodings that other counters count than `events` says of their event select.
    pub constrained: &'static [Constraint],
    /// Events of fixed counters beside those of [`architectural`].
    pub fixed: &'static [FixedRule],
    /// Events that can be sampled precisely.
    pub precise: &'static [PreciseRule],
    /// Events that need a register beside their encoding.
    pub extra: &'static [ExtraRule],
    /// What its counters do unlike those of others.
    pub quirks: Quirks,
    /// PEBS record formats that its processors have.
    pub pebs_formats: &'static [u16],
    /// General counters that can write PEBS records, one bit each, where CPUID does not say.
    pub pebs_counters: u16,
    /// Format of its last branch records (IA32_PERF_CAPABILITIES, bits 5:0); 0 for such as hpm does not use.
    pub lbr_format: u8,
    /// The microcode from which on PEBS works; any does when there is no entry, and none does of a stepping without one.
    pub errata: &'static [Microcode],
}

/// What the counters of few generations do.
#[derive(Debug, PartialEq, Eq)]
pub struct Quirks {
    /// The off-core response registers belong to the core, and not to each of its logical processors (the table above
    /// `enum extra_reg_type` in Linux's arch/x86/events/perf_event.h).
    pub core_has_offcore: bool,
    /// General counters that count when only user mode is to be counted, one bit each.
    pub user_counters: u16,
    /// A general counter may not count after a change of its event select, unless it has run with certain others before.
    pub counters_stick: bool,
    /// The buffer that hardware fills with records must not be larger than a page: with more, the WRMSR to IA32_PERF_GLOBAL_CTRL
    /// hangs (`intel_ds_pebs_init` in Linux's arch/x86/events/intel/ds.c).
    pub one_page_of_records: bool,
}

impl Quirks {
    /// Counters as the manuals describe them.
    pub const NONE: Self = Self {
        core_has_offcore: false,
        user_counters: 0xFF,
        counters_stick: false,
        one_page_of_records: false,
    };
}

/// The generation of this processor of family 6, or in a hybrid one that of its cores of this type, if hpm knows it.
#[must_use]
pub fn generation_of(model: u32, core_type: CoreType) -> Option<&'static Generation> {
    if core_type == CoreType::LowPower {
        let (of, generation) = THREE_TYPES;
        return (of == model).then_some(generation);
    }
    GENERATIONS.into_iter().find(|generation| {
        // AMD's have no models of family 6.
        let hybrid = generation.hybrid_models.contains(&model);
        generation.models.contains(&model) || hybrid && generation.core_type == core_type
    })
}

/// Whether processors of this model have cores of several types, unless all of one type are switched off.
#[must_use]
pub fn may_be_hybrid(model: u32) -> bool {
    GENERATIONS.into_iter().any(|generation| generation.hybrid_models.contains(&model))
}

impl Generation {
    /// The rule for the event select of this encoding.
    #[must_use]
    pub fn event_of(&self, encoding: u64) -> Option<&'static EventRule> {
        // Bits 35:32 are AMD's event select 11:8.
        self.event((encoding & 0xFF | encoding >> 24 & 0xF00) as u16)
    }

    /// The rule for this event select.
    #[must_use]
    pub fn event(&self, select: u16) -> Option<&'static EventRule> {
        let place = self.events.binary_search_by_key(&select, |rule| rule.select).ok()?;
        self.events.get(place)
    }

    /// General counters that can count this encoding of an event select that the rule is for, one bit each.
    #[must_use]
    pub fn counters(&self, rule: &EventRule, encoding: u64) -> u16 {
        self.constrained
            .iter()
            .find(|constraint| u64::from(constraint.encoding) == encoding)
            .map_or(rule.counters, |constraint| constraint.counters)
    }

    /// The rule for sampling this encoding precisely.
    #[must_use]
    pub fn precise(&self, encoding: u64) -> Option<&'static PreciseRule> {
        self.precise.iter().find(|rule| rule.encoding == encoding)
    }

    /// The register that the event select and unit masks of this encoding need beside them.
    #[must_use]
    pub fn extra(&self, encoding: u64) -> Option<&'static ExtraRule> {
        let event = PerfEvtSel(encoding & 0xFF).with_whole_unit_mask(PerfEvtSel(encoding).whole_unit_mask());
        self.extra.iter().find(|rule| u64::from(rule.encoding) == event.0)
    }

    /// Whether any of its events needs this register.
    #[must_use]
    pub fn has_extra(&self, register: ExtraRegister) -> bool {
        self.extra.iter().any(|rule| rule.register == register)
    }
}

impl Pmu {
    /// The bits of an event select register that say which event is counted.
    pub(super) const fn event_bits(&self) -> u64 {
        match self.interface {
            // EventSelect has 12 bits (APM Vol. 2, 13.2.2): 7:0 and 35:32.
            Interface::Amd(_) => 0xF_0000_FFFF,
            Interface::Architectural if self.unit_mask2 => PerfEvtSel(0xFF).with_whole_unit_mask(0xFFFF).0,
            Interface::Architectural | Interface::NetBurst(_) => 0xFFFF,
        }
    }

    /// Every counter that hpm uses.
    #[must_use]
    pub fn counters(&self) -> CounterSet {
        match self.interface {
            Interface::Architectural | Interface::Amd(_) => self.perfmon.counters(),
            Interface::NetBurst(unit) => unit.counter_set(),
        }
    }

    /// The register that starts and stops all counters, if there is one: IA32_PERF_GLOBAL_CTRL (SDM Vol. 3B 20.2.2), or AMD's.
    #[must_use]
    pub fn starting_register(&self) -> Option<u32> {
        match self.interface {
            Interface::Architectural => Some(IA32_PERF_GLOBAL_CTRL),
            Interface::Amd(amd) => amd.global.then_some(amd::PERF_CNTR_GLOBAL_CTL),
            Interface::NetBurst(_) => None,
        }
    }

    /// Whether one session at a time can use it, because its registers are shared between logical processors that may run
    /// different sessions.
    #[must_use]
    pub fn serves_one_session(&self) -> bool {
        matches!(self.interface, Interface::NetBurst(unit) if unit.share != netburst::Share::Whole)
    }
}
