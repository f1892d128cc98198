//! A thread's file.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;

use libhpm::call_log::{HEADER_BYTES, Header, LOST_AT, NAME_AT};
use memmap2::{Advice, MmapMut};
use nix::errno::Errno;

use crate::clock::cpu_ns;
use crate::ffi;

/// Bytes of a page, or a part of one: of x86.
pub(crate) const PAGE: usize = 4096;
/// Records that a window holds: of any size they fill whole pages.
const WINDOW_RECORDS: usize = 16_384;
/// Pages that are got at once: a part of those that there are, so that few calls cost little and many do not ask often.
const LEAST_PAGES: usize = 8;
const MOST_PAGES: usize = 128;
const PART: usize = 4;

/// A file that grows by windows, of which one is mapped. It is opened for each anew: a program may close descriptors that are not
/// its own, and use their numbers.
pub(crate) struct Log {
    path: PathBuf,
    head: MmapMut,
    window: MmapMut,
    /// Byte of the file at which the window begins.
    base: u64,
    /// Byte of the window for the next record.
    at: usize,
    /// Bytes of the window whose pages are there.
    ready: usize,
    /// Bytes of a window whose records fill whole pages.
    step: usize,
    limit: u64,
    /// Time on a CPU in ns that the first pages took, for each.
    page_ns: f64,
}

impl Log {
    /// Makes a file for records of so many words.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn create(path: PathBuf, words: usize, limit: u64) -> io::Result<Self> {
        let base = HEADER_BYTES as u64;
        let step = PAGE * words;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let bytes = window_bytes(base, step, limit).ok_or(io::ErrorKind::StorageFull)?;
        file.set_len(base + bytes as u64)?;
        let head = ffi::map(&file, 0, HEADER_BYTES)?;
        populate(&head, 0, HEADER_BYTES)?;
        let window = ffi::map(&file, base, bytes)?;
        let mut log = Self { path, head, window, base, at: 0, ready: 0, step, limit, page_ns: 0.0 };
        let began = cpu_ns();
        log.get_pages()?;
        log.page_ns = cpu_ns().saturating_sub(began) as f64 * PAGE as f64 / log.ready as f64;
        Ok(log)
    }

    /// Time on a CPU in ns that a byte of the log takes to be there.
    pub(crate) fn byte_ns(&self) -> f64 {
        self.page_ns / PAGE as f64
    }

    /// Writes the header, anew if need be.
    pub(crate) fn put_header(&mut self, header: &Header) {
        let text = serde_json::to_vec(header).unwrap_or_default();
        let length = text.len().min(NAME_AT - 1);
        self.head[..NAME_AT].fill(0);
        self.head[..length].copy_from_slice(&text[..length]);
    }

    /// Writes the thread's name.
    pub(crate) fn put_name(&mut self) {
        let name = std::fs::read("/proc/thread-self/comm").unwrap_or_default();
        let length = name.len().min(LOST_AT - NAME_AT);
        self.head[NAME_AT..NAME_AT + length].copy_from_slice(&name[..length]);
    }

    /// Adds to the events that are not written.
    pub(crate) fn lose(&mut self, events: u64) {
        let place = &mut self.head[LOST_AT..HEADER_BYTES];
        let before = u64::from_le_bytes(std::array::from_fn(|byte| place[byte]));
        place.copy_from_slice(&(before + events).to_le_bytes());
    }

    /// Writes a record, which has as many words as the file was made for: the first ones less the others. Says whether that took
    /// longer than usual, because room had to be made.
    #[inline]
    pub(crate) fn push<const WORDS: usize>(&mut self, words: &[u64; WORDS], less: &[u64; WORDS]) -> bool {
        if self.write(words, less) {
            return false;
        }
        if !self.make_room() {
            self.lose(1);
            return false;
        }
        self.write(words, less)
    }

    /// `false` when there is no room.
    #[inline]
    fn write<const WORDS: usize>(&mut self, words: &[u64; WORDS], less: &[u64; WORDS]) -> bool {
        let room = self.window.get_mut(self.at..self.ready).unwrap_or_default();
        let Some(places) = room.as_chunks_mut().0.first_chunk_mut::<WORDS>() else { return false };
        for ((place, word), less) in places.iter_mut().zip(words).zip(less) {
            *place = word.wrapping_sub(*less).to_le_bytes();
        }
        self.at += 8 * WORDS;
        true
    }

    /// `false` where there is none to be had: everything from here on is lost, and counted.
    #[cold]
    fn make_room(&mut self) -> bool {
        let more = if self.ready < self.window.len() { self.get_pages() } else { self.next_window() };
        if more.is_err() {
            // Whole records only: nothing more is written.
            self.ready = self.at;
            self.limit = 0;
        }
        more.is_ok()
    }

    fn next_window(&mut self) -> io::Result<()> {
        let base = self.base + self.window.len() as u64;
        let bytes = window_bytes(base, self.step, self.limit).ok_or(io::ErrorKind::StorageFull)?;
        let file: File = OpenOptions::new().read(true).write(true).open(&self.path)?;
        file.set_len(base + bytes as u64)?;
        self.window = ffi::map(&file, base, bytes)?;
        (self.base, self.at, self.ready) = (base, 0, 0);
        self.get_pages()
    }

    /// Has the next pages of the window there at once: to fault them in one by one would be part of what is measured.
    fn get_pages(&mut self) -> io::Result<()> {
        if self.limit == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let used = (self.base as usize + self.ready) / PAGE;
        let pages = (used / PART).clamp(LEAST_PAGES, MOST_PAGES);
        let bytes = (pages * PAGE).min(self.window.len() - self.ready);
        populate(&self.window, self.ready, bytes)?;
        self.ready += bytes;
        Ok(())
    }

    /// Forgets the records so far, which fit the first window.
    pub(crate) fn rewind(&mut self) {
        self.window[..self.at].fill(0);
        self.at = 0;
    }

    /// Cuts off what has not been used.
    pub(crate) fn finish(&mut self) {
        self.put_name();
        if let Ok(file) = OpenOptions::new().write(true).open(&self.path) {
            // What stays longer is read all the same: it is zeros.
            let _ = file.set_len(self.base + self.at as u64);
        }
    }
}

/// Bytes of the window that begins at a byte of the file, in whole steps; `None` where the limit leaves no room for any.
fn window_bytes(base: u64, step: usize, limit: u64) -> Option<usize> {
    let steps = limit.saturating_sub(base) / step as u64;
    let bytes = steps.min((WINDOW_RECORDS * 8 / PAGE) as u64) as usize * step;
    (bytes > 0).then_some(bytes)
}

/// Has pages of a file there for writing. Without room on the disk the program would be killed when it writes to them.
///
/// # Errors
/// There is no room.
fn populate(map: &MmapMut, offset: usize, bytes: usize) -> io::Result<()> {
    match map.advise_range(Advice::PopulateWrite, offset, bytes) {
        // Linux before 5.14 does not have it.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(()),
        result => result,
    }
}
