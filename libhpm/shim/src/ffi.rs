//! What compilers call, and what C offers: the only unsafe code of the shim.
#![allow(unsafe_code, reason = "the boundary to compiled code and to C; see each block")]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libhpm::analysis::method::CallKind;
use libhpm::call_log::REHEARSAL_VARIABLE;
use memmap2::{MmapMut, MmapOptions};

use crate::hook;

/// Called by every instrumented function once it has made its frame (GCC manual, `-finstrument-functions`). Passes on where it was called from
/// (its own return address) and the caller's stack pointer, which only assembly can tell.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cyg_profile_func_enter(function: usize, call_site: usize) {
    std::arch::naked_asm!("mov rdx, [rsp]", "lea rcx, [rsp + 8]", "jmp {entered}", entered = sym entered)
}

/// Called by every instrumented function before it gives its frame back.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __cyg_profile_func_exit(function: usize, call_site: usize) {
    std::arch::naked_asm!("mov rdx, [rsp]", "lea rcx, [rsp + 8]", "jmp {left}", left = sym left)
}

extern "C" fn entered(function: usize, _call_site: usize, from: usize, frame: usize) {
    hook(CallKind::Enter, function as u64, from as u16, frame as u64);
}

extern "C" fn left(function: usize, call_site: usize, from: usize, frame: usize) {
    // Who returns to where the function itself would return was jumped to, after the function's frame had gone.
    let kind = if from == call_site { CallKind::TailExit } else { CallKind::Exit };
    hook(kind, function as u64, from as u16, frame as u64);
}

/// The dynamic loader calls what lies there when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    if std::env::var_os(REHEARSAL_VARIABLE).is_some() {
        __cyg_profile_func_enter(loaded as *const () as usize, 0);
        __cyg_profile_func_exit(loaded as *const () as usize, 0);
    }
}

/// Maps a part of a file for writing.
///
/// # Errors
/// The system's.
pub(crate) fn map(file: &File, offset: u64, length: usize) -> io::Result<MmapMut> {
    // SAFETY: the file was made by this thread under a name that nobody else uses, and no other code of this process writes to
    // it; hpmctl reads it by read(2), once the program has ended.
    unsafe { MmapOptions::new().offset(offset).len(length).map_mut(file) }
}

/// How many forks lie between this process and the one that loaded the shim.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Held by whoever changes what all threads share. A mutex would be left locked in a forked child, if another thread had it.
static BUSY: AtomicBool = AtomicBool::new(false);

/// See [`FORKS`].
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Waits until nobody changes what all threads share, and keeps others from it.
pub(crate) fn acquire() {
    while BUSY.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
}

/// The end of what [`acquire`] began.
pub(crate) fn release() {
    BUSY.store(false, Ordering::Release);
}

extern "C" fn before_fork() {
    if !crate::is_inside() {
        acquire();
    }
}

extern "C" fn after_fork_in_parent() {
    if !crate::is_inside() {
        release();
    }
}

extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    after_fork_in_parent();
}

/// Lets the shim know of forks.
pub(crate) fn watch_forks() {
    // SAFETY: the three functions have the type that is asked for, live as long as the library, and call only what is safe
    // after a fork: atomics, and sched_yield before it.
    let _ = unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child))
    };
}
