//! The log that the threads of a process share, and the table of recorded objects when not all are recorded.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use super::thread::{SPARE, SPARES_LOCK, thread_ends, with_spares};
use super::{Shared, at_work, tsc};
use crate::format::{self, CHUNK_BYTES, HEADER_BYTES, header};

/// Return addresses kept when nothing else is said.
const FRAMES: usize = 8;
/// Buckets of the table of recorded objects, of 8 addresses each: 8 MiB, of which what is used takes memory.
const BUCKETS: usize = 1 << 17;
const BUCKET: usize = 8;

/// Something is recorded. Set by the constructor, and taken back when the log cannot be written.
pub(super) static ON: AtomicBool = AtomicBool::new(false);
/// Mean bytes between recorded allocations; 0 for all.
pub(super) static SAMPLED_BYTES: AtomicU64 = AtomicU64::new(0);
pub(super) static FRAMES_KEPT: AtomicUsize = AtomicUsize::new(FRAMES);
static PID: AtomicU32 = AtomicU32::new(0);
/// Where in the file the next chunk begins.
static NEXT_CHUNK: AtomicUsize = AtomicUsize::new(HEADER_BYTES);
/// The header's page.
static HEADER: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Addresses of recorded objects, when not all are recorded.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
pub(super) static KEY: AtomicUsize = AtomicUsize::new(usize::MAX);

static PATH: Shared<[u8; libc::PATH_MAX as usize]> = Shared(UnsafeCell::new([0; libc::PATH_MAX as usize]));

pub(super) fn lost() {
    let header = HEADER.load(Acquire);
    if !header.is_null() {
        // SAFETY: the header's page stays mapped for the process's life and holds atomics.
        unsafe { (*header.add(header::LOST)).fetch_add(1, Relaxed) };
    }
}

/// Takes note of a recorded object; false when its bucket is full.
pub(super) fn remember(address: usize) -> bool {
    let Some(bucket) = bucket(address) else { return false };
    let free = |slot: &&AtomicU64| slot.compare_exchange(0, address as u64, AcqRel, Relaxed).is_ok();
    let found = bucket.iter().find(free).is_some();
    if !found {
        lost();
    }
    found
}

/// Whether an object was recorded; it is not any more.
pub(super) fn forget(address: usize) -> bool {
    let taken = |slot: &&AtomicU64| {
        slot.load(Acquire) == address as u64
            && slot.compare_exchange(address as u64, 0, AcqRel, Relaxed).is_ok()
    };
    bucket(address).is_some_and(|bucket| bucket.iter().find(taken).is_some())
}

fn bucket(address: usize) -> Option<&'static [AtomicU64]> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    // Fibonacci hashing (Knuth, volume 3, 6.4), of what differs between addresses.
    let hash = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BUCKETS.trailing_zeros());
    // SAFETY: the table has BUCKETS buckets of BUCKET words, is never unmapped, and all-zero words are valid atomics.
    Some(unsafe { std::slice::from_raw_parts(table.add(hash * BUCKET), BUCKET) })
}

/// Maps one more piece of the log; null, and the end of recording, when that cannot be.
pub(super) fn new_chunk() -> *mut u64 {
    let place = NEXT_CHUNK.fetch_add(CHUNK_BYTES, Relaxed);
    let chunk = map(place, CHUNK_BYTES, 0);
    if chunk.is_null() {
        ON.store(false, Relaxed);
    }
    chunk.cast()
}

/// Maps so many bytes of the log, which is made as long. The file is opened each time, because a program may close what it has not opened.
fn map(place: usize, bytes: usize, flags: c_int) -> *mut c_void {
    // SAFETY: the path ends in a NUL. The space is allocated before it is mapped, so that a full disk is an error here and no fault
    // later. The descriptor is ours until it is closed.
    unsafe {
        let file = libc::open(PATH.0.get().cast::<c_char>(), libc::O_RDWR | libc::O_CLOEXEC | flags, 0o600);
        if file < 0 {
            return null_mut();
        }
        let mut mapped = libc::MAP_FAILED;
        if libc::posix_fallocate(file, place as libc::off_t, bytes as libc::off_t) == 0 {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            mapped = libc::mmap(null_mut(), bytes, rights, libc::MAP_SHARED, file, place as libc::off_t);
        }
        libc::close(file);
        if mapped == libc::MAP_FAILED { null_mut() } else { mapped }
    }
}

/// Begins this process's log; what is recorded goes there from now on.
fn begin(forked_from: u32) {
    ON.store(false, Relaxed);
    // SAFETY: getenv returns null or a string; nobody changes the environment in the constructor, nor in the child of a fork.
    let folder = unsafe { libc::getenv(c"HPM_ALLOCATIONS".as_ptr()) };
    if folder.is_null() {
        return;
    }
    // SAFETY: getpid has no preconditions; the path has room for PATH_MAX bytes, which snprintf keeps to; see `Shared` for why nobody
    // else uses it. PID and TSC make the name one that no other process has, nor this one before an execve.
    let pid = unsafe {
        let pid = libc::getpid() as u32;
        let size = libc::PATH_MAX as usize;
        libc::snprintf(PATH.0.get().cast(), size, c"%s/%u-%lx.log".as_ptr(), folder, pid, tsc());
        pid
    };
    PID.store(pid, Relaxed);
    NEXT_CHUNK.store(HEADER_BYTES, Relaxed);
    let page: *mut u64 = map(0, HEADER_BYTES, libc::O_CREAT | libc::O_EXCL).cast();
    if page.is_null() {
        return;
    }
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut now) };
    let mut words = [0; header::WORDS];
    words[header::MAGIC] = format::MAGIC;
    words[header::PID] = pid.into();
    words[header::FORKED_FROM] = forked_from.into();
    words[header::SAMPLED_BYTES] = SAMPLED_BYTES.load(Relaxed);
    words[header::TSC] = tsc();
    words[header::MONOTONIC_RAW_NS] = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: the page has room for these words, and is ours.
        unsafe { page.add(index).write_volatile(word) };
    }
    HEADER.store(page.cast(), Release);
    ON.store(true, Relaxed);
}

/// The child of a fork has one thread, and the parent's mappings: it must not write into the parent's log.
extern "C" fn forked() {
    at_work(|thread| {
        thread.chunk.set(null_mut());
        SPARES_LOCK.store(false, Relaxed);
        with_spares(|spares| *spares = [(0, 0); SPARE]);
        HEADER.store(null_mut(), Release);
        if ON.load(Relaxed) {
            begin(PID.load(Relaxed));
        }
    });
}

/// A number from the environment; nothing when there is none.
fn number(name: &CStr) -> Option<u64> {
    // SAFETY: the name ends in a NUL; getenv returns null or a string that stays while nobody changes the environment.
    let text = unsafe {
        let text = libc::getenv(name.as_ptr());
        if text.is_null() { null() } else { text }
    };
    if text.is_null() {
        return None;
    }
    // SAFETY: it is a string of the environment, as above.
    let digits = unsafe { CStr::from_ptr(text) }.to_bytes();
    digits.iter().try_fold(0_u64, |number, digit| {
        digit.is_ascii_digit().then(|| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

extern "C" fn start() {
    at_work(|_| {
        SAMPLED_BYTES.store(number(c"HPM_ALLOCATIONS_BYTES").unwrap_or(0), Relaxed);
        FRAMES_KEPT
            .store(number(c"HPM_ALLOCATIONS_FRAMES").map_or(FRAMES, |frames| frames as usize), Relaxed);
        if SAMPLED_BYTES.load(Relaxed) != 0 {
            let bytes = BUCKETS * BUCKET * size_of::<AtomicU64>();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new anonymous mapping.
            let table =
                unsafe { libc::mmap(null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            if table == libc::MAP_FAILED {
                return;
            }
            TABLE.store(table.cast(), Release);
        }
        let mut key = 0;
        // SAFETY: `key` is written by the call; the functions that are registered live as long as the process.
        unsafe {
            if libc::pthread_key_create(&raw mut key, Some(thread_ends)) == 0 {
                KEY.store(key as usize, Relaxed);
            }
            libc::pthread_atfork(None, None, Some(forked));
        }
        begin(0);
    });
}

#[used]
// SAFETY: an entry of .init_array is a function that the loader calls once, after the C library's own.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
