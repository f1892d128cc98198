//! Maps whose keys are numbers that the kernel gives to processes and threads.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Maps from such numbers.
pub type NumberMap<V> = HashMap<u32, V, BuildHasherDefault<Spread>>;
/// Sets of such numbers.
pub type NumberSet = HashSet<u32, BuildHasherDefault<Spread>>;

/// Spreads one number over all bits. Every quantum is looked up several times by numbers that nobody chooses to collide, for which
/// the standard library's hash is needlessly careful.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, number: u32) {
        // Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, 6.4): 2^64 divided by the golden ratio.
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use super::*;

    #[test]
    fn neighbours_are_far_apart_in_the_bits_that_maps_use() {
        let build = BuildHasherDefault::<Spread>::default();
        let hashes: Vec<u64> = (0..4096_u32).map(|number| build.hash_one(number)).collect();
        let low: std::collections::HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
        let high: std::collections::HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert!(low.len() > 2000 && high.len() == 128, "{} and {}", low.len(), high.len());
    }
}
