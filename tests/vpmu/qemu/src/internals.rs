//! The vCPU the current callback runs on: the only way from the rest of the plugin into QEMU.
//!
//! [`Here`] is made at the entry of each callback and dies with it. All of its methods run on the vCPU's own thread, inside
//! a callback that QEMU was told reads and writes registers, which is what the functions behind them ask for.

#![allow(unsafe_code, reason = "calls into QEMU")]

use crate::ffi::{Api, Apic, CpuState, CpuX86State, Exports, GArray, RegisterHandle};
use crate::machine::{Machine, Vcpu};
use crate::vcpu::Slots;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;
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

/// General registers in the order of their numbers. The other eight cannot be written in the 16-bit mode of reset.
const GPR_NAMES: [&CStr; 8] = [c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi"];

/// A start-up check that failed.
#[derive(Debug, Error)]
pub(crate) enum SelfCheck {
    #[error("QEMU's register list lacks `{0}`; the plugin needs qemu-system-x86_64")]
    NoRegister(String),
    #[error("the guest's registers were not found in QEMU's CPU state; this QEMU's layout is not known")]
    NoState,
    #[error(
        "register {0} is not where the others say it must be in QEMU's CPU state; this QEMU's layout is not known"
    )]
    Misplaced(String),
    #[error("QEMU's helper_read_eflags and register list disagree on RFLAGS: {0:#x} and {1:#x}")]
    Flags(u64, u64),
}

/// Handles of a vCPU, found once when it is initialised.
#[derive(Debug)]
pub(crate) struct Handles {
    cpu: NonNull<CpuState>,
    state: NonNull<CpuX86State>,
    rip: NonNull<RegisterHandle>,
    cs: NonNull<RegisterHandle>,
    cr0: NonNull<RegisterHandle>,
    cr3: NonNull<RegisterHandle>,
    cr4: NonNull<RegisterHandle>,
}

// SAFETY: the pointers are only followed through `Here`, on the vCPU's own thread (or, under -icount, the one thread that
// runs all vCPUs); the objects live as long as the vCPU.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

impl Handles {
    /// Finds the vCPU's registers, inside its initialisation callback.
    ///
    /// # Errors
    /// What is not as this crate expects it.
    pub(crate) fn find(api: &Api, exports: &Exports, cpu: NonNull<CpuState>) -> Result<Self, SelfCheck> {
        let named = |name: &CStr| {
            register(api, name).ok_or_else(|| SelfCheck::NoRegister(name.to_string_lossy().into_owned()))
        };
        let state = find_state(api, cpu, named(GPR_NAMES[0])?)?;
        for (number, name) in GPR_NAMES.iter().enumerate() {
            check_place(api, named(name)?, state, number)
                .map_err(|()| SelfCheck::Misplaced(name.to_string_lossy().into_owned()))?;
        }
        let listed = read_register(api, named(c"eflags")?);
        // SAFETY: `state` was just found to be this vCPU's.
        let computed = unsafe { (exports.helper_read_eflags)(state.as_ptr()) };
        if listed != computed {
            return Err(SelfCheck::Flags(computed, listed));
        }
        let [rip, cs] = [named(c"rip")?, named(c"cs")?];
        let [cr0, cr3, cr4] = [named(c"cr0")?, named(c"cr3")?, named(c"cr4")?];
        Ok(Self { cpu, state, rip, cs, cr0, cr3, cr4 })
    }
}

impl Handles {
    /// Whether this is the vCPU's `CPUState`.
    pub(crate) fn is(&self, cpu: *mut CpuState) -> bool {
        self.cpu.as_ptr() == cpu
    }
}

/// The handle of the register of this name.
fn register(api: &Api, name: &CStr) -> Option<NonNull<RegisterHandle>> {
    // SAFETY: called from the initialisation callback of a vCPU, as the function demands.
    let list = unsafe { (api.qemu_plugin_get_registers)() };
    let list = NonNull::new(list)?;
    // SAFETY: QEMU returned a valid array, which nobody else has.
    let array = unsafe { list.as_ref() };
    let descriptors = array.data.cast::<crate::ffi::RegisterDescriptor>();
    let mut found = None;
    for i in 0..array.len as usize {
        // SAFETY: the array has `len` descriptors.
        let descriptor = unsafe { &*descriptors.add(i) };
        // SAFETY: names are C strings that live as long as QEMU.
        if unsafe { CStr::from_ptr(descriptor.name) } == name {
            found = NonNull::new(descriptor.handle);
        }
    }
    // SAFETY: the caller frees the array.
    unsafe { (api.g_array_free)(list.as_ptr(), 1) };
    found
}

/// A GLib byte array of our own.
struct Bytes<'a> {
    api: &'a Api,
    array: NonNull<GArray>,
}

impl<'a> Bytes<'a> {
    fn new(api: &'a Api, content: &[u8]) -> Self {
        // Contents are registers and PEBS records: far below 4 GiB.
        let length = content.len() as u32;
        // SAFETY: plain constructor; GLib aborts rather than return null.
        let array = unsafe { (api.g_byte_array_sized_new)(length.max(8)) };
        // SAFETY: `array` is valid and `content` has `length` bytes.
        let array = unsafe { (api.g_byte_array_append)(array, content.as_ptr(), length) };
        // GLib never returns null; dangling would be caught by the self-check's first read.
        Self { api, array: NonNull::new(array).unwrap_or(NonNull::dangling()) }
    }

    fn content(&self) -> &[u8] {
        // SAFETY: the array is ours alone while borrowed.
        let array = unsafe { self.array.as_ref() };
        if array.len == 0 {
            return &[];
        }
        // SAFETY: GLib keeps `len` initialised bytes at `data`.
        unsafe { std::slice::from_raw_parts(array.data, array.len as usize) }
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        // SAFETY: the array is ours and not used again.
        unsafe { (self.api.g_byte_array_free)(self.array.as_ptr(), 1) };
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let length = bytes.len().min(8);
    word[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(word)
}

fn read_register(api: &Api, handle: NonNull<RegisterHandle>) -> u64 {
    let bytes = Bytes::new(api, &[]);
    // SAFETY: the handle is from this vCPU's list, the array is ours; see the module's documentation for the context.
    unsafe { (api.qemu_plugin_read_register)(handle.as_ptr(), bytes.array.as_ptr()) };
    little_endian(bytes.content())
}

fn write_register(api: &Api, handle: NonNull<RegisterHandle>, value: u64) {
    let bytes = Bytes::new(api, &value.to_le_bytes());
    // SAFETY: as for reading; general registers are 8 bytes long.
    unsafe { (api.qemu_plugin_write_register)(handle.as_ptr(), bytes.array.as_ptr()) };
}

/// Finds `CPUX86State` inside the CPU object: its first member is the array of general registers, so it is where a value
/// written to RAX appears, twice.
fn find_state(
    api: &Api,
    cpu: NonNull<CpuState>,
    rax: NonNull<RegisterHandle>,
) -> Result<NonNull<CpuX86State>, SelfCheck> {
    // SAFETY: CPU objects are heap allocations of their own.
    let bytes = unsafe { libc::malloc_usable_size(cpu.as_ptr().cast()) };
    let words = cpu.cast::<AtomicU64>();
    let original = read_register(api, rax);
    let shows = |word: usize, marker: u64| {
        write_register(api, rax, marker);
        // SAFETY: `word` is inside the allocation.
        let at = unsafe { words.add(word) };
        // SAFETY: QEMU zeroes the object, so the word is initialised; other threads do not change registers now.
        unsafe { at.as_ref() }.load(Ordering::Relaxed) == marker
    };
    const MARKERS: [u64; 2] = [0x5a17_c0de, 0x3e37_79b9];
    let found = (0..bytes / 8).find(|&word| MARKERS.iter().all(|&marker| shows(word, marker)));
    write_register(api, rax, original);
    // SAFETY: as above.
    found.map(|word| unsafe { words.add(word) }.cast()).ok_or(SelfCheck::NoState)
}

/// Checks that general register `number` is the state's `number`-th word.
fn check_place(
    api: &Api,
    handle: NonNull<RegisterHandle>,
    state: NonNull<CpuX86State>,
    number: usize,
) -> Result<(), ()> {
    let original = read_register(api, handle);
    let marker = !original & 0xffff_ffff;
    write_register(api, handle, marker);
    // SAFETY: the CPU state is far larger than 16 words.
    let at = unsafe { state.cast::<AtomicU64>().add(number) };
    // SAFETY: initialised, and written only by this thread.
    let seen = unsafe { at.as_ref() }.load(Ordering::Relaxed);
    write_register(api, handle, original);
    if seen == marker { Ok(()) } else { Err(()) }
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

    pub(crate) fn cr3(&self) -> u64 {
        read_register(self.api(), self.vcpu.handles.cr3)
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

    /// Writes a 32-bit device register of the physical address space.
    pub(crate) fn write_physical(&self, physical: u64, value: u32) -> bool {
        let bytes = Bytes::new(self.api(), &value.to_le_bytes());
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

/// The local APIC of the vCPU whose callback is running.
pub(crate) struct LocalApic<'a> {
    exports: &'a Exports,
    apic: NonNull<Apic>,
}

impl LocalApic<'_> {
    /// Physical address of the registers in xAPIC mode.
    pub(crate) fn base(&self) -> u64 {
        // SAFETY: the APIC is this vCPU's.
        let base = unsafe { (self.exports.cpu_get_apic_base)(self.apic.as_ptr()) };
        base & !(PAGE - 1)
    }

    /// Whether the registers are MSRs (SDM Vol. 3A 10.12).
    pub(crate) fn is_x2apic(&self) -> bool {
        // SAFETY: the APIC is this vCPU's.
        unsafe { (self.exports.is_x2apic_mode)(self.apic.as_ptr()) }
    }

    /// Reads x2APIC register `index` (MSR 0x800 + `index`).
    pub(crate) fn read(&self, index: c_int) -> Option<u64> {
        let mut value = 0;
        let status = self.locked(|exports, apic| {
            // SAFETY: the APIC is this vCPU's and the big lock is held.
            unsafe { (exports.apic_msr_read)(apic, index, &mut value) }
        });
        (status == 0).then_some(value)
    }

    /// Writes x2APIC register `index`.
    pub(crate) fn write(&self, index: c_int, value: u64) {
        self.locked(|exports, apic| {
            // SAFETY: as for reading.
            unsafe { (exports.apic_msr_write)(apic, index, value) }
        });
    }

    /// Runs `action` with QEMU's big lock held, which guards devices.
    fn locked(&self, action: impl FnOnce(&Exports, *mut Apic) -> c_int) -> c_int {
        // SAFETY: asks about this thread.
        let held = unsafe { (self.exports.bql_locked)() };
        if !held {
            // SAFETY: not held, so this cannot deadlock with ourselves.
            unsafe { (self.exports.bql_lock_impl)(c"vpmu".as_ptr(), 0) };
        }
        let status = action(self.exports, self.apic.as_ptr());
        if !held {
            // SAFETY: taken above.
            unsafe { (self.exports.bql_unlock)() };
        }
        status
    }
}
