//! A processor in miniature for the tests: one PMU, flat memory, and instructions that are only what they
//! count.

use std::collections::HashMap;
use vpmu::pmu::msr;
use vpmu::profile::{Perfmon, SKYLAKE};
use vpmu::{
    Bus, DataAccess, MicroEvents, Options, PageFault, Pmu, Privilege, Profile, Registers, Retired, Settlement,
};

pub(crate) const USR: u64 = 1 << 16;
pub(crate) const OS: u64 = 1 << 17;
pub(crate) const EDGE: u64 = 1 << 18;
pub(crate) const INT: u64 = 1 << 20;
pub(crate) const EN: u64 = 1 << 22;
pub(crate) const INV: u64 = 1 << 23;
pub(crate) const EQ: u64 = 1 << 36;

/// A counter's range.
pub(crate) const RANGE: u64 = 1 << 48;

/// Memory of which only some pages are mapped, and the rest of the machine.
pub(crate) struct TestBus {
    pages: HashMap<u64, Box<[u8; 4096]>>,
    pub(crate) registers: Registers,
    pub(crate) xmm: [[u64; 2]; 16],
    /// Physical memory, byte by byte, as far as it has been written.
    pub(crate) physical: HashMap<u64, u8>,
    pub(crate) tsc: u64,
    pub(crate) pmis: u32,
    /// Interrupts of instruction-based sampling.
    pub(crate) ibs: u32,
}

impl TestBus {
    pub(crate) fn map(&mut self, linear: u64, bytes: u64) {
        for page in linear >> 12..=(linear + bytes - 1) >> 12 {
            self.pages.entry(page).or_insert_with(|| Box::new([0; 4096]));
        }
    }

    pub(crate) fn unmap(&mut self, linear: u64) {
        self.pages.remove(&(linear >> 12));
    }

    fn byte(&mut self, linear: u64, write: bool) -> Result<&mut u8, PageFault> {
        let page = self.pages.get_mut(&(linear >> 12)).ok_or(PageFault { linear, write })?;
        Ok(&mut page[(linear & 0xFFF) as usize])
    }

    pub(crate) fn word(&mut self, linear: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(linear, &mut bytes).expect("mapped");
        u64::from_le_bytes(bytes)
    }

    pub(crate) fn set_word(&mut self, linear: u64, value: u64) {
        self.write(linear, &value.to_le_bytes()).expect("mapped");
    }
}

impl Bus for TestBus {
    fn registers(&mut self) -> Registers {
        self.registers
    }

    fn xmm(&mut self) -> [[u64; 2]; 16] {
        self.xmm
    }

    fn write_physical(&mut self, physical: u64, from: &[u8]) {
        self.physical.extend((physical..).zip(from.iter().copied()));
    }

    fn read(&mut self, linear: u64, into: &mut [u8]) -> Result<(), PageFault> {
        for (address, byte) in (linear..).zip(into) {
            *byte = *self.byte(address, false)?;
        }
        Ok(())
    }

    fn write(&mut self, linear: u64, from: &[u8]) -> Result<(), PageFault> {
        for (address, _) in (linear..).zip(from) {
            self.byte(address, true)?;
        }
        for (address, &byte) in (linear..).zip(from) {
            *self.byte(address, true)? = byte;
        }
        Ok(())
    }

    fn tsc(&mut self) -> u64 {
        self.tsc
    }

    fn pmi(&mut self) {
        self.pmis += 1;
    }

    fn translate(&mut self, linear: u64) -> Option<u64> {
        self.pages.contains_key(&(linear >> 12)).then(|| physical(linear))
    }

    fn ibs(&mut self) {
        self.ibs += 1;
    }
}

/// Where a linear address is in physical memory, if it is mapped.
pub(crate) fn physical(linear: u64) -> u64 {
    linear ^ 0x5_0000_0000
}

/// One instruction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Instruction {
    pub(crate) kernel: bool,
    pub(crate) load: Option<DataAccess>,
    pub(crate) store: Option<DataAccess>,
    pub(crate) branch: bool,
    pub(crate) locked: bool,
    pub(crate) micro: MicroEvents,
}

pub(crate) fn load(linear: u64) -> Instruction {
    Instruction { load: Some(DataAccess { linear, outcome: None }), ..Instruction::default() }
}

pub(crate) fn store(linear: u64) -> Instruction {
    Instruction { store: Some(DataAccess { linear, outcome: None }), ..Instruction::default() }
}

pub(crate) fn nop() -> Instruction {
    Instruction::default()
}

pub(crate) struct Machine {
    pub(crate) pmu: Pmu,
    pub(crate) bus: TestBus,
    pub(crate) pc: u64,
}

pub(crate) const DS_AREA: u64 = 0xFFFF_8880_0001_0000;
pub(crate) const BUFFER: u64 = 0xFFFF_8880_0020_0000;
pub(crate) const RECORD: u64 = 0xC8;

/// The facts of a profile with architectural performance monitoring.
pub(crate) fn perfmon(profile: &Profile) -> &'static Perfmon {
    profile.perfmon().unwrap_or_else(|| panic!("{} has another kind of PMU", profile.name))
}

impl Machine {
    pub(crate) fn new(options: Options) -> Self {
        Self::of(&SKYLAKE, options)
    }

    pub(crate) fn of(profile: &'static Profile, options: Options) -> Self {
        Self::with(Pmu::new(profile, options))
    }

    pub(crate) fn with(pmu: Pmu) -> Self {
        let bus = TestBus {
            pages: HashMap::new(),
            registers: Registers::default(),
            xmm: [[0; 2]; 16],
            physical: HashMap::new(),
            tsc: 0,
            pmis: 0,
            ibs: 0,
        };
        Self { pmu, bus, pc: 0x40_0000 }
    }

    pub(crate) fn wr(&mut self, msr: u32, value: u64) {
        self.pmu.wrmsr(msr, value).unwrap_or_else(|_| panic!("#GP on wrmsr {msr:#x} = {value:#x}"));
    }

    pub(crate) fn rd(&mut self, msr: u32) -> u64 {
        self.pmu.rdmsr(msr).unwrap_or_else(|_| panic!("#GP on rdmsr {msr:#x}"))
    }

    pub(crate) fn pmc(&mut self, index: u32) -> u64 {
        self.rd(msr::IA32_PMC0 + index)
    }

    /// Sets a general-purpose counter to 0 − `period`.
    pub(crate) fn set_period(&mut self, index: u32, period: u64) {
        self.wr(msr::IA32_A_PMC0 + index, (RANGE - period) % RANGE);
    }

    /// Sets up a DS area with room for `records` records and this threshold, and reset values of 0 −
    /// `period`.
    pub(crate) fn set_up_pebs(&mut self, records: u64, threshold: u64, period: u64) {
        self.bus.map(DS_AREA, 0x60);
        self.bus.map(BUFFER, records * RECORD);
        let area = [BUFFER, BUFFER, BUFFER + records * RECORD, BUFFER + threshold * RECORD];
        for (offset, value) in (0x20..).step_by(8).zip(area) {
            self.bus.set_word(DS_AREA + offset, value);
        }
        for counter in 0..4 {
            self.bus.set_word(DS_AREA + 0x40 + 8 * counter, (RANGE - period) % RANGE);
        }
        self.wr(msr::IA32_DS_AREA, DS_AREA);
    }

    /// How many records the index says there are.
    pub(crate) fn records(&mut self) -> u64 {
        (self.bus.word(DS_AREA + 0x28) - BUFFER) / RECORD
    }

    /// A word of record `index`.
    pub(crate) fn record(&mut self, index: u64, offset: u64) -> u64 {
        self.bus.word(BUFFER + index * RECORD + offset)
    }

    /// Executes one instruction, 4 bytes long.
    pub(crate) fn step(&mut self, instruction: Instruction) -> Option<Settlement> {
        let privilege = if instruction.kernel { Privilege::Kernel } else { Privilege::User };
        let mut delta = [[0; 2]; 4];
        let kinds = [true, instruction.load.is_some(), instruction.store.is_some(), instruction.branch];
        for (count, happened) in delta.iter_mut().zip(kinds) {
            count[privilege as usize] = u64::from(happened);
        }
        self.pmu.count(&instruction.micro, privilege);
        self.pmu.count_basic(&delta);
        self.bus.registers.rip = self.pc + 4;
        let retired = Retired {
            pc: self.pc,
            next_pc: self.pc + 4,
            privilege,
            load: instruction.load,
            store: instruction.store,
            locked: instruction.locked,
        };
        self.pc += 4;
        self.bus.tsc += 10;
        self.pmu.needs_settle().then(|| self.pmu.settle(&retired, &mut self.bus))
    }

    pub(crate) fn steps(&mut self, instruction: Instruction, n: u64) {
        for _ in 0..n {
            self.step(instruction);
        }
    }
}
