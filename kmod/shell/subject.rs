// SPDX-License-Identifier: GPL-2.0
//! Whom a session measures.

use core::ptr::NonNull;

use kernel::bindings;

use super::rights;
use super::target::Target;
use super::{machine, sys};
use crate::hpm_abi::{Reason, Scope, SessionConfig, SessionFlags};
use crate::hpm_core::Refusal;

/// Whom a session measures.
pub(super) enum Subject {
    /// All threads of a process, and of those that inherit from it.
    Process(Target),
    /// One thread.
    Thread(Target),
    /// The threads of a control group and of those below it.
    Cgroup(Cgroup),
    /// Every thread on every CPU.
    System,
    /// Every thread on this CPU.
    Cpu(u32),
}

impl Subject {
    /// Whom a checked request names, with the caller's right to measure that.
    ///
    /// # Errors
    /// Why there is no such subject, or the caller may not measure it.
    pub(super) fn find(config: &SessionConfig) -> Result<Self, Refusal> {
        let process = config.scope == Scope::Process as u32;
        if process || config.scope == Scope::Thread as u32 {
            let mut target = Target::find(config.pid, process)?;
            let proof = config.flags & SessionFlags::PROOF != 0;
            rights::may_measure(&mut target, proof.then_some(config.proof_fd))?;
            return Ok(if process { Self::Process(target) } else { Self::Thread(target) });
        }
        rights::may_measure_system()?;
        if config.scope == Scope::Cgroup as u32 {
            return Ok(Self::Cgroup(Cgroup::find(config.cgroup_fd)?));
        }
        if config.flags & SessionFlags::ONE_CPU == 0 {
            return Ok(Self::System);
        }
        let known = config.cpu < machine::cpu_count() && machine::is_online(config.cpu);
        if known {
            Ok(Self::Cpu(config.cpu))
        } else {
            Err(Refusal::new(Reason::NoCpu, [u64::from(config.cpu), 0]))
        }
    }

    /// The process or thread, if it is one.
    pub(super) fn target(&self) -> Option<&Target> {
        match self {
            Self::Process(target) | Self::Thread(target) => Some(target),
            Self::Cgroup(_) | Self::System | Self::Cpu(_) => None,
        }
    }

    /// Whether a thread may belong to both: its counters serve one session at a time. Subjects of different kinds are
    /// taken to meet, because nothing keeps a process off a CPU or out of a group.
    pub(super) fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Process(one), Self::Process(other))
            | (Self::Process(one), Self::Thread(other))
            | (Self::Thread(one), Self::Process(other)) => one.tgid() == other.tgid(),
            (Self::Thread(one), Self::Thread(other)) => one.is_the_thread_of(other),
            (Self::Cgroup(one), Self::Cgroup(other)) => one.encloses(other) || other.encloses(one),
            (Self::Cpu(one), Self::Cpu(other)) => one == other,
            _ => true,
        }
    }
}

/// A control group of version 2, pinned.
pub(super) struct Cgroup(NonNull<bindings::cgroup>);

// SAFETY: A control group is reference counted and may be used and released on any thread.
unsafe impl Send for Cgroup {}
// SAFETY: As above.
unsafe impl Sync for Cgroup {}

impl Cgroup {
    /// The group whose directory this descriptor of the caller is.
    fn find(descriptor: i32) -> Result<Self, Refusal> {
        let missing = Refusal::new(Reason::NoCgroup, [0; 2]);
        sys::cgroup_of_descriptor(descriptor).map(Self).ok_or(missing)
    }

    /// Whether a task belongs to this group or one below it.
    ///
    /// # Safety
    /// The task is alive, and interrupts are off.
    pub(super) unsafe fn has(&self, task: *mut bindings::task_struct) -> bool {
        // SAFETY: The group is pinned; the rest is the caller's promise.
        unsafe { sys::cgroup_has_task(self.0, task) }
    }

    /// Whether `other` is this group or one below it.
    fn encloses(&self, other: &Self) -> bool {
        // SAFETY: Both are pinned.
        unsafe { sys::cgroup_encloses(self.0, other.0) }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // SAFETY: `find` took this reference.
        unsafe { sys::put_cgroup(self.0) };
    }
}
