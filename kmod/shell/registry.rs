// SPDX-License-Identifier: GPL-2.0
//! Which session measures which thread: what the scheduler's probes look up.
//!
//! A reference to a session is valid while interrupts are off: stopping first takes the session out of here, and then
//! interrupts every CPU before anything is freed.

mod choice;

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use kernel::bindings;
use kernel::pr_warn_once;
use kernel::prelude::*;
use kernel::sync::global_lock;

pub(super) use self::choice::{session_of, slot_left, slot_tsc, Chosen};
use super::interrupts::LocalInterruptDisabled;
use super::session::Session;
use super::subject::Subject;
use super::target::Target;
use super::{machine, sys};
use crate::hpm_abi::Reason;
use crate::hpm_core::processes::{Processes, Writer, GROUPS, PROCESSES_MAX};
use crate::hpm_core::{Refusal, Thread};

/// Sessions that can run at the same time: one bit each of [`GROUPED`].
pub(super) const SESSIONS_MAX: usize = GROUPS;
/// Of a table's value: the session's place in [`RUNNING`], which is its group there.
const PLACE: u32 = 0xff;
/// Of a table's value: the process or thread is not measured yet, but from its next `execve` on, or once it is known that it may be.
const WAITING: u32 = 0x100;

static RUNNING: [AtomicPtr<Session>; SESSIONS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; SESSIONS_MAX];
static PROCESSES: Processes = Processes::new();
/// Threads that are measured alone.
static THREADS: Processes = Processes::new();
/// A bit for each place of [`RUNNING`] whose session measures a control group.
static GROUPED: AtomicU64 = AtomicU64::new(0);
/// A bit for each place of [`RUNNING`] whose session measures every thread, of all CPUs or of one.
static WHOLE: AtomicU64 = AtomicU64::new(0);
/// A bit for each place of [`RUNNING`] whose session measures a thread alone.
static ALONE: AtomicU64 = AtomicU64::new(0);
/// A bit for each place of [`RUNNING`] whose session has hardware write records.
static PRECISE: AtomicU64 = AtomicU64::new(0);
/// TSC of the first that a session has published since readers were last woken; 0 for nothing.
static NEWS_SINCE: AtomicU64 = AtomicU64::new(0);
/// The shortest [`Session::wake_within`] of all that are started, in TSC ticks.
static WAKE_WITHIN: AtomicU64 = AtomicU64::new(u64::MAX);

/// The writers of both tables.
struct Writers {
    processes: Writer,
    threads: Writer,
}

global_lock! {
    // SAFETY: `set_up` initialises it before anything else here is called.
    unsafe(uninit) static WRITER: SpinLock<Writers> =
        Writers { processes: Writer::new(), threads: Writer::new() };
}

/// Initialises the lock.
///
/// # Safety
/// Called once, before anything else here.
pub(super) unsafe fn set_up() {
    // SAFETY: The caller's promise.
    unsafe { WRITER.init() };
}

/// The session that a place of [`RUNNING`] refers to.
fn at<'a>(place: &AtomicPtr<Session>, _irq: &'a LocalInterruptDisabled) -> Option<&'a Session> {
    // SAFETY: A session that is stopped is taken out of here, and freed only after every CPU was interrupted.
    unsafe { place.load(Ordering::Acquire).as_ref() }
}

/// Whether hardware writes records for a started session.
pub(super) fn has_precise() -> bool {
    PRECISE.load(Ordering::Relaxed) != 0
}

/// Whether a started session measures a control group.
pub(super) fn has_groups() -> bool {
    GROUPED.load(Ordering::Relaxed) != 0
}

/// The started sessions of the places that `bits` has a bit for, each with its place.
pub(super) fn sessions_at(
    bits: u64,
    irq: &LocalInterruptDisabled,
) -> impl Iterator<Item = (usize, &Session)> {
    let mut left = bits;
    core::iter::from_fn(move || {
        let number = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        RUNNING.get(number).map(|place| (number, at(place, irq)))
    })
    .filter_map(|(number, session)| Some((number, session?)))
}

/// The value of the thread that is measured alone under this number, if it is this one. A thread may go on under another number, or
/// end under it, before anybody here is told.
fn alone(tid: u32, task: *const bindings::task_struct, irq: &LocalInterruptDisabled) -> Option<u32> {
    // Each switch asks, and mostly nobody is.
    (ALONE.load(Ordering::Relaxed) != 0)
        .then(|| THREADS.get(tid))
        .flatten()
        .filter(|&value| session_at(value, irq).is_some_and(|session| session.is_for_thread(task)))
}

/// The session that measures this thread alone, under whatever number, and its place.
fn alone_at(task: *const bindings::task_struct, irq: &LocalInterruptDisabled) -> Option<(usize, &Session)> {
    sessions_at(ALONE.load(Ordering::Relaxed), irq).find(|(_, session)| session.is_for_thread(task))
}

/// Whether the tables say that this session measures the thread, or will.
pub(super) fn names(session: &Session, thread: Thread) -> bool {
    let values = [THREADS.get(thread.tid), PROCESSES.get(thread.pid)];
    values.into_iter().flatten().any(|value| is_at(session, value & PLACE))
}

/// Every session that is started.
pub(super) fn sessions(irq: &LocalInterruptDisabled) -> impl Iterator<Item = &Session> {
    RUNNING.iter().filter_map(move |place| at(place, irq))
}

/// Makes a session reachable, and its subject measured (or waiting for its `execve`).
///
/// # Errors
/// [`Reason::SessionBusy`] beside a session that excludes it, [`Reason::NoProcess`] when the target has exited,
/// [`Reason::ProofInvalid`] when it executes another program than the one that the session may see. Every CPU is to be
/// interrupted then before the session is freed, as after [`remove`].
pub(super) fn insert(session: &Session) -> Result<(), Refusal> {
    let mut writers = WRITER.lock();
    let mut free = None;
    for (number, place) in RUNNING.iter().enumerate() {
        // SAFETY: Sessions are inserted and removed under the control lock, which the caller holds.
        match unsafe { place.load(Ordering::Relaxed).as_ref() } {
            None => free = free.or(Some(number)),
            Some(other) if excludes(other, session) || machine::serves_one_session() => {
                return Err(busy(other.owner()));
            }
            Some(_) => {}
        }
    }
    let number = free.ok_or(Refusal::new(Reason::TooManySessions, [SESSIONS_MAX as u64, 0]))?;
    let place = ptr::from_ref(session).cast_mut();
    session.set_place(number);
    // The place comes first: whoever finds it in a table or a mask finds the session there.
    RUNNING[number].store(place, Ordering::Release);
    // Whether it shares is known before it is found by whom it measures.
    // SAFETY: The caller holds the control lock.
    unsafe { choice::note_sharers() };
    if session.is_precise() {
        PRECISE.fetch_or(1 << number, Ordering::Release);
    }
    let inserted = match session.subject() {
        Subject::Process(target) => {
            let waiting = if session.starts_on_exec() { WAITING } else { 0 };
            let value = number as u32 | waiting;
            insert_target(&PROCESSES, &mut writers.processes, (target.tgid(), value), target)
        }
        Subject::Thread(target) => {
            ALONE.fetch_or(1 << number, Ordering::Release);
            insert_target(&THREADS, &mut writers.threads, (target.number(), number as u32), target)
        }
        Subject::Cgroup(_) => {
            GROUPED.fetch_or(1 << number, Ordering::Release);
            Ok(())
        }
        Subject::System | Subject::Cpu(_) => {
            WHOLE.fetch_or(1 << number, Ordering::Release);
            Ok(())
        }
    };
    match inserted {
        Ok(()) => {
            session.set_members(1);
            WAKE_WITHIN.fetch_min(session.wake_within(), Ordering::Relaxed);
        }
        Err(_) => empty(number),
    }
    inserted
}

/// Nothing finds the session of this place any more. Under the control lock.
fn empty(number: usize) {
    for bits in [&GROUPED, &WHOLE, &ALONE, &PRECISE] {
        bits.fetch_and(!(1 << number), Ordering::Release);
    }
    RUNNING[number].store(ptr::null_mut(), Ordering::Release);
    // SAFETY: The caller holds the control lock.
    unsafe { choice::note_sharers() };
}

fn insert_target(
    table: &Processes,
    writer: &mut Writer,
    (key, value): (u32, u32),
    target: &Target,
) -> Result<(), Refusal> {
    if let Some(found) = table.get(key) {
        let place = RUNNING.get((found & PLACE) as usize);
        // SAFETY: As in `insert`.
        let holder = place.and_then(|place| unsafe { place.load(Ordering::Relaxed).as_ref() });
        // An entry goes before its session does.
        return Err(busy(holder.map_or(0, Session::owner)));
    }
    // Nobody is measured before it is known that it may be: the scheduler looks here without the lock.
    if !table.set(writer, key, value | WAITING) {
        return Err(Refusal::new(Reason::TooManyProcesses, [PROCESSES_MAX as u64, 0]));
    }
    // The exit and exec probes look for their entries after the thread has been counted out or its address space
    // replaced, under the same lock: either they find this one, or this finds that they are late.
    let reason = if !target.is_alive() || target.number() != key {
        Reason::NoProcess
    } else if !target.is_entitled() {
        Reason::ProofInvalid
    } else {
        // An entry that is there is always replaced.
        let _ = table.set(writer, key, value);
        return Ok(());
    };
    table.remove(writer, key);
    Err(Refusal::new(reason, [u64::from(key), 0]))
}

/// Whether two sessions could measure the same thread, and neither shares: a thread's counters serve one session at a time.
fn excludes(one: &Session, other: &Session) -> bool {
    if one.is_shared() || other.is_shared() {
        // A thread has an entry for one session, under either of the numbers that it has in `execve`.
        return match (one.subject(), other.subject()) {
            (Subject::Thread(thread), Subject::Thread(other)) => thread.is_the_thread_of(other),
            _ => false,
        };
    }
    one.subject().may_meet(other.subject())
        || other
            .subject()
            .target()
            .is_some_and(|target| PROCESSES.get(target.tgid()).is_some_and(|value| is_at(one, value & PLACE)))
}

fn is_at(session: &Session, number: u32) -> bool {
    RUNNING.get(number as usize).is_some_and(|place| ptr::eq(place.load(Ordering::Relaxed), session))
}

fn busy(owner: u32) -> Refusal {
    Refusal::new(Reason::SessionBusy, [u64::from(owner), 0])
}

/// Takes a session out; nothing finds it any more, but CPUs may still measure for it until they are interrupted.
pub(super) fn remove(session: &Session) {
    let mut writers = WRITER.lock();
    for (number, place) in RUNNING.iter().enumerate() {
        if ptr::eq(place.load(Ordering::Relaxed), session) {
            PROCESSES.remove_group(&mut writers.processes, number);
            THREADS.remove_group(&mut writers.threads, number);
            empty(number);
        }
    }
    // SAFETY: As in `insert`.
    let left = RUNNING.iter().filter_map(|place| unsafe { place.load(Ordering::Relaxed).as_ref() });
    WAKE_WITHIN.store(left.map(Session::wake_within).min().unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// A process forked: its child is measured as it is, if the session wants that.
pub(super) fn fork(parent: u32, child: u32, irq: &LocalInterruptDisabled) {
    if PROCESSES.get(parent).is_none() {
        return;
    }
    let mut writers = WRITER.lock();
    let Some(value) = PROCESSES.get(parent).filter(|value| value & WAITING == 0) else { return };
    let Some(session) = session_at(value, irq) else { return };
    if session.inherits() {
        // Somebody has begun to measure the child already.
        let taken = PROCESSES.get(child).is_some();
        if !taken && PROCESSES.set(&mut writers.processes, child, value) {
            session.set_members(session.members() + 1);
        } else {
            session.note_process_left_out();
            pr_warn_once!(
                "too many processes are measured, or process {} by another session; it is left out\n",
                child
            );
        }
    }
}

/// The current thread executes a program, or is about to, whose rights are not its own: sessions that must not see such do not measure it
/// any more. A thread that is measured alone is known by its task: a session may have been started within this very `execve`, and have
/// another of its two numbers.
pub(super) fn leave(task: *const bindings::task_struct, thread: Thread, irq: &LocalInterruptDisabled) {
    if PROCESSES.get(thread.pid).is_none() && alone_at(task, irq).is_none() {
        return;
    }
    let mut writers = WRITER.lock();
    if let Some((number, session)) = alone_at(task, irq).filter(|(_, session)| !session.is_privileged()) {
        if THREADS.remove_group(&mut writers.threads, number) {
            drop_member(session);
        }
    }
    let must = |value: &u32| session_at(*value, irq).is_some_and(|session| !session.is_privileged());
    let value = PROCESSES
        .get(thread.pid)
        .filter(must)
        .and_then(|_| PROCESSES.remove(&mut writers.processes, thread.pid));
    value.and_then(|value| session_at(value, irq)).into_iter().for_each(drop_member);
}

/// The current thread has called `execve`, and before that had the ID `old_tid`: a process that waited for it is measured from now
/// on, and a thread that is measured alone goes on under its new ID.
pub(super) fn exec(
    task: *const bindings::task_struct,
    thread: Thread,
    old_tid: u32,
    irq: &LocalInterruptDisabled,
) {
    if PROCESSES.get(thread.pid).is_none() && alone(old_tid, task, irq).is_none() {
        return;
    }
    let mut writers = WRITER.lock();
    if let Some(value) = alone(old_tid, task, irq).filter(|_| old_tid != thread.tid) {
        THREADS.remove(&mut writers.threads, old_tid);
        if !THREADS.set(&mut writers.threads, thread.tid, value) {
            session_at(value, irq).into_iter().for_each(drop_member);
        }
    }
    if let Some(value) = PROCESSES.get(thread.pid).filter(|value| value & WAITING != 0) {
        // An entry that is there is always replaced.
        let _ = PROCESSES.set(&mut writers.processes, thread.pid, value & PLACE);
    }
}

/// A thread exits, with `group_dead` as the last one of its process.
pub(super) fn exit(
    task: *const bindings::task_struct,
    thread: Thread,
    group_dead: bool,
    irq: &LocalInterruptDisabled,
) {
    let last = group_dead && PROCESSES.get(thread.pid).is_some();
    if !last && alone_at(task, irq).is_none() {
        return;
    }
    let mut writers = WRITER.lock();
    if let Some((number, session)) = alone_at(task, irq) {
        if alone(thread.tid, task, irq).is_some() {
            THREADS.remove(&mut writers.threads, thread.tid);
        } else {
            // It took another number in an `execve` that failed afterwards.
            THREADS.remove_group(&mut writers.threads, number);
        }
        drop_member(session);
    }
    if let Some(value) = last.then(|| PROCESSES.remove(&mut writers.processes, thread.pid)).flatten() {
        session_at(value, irq).into_iter().for_each(drop_member);
    }
}

fn session_at(value: u32, irq: &LocalInterruptDisabled) -> Option<&Session> {
    at(RUNNING.get((value & PLACE) as usize)?, irq)
}

/// One of the session's processes or threads is not measured any more. Under the lock.
fn drop_member(session: &Session) {
    session.set_members(session.members().saturating_sub(1));
    if session.members() == 0 {
        session.say_target_is_gone();
    }
}

/// TSC ticks within which readers are to be woken; without any session, those of a second.
pub(super) fn wake_within() -> u64 {
    match WAKE_WITHIN.load(Ordering::Relaxed) {
        u64::MAX => machine::ns_to_tsc(1_000_000_000),
        ticks => ticks,
    }
}

/// Notes that a session has published.
pub(super) fn note_news() {
    if NEWS_SINCE.load(Ordering::Relaxed) == 0 {
        NEWS_SINCE.store(sys::rdtsc(), Ordering::Relaxed);
    }
}

/// TSC of the first that a session has published since readers were last woken.
pub(super) fn news_since() -> Option<u64> {
    Some(NEWS_SINCE.load(Ordering::Relaxed)).filter(|tsc| *tsc != 0)
}

/// Wakes whoever waits for a session that has published. Not from the NMI or under the run-queue lock.
pub(super) fn wake_readers(irq: &LocalInterruptDisabled) {
    NEWS_SINCE.store(0, Ordering::Relaxed);
    sessions(irq).for_each(Session::wake_readers);
}
