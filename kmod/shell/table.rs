// SPDX-License-Identifier: GPL-2.0
//! The table from a process to what is known of it: read without a lock by the switch path, written under a lock.

use core::sync::atomic::{AtomicU64, Ordering};

/// Places; a power of two.
const PLACES: usize = 16384;
/// Processes at most, so that every search soon meets an empty place.
const PROCESSES_MAX: usize = PLACES / 2;

/// A place that has never been used, or is not needed any more by a search that passes it.
const EMPTY: u64 = 0;
/// A place that is free, but that a search must pass.
const DELETED: u64 = u64::MAX;

/// A lock-free reader's view of the processes that are measured. Each entry is a thread-group ID and a 32-bit value.
pub(super) struct Table {
    places: [AtomicU64; PLACES],
}

/// The writer's part of a [`Table`]; whoever holds it may change the table.
pub(super) struct Writer {
    used: usize,
}

fn entry(tgid: u32, value: u32) -> u64 {
    u64::from(tgid) << 32 | u64::from(value)
}

/// Fibonacci hashing: the multiplier's high bits spread neighbouring numbers.
fn home(tgid: u32) -> usize {
    (tgid.wrapping_mul(0x9E37_79B1) >> (32 - PLACES.trailing_zeros())) as usize
}

impl Table {
    /// An empty table.
    pub(super) const fn new() -> Self {
        Self { places: [const { AtomicU64::new(EMPTY) }; PLACES] }
    }

    /// The value of this process.
    pub(super) fn get(&self, tgid: u32) -> Option<u32> {
        let mut place = home(tgid);
        for _ in 0..PLACES {
            let found = self.places[place].load(Ordering::Acquire);
            if found == EMPTY {
                return None;
            }
            if found != DELETED && (found >> 32) as u32 == tgid {
                return Some(found as u32);
            }
            place = (place + 1) % PLACES;
        }
        None
    }

    /// Sets the value of this process; `false` when the table is full.
    pub(super) fn set(&self, writer: &mut Writer, tgid: u32, value: u32) -> bool {
        if let Some(place) = self.place_of(tgid) {
            self.places[place].store(entry(tgid, value), Ordering::Release);
            return true;
        }
        if writer.used >= PROCESSES_MAX {
            return false;
        }
        let mut place = home(tgid);
        while !matches!(self.places[place].load(Ordering::Relaxed), EMPTY | DELETED) {
            place = (place + 1) % PLACES;
        }
        self.places[place].store(entry(tgid, value), Ordering::Release);
        writer.used += 1;
        true
    }

    /// Forgets this process; what its value was.
    pub(super) fn remove(&self, writer: &mut Writer, tgid: u32) -> Option<u32> {
        let place = self.place_of(tgid)?;
        let value = self.places[place].load(Ordering::Relaxed) as u32;
        self.clear(writer, place);
        Some(value)
    }

    /// Forgets every process whose value `matches`.
    pub(super) fn remove_all(&self, writer: &mut Writer, matches: impl Fn(u32) -> bool) {
        for place in 0..PLACES {
            let found = self.places[place].load(Ordering::Relaxed);
            if !is_free(found) && matches(found as u32) {
                self.clear(writer, place);
            }
        }
    }

    fn place_of(&self, tgid: u32) -> Option<usize> {
        let start = home(tgid);
        (0..PLACES)
            .map(|step| (start + step) % PLACES)
            .take_while(|&place| self.places[place].load(Ordering::Relaxed) != EMPTY)
            .find(|&place| {
                let found = self.places[place].load(Ordering::Relaxed);
                found != DELETED && (found >> 32) as u32 == tgid
            })
    }

    /// Frees a place, and those before it that searches passed only to come here.
    fn clear(&self, writer: &mut Writer, place: usize) {
        self.places[place].store(DELETED, Ordering::Release);
        writer.used -= 1;
        let next = (place + 1) % PLACES;
        if self.places[next].load(Ordering::Relaxed) != EMPTY {
            return;
        }
        let mut place = place;
        while self.places[place].load(Ordering::Relaxed) == DELETED {
            self.places[place].store(EMPTY, Ordering::Release);
            place = (place + PLACES - 1) % PLACES;
        }
    }
}

fn is_free(found: u64) -> bool {
    found == EMPTY || found == DELETED
}

impl Writer {
    /// The writer of an empty table.
    pub(super) const fn new() -> Self {
        Self { used: 0 }
    }
}
