//! Allocated objects through time: which of them an address was in at a moment, and how old that was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::locality::Object;

/// Largest object that is looked for by the distance of its start; greater ones are few and are looked through.
const NEAR_BYTES: u64 = 64 << 10;

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

/// The objects of a recording.
#[derive(Debug, Default)]
pub struct Objects {
    lives: Vec<Life>,
    /// Of each process by first byte: numbers in order of allocation.
    near: HashMap<u32, BTreeMap<u64, Vec<u32>>>,
    /// Numbers of greater ones of each process.
    far: HashMap<u32, Vec<u32>>,
    /// Of each process: when, and how many bytes had been allocated until then.
    volume: HashMap<u32, Vec<(u64, u64)>>,
}

impl Objects {
    /// Of these, in any order. Of an allocation that stands for others because not all were recorded, the bytes are its own: ages
    /// are then too young by as much.
    #[must_use]
    pub fn new(lives: impl IntoIterator<Item = Life>) -> Self {
        let mut lives: Vec<Life> = lives.into_iter().collect();
        lives.sort_by_key(|life| life.allocated);
        let mut objects = Self::default();
        for (number, life) in (0..).zip(&lives) {
            if life.bytes <= NEAR_BYTES {
                objects.near.entry(life.pid).or_default().entry(life.address).or_default().push(number);
            } else {
                objects.far.entry(life.pid).or_default().push(number);
            }
            let volume = objects.volume.entry(life.pid).or_default();
            let before = volume.last().map_or(0, |(_, bytes)| *bytes);
            volume.push((life.allocated, before.saturating_add(life.bytes)));
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
        let near = self.near.get(&pid).into_iter();
        let near = near.flat_map(|near| near.range(address.saturating_sub(NEAR_BYTES)..=address).rev());
        let alive = |numbers: &Vec<u32>| {
            // Of one address the last that was allocated until then can be alive.
            let until = numbers.partition_point(|&number| self.lives[number as usize].allocated <= tsc);
            numbers[..until].last().copied().filter(|&number| self.lives[number as usize].has(address, tsc))
        };
        let far = || {
            let far = self.far.get(&pid)?;
            far.iter().rev().copied().find(|&number| self.lives[number as usize].has(address, tsc))
        };
        near.map(|(_, numbers)| numbers).find_map(alive).or_else(far).map(|number| number as usize)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn life(allocated: u64, freed: Option<u64>, address: u64, bytes: u64) -> Life {
        Life { allocated, freed, pid: 1, address, bytes, site: "site".into() }
    }

    #[test]
    fn memory_that_is_used_again_is_another_object() {
        let objects = Objects::new([life(10, Some(20), 0x1000, 64), life(30, None, 0x1000, 16)]);
        let at = |tsc, address| objects.number_at(1, tsc, address);
        assert_eq!([at(10, 0x1000), at(19, 0x103f), at(20, 0x1000)], [Some(0), Some(0), None]);
        assert_eq!([at(30, 0x100f), at(30, 0x1010), at(9, 0x1000)], [Some(1), None, None]);
        assert_eq!(objects.number_at(2, 15, 0x1000), None, "another process");
    }

    #[test]
    fn ages_are_bytes_allocated_since() {
        let objects = Objects::new([
            life(10, None, 0x1000, 100),
            life(20, None, 0x2000, 50),
            life(30, None, 0x100_0000, 1 << 20),
        ]);
        let age = |tsc| objects.at(1, tsc, 0x1000).unwrap().1;
        assert_eq!([age(10), age(25), age(30)], [0, 50, 50 + (1 << 20)]);
        assert_eq!(objects.at(1, 40, 0x100_0000 + 77_777).unwrap().0.number, 2, "a great one");
    }

    #[test]
    fn what_is_not_freed_does_not_die_young() {
        let objects = Objects::new([
            life(10, Some(25), 0x1000, 100),
            life(11, None, 0x2000, 50),
            life(20, Some(40), 0x3000, 60),
            life(30, None, 0x4000, 70),
        ]);
        let young = |bytes| [0, 1, 2, 3, 4].map(|number| objects.dies_young(number, bytes));
        assert_eq!(young(80), [false, false, true, false, false]);
        assert_eq!(young(111), [true, false, true, false, false]);
    }

    proptest! {
        /// As looking through all of them.
        #[test]
        fn an_index_finds_what_a_search_finds(
            lives in prop::collection::vec((0_u64..100, 1_u64..50, 0_u64..40, 1_u64..200_000), 0..40),
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
            let objects = Objects::new(kept);
            let expected = objects.lives().iter().position(|life| life.has(address, tsc));
            prop_assert_eq!(objects.number_at(1, tsc, address), expected);
        }
    }
}
