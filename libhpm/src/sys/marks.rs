//! Marker pages: memory that a thread writes and the driver reads when the thread's quantum ends.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hpm_abi::{MARKER_NAME_BYTES, MarkerPage, PAGE_BYTES, PAGE_MARKERS, PageMarker};
use memmap2::{MmapOptions, MmapRaw};

use super::device::{Denied, Device, Driver};
use crate::{Error, Result};

/// Forks since the process began: a child has none of its parent's marker pages.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The marker page of the thread that made it.
#[derive(Debug)]
pub struct Page {
    /// Unmapped only where it is mapped: a child of a fork has something else at its address, or nothing.
    map: ManuallyDrop<MmapRaw>,
    produced: u64,
    forks: u32,
    /// The driver takes what is in it for this thread's.
    not_send: PhantomData<*mut ()>,
}

/// Why a marker was not written to the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// The driver has not taken the older ones yet.
    Full,
    /// The process has forked since, and its child does not have the page.
    Forked,
}

impl Page {
    /// Makes or finds the calling thread's page, and maps it.
    ///
    /// # Errors
    /// [`Error::Io`] when the driver has no more pages, the thread has a page of another descriptor, or it cannot be mapped.
    pub fn new(driver: &Driver) -> Result<Self> {
        watch_forks();
        let offset = driver.marker_page().map_err(|Denied { errno, .. }| {
            Error::io("get a marker page")(std::io::Error::from_raw_os_error(errno))
        })?;
        let map = MmapOptions::new()
            .offset(offset)
            .len(PAGE_BYTES)
            .map_raw(driver.memory().as_raw_fd())
            .map_err(Error::io("map a marker page"))?;
        let forks = FORKS.load(Ordering::Relaxed);
        let mut page = Self { map: ManuallyDrop::new(map), produced: 0, forks, not_send: PhantomData };
        // Another thread that has exited may have used it before.
        page.produced = page.word(offset_of!(MarkerPage, produced)).load(Ordering::Relaxed);
        Ok(page)
    }

    /// Writes a marker with the time `tsc`, without a system call.
    ///
    /// # Errors
    /// [`NotWritten`]; nothing was written then.
    pub fn write(&mut self, tsc: u64, value: u64, name: [u8; MARKER_NAME_BYTES]) -> Result<(), NotWritten> {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return Err(NotWritten::Forked);
        }
        let taken = self.word(offset_of!(MarkerPage, taken)).load(Ordering::Acquire);
        if self.produced.wrapping_sub(taken) >= PAGE_MARKERS as u64 {
            return Err(NotWritten::Full);
        }
        let slot = self.produced as usize % PAGE_MARKERS;
        let offset = offset_of!(MarkerPage, markers) + slot * size_of::<PageMarker>();
        let marker = PageMarker { tsc, value, name, reserved: [0; 3] };
        let place = self.map.as_mut_ptr().wrapping_add(offset).cast::<PageMarker>();
        // SAFETY: `offset` is that of a whole marker in the page, which is mapped (no fork has happened) and aligned. The
        // driver reads it only after the store below.
        unsafe { place.write_volatile(marker) };
        self.produced = self.produced.wrapping_add(1);
        self.word(offset_of!(MarkerPage, produced)).store(self.produced, Ordering::Release);
        Ok(())
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: The offset is that of an aligned field of the page, which is mapped, and the field is only accessed
        // atomically on this side.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().wrapping_add(offset).cast()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.forks == FORKS.load(Ordering::Relaxed) {
            // SAFETY: It is dropped here alone, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

fn watch_forks() {
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `forked` is a function that only changes an atomic, as a child after fork may.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}
