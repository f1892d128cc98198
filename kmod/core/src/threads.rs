//! Where a session keeps each thread's sampling position between its stays on CPUs.
//!
//! A thread runs on one CPU at a time, and the scheduler orders its stays, so a place has one user at a time; only
//! claiming and freeing places needs atomic operations.

use core::array;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::abi::SAMPLING_COUNTERS_MAX;
use super::lbr::calls::SavedCalls;
use super::session::Thread;
use super::turns::Turn;

/// How far a thread is from its next records, for each sampling counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Positions {
    /// Events left until the counter overflows and so lets the next one be recorded: 0 or less when a record is due.
    pub(super) left: [i64; SAMPLING_COUNTERS_MAX],
    /// The period that these are the rest of. CPUs adapt theirs apart.
    pub(super) periods: [u64; SAMPLING_COUNTERS_MAX],
}

impl Positions {
    /// Those of a thread that is not sampled.
    pub(super) const NONE: Self =
        Self { left: [0; SAMPLING_COUNTERS_MAX], periods: [0; SAMPLING_COUNTERS_MAX] };
}

/// Keys of places without a thread; thread IDs are below 2^22 (Linux PID_MAX_LIMIT).
const NEVER_USED: u32 = 0;
const FREED: u32 = u32::MAX;
/// Set in the key of a CPU's idle thread, which shares its thread ID with those of the other CPUs.
const IDLE: u32 = 1 << 31;

/// Places looked at for one thread: bounds the work on the switch path.
const PROBES: usize = 64;

/// One place of the table. The shell allocates [`Threads::slots_for`] of them.
#[derive(Debug)]
pub struct ThreadSlot {
    key: AtomicU32,
    left: [AtomicI64; SAMPLING_COUNTERS_MAX],
    periods: [AtomicU64; SAMPLING_COUNTERS_MAX],
    /// By how much each counter's last randomised interval was moved.
    shifts: [AtomicI64; SAMPLING_COUNTERS_MAX],
    /// The thread's turn in a session that multiplexes, as [`Turn::packed`] has it; 0 before it has left a CPU.
    turn: AtomicU64,
    /// One more than the CPU on which its branches were last recorded; 0 for none.
    last_on: AtomicU32,
}

/// The numbers of one table. One per session.
#[derive(Debug)]
pub struct ThreadTally {
    live: AtomicU32,
    /// A bit for each hash of a thread that found no place.
    overflowed: [AtomicU64; 64],
}

/// A session's thread table: lock-free, for any number of CPUs at once.
#[derive(Clone, Copy, Debug)]
pub struct Threads<'a> {
    slots: &'a [ThreadSlot],
    tally: &'a ThreadTally,
    limit: u32,
    calls: &'a [SavedCalls],
}

/// A thread's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

impl ThreadSlot {
    /// An empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            key: AtomicU32::new(NEVER_USED),
            left: [const { AtomicI64::new(0) }; SAMPLING_COUNTERS_MAX],
            periods: [const { AtomicU64::new(0) }; SAMPLING_COUNTERS_MAX],
            shifts: [const { AtomicI64::new(0) }; SAMPLING_COUNTERS_MAX],
            turn: AtomicU64::new(0),
            last_on: AtomicU32::new(0),
        }
    }
}

impl Default for ThreadSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadTally {
    /// No thread yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { live: AtomicU32::new(0), overflowed: [const { AtomicU64::new(0) }; 64] }
    }
}

impl Default for ThreadTally {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Threads<'a> {
    /// Places to allocate for this many threads: a power of two, at least half of them free.
    #[must_use]
    pub const fn slots_for(max_threads: u32) -> usize {
        (max_threads as usize * 2).next_power_of_two()
    }

    /// The table in these places, which are as many as [`Threads::slots_for`] says for `limit` threads.
    #[must_use]
    pub const fn new(slots: &'a [ThreadSlot], tally: &'a ThreadTally, limit: u32) -> Self {
        Self { slots, tally, limit, calls: &[] }
    }

    /// With as many places for the threads' calls, for a session that follows them by branch records.
    #[must_use]
    pub const fn with_calls(self, calls: &'a [SavedCalls]) -> Self {
        Self { calls, ..self }
    }

    /// Where the thread's calls are kept, in a session that follows them.
    pub(super) fn calls(&self, place: Place) -> Option<&'a SavedCalls> {
        self.calls.get(place.0)
    }

    /// Notes that the thread's branches are in this CPU's records.
    pub(super) fn note_last_on(&self, place: Place, cpu: u32) {
        self.slots[place.0].last_on.store(cpu + 1, Ordering::Relaxed);
    }

    /// Whether the thread's branches were last recorded on this CPU.
    pub(super) fn was_last_on(&self, place: Place, cpu: u32) -> bool {
        self.slots[place.0].last_on.load(Ordering::Relaxed) == cpu + 1
    }

    /// Threads that found no place. Counted by a hash of their IDs: a lower bound when there are hundreds.
    #[must_use]
    pub fn overflowed(&self) -> u64 {
        self.tally.overflowed.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }

    /// The thread's place, where there is one, and its positions: `fresh` ones for a thread that is new or has no place.
    pub(super) fn enter(
        &self,
        thread: Thread,
        cpu: u32,
        fresh: impl FnOnce() -> Positions,
    ) -> (Option<Place>, Positions) {
        let key = if thread.tid == 0 { IDLE | cpu } else { thread.tid };
        if let Some(place) = self.find(key) {
            let slot = &self.slots[place.0];
            let left = array::from_fn(|number| slot.left[number].load(Ordering::Relaxed));
            let periods = array::from_fn(|number| slot.periods[number].load(Ordering::Relaxed));
            return (Some(place), Positions { left, periods });
        }
        let place = self.claim(key);
        if let Some(place) = place {
            self.slots[place.0].shifts.iter().for_each(|shift| shift.store(0, Ordering::Relaxed));
        } else {
            let bit = hash(key) % (64 * 64);
            self.tally.overflowed[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
        (place, fresh())
    }

    /// Keeps the positions until the thread runs again.
    pub(super) fn store(&self, place: Place, positions: &Positions) {
        let slot = &self.slots[place.0];
        for number in 0..SAMPLING_COUNTERS_MAX {
            slot.left[number].store(positions.left[number], Ordering::Relaxed);
            slot.periods[number].store(positions.periods[number], Ordering::Relaxed);
        }
    }

    /// By how much the thread's intervals on this counter are moved: 0 for a new thread, then what was stored last.
    pub(super) fn shift(&self, place: Place, number: usize) -> &AtomicI64 {
        &self.slots[place.0].shifts[number]
    }

    /// The turn that was kept with the positions; `None` for a thread that is new.
    pub(super) fn turn(&self, place: Place) -> Option<Turn> {
        Turn::unpacked(self.slots[place.0].turn.load(Ordering::Relaxed))
    }

    /// Keeps the turn until the thread runs again.
    pub(super) fn store_turn(&self, place: Place, turn: Turn) {
        self.slots[place.0].turn.store(turn.packed(), Ordering::Relaxed);
    }

    /// Frees the place of a thread that never runs again.
    pub(super) fn free(&self, place: Place) {
        // It may have been freed already, under the number that it had before an `execve`.
        if self.slots[place.0].key.swap(FREED, Ordering::AcqRel) != FREED {
            self.tally.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Frees the place, if it has one, of a thread whose ID nothing runs under any more.
    pub fn forget(&self, thread: Thread) {
        if let Some(place) = self.find(thread.tid) {
            self.free(place);
        }
    }

    /// Frees the places of threads whose IDs nothing runs under any more. Whoever has got such an ID since keeps the place.
    pub fn forget_gone(&self, is_there: impl Fn(u32) -> bool) {
        for slot in self.slots {
            let key = slot.key.load(Ordering::Acquire);
            let is_gone = key != NEVER_USED && key & IDLE == 0 && !is_there(key);
            // Meanwhile the thread may have been told of after all, and another one have got the place.
            if is_gone && slot.key.compare_exchange(key, FREED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.tally.live.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn probes(&self, key: u32) -> impl Iterator<Item = usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let start = hash(key);
        (0..PROBES.min(self.slots.len())).map(move |step| (start + step) & mask)
    }

    fn find(&self, key: u32) -> Option<Place> {
        for place in self.probes(key) {
            match self.slots[place].key.load(Ordering::Acquire) {
                found if found == key => return Some(Place(place)),
                NEVER_USED => return None,
                _ => {}
            }
        }
        None
    }

    fn claim(&self, key: u32) -> Option<Place> {
        if self.tally.live.fetch_add(1, Ordering::Relaxed) < self.limit {
            for place in self.probes(key) {
                let slot = &self.slots[place].key;
                let found = slot.load(Ordering::Relaxed);
                let free = found == NEVER_USED || found == FREED;
                if free && slot.compare_exchange(found, key, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    self.slots[place].turn.store(0, Ordering::Relaxed);
                    self.slots[place].last_on.store(0, Ordering::Relaxed);
                    if let Some(calls) = self.calls(Place(place)) {
                        calls.clear();
                    }
                    return Some(Place(place));
                }
            }
        }
        self.tally.live.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

/// Spreads consecutive thread IDs (Fibonacci hashing: 2^32 divided by the golden ratio).
pub(super) fn hash(key: u32) -> usize {
    (key.wrapping_mul(0x9E37_79B9) >> 12) as usize
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Positions that can be told from others.
    const fn at(left: i64) -> Positions {
        Positions { left: [left; SAMPLING_COUNTERS_MAX], periods: [left as u64 + 1; SAMPLING_COUNTERS_MAX] }
    }

    const FRESH: Positions = at(7);

    fn thread(tid: u32) -> Thread {
        Thread { pid: 1, tid }
    }

    fn slots(count: usize) -> Vec<ThreadSlot> {
        (0..count).map(|_| ThreadSlot::new()).collect()
    }

    #[test]
    fn each_cpu_has_an_idle_thread_of_its_own() {
        let (slots, tally) = (slots(Threads::slots_for(4)), ThreadTally::new());
        let table = Threads::new(&slots, &tally, 4);
        let first = table.enter(thread(0), 0, || FRESH).0.expect("room");
        let second = table.enter(thread(0), 1, || FRESH).0.expect("room");
        assert_ne!(first, second);
        table.store(first, &at(3));
        assert_eq!(table.enter(thread(0), 0, || FRESH), (Some(first), at(3)));
    }

    #[test]
    fn who_has_gone_unnoticed_leaves_its_place() {
        let (slots, tally) = (slots(Threads::slots_for(3)), ThreadTally::new());
        let table = Threads::new(&slots, &tally, 3);
        for tid in [0, 5, 6] {
            table.enter(thread(tid), 0, || FRESH).0.expect("room");
        }
        assert_eq!(table.enter(thread(7), 0, || FRESH).0, None);
        table.forget_gone(|tid| tid == 5);
        assert!(table.find(6).is_none() && table.find(5).is_some() && table.find(IDLE).is_some());
        assert!(table.enter(thread(7), 0, || FRESH).0.is_some());
    }

    #[test]
    fn a_table_without_places_has_no_room() {
        let tally = ThreadTally::new();
        let table = Threads::new(&[], &tally, 4);
        assert_eq!(table.enter(thread(1), 0, || FRESH), (None, FRESH));
        assert_eq!(table.overflowed(), 1);
    }

    #[test]
    fn cpus_that_enter_and_free_threads_at_once_never_share_a_place() {
        const CPUS: u32 = 4;
        let (slots, tally) = (slots(Threads::slots_for(8)), ThreadTally::new());
        let table = Threads::new(&slots, &tally, 8);
        std::thread::scope(|scope| {
            for cpu in 0..CPUS {
                scope.spawn(move || {
                    for round in 0..5000 {
                        let tid = 1 + cpu + CPUS * (round % 50);
                        let (place, fresh) = table.enter(thread(tid), cpu, || FRESH);
                        let place = place.expect("room for two each");
                        assert_eq!(fresh, FRESH);
                        let own = at(tid.into());
                        table.store(place, &own);
                        std::thread::yield_now();
                        assert_eq!(table.enter(thread(tid), cpu, || FRESH), (Some(place), own));
                        table.free(place);
                    }
                });
            }
        });
        assert_eq!((table.overflowed(), tally.live.load(Ordering::Relaxed)), (0, 0));
    }
}
