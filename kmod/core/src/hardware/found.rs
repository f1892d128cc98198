//! Every register that hpm changes, as it was found: what is given back, and what says whether somebody counts already.

use super::super::abi::Reason;
use super::super::allocate::{Counter, COUNTERS_MAX};
use super::super::ds;
use super::super::pmu::architectural::{FIXED_COUNTERS_MAX, GENERAL_COUNTERS_MAX};
use super::super::pmu::ExtraRegister;
use super::super::port::Port;
use super::super::registers::{
    PerfEvtSel, IA32_DS_AREA, IA32_FIXED_CTR_CTRL, IA32_PEBS_BASE, IA32_PEBS_ENABLE, IA32_PEBS_INDEX,
    IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_STATUS, MSR_PEBS_DATA_CFG,
};
use super::super::{Pmu, Refusal};

/// The registers' values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// IA32_PERFEVTSELx.
    pub(super) selects: [PerfEvtSel; super::super::abi::SAMPLING_COUNTERS_MAX],
    /// Each counter.
    pub(super) counters: [u64; COUNTERS_MAX],
    /// CFG_B of each counter; 0 where none sets another back.
    pub(super) cfg_b: [u64; COUNTERS_MAX],
    /// CFG_C of each counter; 0 without architectural PEBS, and where none sets another back.
    pub(super) cfg_c: [u64; COUNTERS_MAX],
    pub(super) fixed_ctr_ctrl: u64,
    pub(super) global_ctrl: u64,
    pub(super) global_status: u64,
    pub(super) pebs_enable: u64,
    pub(super) pebs_data_cfg: u64,
    /// IA32_PEBS_BASE and IA32_PEBS_INDEX.
    architectural: [u64; 2],
    pub(super) ds_area: u64,
    ds_buffer: [u64; ds::BUFFER.len()],
    ds_resets: [u64; COUNTERS_MAX],
    /// In the order of [`ExtraRegister::ALL`].
    pub(super) extras: [u64; ExtraRegister::ALL.len()],
}

impl Found {
    /// All registers zero.
    pub(super) const NONE: Self = Self {
        selects: [PerfEvtSel(0); super::super::abi::SAMPLING_COUNTERS_MAX],
        counters: [0; COUNTERS_MAX],
        cfg_b: [0; COUNTERS_MAX],
        cfg_c: [0; COUNTERS_MAX],
        fixed_ctr_ctrl: 0,
        global_ctrl: 0,
        global_status: 0,
        pebs_enable: 0,
        pebs_data_cfg: 0,
        architectural: [0; 2],
        ds_area: 0,
        ds_buffer: [0; ds::BUFFER.len()],
        ds_resets: [0; COUNTERS_MAX],
        extras: [0; ExtraRegister::ALL.len()],
    };

    /// Reads every register that this PMU has.
    pub(super) fn read<P: Port>(&mut self, port: &mut P, pmu: &Pmu) {
        for counter in pmu.perfmon.counters().iter() {
            self.counters[counter.place()] = port.rdmsr(pmu.counter_register(counter));
            if let (None, Some(select)) = (counter.as_fixed(), self.selects.get_mut(counter.place())) {
                *select = PerfEvtSel(port.rdmsr(pmu.select_register(counter)));
            }
        }
        if pmu.perfmon.fixed != 0 {
            self.fixed_ctr_ctrl = port.rdmsr(IA32_FIXED_CTR_CTRL);
        }
        self.global_ctrl = port.rdmsr(IA32_PERF_GLOBAL_CTRL);
        self.global_status = port.rdmsr(IA32_PERF_GLOBAL_STATUS);
        for (register, value) in ExtraRegister::ALL.into_iter().zip(&mut self.extras) {
            if pmu.has_extra(register) {
                *value = port.rdmsr(register.address());
            }
        }
        for counter in pmu.reload.reloaded.iter() {
            self.cfg_b[counter.place()] = port.rdmsr(pmu.cfg_b_register(counter));
            self.cfg_c[counter.place()] = port.rdmsr(pmu.cfg_c_register(counter));
        }
        self.read_pebs(port, pmu);
    }

    fn read_pebs<P: Port>(&mut self, port: &mut P, pmu: &Pmu) {
        let Ok(pebs) = pmu.pebs else { return };
        if pebs.is_architectural() {
            self.architectural = [port.rdmsr(IA32_PEBS_BASE), port.rdmsr(IA32_PEBS_INDEX)];
            for counter in pebs.counters.iter() {
                self.cfg_c[counter.place()] = port.rdmsr(pmu.cfg_c_register(counter));
            }
            return;
        }
        self.pebs_enable = port.rdmsr(IA32_PEBS_ENABLE);
        self.ds_area = port.rdmsr(IA32_DS_AREA);
        if pebs.groups != 0 {
            self.pebs_data_cfg = port.rdmsr(MSR_PEBS_DATA_CFG);
        }
        for (value, field) in self.ds_buffer.iter_mut().zip(ds::BUFFER) {
            *value = port.ds_read(field);
        }
        for counter in pebs.counters.iter() {
            self.ds_resets[counter.place()] = port.ds_read(ds::reset(pebs.format, counter));
        }
    }

    /// As [`Self::check_idle`], of the general counters beyond those that hpm uses, which its stopping would stop, too (Lion Cove's
    /// ninth and tenth). That there is one, and a select to ask, shows by its bit.
    pub(super) fn check_others<P: Port>(&self, port: &mut P, pmu: &Pmu) -> Result<(), Refusal> {
        for number in (GENERAL_COUNTERS_MAX..32).filter(|number| self.global_ctrl >> number & 1 == 1) {
            let register = pmu.numbered_select_register(number);
            let select = PerfEvtSel(port.rdmsr(register));
            if select.en() == 1 {
                return Err(Refusal::new(Reason::CountersRunning, [register.into(), select.0]));
            }
        }
        Ok(())
    }

    /// Writes back where records went. The PMU must be stopped, and can write no record.
    pub(super) fn restore_buffer<P: Port>(&self, port: &mut P, pmu: &Pmu) {
        let Ok(pebs) = pmu.pebs else { return };
        if pebs.is_architectural() {
            for (register, value) in [IA32_PEBS_BASE, IA32_PEBS_INDEX].into_iter().zip(self.architectural) {
                port.wrmsr(register, value);
            }
            return;
        }
        for (value, field) in self.ds_buffer.into_iter().zip(ds::BUFFER) {
            port.ds_write(field, value);
        }
        for counter in pebs.counters.iter() {
            port.ds_write(ds::reset(pebs.format, counter), self.ds_resets[counter.place()]);
        }
        port.wrmsr(IA32_DS_AREA, self.ds_area);
    }

    /// Refuses when a counter runs: it is enabled by itself and by IA32_PERF_GLOBAL_CTRL (SDM Vol. 3B 20.2.2), or can
    /// write records.
    pub(super) fn check_idle(&self, pmu: &Pmu) -> Result<(), Refusal> {
        let running =
            |register: u32, value| Err(Refusal::new(Reason::CountersRunning, [register.into(), value]));
        for (number, select) in self.selects.iter().enumerate() {
            if select.en() == 1 && self.global_ctrl >> number & 1 == 1 {
                return running(pmu.select_register(Counter::at(number)), select.0);
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
