//! The functions that are preloaded, and the log in shared memory.
//!
//! What has to hold, because a program's every allocation comes through here:
//! - nothing here allocates: `std` is used for thread-local cells without destructors, and for atomics;
//! - a call that the C library makes for us (to look up a symbol, to set a thread's key) may allocate again: `Thread::busy` then
//!   keeps it from being recorded, and until the real functions are known it is served from an arena;
//! - a thread that was interrupted by a signal whose handler allocates finds `Thread::busy` set: that allocation is not recorded.
//!
//! `thread` has what each thread does, `log` the log that they share.
#![allow(unsafe_code, reason = "the boundary to the C library and to memory that is shared with a file")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one sequence under one argument")]
#![allow(unreachable_pub, reason = "they are exported to the dynamic linker")]
#![allow(missing_docs, reason = "the functions are those of malloc(3), posix_memalign(3) and the C++ ABI")]

mod log;
mod thread;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use self::log::{ON, SAMPLED_BYTES, forget, remember};
use self::thread::THREAD;
use crate::format::{self, FRAMES_MAX, entry};

/// Memory that only one thread at a time changes.
struct Shared<T>(UnsafeCell<T>);

// SAFETY: `log::PATH` is written by the constructor and by the child of a fork, when there is one thread; `thread::SPARES` under
// `SPARES_LOCK`; `ARENA` in pieces that `ARENA_USED` gives to one caller each.
unsafe impl<T> Sync for Shared<T> {}

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
                let me = std::ptr::from_ref(thread) as usize;
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
        freed(pointer as usize, || began);
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
    freed(pointer as usize, tsc);
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
fn at_work(work: impl FnOnce(&thread::Thread)) {
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

fn freed(pointer: usize, when: impl FnOnce() -> u64) {
    if !ON.load(Relaxed) || SAMPLED_BYTES.load(Relaxed) != 0 && !forget(pointer) {
        return;
    }
    at_work(|thread| thread.write(&[entry::FREE, when(), pointer as u64], &[]));
}
