//! The functions that QEMU calls.
//!
//! A panic cannot unwind out of an `extern "C"` function: it prints its message and aborts the program. Callbacks that may end
//! with [`Leave::Resume`] have an outer function without anything to drop, because QEMU leaves them by longjmp.

#![allow(unsafe_code, reason = "called by QEMU, with its pointers")]

use crate::boundary;
use crate::decode::Insn;
use crate::ffi::{CpuState, TranslationBlock, discon};
use crate::here::{Here, Leave};
use crate::internals::Handles;
use crate::machine::Machine;
use crate::memory::{self, Access};
use crate::{eilvt, ffi, msr, pcrel, report, translate};
use std::arch::naked_asm;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;

/// # Safety
/// As for [`Here::new`].
unsafe fn here(index: c_uint, return_address: usize) -> Option<Here> {
    let machine = Machine::get()?;
    let vcpu = machine.vcpu(index)?;
    // SAFETY: the caller's promise.
    Some(unsafe { Here::new(machine, vcpu, return_address) })
}

/// # Safety
/// `data` is the address of an instruction that [`Machine::keep`] keeps: what `translate` registers with callbacks.
unsafe fn insn<'a>(data: *mut c_void) -> &'a Insn {
    // SAFETY: kept until QEMU has thrown the calling block away.
    unsafe { &*data.cast::<Insn>() }
}

/// Makes a callback pass on, as third argument, the host address it returns to, which tells QEMU the instruction.
macro_rules! with_return_address {
    ($(#[$doc:meta])* $name:ident => $outer:ident) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name(index: c_uint, data: *mut c_void) {
            naked_asm!("mov rdx, [rsp]", "jmp {outer}", outer = sym $outer)
        }
    };
}

with_return_address! {
    /// A boundary that asks for attention or at which a tally is exhausted.
    at_boundary => at_boundary_from
}
with_return_address! {
    /// An instruction that the plugin executes.
    at_special => at_special_from
}

unsafe extern "C" fn at_boundary_from(index: c_uint, data: *mut c_void, return_address: usize) {
    // SAFETY: QEMU calls `at_boundary` in the vCPU's thread; see there for the address.
    let Some(here) = (unsafe { here(index, return_address) }) else { return };
    // SAFETY: registered with an instruction.
    let how = boundary::reached(&here, unsafe { insn(data) });
    here.leave(how);
}

unsafe extern "C" fn at_special_from(index: c_uint, data: *mut c_void, return_address: usize) {
    // SAFETY: as for boundaries.
    let Some(here) = (unsafe { here(index, return_address) }) else { return };
    // SAFETY: registered with an instruction.
    let insn = unsafe { insn(data) };
    let how = insn.special.map_or(Leave::Continue, |special| msr::execute(&here, insn, special));
    here.leave(how);
}

/// Before a repeated string instruction.
pub(crate) unsafe extern "C" fn at_repetition(index: c_uint, data: *mut c_void) {
    // SAFETY: called in the vCPU's thread; nothing here needs the return address.
    let Some(here) = (unsafe { here(index, 0) }) else { return };
    // SAFETY: registered with an instruction.
    boundary::repeated(&here, unsafe { insn(data) });
}

/// Before each instruction, at level `Microarchitecture`.
pub(crate) unsafe extern "C" fn at_step(index: c_uint, data: *mut c_void) {
    // SAFETY: as above.
    let Some(here) = (unsafe { here(index, 0) }) else { return };
    // SAFETY: registered with an instruction.
    memory::step(&here, unsafe { insn(data) });
}

fn access(machine: &Machine, info: u32, linear: u64) -> Access {
    let api = &machine.api;
    // SAFETY: `info` is what QEMU passed to the running callback.
    let place = unsafe { (api.qemu_plugin_get_hwaddr)(info, linear) };
    let physical = NonNull::new(place).and_then(|place| {
        // SAFETY: valid for the duration of the callback.
        let device = unsafe { (api.qemu_plugin_hwaddr_is_io)(place.as_ptr()) };
        // SAFETY: as above.
        (!device).then(|| unsafe { (api.qemu_plugin_hwaddr_phys_addr)(place.as_ptr()) })
    });
    // SAFETY: as above.
    let shift = unsafe { (api.qemu_plugin_mem_size_shift)(info) };
    Access { linear, physical, size: 1 << shift.min(7), store: is_store(machine, info) }
}

fn is_store(machine: &Machine, info: u32) -> bool {
    // SAFETY: `info` is what QEMU passed to the running callback.
    unsafe { (machine.api.qemu_plugin_mem_is_store)(info) }
}

/// A data access, at level `DataAddresses`.
pub(crate) unsafe extern "C" fn at_address(index: c_uint, info: u32, linear: u64, data: *mut c_void) {
    let Some(machine) = Machine::get() else { return };
    // SAFETY: registered with an instruction.
    let insn = unsafe { insn(data) };
    machine.slots(index).set_address(insn, is_store(machine, info), linear);
}

/// A data access, at level `Microarchitecture`.
pub(crate) unsafe extern "C" fn at_access(index: c_uint, info: u32, linear: u64, data: *mut c_void) {
    // SAFETY: called in the vCPU's thread; nothing here needs the return address.
    let Some(here) = (unsafe { here(index, 0) }) else { return };
    // SAFETY: registered with an instruction.
    memory::access(&here, unsafe { insn(data) }, access(here.machine, info, linear));
}

/// A block is being translated.
pub(crate) unsafe extern "C" fn at_translation(block: *mut TranslationBlock, _data: *mut c_void) {
    let Some(machine) = Machine::get() else { return };
    let Ok(current) = ffi::current_cpu() else { return };
    // SAFETY: this thread's own variable.
    let cpu = unsafe { *current };
    let Some(vcpu) = machine.vcpus().find(|vcpu| vcpu.handles.is(cpu)) else { return };
    // SAFETY: translation runs on the vCPU's thread, outside of translated code.
    let here = unsafe { Here::new(machine, vcpu, 0) };
    translate::block(&here, block);
}

/// An exception was raised, or an interrupt or exception delivered.
pub(crate) unsafe extern "C" fn at_discontinuity(
    index: c_uint,
    kind: c_int,
    from: u64,
    to: u64,
    _data: *mut c_void,
) {
    // SAFETY: called in the vCPU's thread, outside of translated code.
    let Some(here) = (unsafe { here(index, 0) }) else { return };
    // On x86, QEMU 11.1 reports an exception when it is raised, with a program counter that may be the block's, and once more as
    // an interrupt when it is delivered.
    if kind == discon::EXCEPTION {
        boundary::raised(&here);
    } else {
        boundary::delivered(&here, from, to);
    }
}

/// A settlement that waited for the end of its block. `index` is the vCPU's.
pub(crate) unsafe extern "C" fn run_deferred(cpu: *mut CpuState, index: *mut c_void) {
    let Ok(current) = ffi::current_cpu() else { return };
    // Under -icount one thread runs all vCPUs, and the current one may be another.
    // SAFETY: this thread's own variable; QEMU's memory functions ask it which vCPU is meant.
    let before = unsafe { std::ptr::replace(current, cpu) };
    // SAFETY: called in the vCPU's thread, between blocks.
    if let Some(here) = unsafe { here(index.addr() as c_uint, 0) } {
        boundary::settle_deferred(&here);
    }
    // SAFETY: as above.
    unsafe { *current = before };
}

/// A vCPU has been initialised.
pub(crate) unsafe extern "C" fn at_vcpu_init(index: c_uint, _data: *mut c_void) {
    let Some(machine) = Machine::get() else { return };
    if let Err(message) = init_vcpu(machine, index) {
        eprintln!("vpmu: {message}");
        // SAFETY: leaves at once: nothing has run that would need cleaning up, and QEMU's exit handlers would wait for us.
        unsafe { libc::_exit(1) }
    }
}

fn init_vcpu(machine: &'static Machine, index: u32) -> Result<(), String> {
    let current = ffi::current_cpu().map_err(|error| error.to_string())?;
    // SAFETY: this thread's own variable.
    let cpu = NonNull::new(unsafe { *current }).ok_or("QEMU initialised a vCPU outside of its thread")?;
    let handles = Handles::find(&machine.api, &machine.exports, cpu).map_err(|error| error.to_string())?;
    pcrel::switch_off(&machine.exports, cpu).map_err(|error| error.to_string())?;
    // SAFETY: an int, set before any vCPU exists.
    machine.icount.get_or_init(|| unsafe { *machine.exports.use_icount != 0 });
    if machine.add_vcpu(index, handles) {
        // vCPUs are initialised one after another with the big lock held, the first before any instruction.
        if index == 0 && machine.args.profile.amd().is_some_and(|facts| facts.ibs != 0) {
            eilvt::install(&machine.exports);
        }
        Ok(())
    } else {
        Err(format!("vCPU {index} exists already or is one too many (at most {})", crate::machine::MAX_VCPUS))
    }
}

/// QEMU has thrown all translated code away.
pub(crate) unsafe extern "C" fn at_flush(_data: *mut c_void) {
    if let Some(machine) = Machine::get() {
        machine.forget_translations();
    }
}

/// QEMU ends.
pub(crate) unsafe extern "C" fn at_exit(_data: *mut c_void) {
    if let Some(machine) = Machine::get() {
        report::write(machine, None);
    }
}
