//! `RDMSR`, `WRMSR` and `RDPMC`: which registers exist, which bits are reserved, which values alias.

use super::Perfmon;
use super::bits::{evtsel, fixed_ctrl, status};
use super::counter::Counter;
use super::extended::{Later, LaterRegisters, has_ds_pebs};
use super::lbr::Format;
use crate::pmu::cycles::CycleState;
use crate::pmu::{GeneralProtection, msr};
use crate::profile;
use serde::{Deserialize, Serialize};

/// Registers that hold what was written to them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Registers {
    pub(super) evtsel: Vec<u64>,
    pub(super) fixed_ctrl: u64,
    pub(super) global_ctrl: u64,
    /// IA32_PERF_GLOBAL_STATUS.
    pub(super) status: u64,
    pub(super) pebs_enable: u64,
    pub(super) ds_area: u64,
    pub(super) debugctl: u64,
    pub(super) ld_lat: u64,
    frontend: u64,
    trace_control: u64,
    pub(super) offcore: [u64; 2],
    pub(super) later: LaterRegisters,
}

/// Bit 30 of `RDPMC`'s ECX selects the fixed-function counters (SDM Vol. 2B, RDPMC).
const RDPMC_FIXED: u32 = 1 << 30;

/// A register of the PMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    /// IA32_PMCx, the legacy 32-bit write alias.
    Pmc(usize),
    /// IA32_A_PMCx, full width.
    FullPmc(usize),
    EvtSel(usize),
    FixedCtr(usize),
    FixedCtrCtrl,
    GlobalStatus,
    GlobalCtrl,
    StatusReset,
    StatusSet,
    InUse,
    Capabilities,
    PebsEnable,
    LdLat,
    Frontend,
    Offcore(usize),
    TraceControl,
    DsArea,
    DebugCtl,
    LbrSelect,
    LbrTos,
    LbrFrom(usize),
    LbrTo(usize),
    LbrInfo(usize),
    /// One that came with version 5 or later.
    Later(Later),
    /// Belongs to the PMU's address range but does not exist on this part.
    Absent,
}

/// The index of `msr` in a range of `slots` registers from `first` on.
fn slot(msr: u32, first: u32, slots: u32) -> Option<usize> {
    (first..first + slots).contains(&msr).then(|| (msr - first) as usize)
}

/// Whether bits 63:47 are all equal (SDM Vol. 1 3.3.7.1; 48-bit linear addresses).
pub(super) fn canonical(address: u64) -> bool {
    matches!(address >> 47, 0 | 0x1_FFFF)
}

impl Registers {
    /// Values after reset (SDM Vol. 3A, table 9-1): all 0, but IA32_PERF_GLOBAL_CTRL enables the
    /// general-purpose counters.
    pub(super) fn reset(pmu: &profile::Perfmon) -> Self {
        Self {
            evtsel: vec![0; usize::from(pmu.general_counters)],
            fixed_ctrl: 0,
            global_ctrl: (1 << pmu.general_counters) - 1,
            status: 0,
            pebs_enable: 0,
            ds_area: 0,
            debugctl: 0,
            ld_lat: 0,
            frontend: 0,
            trace_control: 0,
            offcore: [0; 2],
            later: LaterRegisters::reset(pmu),
        }
    }

    /// Whether it is of this PMU.
    pub(super) fn fits(&self, pmu: &profile::Perfmon) -> bool {
        self.evtsel.len() == usize::from(pmu.general_counters) && self.later.fits(pmu)
    }
}

impl Perfmon {
    /// What `msr` is, if it is the PMU's at all.
    fn register(&self, msr: u32) -> Option<Register> {
        use Register as R;
        let (general, fixed) = (self.general(), usize::from(self.facts.fixed_counters));
        let pmu = self.facts;
        let depth = self.lbr.depth();
        let infos = if self.lbr.format == Format::Info { depth } else { 0 };
        let full = if pmu.full_width_writes() { general } else { 0 };
        let within =
            |index: usize, count: usize, register: R| if index < count { register } else { R::Absent };
        let ranges = [
            (msr::IA32_PMC0, msr::GENERAL_SLOTS, general, R::Pmc as fn(usize) -> R),
            (msr::IA32_A_PMC0, msr::GENERAL_SLOTS, full, R::FullPmc),
            (msr::IA32_PERFEVTSEL0, msr::GENERAL_SLOTS, general, R::EvtSel),
            (msr::IA32_FIXED_CTR0, msr::FIXED_SLOTS, fixed, R::FixedCtr),
            (msr::MSR_LASTBRANCH_0_FROM_IP, msr::LBR_SLOTS, depth, R::LbrFrom),
            (msr::MSR_LASTBRANCH_0_TO_IP, msr::LBR_SLOTS, depth, R::LbrTo),
            (msr::MSR_LBR_INFO_0, msr::LBR_SLOTS, infos, R::LbrInfo),
        ];
        for (first, slots, count, register) in ranges {
            if let Some(index) = slot(msr, first, slots) {
                let absent = first == msr::IA32_FIXED_CTR0 && self.is_absent(general + index);
                return Some(if absent { R::Absent } else { within(index, count, register(index)) });
            }
        }
        let in_ds_area = has_ds_pebs(self.facts);
        Some(match msr {
            // Version 1 has the counters and their event selects alone (SDM Vol. 3B 18.2.1, 18.2.2).
            msr::IA32_FIXED_CTR_CTRL..=msr::IA32_PERF_GLOBAL_STATUS_RESET if !pmu.has_global_control() => {
                R::Absent
            }
            msr::IA32_PERF_CAPABILITIES if !pmu.has_capabilities() => R::Absent,
            msr::IA32_FIXED_CTR_CTRL => R::FixedCtrCtrl,
            msr::IA32_PERF_GLOBAL_STATUS => R::GlobalStatus,
            msr::IA32_PERF_GLOBAL_CTRL => R::GlobalCtrl,
            msr::IA32_PERF_GLOBAL_STATUS_RESET => R::StatusReset,
            // From version 4 on (SDM Vol. 4, table 2-2).
            msr::IA32_PERF_GLOBAL_STATUS_SET | msr::IA32_PERF_GLOBAL_INUSE if pmu.version < 4 => R::Absent,
            msr::IA32_PERF_GLOBAL_STATUS_SET => R::StatusSet,
            msr::IA32_PERF_GLOBAL_INUSE => R::InUse,
            msr::IA32_PERF_CAPABILITIES => R::Capabilities,
            // A part with architectural PEBS has no debug store (CPUID.01H:EDX.DS).
            msr::IA32_PEBS_ENABLE | msr::IA32_DS_AREA if !in_ds_area => R::Absent,
            msr::IA32_PEBS_ENABLE => R::PebsEnable,
            // Load latency came with version 3 (18.8.1.2).
            msr::MSR_PEBS_LD_LAT_THRESHOLD if pmu.version < 3 => R::Absent,
            msr::MSR_PEBS_LD_LAT_THRESHOLD => R::LdLat,
            msr::MSR_PEBS_FRONTEND if pmu.frontend_mask == 0 => R::Absent,
            msr::MSR_PEBS_FRONTEND => R::Frontend,
            msr::MSR_OFFCORE_RSP_0 => within(0, pmu.offcore.registers.into(), R::Offcore(0)),
            msr::MSR_OFFCORE_RSP_1 => within(1, pmu.offcore.registers.into(), R::Offcore(1)),
            msr::IA32_DS_AREA => R::DsArea,
            msr::IA32_RTIT_CTL if self.options.processor_trace => R::TraceControl,
            msr::IA32_DEBUGCTL => R::DebugCtl,
            msr::MSR_LBR_SELECT | msr::MSR_LASTBRANCH_TOS if depth == 0 => R::Absent,
            msr::MSR_LBR_SELECT => R::LbrSelect,
            msr::MSR_LASTBRANCH_TOS => R::LbrTos,
            _ => return self.later_register(msr),
        })
    }

    pub(in crate::pmu) fn owns_msr(&self, msr: u32) -> bool {
        self.register(msr).is_some()
    }

    /// The value of counter `index` as software sees it.
    fn counter_value(&self, index: usize) -> u64 {
        self.counters[index].value & self.counter_mask()
    }

    pub(super) fn counter_mask(&self) -> u64 {
        (1 << self.facts.counter_bits) - 1
    }

    /// Overflow bits of all counters.
    fn counter_bits(&self) -> u64 {
        let pmu = self.facts;
        let fixed = ((1 << pmu.fixed_counters) - 1) & !pmu.extended.absent_fixed;
        ((1 << pmu.general_counters) - 1) | fixed << 32
    }

    /// Bits that IA32_PERF_GLOBAL_STATUS_RESET and _SET accept. TraceToPAPMI (55) and ASCI (60) exist only
    /// with Intel PT and SGX, LBR_FRZ and CTR_FRZ from version 4, OvfUncore from version 3 on (SDM Vol. 4,
    /// table 2-2); the modelled parts lack the first two.
    fn status_mask(&self) -> u64 {
        let frozen = if self.facts.version >= 4 { status::LBR_FRZ | status::CTR_FRZ } else { 0 };
        let uncore = if self.facts.version >= 3 { status::OVF_UNCORE } else { 0 };
        self.counter_bits() | frozen | uncore | self.buffer_overflow_bit()
    }

    /// IA32_PERF_GLOBAL_INUSE (SDM Vol. 3B 18.2.4.3). The text there gives PMI_InUse as "bit 32", figure
    /// 18-13 as bit 63.
    fn in_use(&self) -> u64 {
        let registers = &self.registers;
        let mut in_use = 0;
        for (index, select) in registers.evtsel.iter().enumerate() {
            in_use |= u64::from(select & evtsel::SELECT != 0) << index;
            in_use |= u64::from(select & evtsel::INT != 0) << 63;
        }
        for fixed in 0..self.facts.fixed_counters {
            let control = registers.fixed_ctrl >> (4 * fixed);
            in_use |= u64::from(control & (fixed_ctrl::OS | fixed_ctrl::USR) != 0) << (32 + fixed);
            in_use |= u64::from(control & fixed_ctrl::PMI != 0) << 63;
        }
        in_use | u64::from((0..self.counters.len()).any(|index| self.pebs_enabled(index))) << 63
    }

    pub(in crate::pmu) fn rdmsr(&self, msr: u32) -> Result<u64, GeneralProtection> {
        use Register as R;
        let registers = &self.registers;
        Ok(match self.register(msr).ok_or(GeneralProtection)? {
            R::Pmc(index) | R::FullPmc(index) => self.counter_value(index),
            R::FixedCtr(index) => self.counter_value(self.general() + index),
            R::EvtSel(index) => registers.evtsel[index],
            R::FixedCtrCtrl => registers.fixed_ctrl,
            R::GlobalStatus => registers.status,
            R::GlobalCtrl => registers.global_ctrl,
            // Command registers: nothing to read back.
            R::StatusReset | R::StatusSet => 0,
            R::InUse => self.in_use(),
            R::Capabilities => self.facts.capabilities,
            R::PebsEnable => registers.pebs_enable,
            R::LdLat => registers.ld_lat,
            R::Frontend => registers.frontend,
            R::Offcore(index) => registers.offcore[index],
            R::TraceControl => registers.trace_control,
            R::DsArea => registers.ds_area,
            R::DebugCtl => registers.debugctl,
            R::LbrSelect => self.lbr.select,
            R::LbrTos => self.lbr.tos as u64,
            R::LbrFrom(index) => self.lbr.entries[index].from,
            R::LbrTo(index) => self.lbr.entries[index].to,
            R::LbrInfo(index) => self.lbr.entries[index].info,
            R::Later(later) => self.read_later(later),
            R::Absent => return Err(GeneralProtection),
        })
    }

    pub(in crate::pmu) fn wrmsr(&mut self, msr: u32, value: u64) -> Result<(), GeneralProtection> {
        let register = self.register(msr).ok_or(GeneralProtection)?;
        if !self.accepts(register, value) {
            return Err(GeneralProtection);
        }
        self.store(register, value);
        self.update_rules();
        Ok(())
    }

    /// Whether `register` can be written and `value` sets no reserved bit.
    fn accepts(&self, register: Register, value: u64) -> bool {
        use Register as R;
        let pmu = self.facts;
        let allowed = match register {
            // Bits 63:32 of a legacy write are ignored (SDM Vol. 3B 18.2.5).
            R::Pmc(_) => u64::MAX,
            R::FullPmc(_) | R::FixedCtr(_) => self.counter_mask(),
            R::EvtSel(_) => self.evtsel_mask(),
            R::FixedCtrCtrl => self.fixed_ctrl_mask(),
            // EN_PERF_METRICS (SDM Vol. 3B 20.3.9.3).
            R::GlobalCtrl => self.counter_bits() | u64::from(pmu.extended.hidden_metrics) << 48,
            R::StatusReset => self.status_mask() | status::COND_CHGD,
            // Bit 63 is reserved in the setting register (SDM Vol. 4, table 2-2, 391H).
            R::StatusSet => self.status_mask(),
            R::PebsEnable => pmu.pebs_enable_mask,
            R::LdLat => 0xFFFF,
            R::Frontend => pmu.frontend_mask,
            R::Offcore(_) => pmu.offcore.mask,
            // TraceEn, OS, User, TSCEn, DisRETC and BranchEn (SDM Vol. 3C, table 33-6); what only a capability allows is reserved.
            R::TraceControl => 0x2C0D,
            R::DebugCtl => pmu.debugctl_mask,
            R::LbrSelect => pmu.lbr_select_mask,
            R::LbrTos => u64::from(pmu.lbr_depth) - 1,
            // MISPRED, IN_TSX, TSX_ABORT and the cycle count (SDM Vol. 3B, table 17-16).
            R::LbrInfo(_) => 0xE000_0000_0000_FFFF,
            R::LbrFrom(_) => return self.lbr.format.accepts_from(value),
            R::DsArea | R::LbrTo(_) => return canonical(value),
            R::Later(later) => return self.accepts_later(later, value),
            R::GlobalStatus | R::InUse | R::Capabilities | R::Absent => return false,
        };
        value & !allowed == 0
    }

    /// Bits of IA32_PERFEVTSELx that are not reserved.
    fn evtsel_mask(&self) -> u64 {
        let any_thread = if self.facts.has_any_thread() { 0 } else { evtsel::ANY_THREAD };
        let adaptive = if self.has_adaptive_pebs() { evtsel::ADAPTIVE_RECORD } else { 0 };
        let extension = self.facts.extended.perfmon_extension;
        let equal = if extension.is_some_and(|extension| extension.equal) { evtsel::EQ } else { 0 };
        let umask2 = if extension.is_some_and(|extension| extension.unit_mask2) { evtsel::UMASK2 } else { 0 };
        let kept = if self.has_rdpmc_user_disable() { evtsel::RDPMC_USR_DISABLE } else { 0 };
        evtsel::DEFINED & !any_thread | adaptive | equal | umask2 | kept
    }

    /// Bits of IA32_FIXED_CTR_CTRL that are not reserved.
    fn fixed_ctrl_mask(&self) -> u64 {
        let any_thread = self.facts.has_any_thread();
        let field = if any_thread { fixed_ctrl::DEFINED } else { fixed_ctrl::DEFINED_WITHOUT_ANY_THREAD };
        let adaptive = if self.has_adaptive_pebs() { fixed_ctrl::ADAPTIVE_RECORD } else { 0 };
        let kept = if self.has_rdpmc_user_disable() { fixed_ctrl::RDPMC_USR_DISABLE } else { 0 };
        let exists = |fixed: &u32| !self.is_absent(self.general() + *fixed as usize);
        let fields = (0..u32::from(self.facts.fixed_counters)).filter(exists);
        fields.fold(0, |mask, fixed| mask | (field | adaptive | kept) << (4 * fixed))
    }

    /// Stores an accepted value.
    fn store(&mut self, register: Register, value: u64) {
        use Register as R;
        let general = self.general();
        match register {
            // Bit 31 of EAX is extended to the counter's width (SDM Vol. 3B 18.2.5).
            R::Pmc(index) => {
                let extended = i64::from(value as u32 as i32) as u64;
                self.write_counter(index, extended);
            }
            R::FullPmc(index) => self.write_counter(index, value),
            R::FixedCtr(index) => self.write_counter(general + index, value),
            R::EvtSel(index) => {
                self.registers.evtsel[index] = value;
                // A new event starts with no cycle half counted.
                self.counters[index].cycle = CycleState::default();
            }
            R::FixedCtrCtrl => self.registers.fixed_ctrl = value,
            R::GlobalCtrl => self.registers.global_ctrl = value,
            R::StatusReset => self.registers.status &= !value,
            R::StatusSet => self.registers.status |= value,
            R::PebsEnable => {
                self.registers.pebs_enable = value;
                self.disarm_disabled();
            }
            R::Later(later) => self.store_later(later, value),
            R::LdLat => self.registers.ld_lat = value,
            R::TraceControl => self.registers.trace_control = value,
            R::Frontend => self.registers.frontend = value,
            R::Offcore(index) => self.registers.offcore[index] = value,
            R::DsArea => self.registers.ds_area = value,
            R::DebugCtl => self.registers.debugctl = value,
            R::LbrSelect => self.lbr.select = value,
            R::LbrTos => self.lbr.tos = value as usize,
            R::LbrFrom(index) => self.lbr.entries[index].from = value,
            R::LbrTo(index) => self.lbr.entries[index].to = value,
            R::LbrInfo(index) => self.lbr.entries[index].info = value,
            R::GlobalStatus | R::InUse | R::Capabilities | R::Absent => {}
        }
    }

    fn write_counter(&mut self, index: usize, value: u64) {
        let mask = self.counter_mask();
        let counter = &mut self.counters[index];
        counter.value = value & mask;
        // An armed counter stays armed; what its record's reload carries over starts here.
        counter.since_overflow = 0;
    }

    /// PEBS has been disabled for some counters: if that disarms, those are no longer armed.
    pub(super) fn disarm_disabled(&mut self) {
        if !self.options.pebs_disable_disarms {
            return;
        }
        for index in 0..self.counters.len() {
            if self.pebs_enabled(index) {
                continue;
            }
            let counter = &mut self.counters[index];
            *counter = Counter {
                armed: false,
                triggered: false,
                since_overflow: 0,
                overflowed_again: false,
                ..counter.clone()
            };
        }
    }

    /// Whether leaf 23H tells of RDPMC user disable.
    pub(super) fn has_rdpmc_user_disable(&self) -> bool {
        self.options.rdpmc_user_disable && self.facts.extended.perfmon_extension.is_some()
    }

    /// Whether `RDPMC` in user mode reads 0 of this counter.
    pub(in crate::pmu) fn is_kept_from_user(&self, ecx: u32) -> bool {
        match (ecx & RDPMC_FIXED != 0, ecx & !RDPMC_FIXED) {
            (false, index) => {
                let select = self.registers.evtsel.get(index as usize);
                select.is_some_and(|select| select & evtsel::RDPMC_USR_DISABLE != 0)
            }
            (true, index @ 0..8) => {
                self.registers.fixed_ctrl & fixed_ctrl::RDPMC_USR_DISABLE << (4 * index) != 0
            }
            (true, _) => false,
        }
    }

    pub(in crate::pmu) fn rdpmc(&self, ecx: u32) -> Result<u64, GeneralProtection> {
        let fixed = usize::from(self.facts.fixed_counters);
        match (ecx & RDPMC_FIXED != 0, (ecx & !RDPMC_FIXED) as usize) {
            (false, index) if index < self.general() => Ok(self.counter_value(index)),
            (true, index) if index < fixed && !self.is_absent(self.general() + index) => {
                Ok(self.counter_value(self.general() + index))
            }
            _ => Err(GeneralProtection),
        }
    }
}
