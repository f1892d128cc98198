//! One CPU's PMU while hpm holds it: what was found there, and what is in its registers now.
//!
//! Registers that hpm alone writes are shadowed, so that none is written with the value it has.

use super::abi::{Reason, SAMPLING_COUNTERS_MAX};
use super::allocate::Counter;
use super::ds;
use super::pmu::architectural::FIXED_COUNTERS_MAX;
use super::port::Port;
use super::program::Program;
use super::registers::{
    GlobalStatus, PerfEvtSel, IA32_A_PMC0, IA32_DS_AREA, IA32_FIXED_CTR0, IA32_FIXED_CTR_CTRL,
    IA32_PEBS_ENABLE, IA32_PERFEVTSEL0, IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_STATUS,
    IA32_PERF_GLOBAL_STATUS_RESET, IA32_PMC0,
};
use super::{Pmu, Refusal};

/// RDPMC's ECX for fixed counters (SDM Vol. 2B, RDPMC).
const RDPMC_FIXED: u32 = 1 << 30;

/// Every register that hpm changes, as found.
#[derive(Clone, Copy, Debug, Default)]
struct Registers {
    selects: [PerfEvtSel; SAMPLING_COUNTERS_MAX],
    general: [u64; SAMPLING_COUNTERS_MAX],
    fixed: [u64; FIXED_COUNTERS_MAX as usize],
    fixed_ctr_ctrl: u64,
    global_ctrl: u64,
    global_status: u64,
    pebs_enable: u64,
    ds_area: u64,
    ds_fields: [u64; ds::FIELDS],
}

/// The PMU of one CPU, held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hardware {
    pmu: Pmu,
    found: Registers,
    selects: [PerfEvtSel; SAMPLING_COUNTERS_MAX],
    fixed_ctr_ctrl: u64,
    pebs_enable: u64,
    global_ctrl: u64,
}

impl Registers {
    fn read<P: Port>(port: &mut P, pmu: &Pmu) -> Self {
        let mut found = Self::default();
        for (number, (select, value)) in general(pmu).zip(found.selects.iter_mut().zip(&mut found.general)) {
            *select = PerfEvtSel(port.rdmsr(IA32_PERFEVTSEL0 + number));
            *value = port.rdmsr(IA32_PMC0 + number);
        }
        for (number, value) in fixed(pmu).zip(&mut found.fixed) {
            *value = port.rdmsr(IA32_FIXED_CTR0 + number);
        }
        if pmu.perfmon.fixed_counters > 0 {
            found.fixed_ctr_ctrl = port.rdmsr(IA32_FIXED_CTR_CTRL);
        }
        found.global_ctrl = port.rdmsr(IA32_PERF_GLOBAL_CTRL);
        found.global_status = port.rdmsr(IA32_PERF_GLOBAL_STATUS);
        if pmu.pebs.is_some() {
            found.pebs_enable = port.rdmsr(IA32_PEBS_ENABLE);
            found.ds_area = port.rdmsr(IA32_DS_AREA);
            for (number, value) in found.ds_fields.iter_mut().enumerate() {
                *value = port.ds_read(ds::field(number));
            }
        }
        found
    }

    /// Refuses when a counter runs: it is enabled by itself and by IA32_PERF_GLOBAL_CTRL (SDM Vol. 3B 20.2.2), or can
    /// write records.
    fn check_idle(&self) -> Result<(), Refusal> {
        let running =
            |register: u32, value| Err(Refusal::new(Reason::CountersRunning, [register.into(), value]));
        for (number, select) in self.selects.iter().enumerate() {
            if select.en() == 1 && self.global_ctrl >> number & 1 == 1 {
                return running(IA32_PERFEVTSEL0 + number as u32, select.0);
            }
        }
        for number in 0..FIXED_COUNTERS_MAX {
            let enabled = self.fixed_ctr_ctrl >> (4 * number) & 3 != 0;
            if enabled && self.global_ctrl >> (32 + number) & 1 == 1 {
                return running(IA32_FIXED_CTR_CTRL, self.fixed_ctr_ctrl);
            }
        }
        if self.pebs_enable != 0 {
            return running(IA32_PEBS_ENABLE, self.pebs_enable);
        }
        Ok(())
    }
}

fn general(pmu: &Pmu) -> core::ops::Range<u32> {
    0..pmu.perfmon.general_counters
}

fn fixed(pmu: &Pmu) -> core::ops::Range<u32> {
    0..pmu.perfmon.fixed_counters
}

impl Hardware {
    /// Takes the PMU: afterwards it is stopped, with no counter enabled.
    ///
    /// # Errors
    /// [`Reason::CountersRunning`]; nothing has been written then.
    pub(super) fn acquire<P: Port>(port: &mut P, pmu: &Pmu) -> Result<Self, Refusal> {
        let found = Registers::read(port, pmu);
        found.check_idle()?;
        let mut hardware = Self {
            pmu: *pmu,
            found,
            selects: found.selects,
            fixed_ctr_ctrl: found.fixed_ctr_ctrl,
            pebs_enable: found.pebs_enable,
            global_ctrl: found.global_ctrl,
        };
        hardware.set_global_ctrl(port, 0);
        hardware.set_events(port, &[PerfEvtSel(0); SAMPLING_COUNTERS_MAX], 0);
        if pmu.pebs.is_some() {
            let area = port.ds_area();
            if area != found.ds_area {
                port.wrmsr(IA32_DS_AREA, area);
            }
        }
        Ok(hardware)
    }

    /// Gives the PMU back as it was found; what enables counting comes last.
    pub(super) fn release<P: Port>(mut self, port: &mut P) {
        let found = self.found;
        self.set_global_ctrl(port, 0);
        self.set_pebs_enable(port, 0);
        if self.pmu.pebs.is_some() {
            for (number, value) in found.ds_fields.into_iter().enumerate() {
                port.ds_write(ds::field(number), value);
            }
            port.wrmsr(IA32_DS_AREA, found.ds_area);
        }
        for (number, value) in general(&self.pmu).zip(found.general) {
            self.write_general(port, number as u8, value);
        }
        for (number, value) in fixed(&self.pmu).zip(found.fixed) {
            port.wrmsr(IA32_FIXED_CTR0 + number, value);
        }
        self.set_events(port, &found.selects, found.fixed_ctr_ctrl);
        let ours = port.rdmsr(IA32_PERF_GLOBAL_STATUS) & !found.global_status & self.status_bits();
        if ours != 0 {
            self.reset_status(port, ours);
        }
        self.set_global_ctrl(port, found.global_ctrl);
    }

    /// Overflow indications that hpm may have caused.
    fn status_bits(&self) -> u64 {
        let general = (1u64 << self.pmu.perfmon.general_counters) - 1;
        let fixed = ((1u64 << self.pmu.perfmon.fixed_counters) - 1) << 32;
        general | fixed | GlobalStatus(0).with_ovf_buf(1).0
    }

    /// Programs the events of a session. The PMU must be stopped.
    pub(super) fn load<P: Port>(&mut self, port: &mut P, program: &Program) {
        self.set_events(port, &program.selects, program.fixed_ctr_ctrl);
    }

    /// Programs no event. The PMU must be stopped.
    pub(super) fn unload<P: Port>(&mut self, port: &mut P) {
        self.set_events(port, &[PerfEvtSel(0); SAMPLING_COUNTERS_MAX], 0);
    }

    fn set_events<P: Port>(
        &mut self,
        port: &mut P,
        selects: &[PerfEvtSel; SAMPLING_COUNTERS_MAX],
        fixed_ctr_ctrl: u64,
    ) {
        for (number, (now, wanted)) in general(&self.pmu).zip(self.selects.iter_mut().zip(selects)) {
            if now != wanted {
                port.wrmsr(IA32_PERFEVTSEL0 + number, wanted.0);
                *now = *wanted;
            }
        }
        if self.fixed_ctr_ctrl != fixed_ctr_ctrl {
            port.wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctr_ctrl);
            self.fixed_ctr_ctrl = fixed_ctr_ctrl;
        }
    }

    /// Starts or stops counters.
    pub(super) fn set_global_ctrl<P: Port>(&mut self, port: &mut P, value: u64) {
        if self.global_ctrl != value {
            port.wrmsr(IA32_PERF_GLOBAL_CTRL, value);
            self.global_ctrl = value;
        }
    }

    /// Whether no counter runs.
    pub(super) const fn is_stopped(&self) -> bool {
        self.global_ctrl == 0
    }

    /// Allows or forbids records. The PMU must be stopped.
    pub(super) fn set_pebs_enable<P: Port>(&mut self, port: &mut P, value: u64) {
        if self.pebs_enable != value {
            port.wrmsr(IA32_PEBS_ENABLE, value);
            self.pebs_enable = value;
        }
    }

    /// Clears overflow indications.
    pub(super) fn reset_status<P: Port>(&self, port: &mut P, bits: u64) {
        port.wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, bits);
    }

    /// The furthest from its overflow that a sampling counter can be.
    pub(super) const fn period_max(&self) -> i64 {
        self.pmu.period_max() as i64
    }

    /// Reads a counter.
    pub(super) fn read<P: Port>(&self, port: &mut P, counter: Counter) -> u64 {
        port.rdpmc(match counter.as_fixed() {
            Some(number) => RDPMC_FIXED | number,
            None => counter.place() as u32,
        })
    }

    /// Writes a general counter, cut to its width. Without full-width writes the value must be one that hardware gets
    /// back by extending the sign of bit 31 (20.2.8).
    pub(super) fn write_general<P: Port>(&self, port: &mut P, number: u8, value: u64) {
        let base = if self.pmu.full_width_writes { IA32_A_PMC0 } else { IA32_PMC0 };
        let bits = if self.pmu.full_width_writes { self.pmu.perfmon.general_width } else { 32 };
        port.wrmsr(base + u32::from(number), value & (u64::MAX >> (64 - bits)));
    }

    /// What a counter counted from one value to another, with its sign: a counter that was set back gives a negative one.
    pub(super) fn difference(&self, counter: Counter, from: u64, to: u64) -> i64 {
        let perfmon = &self.pmu.perfmon;
        let width = if counter.as_fixed().is_some() { perfmon.fixed_width } else { perfmon.general_width };
        let unused = 64 - width;
        (to.wrapping_sub(from) << unused) as i64 >> unused
    }
}

/// In an NMI that interrupted a section: true when the PMI is hpm's, which is then acknowledged and LVTPC unmasked.
/// Call only on a CPU whose PMU hpm holds. Uses nothing that a section depends on.
pub fn acknowledge<P: Port>(port: &mut P) -> bool {
    let ours = GlobalStatus(port.rdmsr(IA32_PERF_GLOBAL_STATUS)).ovf_buf() == 1;
    if ours {
        port.wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, GlobalStatus(0).with_ovf_buf(1).0);
        port.unmask_pmi();
    }
    ours
}
