//! The spaces of the heap, each at a fixed range of addresses: which of them an address is in needs one comparison.

mod large;
mod libgc;
mod mark_sweep;
mod pages;
mod semispace;
mod size_class;

use std::ops::Range;

pub(crate) use large::LargeObjects;
pub(crate) use libgc::LibgcSpace;
pub(crate) use mark_sweep::MarkSweep;
pub use pages::PAGE_BYTES;
pub(crate) use semispace::Semispaces;
pub use size_class::MAX_CELL_BYTES;
pub(crate) use size_class::{cell_bytes, class_of};

/// How objects that survived their first collection are managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collector {
    /// Free lists in 40 size classes, marked and swept (the thesis's GenMS). Co-allocation is for it.
    MarkSweep,
    /// Two semispaces, objects in the order in which they are reached (the thesis's GenCopy).
    Copying,
    /// The public collector libgc of Boehm, Demers and Weiser, of the library that `dlopen` finds by this name: everything is
    /// allocated there, and no advice is taken.
    Libgc(&'static str),
}

impl Collector {
    /// libgc, where the system has it.
    pub const LIBGC: &'static str = "libgc.so.1";
}

/// A space, as a data address profile tells them apart (Schneider's thesis, §4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Objects that no collection has seen.
    Nursery,
    /// Objects that survived one.
    Mature,
    /// Objects of more than 8 KiB.
    Large,
}

/// Where the spaces are, in offsets from the start of the heap's memory. Offset 0 is in none: it is the null reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges {
    /// The nursery.
    pub nursery: Range<u32>,
    /// The mature space: of blocks, or the two semispaces.
    pub mature: Range<u32>,
    /// The large object space.
    pub large: Range<u32>,
}

/// Beyond the limit, which is in pages, there is room for a collection to finish before it is found that too much survives:
/// for each of 40 size classes two blocks that are hardly filled.
const SLACK_BYTES: u64 = 4 << 20;

impl Ranges {
    /// For a heap of so many bytes; `None` if the addresses do not suffice.
    pub(crate) fn new(limit_bytes: u32) -> Option<Self> {
        let page = u64::from(PAGE_BYTES);
        let limit = u64::from(limit_bytes).next_multiple_of(page);
        let nursery = page..page + limit;
        let mature = nursery.end..nursery.end + 2 * (limit + SLACK_BYTES);
        let large = mature.end..mature.end + limit;
        let narrow =
            |range: Range<u64>| Some(u32::try_from(range.start).ok()?..u32::try_from(range.end).ok()?);
        Some(Self { nursery: narrow(nursery)?, mature: narrow(mature)?, large: narrow(large)? })
    }

    /// The space that an address is in.
    #[inline]
    #[must_use]
    pub fn space(&self, address: u32) -> Option<Space> {
        if self.nursery.contains(&address) {
            Some(Space::Nursery)
        } else if self.mature.contains(&address) {
            Some(Space::Mature)
        } else if self.large.contains(&address) {
            Some(Space::Large)
        } else {
            None
        }
    }
}

/// The space of objects that survived their first collection.
#[derive(Debug)]
pub(crate) enum Mature {
    MarkSweep(MarkSweep),
    Copying(Semispaces),
    Libgc(LibgcSpace),
}

impl Mature {
    /// Pages in use.
    pub(crate) fn used_pages(&self) -> u32 {
        match self {
            Self::MarkSweep(space) => space.used_pages(),
            Self::Copying(space) => space.used_pages(),
            Self::Libgc(space) => space.used_pages(),
        }
    }

    /// Pages that have to stay free so that it can be collected.
    pub(crate) fn reserve_pages(&self) -> u32 {
        match self {
            Self::MarkSweep(_) | Self::Libgc(_) => 0,
            Self::Copying(space) => space.used_pages(),
        }
    }

    /// Bytes that may be promoted without further pages: half of what is free in blocks, since nobody knows which size classes
    /// will be asked for.
    pub(crate) fn spare_bytes(&self) -> u32 {
        match self {
            Self::MarkSweep(space) => space.free_bytes() / 2,
            Self::Copying(_) | Self::Libgc(_) => 0,
        }
    }

    /// Room for so many bytes, at most [`MAX_CELL_BYTES`]; `None` if the addresses are used up. Nothing is promoted to libgc.
    pub(crate) fn allocate(&mut self, bytes: u32) -> Option<u32> {
        match self {
            Self::MarkSweep(space) => space.allocate(bytes),
            Self::Copying(space) => space.allocate(bytes),
            Self::Libgc(_) => None,
        }
    }
}
