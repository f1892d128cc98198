//! AMD's PMU of one CPU: counters that are started together only with PerfMonV2, interrupts that may leave no trace, and IBS
//! ([`ibs`]). Sources as in [`super::super::pmu::amd`].

mod ibs;

pub(in super::super) use self::ibs::HeldIbs;
use super::super::abi::{Reason, SAMPLING_COUNTERS_MAX};
use super::super::allocate::{Counter, CounterSet};
use super::super::ibs as samplers;
use super::super::pmu::amd::{
    Amd, PERF_CNTR_GLOBAL_CTL, PERF_CNTR_GLOBAL_STATUS, PERF_CNTR_GLOBAL_STATUS_CLR,
};
use super::super::port::Port;
use super::super::program::Program;
use super::super::registers::PerfEvtSel;
use super::super::{Pmu, Refusal};

/// TSC ticks for which an interrupt that was served already may still come: a tenth of a second, as Linux waits for it
/// (`perf_nmi_window` in `arch/x86/events/amd/core.c`), at 2.7 GHz.
const LATE_TICKS: u64 = 1 << 28;

/// Every register of the counters that hpm changes, as it was found.
#[derive(Clone, Copy, Debug)]
struct Found {
    selects: [PerfEvtSel; SAMPLING_COUNTERS_MAX],
    counters: [u64; SAMPLING_COUNTERS_MAX],
    /// PerfCntrGlobalCtl and PerfCntrGlobalStatus, where there are such.
    global_ctl: u64,
    global_status: u64,
}

impl Found {
    const NONE: Self = Self {
        selects: [PerfEvtSel(0); SAMPLING_COUNTERS_MAX],
        counters: [0; SAMPLING_COUNTERS_MAX],
        global_ctl: 0,
        global_status: 0,
    };

    fn read<P: Port>(&mut self, port: &mut P, pmu: &Pmu, amd: Amd) {
        for counter in pmu.counters().iter() {
            self.selects[counter.place()] = PerfEvtSel(port.rdmsr(pmu.select_register(counter)));
            self.counters[counter.place()] = port.rdmsr(pmu.counter_register(counter));
        }
        if amd.global {
            self.global_ctl = port.rdmsr(PERF_CNTR_GLOBAL_CTL);
            self.global_status = port.rdmsr(PERF_CNTR_GLOBAL_STATUS);
        }
    }

    /// Refuses when a counter runs: it is enabled by itself and by PerfCntrGlobalCtl, where there is one.
    fn check_idle(&self, pmu: &Pmu, amd: Amd) -> Result<(), Refusal> {
        for counter in pmu.counters().iter() {
            let select = self.selects[counter.place()];
            if select.en() == 1 && (!amd.global || self.global_ctl >> counter.bit() & 1 == 1) {
                let running = [pmu.select_register(counter).into(), select.0];
                return Err(Refusal::new(Reason::CountersRunning, running));
            }
        }
        Ok(())
    }
}

/// The PMU of one CPU, held.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Hardware {
    pmu: Pmu,
    amd: Amd,
    found: Found,
    /// Event selects while their counters run.
    selects: [PerfEvtSel; SAMPLING_COUNTERS_MAX],
    /// A bit for each counter that runs, as in PerfCntrGlobalCtl, also where there is no such register; IBS at the bits of its
    /// samplers.
    running: u64,
    /// Counters that somebody else has programmed meanwhile: their registers are left to him.
    ceded: CounterSet,
    /// What PerfCntrGlobalCtl is to be when hpm has gone, if counters are ceded.
    theirs: Option<u64>,
    /// Instruction-based sampling, if the processor has it.
    pub(super) ibs: Option<HeldIbs>,
}

impl Hardware {
    /// What has yet to be taken.
    pub(super) const fn idle(pmu: &Pmu, amd: Amd) -> Self {
        let ibs = match amd.ibs {
            Some(ibs) => Some(HeldIbs::new(ibs)),
            None => None,
        };
        let selects = [PerfEvtSel(0); SAMPLING_COUNTERS_MAX];
        let (ceded, theirs) = (CounterSet::EMPTY, None);
        Self { pmu: *pmu, amd, found: Found::NONE, selects, running: 0, ceded, theirs, ibs }
    }

    /// Takes the PMU: afterwards it is stopped, with no counter enabled.
    ///
    /// # Errors
    /// [`Reason::CountersRunning`], or [`Reason::NoPmu`] when counters do not keep what is written to them, as where a
    /// hypervisor shows none; all registers are as they were then.
    pub(super) fn acquire<P: Port>(&mut self, port: &mut P) -> Result<(), Refusal> {
        self.found.read(port, &self.pmu, self.amd);
        self.found.check_idle(&self.pmu, self.amd)?;
        (self.selects, self.running) = (self.found.selects, self.found.global_ctl);
        self.check_counters(port)?;
        self.set_global_ctrl(port, 0);
        self.unload(port);
        Ok(())
    }

    fn check_counters<P: Port>(&self, port: &mut P) -> Result<(), Refusal> {
        const PATTERN: u64 = 0xABCD;
        let first = self.pmu.counter_register(Counter::at(0));
        port.wrmsr(first, PATTERN);
        let kept = port.rdmsr(first) == PATTERN;
        port.wrmsr(first, self.found.counters[0]);
        if kept {
            Ok(())
        } else {
            Err(Refusal::new(Reason::NoPmu, [0; 2]))
        }
    }

    /// Gives the PMU back as it was found, without what somebody else counts with meanwhile; what enables counting comes last.
    pub(super) fn release<P: Port>(&mut self, port: &mut P) {
        self.cede(port);
        let found = self.found;
        self.set_global_ctrl(port, 0);
        for counter in self.pmu.counters().iter() {
            self.write(port, counter, found.counters[counter.place()]);
        }
        self.set_selects(port, &found.selects);
        if let Some(ibs) = &mut self.ibs {
            ibs.release(port);
        }
        if self.amd.global {
            let general = u64::from(self.pmu.perfmon.general) & !self.ceded_bits();
            let ours = port.rdmsr(PERF_CNTR_GLOBAL_STATUS) & !found.global_status & general;
            if ours != 0 {
                port.wrmsr(PERF_CNTR_GLOBAL_STATUS_CLR, ours);
            }
        }
        self.set_global_ctrl(port, self.theirs.unwrap_or(found.global_ctl));
    }

    /// Leaves to somebody else the counters that he has programmed, without asking: those that are enabled otherwise than by hpm.
    pub(super) fn cede<P: Port>(&mut self, port: &mut P) {
        for counter in self.pmu.counters().iter() {
            let found = PerfEvtSel(port.rdmsr(self.pmu.select_register(counter)));
            if found.en() == 1 && found != self.written_select(counter.place()) {
                self.ceded = self.ceded.union(CounterSet::one(counter));
            }
        }
        if self.amd.global && !self.ceded.is_empty() {
            let (found, general) = (port.rdmsr(PERF_CNTR_GLOBAL_CTL), u64::from(self.pmu.perfmon.general));
            if (found ^ self.running) & general != 0 {
                self.theirs = Some(found);
                self.running = self.running & !general | found & general;
            } else {
                // A switch has written over it since.
                self.theirs.get_or_insert(self.found.global_ctl | self.ceded_bits());
            }
        }
    }

    fn ceded_bits(&self) -> u64 {
        self.ceded.general_bits().into()
    }

    /// What hpm has written to an event select.
    fn written_select(&self, place: usize) -> PerfEvtSel {
        let (select, running) = (self.selects[place], if self.amd.global { u64::MAX } else { self.running });
        select.with_en(select.en() & running >> place)
    }

    /// The PMU that is held.
    pub(super) const fn pmu(&self) -> &Pmu {
        &self.pmu
    }

    /// Programs the events of a session. The PMU must be stopped.
    pub(super) fn load<P: Port>(&mut self, port: &mut P, program: &Program) {
        self.set_selects(port, &program.selects);
        if let (true, Some(ibs)) = (program.uses_ibs(), &mut self.ibs) {
            // Refused when the session was made, unless the CPU has come online since; then it does not start.
            let _ = ibs.hold(port);
        }
    }

    /// Programs no event. The PMU must be stopped.
    pub(super) fn unload<P: Port>(&mut self, port: &mut P) {
        self.set_selects(port, &[PerfEvtSel(0); SAMPLING_COUNTERS_MAX]);
        if let Some(ibs) = &mut self.ibs {
            ibs.clear(port);
        }
    }

    fn set_selects<P: Port>(&mut self, port: &mut P, selects: &[PerfEvtSel; SAMPLING_COUNTERS_MAX]) {
        for (number, wanted) in selects.iter().enumerate() {
            let counter = Counter::at(number);
            if self.selects[number] != *wanted && !self.ceded.contains(counter) {
                self.selects[number] = *wanted;
                port.wrmsr(self.pmu.select_register(counter), self.written_select(number).0);
            }
        }
    }

    /// Starts and stops counters and samplers, from what runs to what `wanted` says.
    pub(super) fn set_global_ctrl<P: Port>(&mut self, port: &mut P, wanted: u64) {
        let general = u64::from(self.pmu.perfmon.general);
        let wanted =
            if let Some(theirs) = self.theirs { wanted | theirs & self.ceded_bits() } else { wanted };
        let changed = self.running ^ wanted;
        if let Some(ibs) = &mut self.ibs {
            ibs.stop(port, changed & !wanted);
        }
        if !self.amd.global {
            self.switch_selects(port, changed, wanted);
        } else if changed & general != 0 {
            port.wrmsr(PERF_CNTR_GLOBAL_CTL, wanted & general);
        }
        if let Some(ibs) = &self.ibs {
            ibs.start(port, changed & wanted);
        }
        self.running = wanted;
    }

    fn switch_selects<P: Port>(&self, port: &mut P, changed: u64, wanted: u64) {
        for (number, select) in self.selects.iter().enumerate().filter(|(_, select)| select.en() == 1) {
            if changed >> number & 1 == 1 && !self.ceded.contains(Counter::at(number)) {
                let register = self.pmu.select_register(Counter::at(number));
                port.wrmsr(register, select.with_en(wanted >> number & 1).0);
            }
        }
    }

    /// Whether somebody else shows by a register that says which counters and samplers run, or by counters that are ceded.
    pub(super) fn is_foreign<P: Port>(&self, port: &mut P) -> bool {
        let foreign = if self.amd.global {
            let ours = u64::from(self.pmu.perfmon.general);
            (port.rdmsr(PERF_CNTR_GLOBAL_CTL) ^ self.running) & ours != 0
        } else {
            let used = self.selects.iter().position(|select| select.en() == 1);
            used.is_some_and(|number| {
                port.rdmsr(self.pmu.select_register(Counter::at(number))) != self.written_select(number).0
            })
        };
        let ibs_is_foreign = |ibs: &HeldIbs| ibs.is_foreign(port, self.running);
        foreign || !self.ceded.is_empty() || self.ibs.as_ref().is_some_and(ibs_is_foreign)
    }

    /// Whether an event select reads otherwise than it was last written: one of them, by turns, or any.
    pub(super) fn has_foreign_select<P: Port>(&self, port: &mut P, turn: Option<u32>) -> bool {
        let general = CounterSet::general(self.pmu.perfmon.general as u16);
        let written = general.iter().map(|counter| {
            let place = counter.place();
            super::select_written(self.pmu.select_register(counter), self.written_select(place))
        });
        super::any_differs(port, written, turn)
    }

    /// Whether no counter runs.
    pub(super) const fn is_stopped(&self) -> bool {
        self.running == 0
    }

    /// Clears overflow indications.
    pub(super) fn reset_status<P: Port>(&self, port: &mut P, bits: u64) {
        if self.amd.global {
            port.wrmsr(PERF_CNTR_GLOBAL_STATUS_CLR, bits);
        }
    }

    /// RDPMC's ECX for this counter (APM Vol. 3, RDPMC).
    pub(super) const fn rdpmc_index(counter: Counter) -> u32 {
        counter.place() as u32
    }

    /// Writes a counter, cut to its width. The PMU must be stopped.
    pub(super) fn write<P: Port>(&self, port: &mut P, counter: Counter, value: u64) {
        if self.ceded.contains(counter) {
            return;
        }
        port.wrmsr(
            self.pmu.counter_register(counter),
            value & (u64::MAX >> (64 - self.pmu.perfmon.general_width)),
        );
    }

    /// A counter that has overflowed is set back, and its interrupt may still come.
    pub(super) fn note_served_overflow<P: Port>(&self, port: &mut P) {
        if !self.amd.global {
            note_served(port);
        }
    }
}

/// An interrupt has been served, or forgotten, that may still come.
fn note_served<P: Port>(port: &mut P) {
    let now = port.rdtsc();
    port.expect_pmi(now + LATE_TICKS);
}

/// Acknowledges a PMI that is hpm's: [`super::acknowledge`]. AMD's local APIC does not mask LVTPC at a PMI (Linux:
/// `amd_pmu_v2_handle_irq`). A sample of IBS waits until a section has read it; without PerfCntrGlobalStatus nothing but the
/// counter itself tells of its overflow, until a section sets it back. What a section has served already is claimed for a
/// while.
pub(super) fn acknowledge<P: Port>(port: &mut P, pmu: &Pmu, amd: Amd) -> bool {
    let mut ours = amd.ibs.is_some()
        && samplers::SAMPLERS.into_iter().any(|sampler| {
            let control = port.rdmsr(samplers::register_of(sampler));
            samplers::waits(sampler, control)
        });
    if amd.global {
        let overflowed = port.rdmsr(PERF_CNTR_GLOBAL_STATUS) & u64::from(pmu.perfmon.general);
        if overflowed != 0 {
            port.wrmsr(PERF_CNTR_GLOBAL_STATUS_CLR, overflowed);
            // One that overflowed since this interrupt was raised has raised another, which finds nothing any more (Linux:
            // `amd_pmu_adjust_nmi_window`).
            note_served(port);
            ours = true;
        }
    } else {
        ours |= pmu.counters().iter().any(|counter| {
            let interrupts = PerfEvtSel(port.rdmsr(pmu.select_register(counter))).int() == 1;
            // It was set to a negative number.
            interrupts
                && port.rdmsr(pmu.counter_register(counter)) >> (pmu.perfmon.general_width - 1) & 1 == 0
        });
    }
    ours || port.rdtsc() < port.expected_pmi()
}
