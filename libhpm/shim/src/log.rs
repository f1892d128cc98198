//! A thread's file.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;

use libhpm::call_log::{HEADER_BYTES, Header, LOST_AT, NAME_AT};
use memmap2::MmapMut;

use crate::ffi;

/// Records that the first window holds, and the largest: each holds twice as many as the one before, so that few calls cost little.
/// A window's bytes are a multiple of a page with either.
const FIRST_RECORDS: usize = 512;
const MOST_RECORDS: usize = 16_384;

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
    /// Bytes of the largest window.
    largest: usize,
    limit: u64,
}

impl Log {
    /// Makes a file for records of so many words.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn create(path: PathBuf, words: usize, limit: u64) -> io::Result<Self> {
        let base = HEADER_BYTES as u64;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let bytes = FIRST_RECORDS * 8 * words;
        file.set_len(base + bytes as u64)?;
        let head = ffi::map(&file, 0, HEADER_BYTES)?;
        let window = ffi::map(&file, base, bytes)?;
        Ok(Self { path, head, window, base, at: 0, largest: MOST_RECORDS * 8 * words, limit })
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
    /// longer than usual, because another window had to be mapped.
    #[inline]
    pub(crate) fn push<const WORDS: usize>(&mut self, words: &[u64; WORDS], less: &[u64; WORDS]) -> bool {
        if self.write(words, less) {
            return false;
        }
        if !self.next_window() {
            self.lose(1);
            return false;
        }
        self.write(words, less)
    }

    /// `false` when the window is full.
    #[inline]
    fn write<const WORDS: usize>(&mut self, words: &[u64; WORDS], less: &[u64; WORDS]) -> bool {
        let room = self.window.get_mut(self.at..).unwrap_or_default();
        let Some(places) = room.as_chunks_mut().0.first_chunk_mut::<WORDS>() else { return false };
        for ((place, word), less) in places.iter_mut().zip(words).zip(less) {
            *place = word.wrapping_sub(*less).to_le_bytes();
        }
        self.at += 8 * WORDS;
        true
    }

    #[cold]
    fn next_window(&mut self) -> bool {
        let base = self.base + self.window.len() as u64;
        let bytes = self.largest.min(2 * self.window.len());
        let end = base + bytes as u64;
        if end > self.limit {
            return false;
        }
        let mapped = OpenOptions::new().read(true).write(true).open(&self.path).and_then(|file: File| {
            file.set_len(end)?;
            ffi::map(&file, base, bytes)
        });
        // Without room on the disk everything from here on is lost, and counted.
        let Ok(window) = mapped else {
            self.limit = 0;
            return false;
        };
        (self.window, self.base, self.at) = (window, base, 0);
        true
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
