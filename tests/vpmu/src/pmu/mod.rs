//! The performance-monitoring unit of one logical processor.
//!
//! [`Pmu`] is what an adapter sees of every kind; each kind has its own module, and is a variant of `Mechanism`.

mod amd;
mod cycles;
mod ds;
pub mod msr;
mod netburst;
mod perfmon;

use crate::bus::{Bus, PageFault, Retired};
use crate::event::{BasicCounts, MicroEvents, Privilege};
use crate::micro::BranchKind;
use crate::profile::{PmuKind, Profile};
use amd::Amd;
use netburst::{Netburst, SharedUnit};
use perfmon::Perfmon;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A general-protection fault, #GP(0): what an illegal `RDMSR`, `WRMSR` or `RDPMC` raises (SDM Vol. 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("general-protection fault")]
pub struct GeneralProtection;

/// The four registers that `CPUID` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names of the registers say it all")]
pub struct CpuidRegs {
    pub eax: u32,
    pub ebx: u32,
    pub ecx: u32,
    pub edx: u32,
}

/// How much of the instruction stream must be observed for the counters, as programmed now, to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Demand {
    /// No enabled counter counts anything.
    Nothing,
    /// [`Pmu::count_basic`] only.
    Basic,
    /// As `Basic`, and [`Retired::load`]/[`Retired::store`] with the linear address must be right at
    /// `settle`.
    DataAddresses,
    /// As `DataAddresses`, and every fetch, data access and branch must go through [`crate::Core`], its
    /// events to [`Pmu::count`], and [`crate::DataAccess::outcome`] must be filled in.
    Microarchitecture,
}

/// Choices the manuals leave open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Whether clearing a counter's IA32_PEBS_ENABLE bit disarms it when it has overflowed but not yet
    /// written its record. If not, the record is written at the counter's first event after the bit is set
    /// again.
    pub pebs_disable_disarms: bool,
    /// How many instructions after the event that triggers it a PEBS record is written (SDM Vol. 3B 18.9.4.4,
    /// "finite delay"). Its registers and instruction pointers are then those of that later
    /// boundary, also behind a change of privilege; data address, latency and data source stay the event's.
    pub pebs_skid: u64,
    /// One load in so many, on average, is tagged for the load latency facility; 1: every load (SDM Vol. 3B
    /// 18.9.4.2: "randomly").
    pub loads_per_tag: u32,
    /// Whether the processor says that it has Processor Trace, of which IA32_RTIT_CTL is modelled: it holds what was written, and
    /// nothing is traced.
    pub processor_trace: bool,
    /// Each so many-th record of architectural PEBS is written in fragments; 0: none is. The manual allows it and does not say
    /// when it happens.
    pub pebs_fragments: u32,
    /// Whether `CPUID` leaf 23H, where there is one, says that single counters can be kept from `RDPMC` in user mode. Of no modelled
    /// part is it known.
    pub rdpmc_user_disable: bool,
    /// Whether the overflow of a counter that reloads itself (auto counter reload) sets no bit of IA32_PERF_GLOBAL_STATUS; its PMI
    /// comes all the same. Linux's driver says so of the manual ("Disable PMI for self-reloaded ACR events").
    pub acr_hides_overflow: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pebs_disable_disarms: true,
            pebs_skid: 0,
            loads_per_tag: 1,
            processor_trace: false,
            pebs_fragments: 0,
            rdpmc_user_disable: false,
            acr_hides_overflow: true,
        }
    }
}

/// What became of a PEBS record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PebsOutcome {
    /// The record was written.
    Written {
        /// Address of the record's first byte: linear, of architectural PEBS physical.
        at: u64,
        /// Size of the record, which tells the groups of an adaptive or architectural one.
        bytes: u32,
        /// Counters the record is for, as in the record's "applicable counters" field.
        counters: u64,
        /// What the record itself says of them: the same, but in formats 1 and 2 all that have overflowed, and in format 0 nothing.
        shown: u64,
    },
    /// The buffer had no room below its absolute maximum (SDM Vol. 3B 18.8.1.1): the record is lost, the
    /// counters are reloaded.
    Dropped {
        /// Counters the record was for.
        counters: u64,
    },
    /// The DS area or the buffer was not mapped: the record is not written, the counters are not reloaded and
    /// stay armed. A real processor raises this as #PF; the adapter may do so.
    Faulted {
        /// Counters the record was for.
        counters: u64,
        /// The fault.
        fault: PageFault,
    },
}

/// What [`Pmu::settle`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use = "the truth log wants to know"]
pub struct Settlement {
    /// How many performance-monitoring interrupts were requested ([`Bus::pmi`] was called as often).
    pub pmis: u32,
    /// How many interrupts of instruction-based sampling were requested ([`Bus::ibs`] was called as often).
    pub ibs: u32,
    /// The PEBS record of this instruction, if one was due.
    pub pebs: Option<PebsOutcome>,
    /// If a record was due late ([`Options::pebs_skid`]): the instruction whose event it is for.
    pub cause: Option<Retired>,
}

/// One core, of which the logical processors may share parts of their PMU: NetBurst's do. Cloning shares it.
#[derive(Debug, Clone)]
pub struct PmuCore {
    profile: &'static Profile,
    options: Options,
    /// NetBurst's counters and their controls.
    shared: Option<SharedUnit>,
}

impl PmuCore {
    /// A core just after reset.
    #[must_use]
    pub fn new(profile: &'static Profile, options: Options) -> Self {
        let shared = profile.netburst().map(|facts| SharedUnit::new(facts, options));
        Self { profile, options, shared }
    }
}

/// The performance-monitoring unit of one logical processor. A clone shares nothing with it.
#[derive(Debug, Clone)]
pub struct Pmu {
    profile: &'static Profile,
    options: Options,
    mechanism: Mechanism,
}

/// The kinds of PMU. Each has all methods that [`Pmu`] passes on.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one for each logical processor, and it is hot")]
enum Mechanism {
    Amd(Amd),
    Perfmon(Perfmon),
    Netburst(Netburst),
}

/// What a snapshot holds of each.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Saved {
    Amd(amd::Saved),
    Perfmon(perfmon::Saved),
    Netburst(netburst::Saved),
}

/// Evaluates an expression with the mechanism of whatever kind it is.
macro_rules! each {
    ($mechanism:expr, $pmu:ident => $action:expr) => {
        match $mechanism {
            Mechanism::Amd($pmu) => $action,
            Mechanism::Perfmon($pmu) => $action,
            Mechanism::Netburst($pmu) => $action,
        }
    };
}

/// A snapshot of a [`Pmu`], for example beside a snapshot of the machine it belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    profile: String,
    options: Options,
    state: Saved,
}

/// Why a [`Snapshot`] cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// There is no profile of this name.
    #[error(
        "the snapshot is of the PMU profile `{0}`, which this version does not know; take a new snapshot"
    )]
    UnknownProfile(String),
    /// The profile has changed since the snapshot was taken.
    #[error("the snapshot does not fit the PMU profile `{0}` of this version; take a new snapshot")]
    Mismatch(String),
}

impl Pmu {
    /// A PMU just after reset, of a logical processor that shares it with no other.
    #[must_use]
    pub fn new(profile: &'static Profile, options: Options) -> Self {
        Self::of_thread(&PmuCore::new(profile, options), 0)
    }

    /// A PMU just after reset, of logical processor `thread` of `core`: less than [`Profile::pmu_threads`].
    #[must_use]
    pub fn of_thread(core: &PmuCore, thread: u8) -> Self {
        let &PmuCore { profile, options, ref shared } = core;
        let mechanism = match (profile.pmu, shared) {
            (PmuKind::Amd(facts), _) => Mechanism::Amd(Amd::new(profile, facts)),
            (PmuKind::Perfmon(facts), _) => Mechanism::Perfmon(Perfmon::new(profile, facts, options)),
            (PmuKind::Netburst(facts), unit) => {
                let unit = unit.clone().unwrap_or_else(|| SharedUnit::new(facts, options));
                Mechanism::Netburst(Netburst::new(profile, &unit, thread))
            }
        };
        Self { profile, options, mechanism }
    }

    /// The profile it models.
    #[must_use]
    pub fn profile(&self) -> &'static Profile {
        self.profile
    }

    /// The whole state. Settle first: what waits for the boundary is in it, the instruction it belongs to is
    /// not.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = match &self.mechanism {
            Mechanism::Amd(amd) => Saved::Amd(amd.save()),
            Mechanism::Perfmon(perfmon) => Saved::Perfmon(perfmon.save()),
            Mechanism::Netburst(netburst) => Saved::Netburst(netburst.save()),
        };
        Snapshot { profile: self.profile.name.into(), options: self.options, state }
    }

    /// The PMU of a snapshot.
    ///
    /// # Errors
    /// If the snapshot is of a profile that does not exist, or exists in another shape.
    pub fn restore(snapshot: Snapshot) -> Result<Self, RestoreError> {
        let Some(profile) =
            crate::profile::every().chain(crate::profile::cores()).find(|core| core.name == snapshot.profile)
        else {
            return Err(RestoreError::UnknownProfile(snapshot.profile));
        };
        let mut pmu = Self::new(profile, snapshot.options);
        let fits = match (&mut pmu.mechanism, snapshot.state) {
            (Mechanism::Amd(amd), Saved::Amd(saved)) => amd.restore(saved),
            (Mechanism::Perfmon(perfmon), Saved::Perfmon(saved)) => perfmon.restore(saved),
            (Mechanism::Netburst(netburst), Saved::Netburst(saved)) => netburst.restore(saved),
            _ => false,
        };
        if fits { Ok(pmu) } else { Err(RestoreError::Mismatch(snapshot.profile)) }
    }

    /// Whether `RDMSR`/`WRMSR` of `msr` must come to this PMU. True also for registers that would belong to
    /// it on a processor with more counters: those fault.
    #[must_use]
    pub fn owns_msr(&self, msr: u32) -> bool {
        each!(&self.mechanism, pmu => pmu.owns_msr(msr))
    }

    /// `RDMSR`.
    ///
    /// # Errors
    /// #GP if the register does not exist or cannot be read.
    pub fn rdmsr(&mut self, msr: u32) -> Result<u64, GeneralProtection> {
        each!(&self.mechanism, pmu => pmu.rdmsr(msr))
    }

    /// `WRMSR`. [`Pmu::demand`] and [`Pmu::headroom`] may change.
    ///
    /// # Errors
    /// #GP if the register does not exist, cannot be written, or `value` sets a reserved bit; then nothing
    /// changes.
    pub fn wrmsr(&mut self, msr: u32, value: u64) -> Result<(), GeneralProtection> {
        each!(&mut self.mechanism, pmu => pmu.wrmsr(msr, value))
    }

    /// `RDPMC` with this ECX in kernel mode. The check of CPL and CR4.PCE is the adapter's.
    ///
    /// # Errors
    /// #GP if ECX names no counter.
    pub fn rdpmc(&mut self, ecx: u32) -> Result<u64, GeneralProtection> {
        each!(&self.mechanism, pmu => pmu.rdpmc(ecx))
    }

    /// `RDPMC` with this ECX in user mode, which reads 0 of a counter that is kept from it.
    ///
    /// # Errors
    /// As [`Pmu::rdpmc`].
    pub fn user_rdpmc(&mut self, ecx: u32) -> Result<u64, GeneralProtection> {
        let kept = matches!(&self.mechanism, Mechanism::Perfmon(pmu) if pmu.is_kept_from_user(ecx));
        self.rdpmc(ecx).map(|value| if kept { 0 } else { value })
    }

    /// Overlays what the profile says onto the machine's own answer to `CPUID`.
    pub fn cpuid(&self, leaf: u32, subleaf: u32, regs: &mut CpuidRegs) {
        each!(&self.mechanism, pmu => pmu.cpuid(leaf, subleaf, regs));
    }

    /// Overlays the PMU's read-only bits onto the machine's IA32_MISC_ENABLE (SDM Vol. 4, table 2-2, 1A0H).
    #[must_use]
    pub fn misc_enable(&self, machine: u64) -> u64 {
        each!(&self.mechanism, pmu => pmu.misc_enable(machine))
    }

    /// Whether the local APIC masks its LVTPC entry when it delivers a PMI (SDM Vol. 3A 10.5.1). AMD's does not.
    #[must_use]
    pub fn masks_lvtpc(&self) -> bool {
        !matches!(self.mechanism, Mechanism::Amd(_))
    }

    /// What must be observed now, given what is programmed and enabled. Changes only in `wrmsr` and `settle`.
    #[must_use]
    pub fn demand(&self) -> Demand {
        each!(&self.mechanism, pmu => pmu.demand())
    }

    /// How many of each basic event may still occur at `privilege` before `settle` must be called, that is:
    /// `settle` belongs to the boundary of the instruction that makes the count reach the headroom.
    /// `u64::MAX` if unlimited, never 0 once settled.
    ///
    /// Counters that count both privileges limit both; hence count what has passed and ask again whenever the
    /// privilege level changes.
    #[must_use]
    pub fn headroom(&self, privilege: Privilege) -> [u64; 4] {
        each!(&self.mechanism, pmu => pmu.headroom(privilege))
    }

    /// Counts basic events that have passed since the last call.
    pub fn count_basic(&mut self, delta: &BasicCounts) {
        each!(&mut self.mechanism, pmu => pmu.count_basic(delta));
    }

    /// Counts what the microarchitecture model reported. Most of it is defined for retired instructions only:
    /// hold back what an instruction did until it retires, and forget it if it faults.
    #[inline]
    pub fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        each!(&mut self.mechanism, pmu => pmu.count(events, privilege));
    }

    /// Records a retired branch in the last-branch-record stack, if that is on ([`Pmu::demand`] is then
    /// `Microarchitecture`). Only for branches that were taken; `to` is the address executed next.
    pub fn record_branch(
        &mut self,
        from: u64,
        to: u64,
        kind: BranchKind,
        mispredicted: bool,
        privilege: Privilege,
    ) {
        each!(&mut self.mechanism, pmu => pmu.record_branch(from, to, kind, mispredicted, privilege));
    }

    /// Whether something waits for the instruction boundary: call `settle` there.
    #[must_use]
    pub fn needs_settle(&self) -> bool {
        each!(&self.mechanism, pmu => pmu.needs_settle())
    }

    /// At an instruction boundary: overflow bits, PEBS arming and record writing, freeze-on-PMI, PMI.
    pub fn settle(&mut self, retired: &Retired, bus: &mut dyn Bus) -> Settlement {
        each!(&mut self.mechanism, pmu => pmu.settle(retired, bus))
    }
}
