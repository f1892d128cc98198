//! Logs the entries and exits of functions that were compiled with `-finstrument-functions`, into the folder that the environment
//! variable `HPM_METHODS` names ([`libhpm::call_log`]). Loaded by LD_PRELOAD, as `hpmctl methods` does; without the
//! variable it does nothing.
//!
//! A thread writes into a mapped file of its own, without a lock or a system call but when a window of the file is full, or the clock or
//! an event needs one. What the shim itself costs is measured when a process begins, by calling itself, and subtracted when
//! the file is read.

mod clock;
mod counting;
mod ffi;
mod log;
mod process;
mod readings;
mod table;
mod thread;

use std::cell::{Cell, RefCell};

use libhpm::analysis::method::CallKind;
use libhpm::call_log::Record;
use nix::errno::Errno;

use process::Process;
use thread::Thread;

thread_local! {
    /// What the calling thread writes with; nothing before its first event and after its end.
    static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) };
    /// Events since the last record that the filter left out.
    static SKIPPED: Cell<u64> = const { Cell::new(0) };
    /// The thread is in [`set_up`]: its own calls, and those of a signal's handler, are not logged.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// An entry or exit. Does not change errno.
pub(crate) fn hook(kind: CallKind, function: u64, site: u16, frame: u64) {
    match table::decision(function) {
        Some(false) => SKIPPED.set(SKIPPED.get() + 1),
        Some(true) => write(kind, function, site, frame),
        None => match set_up(function) {
            Some(true) => write(kind, function, site, frame),
            Some(false) => SKIPPED.set(SKIPPED.get() + 1),
            None => {}
        },
    }
}

fn write(kind: CallKind, function: u64, site: u16, frame: u64) {
    // The thread is at its end, or a signal came while it was here: nothing can be written then.
    let _ = THREAD.try_with(|thread| {
        let Ok(mut thread) = thread.try_borrow_mut() else {
            LOST.set(LOST.get() + 1);
            return;
        };
        if thread.as_ref().is_none_or(|thread| thread.forks != ffi::forks()) {
            drop(thread);
            begin();
            return write(kind, function, site, frame);
        }
        let Some(thread) = thread.as_mut() else { return };
        let skipped = SKIPPED.replace(0);
        thread.record(Record { kind, function, site, frame, skipped });
    });
}

thread_local! {
    /// Events that a signal's handler could not write.
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// Whether the calling thread is in [`set_up`].
pub(crate) fn is_inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(true)
}

/// What the thread lost since it was asked last.
pub(crate) fn lost() -> u64 {
    LOST.try_with(|lost| lost.replace(0)).unwrap_or(0)
}

/// Decides whether a function is logged that has not been seen before. `None` when the shim itself is at work.
#[cold]
fn set_up(function: u64) -> Option<bool> {
    guarded(|| Process::current().map(|process| process.decide(function)))?
}

/// Gives the calling thread its log. A thread that gets none is not logged.
#[cold]
fn begin() {
    guarded(|| {
        let started = Process::current().and_then(Thread::begin);
        let started = started.unwrap_or_else(Thread::without_log);
        let _ = THREAD.try_with(|thread| {
            if let Ok(mut thread) = thread.try_borrow_mut()
                && let Some(before) = thread.replace(started)
            {
                // Of the parent before a fork: its file and its mappings are none of this process's.
                std::mem::forget(before);
            }
        });
    });
    Process::calibrate();
}

/// Does what changes things that threads share; `None` when the calling thread is already about to.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    if INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true) {
        return None;
    }
    let errno = Errno::last_raw();
    ffi::acquire();
    let result = work();
    ffi::release();
    Errno::set_raw(errno);
    let _ = INSIDE.try_with(|inside| inside.set(false));
    Some(result)
}
