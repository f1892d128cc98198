//! One CPU's PMU while hpm holds it: what was found there, and what is in its registers now. One module for each family of
//! PMUs; the engine calls this one, in the same order whatever the family is.
//!
//! Registers that hpm alone writes are shadowed, so that none is written with the value it has.

mod amd;
mod architectural;
mod found;
mod netburst;

pub(super) use self::amd::HeldIbs;
use super::allocate::{Counter, COUNTERS_MAX};
use super::layout::RecordLayout;
use super::pmu::Interface;
use super::port::Port;
use super::program::{Program, SamplingCounter};
use super::registers::PerfEvtSel;
use super::{Pmu, Refusal};

/// The PMU of one CPU, held.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each CPU, and nothing is allocated here")]
pub(super) enum Hardware {
    /// Intel's architectural performance monitoring.
    Architectural(architectural::Hardware),
    /// NetBurst.
    NetBurst(netburst::Hardware),
    /// AMD's.
    Amd(amd::Hardware),
}

/// Calls the method of the family.
macro_rules! of_interface {
    ($self:ident, $held:ident => $call:expr) => {
        match $self {
            Self::Architectural($held) => $call,
            Self::NetBurst($held) => $call,
            Self::Amd($held) => $call,
        }
    };
}

impl Hardware {
    /// A PMU that has yet to be taken: [`Hardware::acquire`] fills it in where it is, because a kernel stack has no room for many
    /// of these.
    pub(super) const fn idle(pmu: &Pmu) -> Self {
        match pmu.interface {
            Interface::Architectural => Self::Architectural(architectural::Hardware::idle(pmu)),
            Interface::NetBurst(unit) => Self::NetBurst(netburst::Hardware::idle(pmu, unit)),
            Interface::Amd(amd) => Self::Amd(amd::Hardware::idle(pmu, amd)),
        }
    }

    /// Takes the PMU: afterwards it is stopped, with no counter enabled.
    ///
    /// # Errors
    /// [`super::abi::Reason::CountersRunning`], or of AMD's also [`super::abi::Reason::NoPmu`]; all registers are as they
    /// were then.
    pub(super) fn acquire<P: Port>(&mut self, port: &mut P) -> Result<(), Refusal> {
        of_interface!(self, held => held.acquire(port))
    }

    /// Gives the PMU back as it was found; what enables counting comes last.
    pub(super) fn release<P: Port>(&mut self, port: &mut P) {
        of_interface!(self, held => held.release(port));
    }

    /// [`acknowledge`] for this PMU.
    pub(super) fn acknowledge<P: Port>(&self, port: &mut P) -> bool {
        acknowledge(port, self.pmu())
    }

    /// As [`Hardware::acknowledge`], of a PMI that is known to be for records of the debug store, and of no counter that interrupts. False,
    /// with nothing done, where registers must be asked nevertheless.
    pub(super) fn acknowledge_records<P: Port>(&self, port: &mut P) -> bool {
        let Self::Architectural(held) = self else { return false };
        held.acknowledge_records(port);
        true
    }

    fn pmu(&self) -> &Pmu {
        of_interface!(self, held => held.pmu())
    }

    /// Instruction-based sampling, where there is such.
    pub(super) const fn ibs(&self) -> Option<&HeldIbs> {
        match self {
            Self::Amd(held) => held.ibs.as_ref(),
            _ => None,
        }
    }

    /// [`Hardware::ibs`], to change it.
    pub(super) fn ibs_mut(&mut self) -> Option<&mut HeldIbs> {
        match self {
            Self::Amd(held) => held.ibs.as_mut(),
            _ => None,
        }
    }

    /// Architectural version of the PMU; 0 for one that is not architectural.
    pub(super) fn perfmon_version(&self) -> u32 {
        self.pmu().perfmon.version
    }

    /// Programs the events of a session. The PMU must be stopped. Counters may lose what they held
    /// ([`Hardware::forgets_positions`]).
    pub(super) fn load<P: Port>(&mut self, port: &mut P, program: &Program) {
        of_interface!(self, held => held.load(port, program));
    }

    /// Programs no event. The PMU must be stopped.
    pub(super) fn unload<P: Port>(&mut self, port: &mut P) {
        of_interface!(self, held => held.unload(port));
    }

    /// Sets the value from which a counter goes on after each record. The PMU must be stopped.
    pub(super) fn set_reset<P: Port>(
        &mut self,
        port: &mut P,
        layout: &RecordLayout,
        sampler: &SamplingCounter,
        period: u64,
    ) {
        match self {
            Self::Architectural(held) => held.set_reset(port, layout, sampler, period),
            Self::NetBurst(held) => held.set_reset(port, sampler, period),
            // No counter writes records.
            Self::Amd(_) => {}
        }
    }

    /// Starts and stops counters: those run whose bits in IA32_PERF_GLOBAL_CTRL, or in what stands for it, are set.
    pub(super) fn set_global_ctrl<P: Port>(&mut self, port: &mut P, value: u64) {
        of_interface!(self, held => held.set_global_ctrl(port, value));
    }

    /// Stops counters and records.
    pub(super) fn stop<P: Port>(&mut self, port: &mut P) {
        self.set_global_ctrl(port, 0);
        self.set_pebs_enable(port, 0);
    }

    /// Leaves to somebody else the counters that he has programmed meanwhile: no register of theirs is written any more.
    pub(super) fn cede<P: Port>(&mut self, port: &mut P) {
        of_interface!(self, held => held.cede(port));
    }

    /// Has hardware know no address of hpm's memory until a segment is described again.
    pub(super) fn forget_buffer<P: Port>(&self, port: &mut P) {
        if let Self::Architectural(held) = self {
            held.forget_buffer(port);
        }
    }

    /// Writes IA32_DS_AREA once more, where records go by it.
    pub(super) fn restore_ds_area<P: Port>(&self, port: &mut P) {
        if let Self::Architectural(held) = self {
            held.restore_ds_area(port);
        }
    }

    /// Whether somebody else counts with one of the counters, so that what it reads says nothing.
    pub(super) const fn has_ceded(&self) -> bool {
        matches!(self, Self::Architectural(held) if held.has_ceded())
    }

    /// Whether a register that says which counters run reads otherwise than it was last written, or counters are ceded: somebody else
    /// uses the PMU.
    pub(super) fn is_foreign<P: Port>(&self, port: &mut P) -> bool {
        of_interface!(self, held => held.is_foreign(port))
    }

    /// Whether somebody else has written what [`Self::set_global_ctrl`] is about to write, after which nothing would show it: to be
    /// called before where that happens often. What he counts with is left to him.
    pub(super) fn notice_others<P: Port>(&mut self, port: &mut P) -> bool {
        let noticed =
            if let Self::NetBurst(held) = &*self { held.is_own_foreign(port) } else { self.is_foreign(port) };
        if noticed {
            self.cede(port);
        }
        noticed
    }

    /// Whether a register that says what is counted reads otherwise than it was last written: one of them, by turns, or any.
    pub(super) fn has_foreign_select<P: Port>(&self, port: &mut P, turn: Option<u32>) -> bool {
        of_interface!(self, held => held.has_foreign_select(port, turn))
    }

    /// Whether no counter runs.
    pub(super) fn is_stopped(&self) -> bool {
        of_interface!(self, held => held.is_stopped())
    }

    /// Sets IA32_PEBS_ENABLE: allows or forbids records, and tags. The PMU must be stopped; of Intel's architectural one it is, if there is
    /// something to be changed.
    pub(super) fn set_pebs_enable<P: Port>(&mut self, port: &mut P, value: u64) {
        match self {
            Self::Architectural(held) => held.set_pebs_enable(port, value),
            Self::NetBurst(held) => held.set_pebs_enable(port, value),
            Self::Amd(_) => {}
        }
    }

    /// Whether a counter that would write records can run without writing any.
    pub(super) const fn can_forbid_records(&self) -> bool {
        matches!(self, Self::Architectural(_))
    }

    /// Whether a counter that is stopped may lose what its overflow was to bring at its next event.
    pub(super) const fn forgets_overflows(&self) -> bool {
        matches!(self, Self::NetBurst(_))
    }

    /// Whether [`Hardware::load`] changes what counters hold, so that sampling ones have to be set anew.
    pub(super) fn forgets_positions(&self) -> bool {
        self.pmu().generation.quirks.counters_stick
    }

    /// Clears overflow indications of these counters, where records tell by them which counters they are for.
    pub(super) fn reset_status<P: Port>(&self, port: &mut P, bits: u64) {
        match self {
            Self::Architectural(held) => held.reset_status(port, bits),
            Self::NetBurst(_) => {}
            Self::Amd(held) => held.reset_status(port, bits),
        }
    }

    /// A counter that has overflowed is set back, and its interrupt may still come. Noted where nothing else would say whose
    /// it is.
    pub(super) fn note_served_overflow<P: Port>(&self, port: &mut P) {
        if let Self::Amd(held) = self {
            held.note_served_overflow(port);
        }
    }

    /// The value from which a counter goes on that is to interrupt as late as it can. Of AMD's, where nothing but the counter
    /// may tell of an overflow, it does not look like one that has.
    pub(super) fn far_value(&self) -> u64 {
        match self {
            Self::Architectural(_) | Self::NetBurst(_) => 0,
            Self::Amd(held) => 1 << (held.pmu().perfmon.general_width - 1),
        }
    }

    /// The furthest from its overflow that a sampling counter can be.
    pub(super) fn period_max(&self) -> i64 {
        self.pmu().period_max() as i64
    }

    /// Reads a counter.
    pub(super) fn read<P: Port>(&self, port: &mut P, counter: Counter) -> u64 {
        port.rdpmc(self.rdpmc_index(counter))
    }

    /// Whether a counter that was set below zero has passed it since.
    pub(super) fn has_overflowed<P: Port>(&self, port: &mut P, counter: Counter) -> bool {
        self.read(port, counter) >> (self.width(counter) - 1) & 1 == 0
    }

    /// Reads every counter that the program needs.
    pub(super) fn read_all<P: Port>(
        &self,
        port: &mut P,
        program: &Program,
        values: &mut [u64; COUNTERS_MAX],
    ) {
        for counter in program.read_counters() {
            values[counter.place()] = self.read(port, counter);
        }
    }

    /// RDPMC's ECX for this counter.
    pub(super) fn rdpmc_index(&self, counter: Counter) -> u32 {
        match self {
            Self::Architectural(held) => held.rdpmc_index(counter),
            Self::NetBurst(_) => netburst::Hardware::rdpmc_index(counter),
            Self::Amd(_) => amd::Hardware::rdpmc_index(counter),
        }
    }

    /// The bits that this counter has.
    pub(super) fn mask(&self, counter: Counter) -> u64 {
        u64::MAX >> (64 - self.width(counter))
    }

    fn width(&self, counter: Counter) -> u32 {
        let perfmon = &self.pmu().perfmon;
        if counter.as_fixed().is_some() {
            perfmon.fixed_width
        } else {
            perfmon.general_width
        }
    }

    /// Writes a counter, cut to its width. The PMU must be stopped.
    pub(super) fn write<P: Port>(&self, port: &mut P, counter: Counter, value: u64) {
        of_interface!(self, held => held.write(port, counter, value));
    }

    /// Sets every counter to [`Hardware::far_value`]: one that interrupts keeps its event select, and must not look as if it
    /// had overflowed. The PMU must be stopped.
    pub(super) fn level_counters<P: Port>(&self, port: &mut P) {
        for counter in self.pmu().counters().iter() {
            self.write(port, counter, self.far_value());
        }
    }

    /// What a counter counted from one value to another, with its sign: a counter that was set back gives a negative one.
    pub(super) fn difference(&self, counter: Counter, from: u64, to: u64) -> i64 {
        let unused = 64 - self.width(counter);
        (to.wrapping_sub(from) << unused) as i64 >> unused
    }
}

/// In an NMI that interrupted a section: true when the PMI is hpm's, which is then acknowledged and LVTPC unmasked.
/// Call only on a CPU whose PMU hpm holds, and it is this one. Uses nothing that a section depends on.
///
/// A PMI of Intel's masks LVTPC, and only its NMI clears that, so that none is taken for somebody else's; of AMD's see its module.
pub fn acknowledge<P: Port>(port: &mut P, pmu: &Pmu) -> bool {
    match pmu.interface {
        Interface::Architectural => architectural::acknowledge(port),
        Interface::NetBurst(unit) => netburst::acknowledge(port, &unit),
        Interface::Amd(amd) => amd::acknowledge(port, pmu, amd),
    }
}

/// Whether a register reads otherwise than it was last written, in the bits of its mask: the one whose turn it is, or any.
fn any_differs<P: Port>(
    port: &mut P,
    mut written: impl Iterator<Item = (u32, u64, u64)> + Clone,
    turn: Option<u32>,
) -> bool {
    let mut differs = |(register, value, mask): (u32, u64, u64)| (port.rdmsr(register) ^ value) & mask != 0;
    let Some(turn) = turn else { return written.any(differs) };
    let count = written.clone().count().max(1);
    written.nth(turn as usize % count).is_some_and(&mut differs)
}

/// An event select's place in [`any_differs`]: of one that is not enabled the rest does not matter.
fn select_written(register: u32, select: PerfEvtSel) -> (u32, u64, u64) {
    let enabled = PerfEvtSel(0).with_en(1).0;
    (register, select.0, if select.en() == 1 { u64::MAX } else { enabled })
}
