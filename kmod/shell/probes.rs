// SPDX-License-Identifier: GPL-2.0
//! What the kernel calls: the NMI, and tracepoints of the scheduler, of control groups and of KVM.
//!
//! `hpm_on_nmi` and `hpm_on_switch` allocate nothing, take no lock and wake nobody.

use kernel::bindings;
use kernel::prelude::*;

use super::cpu::{self, Cpu};
use super::interrupts::{local_interrupt_disable, LocalInterruptDisabled};
use super::registry::Chosen;
use super::session::Session;
use super::{markers, registry, reports, sys};
use crate::hpm_abi::QuantumEnd;
use crate::hpm_core::Thread;

/// Who this task is.
///
/// # Safety
/// The task is alive.
pub(super) unsafe fn thread_of(task: *const bindings::task_struct) -> Thread {
    // SAFETY: The caller's promise; both fields change only while the task itself calls `execve`.
    let (pid, tid) = unsafe { ((*task).tgid, (*task).pid) };
    Thread { pid: pid.unsigned_abs(), tid: tid.unsigned_abs() }
}

/// The session that measures this task on this CPU, unless the task has begun to exit.
///
/// # Safety
/// The task is alive, and `thread` says who it is.
unsafe fn session_of<'a>(
    task: *mut bindings::task_struct,
    thread: Thread,
    cpu: &Cpu,
    irq: &'a LocalInterruptDisabled,
) -> Option<Chosen<'a>> {
    // SAFETY: The caller's promise.
    let flags = unsafe { (&raw const (*task).flags).read_volatile() };
    if flags & bindings::PF_EXITING != 0 {
        return None;
    }
    // SAFETY: The caller's promise.
    unsafe { registry::session_of(task, thread, cpu, irq) }
}

/// Who runs from now on.
struct Next {
    thread: Thread,
    /// It may read what others have left in the counters.
    curious: bool,
    /// It runs no user code, ever.
    in_kernel: bool,
}

/// Whether the task is one of the kernel's own: those run no user code, nor can they execute a program.
///
/// # Safety
/// The task is alive.
unsafe fn never_leaves_kernel(task: *const bindings::task_struct) -> bool {
    // SAFETY: The caller's promise.
    let flags = unsafe { (&raw const (*task).flags).read_volatile() };
    flags & bindings::PF_KTHREAD != 0
}

/// An NMI on this CPU, which interrupted `regs`. 1 when it was hpm's.
#[no_mangle]
extern "C" fn hpm_on_nmi(regs: *const bindings::pt_regs) -> c_int {
    // SAFETY: The handler of an NMI runs with interrupts off.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    // SAFETY: The kernel's NMI handler passes its own registers.
    cpu::this_cpu(irq).is_some_and(|cpu| unsafe { cpu.nmi(irq, regs) }).into()
}

/// `prev`, the current task, leaves the CPU to `next`. Called under the run-queue lock.
#[no_mangle]
extern "C" fn hpm_on_switch(
    preempt: bool,
    _prev: *mut bindings::task_struct,
    next: *mut bindings::task_struct,
    prev_state: c_uint,
) {
    // SAFETY: The scheduler calls this with interrupts off.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    let Some(cpu) = cpu::this_cpu(irq) else { return };
    // SAFETY: The scheduler holds both tasks.
    let next_thread = unsafe { thread_of(next) };
    // SAFETY: As above.
    let chosen = unsafe { session_of(next, next_thread, cpu, irq) };
    let staying = chosen.map(|chosen| chosen.session).filter(|session| cpu.is_running(session));
    // The threads of one process may see each other's counts, but not those of whole CPUs or control groups.
    let among_its_own = staying.is_some_and(|session| session.subject().target().is_some());
    // SAFETY: As above.
    let curious = !among_its_own && cpu.is_exposed() && unsafe { sys::may_rdpmc(next) };
    let waiting = cpu.waiting() | chosen.map_or(0, |chosen| chosen.waiting);
    if !curious && waiting == 0 && staying.is_some_and(Session::is_careless) {
        return;
    }
    // SAFETY: As above.
    let in_kernel = unsafe { never_leaves_kernel(next) };
    if cpu.running().is_none() && chosen.is_none() && !curious && (in_kernel || !cpu.is_resting()) {
        return;
    }
    // A thread that called sched_yield is runnable too, and looks like one that was pre-empted.
    let end = if preempt || prev_state == 0 { QuantumEnd::Preempted } else { QuantumEnd::Yielded };
    cpu.switch(irq, end, chosen, &Next { thread: next_thread, curious, in_kernel });
}

/// The current task exits; `group_dead` when it is the last of its process.
#[no_mangle]
extern "C" fn hpm_on_exit(task: *mut bindings::task_struct, group_dead: bool) {
    let irq = local_interrupt_disable();
    // SAFETY: The current task is alive.
    let thread = unsafe { thread_of(task) };
    reports::exit(thread, group_dead);
    let Some(cpu) = cpu::this_cpu(&irq) else { return };
    // SAFETY: The current task is alive.
    let chosen = unsafe { registry::session_of(task, thread, cpu, &irq) };
    if chosen.is_some() || cpu.running().is_some() {
        cpu.section(&irq, |section| {
            // It may have been switched out and in after it began to exit; then it runs unmeasured. Where it is measured by another
            // session, whose control group it was in when it was switched in, that one's stay ends.
            if let (Some(chosen), None) = (chosen, cpu.running()) {
                section.switch_in(chosen, thread);
            }
            section.switch_out(QuantumEnd::Exit);
        });
    }
    // Also those that measured it elsewhere or before, as those of one CPU or of a control group that it has left.
    forget(thread, &irq);
    registry::exit(task, thread, group_dead, &irq);
    markers::exit(thread.tid, &irq);
}

/// No session keeps a place or a page for this thread.
fn forget(thread: Thread, irq: &LocalInterruptDisabled) {
    for session in registry::sessions(irq) {
        session.threads().forget(thread);
        if let Some(pages) = session.pages() {
            pages.keys().forget(thread.tid);
        }
    }
}

/// The current task has made a child, which does not run yet.
#[no_mangle]
extern "C" fn hpm_on_fork(parent: *mut bindings::task_struct, child: *mut bindings::task_struct) {
    let irq = local_interrupt_disable();
    // SAFETY: Both tasks are alive.
    let (parent, child) = unsafe { (thread_of(parent), thread_of(child)) };
    if parent.pid != child.pid {
        registry::fork(parent.pid, child.pid, &irq);
    }
    reports::fork(parent, child);
}

/// The current task is about to replace its program, and to get rights that are not its own.
#[no_mangle]
extern "C" fn hpm_on_secure_exec(task: *mut bindings::task_struct) {
    let irq = local_interrupt_disable();
    // SAFETY: The current task is alive.
    let thread = unsafe { thread_of(task) };
    registry::leave(task, thread, &irq);
    reports::leave(thread.pid);
    let Some(cpu) = cpu::this_cpu(&irq) else { return };
    // SAFETY: The current task is alive.
    let chosen = unsafe { session_of(task, thread, cpu, &irq) };
    if cpu.running().is_some() || chosen.is_some() {
        cpu.switch(&irq, QuantumEnd::Flush, chosen, &Next { thread, curious: false, in_kernel: false });
    }
}

/// The current task, whose thread ID was `old_tid`, has replaced its program. `secure` when the new one's rights are not
/// the caller's.
#[no_mangle]
extern "C" fn hpm_on_exec(task: *mut bindings::task_struct, old_tid: bindings::pid_t, secure: bool) {
    let irq = local_interrupt_disable();
    // SAFETY: The current task is alive.
    let thread = unsafe { thread_of(task) };
    let old_tid = old_tid.unsigned_abs();
    if secure {
        registry::leave(task, Thread { tid: old_tid, ..thread }, &irq);
        reports::leave(thread.pid);
    }
    registry::exec(task, thread, old_tid, &irq);
    // Its marker page was mapped in the old program.
    markers::exit(old_tid, &irq);
    let Some(cpu) = cpu::this_cpu(&irq) else { return };
    // SAFETY: The current task is alive.
    let chosen = unsafe { session_of(task, thread, cpu, &irq) };
    let session = chosen.map(|chosen| chosen.session);
    for pages in registry::sessions(&irq).filter_map(Session::pages) {
        pages.withdraw_rdpmc(thread.tid);
    }
    if cpu.running().is_some() || chosen.is_some() {
        // The old program's quantum ends here.
        cpu.switch(&irq, QuantumEnd::Flush, chosen, &Next { thread, curious: false, in_kernel: false });
    }
    if let Some(session) = session.filter(|session| session.records_branches()) {
        cpu.section(&irq, |section| section.restart_branches(session));
    }
    // Another thread may have got the old ID by now: then what is kept under it is that one's.
    let freed = old_tid != thread.tid && sys::cpu_of(old_tid).is_none();
    if freed {
        // The thread has its leader's ID now, and nothing will exit under the old one.
        forget(Thread { tid: old_tid, ..thread }, &irq);
    }
}

/// Whether it matters who is in which control group. For any context.
#[no_mangle]
extern "C" fn hpm_measures_groups() -> bool {
    registry::has_groups()
}

/// The task that runs on this CPU may have come into another control group.
#[no_mangle]
extern "C" fn hpm_on_regroup() {
    // SAFETY: CPUs are called with interrupts off.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    let Some(cpu) = cpu::this_cpu(irq) else { return };
    cpu.choose_again(irq);
}

/// KVM is about to enter a guest, with interrupts off: what that executes is not measured, and PEBS would write records to its addresses.
#[no_mangle]
extern "C" fn hpm_on_guest_entry() {
    // SAFETY: KVM enters a guest with interrupts off.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    let Some(cpu) = cpu::this_cpu(irq) else { return };
    if cpu.running().is_some() || cpu.is_resting() {
        cpu.section(irq, |section| {
            section.switch_out(QuantumEnd::Flush);
            section.enter_guest();
        });
    }
}

/// KVM is back from a guest, with interrupts still off. It does not tell of one that could not be entered, and of some exits: the thread is
/// measured again from its next exit that is told of, or its next switch.
#[no_mangle]
extern "C" fn hpm_on_guest_exit() {
    // SAFETY: KVM has interrupts off from before the entry until after this.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    let Some(cpu) = cpu::this_cpu(irq) else { return };
    if registry::has_precise() {
        cpu.section(irq, |section| section.leave_guest());
    }
    cpu.start_current(irq);
}

impl Cpu {
    /// Starts to measure the task that runs here, if a session wants it and it is not measured yet.
    pub(super) fn start_current(&self, irq: &LocalInterruptDisabled) {
        let task = kernel::task::Task::current_raw();
        // SAFETY: The current task is alive.
        let thread = unsafe { thread_of(task) };
        // SAFETY: As above.
        let chosen = unsafe { session_of(task, thread, self, irq) };
        if let (Some(chosen), None) = (chosen, self.running()) {
            self.section(irq, |section| section.switch_in(chosen, thread));
        }
    }

    /// Sees which session is to measure the task that runs here: sessions or control groups may have changed, or it is another one's turn.
    pub(super) fn choose_again(&self, irq: &LocalInterruptDisabled) {
        let task = kernel::task::Task::current_raw();
        // SAFETY: The current task is alive.
        let thread = unsafe { thread_of(task) };
        // SAFETY: As above.
        let chosen = unsafe { session_of(task, thread, self, irq) };
        match chosen {
            None if self.running().is_none() => {}
            Some(chosen) if self.is_running(chosen.session) && chosen.waiting == self.waiting() => {}
            // Where the same session goes on, it may not have been told of the last switches ([`Session::is_careless`]), and who waits
            // has to know who runs.
            chosen => {
                // SAFETY: As above.
                let curious = self.is_exposed() && unsafe { sys::may_rdpmc(task) };
                self.switch(irq, QuantumEnd::Flush, chosen, &Next { thread, curious, in_kernel: false });
            }
        }
    }

    /// The running quantum, if there is one, ends; `next` runs, for this session or unmeasured.
    fn switch(&self, irq: &LocalInterruptDisabled, end: QuantumEnd, chosen: Option<Chosen<'_>>, next: &Next) {
        self.section(irq, |section| match chosen {
            Some(chosen) if self.is_running(chosen.session) && !next.curious => {
                section.switch_over(end, chosen, next.thread);
            }
            None if next.in_kernel => section.step_aside(end),
            chosen => {
                section.switch_out(end);
                if next.curious {
                    section.conceal();
                }
                match chosen {
                    Some(chosen) => section.switch_in(chosen, next.thread),
                    None => section.settle(),
                }
            }
        });
    }
}
