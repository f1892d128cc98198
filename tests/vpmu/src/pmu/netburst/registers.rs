//! `RDMSR`, `WRMSR` and `RDPMC`: which registers exist and which bits are reserved.

use super::bits::{cccr, escr, matrix, pebs_enable};
use super::counter::BITS;
use super::{COUNTERS, Unit};
use crate::pmu::cycles::CycleState;
use crate::pmu::{GeneralProtection, msr};
use crate::profile;
use serde::{Deserialize, Serialize};

/// MSR_BPU_COUNTER0, the first counter (SDM Vol. 3B, table 18-63).
const COUNTER0: u32 = 0x300;
/// MSR_BPU_CCCR0.
const CCCR0: u32 = 0x360;
/// The first and the last ESCR.
const FIRST_ESCR: u32 = 0x3A0;
const LAST_ESCR: u32 = 0x3E1;
/// "None of the events currently supported requires the use of the MSR_TC_PRECISE_EVENT MSR" (18.15.6.2).
const MSR_TC_PRECISE_EVENT: u32 = 0x3F0;
const MSR_PEBS_MATRIX_VERT: u32 = 0x3F2;

/// CCCRs with a CASCNTxINTOy bit (18.15.5.7, table 18-65): the counter, and the one that cascades into it.
pub(super) const EXTENDED_CASCADES: [(usize, usize); 4] = [(12, 16), (15, 17), (16, 17), (17, 16)];

/// Registers that hold what was written to them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Registers {
    /// In the order of the profile's table.
    pub(super) escr: Vec<u64>,
    pub(super) cccr: [u64; COUNTERS],
    /// IA32_PEBS_ENABLE without the bits that enable PEBS.
    pub(super) metrics: u64,
    /// Whether PEBS is enabled for each logical processor.
    pub(super) pebs: [bool; 2],
    /// MSR_PEBS_MATRIX_VERT.
    pub(super) matrix: u64,
    precise_event: u64,
}

/// A register of the PMU.
#[derive(Debug, Clone, Copy)]
enum Register {
    Counter(usize),
    Cccr(usize),
    Escr(usize),
    PreciseEvent,
    PebsEnable,
    Matrix,
    /// Belongs to the PMU's address range but does not exist on this part.
    Absent,
}

/// Whether bits 63:47 are all equal (SDM Vol. 1 3.3.7.1; 48-bit linear addresses).
pub(super) fn canonical(address: u64) -> bool {
    matches!(address >> 47, 0 | 0x1_FFFF)
}

impl Registers {
    /// All 0 (18.15.1, 18.15.3).
    pub(super) fn reset(facts: &profile::Netburst) -> Self {
        Self {
            escr: vec![0; facts.escrs.len()],
            cccr: [0; COUNTERS],
            metrics: 0,
            pebs: [false; 2],
            matrix: 0,
            precise_event: 0,
        }
    }

    /// Whether it is of this PMU.
    pub(super) fn fits(&self, facts: &profile::Netburst) -> bool {
        self.escr.len() == facts.escrs.len()
    }

    /// IA32_PEBS_ENABLE as logical processor `thread` sees it.
    fn pebs_enable(&self, thread: usize) -> u64 {
        let bit = |enabled: bool, bit: u64| if enabled { bit } else { 0 };
        self.metrics
            | bit(self.pebs[thread], pebs_enable::MY_THREAD)
            | bit(self.pebs[1 - thread], pebs_enable::OTHER_THREAD)
    }
}

impl Unit {
    /// What `msr` is, if it is the PMU's at all.
    fn register(&self, msr: u32) -> Option<Register> {
        let slot = |first: u32| msr.checked_sub(first).map(|index| index as usize).filter(|&i| i < COUNTERS);
        if let Some(index) = slot(COUNTER0) {
            return Some(Register::Counter(index));
        }
        if let Some(index) = slot(CCCR0) {
            return Some(Register::Cccr(index));
        }
        match msr {
            FIRST_ESCR..=LAST_ESCR => {
                let index = self.facts.escrs.iter().position(|escr| escr.address == msr);
                Some(index.map_or(Register::Absent, Register::Escr))
            }
            MSR_TC_PRECISE_EVENT => Some(Register::PreciseEvent),
            msr::IA32_PEBS_ENABLE => Some(Register::PebsEnable),
            MSR_PEBS_MATRIX_VERT => Some(Register::Matrix),
            // What later parts have.
            msr::IA32_PERF_CAPABILITIES | msr::IA32_FIXED_CTR_CTRL..=msr::IA32_PERF_GLOBAL_INUSE => {
                Some(Register::Absent)
            }
            _ => None,
        }
    }

    /// IA32_DS_AREA is the logical processor's own, and still the PMU's.
    pub(super) fn owns_msr(&self, msr: u32) -> bool {
        msr == msr::IA32_DS_AREA || self.register(msr).is_some()
    }

    pub(super) fn rdmsr(&self, msr: u32, thread: usize) -> Result<u64, GeneralProtection> {
        let registers = &self.registers;
        Ok(match self.register(msr).ok_or(GeneralProtection)? {
            Register::Counter(index) => self.value(index),
            Register::Cccr(index) => registers.cccr[index],
            Register::Escr(index) => registers.escr[index],
            Register::PreciseEvent => registers.precise_event,
            Register::PebsEnable => registers.pebs_enable(thread),
            Register::Matrix => registers.matrix,
            Register::Absent => return Err(GeneralProtection),
        })
    }

    pub(super) fn wrmsr(&mut self, msr: u32, value: u64, thread: usize) -> Result<(), GeneralProtection> {
        let register = self.register(msr).ok_or(GeneralProtection)?;
        if value & !allowed(register) != 0 || matches!(register, Register::Absent) {
            return Err(GeneralProtection);
        }
        self.store(register, value, thread);
        self.update_rules();
        Ok(())
    }

    fn store(&mut self, register: Register, value: u64, thread: usize) {
        match register {
            Register::Counter(index) => {
                let counter = &mut self.counters[index];
                counter.value = value & ((1 << BITS) - 1);
                // An armed counter stays armed; what its record's reload carries over starts here.
                counter.since_overflow = 0;
            }
            Register::Cccr(index) => {
                self.registers.cccr[index] = value;
                let counter = &mut self.counters[index];
                // A new event starts with no cycle half counted; who clears OVF has seen the overflow.
                counter.cycle = CycleState::default();
                for (waits, bit) in counter.interrupt_waits.iter_mut().zip(cccr::OVF_PMI) {
                    *waits &= value & cccr::OVF != 0 && value & bit != 0;
                }
            }
            Register::Escr(index) => self.registers.escr[index] = value,
            Register::PreciseEvent => self.registers.precise_event = value,
            Register::Matrix => self.registers.matrix = value,
            Register::PebsEnable => {
                self.registers.metrics = value & (pebs_enable::METRICS | pebs_enable::UOP_TAG);
                self.registers.pebs[thread] = value & pebs_enable::MY_THREAD != 0;
                self.registers.pebs[1 - thread] = value & pebs_enable::OTHER_THREAD != 0;
                self.disarm_disabled();
            }
            Register::Absent => {}
        }
    }

    /// PEBS has been disabled for some counters: if that disarms, those are no longer armed.
    fn disarm_disabled(&mut self) {
        for index in [16, 17] {
            if self.options.pebs_disable_disarms && self.pebs_thread(index).is_none() {
                self.counters[index].disarm();
            }
        }
    }

    /// `RDPMC` (SDM Vol. 2B): the counters are 0 to 17; bit 31 of ECX asks for a fast read of the low 32 bits.
    pub(super) fn rdpmc(&self, ecx: u32) -> Result<u64, GeneralProtection> {
        const FAST: u32 = 1 << 31;
        let index = (ecx & !FAST) as usize;
        if index >= COUNTERS {
            return Err(GeneralProtection);
        }
        let value = self.value(index);
        Ok(if ecx & FAST != 0 { value & 0xFFFF_FFFF } else { value })
    }
}

/// The bits of a register that are not reserved.
fn allowed(register: Register) -> u64 {
    match register {
        // "Enter a 2s complement negative integer" (18.15.2): bits 63:40 are not kept.
        Register::Counter(_) => u64::MAX,
        Register::Cccr(index) => {
            let extended = EXTENDED_CASCADES.iter().any(|&(into, _)| into == index);
            cccr::DEFINED | if extended { cccr::EXTENDED_CASCADE } else { 0 }
        }
        Register::Escr(_) => escr::DEFINED,
        Register::PreciseEvent => 0xFFFF_FFFF,
        Register::PebsEnable => {
            pebs_enable::METRICS | pebs_enable::UOP_TAG | pebs_enable::MY_THREAD | pebs_enable::OTHER_THREAD
        }
        Register::Matrix => matrix::DEFINED,
        Register::Absent => 0,
    }
}
