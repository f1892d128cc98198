//! Where the threads of a process have their stacks, as far as samples' stack pointers show.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Below the stack pointer a function without calls may use so many bytes (System V AMD64 ABI, 3.2.2).
const RED_ZONE: u64 = 128;
/// A stack usually grows to this size at most (`ulimit -s`, and the default size of a thread's).
const STACK_BYTES: u64 = 8 << 20;

/// The stacks of a process's threads.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    /// Lowest and highest stack pointer of each thread.
    threads: HashMap<u32, Range<u64>>,
    /// The highest by the lowest and the thread, so that not all threads are looked through for each sample.
    by_lowest: BTreeMap<(u64, u32), u64>,
    /// Greatest distance of the two.
    widest: u64,
}

impl Stacks {
    /// Takes note of a thread's stack pointer.
    pub(super) fn note(&mut self, tid: u32, pointer: u64) {
        let known = self.threads.entry(tid).or_insert(pointer..pointer);
        self.by_lowest.remove(&(known.start, tid));
        *known = known.start.min(pointer)..known.end.max(pointer);
        self.by_lowest.insert((known.start, tid), known.end);
        self.widest = self.widest.max(known.end - known.start);
    }

    /// The lowest stack pointers of the threads whose stacks can reach to an address.
    pub(super) fn near(&self, address: u64) -> impl Iterator<Item = u64> {
        let lowest = address.saturating_sub(STACK_BYTES).saturating_sub(self.widest);
        let candidates = self.by_lowest.range((lowest, 0)..=(address.saturating_add(RED_ZONE), u32::MAX));
        candidates
            .filter(move |&(&(start, _), &end)| reach(start, end).contains(&address))
            .map(|(of, _)| of.0)
    }
}

/// Where the stack of a thread can be that had stack pointers from `start` to `end`.
fn reach(start: u64, end: u64) -> Range<u64> {
    start.saturating_sub(RED_ZONE)..end.saturating_add(STACK_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As looking through all threads.
        #[test]
        fn an_index_finds_what_a_search_finds(
            noted in prop::collection::vec((0_u32..6, 0_u64..64, 0_u64..300), 0..40),
            place in 0_u64..64, offset in 0_u64..300,
        ) {
            let at = |place: u64, offset: u64| place * (STACK_BYTES / 4) + offset;
            let mut stacks = Stacks::default();
            let mut all: Vec<(u32, Range<u64>)> = Vec::new();
            for (tid, place, offset) in noted {
                let pointer = at(place, offset);
                stacks.note(tid, pointer);
                match all.iter_mut().find(|(known, _)| *known == tid) {
                    Some((_, range)) => *range = range.start.min(pointer)..range.end.max(pointer),
                    None => all.push((tid, pointer..pointer)),
                }
            }
            let address = at(place, offset);
            let reaches = |(_, range): &&(u32, Range<u64>)| reach(range.start, range.end).contains(&address);
            let mut expected: Vec<u64> = all.iter().filter(reaches).map(|(_, range)| range.start).collect();
            expected.sort_unstable();
            prop_assert_eq!(stacks.near(address).collect::<Vec<_>>(), expected);
        }
    }
}
