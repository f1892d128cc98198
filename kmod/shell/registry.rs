// SPDX-License-Identifier: GPL-2.0
//! Which session measures which process: what the scheduler's probes look up.
//!
//! A reference to a session is valid while interrupts are off: stopping first takes the session out of here, and then
//! interrupts every CPU before anything is freed.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use kernel::interrupt::LocalInterruptDisabled;
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::global_lock;

use super::session::Session;
use super::target::current_tgid;
use crate::hpm_abi::Reason;
use crate::hpm_core::processes::{Processes, Writer};
use crate::hpm_core::Refusal;

/// Sessions that can run at the same time.
const SESSIONS_MAX: usize = 16;
/// Of a table's value: the session's place in [`RUNNING`].
const PLACE: u32 = 0xff;
/// Of a table's value: the process is not measured before its next `execve`.
const WAITING: u32 = 0x100;

static RUNNING: [AtomicPtr<Session>; SESSIONS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SESSIONS_MAX];
/// The session that measures every thread, or null.
static SYSTEM: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());
static PROCESSES: Processes = Processes::new();
/// Some session has published since readers were last woken.
static NEWS: AtomicBool = AtomicBool::new(false);

global_lock! {
    // SAFETY: `set_up` initialises it before anything else here is called.
    unsafe(uninit) static WRITER: SpinLock<Writer> = Writer::new();
}

/// Initialises the lock.
///
/// # Safety
/// Called once, before anything else here.
pub(super) unsafe fn set_up() {
    // SAFETY: The caller's promise.
    unsafe { WRITER.init() };
}

fn at<'a>(place: &AtomicPtr<Session>, _irq: &'a LocalInterruptDisabled) -> Option<&'a Session> {
    // SAFETY: A session that is stopped is taken out of here, and freed only after every CPU was interrupted.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// The session that measures this process now.
pub(super) fn session_of(tgid: u32, irq: &LocalInterruptDisabled) -> Option<&Session> {
    if let Some(session) = at(&SYSTEM, irq) {
        return Some(session);
    }
    let value = PROCESSES.get(tgid).filter(|value| value & WAITING == 0)?;
    at(RUNNING.get((value & PLACE) as usize)?, irq)
}

/// Every session that is started.
pub(super) fn sessions(irq: &LocalInterruptDisabled) -> impl Iterator<Item = &Session> {
    RUNNING.iter().filter_map(move |place| at(place, irq))
}

/// Makes a session reachable, and its target's process measured (or waiting for its `execve`).
///
/// # Errors
/// [`Reason::SessionBusy`] beside a session that excludes it, [`Reason::NoProcess`] when the target has exited.
pub(super) fn insert(session: &Session) -> Result<(), Refusal> {
    let mut writer = WRITER.lock();
    let mut free = None;
    for (number, place) in RUNNING.iter().enumerate() {
        // SAFETY: Sessions are inserted and removed under the control lock, which the caller holds.
        match unsafe { place.load(Ordering::Relaxed).as_ref() } {
            None => free = free.or(Some(number)),
            Some(other) if excludes(other, session) => return Err(busy(other.owner())),
            Some(_) => {}
        }
    }
    let number = free.ok_or(busy(current_tgid()))?;
    let place = ptr::from_ref(session).cast_mut();
    if let Some(target) = session.target() {
        let waiting = if session.starts_on_exec() { WAITING } else { 0 };
        if !PROCESSES.set(&mut writer, target.tgid(), number as u32 | waiting) {
            return Err(busy(current_tgid()));
        }
        // The exit probe looks for the process after its last thread has been counted out, under the same lock: either
        // it finds the entry, or this finds no thread alive.
        if !target.is_alive() {
            PROCESSES.remove(&mut writer, target.tgid());
            return Err(Refusal::new(Reason::NoProcess, [u64::from(target.tgid()), 0]));
        }
        session.set_members(1);
    } else {
        SYSTEM.store(place, Ordering::Release);
    }
    RUNNING[number].store(place, Ordering::Release);
    Ok(())
}

/// Whether two sessions would measure the same thread: a thread's counters serve one session.
fn excludes(one: &Session, other: &Session) -> bool {
    match (one.target(), other.target()) {
        (Some(one_target), Some(target)) => {
            one_target.tgid() == target.tgid()
                || PROCESSES.get(target.tgid()).is_some_and(|value| is_at(one, value & PLACE))
        }
        _ => true,
    }
}

fn is_at(session: &Session, number: u32) -> bool {
    RUNNING.get(number as usize).is_some_and(|place| ptr::eq(place.load(Ordering::Relaxed), session))
}

fn busy(owner: u32) -> Refusal {
    Refusal::new(Reason::SessionBusy, [u64::from(owner), 0])
}

/// Takes a session out; nothing finds it any more, but CPUs may still measure for it until they are interrupted.
pub(super) fn remove(session: &Session) {
    let mut writer = WRITER.lock();
    if ptr::eq(SYSTEM.load(Ordering::Relaxed), session) {
        SYSTEM.store(ptr::null_mut(), Ordering::Release);
    }
    for (number, place) in RUNNING.iter().enumerate() {
        if ptr::eq(place.load(Ordering::Relaxed), session) {
            PROCESSES.remove_all(&mut writer, |value| value & PLACE == number as u32);
            place.store(ptr::null_mut(), Ordering::Release);
        }
    }
}

/// A process forked: its child is measured as it is, if the session wants that.
pub(super) fn fork(parent: u32, child: u32, irq: &LocalInterruptDisabled) {
    if PROCESSES.get(parent).is_none() {
        return;
    }
    let mut writer = WRITER.lock();
    let Some(value) = PROCESSES.get(parent).filter(|value| value & WAITING == 0) else { return };
    let Some(session) = RUNNING.get((value & PLACE) as usize).and_then(|place| at(place, irq)) else {
        return;
    };
    if session.inherits() {
        if PROCESSES.set(&mut writer, child, value) {
            session.set_members(session.members() + 1);
        } else {
            pr_warn_once!("too many processes are measured; process {} is left out\n", child);
        }
    }
}

/// A process calls `execve`: one that waited for it is measured from now on; one whose session must not see what a
/// secure `execve` started is not any more. Whether anything changed.
pub(super) fn exec(tgid: u32, secure: bool, irq: &LocalInterruptDisabled) -> bool {
    if PROCESSES.get(tgid).is_none() {
        return false;
    }
    let mut writer = WRITER.lock();
    let Some(value) = PROCESSES.get(tgid) else { return false };
    let Some(session) = RUNNING.get((value & PLACE) as usize).and_then(|place| at(place, irq)) else {
        return false;
    };
    if secure && !session.is_privileged() {
        forget(&mut writer, session, tgid);
        return true;
    }
    value & WAITING != 0 && PROCESSES.set(&mut writer, tgid, value & PLACE)
}

/// The last thread of a process exits.
pub(super) fn exit(tgid: u32, irq: &LocalInterruptDisabled) {
    if PROCESSES.get(tgid).is_none() {
        return;
    }
    let mut writer = WRITER.lock();
    let Some(value) = PROCESSES.get(tgid) else { return };
    if let Some(session) = RUNNING.get((value & PLACE) as usize).and_then(|place| at(place, irq)) {
        forget(&mut writer, session, tgid);
    }
}

fn forget(writer: &mut Writer, session: &Session, tgid: u32) {
    PROCESSES.remove(writer, tgid);
    session.set_members(session.members().saturating_sub(1));
    if session.members() == 0 {
        session.say_target_is_gone();
    }
}

/// Notes that a session has published.
pub(super) fn note_news() {
    if !NEWS.load(Ordering::Relaxed) {
        NEWS.store(true, Ordering::Relaxed);
    }
}

/// Whether a session has published since readers were last woken.
pub(super) fn has_news() -> bool {
    NEWS.load(Ordering::Relaxed)
}

/// Wakes whoever waits for a session that has published. Not from the NMI or under the run-queue lock.
pub(super) fn wake_readers(irq: &LocalInterruptDisabled) {
    NEWS.store(false, Ordering::Relaxed);
    sessions(irq).for_each(Session::wake_readers);
}
