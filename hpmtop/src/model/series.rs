//! What happened in each slot of time: bounded, and aligned between threads by the slots' numbers.

use std::collections::VecDeque;

use libhpm::analysis::explore::QuantumEnd;

use super::batch::{EVENTS, Quantum};

/// Slots that are kept.
pub(crate) const HISTORY: usize = 120;

/// Sums over one slot of time. What every quantum changes stands together, before counts of which many are always 0: slots of many
/// threads are in no cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Slot {
    pub(crate) on_cpu_ns: u64,
    pub(crate) quanta: u32,
    pub(crate) yields: u32,
    pub(crate) preemptions: u32,
    pub(crate) migrations: u32,
    pub(crate) samples: u32,
    pub(crate) lost: u64,
    pub(crate) counts: [u64; EVENTS],
}

impl Slot {
    /// Takes a whole quantum.
    pub(crate) fn take(&mut self, quantum: &Quantum, migrated: bool) {
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(quantum.duration_ns());
        self.end(quantum, migrated);
    }

    /// Takes a quantum that ended in the slot; its time is added apart, because it can be of several slots.
    fn end(&mut self, quantum: &Quantum, migrated: bool) {
        self.quanta += 1;
        self.samples = self.samples.saturating_add(quantum.samples);
        self.lost = self.lost.saturating_add(quantum.lost);
        self.migrations += u32::from(migrated);
        self.yields += u32::from(quantum.end == Some(QuantumEnd::Yielded));
        self.preemptions += u32::from(quantum.end == Some(QuantumEnd::Preempted));
        for (sum, count) in self.counts.iter_mut().zip(quantum.counts).filter(|(_, count)| *count > 0) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Adds another slot, of another thread or another time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(other.on_cpu_ns);
        self.quanta = self.quanta.saturating_add(other.quanta);
        self.yields = self.yields.saturating_add(other.yields);
        self.preemptions = self.preemptions.saturating_add(other.preemptions);
        self.migrations = self.migrations.saturating_add(other.migrations);
        self.samples = self.samples.saturating_add(other.samples);
        self.lost = self.lost.saturating_add(other.lost);
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(count);
        }
    }
}

/// The last slots, whatever is kept of each.
#[derive(Clone, Debug, Default)]
struct Recent<T> {
    slots: VecDeque<T>,
    /// Number of the last one.
    last: u64,
}

impl<T: Default> Recent<T> {
    /// The slot with this number, which is made if it is a new one; `None` for one that is not kept any more. What was kept of
    /// the oldest slot is emptied and used again.
    fn at_mut(&mut self, number: u64, empty: fn(&mut T)) -> Option<&mut T> {
        if self.slots.is_empty() || number >= self.last + HISTORY as u64 {
            self.slots.clear();
            self.slots.push_back(T::default());
            self.last = number;
        }
        while self.last < number {
            let oldest = if self.slots.len() < HISTORY { None } else { self.slots.pop_front() };
            let mut next = oldest.unwrap_or_default();
            empty(&mut next);
            self.slots.push_back(next);
            self.last += 1;
        }
        while self.last - number >= self.slots.len() as u64 {
            if self.slots.len() >= HISTORY {
                return None;
            }
            self.slots.push_front(T::default());
        }
        let place = self.slots.len() as u64 - 1 - (self.last - number);
        self.slots.get_mut(place as usize)
    }

    /// The slot with this number, if it is kept.
    fn at(&self, number: u64) -> Option<&T> {
        let back = self.last.checked_sub(number)?;
        let place = (self.slots.len() as u64).checked_sub(back + 1)?;
        self.slots.get(place as usize)
    }
}

/// Hands out a quantum's part of each slot that it is in: the slot's number, how long, and whether it ends there.
fn parts(quantum: &Quantum, slot_ns: u64, mut each: impl FnMut(u64, u64, bool)) {
    let (first, last) = (quantum.start_ns / slot_ns, quantum.end_ns.saturating_sub(1) / slot_ns);
    let last = last.max(first);
    for number in first.max(last.saturating_sub(HISTORY as u64))..=last {
        let from = quantum.start_ns.max(number * slot_ns);
        let until = quantum.end_ns.min(number.saturating_add(1).saturating_mul(slot_ns));
        each(number, until.saturating_sub(from), number == last);
    }
}

/// The last slots of a process or CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Recent<Slot>);

impl Series {
    /// Takes a quantum; slots are `slot_ns` long.
    pub(crate) fn add(&mut self, quantum: &Quantum, migrated: bool, slot_ns: u64) {
        parts(quantum, slot_ns, |number, on_cpu_ns, ends| {
            if let Some(slot) = self.0.at_mut(number, |slot| *slot = Slot::default()) {
                slot.on_cpu_ns += on_cpu_ns;
                if ends {
                    slot.end(quantum, migrated);
                }
            }
        });
    }

    /// What happened in a slot; nothing in one that is not kept.
    pub(crate) fn at(&self, number: u64) -> Slot {
        self.0.at(number).copied().unwrap_or_default()
    }
}

/// The last slots of all threads. What hundreds of them do in one slot stands together: with a [`Series`] of each, every quantum of
/// another thread would wait for memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadSeries {
    /// Of each slot the threads by their places; one whose place is beyond did nothing in it.
    slots: Recent<Vec<Slot>>,
    /// Places that were ever given out.
    places: usize,
    /// Those that were given back.
    free: Vec<usize>,
}

impl ThreadSeries {
    /// A place for a thread, whose slots are empty.
    pub(crate) fn place(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        })
    }

    /// A thread needs its place no more.
    pub(crate) fn give_back(&mut self, place: usize) {
        for slot in self.slots.slots.iter_mut().filter_map(|threads| threads.get_mut(place)) {
            *slot = Slot::default();
        }
        self.free.push(place);
    }

    /// Takes a quantum of the thread with this place; slots are `slot_ns` long.
    pub(crate) fn add(&mut self, place: usize, quantum: &Quantum, migrated: bool, slot_ns: u64) {
        let places = self.places;
        parts(quantum, slot_ns, |number, on_cpu_ns, ends| {
            let Some(threads) = self.slots.at_mut(number, Vec::clear) else { return };
            if threads.len() <= place {
                threads.resize(places, Slot::default());
            }
            if let Some(slot) = threads.get_mut(place) {
                slot.on_cpu_ns += on_cpu_ns;
                if ends {
                    slot.end(quantum, migrated);
                }
            }
        });
    }

    /// What the thread with this place did in a slot; nothing in one that is not kept.
    pub(crate) fn at(&self, place: usize, number: u64) -> Slot {
        self.slots.at(number).and_then(|threads| threads.get(place)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantum(start_ns: u64, end_ns: u64) -> Quantum {
        let mut counts = [0; EVENTS];
        counts[0] = 7;
        Quantum { start_ns, end_ns, end: Some(QuantumEnd::Preempted), counts, ..Quantum::default() }
    }

    #[test]
    fn time_is_split_between_slots_and_counts_belong_to_the_end() {
        let mut series = Series::default();
        series.add(&quantum(50, 250), false, 100);
        assert_eq!([0, 1, 2, 3].map(|slot| series.at(slot).on_cpu_ns), [50, 100, 50, 0]);
        assert_eq!([0, 1, 2].map(|slot| series.at(slot).counts[0]), [0, 0, 7]);
        assert_eq!(series.at(2).preemptions, 1);
    }

    #[test]
    fn quanta_may_come_late_and_after_long_pauses() {
        let mut series = Series::default();
        series.add(&quantum(500, 550), false, 100);
        series.add(&quantum(200, 300), false, 100);
        assert_eq!([2, 5].map(|slot| series.at(slot).on_cpu_ns), [100, 50]);
        series.add(&quantum(1_000_000, 1_000_010), false, 100);
        assert_eq!((series.at(5).on_cpu_ns, series.at(10_000).on_cpu_ns), (0, 10));
        series.add(&quantum(0, 10), false, 100);
        assert_eq!(series.at(0).on_cpu_ns, 0, "too old to be kept");
        assert!(series.0.slots.len() <= HISTORY);
    }

    #[test]
    fn an_empty_quantum_is_one() {
        let mut series = Series::default();
        series.add(&quantum(100, 100), true, 100);
        assert_eq!((series.at(1).quanta, series.at(1).migrations), (1, 1));
    }

    #[test]
    fn a_place_that_was_given_back_is_empty_and_given_out_again() {
        let mut threads = ThreadSeries::default();
        let (first, second) = (threads.place(), threads.place());
        threads.add(first, &quantum(0, 150), false, 100);
        threads.add(second, &quantum(150, 160), false, 100);
        threads.give_back(first);
        assert_eq!(threads.place(), first);
        assert_eq!([0, 1].map(|slot| threads.at(first, slot)), [Slot::default(); 2]);
        assert_eq!(threads.at(second, 1).on_cpu_ns, 10);
    }

    proptest::proptest! {
        /// Together or each on its own, threads have the same slots.
        #[test]
        fn threads_together_are_as_each_alone(
            quanta in proptest::collection::vec((0_usize..5, 0_u64..40_000, 0_u64..400), 0..60),
        ) {
            let mut together = ThreadSeries::default();
            let places: Vec<usize> = (0..5).map(|_| together.place()).collect();
            let mut alone = vec![Series::default(); 5];
            for (thread, start, length) in quanta {
                let one = quantum(start, start + length);
                together.add(places[thread], &one, false, 100);
                // The others of the machine move on with time as well.
                for (other, series) in alone.iter_mut().enumerate() {
                    let nothing = Quantum { end: None, counts: [0; EVENTS], ..Quantum::default() };
                    let at = one.end_ns.saturating_sub(1).max(one.start_ns);
                    let none = Quantum { start_ns: at, end_ns: at, ..nothing };
                    series.add(if other == thread { &one } else { &none }, false, 100);
                }
            }
            for number in 0..410 {
                for (place, series) in places.iter().zip(&alone) {
                    let (one, other) = (together.at(*place, number), series.at(number));
                    proptest::prop_assert_eq!((one.on_cpu_ns, one.counts), (other.on_cpu_ns, other.counts));
                }
            }
        }
    }
}
