// SPDX-License-Identifier: GPL-2.0
//! The process or thread that a session measures, and the proof that it may.

use core::ptr::{self, NonNull};

use kernel::bindings;
use kernel::fs::LocalFile;
use kernel::mm::Mm;
use kernel::prelude::*;
use kernel::sync::aref::ARef;
use kernel::task::Task;

use super::sys;
use crate::hpm_abi::Reason;
use crate::hpm_core::Refusal;

/// The address space of a program in execution. Each `execve` makes a new one, and while this is held no other gets its
/// address.
pub(super) struct AddressSpace(ARef<Mm>);

impl AddressSpace {
    /// The caller's own.
    pub(super) fn of_caller() -> Option<Self> {
        kernel::current!().mm().map(|mm| Self(ARef::from(&**mm)))
    }

    /// The one that this descriptor of the caller shows, if it is of a `/proc/PID/environ`. The kernel opened it only for
    /// who may read that address space as ptrace does (`proc_mem_open`), and `ptrace_may_access` itself is not exported.
    pub(super) fn proven_by(descriptor: i32) -> Option<Self> {
        let file = LocalFile::fget(u32::try_from(descriptor).ok()?).ok()?;
        // SAFETY: The file is held, and with it the address space that it shows.
        let mm = NonNull::new(unsafe { sys::environ_mm(file.as_ptr()) })?;
        // SAFETY: As above.
        Some(Self(ARef::from(unsafe { Mm::from_raw(mm.as_ptr()) })))
    }
}

/// A process or thread. A process is pinned by its `struct pid`, which its threads hand on, and a thread by its task: in `execve` it
/// takes its leader's number and `struct pid`, and another thread may get its own.
pub(super) struct Target {
    pid: NonNull<bindings::pid>,
    /// Of [`Self::pid`]: a thread group's, or a thread's.
    kind: bindings::pid_type,
    /// The thread, or the process's leader when it was looked for.
    task: NonNull<bindings::task_struct>,
    tgid: u32,
    /// What the target must still be executing when the session starts; `None` for who may measure every program.
    space: Option<AddressSpace>,
}

// SAFETY: `struct pid` is reference counted and may be used and released on any thread.
unsafe impl Send for Target {}
// SAFETY: As above.
unsafe impl Sync for Target {}

impl Target {
    /// The process, or else the thread, with this number in the caller's PID namespace.
    pub(super) fn find(number: i32, process: bool) -> Result<Self, Refusal> {
        let missing = Refusal::new(Reason::NoProcess, [u64::from(number.unsigned_abs()), 0]);
        // SAFETY: Process context; takes a reference.
        let pid = NonNull::new(unsafe { bindings::find_get_pid(number) }).ok_or(missing)?;
        let kind = if process { bindings::pid_type_PIDTYPE_TGID } else { bindings::pid_type_PIDTYPE_PID };
        Self::of(pid, kind).ok_or(missing)
    }

    /// What a `struct pid` stands for, to which a reference is handed over.
    fn of(pid: NonNull<bindings::pid>, kind: bindings::pid_type) -> Option<Self> {
        // SAFETY: The caller's reference; takes one on the task.
        let Some(task) = NonNull::new(unsafe { bindings::get_pid_task(pid.as_ptr(), kind) }) else {
            // SAFETY: The caller's reference, which nobody else gives up.
            unsafe { bindings::put_pid(pid.as_ptr()) };
            return None;
        };
        // SAFETY: The task is held; a thread never changes its group.
        let tgid = unsafe { (*task.as_ptr()).tgid.unsigned_abs() };
        Some(Self { pid, kind, task, tgid, space: None })
    }

    /// The calling thread, in the program that it executes.
    pub(super) fn caller() -> Option<Self> {
        let space = AddressSpace::of_caller()?;
        let kind = bindings::pid_type_PIDTYPE_PID;
        // SAFETY: The current task is alive; takes a reference.
        let pid = NonNull::new(unsafe { bindings::get_task_pid(Task::current_raw(), kind) })?;
        let mut target = Self::of(pid, kind)?;
        target.space = Some(space);
        Some(target)
    }

    /// Thread-group ID in the root PID namespace.
    pub(super) fn tgid(&self) -> u32 {
        self.tgid
    }

    /// Thread ID in the root PID namespace, as it is now; a process's is its leader's.
    pub(super) fn number(&self) -> u32 {
        if !self.is_a_thread() {
            return self.tgid;
        }
        // SAFETY: The task is held. The field changes only while the thread itself calls `execve`.
        unsafe { (&raw const (*self.task.as_ptr()).pid).read_volatile() }.unsigned_abs()
    }

    fn is_a_thread(&self) -> bool {
        self.kind == bindings::pid_type_PIDTYPE_PID
    }

    /// Whether the target is this thread, whatever number it has now.
    pub(super) fn is_thread(&self, task: *const bindings::task_struct) -> bool {
        self.is_a_thread() && ptr::eq(self.task.as_ptr(), task)
    }

    /// Whether both are the same thread.
    pub(super) fn is_the_thread_of(&self, other: &Self) -> bool {
        other.is_thread(self.task.as_ptr())
    }

    /// From now on the target may be measured only while it executes in this address space; whether it does.
    pub(super) fn tie_to(&mut self, space: AddressSpace) -> bool {
        self.space = Some(space);
        self.is_entitled()
    }

    /// Whether the target still executes the program that it was allowed to be measured in.
    pub(super) fn is_entitled(&self) -> bool {
        let Some(space) = &self.space else { return true };
        self.with_task(|task| {
            // SAFETY: The task is alive. The pointer is only compared.
            let mm = unsafe { (&raw const (*task).mm).read_volatile() };
            ptr::eq(mm, space.0.as_raw())
        })
        .unwrap_or(false)
    }

    /// Whether the caller is a thread of this process.
    pub(super) fn is_caller(&self) -> bool {
        current_tgid() == self.tgid
    }

    /// Whether the thread, or a thread of the process, has not begun to exit.
    pub(super) fn is_alive(&self) -> bool {
        self.with_task(|task| {
            if self.is_a_thread() {
                // SAFETY: The task is alive.
                let flags = unsafe { (&raw const (*task).flags).read_volatile() };
                return flags & bindings::PF_EXITING == 0;
            }
            // SAFETY: A task that has its pid still has its `signal`, which outlives the reference held on the task.
            let live = unsafe { &raw const (*(*task).signal).live.counter };
            // SAFETY: An atomic counter of the kernel, read once.
            (unsafe { live.read_volatile() }) > 0
        })
        .unwrap_or(false)
    }

    /// Calls `f` with the thread, or the process's leader, which stays allocated meanwhile; `None` when that has been reaped.
    fn with_task<T>(&self, f: impl FnOnce(*mut bindings::task_struct) -> T) -> Option<T> {
        if self.is_a_thread() {
            return Some(f(self.task.as_ptr()));
        }
        // SAFETY: `pid` holds a reference.
        let task = unsafe { bindings::get_pid_task(self.pid.as_ptr(), self.kind) };
        let task = NonNull::new(task)?;
        let value = f(task.as_ptr());
        // SAFETY: `get_pid_task` took this reference.
        unsafe { bindings::put_task_struct(task.as_ptr()) };
        Some(value)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: `of` took this reference.
        unsafe { bindings::put_task_struct(self.task.as_ptr()) };
        // SAFETY: `of` was handed this reference.
        unsafe { bindings::put_pid(self.pid.as_ptr()) };
    }
}

/// The caller's thread ID in the root PID namespace.
pub(super) fn current_tid() -> u32 {
    // SAFETY: The current task is alive; its pid changes only while it calls `execve` itself.
    unsafe { (*Task::current_raw()).pid.unsigned_abs() }
}

/// The caller's thread-group ID in the root PID namespace.
pub(super) fn current_tgid() -> u32 {
    // SAFETY: The current task is alive, and its tgid constant.
    unsafe { (*Task::current_raw()).tgid.unsigned_abs() }
}
