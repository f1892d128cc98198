//! Registers of PerfMon version 5 and later: adaptive and architectural PEBS, architectural last-branch
//! records, and the counters' second set of addresses in version 6.

use super::registers::{Register, canonical};
use super::{Perfmon, arch_lbr};
use crate::pmu::msr;
use crate::profile;
use serde::{Deserialize, Serialize};

/// IA32_PMC_GPn_CFG_C and IA32_PMC_FXm_CFG_C (Instruction Set Extensions Programming Reference, architectural
/// PEBS).
pub(super) mod cfg_c {
    /// What the counter is reloaded with, by PEBS and by auto counter reload.
    pub(crate) const RELOAD: u64 = 0xFFFF_FFFF;
    pub(crate) const LBR: u64 = 0b11 << 40;
    pub(crate) const XMM: u64 = 1 << 49;
    pub(crate) const GPR: u64 = 1 << 61;
    pub(crate) const AUX: u64 = 1 << 62;
    pub(crate) const EN: u64 = 1 << 63;
}

/// IA32_PEBS_INDEX (ibidem). WR and THRESH count units of 16 bytes.
pub(super) mod pebs_index {
    pub(crate) const WR: u64 = 0x7F_FFFF << 4;
    pub(crate) const FULL: u64 = 1 << 31;
    pub(crate) const EN: u64 = 1 << 32;
    pub(crate) const THRESH_SHIFT: u32 = 36;
    pub(crate) const THRESH: u64 = 0x7F_FFFF << THRESH_SHIFT;
}

/// MSR_PEBS_DATA_CFG (Vol. 3B 20.9.2.3): which groups an adaptive record has.
pub(super) mod data_cfg {
    pub(crate) const MEMORY_INFO: u64 = 1;
    pub(crate) const GPRS: u64 = 1 << 1;
    pub(crate) const XMMS: u64 = 1 << 2;
    pub(crate) const LBRS: u64 = 1 << 3;
    pub(crate) const LBR_ENTRIES_SHIFT: u32 = 24;
    pub(crate) const DEFINED: u64 = 0xFF00_000F;
}

/// A register that only later parts have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Later {
    PebsDataCfg,
    LbrCtl,
    LbrDepth,
    LbrFrom(usize),
    LbrTo(usize),
    LbrInfo(usize),
    PebsBase,
    PebsIndex,
    /// IA32_PMC_GPn_CFG_B or IA32_PMC_FXm_CFG_B of the counter of this index.
    CfgB(usize),
    /// IA32_PMC_GPn_CFG_C or IA32_PMC_FXm_CFG_C of the counter of this index.
    CfgC(usize),
}

/// What those of them hold that have no place elsewhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LaterRegisters {
    pub(super) pebs_data_cfg: u64,
    pub(super) pebs_base: u64,
    pub(super) pebs_index: u64,
    /// Of each counter: the counters whose overflow reloads it.
    pub(super) cfg_b: Vec<u64>,
    /// Of each counter.
    pub(super) cfg_c: Vec<u64>,
}

impl LaterRegisters {
    /// After reset all are 0.
    pub(super) fn reset(pmu: &profile::Perfmon) -> Self {
        let counters = usize::from(pmu.general_counters + pmu.fixed_counters);
        let none = vec![0; counters];
        Self { pebs_data_cfg: 0, pebs_base: 0, pebs_index: 0, cfg_b: none.clone(), cfg_c: none }
    }

    /// Whether they are of this PMU.
    pub(super) fn fits(&self, pmu: &profile::Perfmon) -> bool {
        let counters = usize::from(pmu.general_counters + pmu.fixed_counters);
        self.cfg_b.len() == counters && self.cfg_c.len() == counters
    }
}

/// IA32_PERF_CAPABILITIES.PEBS_BASELINE: adaptive and extended PEBS (Vol. 3B 20.9).
const PEBS_BASELINE: u64 = 1 << 14;
/// IA32_PERF_CAPABILITIES.PEBS_TIMING_INFO: records have the retire latency.
const PEBS_TIMING_INFO: u64 = 1 << 17;
/// IA32_PERF_CAPABILITIES.PEBS_FMT that stands for architectural PEBS.
const PEBS_FORMAT_ARCHITECTURAL: u64 = 0xF;

/// How PEBS records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PebsKind {
    /// To the DS area, in a fixed format.
    Fixed,
    /// To the DS area, in groups (formats 4 to 6).
    Adaptive,
    /// To a buffer at a physical address.
    Architectural,
}

impl PebsKind {
    pub(super) fn of(facts: &profile::Perfmon) -> Self {
        match facts.capabilities >> 8 & 0xF {
            PEBS_FORMAT_ARCHITECTURAL => Self::Architectural,
            4.. => Self::Adaptive,
            _ => Self::Fixed,
        }
    }
}

/// Whether there is PEBS and its records go to the DS area.
pub(super) fn has_ds_pebs(facts: &profile::Perfmon) -> bool {
    PebsKind::of(facts) != PebsKind::Architectural && facts.pebs_enable_mask != 0
}

/// The index of `msr` in the 32 addresses from `first` on.
fn lbr_slot(msr: u32, first: u32) -> Option<usize> {
    (first..first + 32).contains(&msr).then(|| (msr - first) as usize)
}

impl Perfmon {
    pub(super) fn has_adaptive_pebs(&self) -> bool {
        self.facts.capabilities & PEBS_BASELINE != 0
    }

    /// Whether any event of any counter can be sampled, precise or not (Vol. 3B 20.9.1, "Extended PEBS").
    pub(super) fn has_extended_pebs(&self) -> bool {
        self.has_adaptive_pebs() || self.facts.extended.architectural_pebs().is_some()
    }

    pub(super) fn has_timed_pebs(&self) -> bool {
        self.facts.capabilities & PEBS_TIMING_INFO != 0
    }

    /// Whether counter `index` is enabled for PEBS.
    pub(super) fn pebs_enabled(&self, index: usize) -> bool {
        let later = &self.registers.later;
        if PebsKind::of(self.facts) == PebsKind::Architectural {
            later.cfg_c[index] & cfg_c::EN != 0 && later.pebs_index & pebs_index::EN != 0
        } else {
            self.registers.pebs_enable & self.global_bit(index) != 0
        }
    }

    /// What `msr` is, if it is in the ranges of later parts at all.
    pub(super) fn later_register(&self, msr: u32) -> Option<Register> {
        let lbr = |index: usize, register: fn(usize) -> Later| {
            let exists = self.arch_lbr.as_ref().is_some_and(|lbr| index < lbr.depth());
            if exists { Register::Later(register(index)) } else { Register::Absent }
        };
        let only = |exists: bool, register: Later| {
            if exists { Register::Later(register) } else { Register::Absent }
        };
        if let Some(index) = lbr_slot(msr, msr::IA32_LBR_0_INFO) {
            return Some(lbr(index, Later::LbrInfo));
        }
        if let Some(index) = lbr_slot(msr, msr::IA32_LBR_0_FROM_IP) {
            return Some(lbr(index, Later::LbrFrom));
        }
        if let Some(index) = lbr_slot(msr, msr::IA32_LBR_0_TO_IP) {
            return Some(lbr(index, Later::LbrTo));
        }
        let architectural = PebsKind::of(self.facts) == PebsKind::Architectural;
        Some(match msr {
            msr::IA32_PMC_GP0_CTR..=msr::IA32_PMC_FX_LAST => self.aliased_register(msr),
            msr::MSR_PEBS_DATA_CFG => only(self.has_adaptive_pebs(), Later::PebsDataCfg),
            msr::IA32_LBR_CTL => only(self.arch_lbr.is_some(), Later::LbrCtl),
            msr::IA32_LBR_DEPTH => only(self.arch_lbr.is_some(), Later::LbrDepth),
            msr::IA32_PEBS_BASE => only(architectural, Later::PebsBase),
            msr::IA32_PEBS_INDEX => only(architectural, Later::PebsIndex),
            // The model has no top-down metrics.
            msr::MSR_PERF_METRICS => Register::Absent,
            _ => return None,
        })
    }

    /// The counters' second set of addresses, four registers for each: CTR and CFG_A in version 6, CFG_B and CFG_C by what leaf
    /// 23H tells of.
    fn aliased_register(&self, msr: u32) -> Register {
        let fixed = msr >= msr::IA32_PMC_FX0_CTR;
        let first = if fixed { msr::IA32_PMC_FX0_CTR } else { msr::IA32_PMC_GP0_CTR };
        let (slot, kind) = ((msr - first) as usize / 4, (msr - first) % 4);
        let (base, count) =
            if fixed { (self.general(), self.counters.len() - self.general()) } else { (0, self.general()) };
        let counter = base + slot;
        let version_6 = self.facts.version >= 6;
        match kind {
            _ if slot >= count || self.is_absent(counter) => Register::Absent,
            0 if version_6 && fixed => Register::FixedCtr(slot),
            0 if version_6 => Register::FullPmc(slot),
            1 if version_6 && !fixed => Register::EvtSel(slot),
            2 if self.is_reloadable(counter) => Register::Later(Later::CfgB(counter)),
            3 if self.facts.extended.architectural_pebs().is_some() || self.is_reloadable(counter) => {
                Register::Later(Later::CfgC(counter))
            }
            // Fixed-function counters have no CFG_A.
            _ => Register::Absent,
        }
    }

    /// Whether `counter` is a gap among the fixed-function counters.
    pub(super) fn is_absent(&self, counter: usize) -> bool {
        counter >= self.general() && self.facts.extended.absent_fixed >> (counter - self.general()) & 1 != 0
    }

    pub(super) fn read_later(&self, register: Later) -> u64 {
        let registers = &self.registers.later;
        let entry = |index: usize| self.arch_lbr.as_ref().map(|lbr| lbr.entries()[index]).unwrap_or_default();
        match register {
            Later::PebsDataCfg => registers.pebs_data_cfg,
            Later::LbrCtl => self.arch_lbr.as_ref().map_or(0, |lbr| lbr.control),
            Later::LbrDepth => self.arch_lbr.as_ref().map_or(0, |lbr| lbr.depth() as u64),
            Later::LbrFrom(index) => entry(index).from,
            Later::LbrTo(index) => entry(index).to,
            Later::LbrInfo(index) => entry(index).info,
            Later::PebsBase => registers.pebs_base,
            Later::PebsIndex => registers.pebs_index,
            Later::CfgB(counter) => registers.cfg_b[counter],
            Later::CfgC(counter) => registers.cfg_c[counter],
        }
    }

    /// Whether `value` sets no reserved bit of `register`.
    pub(super) fn accepts_later(&self, register: Later, value: u64) -> bool {
        let extended = &self.facts.extended;
        let allowed = match register {
            Later::PebsDataCfg => data_cfg::DEFINED,
            Later::LbrCtl => arch_lbr::CONTROL_MASK,
            Later::LbrDepth => return extended.arch_lbr.is_some_and(|lbr| lbr.supports(value)),
            Later::LbrFrom(_) | Later::LbrTo(_) => return canonical(value),
            Later::LbrInfo(_) => arch_lbr::INFO_MASK,
            // SIZE in 4:0, a page-aligned physical address of at most 52 bits.
            Later::PebsBase => 0x000F_FFFF_FFFF_F01F,
            Later::PebsIndex => pebs_index::WR | pebs_index::FULL | pebs_index::EN | pebs_index::THRESH,
            Later::CfgB(_) => self.cfg_b_mask(),
            Later::CfgC(counter) => self.cfg_c_mask(counter),
        };
        value & !allowed == 0
    }

    /// RELOAD of every counter; EN and the groups of those that `CPUID.23H.5` says can be used for PEBS.
    fn cfg_c_mask(&self, counter: usize) -> u64 {
        let extended = &self.facts.extended;
        let Some(pebs) = extended.architectural_pebs() else { return cfg_c::RELOAD };
        let counters = u64::from(pebs.general) | extended.pebs_fixed << 32;
        if counters & self.global_bit(counter) == 0 {
            return cfg_c::RELOAD;
        }
        cfg_c::RELOAD | cfg_c::EN | u64::from(pebs.groups) << 32
    }

    /// Stores an accepted value.
    pub(super) fn store_later(&mut self, register: Later, value: u64) {
        let registers = &mut self.registers.later;
        match register {
            Later::PebsDataCfg => registers.pebs_data_cfg = value,
            Later::PebsBase => registers.pebs_base = value,
            Later::PebsIndex => {
                registers.pebs_index = value;
                self.disarm_disabled();
            }
            Later::CfgB(counter) => registers.cfg_b[counter] = value,
            Later::CfgC(counter) => {
                registers.cfg_c[counter] = value;
                self.disarm_disabled();
            }
            Later::LbrCtl | Later::LbrDepth | Later::LbrFrom(_) | Later::LbrTo(_) | Later::LbrInfo(_) => {
                self.store_lbr(register, value);
            }
        }
    }

    fn store_lbr(&mut self, register: Later, value: u64) {
        let Some(lbr) = &mut self.arch_lbr else { return };
        match register {
            Later::LbrCtl => lbr.control = value,
            Later::LbrDepth => lbr.set_depth(value as usize),
            Later::LbrFrom(index) => lbr.entry_mut(index).from = value,
            Later::LbrTo(index) => lbr.entry_mut(index).to = value,
            Later::LbrInfo(index) => lbr.entry_mut(index).info = value,
            Later::PebsDataCfg | Later::PebsBase | Later::PebsIndex | Later::CfgB(_) | Later::CfgC(_) => {}
        }
    }
}
