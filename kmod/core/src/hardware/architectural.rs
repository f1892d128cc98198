//! The architectural PMU of one CPU (SDM Vol. 3B 20.2).

use super::super::abi::SAMPLING_COUNTERS_MAX;
use super::super::allocate::{Counter, CounterSet, COUNTERS_MAX};
use super::super::extra::Extras;
use super::super::layout::RecordLayout;
use super::super::pmu::architectural::FIXED_COUNTERS_MAX;
use super::super::pmu::{ExtraRegister, Pebs};
use super::super::port::Port;
use super::super::program::{Program, SamplingCounter};
use super::super::registers::{
    GlobalStatus, PebsIndex, PerfEvtSel, IA32_DS_AREA, IA32_FIXED_CTR_CTRL, IA32_PEBS_ENABLE,
    IA32_PEBS_INDEX, IA32_PERFEVTSEL0, IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_STATUS,
    IA32_PERF_GLOBAL_STATUS_RESET, MSR_PEBS_DATA_CFG,
};
use super::super::{cfg_c, ds, Pmu, Refusal};
use super::found::Found;

/// RDPMC's ECX for fixed counters (SDM Vol. 2B, RDPMC).
const RDPMC_FIXED: u32 = 1 << 30;

/// Event selects with which the general counters run for a moment, so that they count what they are given next (Linux:
/// `intel_pmu_nhm_workaround`).
const LOOSENING: [PerfEvtSel; 4] =
    [PerfEvtSel(0x43_00B5), PerfEvtSel(0x43_00D2), PerfEvtSel(0x43_00B1), PerfEvtSel(0x43_00B1)];

/// The PMU of one CPU, held.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Hardware {
    pmu: Pmu,
    found: Found,
    selects: [PerfEvtSel; SAMPLING_COUNTERS_MAX],
    cfg_b: [u64; COUNTERS_MAX],
    cfg_c: [u64; COUNTERS_MAX],
    fixed_ctr_ctrl: u64,
    pebs_data_cfg: u64,
    extras: [u64; ExtraRegister::ALL.len()],
    pebs_enable: u64,
    global_ctrl: u64,
    /// Counters that somebody else has programmed meanwhile: their registers are left to him.
    ceded: CounterSet,
    /// What IA32_PERF_GLOBAL_CTRL is to be when hpm has gone, if counters are ceded.
    theirs: Option<u64>,
}

impl Hardware {
    /// What has yet to be taken.
    pub(super) const fn idle(pmu: &Pmu) -> Self {
        Self {
            pmu: *pmu,
            found: Found::NONE,
            selects: [PerfEvtSel(0); SAMPLING_COUNTERS_MAX],
            cfg_b: [0; COUNTERS_MAX],
            cfg_c: [0; COUNTERS_MAX],
            fixed_ctr_ctrl: 0,
            pebs_data_cfg: 0,
            extras: [0; ExtraRegister::ALL.len()],
            pebs_enable: 0,
            global_ctrl: 0,
            ceded: CounterSet::EMPTY,
            theirs: None,
        }
    }

    /// Takes the PMU: afterwards it is stopped, with no counter enabled.
    ///
    /// # Errors
    /// [`super::super::abi::Reason::CountersRunning`]; nothing has been written then.
    pub(super) fn acquire<P: Port>(&mut self, port: &mut P) -> Result<(), Refusal> {
        self.found.read(port, &self.pmu);
        self.found.check_idle(&self.pmu)?;
        self.found.check_others(port, &self.pmu)?;
        let found = &self.found;
        (self.selects, self.extras) = (found.selects, found.extras);
        (self.cfg_b, self.cfg_c) = (found.cfg_b, found.cfg_c);
        (self.fixed_ctr_ctrl, self.global_ctrl) = (found.fixed_ctr_ctrl, found.global_ctrl);
        (self.pebs_enable, self.pebs_data_cfg) = (found.pebs_enable, found.pebs_data_cfg);
        self.set_global_ctrl(port, 0);
        self.unload(port);
        self.forbid_records(port);
        if self.has_debug_store() {
            let area = port.ds_area();
            if area != self.found.ds_area {
                port.wrmsr(IA32_DS_AREA, area);
            }
        }
        Ok(())
    }

    /// Gives the PMU back as it was found, without what somebody else counts with meanwhile; what enables counting comes last.
    pub(super) fn release<P: Port>(&mut self, port: &mut P) {
        self.cede(port);
        let found = self.found;
        self.set_global_ctrl(port, 0);
        self.set_pebs_enable(port, 0);
        found.restore_buffer(port, &self.pmu);
        self.set_pebs_data_cfg(port, found.pebs_data_cfg);
        self.set_extras(port, &found.extras.map(Some));
        for counter in self.pmu.perfmon.counters().iter() {
            self.write(port, counter, found.counters[counter.place()]);
        }
        self.set_events(port, &found.selects, found.fixed_ctr_ctrl);
        self.set_cfg_b(port, |counter| found.cfg_b[counter.place()]);
        self.set_cfg_c(port, &found.cfg_c);
        let ours = port.rdmsr(IA32_PERF_GLOBAL_STATUS) & !found.global_status & self.status_bits();
        if ours != 0 {
            self.reset_status(port, ours);
        }
        self.set_global_ctrl(port, self.theirs.unwrap_or(found.global_ctrl));
    }

    /// Leaves to somebody else the counters that he has programmed, without asking: those that are enabled otherwise than by hpm. What he
    /// has written of PEBS is overwritten, because records go to hpm's memory.
    pub(super) fn cede<P: Port>(&mut self, port: &mut P) {
        let before = self.ceded;
        for counter in CounterSet::general(self.pmu.perfmon.general as u16).iter() {
            let select = PerfEvtSel(port.rdmsr(self.pmu.select_register(counter)));
            if select.en() == 1 && select != self.selects[counter.place()] {
                self.ceded = self.ceded.union(CounterSet::one(counter));
            }
        }
        if self.pmu.perfmon.fixed != 0 {
            let control = port.rdmsr(IA32_FIXED_CTR_CTRL);
            let theirs = |number: &u32| {
                let field = |value: u64| value >> (4 * number) & 0xf;
                field(control) & 3 != 0 && field(control) != field(self.fixed_ctr_ctrl)
            };
            let fixed = (0..FIXED_COUNTERS_MAX).filter(theirs).map(CounterSet::one_fixed);
            self.ceded = fixed.fold(self.ceded, CounterSet::union);
        }
        let control = port.rdmsr(IA32_PERF_GLOBAL_CTRL);
        if self.ceded.is_empty() {
            return;
        }
        self.take_back_settings(port, self.ceded.without_all(before));
        if control != self.global_ctrl {
            (self.theirs, self.global_ctrl) = (Some(control), control);
        } else {
            // A switch has written over it since.
            self.theirs.get_or_insert(self.found.global_ctrl | bits_of(self.ceded));
        }
    }

    /// Takes from counters that are somebody else's what hpm has set them to beside what they count: what sets them back, and that they
    /// write records. He need not have written it: Linux writes neither for an event that needs none, taking them to be as it left them.
    fn take_back_settings<P: Port>(&self, port: &mut P, counters: CounterSet) {
        for counter in counters.iter() {
            let place = counter.place();
            for (register, ours, found) in [
                (self.pmu.cfg_b_register(counter), self.cfg_b[place], self.found.cfg_b[place]),
                (self.pmu.cfg_c_register(counter), self.cfg_c[place], self.found.cfg_c[place]),
            ] {
                // Where it is 0 there may be no such register.
                if ours != 0 && port.rdmsr(register) == ours {
                    port.wrmsr(register, found);
                }
            }
        }
    }

    pub(super) const fn has_ceded(&self) -> bool {
        !self.ceded.is_empty()
    }

    /// The PMU that is held.
    pub(super) const fn pmu(&self) -> &Pmu {
        &self.pmu
    }

    /// The kernel's perf leaves IA32_PEBS_INDEX.EN set when its last event has stopped; `pebs_enable` is 0 until hpm sets it.
    fn forbid_records<P: Port>(&self, port: &mut P) {
        if self.pmu.pebs.is_ok_and(Pebs::is_architectural) {
            let index = PebsIndex(port.rdmsr(IA32_PEBS_INDEX));
            if index.en() == 1 {
                port.wrmsr(IA32_PEBS_INDEX, index.with_en(0).0);
            }
        }
    }

    /// Has hardware know the address of hpm's memory no longer, by which records go there: the kernel's perf, which nothing keeps out where
    /// PEBS is architectural, allows records again without writing it. Nothing while records can be written, which are another session's.
    pub(super) fn forget_buffer<P: Port>(&self, port: &mut P) {
        if self.pmu.pebs.is_ok_and(Pebs::is_architectural) && self.pebs_enable == 0 {
            self.found.restore_buffer(port, &self.pmu);
            self.forbid_records(port);
        }
    }

    /// Whether records go through the DS management area.
    /// Writes IA32_DS_AREA once more, where records go by it.
    pub(super) fn restore_ds_area<P: Port>(&self, port: &mut P) {
        if self.has_debug_store() {
            let area = port.ds_area();
            port.wrmsr(IA32_DS_AREA, area);
        }
    }

    fn has_debug_store(&self) -> bool {
        self.pmu.pebs.is_ok_and(|pebs| !pebs.is_architectural())
    }

    /// Indications that hpm may have caused.
    fn status_bits(&self) -> u64 {
        bits_of(self.pmu.perfmon.counters().without_all(self.ceded))
            | RECORDS_READY
            | GlobalStatus(0).with_lbr_frz(1).0
    }

    /// Programs the events of a session. The PMU must be stopped.
    pub(super) fn load<P: Port>(&mut self, port: &mut P, program: &Program) {
        let loosen = self.pmu.generation.quirks.counters_stick && self.ceded.is_empty();
        if loosen && self.selects != program.selects {
            self.loosen_counters(port);
        }
        self.set_events(port, &program.selects, program.fixed_ctr_ctrl);
        self.set_extras(port, &program.extras);
        self.set_cfg_b(port, |counter| program.window.map_or(0, |window| window.cfg_b(counter)));
        self.set_cfg_c(port, &program.cfg_c);
        match program.pebs {
            Some(layout) if self.has_debug_store() => self.set_pebs_data_cfg(port, layout.pebs_data_cfg),
            _ => {}
        }
    }

    /// Works around [`super::super::pmu::Quirks::counters_stick`]. Counters lose what they held; none writes a record.
    fn loosen_counters<P: Port>(&mut self, port: &mut P) {
        self.set_pebs_enable(port, 0);
        let general = CounterSet::general(self.pmu.perfmon.general as u16);
        let counters =
            LOOSENING.into_iter().enumerate().map(|(number, select)| (Counter::at(number), select));
        for (counter, select) in counters.filter(|(counter, _)| general.contains(*counter)) {
            port.wrmsr(self.pmu.select_register(counter), select.0);
            self.write(port, counter, 0);
            self.selects[counter.place()] = select;
        }
        self.set_global_ctrl(port, general.general_bits().into());
        self.set_global_ctrl(port, 0);
    }

    /// Programs no event. The PMU must be stopped.
    pub(super) fn unload<P: Port>(&mut self, port: &mut P) {
        let (mut selects, mut fixed_ctr_ctrl) = ([PerfEvtSel(0); SAMPLING_COUNTERS_MAX], 0);
        // They hold what was counted until something else is.
        self.pmu.keep_from_user(0, &mut selects, &mut fixed_ctr_ctrl);
        self.set_events(port, &selects, fixed_ctr_ctrl);
        self.set_cfg_b(port, |_| 0);
        self.set_cfg_c(port, &[0; COUNTERS_MAX]);
    }

    fn set_events<P: Port>(
        &mut self,
        port: &mut P,
        selects: &[PerfEvtSel; SAMPLING_COUNTERS_MAX],
        fixed_ctr_ctrl: u64,
    ) {
        for (number, (now, wanted)) in self.selects.iter_mut().zip(selects).enumerate() {
            if now != wanted && !self.ceded.contains(Counter::at(number)) {
                port.wrmsr(self.pmu.select_register(Counter::at(number)), wanted.0);
                *now = *wanted;
            }
        }
        if self.fixed_ctr_ctrl != fixed_ctr_ctrl {
            let theirs = self.ceded_fields();
            let kept = if theirs == 0 { 0 } else { port.rdmsr(IA32_FIXED_CTR_CTRL) & theirs };
            port.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctr_ctrl & !theirs | kept);
            self.fixed_ctr_ctrl = fixed_ctr_ctrl;
        }
    }

    /// The fields of IA32_FIXED_CTR_CTRL that are of ceded counters.
    fn ceded_fields(&self) -> u64 {
        // Four bits for each counter in either half.
        let field = |number: u32| 0xf_0000_000f << (4 * number);
        self.ceded.iter().filter_map(Counter::as_fixed).fold(0, |fields, number| fields | field(number))
    }

    /// Says for each counter which ones set it back. What Linux has said stays when its events have stopped, and would set back hpm's.
    fn set_cfg_b<P: Port>(&mut self, port: &mut P, wanted: impl Fn(Counter) -> u64) {
        for counter in self.pmu.reload.reloaded.without_all(self.ceded).iter() {
            let (now, wanted) = (&mut self.cfg_b[counter.place()], wanted(counter));
            if *now != wanted {
                port.wrmsr(self.pmu.cfg_b_register(counter), wanted);
                *now = wanted;
            }
        }
    }

    fn set_cfg_c<P: Port>(&mut self, port: &mut P, values: &[u64; COUNTERS_MAX]) {
        for (place, (now, wanted)) in self.cfg_c.iter_mut().zip(values).enumerate() {
            if now != wanted && !self.ceded.contains(Counter::at(place)) {
                port.wrmsr(self.pmu.cfg_c_register(Counter::at(place)), *wanted);
                *now = *wanted;
            }
        }
    }

    fn set_extras<P: Port>(&mut self, port: &mut P, values: &Extras) {
        for (register, (now, wanted)) in
            ExtraRegister::ALL.into_iter().zip(self.extras.iter_mut().zip(values))
        {
            if let Some(value) = *wanted {
                if *now != value {
                    port.wrmsr(register.address(), value);
                    *now = value;
                }
            }
        }
    }

    fn set_pebs_data_cfg<P: Port>(&mut self, port: &mut P, value: u64) {
        if self.pebs_data_cfg != value {
            port.wrmsr(MSR_PEBS_DATA_CFG, value);
            self.pebs_data_cfg = value;
        }
    }

    /// Sets the value from which a counter goes on after each record. The PMU must be stopped.
    pub(super) fn set_reset<P: Port>(
        &mut self,
        port: &mut P,
        layout: &RecordLayout,
        sampler: &SamplingCounter,
        period: u64,
    ) {
        if layout.is_architectural() {
            let mut values = self.cfg_c;
            values[sampler.counter.place()] = cfg_c::value(layout.pebs_data_cfg, period);
            self.set_cfg_c(port, &values);
        } else {
            port.ds_write(ds::reset(layout.format, sampler.counter), period.wrapping_neg());
        }
    }

    /// Starts or stops counters.
    pub(super) fn set_global_ctrl<P: Port>(&mut self, port: &mut P, value: u64) {
        let theirs = if let Some(theirs) = self.theirs { theirs & bits_of(self.ceded) } else { 0 };
        let value = value | theirs;
        if self.global_ctrl != value {
            port.wrmsr(IA32_PERF_GLOBAL_CTRL, value);
            self.global_ctrl = value;
        }
    }

    /// Whether IA32_PERF_GLOBAL_CTRL reads otherwise than it was last written, or counters are ceded: somebody else uses the PMU.
    pub(super) fn is_foreign<P: Port>(&self, port: &mut P) -> bool {
        port.rdmsr(IA32_PERF_GLOBAL_CTRL) != self.global_ctrl || !self.ceded.is_empty()
    }

    /// Whether an event select, or IA32_FIXED_CTR_CTRL, reads otherwise than it was last written: one of them, by turns, or any.
    pub(super) fn has_foreign_select<P: Port>(&self, port: &mut P, turn: Option<u32>) -> bool {
        let general = CounterSet::general(self.pmu.perfmon.general as u16);
        let fixed =
            (self.pmu.perfmon.fixed != 0).then_some((IA32_FIXED_CTR_CTRL, self.fixed_ctr_ctrl, u64::MAX));
        let written = general.iter().map(|counter| {
            super::select_written(self.pmu.select_register(counter), self.selects[counter.place()])
        });
        super::any_differs(port, written.chain(fixed), turn)
    }

    /// Whether no counter runs.
    pub(super) const fn is_stopped(&self) -> bool {
        self.global_ctrl == 0
    }

    /// Allows or forbids records. Stops the PMU if that is a change.
    pub(super) fn set_pebs_enable<P: Port>(&mut self, port: &mut P, value: u64) {
        if self.pebs_enable == value {
            return;
        }
        self.set_global_ctrl(port, 0);
        if self.has_debug_store() {
            port.wrmsr(IA32_PEBS_ENABLE, value);
        } else {
            let index = PebsIndex(port.rdmsr(IA32_PEBS_INDEX)).with_en((value != 0).into());
            port.wrmsr(IA32_PEBS_INDEX, index.0);
        }
        self.pebs_enable = value;
    }

    /// Clears overflow indications.
    pub(super) fn reset_status<P: Port>(&self, port: &mut P, bits: u64) {
        port.wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, bits);
    }

    /// Acknowledges a PMI that is for records alone.
    pub(super) fn acknowledge_records<P: Port>(&self, port: &mut P) {
        self.reset_status(port, GlobalStatus(0).with_ovf_buf(1).0);
        port.unmask_pmi();
    }

    /// RDPMC's ECX for this counter.
    pub(super) const fn rdpmc_index(&self, counter: Counter) -> u32 {
        match counter.as_fixed() {
            Some(number) => RDPMC_FIXED | number,
            None => counter.place() as u32,
        }
    }

    /// Writes a counter, cut to its width. Without full-width writes the value of a general one must be one that hardware
    /// gets back by extending the sign of bit 31 (20.2.8).
    pub(super) fn write<P: Port>(&self, port: &mut P, counter: Counter, value: u64) {
        if self.ceded.contains(counter) {
            return;
        }
        let perfmon = &self.pmu.perfmon;
        let bits = match counter.as_fixed() {
            Some(_) => perfmon.fixed_width,
            None if self.pmu.full_width_writes => perfmon.general_width,
            None => 32,
        };
        port.wrmsr(self.pmu.written_register(counter), value & (u64::MAX >> (64 - bits)));
    }
}

/// The counters' bits in IA32_PERF_GLOBAL_CTRL and IA32_PERF_GLOBAL_STATUS.
fn bits_of(counters: CounterSet) -> u64 {
    counters.iter().fold(0, |bits, counter| bits | 1 << counter.bit())
}

/// Acknowledges a PMI that is hpm's: [`super::acknowledge`].
pub(super) fn acknowledge<P: Port>(port: &mut P) -> bool {
    let status = port.rdmsr(IA32_PERF_GLOBAL_STATUS);
    let mut ours = status & RECORDS_READY;
    for number in (0..SAMPLING_COUNTERS_MAX as u32).filter(|number| status >> number & 1 == 1) {
        // The indications of counters that write PEBS records stay: a record says by them which counters it is for.
        ours |= PerfEvtSel(port.rdmsr(IA32_PERFEVTSEL0 + number)).int() << number;
    }
    if ours != 0 {
        port.wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, ours);
    } else if !port.pmi_is_masked() {
        return false;
    }
    // With the entry masked (Vol. 3A 11.5.1) a PMI has come whose counter was given to another session before its NMI did.
    port.unmask_pmi();
    true
}

/// Indications that records have reached the interrupt threshold: of the debug store, and of architectural PEBS.
const RECORDS_READY: u64 = GlobalStatus(0).with_ovf_buf(1).with_arch_pebs(1).0;
