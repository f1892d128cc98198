//! Memory in which the kernel writes an event's records.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings as b;

use super::PerfEvent;

/// Bytes of a ring's data that an unprivileged process may lock per CPU by default (perf_event_mlock_kb), halved to a
/// power of two.
pub const RING_BYTES_ANY_USER: usize = 256 * 1024;
/// A reader is woken when so many bytes wait: a quarter of the smallest ring.
pub(super) const WAKE_BYTES: u32 = 64 * 1024;
const PAGE: usize = 4096;

/// The ring of an event, and of those whose records are sent to it.
#[derive(Debug)]
pub struct Ring {
    event: PerfEvent,
    memory: MmapRaw,
    /// Bytes of data, behind the first page; a power of two.
    bytes: usize,
    scratch: Vec<u8>,
}

impl Ring {
    /// Maps a ring of at most this many bytes, a power of two: of fewer where this user may not lock so much.
    ///
    /// # Errors
    /// The system's, when even [`RING_BYTES_ANY_USER`] cannot be had.
    pub fn map(event: PerfEvent, mut bytes: usize) -> io::Result<Self> {
        loop {
            match MmapOptions::new().len(PAGE + bytes).map_raw(event.as_fd().as_raw_fd()) {
                Ok(memory) => return Ok(Self { event, memory, bytes, scratch: Vec::new() }),
                Err(_) if bytes > RING_BYTES_ANY_USER => bytes /= 2,
                Err(reason) => return Err(reason),
            }
        }
    }

    /// The event that the ring was mapped for.
    #[must_use]
    pub fn event(&self) -> &PerfEvent {
        &self.event
    }

    /// Hands every record in the ring to `each`, as type, `misc` and body, and frees its room.
    pub fn drain(&mut self, mut each: impl FnMut(u32, u16, &[u8])) {
        let head =
            self.index(std::mem::offset_of!(b::perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail_index = std::mem::offset_of!(b::perf_event_mmap_page, data_tail);
        let mut tail = self.index(tail_index).load(Ordering::Relaxed);
        let mut scratch = std::mem::take(&mut self.scratch);
        while tail < head {
            const HEADER: usize = size_of::<b::perf_event_header>();
            self.copy(tail, HEADER, &mut scratch);
            let kind = u32::from_ne_bytes([scratch[0], scratch[1], scratch[2], scratch[3]]);
            let misc = u16::from_ne_bytes([scratch[4], scratch[5]]);
            let size = usize::from(u16::from_ne_bytes([scratch[6], scratch[7]]));
            if size < HEADER {
                // The kernel writes no such record; going on would never end.
                break;
            }
            self.copy(tail + HEADER as u64, size - HEADER, &mut scratch);
            each(kind, misc, &scratch);
            tail += size as u64;
        }
        self.scratch = scratch;
        self.index(tail_index).store(head, Ordering::Release);
    }

    /// Copies `len` bytes at `position` of the ring, which may wrap.
    fn copy(&self, position: u64, len: usize, into: &mut Vec<u8>) {
        let start = position as usize % self.bytes;
        let first = len.min(self.bytes - start);
        into.clear();
        for (offset, len) in [(start, first), (0, len - first)] {
            // SAFETY: `offset + len` is at most `bytes`, so the bytes lie in the mapping after its first page. The kernel
            // wrote them before it stored `data_head` and does not reuse them before `data_tail` moves past.
            into.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.memory.as_ptr().wrapping_add(PAGE + offset), len)
            });
        }
    }

    /// One of the two indices in the first page.
    fn index(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both fields are aligned u64 in the first page, and are accessed only atomically on this side.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().wrapping_add(offset).cast()) }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
