//! Allocated objects through time: which of them an address was in at a moment, and how old that was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::locality::Object;

/// Objects of at most two to the power of so many bytes are looked for together; of greater ones each power of two apart.
const LEAST_POWER: u32 = 16;

/// An object and its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// TSC of its allocation.
    pub allocated: u64,
    /// TSC at which it was freed; `None` for one that was not.
    pub freed: Option<u64>,
    /// Process.
    pub pid: u32,
    /// First byte.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Where it was allocated.
    pub site: Arc<str>,
}

impl Life {
    fn has(&self, address: u64, tsc: u64) -> bool {
        // An object without bytes has the address of its start.
        let inside = address.wrapping_sub(self.address) < self.bytes.max(1);
        inside && self.allocated <= tsc && self.freed.is_none_or(|freed| tsc < freed)
    }
}

/// Numbers of objects by their first bytes, each list in order of allocation.
type Starts = BTreeMap<u64, Vec<u32>>;

/// The objects of a recording.
#[derive(Debug, Default)]
pub struct Objects {
    lives: Vec<Life>,
    /// Of each process, by the power of two that an object's bytes do not exceed: so far before an address its object can begin.
    starts: HashMap<u32, BTreeMap<u32, Starts>>,
    /// Of each process: when, and how many bytes had been allocated until then.
    volume: HashMap<u32, Vec<(u64, u64)>>,
}

impl Objects {
    /// Of these, in any order. Where only one allocation in so many bytes was recorded (0: all were), each stands for others, so that
    /// ages are estimates.
    #[must_use]
    pub fn new(lives: impl IntoIterator<Item = Life>, sampled_bytes: u64) -> Self {
        let mut lives: Vec<Life> = lives.into_iter().collect();
        lives.sort_by_key(|life| life.allocated);
        let mut objects = Self::default();
        for (number, life) in (0..).zip(&lives) {
            let starts = objects.starts.entry(life.pid).or_default().entry(power(life.bytes)).or_default();
            starts.entry(life.address).or_default().push(number);
            let volume = objects.volume.entry(life.pid).or_default();
            let before = volume.last().map_or(0, |(_, bytes)| *bytes);
            volume.push((life.allocated, before.saturating_add(stands_for(life.bytes, sampled_bytes))));
        }
        Self { lives, ..objects }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// All of them, in order of allocation; an object's number is its place.
    #[must_use]
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// The number of the object that an address of a process was in at a time.
    #[must_use]
    pub fn number_at(&self, pid: u32, tsc: u64, address: u64) -> Option<usize> {
        let alive = |numbers: &Vec<u32>| {
            // Of one address the last that was allocated until then can be alive.
            let until = numbers.partition_point(|&number| self.lives[number as usize].allocated <= tsc);
            numbers[..until].last().copied().filter(|&number| self.lives[number as usize].has(address, tsc))
        };
        let in_reach = |(power, starts): (&u32, &Starts)| {
            let reach = 1_u64.checked_shl(*power).unwrap_or(u64::MAX);
            starts
                .range(address.saturating_sub(reach)..=address)
                .rev()
                .find_map(|(_, numbers)| alive(numbers))
        };
        // Two can be there only when the end of one was not seen: that is the older one.
        self.starts.get(&pid)?.iter().filter_map(in_reach).max().map(|number| number as usize)
    }

    /// The object that an address of a process was in at a time, and how many bytes the process had allocated since.
    #[must_use]
    pub fn at(&self, pid: u32, tsc: u64, address: u64) -> Option<(Object, u64)> {
        let number = self.number_at(pid, tsc, address)?;
        let life = &self.lives[number];
        let age = self.allocated_until(pid, tsc).saturating_sub(self.allocated_until(pid, life.allocated));
        let object = Object {
            number: number as u64,
            address: life.address,
            bytes: life.bytes,
            site: Arc::clone(&life.site),
        };
        Some((object, age))
    }

    /// Whether an object was freed before its process had allocated so many bytes more.
    #[must_use]
    pub fn dies_young(&self, number: usize, bytes: u64) -> bool {
        self.lives.get(number).is_some_and(|life| {
            let until = |tsc| self.allocated_until(life.pid, tsc);
            life.freed.is_some_and(|freed| until(freed).saturating_sub(until(life.allocated)) < bytes)
        })
    }

    /// Bytes that a process had allocated until a time.
    fn allocated_until(&self, pid: u32, tsc: u64) -> u64 {
        let volume = self.volume.get(&pid).map_or(&[][..], Vec::as_slice);
        let after = volume.partition_point(|(when, _)| *when <= tsc);
        volume[..after].last().map_or(0, |(_, bytes)| *bytes)
    }
}

/// The power of two that so many bytes do not exceed.
fn power(bytes: u64) -> u32 {
    (u64::BITS - bytes.saturating_sub(1).leading_zeros()).max(LEAST_POWER)
}

/// How many allocated bytes a recorded object stands for. The distances between the bytes that are drawn are exponentially distributed
/// (`hpm-allocations`), so that an object is drawn with a probability of 1 - exp(-bytes / mean), and stands for as many like it as
/// that is small.
fn stands_for(bytes: u64, sampled_bytes: u64) -> u64 {
    if sampled_bytes == 0 || bytes == 0 {
        return bytes;
    }
    let drawn = -(-(bytes as f64) / sampled_bytes as f64).exp_m1();
    (bytes as f64 / drawn).round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn life(allocated: u64, freed: Option<u64>, address: u64, bytes: u64) -> Life {
        Life { allocated, freed, pid: 1, address, bytes, site: "site".into() }
    }

    #[test]
    fn memory_that_is_used_again_is_another_object() {
        let objects = Objects::new([life(10, Some(20), 0x1000, 64), life(30, None, 0x1000, 16)], 0);
        let at = |tsc, address| objects.number_at(1, tsc, address);
        assert_eq!([at(10, 0x1000), at(19, 0x103f), at(20, 0x1000)], [Some(0), Some(0), None]);
        assert_eq!([at(30, 0x100f), at(30, 0x1010), at(9, 0x1000)], [Some(1), None, None]);
        assert_eq!(objects.number_at(2, 15, 0x1000), None, "another process");
    }

    #[test]
    fn ages_are_bytes_allocated_since() {
        let objects = Objects::new(
            [life(10, None, 0x1000, 100), life(20, None, 0x2000, 50), life(30, None, 0x100_0000, 1 << 20)],
            0,
        );
        let age = |tsc| objects.at(1, tsc, 0x1000).unwrap().1;
        assert_eq!([age(10), age(25), age(30)], [0, 50, 50 + (1 << 20)]);
        assert_eq!(objects.at(1, 40, 0x100_0000 + 77_777).unwrap().0.number, 2, "a great one");
    }

    #[test]
    fn what_is_not_freed_does_not_die_young() {
        let objects = Objects::new(
            [
                life(10, Some(25), 0x1000, 100),
                life(11, None, 0x2000, 50),
                life(20, Some(40), 0x3000, 60),
                life(30, None, 0x4000, 70),
            ],
            0,
        );
        let young = |bytes| [0, 1, 2, 3, 4].map(|number| objects.dies_young(number, bytes));
        assert_eq!(young(80), [false, false, true, false, false]);
        assert_eq!(young(111), [true, false, true, false, false]);
    }

    #[test]
    fn what_was_allocated_last_is_there_when_no_end_was_seen() {
        let older = life(10, None, 0x10_0000, 100_000);
        let objects =
            Objects::new([older, life(20, None, 0x10_4000, 1 << 20), life(30, Some(40), 0x10_8000, 16)], 0);
        assert_eq!(
            [10, 20, 30, 40].map(|tsc| objects.number_at(1, tsc, 0x10_8000)),
            [Some(0), Some(1), Some(2), Some(1)]
        );
    }

    #[test]
    fn an_object_stands_for_those_that_were_not_drawn() {
        // Small ones for about the mean distance each, great ones for themselves.
        assert_eq!(
            [stands_for(32, 0), stands_for(0, 1 << 19), stands_for(64 << 20, 1 << 19)],
            [32, 0, 64 << 20]
        );
        assert_eq!(stands_for(32, 1 << 19), (1 << 19) + 16);
        // Drawn as `hpm-allocations` draws: where an object of 32 bytes has one of the bytes between which the distances are.
        let (mean, all) = (1_u64 << 12, 32_u64 << 20);
        let mut random = 88_172_645_463_325_252_u64;
        let mut distance = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let uniform = ((random >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            (-uniform.ln() * mean as f64) as u64 + 1
        };
        let (mut drawn, mut left) = (Vec::new(), distance());
        for number in 0..all / 32 {
            left = left.saturating_sub(32);
            if left == 0 {
                drawn.push(life(number, Some(number + all / 64), number * 32, 32));
                left = distance();
            }
        }
        let objects = Objects::new(drawn, mean);
        let volume = objects.allocated_until(1, u64::MAX);
        assert!(volume.abs_diff(all) < all / 20, "{volume} of {all}");
        // Each lives while half of all is allocated.
        assert!(objects.dies_young(0, all / 2 + all / 20) && !objects.dies_young(0, all / 2 - all / 20));
    }

    proptest! {
        /// As looking through all of them.
        #[test]
        fn an_index_finds_what_a_search_finds(
            lives in prop::collection::vec((0_u64..100, 1_u64..50, 0_u64..40, 1_u64..2_000_000), 0..40),
            tsc in 0_u64..160, address in 0_u64..2_000_000,
        ) {
            // No two that are alive at once overlap, as with every allocator.
            let mut kept: Vec<Life> = Vec::new();
            for (allocated, lasts, place, bytes) in lives {
                let one = life(allocated, Some(allocated + lasts), place * 50_000, bytes);
                let apart = |other: &Life| {
                    let ends = |life: &Life| life.freed.unwrap();
                    other.address + other.bytes <= one.address || one.address + one.bytes <= other.address
                        || ends(other) <= one.allocated || ends(&one) <= other.allocated
                };
                if kept.iter().all(apart) {
                    kept.push(one);
                }
            }
            let objects = Objects::new(kept, 0);
            let expected = objects.lives().iter().position(|life| life.has(address, tsc));
            prop_assert_eq!(objects.number_at(1, tsc, address), expected);
        }
    }
}
