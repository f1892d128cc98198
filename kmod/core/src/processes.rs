//! The table from a process to what the shell knows of it: read without a lock by the switch path, written under one.

use core::sync::atomic::{AtomicU64, Ordering};

/// Places; a power of two.
const PLACES: usize = 16384;
/// Processes at most, so that nearly every search soon meets an empty place.
pub const PROCESSES_MAX: usize = PLACES / 2;
/// Places that a search looks at: an entry is at most so far from its home, so that no pattern of IDs makes a miss slow, which
/// every context switch to a process that is not measured is.
const PROBES: usize = 128;
/// Groups that processes are in, by the lowest byte of their value.
pub const GROUPS: usize = 64;

/// A place that is free, and that no search needs to pass.
const EMPTY: u64 = 0;
/// A place that is free, but that the search for an entry behind it must pass.
const DELETED: u64 = u64::MAX;

/// Processes by thread-group ID (not 0), each with a 32-bit value. Any number of readers beside one [`Writer`].
///
/// A reader may miss a process that is being inserted; it never finds one under another's ID.
#[derive(Debug)]
pub struct Processes {
    places: [AtomicU64; PLACES],
}

/// The writer's part of a [`Processes`]; whoever holds it may change the table.
#[derive(Debug)]
pub struct Writer {
    /// Processes of each group: who removes one need not search the table for what is not there.
    used: [u32; GROUPS],
}

/// The group of a process with this value.
fn group(value: u32) -> usize {
    value as u8 as usize % GROUPS
}

fn entry(tgid: u32, value: u32) -> u64 {
    u64::from(tgid) << 32 | u64::from(value)
}

/// The place so many behind this one.
const fn after(place: usize, steps: usize) -> usize {
    place.wrapping_add(steps) % PLACES
}

/// How far behind its home an entry's place is.
fn distance(found: u64, place: usize) -> usize {
    place.wrapping_sub(home((found >> 32) as u32)) % PLACES
}

/// Fibonacci hashing: the multiplier's high bits spread neighbouring numbers.
fn home(tgid: u32) -> usize {
    (tgid.wrapping_mul(0x9E37_79B1) >> (32 - PLACES.trailing_zeros())) as usize
}

impl Default for Processes {
    fn default() -> Self {
        Self::new()
    }
}

impl Processes {
    /// No process.
    #[must_use]
    pub const fn new() -> Self {
        Self { places: [const { AtomicU64::new(EMPTY) }; PLACES] }
    }

    /// The value of this process.
    #[must_use]
    pub fn get(&self, tgid: u32) -> Option<u32> {
        self.find(tgid).map(|(_, value)| value)
    }

    /// Sets the value of this process; `false` when [`PROCESSES_MAX`] are there, or all places that it could have are
    /// taken.
    #[must_use]
    pub fn set(&self, writer: &mut Writer, tgid: u32, value: u32) -> bool {
        if let Some((place, old)) = self.find(tgid) {
            self.places[place].store(entry(tgid, value), Ordering::Release);
            writer.leaves(old);
            writer.joins(value);
            return true;
        }
        if writer.processes() >= PROCESSES_MAX {
            return false;
        }
        let mut places = (0..PROBES).map(|steps| after(home(tgid), steps));
        let Some(place) = places.find(|&place| is_free(self.places[place].load(Ordering::Relaxed))) else {
            return false;
        };
        self.places[place].store(entry(tgid, value), Ordering::Release);
        writer.joins(value);
        true
    }

    /// Forgets this process; what its value was.
    pub fn remove(&self, writer: &mut Writer, tgid: u32) -> Option<u32> {
        let (place, value) = self.find(tgid)?;
        writer.leaves(value);
        self.clear(place);
        Some(value)
    }

    /// Forgets every process of this group; whether there was one.
    pub fn remove_group(&self, writer: &mut Writer, number: usize) -> bool {
        let any = writer.used.get(number).is_some_and(|used| *used > 0);
        for place in 0..PLACES {
            if writer.used.get(number).is_none_or(|used| *used == 0) {
                break;
            }
            let found = self.places[place].load(Ordering::Relaxed);
            if !is_free(found) && group(found as u32) == number {
                writer.leaves(found as u32);
                self.clear(place);
            }
        }
        any
    }

    fn find(&self, tgid: u32) -> Option<(usize, u32)> {
        for place in (0..PROBES).map(|steps| after(home(tgid), steps)) {
            let found = self.places[place].load(Ordering::Acquire);
            if found == EMPTY {
                return None;
            }
            if found != DELETED && (found >> 32) as u32 == tgid {
                return Some((place, found as u32));
            }
        }
        None
    }

    /// Frees a place, and all from the entry's home on that searches passed only to come here. No other needs a look: what is
    /// [`DELETED`] is always passed by the search for some entry.
    fn clear(&self, place: usize) {
        let first = distance(self.places[place].load(Ordering::Relaxed), place);
        self.places[place].store(DELETED, Ordering::Release);
        let start = place.wrapping_sub(first) % PLACES;
        let at = |steps| &self.places[after(start, steps)];
        let is_empty = |steps: &usize| at(*steps).load(Ordering::Relaxed) == EMPTY;
        // Whose home is at or before `place` is less than PROBES behind it.
        let end = (first..first + PROBES).find(is_empty).unwrap_or(first + PROBES);
        // Steps to the first place that a search for an entry seen so far passes.
        let mut passed = end;
        for steps in (0..end).rev() {
            let found = at(steps).load(Ordering::Relaxed);
            if !is_free(found) {
                passed = passed.min(steps.saturating_sub(distance(found, after(start, steps))));
            } else if found == DELETED && steps <= first && steps < passed {
                // Those behind `place` the search for the entry did not pass, and one behind `end` may need them.
                at(steps).store(EMPTY, Ordering::Release);
            }
        }
    }
}

fn is_free(found: u64) -> bool {
    found == EMPTY || found == DELETED
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// The writer of an empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { used: [0; GROUPS] }
    }

    fn processes(&self) -> usize {
        self.used.iter().sum::<u32>() as usize
    }

    fn joins(&mut self, value: u32) {
        self.used[group(value)] += 1;
    }

    fn leaves(&mut self, value: u32) {
        let used = &mut self.used[group(value)];
        *used = used.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::boxed::Box;
    use std::collections::HashMap;
    use std::vec::Vec;

    use super::*;

    /// IDs whose search starts at the same place.
    fn colliding(count: usize) -> Vec<u32> {
        (1..).filter(|&tgid| home(tgid) == home(1)).take(count).collect()
    }

    fn table() -> (Box<Processes>, Writer) {
        (Box::new(Processes::new()), Writer::new())
    }

    #[test]
    fn a_process_is_found_behind_one_that_was_removed() {
        let (table, mut writer) = table();
        let [first, second, third] = colliding(3)[..] else { unreachable!() };
        for (value, tgid) in [first, second, third].into_iter().enumerate() {
            assert!(table.set(&mut writer, tgid, value as u32));
        }
        assert_eq!(table.remove(&mut writer, second), Some(1));
        assert_eq!((table.get(first), table.get(second), table.get(third)), (Some(0), None, Some(2)));
        assert!(table.set(&mut writer, second, 7), "takes the place that became free");
        assert_eq!((table.get(second), table.get(third)), (Some(7), Some(2)));
    }

    #[test]
    fn removing_leaves_nothing_that_a_search_must_pass() {
        let (table, mut writer) = table();
        let ids = colliding(8);
        for &tgid in &ids {
            assert!(table.set(&mut writer, tgid, 0));
        }
        for &tgid in &ids {
            table.remove(&mut writer, tgid);
        }
        assert!(table.places.iter().all(|place| place.load(Ordering::Relaxed) == EMPTY));
    }

    /// How many places the search for this one looks at.
    fn looks(table: &Processes, tgid: u32) -> usize {
        let place = |steps: &usize| table.places[after(home(tgid), *steps)].load(Ordering::Relaxed);
        1 + (0..PROBES - 1).take_while(|steps| place(steps) != EMPTY).count()
    }

    #[test]
    fn a_miss_stays_cheap_while_neighbours_live_and_others_come_and_go() {
        let (table, mut writer) = table();
        let live: Vec<u32> = (1..=1000).map(|number| number * 37).collect();
        for &tgid in &live {
            assert!(table.set(&mut writer, tgid, 1));
        }
        let others = (1..350_000).filter(|tgid| tgid % 37 != 0);
        for tgid in others.clone() {
            assert!(table.set(&mut writer, tgid, 2));
            assert_eq!(table.remove(&mut writer, tgid), Some(2));
        }
        assert!(live.iter().all(|&tgid| table.get(tgid) == Some(1)));
        let (sum, count) = others.fold((0, 0), |(sum, count), tgid| (sum + looks(&table, tgid), count + 1));
        assert!(sum < 2 * count, "{sum} places for {count} misses");
    }

    #[test]
    fn no_search_looks_further_than_its_bound() {
        let (table, mut writer) = table();
        let ids = colliding(PROBES + 1);
        let (last, taken) = ids.split_last().unwrap();
        for &tgid in taken {
            assert!(table.set(&mut writer, tgid, 3));
        }
        assert!(!table.set(&mut writer, *last, 3), "no place within the bound");
        assert!(taken.iter().all(|&tgid| table.get(tgid) == Some(3)));
        assert_eq!((table.get(*last), looks(&table, *last)), (None, PROBES));
        assert_eq!(table.remove(&mut writer, taken[0]), Some(3));
        assert!(table.set(&mut writer, *last, 3));
        assert_eq!(table.get(*last), Some(3));
    }

    #[test]
    fn an_entry_far_behind_is_still_found_after_others_have_gone() {
        let (table, mut writer) = table();
        let homed = |place| (1u32..).filter(move |&tgid| home(tgid) == place);
        let first = 5000;
        let taken: Vec<u32> = (first..first + PROBES + 3).map(|place| homed(place).next().unwrap()).collect();
        for &tgid in &taken {
            assert!(table.set(&mut writer, tgid, 3));
        }
        let behind = homed(first + 120).nth(1).unwrap();
        assert!(table.set(&mut writer, behind, 4));
        for gone in (121..128).chain([0]) {
            assert_eq!(table.remove(&mut writer, taken[gone]), Some(3));
            assert_eq!(table.get(behind), Some(4), "after the one at {gone} has gone");
        }
    }

    #[test]
    fn a_full_table_refuses_another_process_but_not_a_known_one() {
        let (table, mut writer) = table();
        for tgid in 1..=PROCESSES_MAX as u32 {
            assert!(table.set(&mut writer, tgid, 0));
        }
        assert!(!table.set(&mut writer, u32::MAX - 1, 0));
        assert!(table.set(&mut writer, 1, 5));
        table.remove_group(&mut writer, 0);
        assert_eq!((table.get(1), table.get(2), writer.processes()), (Some(5), None, 1));
    }

    #[test]
    fn it_agrees_with_a_map_over_random_changes() {
        let (table, mut writer) = table();
        let mut map = HashMap::new();
        let mut random = 1u64;
        for _ in 0..200_000 {
            // Knuth's MMIX generator; its high bits are good enough.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let tgid = (random >> 33) as u32 % 3000 + 1;
            if random >> 63 == 0 {
                assert!(table.set(&mut writer, tgid, random as u32));
                map.insert(tgid, random as u32);
            } else {
                assert_eq!(table.remove(&mut writer, tgid), map.remove(&tgid));
            }
        }
        assert!((1..=3000).all(|tgid| table.get(tgid) == map.get(&tgid).copied()));
        assert_eq!(writer.processes(), map.len());
        for number in 0..GROUPS {
            table.remove_group(&mut writer, number);
            map.retain(|_, value| group(*value) != number);
            assert!((1..=3000).all(|tgid| table.get(tgid) == map.get(&tgid).copied()));
        }
        assert_eq!(writer.processes(), 0);
    }
}
