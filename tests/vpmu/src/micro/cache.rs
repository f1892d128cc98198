//! A set-associative cache with least-recently-used replacement, as Cachegrind simulates it.
//!
//! Only tags are kept. An access that crosses lines touches every line it covers and misses if one of them
//! misses; it is one miss, not two (Valgrind's `cachegrind/cg_sim.c` counts so too). Writes allocate like
//! reads.

use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Size and shape of one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGeometry {
    /// Capacity in bytes.
    pub size_bytes: u32,
    /// Ways per set.
    pub associativity: u32,
    /// Line size in bytes, a power of two.
    pub line_bytes: u32,
}

/// A cache that cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// Not three numbers.
    #[error("`{0}` is no cache geometry; write SIZE:ASSOCIATIVITY:LINE in bytes, for example 32768:8:64")]
    Syntax(String),
    /// Sets cannot be indexed.
    #[error(
        "{0} bytes in {1} ways of {2}-byte lines do not give a power of two of sets; choose other numbers"
    )]
    Sets(u32, u32, u32),
}

impl CacheGeometry {
    /// How many sets there are.
    ///
    /// # Errors
    /// If lines or sets are not powers of two, or the size is not a whole number of sets.
    pub fn sets(&self) -> Result<u32, GeometryError> {
        let Self { size_bytes, associativity, line_bytes } = *self;
        let set_bytes = associativity.checked_mul(line_bytes).filter(|&bytes| bytes > 0);
        set_bytes
            .filter(|bytes| line_bytes.is_power_of_two() && size_bytes % bytes == 0)
            .map(|bytes| size_bytes / bytes)
            .filter(|sets| sets.is_power_of_two())
            .ok_or(GeometryError::Sets(size_bytes, associativity, line_bytes))
    }
}

/// Reads `SIZE:ASSOCIATIVITY:LINE`, or with commas as for Valgrind's `--I1`, `--D1` and `--LL`.
impl FromStr for CacheGeometry {
    type Err = GeometryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || GeometryError::Syntax(text.into());
        let numbers: Vec<u32> = text
            .split([',', ':'])
            .map(|n| n.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| syntax())?;
        let [size_bytes, associativity, line_bytes] = numbers[..] else { return Err(syntax()) };
        let geometry = Self { size_bytes, associativity, line_bytes };
        geometry.sets().map(|_| geometry)
    }
}

/// The tags of one cache.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    line_shift: u32,
    set_mask: u64,
    ways: usize,
    /// Line numbers, most recently used first within each set.
    lines: Vec<u64>,
}

/// No line has this number: line numbers are addresses shifted right.
const EMPTY: u64 = u64::MAX;

impl Cache {
    pub(super) fn new(geometry: &CacheGeometry) -> Result<Self, GeometryError> {
        let sets = geometry.sets()?;
        let ways = geometry.associativity as usize;
        Ok(Self {
            line_shift: geometry.line_bytes.trailing_zeros(),
            set_mask: u64::from(sets) - 1,
            ways,
            lines: vec![EMPTY; sets as usize * ways],
        })
    }

    /// Whether the access stays within one line.
    #[inline]
    pub(super) fn within_line(&self, address: u64, size: u8) -> bool {
        let last = address.wrapping_add(u64::from(size.max(1)) - 1);
        address >> self.line_shift == last >> self.line_shift
    }

    /// Accesses `size` bytes at `address`; whether all of it was there.
    #[inline]
    pub(super) fn access(&mut self, address: u64, size: u8) -> bool {
        let first = address >> self.line_shift;
        let last = address.wrapping_add(u64::from(size.max(1)) - 1) >> self.line_shift;
        let mut hit = self.touch(first);
        let mut line = first;
        while line != last {
            line = line.wrapping_add(1) & (u64::MAX >> self.line_shift);
            hit &= self.touch(line);
        }
        hit
    }

    /// Makes `line` the most recently used of its set; whether it was there.
    #[inline]
    fn touch(&mut self, line: u64) -> bool {
        let start = (line & self.set_mask) as usize * self.ways;
        let set = &mut self.lines[start..start + self.ways];
        if set[0] == line {
            return true;
        }
        let found = set.iter().position(|&other| other == line);
        let replaced = found.unwrap_or(set.len() - 1);
        set.copy_within(0..replaced, 1);
        set[0] = line;
        found.is_some()
    }
}

/// The last-level cache, shared by all cores of a machine. Cloning shares it.
#[derive(Debug, Clone)]
pub struct SharedCache(Arc<Mutex<Cache>>);

impl SharedCache {
    /// An empty cache of this shape.
    ///
    /// # Errors
    /// If there is no such cache.
    pub fn new(geometry: &CacheGeometry) -> Result<Self, GeometryError> {
        Ok(Self(Arc::new(Mutex::new(Cache::new(geometry)?))))
    }

    /// The cache; a core that panicked while it held it cannot have left it in an impossible state.
    pub(super) fn lock(&self) -> MutexGuard<'_, Cache> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
