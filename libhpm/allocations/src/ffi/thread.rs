//! What each thread does: draws, follows frame pointers, and writes into its chunk.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::log::{FRAMES_KEPT, KEY, lost, new_chunk};
use super::{Shared, at_work, tsc};
use crate::format::{CHUNK_BYTES, CHUNK_WORDS, FRAMES_MAX, entry};

/// Longest stack that frame pointers are followed in.
const STACK_BYTES_MAX: usize = 256 << 20;
/// Chunks of threads that have ended, kept for the next threads.
pub(super) const SPARE: usize = 64;

/// What a thread has.
pub(super) struct Thread {
    /// This library is at work, or asked the C library for something.
    pub(super) busy: Cell<bool>,
    /// Its chunk, or null.
    pub(super) chunk: Cell<*mut u64>,
    /// Words of the chunk that are written.
    used: Cell<usize>,
    /// Where its stack ends; 0 while not known, 1 when it cannot be.
    stack_end: Cell<usize>,
    /// Where `operator new` was called from, and the frame pointer then.
    pub(super) site: Cell<(usize, usize)>,
    /// Bytes until the next recorded allocation.
    until_next: Cell<i64>,
    random: Cell<u64>,
}

thread_local! {
    pub(super) static THREAD: Thread = const {
        Thread {
            busy: Cell::new(false),
            chunk: Cell::new(null_mut()),
            used: Cell::new(0),
            stack_end: Cell::new(0),
            site: Cell::new((0, 0)),
            until_next: Cell::new(0),
            random: Cell::new(0),
        }
    };
}

static SPARES: Shared<[(usize, usize); SPARE]> = Shared(UnsafeCell::new([(0, 0); SPARE]));
pub(super) static SPARES_LOCK: AtomicBool = AtomicBool::new(false);

impl Thread {
    /// Whether an allocation of this size is one of those to be recorded: the distances between them are exponentially distributed.
    pub(super) fn is_drawn(&self, size: usize, mean: u64) -> bool {
        if self.random.get() == 0 {
            self.random.set(tsc() | 1);
            self.until_next.set(self.distance(mean));
        }
        let left = self.until_next.get().saturating_sub(i64::try_from(size).unwrap_or(i64::MAX));
        if left > 0 {
            self.until_next.set(left);
            return false;
        }
        self.until_next.set(self.distance(mean));
        true
    }

    fn distance(&self, mean: u64) -> i64 {
        // xorshift64 (Marsaglia, Journal of Statistical Software 8, 2003).
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        let uniform = ((random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-libm::log(uniform) * mean as f64) as i64 + 1
    }

    /// Return addresses behind the first one as far as frame pointers lead through this thread's stack; how many there are with it.
    #[inline(never)]
    pub(super) fn walk(&self, mut frame: usize, frames: &mut [u64; FRAMES_MAX]) -> usize {
        let here = &raw const frame as usize;
        let end = self.stack_end(here);
        let most = FRAMES_KEPT.load(Relaxed).clamp(1, FRAMES_MAX);
        let mut below = here;
        for (count, slot) in frames.iter_mut().enumerate().take(most).skip(1) {
            if frame <= below || !frame.is_multiple_of(8) || frame.saturating_add(16) > end {
                return count;
            }
            // SAFETY: both words lie between this function's frame and the end of this thread's stack, which is mapped.
            let (next, caller) = unsafe { (*(frame as *const usize), *((frame + 8) as *const u64)) };
            if caller < 4096 || caller >> 47 != 0 {
                return count;
            }
            *slot = caller;
            (below, frame) = (frame, next);
        }
        most
    }

    /// Where this thread's stack ends, if `here` is in it; else 0.
    fn stack_end(&self, here: usize) -> usize {
        if self.stack_end.get() == 0 {
            self.stack_end.set(find_stack_end().max(1));
        }
        let end = self.stack_end.get();
        // Not on the stack of a signal handler or of a coroutine.
        if (here..here.saturating_add(STACK_BYTES_MAX)).contains(&end) { end } else { 0 }
    }

    /// Writes an entry into the thread's chunk.
    pub(super) fn write(&self, first: &[u64], then: &[u64]) {
        let words = first.len() + then.len();
        if self.chunk.get().is_null() || self.used.get() + words > CHUNK_WORDS {
            self.next_chunk();
        }
        let (chunk, used) = (self.chunk.get(), self.used.get());
        if chunk.is_null() {
            lost();
            return;
        }
        // SAFETY: the chunk has room for the words, is mapped, and belongs to this thread. The first word is written last, so that
        // an entry that is cut off by the process's end is none.
        unsafe {
            let place = chunk.add(used);
            for (index, word) in first.iter().chain(then).enumerate().skip(1) {
                place.add(index).write_volatile(*word);
            }
            place.write_volatile(first[0]);
        }
        self.used.set(used + words);
    }

    #[cold]
    fn next_chunk(&self) {
        let old = self.chunk.replace(null_mut());
        if !old.is_null() {
            // SAFETY: the chunk was mapped with this size, and nobody else has it.
            unsafe { libc::munmap(old.cast(), CHUNK_BYTES) };
        }
        let (chunk, used) = spare_chunk().unwrap_or_else(|| (new_chunk(), 0));
        if chunk.is_null() {
            return;
        }
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
        // SAFETY: the chunk is this thread's, and has room for a word: spare ones have at least as much as an entry.
        unsafe { chunk.add(used).write_volatile(entry::THREAD | tid << 8) };
        self.used.set(used + 1);
        self.chunk.set(chunk);
        if old.is_null() {
            // So that the chunk is given back when the thread ends.
            let key = KEY.load(Relaxed);
            if key != usize::MAX {
                // SAFETY: the key was made by pthread_key_create; the value is only compared with null.
                unsafe { libc::pthread_setspecific(key as libc::pthread_key_t, chunk as *const c_void) };
            }
        }
    }
}

/// The end of the calling thread's stack.
fn find_stack_end() -> usize {
    unsafe extern "C" {
        /// The stack pointer with which the program began (ld.so).
        static __libc_stack_end: *const c_void;
    }
    // SAFETY: neither call has preconditions; ld.so sets the variable before any other code runs. The attributes are initialised by
    // the call that succeeds.
    unsafe {
        if libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()) {
            return __libc_stack_end as usize;
        }
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return 0;
        }
        let (mut start, mut size) = (null_mut(), 0);
        libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut size);
        libc::pthread_attr_destroy(&raw mut attributes);
        start as usize + size
    }
}

/// A chunk that a thread left, with room for an entry.
fn spare_chunk() -> Option<(*mut u64, usize)> {
    with_spares(|spares| {
        let spare = spares.iter_mut().find(|(chunk, _)| *chunk != 0)?;
        let (chunk, used) = std::mem::take(spare);
        Some((chunk as *mut u64, used))
    })
}

pub(super) fn with_spares<T>(work: impl FnOnce(&mut [(usize, usize); SPARE]) -> T) -> T {
    while SPARES_LOCK.swap(true, Acquire) {
        std::hint::spin_loop();
    }
    // SAFETY: the lock is held.
    let result = work(unsafe { &mut *SPARES.0.get() });
    SPARES_LOCK.store(false, Release);
    result
}

/// A thread ends: its chunk is for others.
pub(super) extern "C" fn thread_ends(_: *mut c_void) {
    at_work(|thread| {
        let (chunk, used) = (thread.chunk.replace(null_mut()), thread.used.get());
        if chunk.is_null() {
            return;
        }
        let keep = |spares: &mut [(usize, usize); SPARE]| {
            let free = spares.iter_mut().find(|(chunk, _)| *chunk == 0);
            free.map(|free| *free = (chunk as usize, used)).is_some()
        };
        // A word for the next thread's name, and the longest entry.
        if used + 1 + 3 + FRAMES_MAX > CHUNK_WORDS || !with_spares(keep) {
            // SAFETY: the chunk was mapped with this size, and nobody else has it.
            unsafe { libc::munmap(chunk.cast(), CHUNK_BYTES) };
        }
    });
}
