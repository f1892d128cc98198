//! libgc, the collector of Boehm, Demers and Weiser, looked up while the program runs: nothing of this package needs it but a
//! heap that asks for it.
//!
//! References have 4 bytes here, which libgc would not recognise. So every type with references is of a *kind* with a mark
//! procedure of ours (`gc_mark.h`), which reads them and hands what they refer to to libgc, and the roots are those of the
//! heap and nothing else: neither stacks nor static data are searched. What is marked, how, and where new objects go is
//! libgc's affair.
//!
//! libgc is one for a process, belongs to one thread, and reads the environment when it starts; its heap has one size here, and
//! is one piece of memory. [`Libgc::start`] checks each of these.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::Library;
use thiserror::Error;

use super::Area;
use crate::layout::{HEADER_BYTES, WORD_BYTES};
use crate::space::PAGE_BYTES;

/// Why there is no heap on libgc.
#[derive(Debug, Error)]
pub enum NoLibgc {
    /// The library is not there, or is not libgc.
    #[error(
        "libgc cannot be loaded; install Debian's package libgc1, or say with --libgc where libgc.so.1 is"
    )]
    NotThere(#[from] libloading::Error),
    /// Older than what was tried.
    #[error("libgc is of version {0}.{1}; at least 8.0 is needed, which Debian has in its package libgc1")]
    TooOld(c_uint, c_uint),
    /// There was one before.
    #[error("a process has one heap on libgc, and this one has had it; start another process")]
    Second,
    /// It reads the environment, which other threads may.
    #[error("libgc can be started only in a process of one thread")]
    Threads,
    /// The heap's pages are not of one piece.
    #[error("libgc has not taken {0} bytes of memory of one piece")]
    NotOnePiece(u32),
    /// More than libgc has kinds for.
    #[error("the program's types have more than {MAX_COUNTS} different numbers of reference fields")]
    TooManyKinds,
}

/// Most numbers of reference fields: libgc has 16 kinds at least, and some of its own.
const MAX_COUNTS: usize = 8;

/// The entries of libgc's mark stack.
#[repr(C)]
struct Entry {
    _opaque: [u8; 0],
}

/// A mark procedure (`GC_mark_proc`).
type MarkProcedure = unsafe extern "C" fn(*mut usize, *mut Entry, *mut Entry, usize) -> *mut Entry;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal = fn($($parameter:ty),*) $(-> $result:ty)?;)*) => {
        /// What is used of libgc.
        struct Functions {
            $($(#[$doc])* $name: unsafe extern "C" fn($($parameter),*) $(-> $result)?,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: the signature is that of libgc's headers (gc.h, gc_mark.h, gc_inline.h), the same since 8.0;
                        // the library is never unloaded.
                        $name: *unsafe { library.get::<unsafe extern "C" fn($($parameter),*) $(-> $result)?>($symbol) }?,
                    )*
                })
            }
        }
    };
}

functions! {
    version: "GC_get_version" = fn() -> c_uint;
    set_markers: "GC_set_markers_count" = fn(c_uint);
    set_no_dls: "GC_set_no_dls" = fn(c_int);
    set_interior: "GC_set_all_interior_pointers" = fn(c_int);
    set_no_precollect: "GC_set_dont_precollect" = fn(c_int);
    set_dont_expand: "GC_set_dont_expand" = fn(c_int);
    set_max_heap: "GC_set_max_heap_size" = fn(usize);
    set_warn: "GC_set_warn_proc" = fn(unsafe extern "C" fn(*mut i8, usize));
    ignore_warning: "GC_ignore_warn_proc" = fn(*mut i8, usize);
    init: "GC_init" = fn();
    clear_roots: "GC_clear_roots" = fn();
    set_push_roots: "GC_set_push_other_roots" = fn(extern "C" fn());
    push_all_eager: "GC_push_all_eager" = fn(*const c_void, *const c_void);
    new_free_list: "GC_new_free_list" = fn() -> *mut *mut c_void;
    new_procedure: "GC_new_proc" = fn(MarkProcedure) -> c_uint;
    new_kind: "GC_new_kind" = fn(*mut *mut c_void, usize, c_int, c_int) -> c_uint;
    mark_and_push: "GC_mark_and_push" = fn(*mut c_void, *mut Entry, *mut Entry, *mut *mut c_void) -> *mut Entry;
    allocate: "GC_malloc_kind" = fn(usize, c_int) -> *mut c_void;
    free: "GC_free" = fn(*mut c_void);
    collect: "GC_gcollect" = fn();
    collections: "GC_get_gc_no" = fn() -> usize;
    heap_size: "GC_get_heap_size" = fn() -> usize;
    free_bytes: "GC_get_free_bytes" = fn() -> usize;
    object_start: "GC_base" = fn(*mut c_void) -> *mut c_void;
    object_size: "GC_size" = fn(*const c_void) -> usize;
}

/// What libgc's callbacks need.
struct Started {
    functions: Functions,
    /// Address of offset 0.
    base: usize,
}

static STARTED: OnceLock<Started> = OnceLock::new();
/// Whether somebody has tried: libgc cannot be started twice.
static TRIED: AtomicBool = AtomicBool::new(false);

/// The offsets of the objects that the program holds.
type Roots = Box<dyn Fn() -> Vec<u32>>;

thread_local! {
    /// Of the thread whose libgc is.
    static ROOTS: RefCell<Option<Roots>> = const { RefCell::new(None) };
    /// Addresses of cells outside the area, which are kept so that libgc does not hand them out again.
    static REFUSED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// What libgc has to know of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    number: c_int,
    /// New objects of it are zeros.
    pub(crate) is_cleared: bool,
}

/// Objects without references: libgc neither marks from them nor clears them (`GC_I_PTRFREE`).
pub(crate) const WITHOUT_REFERENCES: Kind = Kind { number: 0, is_cleared: false };

/// The environment of the mark procedure of arrays; others have the number of reference fields.
const ARRAY: usize = 0;

/// libgc, in the thread that has started it.
pub(crate) struct Libgc {
    started: &'static Started,
    procedure: usize,
    /// Bytes of the area.
    bytes: u32,
    /// Neither [`Send`] nor [`Sync`].
    _of_this_thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for Libgc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Libgc").field("base", &self.started.base).finish_non_exhaustive()
    }
}

impl Libgc {
    /// Loads libgc from what `dlopen` finds by this name, with a heap of so many bytes, which are whole pages. Offsets count
    /// from one page before its memory, so that none is 0. libgc's free lists are in the same memory: write only within objects that
    /// were allocated.
    ///
    /// # Errors
    /// libgc is not there, or this process cannot have it.
    pub(crate) fn start(library: &str, bytes: u32, roots: Roots) -> Result<(Self, Area), NoLibgc> {
        if std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count) != 1 {
            return Err(NoLibgc::Threads);
        }
        // SAFETY: libgc's initialisers do nothing that others rely on; should the name be another library's, whoever asked for
        // it wanted to have that executed.
        let library = unsafe { Library::new(library) }?;
        let functions = Functions::of(&library)?;
        // SAFETY: reads a constant.
        let version = unsafe { (functions.version)() };
        if version >> 16 < 8 {
            return Err(NoLibgc::TooOld(version >> 16, version >> 8 & 0xff));
        }
        if TRIED.swap(true, Ordering::Relaxed) {
            return Err(NoLibgc::Second);
        }
        // Its heap is there as long as the process, and so are its functions.
        std::mem::forget(library);
        let heap = initialise(&functions, bytes)?;
        let page = PAGE_BYTES as usize;
        let area =
            Area { base: heap.wrapping_sub(page), first: PAGE_BYTES, bytes: bytes as usize, map: None };
        let started = STARTED.get_or_init(|| Started { functions, base: heap as usize - page });
        ROOTS.set(Some(roots));
        // SAFETY: libgc is initialised and nobody else uses it; `mark` is a mark procedure for the objects of the kinds that
        // `Libgc::kind` makes.
        let procedure = unsafe { (started.functions.new_procedure)(mark) } as usize;
        Ok((Self { started, procedure, bytes, _of_this_thread: PhantomData }, area))
    }

    /// The kind of arrays of references, or of objects that begin with so many.
    pub(crate) fn kind(&self, references: Option<u32>) -> Kind {
        let environment = references.map_or(ARRAY, |references| references as usize);
        // GC_MAKE_PROC of gc_mark.h.
        let descriptor = (environment << 6 | self.procedure) << 2 | 2;
        let functions = &self.started.functions;
        // SAFETY: libgc is initialised and this thread's.
        let list = unsafe { (functions.new_free_list)() };
        // SAFETY: the list is new, the descriptor names a mark procedure; the size is not added to it, objects are cleared.
        let number = unsafe { (functions.new_kind)(list, descriptor, 0, 1) };
        Kind { number: number as c_int, is_cleared: true }
    }

    /// A new object; `None` if memory is out although libgc has collected.
    ///
    /// When libgc makes its mark stack larger, it adds the old one, 64 KiB at first, to the heap: cells from there are not of
    /// the area and beyond the limit, and are refused. So is what reaches from the one into the other: where the system has put the
    /// two side by side, libgc takes them for one piece.
    pub(crate) fn allocate(&self, bytes: u32, kind: Kind) -> Option<u32> {
        loop {
            let object = self.allocate_anywhere(bytes, kind)?;
            let at = object.wrapping_sub(self.started.base + PAGE_BYTES as usize);
            if (self.bytes as usize).checked_sub(bytes as usize).is_some_and(|last| at <= last) {
                return Some(at as u32 + PAGE_BYTES);
            }
            REFUSED.with_borrow_mut(|refused| refused.push(object));
        }
    }

    /// The address of a new object.
    fn allocate_anywhere(&self, bytes: u32, kind: Kind) -> Option<usize> {
        // SAFETY: the kind is libgc's own or was made by `kind`; libgc is this thread's, and calls back `mark` and
        // `push_roots` only. Objects that `mark` meets have their header, or are zeros.
        let object = unsafe { (self.started.functions.allocate)(bytes as usize, kind.number) };
        (!object.is_null()).then_some(object as usize)
    }

    /// A full collection.
    pub(crate) fn collect(&self) {
        // SAFETY: as in `allocate`.
        unsafe { (self.started.functions.collect)() }
    }

    /// How many there were.
    pub(crate) fn collections(&self) -> u64 {
        // SAFETY: reads a number.
        unsafe { (self.started.functions.collections)() as u64 }
    }

    /// Bytes of the pages that are in use.
    pub(crate) fn used_bytes(&self) -> u32 {
        // SAFETY: reads numbers.
        let all = unsafe { (self.started.functions.heap_size)() };
        // SAFETY: reads a number.
        let free = unsafe { (self.started.functions.free_bytes)() };
        (all - free) as u32
    }

    /// Where the cell that an offset is in starts, and its size.
    pub(crate) fn cell(&self, at: u32) -> Option<(u32, u32)> {
        let place = (self.started.base + at as usize) as *mut c_void;
        // SAFETY: takes any address, and reads libgc's tables.
        let start = unsafe { (self.started.functions.object_start)(place) };
        if start.is_null() {
            return None;
        }
        // SAFETY: the address is that of a cell.
        let bytes = unsafe { (self.started.functions.object_size)(start) };
        Some(((start as usize - self.started.base) as u32, bytes as u32))
    }
}

/// Whether the program's types have few enough numbers of reference fields.
///
/// # Errors
/// They have not.
pub(crate) fn check_counts(counts: usize) -> Result<(), NoLibgc> {
    if counts <= MAX_COUNTS { Ok(()) } else { Err(NoLibgc::TooManyKinds) }
}

/// Starts libgc with a heap of exactly so many bytes; returns where it is.
fn initialise(functions: &Functions, bytes: u32) -> Result<*mut u8, NoLibgc> {
    // Only so can the first piece of the heap be all of it, and stay mapped where it is free.
    let environment = [("GC_INITIAL_HEAP_SIZE", bytes.to_string()), ("GC_UNMAP_THRESHOLD", "0".to_owned())];
    for (name, value) in environment {
        // SAFETY: `start` has found that the process has one thread, so that nobody reads the environment meanwhile.
        unsafe { std::env::set_var(name, value) }
    }
    let Functions { set_markers, set_no_dls, set_interior, set_no_precollect, .. } = *functions;
    // SAFETY: what is to be set before GC_init comes before it, and nobody else uses libgc: one marking thread; no roots in static
    // data; references lead to the starts of objects; no collection at the start. `push_roots` finds nothing to push as yet.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one sequence, for one reason")]
    unsafe {
        set_markers(1);
        set_no_dls(1);
        set_interior(0);
        set_no_precollect(1);
        (functions.set_warn)(functions.ignore_warning);
        (functions.init)();
        (functions.clear_roots)();
        (functions.set_push_roots)(push_roots);
        (functions.set_max_heap)(bytes as usize);
        // It collects when nothing is free, and memory is out when that does not help.
        (functions.set_dont_expand)(1);
    }
    // SAFETY: reads a number.
    let has = unsafe { (functions.heap_size)() };
    // An object as large as the heap: if there is room for it, all is one piece, and this is where it starts.
    // SAFETY: the kind is libgc's own.
    let whole = unsafe { (functions.allocate)(bytes as usize, WITHOUT_REFERENCES.number) };
    if has != bytes as usize || whole.is_null() {
        return Err(NoLibgc::NotOnePiece(bytes));
    }
    // SAFETY: it was just allocated, and nobody refers to it.
    unsafe { (functions.free)(whole) }
    Ok(whole.cast())
}

/// Marks what the program holds. The stacks are left out: what they have of the heap are offsets, which are good only until the
/// next allocation.
extern "C" fn push_roots() {
    let Some(started) = STARTED.get() else { return };
    let offsets = ROOTS.with_borrow(|roots| roots.as_ref().map(|roots| roots()).unwrap_or_default());
    let mut addresses: Vec<usize> = offsets.into_iter().map(|at| started.base + at as usize).collect();
    REFUSED.with_borrow(|refused| addresses.extend_from_slice(refused));
    let range = addresses.as_ptr_range();
    // SAFETY: libgc calls this while it collects; it reads the vector before it returns.
    unsafe { (started.functions.push_all_eager)(range.start.cast(), range.end.cast()) }
}

/// Hands what an object refers to to libgc.
///
/// # Safety
/// For libgc to call: `object` is a cell of a kind with this procedure, of at least a header's size, and the others are what
/// libgc says of its mark stack.
unsafe extern "C" fn mark(
    object: *mut usize,
    mut top: *mut Entry,
    limit: *mut Entry,
    environment: usize,
) -> *mut Entry {
    let Some(started) = STARTED.get() else { return top };
    let words = object.cast::<u32>();
    let references = if environment == ARRAY {
        // SAFETY: a cell has at least 16 bytes; the length is the header's second word.
        let length = unsafe { words.wrapping_add(1).read() } as usize;
        // A free cell may be marked, too, whose first word is libgc's.
        // SAFETY: `object` is a cell.
        let bytes = unsafe { (started.functions.object_size)(object.cast()) };
        length.min((bytes - HEADER_BYTES as usize) / WORD_BYTES as usize)
    } else {
        environment
    };
    const HEADER_WORDS: usize = (HEADER_BYTES / WORD_BYTES) as usize;
    for number in 0..references {
        // SAFETY: the cell is as large as its header and its references: it was asked for with this size, and for arrays
        // that was checked.
        let child = unsafe { words.wrapping_add(HEADER_WORDS + number).read() };
        if child != 0 {
            let child = (started.base + child as usize) as *mut c_void;
            // SAFETY: libgc takes any address, and has said where its mark stack is.
            top = unsafe { (started.functions.mark_and_push)(child, top, limit, ptr::null_mut()) };
        }
    }
    top
}
