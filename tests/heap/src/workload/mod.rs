//! Programs that run on the heap, of different shapes. Each is deterministic, and returns a checksum that no collector and no
//! advice may change.

mod btree;
pub mod classes;
mod db;
mod graph;
mod hash;
mod lru;
mod matrix;
mod strings;
mod text;
mod trees;

pub use classes::TYPES;

use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A database of records in memory that is sorted and searched, as SPECjvm98's db is: Database → Entry → Vector →
    /// String → characters.
    Db,
    /// A hash table with chains, from strings to boxed numbers.
    Hash,
    /// A B-tree of numbers.
    BTree,
    /// Binary trees, one that lives long and many that do not.
    Trees,
    /// Breadth-first searches through a graph whose edges change.
    Graph,
    /// Text that is put together and taken apart; most of it dies young.
    Strings,
    /// A cache that forgets what was used least recently: a hash table and a doubly linked list.
    Lru,
    /// Matrices and one large array of numbers: hardly any small objects.
    Matrix,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Db, Self::Hash, Self::BTree, Self::Trees, Self::Graph, Self::Strings, Self::Lru, Self::Matrix];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Db => "db",
            Self::Hash => "hash",
            Self::BTree => "btree",
            Self::Trees => "trees",
            Self::Graph => "graph",
            Self::Strings => "strings",
            Self::Lru => "lru",
            Self::Matrix => "matrix",
        }
    }

    /// The program with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Runs one iteration, which leaves nothing behind, on a heap of [`TYPES`]; returns its checksum. `scale` is the number of
    /// its objects in percent.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the heap is too small.
    pub fn run<O: Observer>(self, heap: &mut Heap<O>, scale: u32) -> Result<u64, OutOfMemory> {
        let of = |number: u32| (number * scale / 100).max(8);
        match self {
            Self::Db => db::run(heap, of(6_000)),
            Self::Hash => hash::run(heap, of(20_000)),
            Self::BTree => btree::run(heap, of(60_000)),
            Self::Trees => trees::run(heap, of(60_000)),
            Self::Graph => graph::run(heap, of(20_000)),
            Self::Strings => strings::run(heap, of(40_000)),
            Self::Lru => lru::run(heap, of(10_000)),
            Self::Matrix => matrix::run(heap, of(160)),
        }
    }
}

/// Mixes a number into a checksum (FNV-1a, by 64-bit words).
fn mix(sum: u64, number: u64) -> u64 {
    (sum ^ number).wrapping_mul(0x100_0000_01b3)
}

/// The seed of every workload's random numbers.
const SEED: u64 = 0x0068_706d;
