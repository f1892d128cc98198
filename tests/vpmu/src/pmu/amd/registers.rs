//! `RDMSR`, `WRMSR` and `RDPMC`.
//!
//! Writing a reserved bit of PERF_CTLx does not fault on AMD's processors, the bit is cleared (measured on Zen 3, Linux
//! commit 9b026073db2f "KVM: x86/svm: Clear reserved bits written to PerfEvtSeln MSRs"); the other registers are
//! treated alike. A register that does not exist faults, and so does writing one that is read-only.

use super::Amd;
use super::ibs::Register as IbsRegister;
use crate::pmu::{GeneralProtection, msr};
use crate::profile;
use serde::{Deserialize, Serialize};

/// PERF_CTLx (APM 13.2.1).
pub(super) mod control {
    pub(crate) const USR: u64 = 1 << 16;
    pub(crate) const OS: u64 = 1 << 17;
    pub(crate) const E: u64 = 1 << 18;
    pub(crate) const INT: u64 = 1 << 20;
    pub(crate) const EN: u64 = 1 << 22;
    pub(crate) const INV: u64 = 1 << 23;
    pub(crate) const CNT_MASK: u64 = 0xFF << 24;
    pub(crate) const GUEST_ONLY: u64 = 1 << 40;
    pub(crate) const HOST_ONLY: u64 = 1 << 41;
    pub(crate) const HOST_GUEST_ONLY: u64 = HOST_ONLY | GUEST_ONLY;
}

/// PerfCntrGlobalStatus beside the counters' bits (APM 13.2.2).
pub(super) mod status {
    pub(crate) const LBR_FREEZE: u64 = 1 << 58;
    pub(crate) const PMC_FREEZE: u64 = 1 << 59;
}

/// DebugCtl (APM 13.1.1).
pub(super) mod debugctl {
    /// Freeze the counters on an interrupt of theirs.
    pub(crate) const FPCI: u64 = 1 << 12;
    /// LBR, BTF, PB3 to PB0, FLBRI, FPCI.
    pub(super) const DEFINED: u64 = 0x183F;
}

/// Registers that hold what was written to them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Registers {
    /// PERF_CTLx.
    pub(super) control: Vec<u64>,
    /// PerfCntrGlobalCtl.
    pub(super) global_ctl: u64,
    /// PerfCntrGlobalStatus.
    pub(super) status: u64,
    pub(super) debugctl: u64,
}

impl Registers {
    /// Values after reset: 0, but PerfCntrGlobalCtl enables every counter, so that software that does not know
    /// of it finds counters that count (APM 13.2.2).
    pub(super) fn reset(facts: &profile::Amd) -> Self {
        let control = vec![0; facts.counters.into()];
        Self { control, global_ctl: (1 << facts.counters) - 1, status: 0, debugctl: 0 }
    }

    /// Whether it is of this PMU.
    pub(super) fn fits(&self, facts: &profile::Amd) -> bool {
        self.control.len() == usize::from(facts.counters)
    }
}

/// A register of the PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Register {
    Control(usize),
    Counter(usize),
    GlobalStatus,
    GlobalCtl,
    GlobalStatusClr,
    GlobalStatusSet,
    DebugCtl,
    Ibs(IbsRegister),
    /// Belongs to the PMU's address range but does not exist on this part.
    Absent,
}

impl Amd {
    /// What `msr` is, if it is the PMU's at all.
    fn register(&self, msr: u32) -> Option<Register> {
        use Register as R;
        let facts = self.facts;
        let version_2 = |register| if facts.version_2 { register } else { R::Absent };
        Some(match msr {
            // The first four counters, also where there is the extension: the same counters.
            msr::PERF_CTL0_LEGACY..=msr::PERF_CTL3_LEGACY => {
                R::Control((msr - msr::PERF_CTL0_LEGACY) as usize)
            }
            msr::PERF_CTR0_LEGACY..=msr::PERF_CTR3_LEGACY => {
                R::Counter((msr - msr::PERF_CTR0_LEGACY) as usize)
            }
            msr::PERF_CTL0..=msr::PERF_CTR7 => {
                let (index, odd) = ((msr - msr::PERF_CTL0) / 2, msr & 1);
                match (facts.extended && index < facts.counters.into(), odd) {
                    (false, _) => R::Absent,
                    (true, 0) => R::Control(index as usize),
                    (true, _) => R::Counter(index as usize),
                }
            }
            msr::PERF_CNTR_GLOBAL_STATUS => version_2(R::GlobalStatus),
            msr::PERF_CNTR_GLOBAL_CTL => version_2(R::GlobalCtl),
            msr::PERF_CNTR_GLOBAL_STATUS_CLR => version_2(R::GlobalStatusClr),
            msr::PERF_CNTR_GLOBAL_STATUS_SET => version_2(R::GlobalStatusSet),
            msr::IA32_DEBUGCTL if facts.version_2 => R::DebugCtl,
            msr::IBS_FETCH_CTL..=msr::IBS_OP_DATA4 => {
                IbsRegister::of(facts.ibs, msr).map_or(R::Absent, R::Ibs)
            }
            _ => return None,
        })
    }

    pub(in crate::pmu) fn owns_msr(&self, msr: u32) -> bool {
        self.register(msr).is_some()
    }

    /// Bits of PerfCntrGlobalStatus that exist.
    fn status_mask(&self) -> u64 {
        self.counter_bits() | status::LBR_FREEZE | status::PMC_FREEZE
    }

    fn counter_bits(&self) -> u64 {
        (1 << self.facts.counters) - 1
    }

    pub(in crate::pmu) fn rdmsr(&self, msr: u32) -> Result<u64, GeneralProtection> {
        use Register as R;
        Ok(match self.register(msr).ok_or(GeneralProtection)? {
            R::Control(index) => self.registers.control[index],
            R::Counter(index) => self.counters[index].value(),
            R::GlobalStatus => self.registers.status,
            R::GlobalCtl => self.registers.global_ctl,
            // Command registers: nothing to read back.
            R::GlobalStatusClr | R::GlobalStatusSet => 0,
            R::DebugCtl => self.registers.debugctl,
            R::Ibs(register) => self.ibs.read(register, self.facts),
            R::Absent => return Err(GeneralProtection),
        })
    }

    pub(in crate::pmu) fn wrmsr(&mut self, msr: u32, value: u64) -> Result<(), GeneralProtection> {
        use Register as R;
        match self.register(msr).ok_or(GeneralProtection)? {
            R::Control(index) => {
                self.registers.control[index] = value & self.facts.control_mask;
                self.counters[index].begin();
            }
            R::Counter(index) => self.counters[index].set(value),
            R::GlobalCtl => self.registers.global_ctl = value & self.counter_bits(),
            R::GlobalStatusClr => self.registers.status &= !value,
            R::GlobalStatusSet => self.registers.status |= value & self.status_mask(),
            R::DebugCtl => self.registers.debugctl = value & debugctl::DEFINED,
            R::Ibs(register) => self.ibs.write(register, value, self.facts)?,
            R::GlobalStatus | R::Absent => return Err(GeneralProtection),
        }
        self.update_rules();
        Ok(())
    }

    /// ECX numbers the core counters from 0 (APM Vol. 3, RDPMC); those of northbridge and L3, which follow, are not
    /// modelled.
    pub(in crate::pmu) fn rdpmc(&self, ecx: u32) -> Result<u64, GeneralProtection> {
        self.counters.get(ecx as usize).map(|counter| counter.value()).ok_or(GeneralProtection)
    }
}
