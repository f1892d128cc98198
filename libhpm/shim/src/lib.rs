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

/// What hooks need of the thread that calls them, in one place: to look for it costs a call.
struct Calling {
    /// What it writes with; nothing before its first event.
    thread: RefCell<Option<Thread>>,
    /// Events since the last record that the filter left out.
    skipped: Cell<u64>,
}

thread_local! {
    /// Not there any more at a thread's end.
    static CALLING: Calling = const { Calling { thread: RefCell::new(None), skipped: Cell::new(0) } };
    /// The thread is in [`guarded`]: its own calls, and those of a signal's handler, are not logged.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Events that a signal's handler could not write.
    static LOST: Cell<u64> = const { Cell::new(0) };
}

/// An entry or exit. Does not change errno.
#[inline]
pub(crate) fn hook(kind: CallKind, function: u64, site: u16, frame: u64) {
    // At the thread's end nothing can be written.
    let _ = CALLING.try_with(|calling| {
        let decision = table::decision(function).or_else(|| set_up(function));
        match decision {
            Some(true) => calling.write(Record { kind, function, site, frame, skipped: 0 }),
            Some(false) => calling.skipped.set(calling.skipped.get() + 1),
            None => {}
        }
    });
}

impl Calling {
    #[inline]
    fn write(&self, record: Record) {
        if !self.try_write(record) {
            self.begin_and_write(record);
        }
    }

    /// `false` for a thread that has no log yet.
    #[inline]
    fn try_write(&self, mut record: Record) -> bool {
        let Ok(mut thread) = self.thread.try_borrow_mut() else {
            // A signal came while the thread was here.
            LOST.set(LOST.get() + 1);
            return true;
        };
        let Some(thread) = thread.as_mut().filter(|thread| thread.forks == ffi::forks()) else {
            return false;
        };
        record.skipped = self.skipped.replace(0);
        thread.record(record);
        true
    }

    #[cold]
    fn begin_and_write(&self, record: Record) {
        begin();
        if !self.try_write(record) {
            // A signal came while the thread was about to begin.
            LOST.set(LOST.get() + 1);
        }
    }
}

/// Does something with the calling thread's log.
pub(crate) fn with_thread<T>(work: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    CALLING.try_with(|calling| calling.thread.try_borrow_mut().ok()?.as_mut().map(work)).ok()?
}

/// Forgets events that the calling thread left out.
pub(crate) fn forget_skipped() {
    let _ = CALLING.try_with(|calling| calling.skipped.set(0));
}

/// Whether the calling thread is in [`guarded`].
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
        let _ = CALLING.try_with(|calling| {
            if let Ok(mut thread) = calling.thread.try_borrow_mut()
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
