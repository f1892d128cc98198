//! What happened in each slot of time: bounded, and aligned between threads by the slots' numbers.

use std::collections::VecDeque;

use super::batch::{EVENTS, Quantum};
use libhpm::analysis::explore::QuantumEnd;

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

/// The last slots of a thread, process or CPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    slots: VecDeque<Slot>,
    /// Number of the last one.
    last: u64,
    /// Of all its time.
    pub(crate) total: Slot,
}

impl Series {
    /// Takes a quantum; slots are `slot_ns` long.
    pub(crate) fn add(&mut self, quantum: &Quantum, migrated: bool, slot_ns: u64) {
        let (first, last) = (quantum.start_ns / slot_ns, quantum.end_ns.saturating_sub(1) / slot_ns);
        let last = last.max(first);
        for number in first.max(last.saturating_sub(HISTORY as u64))..=last {
            let from = quantum.start_ns.max(number * slot_ns);
            let until = quantum.end_ns.min((number + 1) * slot_ns);
            if let Some(slot) = self.slot(number) {
                slot.on_cpu_ns += until.saturating_sub(from);
                // Looked for once: most quanta are of one slot, and slots of many threads are in no cache.
                if number == last {
                    slot.end(quantum, migrated);
                }
            }
        }
        self.total.on_cpu_ns += quantum.duration_ns();
        self.total.end(quantum, migrated);
    }

    /// The slot with this number, which is made if it is a new one; `None` for one that is not kept any more.
    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        if self.slots.is_empty() || number >= self.last + HISTORY as u64 {
            self.slots.clear();
            self.slots.push_back(Slot::default());
            self.last = number;
        }
        while self.last < number {
            self.slots.push_back(Slot::default());
            self.last += 1;
            if self.slots.len() > HISTORY {
                self.slots.pop_front();
            }
        }
        while self.last - number >= self.slots.len() as u64 {
            if self.slots.len() >= HISTORY {
                return None;
            }
            self.slots.push_front(Slot::default());
        }
        let place = self.slots.len() as u64 - 1 - (self.last - number);
        self.slots.get_mut(place as usize)
    }

    /// What happened in a slot; nothing in one that is not kept.
    pub(crate) fn at(&self, number: u64) -> Slot {
        let back = match self.last.checked_sub(number) {
            Some(back) if !self.slots.is_empty() => back,
            _ => return Slot::default(),
        };
        let place = (self.slots.len() as u64).checked_sub(back + 1);
        place.and_then(|place| self.slots.get(place as usize)).copied().unwrap_or_default()
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
        assert_eq!((series.at(2).preemptions, series.total.on_cpu_ns), (1, 200));
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
        assert!(series.slots.len() <= HISTORY);
    }

    #[test]
    fn an_empty_quantum_is_one() {
        let mut series = Series::default();
        series.add(&quantum(100, 100), true, 100);
        assert_eq!((series.at(1).quanta, series.at(1).migrations), (1, 1));
    }
}
