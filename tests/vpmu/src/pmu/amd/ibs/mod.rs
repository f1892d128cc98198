//! Instruction-based sampling (APM 13.3; the registers: PPR 56713, MSRC001_1030 to MSRC001_103C).
//!
//! A counter of fetches and a counter of ops or cycles each choose one: when the count reaches its maximum, that fetch
//! or op is tagged, what happens to it is recorded, and at its end the sample is valid, the counter stands still, and an
//! interrupt is requested through the extended local vector table (IBS_CTL names the entry).
//!
//! In the model an instruction is one op and one fetch. The manuals do not say exactly which op is tagged when the count is
//! reached: here it is the one whose count, or one of whose cycles, was the last.

mod fetch;
mod op;

use crate::bus::{Bus, Retired};
use crate::event::{Event, EventSet, MicroEvents};
use crate::pmu::{GeneralProtection, msr};
use crate::profile::{self, Microarchitecture, amd::ibs as feature};
use fetch::Fetch;
use op::Op;
use serde::{Deserialize, Serialize};

/// IBS_CTL: LvtOffsetVal, and the offset 0, which firmware commonly chooses.
const CTL: u64 = 1 << 8;

/// A register of the facility.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    FetchCtl,
    FetchLinAd,
    FetchPhysAd,
    FetchExtdCtl,
    OpCtl,
    OpRip,
    OpData,
    OpData2,
    OpData3,
    DcLinAd,
    DcPhysAd,
    BrTarget,
    Ctl,
}

impl Register {
    /// What `msr` is on a part with these features, if it exists.
    pub(super) fn of(features: u32, msr: u32) -> Option<Self> {
        let (register, needs) = match msr {
            msr::IBS_FETCH_CTL => (Self::FetchCtl, feature::FETCH_SAM),
            msr::IBS_FETCH_LINADDR => (Self::FetchLinAd, feature::FETCH_SAM),
            msr::IBS_FETCH_PHYSADDR => (Self::FetchPhysAd, feature::FETCH_SAM),
            msr::IBS_OP_CTL => (Self::OpCtl, feature::OP_SAM),
            msr::IBS_OP_RIP => (Self::OpRip, feature::OP_SAM),
            msr::IBS_OP_DATA => (Self::OpData, feature::OP_SAM),
            msr::IBS_OP_DATA2 => (Self::OpData2, feature::OP_SAM),
            msr::IBS_OP_DATA3 => (Self::OpData3, feature::OP_SAM),
            msr::IBS_DC_LINADDR => (Self::DcLinAd, feature::OP_SAM),
            msr::IBS_DC_PHYSADDR => (Self::DcPhysAd, feature::OP_SAM),
            msr::IBS_CTL => (Self::Ctl, feature::IBSFFV),
            msr::BP_IBSTGT_RIP => (Self::BrTarget, feature::BRN_TRGT),
            msr::IC_IBS_EXTD_CTL => (Self::FetchExtdCtl, feature::FETCH_CTL_EXTD),
            // IBS_OP_DATA4 exists on later models of family 15h alone, which are not modelled.
            _ => return None,
        };
        (features & needs != 0).then_some(register)
    }
}

/// What is known of the instruction that is being executed, or was last.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Instruction {
    /// What happened to it.
    events: EventSet,
    /// Cycles that it took.
    cycles: u32,
    /// Cycles that its fetch waited.
    fetch_stall: u32,
}

/// The facility's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Ibs {
    op: Op,
    fetch: Fetch,
    instruction: Instruction,
    random: Random,
}

impl Ibs {
    /// After reset.
    pub(super) fn new() -> Self {
        Self {
            op: Op::default(),
            fetch: Fetch::default(),
            instruction: Instruction::default(),
            random: Random::new(),
        }
    }

    /// Whether something is counted towards a sample.
    pub(super) fn is_running(&self) -> bool {
        self.op.is_running() || self.fetch.is_running()
    }

    /// Instructions until one is sampled, as far as it depends on their number.
    pub(super) fn headroom(&self) -> u64 {
        self.op.headroom()
    }

    /// Whether a sample waits for the end of its instruction.
    pub(super) fn is_due(&self) -> bool {
        self.op.is_due() || self.fetch.is_due()
    }

    /// Instructions have retired.
    pub(super) fn retire(&mut self, instructions: u64) {
        self.op.retire(instructions);
    }

    /// The microarchitecture reports a part of an instruction: its fetch, which comes first, an access, its branch.
    #[inline]
    pub(super) fn observe(&mut self, events: &MicroEvents) {
        if events.once.contains(Event::L1iRead) {
            self.instruction = Instruction { fetch_stall: events.stall_cycles, ..Instruction::default() };
            self.fetch.fetched();
        }
        self.instruction.events = self.instruction.events.union(events.once);
        self.instruction.cycles = self.instruction.cycles.saturating_add(events.cycles);
        self.op.pass(events.cycles);
    }

    /// At the end of an instruction: records it if it is tagged. Returns whether an interrupt is requested.
    pub(super) fn settle(
        &mut self,
        facts: &profile::Amd,
        core: &Microarchitecture,
        retired: &Retired,
        bus: &mut dyn Bus,
    ) -> bool {
        let mut sample = Sample {
            features: facts.ibs,
            core,
            instruction: self.instruction,
            retired,
            bus,
            random: &mut self.random,
        };
        // Both, if both are due: they share the interrupt.
        self.op.settle(&mut sample) | self.fetch.settle(&mut sample)
    }

    pub(super) fn read(&self, register: Register, facts: &profile::Amd) -> u64 {
        use Register as R;
        match register {
            R::FetchCtl => self.fetch.control(),
            R::FetchLinAd => self.fetch.linear,
            R::FetchPhysAd => self.fetch.physical,
            R::FetchExtdCtl => self.fetch.extended,
            R::OpCtl => self.op.control(facts.ibs),
            R::OpRip => self.op.rip,
            R::OpData => self.op.data,
            R::OpData2 => self.op.data2,
            R::OpData3 => self.op.data3,
            R::DcLinAd => self.op.linear,
            R::DcPhysAd => self.op.physical,
            R::BrTarget => self.op.target,
            R::Ctl => CTL,
        }
    }

    /// # Errors
    /// #GP: IBS_CTL is read-only (software sets it through the northbridge's configuration space).
    pub(super) fn write(
        &mut self,
        register: Register,
        value: u64,
        facts: &profile::Amd,
    ) -> Result<(), GeneralProtection> {
        use Register as R;
        match register {
            R::FetchCtl => self.fetch.set_control(value, facts.ibs, &mut self.random),
            R::FetchLinAd => self.fetch.linear = value,
            R::FetchPhysAd => self.fetch.physical = value,
            R::FetchExtdCtl => self.fetch.extended = value & 0xFFFF,
            R::OpCtl => self.op.set_control(value, facts.ibs),
            R::OpRip => self.op.rip = value,
            R::OpData => self.op.data = value,
            R::OpData2 => self.op.data2 = value,
            R::OpData3 => self.op.data3 = value,
            R::DcLinAd => self.op.linear = value,
            R::DcPhysAd => self.op.physical = value,
            R::BrTarget => self.op.target = value,
            R::Ctl => return Err(GeneralProtection),
        }
        Ok(())
    }
}

/// What a sample is made from.
struct Sample<'a> {
    /// `CPUID.8000_001BH:EAX`.
    features: u32,
    core: &'a Microarchitecture,
    instruction: Instruction,
    retired: &'a Retired,
    bus: &'a mut dyn Bus,
    random: &'a mut Random,
}

impl Sample<'_> {
    fn has(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    fn happened(&self, events: &[Event]) -> bool {
        !self.instruction.events.intersection(EventSet::of(events)).is_empty()
    }
}

/// The bits whose condition holds.
fn all(flags: &[(bool, u64)]) -> u64 {
    flags.iter().filter(|(holds, _)| *holds).fold(0, |bits, (_, bit)| bits | bit)
}

/// `value` as a field of 16 bits, which stops at its maximum.
fn saturated(value: u32) -> u64 {
    u64::from(value.min(0xFFFF))
}

/// What hardware draws at random, here the same in every run: Marsaglia's xorshift with shifts 13, 7 and 17.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Random(u64);

impl Random {
    fn new() -> Self {
        // Any number but 0, which the generator does not leave.
        Self(0x9E37_79B9_7F4A_7C15)
    }

    fn bits(&mut self, bits: u32) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> (64 - bits)
    }
}
