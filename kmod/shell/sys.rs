// SPDX-License-Identifier: GPL-2.0
//! The C shim (`shim.h`) as Rust sees it, and safe wrappers of what has no precondition.

use core::arch::asm;
use core::ptr::NonNull;

use kernel::bindings;
use kernel::error::to_result;
use kernel::prelude::*;

use super::entry_area::Cea;
use super::interrupts::LocalInterruptDisabled;
use crate::hpm_core::interrupt::Registers;
use crate::hpm_core::reports::Mapping;

#[expect(
    improper_ctypes,
    reason = "the kernel's own structures hold empty ones; only pointers to them pass here"
)]
extern "C" {
    fn hpm_interrupts_save() -> usize;
    fn hpm_interrupts_restore(flags: usize);
    #[cfg(CONFIG_PROVE_LOCKING)]
    fn hpm_interrupts_assert_off();
    fn hpm_timer_setup(timer: *mut bindings::hrtimer);
    fn hpm_timer_go_on(timer: *mut bindings::hrtimer, soonest_ns: u64, range_ns: u64);
    fn hpm_rdmsr(msr: u32, value: *mut u64) -> c_int;
    fn hpm_wrmsr(msr: u32, value: u64) -> c_int;
    fn hpm_rdpmc(counter: u32) -> u64;
    fn hpm_lvtpc_read() -> u32;
    fn hpm_lvtpc_write(value: u32);
    fn hpm_sibling(cpu: u32) -> u32;
    fn hpm_eilvt_read(number: u32) -> u32;
    fn hpm_reserve_perfctr(msr: u32) -> c_int;
    fn hpm_release_perfctr(msr: u32);
    fn hpm_perf_is_out() -> bool;
    fn hpm_perf_is_mediated() -> bool;
    fn hpm_find_perf() -> c_int;
    fn hpm_divert_perf();
    fn hpm_restore_perf();
    fn hpm_hold_perf();
    fn hpm_release_perf(starts: u32);
    fn hpm_reserve_evntsel(msr: u32) -> c_int;
    fn hpm_release_evntsel(msr: u32);
    fn hpm_cpu_has_pti() -> bool;
    fn hpm_cpu_has_pebs() -> bool;
    fn hpm_cpu_microcode() -> u32;
    fn hpm_follow_sleep(device: *mut bindings::device);
    fn hpm_ignore_sleep(device: *mut bindings::device);
    pub(super) fn hpm_register_reboot(block: *mut bindings::notifier_block) -> c_int;
    pub(super) fn hpm_unregister_reboot(block: *mut bindings::notifier_block) -> c_int;
    fn hpm_perfmon_capable() -> bool;
    fn hpm_allow_kernel() -> c_int;
    fn hpm_allow_cpu() -> c_int;
    fn hpm_locked_down(what: bindings::lockdown_reason) -> c_int;
    fn hpm_environ_mm(file: *mut bindings::file) -> *mut bindings::mm_struct;
    fn hpm_cgroup_get(fd: c_int) -> *mut bindings::cgroup;
    fn hpm_cgroup_put(cgroup: *mut bindings::cgroup);
    fn hpm_cgroup_has_task(cgroup: *mut bindings::cgroup, task: *mut bindings::task_struct) -> bool;
    fn hpm_cgroup_encloses(cgroup: *mut bindings::cgroup, other: *mut bindings::cgroup) -> bool;
    fn hpm_registers(regs: *mut bindings::pt_regs, user_only: bool, to: *mut u64) -> bool;
    fn hpm_user_ip(task: *mut bindings::task_struct) -> u64;
    pub(super) fn hpm_block_alloc(bytes: usize, insist: bool) -> *mut c_void;
    fn hpm_page_of(address: *mut c_void) -> *mut bindings::page;
    fn hpm_physical(address: *mut c_void) -> u64;
    pub(super) fn hpm_cea_find(cpu: c_uint, cea: *mut Cea) -> c_int;
    pub(super) fn hpm_cea_map(cea: *const Cea, block: *mut c_void, pages: u32);
    pub(super) fn hpm_cea_unmap(cea: *const Cea, from: u32, to: u32);
    fn hpm_page_mapped(page: *mut bindings::page) -> bool;
    fn hpm_find_thread(nr: c_int, tgid: *mut u32, tid: *mut u32) -> bool;
    fn hpm_cpu_of(tid: u32, running: bool) -> c_int;
    fn hpm_rdpmc_allow(is_new: *mut bool) -> *const bindings::mm_struct;
    fn hpm_rdpmc_loaded(mm: *const bindings::mm_struct) -> bool;
    fn hpm_rdpmc_lacking(mm: *const bindings::mm_struct) -> bool;
    fn hpm_rdpmc_may(task: *const bindings::task_struct) -> bool;
    fn hpm_load_another_mm(cpu: c_uint);
    fn hpm_zero_leftovers(cpu: c_uint);
    fn hpm_zero_leftovers_here();
    fn hpm_nmi_register() -> c_int;
    fn hpm_nmi_unregister();
    fn hpm_probes_find() -> c_int;
    fn hpm_probes_register() -> c_int;
    fn hpm_probes_unregister();
    fn hpm_guests_follow() -> c_int;
    fn hpm_guests_forget();
    fn hpm_guests_register() -> c_int;
    fn hpm_guests_unregister();
    fn hpm_guests_are_untold() -> bool;
    fn hpm_raw_ns() -> u64;
    fn hpm_reports_begin() -> c_int;
    fn hpm_map_once() -> c_int;
    fn hpm_becomes_closed() -> bool;
    fn hpm_reports_end();
    fn hpm_describe(
        area: *mut bindings::vm_area_struct,
        mapping: *mut Mapping,
        buffer: *mut c_char,
        bytes: usize,
    ) -> *const c_char;
}

/// Switches interrupts off on this CPU; what [`restore_interrupts`] puts back.
pub(super) fn save_interrupts() -> usize {
    // SAFETY: May be called in any context.
    unsafe { hpm_interrupts_save() }
}

/// Puts back what [`save_interrupts`] found.
///
/// # Safety
/// `flags` came from it on this CPU, and interrupts have been off since.
pub(super) unsafe fn restore_interrupts(flags: usize) {
    // SAFETY: The caller's promise.
    unsafe { hpm_interrupts_restore(flags) };
}

/// Has the kernel warn if interrupts are on.
#[cfg(CONFIG_PROVE_LOCKING)]
pub(super) fn assert_interrupts_off() {
    // SAFETY: May be called in any context.
    unsafe { hpm_interrupts_assert_off() };
}

/// Sets up a timer that expires in a hard interrupt of the CPU that started it; calls come to `hpm_on_timer`.
///
/// # Safety
/// The timer is not in use, and does not move from now on.
pub(super) unsafe fn set_up_timer(timer: *mut bindings::hrtimer) {
    // SAFETY: The caller's promise.
    unsafe { hpm_timer_setup(timer) };
}

/// Has a timer whose callback runs expire again, so many ns from now at the soonest and `range_ns` later at the latest. The callback
/// must return that it goes on.
///
/// # Safety
/// [`set_up_timer`] has set it up, and its callback runs on this CPU.
pub(super) unsafe fn go_on_with_timer(timer: *mut bindings::hrtimer, soonest_ns: u64, range_ns: u64) {
    // SAFETY: The caller's promise.
    unsafe { hpm_timer_go_on(timer, soonest_ns, range_ns) };
}

/// RDMSR; `None` when it faults.
pub(super) fn rdmsr(msr: u32) -> Option<u64> {
    let mut value = 0;
    // SAFETY: `value` is writable; a fault is caught.
    let failed = unsafe { hpm_rdmsr(msr, &mut value) };
    (failed == 0).then_some(value)
}

/// WRMSR; `false` when it faults.
///
/// # Safety
/// The register belongs to the PMU and hpm holds it, so that no other part of the kernel relies on its value.
pub(super) unsafe fn wrmsr(msr: u32, value: u64) -> bool {
    // SAFETY: The caller's promise; a fault is caught.
    unsafe { hpm_wrmsr(msr, value) == 0 }
}

/// RDPMC.
///
/// # Safety
/// The counter exists; RDPMC of another one faults, and that fault is not caught.
pub(super) unsafe fn rdpmc(counter: u32) -> u64 {
    // SAFETY: The caller's promise.
    unsafe { hpm_rdpmc(counter) }
}

/// RDTSC, ordered after earlier loads.
pub(super) fn rdtsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: Every CPU of x86-64 has both. LFENCE keeps RDTSC behind what was done before (SDM Vol. 2B, RDTSC),
    // and the compiler must, too: without `nomem`.
    unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// This CPU's LVTPC (SDM Vol. 3A 12.5.1).
pub(super) fn lvtpc() -> u32 {
    // SAFETY: Reads a register of the local APIC, which every CPU that Linux brought up has.
    unsafe { hpm_lvtpc_read() }
}

/// Writes this CPU's LVTPC.
///
/// # Safety
/// hpm holds the PMU, so that nobody else expects interrupts through this entry.
pub(super) unsafe fn set_lvtpc(value: u32) {
    // SAFETY: The caller's promise.
    unsafe { hpm_lvtpc_write(value) };
}

/// Another logical processor of this CPU's core.
pub(super) fn sibling(cpu: u32) -> Option<u32> {
    // SAFETY: Reads a mask of the CPU, which exists.
    let sibling = unsafe { hpm_sibling(cpu) };
    (sibling < kernel::cpu::nr_cpu_ids()).then_some(sibling)
}

/// An entry of the extended local vector table of this CPU's local APIC; `None` beyond its last one. Only on AMD's processors.
pub(super) fn eilvt(number: u32) -> Option<u32> {
    /// `APIC_EILVT_NR_MAX`.
    const ENTRIES: u32 = 4;
    // SAFETY: Reads a register of the local APIC, which AMD's processors with IBS have.
    (number < ENTRIES).then(|| unsafe { hpm_eilvt_read(number) })
}

/// Reserves a general counter and its event select register from the kernel's other users.
/// `Err` names the register that somebody else holds.
pub(super) fn reserve(counter: u32, select: u32) -> Result<(), u32> {
    // SAFETY: Sets a bit in the kernel's bitmap; any MSR number is allowed.
    if unsafe { hpm_reserve_perfctr(counter) } == 0 {
        return Err(counter);
    }
    // SAFETY: As above.
    if unsafe { hpm_reserve_evntsel(select) } == 0 {
        // SAFETY: Reserved four lines above.
        unsafe { hpm_release_perfctr(counter) };
        return Err(select);
    }
    Ok(())
}

/// Gives back what [`reserve`] took.
///
/// # Safety
/// Both registers are reserved by hpm.
pub(super) unsafe fn release(counter: u32, select: u32) {
    // SAFETY: The caller's promise.
    unsafe { hpm_release_evntsel(select) };
    // SAFETY: The caller's promise.
    unsafe { hpm_release_perfctr(counter) };
}

/// Waits until perf has done with the counters that were reserved from it; whether it can have none now.
pub(super) fn perf_is_out() -> bool {
    // SAFETY: Process context; makes and ends an event of perf that counts nothing.
    unsafe { hpm_perf_is_out() }
}

/// Whether guests have the PMU for themselves while they run. To be asked while perf can have counters.
pub(super) fn perf_is_mediated() -> bool {
    // SAFETY: Process context; makes and ends an event of perf that counts nothing.
    unsafe { hpm_perf_is_mediated() }
}

/// Finds perf's PMUs. To be called first.
pub(super) fn find_perf() -> Result {
    // SAFETY: Process context, before anything reads what it finds.
    to_result(unsafe { hpm_find_perf() })
}

/// From now on perf starts no PMU that hpm holds ([`hold_perf`]), unless to use it.
pub(super) fn divert_perf() {
    // SAFETY: After `find_perf`; `restore_perf` precedes unload.
    unsafe { hpm_divert_perf() };
}

/// Ends [`divert_perf`]. No CPU's PMU is held.
pub(super) fn restore_perf() {
    // SAFETY: Process context.
    unsafe { hpm_restore_perf() };
}

/// hpm has taken this CPU's PMU, which is stopped.
pub(super) fn hold_perf(_irq: &LocalInterruptDisabled) {
    // SAFETY: Interrupts are off, as perf has them when it stops a PMU, with events or none.
    unsafe { hpm_hold_perf() };
}

/// hpm has given this CPU's PMU back, with the register that starts all its counters, if there is one.
pub(super) fn release_perf(starts: Option<u32>, _irq: &LocalInterruptDisabled) {
    // SAFETY: Interrupts are off, as perf has them when it starts a PMU.
    unsafe { hpm_release_perf(starts.unwrap_or(0)) };
}

/// Whether page-table isolation is on.
pub(super) fn has_pti() -> bool {
    // SAFETY: Reads a CPU feature bit.
    unsafe { hpm_cpu_has_pti() }
}

/// Whether the kernel's own checks found PEBS usable.
pub(super) fn has_pebs() -> bool {
    // SAFETY: Reads a CPU feature bit.
    unsafe { hpm_cpu_has_pebs() }
}

/// Revision of the microcode that the boot CPU runs; the kernel's own errata checks go by it.
pub(super) fn microcode() -> u32 {
    // SAFETY: Reads a field that an update writes as one word.
    unsafe { hpm_cpu_microcode() }
}

/// Whether this CPU may enter a guest of which the probes of [`register_probes`] are not told: a hypervisor that is not KVM has switched
/// virtualisation on.
pub(super) fn guests_are_untold(_irq: &LocalInterruptDisabled) -> bool {
    // SAFETY: Interrupts are off.
    unsafe { hpm_guests_are_untold() }
}

/// Notices from now on whether there is KVM, until [`forget_guests`].
pub(super) fn follow_guests() -> Result {
    // SAFETY: Process context; `forget_guests` precedes unload.
    to_result(unsafe { hpm_guests_follow() })
}

/// Ends [`follow_guests`].
pub(super) fn forget_guests() {
    // SAFETY: Process context, after `follow_guests`.
    unsafe { hpm_guests_forget() };
}

/// Whether the caller has CAP_PERFMON or CAP_SYS_ADMIN.
pub(super) fn perfmon_capable() -> bool {
    // SAFETY: Process context; checks the caller's capabilities.
    unsafe { hpm_perfmon_capable() }
}

/// Whether perf would let the caller see the kernel.
pub(super) fn allow_kernel() -> bool {
    // SAFETY: Process context; checks the caller's rights.
    unsafe { hpm_allow_kernel() == 0 }
}

/// Whether perf would let the caller measure whole CPUs.
pub(super) fn allow_cpu() -> bool {
    // SAFETY: Process context; checks the caller's rights.
    unsafe { hpm_allow_cpu() == 0 }
}

/// Whether the kernel's lockdown, or another security module, forbids this.
pub(super) fn is_locked_down(what: bindings::lockdown_reason) -> bool {
    // SAFETY: Asks the security modules, which decides nothing.
    unsafe { hpm_locked_down(what) != 0 }
}

/// The address space that the file shows if it is a `/proc/PID/environ`, else null. The file holds it.
///
/// # Safety
/// The file is open.
pub(super) unsafe fn environ_mm(file: *mut bindings::file) -> *mut bindings::mm_struct {
    // SAFETY: The caller's promise.
    unsafe { hpm_environ_mm(file) }
}

/// The control group of version 2 whose directory this descriptor of the caller is, to be given to [`put_cgroup`].
pub(super) fn cgroup_of_descriptor(descriptor: i32) -> Option<NonNull<bindings::cgroup>> {
    // SAFETY: Process context; any number is allowed.
    NonNull::new(unsafe { hpm_cgroup_get(descriptor) })
}

/// Gives up a control group.
///
/// # Safety
/// It came from [`cgroup_of_descriptor`] and is not used any more.
pub(super) unsafe fn put_cgroup(cgroup: NonNull<bindings::cgroup>) {
    // SAFETY: The caller's promise.
    unsafe { hpm_cgroup_put(cgroup.as_ptr()) };
}

/// Whether the task belongs to the group or one below it.
///
/// # Safety
/// Both are alive.
pub(super) unsafe fn cgroup_has_task(
    cgroup: NonNull<bindings::cgroup>,
    task: *mut bindings::task_struct,
) -> bool {
    // SAFETY: The caller's promise.
    unsafe { hpm_cgroup_has_task(cgroup.as_ptr(), task) }
}

/// Whether `other` is `cgroup` or one below it.
///
/// # Safety
/// Both are alive.
pub(super) unsafe fn cgroup_encloses(
    cgroup: NonNull<bindings::cgroup>,
    other: NonNull<bindings::cgroup>,
) -> bool {
    // SAFETY: The caller's promise.
    unsafe { hpm_cgroup_encloses(cgroup.as_ptr(), other.as_ptr()) }
}

/// User instruction pointer of a thread that is in the kernel; 0 for a kernel thread.
///
/// # Safety
/// `task` is the current task.
pub(super) unsafe fn user_ip(task: *mut bindings::task_struct) -> u64 {
    // SAFETY: The current task's stack, where its user registers lie, stays while it runs.
    unsafe { hpm_user_ip(task) }
}

/// The registers that an NMI interrupted, or with `user_only` those with which the current thread last was in user mode.
///
/// # Safety
/// `regs` is what the handler of the NMI that runs was given, or null outside one.
pub(super) unsafe fn registers(regs: *const bindings::pt_regs, user_only: bool) -> Option<Registers> {
    let mut registers = Registers::default();
    // SAFETY: The caller's promise; there are as many registers as the function writes.
    let known = unsafe { hpm_registers(regs.cast_mut(), user_only, registers.as_mut_ptr()) };
    known.then_some(registers)
}

/// The page of an address in the direct map.
///
/// # Safety
/// The address lies in the direct map.
pub(super) unsafe fn page_of(address: *mut u8) -> *mut bindings::page {
    // SAFETY: The caller's promise.
    unsafe { hpm_page_of(address.cast()) }
}

/// The physical address of one in the direct map.
///
/// # Safety
/// The address lies in the direct map.
pub(super) unsafe fn physical(address: *mut u8) -> u64 {
    // SAFETY: The caller's promise.
    unsafe { hpm_physical(address.cast()) }
}

/// Whether anything but its owner refers to a page, as a mapping does.
///
/// # Safety
/// The page is allocated.
pub(super) unsafe fn is_page_mapped(page: *mut bindings::page) -> bool {
    // SAFETY: The caller's promise.
    unsafe { hpm_page_mapped(page) }
}

/// Thread-group ID and thread ID in the root PID namespace of a thread by its number in the caller's; 0 is the caller.
pub(super) fn find_thread(number: i32) -> Option<(u32, u32)> {
    let (mut tgid, mut tid) = (0, 0);
    // SAFETY: Process context; both places are writable.
    unsafe { hpm_find_thread(number, &mut tgid, &mut tid) }.then_some((tgid, tid))
}

/// The CPU that a thread is on or was on last, by its ID in the root PID namespace; `None` when it has gone.
pub(super) fn cpu_of(tid: u32) -> Option<u32> {
    // SAFETY: Process context.
    u32::try_from(unsafe { hpm_cpu_of(tid, false) }).ok()
}

/// The CPU that a thread is on now; `None` when it is on none, and then all that the switch probe wrote when it left is seen.
pub(super) fn cpu_running(tid: u32) -> Option<u32> {
    // SAFETY: Process context.
    u32::try_from(unsafe { hpm_cpu_of(tid, true) }).ok()
}

/// An address space, to be compared only.
#[derive(Clone, Copy)]
pub(super) struct AddressSpace(*const bindings::mm_struct);

/// Has the kernel set CR4.PCE for the caller's address space from its next load on, for as long as it exists; and whether it did not
/// before.
pub(super) fn allow_rdpmc() -> (AddressSpace, bool) {
    let mut is_new = false;
    // SAFETY: Process context; the place is there for the call.
    let space = unsafe { hpm_rdpmc_allow(&raw mut is_new) };
    (AddressSpace(space), is_new)
}

/// Whether this CPU has the address space loaded.
pub(super) fn has_loaded(space: AddressSpace, _irq: &LocalInterruptDisabled) -> bool {
    // SAFETY: The pointer is only compared.
    unsafe { hpm_rdpmc_loaded(space.0) }
}

/// Whether this CPU has the address space loaded and does not allow RDPMC in user mode.
pub(super) fn lacks_rdpmc(space: AddressSpace, _irq: &LocalInterruptDisabled) -> bool {
    // SAFETY: The pointer is only compared.
    unsafe { hpm_rdpmc_lacking(space.0) }
}

/// Whether the task, once it runs, may use RDPMC in user mode.
///
/// # Safety
/// The task is alive, and is the one that this CPU switches to.
pub(super) unsafe fn may_rdpmc(task: *const bindings::task_struct) -> bool {
    // SAFETY: The caller's promise.
    unsafe { hpm_rdpmc_may(task) }
}

/// Has this CPU load an address space other than the caller's, unless the caller is the first process.
pub(super) fn load_another_address_space(cpu: u32) {
    // SAFETY: Process context; waits for a worker on that CPU.
    unsafe { hpm_load_another_mm(cpu) };
}

/// Has perf zero the counters of this CPU in which its past events have left values, as it else would at any time.
pub(super) fn zero_leftovers(cpu: u32) {
    // SAFETY: Process context; waits for a worker on that CPU.
    unsafe { hpm_zero_leftovers(cpu) };
}

/// As [`zero_leftovers`], on this CPU, which comes online. For its own thread of the kernel's that brings it up.
pub(super) fn zero_leftovers_here() {
    // SAFETY: That thread may sleep, and has no address space of its own.
    unsafe { hpm_zero_leftovers_here() };
}

/// Has the device told when the machine sleeps and wakes; calls come to `hpm_on_sleep` and `hpm_on_wake`.
///
/// # Safety
/// The device is registered, and [`ignore_sleep`] precedes its end.
pub(super) unsafe fn follow_sleep(device: *mut bindings::device) {
    // SAFETY: The device lives, by the caller's promise; the callbacks are a static of the shim. Process context.
    unsafe { hpm_follow_sleep(device) };
}

/// Undoes [`follow_sleep`].
///
/// # Safety
/// The device is registered.
pub(super) unsafe fn ignore_sleep(device: *mut bindings::device) {
    // SAFETY: The device lives, by the caller's promise. Process context.
    unsafe { hpm_ignore_sleep(device) };
}

/// Hooks the NMI; calls come to `hpm_on_nmi`.
pub(super) fn register_nmi() -> Result {
    // SAFETY: The handler is a static of the shim; `unregister_nmi` precedes unload.
    to_result(unsafe { hpm_nmi_register() })
}

/// Unhooks the NMI. No handler runs afterwards.
pub(super) fn unregister_nmi() {
    // SAFETY: Process context.
    unsafe { hpm_nmi_unregister() };
}

/// Looks up the scheduler's tracepoints.
pub(super) fn find_probes() -> Result {
    // SAFETY: Process context.
    to_result(unsafe { hpm_probes_find() })
}

/// Hooks the scheduler's tracepoints, and KVM's; calls come to `hpm_on_switch` and its siblings.
pub(super) fn register_probes() -> Result {
    // SAFETY: Process context, after `find_probes`.
    to_result(unsafe { hpm_probes_register() })?;
    // SAFETY: Process context, and nobody holds the lock on CPU hotplug.
    to_result(unsafe { hpm_guests_register() }).inspect_err(|_| {
        // SAFETY: Process context; registered above.
        unsafe { hpm_probes_unregister() };
    })
}

/// Unhooks the tracepoints. No probe runs afterwards.
pub(super) fn unregister_probes() {
    // SAFETY: Process context, after `register_probes`.
    unsafe { hpm_guests_unregister() };
    // SAFETY: As above.
    unsafe { hpm_probes_unregister() };
}

/// CLOCK_MONOTONIC_RAW in ns.
pub(super) fn raw_ns() -> u64 {
    // SAFETY: May be called in any context.
    unsafe { hpm_raw_ns() }
}

/// Places the probes of mappings and names; calls come to `hpm_on_map` and `hpm_on_name`.
pub(super) fn begin_reports() -> Result {
    // SAFETY: Process context; `end_reports` precedes the next call.
    to_result(unsafe { hpm_reports_begin() })
}

/// Maps a page of the caller's and unmaps it. That may take as long as other threads of its process wish.
pub(super) fn map_once() -> Result {
    // SAFETY: Process context of a task that executes a program; it does not hold the lock on its mappings.
    to_result(unsafe { hpm_map_once() })
}

/// Undoes [`begin_reports`]. No probe runs afterwards.
pub(super) fn end_reports() {
    // SAFETY: Process context, after `begin_reports`.
    unsafe { hpm_reports_end() };
}

/// Whether the current task is within an execve after which its user may not look into its program.
pub(super) fn becomes_closed() -> bool {
    // SAFETY: The current task is alive, and executes a program.
    unsafe { hpm_becomes_closed() }
}

/// Fills in what an area is; its name, which lies in `path` or is constant.
///
/// # Safety
/// The area is valid, and the lock on its mappings held.
pub(super) unsafe fn describe_mapping(
    area: *mut bindings::vm_area_struct,
    mapping: &mut Mapping,
    path: &mut [u8],
) -> *const c_char {
    // SAFETY: The caller's promise; the buffer is writable.
    unsafe { hpm_describe(area, mapping, path.as_mut_ptr().cast(), path.len()) }
}
