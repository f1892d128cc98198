//! The functions that are preloaded, and the log in shared memory.
//!
//! What has to hold, because a program's every allocation comes through here:
//! - nothing here allocates: `std` is used for thread-local cells without destructors, and for atomics;
//! - a call that the C library makes for us (to look up a symbol, to set a thread's key) may allocate again: [`Thread::busy`] then
//!   keeps it from being recorded, and until the real functions are known it is served from [`ARENA`];
//! - a thread that was interrupted by a signal whose handler allocates finds [`Thread::busy`] set: that allocation is not recorded.
#![allow(unsafe_code, reason = "the boundary to the C library and to memory that is shared with a file")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one sequence under one argument")]
#![allow(unreachable_pub, reason = "they are exported to the dynamic linker")]
#![allow(missing_docs, reason = "the functions are those of malloc(3), posix_memalign(3) and the C++ ABI")]

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use crate::format::{self, CHUNK_BYTES, CHUNK_WORDS, FRAMES_MAX, HEADER_BYTES, entry, header};

/// Return addresses kept when nothing else is said.
const FRAMES: usize = 8;
/// Longest stack that frame pointers are followed in.
const STACK_BYTES_MAX: usize = 256 << 20;
/// Chunks of threads that have ended, kept for the next threads.
const SPARE: usize = 64;
/// Buckets of the table of recorded objects, of 8 addresses each: 8 MiB, of which what is used takes memory.
const BUCKETS: usize = 1 << 17;
const BUCKET: usize = 8;

/// What a thread has.
struct Thread {
    /// This library is at work, or asked the C library for something.
    busy: Cell<bool>,
    /// Its chunk, or null.
    chunk: Cell<*mut u64>,
    /// Words of the chunk that are written.
    used: Cell<usize>,
    /// Where its stack ends; 0 while not known, 1 when it cannot be.
    stack_end: Cell<usize>,
    /// Where `operator new` was called from, and the frame pointer then.
    site: Cell<(usize, usize)>,
    /// Bytes until the next recorded allocation.
    until_next: Cell<i64>,
    random: Cell<u64>,
}

thread_local! {
    static THREAD: Thread = const {
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

/// Something is recorded. Set by the constructor, and taken back when the log cannot be written.
static ON: AtomicBool = AtomicBool::new(false);
/// Mean bytes between recorded allocations; 0 for all.
static SAMPLED_BYTES: AtomicU64 = AtomicU64::new(0);
static FRAMES_KEPT: AtomicUsize = AtomicUsize::new(FRAMES);
static PID: AtomicU32 = AtomicU32::new(0);
/// Where in the file the next chunk begins.
static NEXT_CHUNK: AtomicUsize = AtomicUsize::new(HEADER_BYTES);
/// The header's page.
static HEADER: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// Addresses of recorded objects, when not all are recorded.
static TABLE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
static KEY: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Memory that only one thread at a time changes.
struct Shared<T>(UnsafeCell<T>);

// SAFETY: `PATH` is written by the constructor and by the child of a fork, when there is one thread; `SPARES` under `SPARES_LOCK`;
// `ARENA` in pieces that `ARENA_USED` gives to one caller each.
unsafe impl<T> Sync for Shared<T> {}

static PATH: Shared<[u8; libc::PATH_MAX as usize]> = Shared(UnsafeCell::new([0; libc::PATH_MAX as usize]));
static SPARES: Shared<[(usize, usize); SPARE]> = Shared(UnsafeCell::new([(0, 0); SPARE]));
static SPARES_LOCK: AtomicBool = AtomicBool::new(false);

/// Serves what is allocated while the real functions are looked up. Never freed.
#[repr(align(64))]
#[expect(dead_code, reason = "only its address is used")]
struct Arena([u8; 64 << 10]);
static ARENA: Shared<Arena> = Shared(UnsafeCell::new(Arena([0; 64 << 10])));
static ARENA_USED: AtomicUsize = AtomicUsize::new(0);

fn from_arena(size: usize, alignment: usize) -> *mut c_void {
    // A word before each piece says how large it is, for realloc.
    let alignment = alignment.max(16);
    let wanted = size.saturating_add(alignment).saturating_add(16).next_multiple_of(16);
    let start = ARENA_USED.fetch_add(wanted, Relaxed);
    if start.saturating_add(wanted) > size_of::<Arena>() {
        return null_mut();
    }
    let place = (ARENA.0.get() as usize + start + 16).next_multiple_of(alignment);
    // SAFETY: the word before `place` lies in the piece that was just taken, which begins 16 bytes or more before it.
    unsafe { *((place - 8) as *mut usize) = size };
    place as *mut c_void
}

fn is_of_arena(pointer: *const c_void) -> bool {
    (pointer as usize).wrapping_sub(ARENA.0.get() as usize) < size_of::<Arena>()
}

/// A function of the next library that has it.
struct Real(AtomicUsize, &'static CStr);

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self(AtomicUsize::new(0), name)
    }

    /// Its address; 0 while it is being looked up by this thread, and when nobody has it.
    fn get(&self) -> usize {
        match self.0.load(Relaxed) {
            0 => THREAD.with(|thread| {
                static LOOKING: AtomicUsize = AtomicUsize::new(0);
                let me = thread as *const Thread as usize;
                if LOOKING.load(Relaxed) == me {
                    return 0;
                }
                LOOKING.store(me, Relaxed);
                // SAFETY: the name ends in a NUL.
                let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.1.as_ptr()) } as usize;
                LOOKING.store(0, Relaxed);
                self.0.store(found, Relaxed);
                found
            }),
            found => found,
        }
    }
}

static MALLOC: Real = Real::new(c"malloc");
static CALLOC: Real = Real::new(c"calloc");
static REALLOC: Real = Real::new(c"realloc");
static FREE: Real = Real::new(c"free");
static MEMALIGN: Real = Real::new(c"memalign");
static POSIX_MEMALIGN: Real = Real::new(c"posix_memalign");
static ALIGNED_ALLOC: Real = Real::new(c"aligned_alloc");
static VALLOC: Real = Real::new(c"valloc");

type OneSize = unsafe extern "C" fn(usize) -> *mut c_void;
type TwoSizes = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type PointerSize = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Pointer = unsafe extern "C" fn(*mut c_void);
type PointerTwoSizes = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;

/// Defines functions that hand the return address and the frame pointer of their caller on, behind their own arguments. They are
/// entered by a call and leave by a jump, so that `[rsp]` is the return address.
macro_rules! entered {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $inner:ident, $address:literal, $frame:literal;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                core::arch::naked_asm!(
                    concat!("mov ", $address, ", [rsp]"),
                    concat!("mov ", $frame, ", rbp"),
                    "jmp {inner}",
                    inner = sym $inner,
                )
            }
        )*
    };
}

entered! {
    malloc(size: usize) -> *mut c_void = allocate, "rsi", "rdx";
    calloc(count: usize, size: usize) -> *mut c_void = allocate_zeroed, "rdx", "rcx";
    realloc(pointer: *mut c_void, size: usize) -> *mut c_void = reallocate, "rdx", "rcx";
    memalign(alignment: usize, size: usize) -> *mut c_void = allocate_memalign, "rdx", "rcx";
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void = allocate_aligned, "rdx", "rcx";
    posix_memalign(to: *mut *mut c_void, alignment: usize, size: usize) -> c_int = allocate_posix, "rcx", "r8";
    valloc(size: usize) -> *mut c_void = allocate_pages, "rsi", "rdx";
    reallocarray(pointer: *mut c_void, count: usize, size: usize) -> *mut c_void = reallocate_array, "rcx", "r8";
}

extern "C" fn allocate(size: usize, caller: usize, frame: usize) -> *mut c_void {
    let real = MALLOC.get();
    if real == 0 {
        return from_arena(size, 16);
    }
    // SAFETY: `real` is the next library's malloc.
    let pointer = unsafe { transmute::<usize, OneSize>(real)(size) };
    allocated(pointer, size, caller, frame);
    pointer
}

extern "C" fn allocate_zeroed(count: usize, size: usize, caller: usize, frame: usize) -> *mut c_void {
    let real = CALLOC.get();
    if real == 0 {
        // The arena was never used before: it is all 0.
        return count.checked_mul(size).map_or(null_mut(), |bytes| from_arena(bytes, 16));
    }
    // SAFETY: `real` is the next library's calloc.
    let pointer = unsafe { transmute::<usize, TwoSizes>(real)(count, size) };
    allocated(pointer, count.saturating_mul(size), caller, frame);
    pointer
}

extern "C" fn allocate_memalign(alignment: usize, size: usize, caller: usize, frame: usize) -> *mut c_void {
    aligned(&MEMALIGN, alignment, size, caller, frame)
}

extern "C" fn allocate_aligned(alignment: usize, size: usize, caller: usize, frame: usize) -> *mut c_void {
    aligned(&ALIGNED_ALLOC, alignment, size, caller, frame)
}

fn aligned(function: &Real, alignment: usize, size: usize, caller: usize, frame: usize) -> *mut c_void {
    let real = function.get();
    if real == 0 {
        return from_arena(size, alignment);
    }
    // SAFETY: `real` is the next library's memalign or aligned_alloc, which take an alignment and a size.
    let pointer = unsafe { transmute::<usize, TwoSizes>(real)(alignment, size) };
    allocated(pointer, size, caller, frame);
    pointer
}

extern "C" fn allocate_posix(
    to: *mut *mut c_void,
    alignment: usize,
    size: usize,
    caller: usize,
    frame: usize,
) -> c_int {
    let real = POSIX_MEMALIGN.get();
    if real == 0 {
        return libc::ENOMEM;
    }
    // SAFETY: `real` is the next library's posix_memalign; `to` is the caller's, as are its obligations.
    unsafe {
        let status = transmute::<usize, PointerTwoSizes>(real)(to, alignment, size);
        if status == 0 {
            allocated(*to, size, caller, frame);
        }
        status
    }
}

extern "C" fn allocate_pages(size: usize, caller: usize, frame: usize) -> *mut c_void {
    let real = VALLOC.get();
    if real == 0 {
        return null_mut();
    }
    // SAFETY: `real` is the next library's valloc.
    let pointer = unsafe { transmute::<usize, OneSize>(real)(size) };
    allocated(pointer, size, caller, frame);
    pointer
}

extern "C" fn reallocate_array(
    pointer: *mut c_void,
    count: usize,
    size: usize,
    caller: usize,
    frame: usize,
) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => reallocate(pointer, bytes, caller, frame),
        None => {
            // SAFETY: errno is this thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            null_mut()
        }
    }
}

extern "C" fn reallocate(pointer: *mut c_void, size: usize, caller: usize, frame: usize) -> *mut c_void {
    if is_of_arena(pointer) {
        let new = allocate(size, caller, frame);
        // SAFETY: the word before a piece of the arena is its size; both are at least as long as what is copied.
        unsafe {
            let old_size = *((pointer as usize - 8) as *const usize);
            if !new.is_null() {
                new.cast::<u8>().copy_from_nonoverlapping(pointer.cast(), old_size.min(size));
            }
        }
        return new;
    }
    let real = REALLOC.get();
    if real == 0 {
        return if pointer.is_null() { from_arena(size, 16) } else { null_mut() };
    }
    // Before the old memory can be another thread's.
    let began = tsc();
    // SAFETY: `real` is the next library's realloc; the pointer is the caller's to give.
    let new = unsafe { transmute::<usize, PointerSize>(real)(pointer, size) };
    if !pointer.is_null() && (!new.is_null() || size == 0) {
        freed(pointer as usize, began);
    }
    allocated(new, size, caller, frame);
    new
}

#[unsafe(no_mangle)]
pub extern "C" fn free(pointer: *mut c_void) {
    if pointer.is_null() || is_of_arena(pointer) {
        return;
    }
    // Before the memory can be another thread's.
    freed(pointer as usize, tsc());
    let real = FREE.get();
    if real != 0 {
        // SAFETY: `real` is the next library's free; the pointer is the caller's to give.
        unsafe { transmute::<usize, Pointer>(real)(pointer) };
    }
}

/// Keeps where `operator new` was called from for the `malloc` that it calls. Also an exception ends it.
struct Site((usize, usize));

impl Site {
    fn set(caller: usize, frame: usize) -> Self {
        Self(THREAD.with(|thread| thread.site.replace((caller, frame))))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.site.set(self.0));
    }
}

/// Defines the forms of `operator new`: they note the caller, and let the next library's do the work, which calls `malloc`.
macro_rules! operators {
    ($($name:ident, $inner:ident, $symbol:literal, ($($argument:ident),*), $address:literal, $frame:literal;)*) => {
        $(
            #[unsafe(export_name = $symbol)]
            #[unsafe(naked)]
            pub extern "C-unwind" fn $name($($argument: usize),*) -> *mut c_void {
                core::arch::naked_asm!(
                    concat!("mov ", $address, ", [rsp]"),
                    concat!("mov ", $frame, ", rbp"),
                    "jmp {inner}",
                    inner = sym $inner,
                )
            }

            extern "C-unwind" fn $inner($($argument: usize,)* caller: usize, frame: usize) -> *mut c_void {
                static REAL: Real = Real::new(match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                });
                let real = REAL.get();
                if real == 0 {
                    // A program that calls it has a library that defines it.
                    std::process::abort();
                }
                let _site = Site::set(caller, frame);
                // SAFETY: `real` is the next library's operator of this name, which takes these arguments.
                unsafe { transmute::<usize, extern "C-unwind" fn($(operators!(@usize $argument)),*) -> *mut c_void>(real)($($argument),*) }
            }
        )*
    };
    (@usize $argument:ident) => { usize };
}

operators! {
    new, new_from, "_Znwm", (size), "rsi", "rdx";
    new_array, new_array_from, "_Znam", (size), "rsi", "rdx";
    new_nothrow, new_nothrow_from, "_ZnwmRKSt9nothrow_t", (size, nothrow), "rdx", "rcx";
    new_array_nothrow, new_array_nothrow_from, "_ZnamRKSt9nothrow_t", (size, nothrow), "rdx", "rcx";
    new_aligned, new_aligned_from, "_ZnwmSt11align_val_t", (size, alignment), "rdx", "rcx";
    new_array_aligned, new_array_aligned_from, "_ZnamSt11align_val_t", (size, alignment), "rdx", "rcx";
}

fn tsc() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 processor; Linux does not set CR4.TSD unless a process asks for it with prctl.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Runs with the thread's own things, unless it is at work here already.
fn at_work(work: impl FnOnce(&Thread)) {
    THREAD.with(|thread| {
        if !thread.busy.replace(true) {
            work(thread);
            thread.busy.set(false);
        }
    });
}

fn allocated(pointer: *mut c_void, size: usize, caller: usize, frame: usize) {
    if pointer.is_null() || !ON.load(Relaxed) {
        return;
    }
    at_work(|thread| {
        let mean = SAMPLED_BYTES.load(Relaxed);
        if mean != 0 && !(thread.is_drawn(size, mean) && remember(pointer as usize)) {
            return;
        }
        let (caller, frame) = match thread.site.get() {
            (0, _) => (caller, frame),
            site => site,
        };
        let mut frames = [0; FRAMES_MAX];
        frames[0] = caller as u64;
        let count = thread.walk(frame, &mut frames);
        let first = [format::allocation(count, size), tsc(), pointer as u64];
        thread.write(&first, &frames[..count]);
    });
}

fn freed(pointer: usize, when: u64) {
    if !ON.load(Relaxed) || SAMPLED_BYTES.load(Relaxed) != 0 && !forget(pointer) {
        return;
    }
    at_work(|thread| thread.write(&[entry::FREE, when, pointer as u64], &[]));
}

impl Thread {
    /// Whether an allocation of this size is one of those to be recorded: the distances between them are exponentially distributed.
    fn is_drawn(&self, size: usize, mean: u64) -> bool {
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
        (-uniform.ln() * mean as f64) as i64 + 1
    }

    /// Return addresses behind the first one as far as frame pointers lead through this thread's stack; how many there are with it.
    #[inline(never)]
    fn walk(&self, mut frame: usize, frames: &mut [u64; FRAMES_MAX]) -> usize {
        let here = &raw const frame as usize;
        let end = self.stack_end(here);
        let most = FRAMES_KEPT.load(Relaxed).clamp(1, FRAMES_MAX);
        let mut below = here;
        for count in 1..most {
            if frame <= below || !frame.is_multiple_of(8) || frame.saturating_add(16) > end {
                return count;
            }
            // SAFETY: both words lie between this function's frame and the end of this thread's stack, which is mapped.
            let (next, caller) = unsafe { (*(frame as *const usize), *((frame + 8) as *const u64)) };
            if caller < 4096 || caller >> 47 != 0 {
                return count;
            }
            frames[count] = caller;
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
    fn write(&self, first: &[u64], then: &[u64]) {
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

fn lost() {
    let header = HEADER.load(Acquire);
    if !header.is_null() {
        // SAFETY: the header's page stays mapped for the process's life and holds atomics.
        unsafe { (*header.add(header::LOST)).fetch_add(1, Relaxed) };
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

/// Takes note of a recorded object; false when its bucket is full.
fn remember(address: usize) -> bool {
    let Some(bucket) = bucket(address) else { return false };
    let free = |slot: &&AtomicU64| slot.compare_exchange(0, address as u64, AcqRel, Relaxed).is_ok();
    let found = bucket.iter().find(free).is_some();
    if !found {
        lost();
    }
    found
}

/// Whether an object was recorded; it is not any more.
fn forget(address: usize) -> bool {
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

/// A chunk that a thread left, with room for an entry.
fn spare_chunk() -> Option<(*mut u64, usize)> {
    with_spares(|spares| {
        let spare = spares.iter_mut().find(|(chunk, _)| *chunk != 0)?;
        let (chunk, used) = std::mem::take(spare);
        Some((chunk as *mut u64, used))
    })
}

fn with_spares<T>(work: impl FnOnce(&mut [(usize, usize); SPARE]) -> T) -> T {
    while SPARES_LOCK.swap(true, Acquire) {
        std::hint::spin_loop();
    }
    // SAFETY: the lock is held.
    let result = work(unsafe { &mut *SPARES.0.get() });
    SPARES_LOCK.store(false, Release);
    result
}

/// Maps one more piece of the log; null, and the end of recording, when that cannot be.
fn new_chunk() -> *mut u64 {
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

/// A thread ends: its chunk is for others.
extern "C" fn thread_ends(_: *mut c_void) {
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
