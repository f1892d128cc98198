// SPDX-License-Identifier: GPL-2.0
//! The process that a session measures.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::task::Task;

use crate::hpm_abi::Reason;
use crate::hpm_core::Refusal;

/// A process, pinned by its `struct pid` so that its number cannot come to mean another one.
pub(super) struct Target {
    pid: NonNull<bindings::pid>,
    tgid: u32,
}

// SAFETY: `struct pid` is reference counted and may be used and released on any thread.
unsafe impl Send for Target {}
// SAFETY: As above.
unsafe impl Sync for Target {}

impl Target {
    /// The process with this thread-group ID in the caller's PID namespace.
    pub(super) fn find(number: i32) -> Result<Self, Refusal> {
        let missing = Refusal::new(Reason::NoProcess, [u64::from(number.unsigned_abs()), 0]);
        // SAFETY: Process context; takes a reference.
        let pid = NonNull::new(unsafe { bindings::find_get_pid(number) }).ok_or(missing)?;
        let mut target = Self { pid, tgid: 0 };
        // SAFETY: The task is alive for the duration of the closure.
        target.tgid = target.with_task(|task| unsafe { (*task).tgid.unsigned_abs() }).ok_or(missing)?;
        Ok(target)
    }

    /// Thread-group ID in the root PID namespace.
    pub(super) fn tgid(&self) -> u32 {
        self.tgid
    }

    /// Whether the caller is a thread of this process.
    pub(super) fn is_caller(&self) -> bool {
        current_tgid() == self.tgid
    }

    /// Whether a thread of the process has not begun to exit.
    pub(super) fn is_alive(&self) -> bool {
        self.with_task(|task| {
            // SAFETY: A task that has its pid still has its `signal`, which outlives the reference held on the task.
            let live = unsafe { &raw const (*(*task).signal).live.counter };
            // SAFETY: An atomic counter of the kernel, read once.
            (unsafe { live.read_volatile() }) > 0
        })
        .unwrap_or(false)
    }

    /// Calls `f` with the process's leader, which stays allocated meanwhile; `None` when it has been reaped.
    fn with_task<T>(&self, f: impl FnOnce(*mut bindings::task_struct) -> T) -> Option<T> {
        // SAFETY: `pid` holds a reference.
        let task = unsafe { bindings::get_pid_task(self.pid.as_ptr(), bindings::pid_type_PIDTYPE_TGID) };
        let task = NonNull::new(task)?;
        let value = f(task.as_ptr());
        // SAFETY: `get_pid_task` took this reference.
        unsafe { bindings::put_task_struct(task.as_ptr()) };
        Some(value)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: `find` took this reference.
        unsafe { bindings::put_pid(self.pid.as_ptr()) };
    }
}

/// The caller's thread-group ID in the root PID namespace.
pub(super) fn current_tgid() -> u32 {
    // SAFETY: The current task is alive, and its tgid constant.
    unsafe { (*Task::current_raw()).tgid.unsigned_abs() }
}
