//! Counts what an engine call costs in register accesses.

use super::interrupt::Registers;
use super::port::Port;
use super::session::CpuTotals;

/// A port that counts.
pub(super) struct Meter<'a, P> {
    port: &'a mut P,
    reads: u64,
    writes: u64,
}

impl<'a, P: Port> Meter<'a, P> {
    pub(super) fn new(port: &'a mut P) -> Self {
        Self { port, reads: 0, writes: 0 }
    }

    /// Adds what was counted to a session's sums.
    pub(super) fn charge(self, totals: &mut CpuTotals) {
        totals.msr_reads += self.reads;
        totals.msr_writes += self.writes;
    }
}

impl<P: Port> Port for Meter<'_, P> {
    fn rdmsr(&mut self, register: u32) -> u64 {
        self.reads += 1;
        self.port.rdmsr(register)
    }

    fn wrmsr(&mut self, register: u32, value: u64) {
        self.writes += 1;
        self.port.wrmsr(register, value);
    }

    fn rdpmc(&mut self, index: u32) -> u64 {
        self.reads += 1;
        self.port.rdpmc(index)
    }

    fn rdtsc(&mut self) -> u64 {
        self.port.rdtsc()
    }

    fn unmask_pmi(&mut self) {
        self.port.unmask_pmi();
    }

    fn pmi_is_masked(&mut self) -> bool {
        self.port.pmi_is_masked()
    }

    fn sibling_is_held(&mut self) -> bool {
        self.port.sibling_is_held()
    }

    fn expect_pmi(&mut self, until_tsc: u64) {
        self.port.expect_pmi(until_tsc);
    }

    fn expected_pmi(&mut self) -> u64 {
        self.port.expected_pmi()
    }

    fn registers(&mut self, user_only: bool) -> Option<Registers> {
        self.port.registers(user_only)
    }

    fn ds_area(&mut self) -> u64 {
        self.port.ds_area()
    }

    fn ds_read(&mut self, offset: u32) -> u64 {
        self.port.ds_read(offset)
    }

    fn ds_write(&mut self, offset: u32, value: u64) {
        self.port.ds_write(offset, value);
    }

    fn pebs_window(&mut self) -> u64 {
        self.port.pebs_window()
    }

    fn pebs_read(&mut self, offset: u32) -> u64 {
        self.port.pebs_read(offset)
    }
}
