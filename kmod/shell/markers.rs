// SPDX-License-Identifier: GPL-2.0
//! Marker pages: where threads set markers without a system call, and which page is whose.
//!
//! A reference to a page is valid while interrupts are off: a page is first taken out of here, and freed after every CPU
//! was interrupted.

use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::global_lock;
use kernel::task::Task;

use super::every_cpu::Plugged;
use super::interrupts::LocalInterruptDisabled;
use super::limits::Locked;
use super::memory::Area;
use super::target::{current_tid, Target};
use crate::hpm_abi::{MarkerPage, PageMarker, MARKER_PAGES_OFFSET, PAGE_BYTES, PAGE_MARKERS};
use crate::hpm_core::markers::{pending, Mark};
use crate::hpm_core::processes::{Processes, Writer};

/// Threads that can have a page at the same time.
const PAGES_MAX: usize = 1024;

/// A page as the scheduler's probes see it.
struct Place {
    /// The page in the kernel's address space, or null.
    page: AtomicPtr<MarkerPage>,
    /// Markers taken from it.
    taken: AtomicU64,
    /// The number of its thread; 0 once that has exited.
    tid: AtomicU32,
    /// Its thread, to be compared only: another one may get the number before this is told.
    task: AtomicPtr<bindings::task_struct>,
}

impl Place {
    const fn new() -> Self {
        Self {
            page: AtomicPtr::new(ptr::null_mut()),
            taken: AtomicU64::new(0),
            tid: AtomicU32::new(0),
            task: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn is_of(&self, task: *const bindings::task_struct) -> bool {
        ptr::eq(self.task.load(Ordering::Relaxed), task)
    }
}

/// Who made a page, for which thread, and its memory.
struct Made {
    owner: u64,
    thread: Target,
    area: Area,
    _locked: Locked,
}

static PLACES: [Place; PAGES_MAX] = [const { Place::new() }; PAGES_MAX];
/// Threads with a page, each with its place.
static THREADS: Processes = Processes::new();
/// How many there are, so that a machine without marker pages looks nothing up.
static COUNT: AtomicU32 = AtomicU32::new(0);

global_lock! {
    // SAFETY: `set_up` initialises it before the device exists.
    unsafe(uninit) static PAGES: Mutex<[Option<Made>; PAGES_MAX]> = [const { None }; PAGES_MAX];
}
global_lock! {
    // SAFETY: `set_up` initialises it before anything else here is called.
    unsafe(uninit) static WRITER: SpinLock<Writer> = Writer::new();
}

/// Initialises the locks.
///
/// # Safety
/// Called once, before anything else here.
pub(super) unsafe fn set_up() {
    // SAFETY: The caller's promise.
    unsafe { PAGES.init() };
    // SAFETY: The caller's promise.
    unsafe { WRITER.init() };
}

/// The open file that a page belongs to. Dropping it frees the file's pages, of which no mapping is left.
pub(super) struct Owner(u64);

impl Owner {
    /// A file without pages.
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a page for the calling thread, or finds the one that it has; its mmap offset.
    ///
    /// # Errors
    /// `EBUSY` when the thread has a page of another file, `ENOSPC` or `ENOMEM` when there is no room for one more, or its user may lock
    /// no more memory.
    pub(super) fn page_of(&self, tid: u32) -> Result<u64> {
        let mut pages = PAGES.lock();
        // Without a session no probe has seen threads exit.
        forget_gone_of(&pages);
        let mine = |made: &Option<Made>| made.as_ref().is_some_and(|made| made.owner == self.0);
        // That of a thread that has gone on under another number is not this one's.
        let other = THREADS.get(tid).and_then(|place| PLACES.get(place as usize));
        other.filter(|place| !place.is_of(Task::current_raw())).into_iter().for_each(forget);
        if let Some(place) = THREADS.get(tid) {
            let found = pages.get(place as usize).filter(|made| mine(made));
            return found.map(|_| offset_of_place(place as usize)).ok_or(EBUSY);
        }
        let left = PLACES
            .iter()
            .zip(&*pages)
            .position(|(place, made)| mine(made) && place.tid.load(Ordering::Relaxed) == 0);
        let thread = Target::caller().ok_or(ESRCH)?;
        let number = match left {
            Some(number) => {
                if let Some(made) = &mut pages[number] {
                    made.thread = thread;
                }
                number
            }
            None => {
                let number = pages.iter().position(Option::is_none).ok_or(ENOSPC)?;
                let locked = Locked::charge(PAGE_BYTES as u64).map_err(|_| ENOMEM)?;
                let area = Area::new(PAGE_BYTES)?;
                PLACES[number].page.store(area.base().cast(), Ordering::Release);
                pages[number] = Some(Made { owner: self.0, thread, area, _locked: locked });
                number
            }
        };
        let place = &PLACES[number];
        place.taken.store(produced(place.page.load(Ordering::Relaxed)), Ordering::Relaxed);
        place.task.store(Task::current_raw(), Ordering::Relaxed);
        place.tid.store(tid, Ordering::Relaxed);
        if !THREADS.set(&mut WRITER.lock(), tid, number as u32) {
            place.tid.store(0, Ordering::Relaxed);
            return Err(ENOSPC);
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(offset_of_place(number))
    }

    /// The page that this file maps at an offset.
    pub(super) fn page_at(&self, offset: u64) -> Option<*mut bindings::page> {
        let number = offset.checked_sub(MARKER_PAGES_OFFSET)? as usize / PAGE_BYTES;
        let pages = PAGES.lock();
        let made = pages.get(number)?.as_ref().filter(|made| made.owner == self.0)?;
        made.area.page(0)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Before the lock, which mmap takes, too: the kernel takes them in this order.
        let plugged = Plugged::hold();
        let mut pages = PAGES.lock();
        let mut any = false;
        for (place, made) in PLACES.iter().zip(&*pages) {
            if made.as_ref().is_some_and(|made| made.owner == self.0) {
                forget(place);
                place.page.store(ptr::null_mut(), Ordering::Release);
                any = true;
            }
        }
        if any {
            // Interrupts are off while a CPU looks at a page.
            plugged.on_online(|_, _| {});
        }
        for made in pages.iter_mut() {
            if made.as_ref().is_some_and(|made| made.owner == self.0) {
                *made = None;
            }
        }
    }
}

fn offset_of_place(number: usize) -> u64 {
    MARKER_PAGES_OFFSET + (number * PAGE_BYTES) as u64
}

/// What the thread says it has written.
fn produced(page: *mut MarkerPage) -> u64 {
    // SAFETY: The page is mapped; user space writes the field too, and it is only ever accessed atomically here.
    unsafe { AtomicU64::from_ptr(&raw mut (*page).produced) }.load(Ordering::Acquire)
}

/// The current thread, known by this number, exits, or executes another program: its page may serve another one of the same file.
pub(super) fn exit(tid: u32, _irq: &LocalInterruptDisabled) {
    place_of(tid).into_iter().for_each(forget);
}

/// The place of the current thread, known by this number, if it has one.
fn place_of(tid: u32) -> Option<&'static Place> {
    if !are_there() {
        return None;
    }
    PLACES.get(THREADS.get(tid)? as usize).filter(|place| place.is_of(Task::current_raw()))
}

/// Forgets the pages of threads that have exited, or executed another program, while no session was there and nobody looked. The probes
/// look from now on.
pub(super) fn forget_gone() {
    forget_gone_of(&PAGES.lock());
}

fn forget_gone_of(pages: &[Option<Made>; PAGES_MAX]) {
    for (place, made) in PLACES.iter().zip(pages) {
        let stays = |made: &Made| made.thread.is_alive() && made.thread.is_entitled();
        if !made.as_ref().is_some_and(stays) {
            forget(place);
        }
    }
}

fn forget(place: &Place) {
    let mut writer = WRITER.lock();
    let tid = place.tid.swap(0, Ordering::Relaxed);
    if tid != 0 {
        THREADS.remove(&mut writer, tid);
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Markers that wait in a thread's page.
pub(super) struct Waiting {
    place: &'static Place,
    page: *mut MarkerPage,
    pub(super) pending: crate::hpm_core::markers::Pending,
}

/// Whether any thread has a page.
pub(super) fn are_there() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// What waits in the page of the current thread, if there is anything.
pub(super) fn waiting(_irq: &LocalInterruptDisabled) -> Option<Waiting> {
    let place = place_of(current_tid())?;
    let page = place.page.load(Ordering::Acquire);
    if page.is_null() {
        return None;
    }
    let (taken, produced) = (place.taken.load(Ordering::Relaxed), produced(page));
    (taken != produced).then(|| Waiting { place, page, pending: pending(taken, produced) })
}

/// Forgets what waits in the page of the current thread.
pub(super) fn discard(irq: &LocalInterruptDisabled) {
    if let Some(waiting) = waiting(irq) {
        waiting.give_back();
    }
}

impl Waiting {
    /// The markers, in the order in which they were set.
    pub(super) fn marks(&self) -> impl Iterator<Item = Mark> + '_ {
        (0..u64::from(self.pending.count)).map(|place| self.mark(self.pending.first.wrapping_add(place)))
    }

    fn mark(&self, number: u64) -> Mark {
        let slot = number as usize % PAGE_MARKERS;
        let offset = offset_of!(MarkerPage, markers) + slot * size_of::<PageMarker>();
        // SAFETY: The offset is that of a whole marker in the page.
        let marker = unsafe { self.page.byte_add(offset) }.cast::<PageMarker>();
        // SAFETY: The page is mapped while interrupts are off. The thread may be writing it on no other CPU, but others
        // of its process can: any bytes will do.
        let marker = unsafe { marker.read_volatile() };
        Mark { tsc: Some(marker.tsc), value: marker.value, name: marker.name }
    }

    /// Tells the thread that its markers were taken, whether or not they were looked at.
    pub(super) fn give_back(self) {
        let number = self.pending.first.wrapping_add(u64::from(self.pending.count));
        self.place.taken.store(number, Ordering::Relaxed);
        // SAFETY: The page is mapped; the field is only ever accessed atomically here.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page).taken) }.store(number, Ordering::Release);
    }
}
