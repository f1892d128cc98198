//! Last branch records (LBR): the branches that a thread took last, kept by hardware (SDM Vol. 3B 18.4 to 18.12 for the
//! model-specific ones, chapter 19 for the architectural ones).
//!
//! | module | |
//! |---|---|
//! | this one | what the processor has, and what a session wants of it |
//! | `entries` | the registers of the records: reading, clearing, putting calls back |
//! | `control` | switching recording on and off |
//! | [`calls`] | the call stacks of threads that are not on a CPU |
//! | `held` | one CPU's branch records while hpm uses them |
//!
//! Records belong to a thread: those of another are gone before it runs, or, in call-stack mode, its own are put back. A
//! session whose events count user mode only has no branch recorded that comes from the kernel or leads there: by the
//! processor's filter of privilege levels, and without far branches, the only ones between levels.

pub mod calls;
mod control;
mod entries;
mod held;

use core::mem::offset_of;

pub(super) use self::held::{Holder, LastBranches};
use super::abi::{BranchFilter, EventSpec, Reason, SessionConfig};
use super::detect::CpuidRegisters;
use super::layout::LBRS;
use super::pmu::Pebs;
use super::{Pmu, Refusal};

/// Most records that hpm uses: the most that any processor has.
pub const BRANCHES_MAX: usize = 32;
/// Bytes of a record as user space gets it: from, to, and information.
pub const BRANCH_BYTES: u32 = 24;
/// LBR format (IA32_PERF_CAPABILITIES, bits 5:0) that says that the records are architectural.
pub const ARCHITECTURAL_LBR: u8 = 0x3F;

/// The last branch records of a logical processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lbr {
    /// How they are reached and laid out.
    pub kind: Kind,
    /// How many there are.
    pub depth: u32,
    /// Whether they can follow calls and returns in place of all branches.
    pub call_stack: bool,
}

/// How branch records are reached and laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MSR_LASTBRANCH_x: a ring, whose newest record MSR_LASTBRANCH_TOS names.
    ModelSpecific {
        /// Bits at the top of a FROM register that are not of the address: the misprediction, in format 4 two more.
        flags: u32,
        /// MSR_LBR_INFO_x exists.
        info: bool,
        /// A FROM register takes the two bits of transactions as part of the address when it is written, because the
        /// processor has no transactions (Linux: `lbr_from_signext_quirk_wr`).
        sign_extends: bool,
    },
    /// IA32_LBR_x: the newest record is the first.
    Architectural {
        /// Depths that IA32_LBR_DEPTH takes: bit n for 8 × (n + 1).
        depths: u8,
    },
}

impl Lbr {
    /// Model-specific records of this format (18.4.8.1), with as many as the processors have whose tables name it (18.8,
    /// 18.10, 18.12; Linux: `intel_pmu_lbr_init_*`). `transactions`: the processor has HLE or RTM.
    #[must_use]
    pub const fn model_specific(format: u8, transactions: bool) -> Option<Self> {
        let (flags, info, depth) = match format {
            3 => (1, false, 16),
            4 => (3, false, 16),
            5 => (0, true, 32),
            _ => return None,
        };
        let sign_extends = format == 4 && !transactions;
        Some(Self { kind: Kind::ModelSpecific { flags, info, sign_extends }, depth, call_stack: format >= 4 })
    }

    /// Architectural records as CPUID leaf 1CH enumerates them. `None` without filters for privilege level and type of
    /// branch (EBX bits 0 and 1), by which the kernel is kept out.
    #[must_use]
    pub const fn architectural(leaf: CpuidRegisters) -> Option<Self> {
        let depths = leaf.eax as u8 & 0xF;
        if depths == 0 || leaf.ebx & 3 != 3 {
            return None;
        }
        let depth = 8 * (8 - depths.leading_zeros());
        Some(Self { kind: Kind::Architectural { depths }, depth, call_stack: leaf.ebx >> 2 & 1 == 1 })
    }

    /// The least depth that holds so many.
    fn depth_for(&self, entries: u32) -> u32 {
        match self.kind {
            Kind::ModelSpecific { .. } => self.depth,
            Kind::Architectural { depths } => (0..8)
                .filter(|bit| depths >> bit & 1 == 1)
                .map(|bit| 8 * (bit + 1))
                .find(|&depth| depth >= entries)
                .unwrap_or(self.depth),
        }
    }
}

/// What a session wants recorded, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branches {
    pub(super) lbr: Lbr,
    /// Records kept with each sample.
    pub(super) entries: u32,
    /// Of [`Kind::Architectural`] IA32_LBR_DEPTH.
    depth: u32,
    /// [`BranchFilter`] bits, never 0.
    types: u32,
    /// Branches of user mode are recorded.
    user: bool,
    /// Branches of the kernel are recorded.
    pub(super) kernel: bool,
    /// Hardware writes them into its records; else the driver reads them at the PMI.
    pub(super) in_records: bool,
}

impl Branches {
    /// What this request wants of the PMU; `None` when it wants no branches. `pebs` is how hardware writes the session's
    /// records, if it does.
    ///
    /// # Errors
    /// [`Reason::TooManyBranches`], [`Reason::NoCallStackMode`] and [`Reason::StackBesideBranches`]; [`Reason::Field`]
    /// for a filter that nothing passes, or a stack ring that is missing.
    pub(super) fn wanted(
        pmu: &Pmu,
        config: &SessionConfig,
        pebs: Option<&Pebs>,
    ) -> Result<Option<Self>, Refusal> {
        if config.branches == 0 {
            return Ok(None);
        }
        let there = pmu.lbr.map_or(0, |lbr| lbr.depth);
        let Some(lbr) = pmu.lbr.filter(|_| config.branches <= there) else {
            return Err(Refusal::new(Reason::TooManyBranches, [config.branches.into(), there.into()]));
        };
        let in_records = pebs.is_some_and(|pebs| pebs.groups & LBRS != 0);
        if !in_records && (config.stack_bytes > 0 || config.frames > 0) {
            return Err(Refusal::new(Reason::StackBesideBranches, [0; 2]));
        }
        if !in_records && config.stack_ring_bytes == 0 {
            return Err(Refusal::field(offset_of!(SessionConfig, stack_ring_bytes)));
        }
        let calls = config.branch_filter & BranchFilter::CALL_STACK != 0;
        if calls && !lbr.call_stack {
            return Err(Refusal::new(Reason::NoCallStackMode, [0; 2]));
        }
        // A call stack is the user's, whatever is counted: the kernel's calls would push it out.
        let (user, kernel) = if calls { (true, false) } else { counted(config) };
        let types = types_of(config.branch_filter, kernel);
        if types == 0 {
            return Err(Refusal::field(offset_of!(SessionConfig, branch_filter)));
        }
        let depth = lbr.depth_for(config.branches);
        // An architectural PEBS record has the whole depth.
        let whole = in_records && pebs.copied().is_some_and(Pebs::is_architectural);
        let entries = if whole { depth } else { config.branches };
        Ok(Some(Self { lbr, entries, depth, types, user, kernel, in_records }))
    }

    /// Whether calls are followed in place of all branches.
    pub(super) const fn calls(&self) -> bool {
        self.types & BranchFilter::CALL_STACK != 0
    }

    /// Bytes of the stack ring that one sample's branches take.
    pub(super) const fn bytes_in_ring(&self) -> u32 {
        if self.in_records {
            0
        } else {
            self.entries * BRANCH_BYTES
        }
    }
}

/// Whether the session's events count user mode, and whether they count the kernel.
fn counted(config: &SessionConfig) -> (bool, bool) {
    let levels =
        config.events.iter().take(config.event_count as usize).fold(0, |all, event| all | event.privilege);
    (levels & EventSpec::USER != 0, levels & EventSpec::KERNEL != 0)
}

/// The types that a filter means: without the kernel's, no far branches.
const fn types_of(filter: u32, kernel: bool) -> u32 {
    let types = if filter == 0 { BranchFilter::TYPES } else { filter };
    if kernel {
        types
    } else {
        types & !BranchFilter::FAR
    }
}
