// SPDX-License-Identifier: GPL-2.0
//! Which of the sessions that measure a thread has the PMU.

use core::sync::atomic::{AtomicU64, Ordering};

use kernel::bindings;

use super::super::cpu::Cpu;
use super::super::interrupts::LocalInterruptDisabled;
use super::super::session::Session;
use super::super::{machine, sys};
use super::{alone, at, sessions_at, GROUPED, PLACE, PROCESSES, RUNNING, WAITING, WHOLE};
use crate::hpm_core::sharing::{choose, SLOT_MS};
use crate::hpm_core::Thread;

/// A bit for each place of [`RUNNING`] whose session shares; 0 while nobody is there to share with. Written under the registry's lock.
static SHARING: AtomicU64 = AtomicU64::new(0);

/// The session that measures a thread, and those that wait for their turn meanwhile.
#[derive(Clone, Copy)]
pub(in super::super) struct Chosen<'a> {
    pub(in super::super) session: &'a Session,
    /// A bit for each place of [`RUNNING`].
    pub(in super::super) waiting: u64,
}

/// Notes who shares, of the sessions that are started.
///
/// # Safety
/// Called under the lock that sessions are inserted and removed under.
pub(super) unsafe fn note_sharers() {
    let (mut started, mut sharing) = (0_u32, 0);
    for (number, place) in RUNNING.iter().enumerate() {
        // SAFETY: The caller's promise.
        if let Some(session) = unsafe { place.load(Ordering::Relaxed).as_ref() } {
            started += 1;
            sharing |= if session.is_shared() { 1 << number } else { 0 };
        }
    }
    SHARING.store(if started > 1 { sharing } else { 0 }, Ordering::Release);
}

/// The session that measures this task on this CPU now.
///
/// # Safety
/// The task is alive, and `thread` says who it is.
#[inline]
pub(in super::super) unsafe fn session_of<'a>(
    task: *mut bindings::task_struct,
    thread: Thread,
    cpu: &Cpu,
    irq: &'a LocalInterruptDisabled,
) -> Option<Chosen<'a>> {
    // SAFETY: The caller's promise.
    let only = unsafe { only_session_of(task, thread, cpu, irq) };
    // Asked for last: who was found has noted before that it shares.
    if SHARING.load(Ordering::Acquire) != 0 {
        // SAFETY: The caller's promise.
        return unsafe { shared_session_of(task, thread, cpu, irq) };
    }
    only.filter(|only| !only.has_given_up()).map(|session| Chosen { session, waiting: 0 })
}

/// As [`session_of`], where sessions share. Apart, because each switch asks, and mostly none does.
///
/// # Safety
/// The task is alive, and `thread` says who it is.
#[cold]
#[inline(never)]
unsafe fn shared_session_of<'a>(
    task: *mut bindings::task_struct,
    thread: Thread,
    cpu: &Cpu,
    irq: &'a LocalInterruptDisabled,
) -> Option<Chosen<'a>> {
    // SAFETY: The caller's promise.
    let (covering, sharing) = unsafe { covering(task, thread, cpu, irq) };
    let number = choose(covering, sharing, sys::rdtsc() / slot_tsc())?;
    let session = at(RUNNING.get(number as usize)?, irq)?;
    Some(Chosen { session, waiting: covering & !(1 << number) })
}

/// As [`session_of`], where no two sessions measure the same thread; else one of them.
///
/// # Safety
/// The task is alive, and `thread` says who it is.
unsafe fn only_session_of<'a>(
    task: *mut bindings::task_struct,
    thread: Thread,
    cpu: &Cpu,
    irq: &'a LocalInterruptDisabled,
) -> Option<&'a Session> {
    if let Some(session) = everywhere(cpu, irq).next() {
        return Some(session.1);
    }
    if let Some(value) = alone(thread.tid, task, irq).or_else(|| PROCESSES.get(thread.pid)) {
        return if value & WAITING == 0 { at(RUNNING.get((value & PLACE) as usize)?, irq) } else { None };
    }
    // SAFETY: The caller's promise.
    unsafe { by_group(task, irq) }.map(|(_, session)| session).next()
}

/// A bit for the place of each session that measures this task on this CPU, and of each of these that shares.
///
/// # Safety
/// The task is alive, and `thread` says who it is.
unsafe fn covering(
    task: *mut bindings::task_struct,
    thread: Thread,
    cpu: &Cpu,
    irq: &LocalInterruptDisabled,
) -> (u64, u64) {
    let named = [alone(thread.tid, task, irq), PROCESSES.get(thread.pid)];
    let places = named.into_iter().flatten().filter(|value| value & WAITING == 0);
    let named = places.fold(0, |bits, value| bits | 1_u64.checked_shl(value & PLACE).unwrap_or(0));
    // SAFETY: The caller's promise.
    let grouped = unsafe { by_group(task, irq) };
    sessions_at(named, irq)
        .chain(everywhere(cpu, irq))
        .chain(grouped)
        .filter(|(_, session)| !session.has_given_up())
        .fold((0, 0), |(all, sharing), (number, session)| {
            let bit = 1 << number;
            (all | bit, sharing | if session.is_shared() { bit } else { 0 })
        })
}

/// The sessions that measure every thread on this CPU, each with its place.
fn everywhere<'a>(cpu: &Cpu, irq: &'a LocalInterruptDisabled) -> impl Iterator<Item = (usize, &'a Session)> {
    let number = cpu.number();
    sessions_at(WHOLE.load(Ordering::Acquire), irq).filter(move |(_, session)| session.may_run_on(number))
}

/// The sessions that measure a control group of the task's, each with its place.
///
/// # Safety
/// The task is alive.
unsafe fn by_group(
    task: *mut bindings::task_struct,
    irq: &LocalInterruptDisabled,
) -> impl Iterator<Item = (usize, &Session)> {
    // SAFETY: The caller's promise, and interrupts are off.
    sessions_at(GROUPED.load(Ordering::Acquire), irq)
        .filter(move |(_, session)| unsafe { session.has_in_group(task) })
}

/// TSC ticks of a slot.
pub(in super::super) fn slot_tsc() -> u64 {
    machine::ns_to_tsc(SLOT_MS * 1_000_000).max(1)
}

/// TSC ticks from `now` to the next slot.
pub(in super::super) fn slot_left(now: u64) -> u64 {
    let slot = slot_tsc();
    slot - now % slot
}
