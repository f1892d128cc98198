//! A NetBurst PMU, or one logical processor's half of it.
//!
//! There is no IA32_PERF_GLOBAL_CTRL: counters are started and stopped one after another, by Enable in their CCCRs (SDM
//! Vol. 3B 18.15.5.3, 18.15.5.5). What says that a PMI has come is the mask bit of LVTPC, which hardware sets with each
//! (Vol. 3A 10.5.1): the debug store's threshold leaves no other trace, and OVF is cleared whenever a CCCR is written.
//!
//! IA32_PEBS_ENABLE is 0 between two threads where nobody shares it. With Hyper-Threading it has one value while a session
//! lasts, and it is the counter's standing still that keeps records away. A counter that runs and must not write records
//! starts as far from its overflow as it can, because tags and records are enabled together, if one reads 18.15.7.3.

use super::super::abi::Reason;
use super::super::allocate::Counter;
use super::super::ds;
use super::super::pmu::netburst::registers::{
    Cccr, EscrId, COUNTERS, MSR_BPU_CCCR0, MSR_BPU_COUNTER0, MSR_PEBS_MATRIX_VERT, WIDTH,
};
use super::super::pmu::netburst::settings::{overflow_interrupt, Settings};
use super::super::pmu::netburst::{Share, Unit};
use super::super::port::Port;
use super::super::program::{Program, SamplingCounter};
use super::super::registers::{IA32_DS_AREA, IA32_PEBS_ENABLE};
use super::super::{Pmu, Refusal};

/// Every register that hpm changes, as it was found.
#[derive(Clone, Copy, Debug)]
struct Found {
    cccrs: [u32; COUNTERS as usize],
    counters: [u64; COUNTERS as usize],
    escrs: [u32; EscrId::COUNT],
    /// IA32_PEBS_ENABLE and MSR_PEBS_MATRIX_VERT.
    shared: [u64; 2],
    ds_area: u64,
    ds_buffer: [u64; ds::BUFFER.len()],
    ds_reset: u64,
}

/// The registers that both logical processors of a core share.
const SHARED: [u32; 2] = [IA32_PEBS_ENABLE, MSR_PEBS_MATRIX_VERT];

impl Found {
    const NONE: Self = Self {
        cccrs: [0; COUNTERS as usize],
        counters: [0; COUNTERS as usize],
        escrs: [0; EscrId::COUNT],
        shared: [0; 2],
        ds_area: 0,
        ds_buffer: [0; ds::BUFFER.len()],
        ds_reset: 0,
    };

    fn read<P: Port>(&mut self, port: &mut P, pmu: &Pmu, unit: &Unit) {
        for number in unit.counters() {
            self.cccrs[number as usize] = port.rdmsr(MSR_BPU_CCCR0 + number) as u32;
            self.counters[number as usize] = port.rdmsr(MSR_BPU_COUNTER0 + number);
        }
        for escr in unit.escrs() {
            self.escrs[escr.place()] = port.rdmsr(escr.address()) as u32;
        }
        if pmu.pebs.is_ok() {
            self.shared = SHARED.map(|register| port.rdmsr(register));
            self.ds_area = port.rdmsr(IA32_DS_AREA);
            self.ds_buffer = ds::BUFFER.map(|field| port.ds_read(field));
            self.ds_reset = port.ds_read(ds::PEBS_COUNTER_RESET);
        }
    }

    /// Refuses when a counter runs, or records may be written. `sibling`: the other logical processor is held, so that what
    /// both share may be hpm's own.
    fn check_idle(&mut self, unit: &Unit, sibling: bool) -> Result<(), Refusal> {
        let running =
            |register: u32, value| Err(Refusal::new(Reason::CountersRunning, [register.into(), value]));
        for number in unit.counters() {
            let cccr = self.cccrs[number as usize];
            if cccr & Cccr::ENABLE != 0 {
                return running(MSR_BPU_CCCR0 + number, cccr.into());
            }
        }
        match self.shared {
            [0, _] => Ok(()),
            _ if sibling => {
                self.shared = [0; 2];
                Ok(())
            }
            [pebs_enable, _] => running(IA32_PEBS_ENABLE, pebs_enable),
        }
    }
}

/// The PMU of one logical processor, held.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Hardware {
    pmu: Pmu,
    unit: Unit,
    found: Found,
    /// Of the session that is loaded.
    settings: Settings,
    /// CCCRs without OVF.
    cccrs: [u32; COUNTERS as usize],
    escrs: [u32; EscrId::COUNT],
    /// IA32_PEBS_ENABLE and MSR_PEBS_MATRIX_VERT, where nobody shares them.
    own: [u64; 2],
    /// A bit for each counter that runs.
    running: u64,
    /// A bit for each counter, and each ESCR by its place, that somebody else has programmed meanwhile: they are left to him.
    ceded: u32,
    ceded_escrs: u64,
}

impl Hardware {
    /// What has yet to be taken.
    pub(super) const fn idle(pmu: &Pmu, unit: Unit) -> Self {
        Self {
            pmu: *pmu,
            unit,
            found: Found::NONE,
            settings: Settings::NONE,
            cccrs: [0; COUNTERS as usize],
            escrs: [0; EscrId::COUNT],
            own: [0; 2],
            running: 0,
            ceded: 0,
            ceded_escrs: 0,
        }
    }

    /// Takes the PMU.
    pub(super) fn acquire<P: Port>(&mut self, port: &mut P) -> Result<(), Refusal> {
        self.found.read(port, &self.pmu, &self.unit);
        let sibling = port.sibling_is_held();
        self.found.check_idle(&self.unit, sibling)?;
        let found = &self.found;
        (self.cccrs, self.escrs, self.own) = (found.cccrs, found.escrs, found.shared);
        self.unload(port);
        if self.pmu.pebs.is_ok() {
            let area = port.ds_area();
            if area != self.found.ds_area {
                port.wrmsr(IA32_DS_AREA, area);
            }
        }
        Ok(())
    }

    /// Gives the PMU back as it was found, without what somebody else counts with meanwhile; the CCCRs come last.
    pub(super) fn release<P: Port>(&mut self, port: &mut P) {
        self.cede(port);
        let found = self.found;
        self.set_global_ctrl(port, 0);
        if self.pmu.pebs.is_ok() {
            for (value, field) in found.ds_buffer.into_iter().zip(ds::BUFFER) {
                port.ds_write(field, value);
            }
            port.ds_write(ds::PEBS_COUNTER_RESET, found.ds_reset);
            port.wrmsr(IA32_DS_AREA, found.ds_area);
            if !port.sibling_is_held() {
                for (register, value) in SHARED.into_iter().zip(found.shared) {
                    port.wrmsr(register, value);
                }
            }
        }
        self.set_escrs(port, &found.escrs);
        for number in self.unit.counters().filter(|number| self.ceded >> number & 1 == 0) {
            self.write(port, Counter::netburst(number), found.counters[number as usize]);
            port.wrmsr(MSR_BPU_CCCR0 + number, found.cccrs[number as usize].into());
        }
    }

    /// Leaves to somebody else the counters that he has programmed, without asking: those that are enabled otherwise than by hpm, with the
    /// ESCRs that he has written.
    pub(super) fn cede<P: Port>(&mut self, port: &mut P) {
        for number in self.unit.counters() {
            let cccr = port.rdmsr(MSR_BPU_CCCR0 + number) as u32 & !Cccr::OVF;
            let is_foreign = cccr & Cccr::ENABLE != 0 && cccr != self.cccrs[number as usize];
            self.ceded |= u32::from(is_foreign) << number;
        }
        if self.ceded == 0 {
            return;
        }
        for escr in self.unit.escrs() {
            let is_foreign = port.rdmsr(escr.address()) as u32 != self.escrs[escr.place()];
            self.ceded_escrs |= u64::from(is_foreign) << escr.place();
        }
    }

    /// The PMU that is held.
    pub(super) const fn pmu(&self) -> &Pmu {
        &self.pmu
    }

    /// Programs the events of a session.
    pub(super) fn load<P: Port>(&mut self, port: &mut P, program: &Program) {
        self.settings = program.netburst;
        let settings = self.settings;
        self.set_escrs(port, &settings.escrs);
        let pebs_enable = match self.unit.share {
            Share::Whole => 0,
            Share::Half(_) => u64::from(settings.pebs_enable) | program.pebs_enable,
        };
        self.set_shared(port, [pebs_enable, settings.matrix_vert.into()]);
        self.set_global_ctrl(port, 0);
    }

    /// Programs no event. With Hyper-Threading the other logical processor may still count what is tagged.
    pub(super) fn unload<P: Port>(&mut self, port: &mut P) {
        self.settings = Settings::NONE;
        self.set_global_ctrl(port, 0);
        self.set_escrs(port, &[0; EscrId::COUNT]);
        if self.unit.share == Share::Whole {
            self.set_shared(port, [0; 2]);
        }
    }

    fn set_escrs<P: Port>(&mut self, port: &mut P, wanted: &[u32; EscrId::COUNT]) {
        for escr in self.unit.escrs() {
            let (now, wanted) = (&mut self.escrs[escr.place()], wanted[escr.place()]);
            if *now != wanted && self.ceded_escrs >> escr.place() & 1 == 0 {
                port.wrmsr(escr.address(), wanted.into());
                *now = wanted;
            }
        }
    }

    /// Writes what both logical processors share. Where there are two, what it has now is not known.
    fn set_shared<P: Port>(&mut self, port: &mut P, wanted: [u64; 2]) {
        if self.pmu.pebs.is_err() {
            return;
        }
        for ((register, now), value) in SHARED.into_iter().zip(&mut self.own).zip(wanted) {
            if *now != value || self.unit.share != Share::Whole {
                port.wrmsr(register, value);
                *now = value;
            }
        }
    }

    /// Sets the value from which the counter goes on after each record.
    pub(super) fn set_reset<P: Port>(&mut self, port: &mut P, _: &SamplingCounter, period: u64) {
        port.ds_write(ds::PEBS_COUNTER_RESET, cut(period.wrapping_neg()));
    }

    /// Lets those counters run whose bits are set. A CCCR is written only when it changes, and then without OVF.
    pub(super) fn set_global_ctrl<P: Port>(&mut self, port: &mut P, value: u64) {
        for number in self.unit.counters() {
            let enable = if value >> number & 1 == 1 { Cccr::ENABLE } else { 0 };
            let wanted = self.settings.cccrs[number as usize] | enable;
            let now = &mut self.cccrs[number as usize];
            if *now != wanted && self.ceded >> number & 1 == 0 {
                port.wrmsr(MSR_BPU_CCCR0 + number, wanted.into());
                *now = wanted;
            }
        }
        self.running = value;
    }

    /// Whether a CCCR reads otherwise than it was last written, or counters are ceded: somebody else uses the PMU.
    pub(super) fn is_foreign<P: Port>(&self, port: &mut P) -> bool {
        self.any_foreign(port, |_| true)
    }

    /// As [`Self::is_foreign`], of those counters that are the session's.
    pub(super) fn is_own_foreign<P: Port>(&self, port: &mut P) -> bool {
        self.any_foreign(port, |&number| self.settings.cccrs[number as usize] != 0)
    }

    fn any_foreign<P: Port>(&self, port: &mut P, looked_at: impl Fn(&u32) -> bool) -> bool {
        self.unit.counters().filter(looked_at).any(|number| {
            let cccr = port.rdmsr(MSR_BPU_CCCR0 + number) as u32;
            cccr & !Cccr::OVF != self.cccrs[number as usize] || self.ceded >> number & 1 == 1
        })
    }

    /// Whether an ESCR reads otherwise than it was last written: one of them, by turns, or any.
    pub(super) fn has_foreign_select<P: Port>(&self, port: &mut P, turn: Option<u32>) -> bool {
        // Their upper halves are reserved.
        let mask = u64::from(u32::MAX);
        let written = self.unit.escrs().map(|escr| (escr.address(), self.escrs[escr.place()].into(), mask));
        super::any_differs(port, written, turn)
    }

    /// Whether no counter runs.
    pub(super) const fn is_stopped(&self) -> bool {
        self.running == 0
    }

    /// Allows or forbids records, and tags, where nobody shares the register.
    pub(super) fn set_pebs_enable<P: Port>(&mut self, port: &mut P, value: u64) {
        if self.unit.share == Share::Whole {
            let [_, matrix_vert] = self.own;
            self.set_shared(port, [value, matrix_vert]);
        }
    }

    /// RDPMC's ECX for this counter (Vol. 2B, RDPMC).
    pub(super) fn rdpmc_index(counter: Counter) -> u32 {
        counter.bit()
    }

    /// Writes a counter: twice, because it may not take the first value (specification update 249199, erratum N15, whose own
    /// workaround Linux found to be of no use: `p4_pmu_set_period`).
    pub(super) fn write<P: Port>(&self, port: &mut P, counter: Counter, value: u64) {
        if self.ceded >> counter.bit() & 1 == 1 {
            return;
        }
        for _ in 0..2 {
            port.wrmsr(MSR_BPU_COUNTER0 + counter.bit(), cut(value));
        }
    }
}

/// The bits of a counter.
const fn cut(value: u64) -> u64 {
    value & (u64::MAX >> (64 - WIDTH))
}

/// Acknowledges a PMI that is hpm's: [`super::acknowledge`]. The line to the local APIC stays asserted while OVF is set, so
/// that LVTPC is unmasked after it is cleared (Linux found so: `p4_pmu_handle_irq`).
pub(super) fn acknowledge<P: Port>(port: &mut P, unit: &Unit) -> bool {
    if !port.pmi_is_masked() {
        return false;
    }
    let overflowed = Cccr::OVF | overflow_interrupt(unit);
    for number in unit.counters() {
        let cccr = port.rdmsr(MSR_BPU_CCCR0 + number) as u32;
        if cccr & overflowed == overflowed {
            port.wrmsr(MSR_BPU_CCCR0 + number, (cccr & !Cccr::OVF).into());
        }
    }
    port.unmask_pmi();
    true
}
