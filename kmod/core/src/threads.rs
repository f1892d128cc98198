//! Where a session keeps each thread's sampling position between its stays on CPUs.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

use super::abi::SAMPLING_COUNTERS_MAX;

/// One place of the table. The shell allocates [`Threads::slots_for`] of them, each [`ThreadSlot::new`].
#[derive(Debug)]
pub struct ThreadSlot {
    key: AtomicU32,
    left: [AtomicI64; SAMPLING_COUNTERS_MAX],
}

/// The numbers of one table. One per session.
#[derive(Debug)]
pub struct ThreadTally {
    live: AtomicU32,
    overflowed: [AtomicU64; 64],
}

/// A session's thread table: lock-free, for any number of CPUs at once.
#[derive(Clone, Copy, Debug)]
pub struct Threads<'a> {
    slots: &'a [ThreadSlot],
    tally: &'a ThreadTally,
    limit: u32,
}

impl ThreadSlot {
    /// An empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self { key: AtomicU32::new(0), left: [const { AtomicI64::new(0) }; SAMPLING_COUNTERS_MAX] }
    }
}

impl ThreadTally {
    /// No thread yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { live: AtomicU32::new(0), overflowed: [const { AtomicU64::new(0) }; 64] }
    }
}

impl<'a> Threads<'a> {
    /// Places to allocate for this many threads: a power of two, half of them free.
    #[must_use]
    pub const fn slots_for(max_threads: u32) -> usize {
        (max_threads as usize * 2).next_power_of_two()
    }

    /// The table in these places, which are as many as [`Threads::slots_for`] says.
    #[must_use]
    pub const fn new(slots: &'a [ThreadSlot], tally: &'a ThreadTally, limit: u32) -> Self {
        Self { slots, tally, limit }
    }

    /// Frees the place of a thread that has exited, after its last [`super::Engine::switch_out`].
    pub fn remove(&self, _tid: u32) {
        todo!()
    }

    /// Threads that found no place (counted by a hash of their IDs: a lower bound when there are thousands).
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        todo!()
    }
}
