//! The vCPU the current callback runs on: the only way from the rest of the plugin into QEMU.
//!
//! [`Here`] is made at the entry of each callback and dies with it. All of its methods run on the vCPU's own thread, inside
//! a callback that QEMU was told reads and writes registers, which is what the functions behind them ask for.

#![allow(unsafe_code, reason = "calls into QEMU")]

use crate::apic::LocalApic;
use crate::ffi::{Api, CpuState, CpuX86State, Exports};
use crate::machine::{Machine, Vcpu};
use crate::registers::{Bytes, little_endian, read_register, read_wide_register, register_if_readable};
use crate::vcpu::Slots;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use vpmu::{CpuidRegs, PageFault, Registers};

/// Bytes of a small page.
const PAGE: u64 = 4096;
/// IA32_MISC_ENABLE.
const IA32_MISC_ENABLE: u32 = 0x1a0;
/// Vector of the general-protection fault.
const GENERAL_PROTECTION: c_int = 13;

/// General registers by number, SDM Vol. 2A table 3-1.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Gpr {
    Rax = 0,
    Rcx = 1,
    Rdx = 2,
    Rbx = 3,
    Rsp = 4,
}

/// How a callback ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Leave {
    /// Execution goes on where it was.
    Continue,
    /// Execution goes on with the instruction of the callback (0) or so many bytes behind it, in a new block: pending interrupts
    /// are taken first.
    Resume(u8),
    /// The instruction raises #GP(0).
    GeneralProtection,
}

/// The vCPU whose callback is running.
pub(crate) struct Here {
    pub(crate) machine: &'static Machine,
    pub(crate) vcpu: &'static Vcpu,
    /// Host address inside the translated block to which the callback returns; 0 outside of blocks.
    return_address: usize,
    restored: Cell<bool>,
}

impl Here {
    /// # Safety
    /// The caller runs in a callback of vCPU `vcpu`, on its thread; `return_address` is where that callback returns to in
    /// translated code, or 0 if it was not called from there.
    pub(crate) unsafe fn new(machine: &'static Machine, vcpu: &'static Vcpu, return_address: usize) -> Self {
        Self { machine, vcpu, return_address, restored: Cell::new(return_address == 0) }
    }

    fn api(&self) -> &'static Api {
        &self.machine.api
    }

    fn exports(&self) -> &'static Exports {
        &self.machine.exports
    }

    fn state(&self) -> *mut CpuX86State {
        self.vcpu.handles.state.as_ptr()
    }

    pub(crate) fn cpu(&self) -> *mut CpuState {
        self.vcpu.handles.cpu.as_ptr()
    }

    /// The vCPU's scoreboard entry.
    pub(crate) fn slots(&self) -> &Slots {
        self.machine.slots(self.vcpu.index)
    }

    fn general_register(&self, number: u8) -> &AtomicU64 {
        // SAFETY: the self-check found the registers there, and callers pass numbers below 16.
        let at = unsafe { self.vcpu.handles.state.cast::<AtomicU64>().add(usize::from(number & 15)) };
        // SAFETY: initialised; written only by this thread.
        unsafe { at.as_ref() }
    }

    /// General register `number`, in encoding order.
    pub(crate) fn gpr_by_number(&self, number: u8) -> u64 {
        self.general_register(number).load(Ordering::Relaxed)
    }

    pub(crate) fn gpr(&self, register: Gpr) -> u64 {
        self.gpr_by_number(register as u8)
    }

    pub(crate) fn set_gpr(&self, register: Gpr, value: u64) {
        self.general_register(register as u8).store(value, Ordering::Relaxed);
    }

    /// `None` where the callback may not read it.
    pub(crate) fn cr3(&self) -> Option<u64> {
        register_if_readable(self.api(), self.vcpu.handles.cr3)
    }

    pub(crate) fn cr4(&self) -> u64 {
        read_register(self.api(), self.vcpu.handles.cr4)
    }

    /// The current privilege level: 0 to 3.
    pub(crate) fn cpl(&self) -> u64 {
        const PE: u64 = 1;
        if read_register(self.api(), self.vcpu.handles.cr0) & PE == 0 {
            return 0;
        }
        read_register(self.api(), self.vcpu.handles.cs) & 3
    }

    /// Brings the guest state that translated code keeps lazily (RFLAGS) up to the boundary before the current instruction.
    /// The callback must then end with [`Leave::Resume`] or [`Leave::GeneralProtection`].
    pub(crate) fn restore(&self) {
        if !self.restored.replace(true) {
            // SAFETY: the return address is this block's, by the constructor's contract.
            unsafe { (self.exports().cpu_restore_state)(self.cpu(), self.return_address) };
        }
    }

    /// All registers at the boundary before `rip`. Calls [`Here::restore`].
    pub(crate) fn registers(&self, rip: u64) -> Registers {
        self.restore();
        let mut general = [0; 16];
        for (number, value) in (0..).zip(&mut general) {
            *value = self.gpr_by_number(number);
        }
        // SAFETY: the state is this vCPU's and has been restored.
        let rflags = unsafe { (self.exports().helper_read_eflags)(self.state()) };
        Registers { general, rip, rflags }
    }

    /// XMM0 to XMM15, as halves.
    pub(crate) fn xmm(&self) -> [[u64; 2]; 16] {
        self.vcpu.handles.xmm.map(|handle| read_wide_register(self.api(), handle))
    }

    /// The time-stamp counter as `RDTSC` would return it. Under -icount only between two blocks.
    pub(crate) fn tsc(&self) -> u64 {
        // SAFETY: the state is this vCPU's.
        unsafe { (self.exports().cpu_get_tsc)(self.state()) }
    }

    /// QEMU's own answer to `CPUID`.
    pub(crate) fn cpuid(&self, leaf: u32, subleaf: u32) -> CpuidRegs {
        let mut regs = CpuidRegs::default();
        let CpuidRegs { eax, ebx, ecx, edx } = &mut regs;
        // SAFETY: the state is this vCPU's, the results are four distinct words.
        unsafe { (self.exports().cpu_x86_cpuid)(self.state(), leaf, subleaf, eax, ebx, ecx, edx) };
        regs
    }

    /// QEMU's own IA32_MISC_ENABLE. Overwrites RAX and RDX, and expects the register's number in RCX, as `RDMSR` does.
    pub(crate) fn read_misc_enable(&self) -> u64 {
        debug_assert_eq!(self.gpr(Gpr::Rcx) as u32, IA32_MISC_ENABLE);
        // SAFETY: the state is this vCPU's; RCX names a register that QEMU reads without a fault, so it returns.
        unsafe { (self.exports().helper_rdmsr)(self.state()) };
        self.gpr(Gpr::Rdx) << 32 | (self.gpr(Gpr::Rax) & 0xffff_ffff)
    }

    /// Physical address of `linear` through the current CR3, if it is mapped.
    pub(crate) fn translate(&self, linear: u64) -> Option<u64> {
        let mut physical = 0;
        // SAFETY: called on the vCPU's thread; the result is a word of ours.
        unsafe { (self.api().qemu_plugin_translate_vaddr)(linear, &mut physical) }.then_some(physical)
    }

    /// The first byte of `linear..linear + length` that is not mapped.
    fn first_unmapped(&self, linear: u64, length: usize) -> Option<u64> {
        let last = linear.saturating_add(length.saturating_sub(1) as u64);
        (linear / PAGE..=last / PAGE)
            .map(|page| linear.max(page * PAGE))
            .find(|&at| self.translate(at).is_none())
    }

    /// Reads guest memory through the current CR3.
    pub(crate) fn read(&self, linear: u64, into: &mut [u8]) -> Result<(), PageFault> {
        let bytes = Bytes::new(self.api(), &[]);
        // SAFETY: the array is ours; called on the vCPU's thread.
        let done =
            unsafe { (self.api().qemu_plugin_read_memory_vaddr)(linear, bytes.array.as_ptr(), into.len()) };
        if done && bytes.content().len() == into.len() {
            into.copy_from_slice(bytes.content());
            return Ok(());
        }
        let linear = self.first_unmapped(linear, into.len()).unwrap_or(linear);
        Err(PageFault { linear, write: false })
    }

    /// Writes guest memory through the current CR3, wholly or not at all.
    pub(crate) fn write(&self, linear: u64, from: &[u8]) -> Result<(), PageFault> {
        if let Some(linear) = self.first_unmapped(linear, from.len()) {
            return Err(PageFault { linear, write: true });
        }
        let bytes = Bytes::new(self.api(), from);
        // SAFETY: the array is ours; called on the vCPU's thread.
        let done = unsafe { (self.api().qemu_plugin_write_memory_vaddr)(linear, bytes.array.as_ptr()) };
        if done { Ok(()) } else { Err(PageFault { linear, write: true }) }
    }

    /// Reads a 32-bit device register of the physical address space.
    pub(crate) fn read_physical(&self, physical: u64) -> Option<u32> {
        let bytes = Bytes::new(self.api(), &[]);
        // SAFETY: the array is ours; called on the vCPU's thread.
        let status =
            unsafe { (self.api().qemu_plugin_read_memory_hwaddr)(physical, bytes.array.as_ptr(), 4) };
        // A register read has 32 bits.
        (status == 0).then(|| little_endian(bytes.content()) as u32)
    }

    /// Writes to the physical address space: a 32-bit device register, or memory.
    pub(crate) fn write_physical(&self, physical: u64, from: &[u8]) -> bool {
        let bytes = Bytes::new(self.api(), from);
        // SAFETY: the array is ours; called on the vCPU's thread.
        unsafe { (self.api().qemu_plugin_write_memory_hwaddr)(physical, bytes.array.as_ptr()) == 0 }
    }

    /// The local APIC, if the vCPU has one.
    pub(crate) fn apic(&self) -> Option<LocalApic<'_>> {
        // SAFETY: called on the vCPU's thread.
        let apic = unsafe { (self.exports().cpu_get_current_apic)() };
        NonNull::new(apic).map(|apic| LocalApic { exports: self.exports(), apic })
    }

    /// Has all translated code thrown away before any vCPU executes another instruction. The callback should leave its block.
    pub(crate) fn flush_translations(&self) {
        // SAFETY: the CPU is valid; the work is queued, not done here.
        unsafe { (self.exports().queue_tb_flush)(self.cpu()) };
    }

    /// Has `work` run on this vCPU's thread between two blocks, before its next instruction.
    pub(crate) fn after_this_block(&self, work: crate::ffi::CpuWork) {
        let index = ptr::without_provenance_mut::<c_void>(self.vcpu.index as usize);
        // SAFETY: the CPU is valid; `work` takes a vCPU index for its argument.
        unsafe { (self.exports().async_run_on_cpu)(self.cpu(), work, index) };
    }

    /// Ends a callback. Nothing that needs dropping may be alive in the frames above: `Resume` and `GeneralProtection` leave
    /// by longjmp.
    pub(crate) fn leave(self, how: Leave) {
        match how {
            Leave::Continue => debug_assert!(!self.restored.get() || self.return_address == 0),
            Leave::Resume(bytes) => {
                self.restore();
                // Not the instruction's linear address: the code segment may have a base.
                let pc = read_register(self.api(), self.vcpu.handles.rip).wrapping_add(u64::from(bytes));
                // SAFETY: the callback was registered with RW_REGS_PC; see this function's contract for the longjmp.
                unsafe { (self.api().qemu_plugin_set_pc)(pc) }
            }
            Leave::GeneralProtection => {
                self.restore();
                // SAFETY: as above; 0 says that the state is already restored.
                unsafe { (self.exports().raise_exception_err_ra)(self.state(), GENERAL_PROTECTION, 0, 0) }
            }
        }
    }
}
