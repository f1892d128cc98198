//! The machine as the PMU model sees it at an instruction boundary.

use crate::here::Here;
use crate::pmi;
use vpmu::{Bus, PageFault, Registers};

/// The entry of the extended local vector table that the model's IBS_CTL names.
const IBS_ENTRY: usize = 0;

/// One settlement's view of the machine.
pub(crate) struct Boundary<'a> {
    pub(crate) here: &'a Here,
    pub(crate) registers: Registers,
    /// The model wants a PMI.
    pub(crate) pmi: bool,
    /// The model wants an interrupt of instruction-based sampling.
    ibs: bool,
    /// One moment: the record and the truth must say the same.
    tsc: u64,
}

impl<'a> Boundary<'a> {
    pub(crate) fn new(here: &'a Here, registers: Registers) -> Self {
        Self { here, registers, pmi: false, ibs: false, tsc: here.tsc() }
    }

    /// Raises the PMI that the model asked for, unless it is to come late; returns whether it is still to come.
    pub(crate) fn raise_pmi(&self, masks_lvtpc: bool) -> bool {
        let late = self.here.machine.args.skid > 0;
        if self.pmi && !late {
            pmi::deliver(self.here, masks_lvtpc);
        }
        self.pmi && late
    }

    /// Raises the interrupt of instruction-based sampling that the model asked for. It comes at once, whatever skid PMIs
    /// have: what was sampled is in registers.
    pub(crate) fn raise_ibs(&self) {
        if self.ibs {
            pmi::deliver_ibs(self.here, IBS_ENTRY);
        }
    }
}

impl Bus for Boundary<'_> {
    fn registers(&mut self) -> Registers {
        self.registers
    }

    fn xmm(&mut self) -> [[u64; 2]; 16] {
        self.here.xmm()
    }

    fn write_physical(&mut self, physical: u64, from: &[u8]) {
        // What QEMU refuses is not memory.
        let _ = self.here.write_physical(physical, from);
    }

    fn read(&mut self, linear: u64, into: &mut [u8]) -> Result<(), PageFault> {
        self.here.read(linear, into)
    }

    fn write(&mut self, linear: u64, from: &[u8]) -> Result<(), PageFault> {
        self.here.write(linear, from)
    }

    fn tsc(&mut self) -> u64 {
        self.tsc
    }

    fn pmi(&mut self) {
        self.pmi = true;
    }

    fn translate(&mut self, linear: u64) -> Option<u64> {
        self.here.translate(linear)
    }

    fn ibs(&mut self) {
        self.ibs = true;
    }
}
