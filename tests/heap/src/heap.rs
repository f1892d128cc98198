//! The heap: its spaces, its limit, and allocation.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use thiserror::Error;

use crate::advice::{Advice, Groups, References};
use crate::header::Header;
use crate::layout::{Class, DataArray, Object, ReferenceArray, Shape};
use crate::memory::Memory;
use crate::observe::{By, Observer, Origin};
use crate::raw::Area;
use crate::raw::libgc::NoLibgc;
use crate::roots::{Handle, Roots};
use crate::row::RoomLeft;
use crate::space::{
    Collector, LargeObjects, LibgcSpace, MAX_CELL_BYTES, MarkSweep, Mature, PAGE_BYTES, Ranges, Semispaces,
};

/// When less than this is left for the nursery after a collection of it, the whole heap is collected; when less is left after
/// that, memory is out.
pub const MIN_NURSERY_BYTES: u32 = 128 << 10;

/// What a heap is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How mature objects are managed.
    pub collector: Collector,
    /// Most bytes of all spaces together, with what a collection needs to copy into: of whole pages.
    pub limit_bytes: u32,
}

/// The heap is full of objects that are reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a heap of {limit_bytes} bytes has no room for {wanted_bytes} more, although nothing in it is garbage; give it a larger limit"
)]
pub struct OutOfMemory {
    /// The heap's limit.
    pub limit_bytes: u32,
    /// What was asked for.
    pub wanted_bytes: u32,
}

/// A heap that cannot be made.
#[derive(Debug, Error)]
pub enum NoHeap {
    /// 32-bit references do not reach over it.
    #[error(
        "a heap of {0} bytes is more than 32-bit references reach; at most about 1,000,000,000 are possible"
    )]
    TooLarge(u32),
    /// Not even a nursery fits.
    #[error("a heap of {0} bytes has no room for a nursery; give it at least {min}", min = 2 * MIN_NURSERY_BYTES)]
    TooSmall(u32),
    /// The system does not give the addresses.
    #[error("the system does not reserve {0} bytes of addresses for the heap: {1}")]
    NoAddresses(u32, std::io::Error),
    /// There is no libgc.
    #[error(transparent)]
    Libgc(#[from] NoLibgc),
}

/// What has happened in a heap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Statistics {
    /// Collections of the nursery.
    pub nursery_collections: u64,
    /// Collections of the whole heap.
    pub full_collections: u64,
    /// Those of them that also moved objects out of sparse blocks.
    pub defragmentations: u64,
    /// Bytes that were allocated.
    pub allocated_bytes: u64,
    /// Objects that left the nursery, co-allocated ones included.
    pub promoted_objects: u64,
    /// Pairs of which the second object followed the first one without a gap. A row of three objects is two of them.
    pub co_allocated_pairs: u64,
    /// Rows without a gap: with the pairs in them they have so many objects as the two numbers together.
    pub co_allocated_rows: u64,
    /// Pairs with a gap between the objects.
    pub separated_pairs: u64,
}

/// Looks on at safe points, and may change the advice: what an [`crate::advice::Advisor`] is to the heap.
pub trait Hook<O: Observer> {
    /// The program is at a safe point.
    fn at_safe_point(&mut self, heap: &mut Heap<O>);

    /// A collection is about to begin; after it addresses mean other objects.
    fn before_collection(&mut self, heap: &mut Heap<O>);
}

/// Objects that bump a pointer when they are made.
#[derive(Debug)]
pub(crate) struct Nursery {
    pub(crate) start: u32,
    pub(crate) top: u32,
    /// As far as the limit allows.
    pub(crate) end: u32,
}

/// A heap whose accesses `O` observes.
pub struct Heap<O: Observer = ()> {
    pub(crate) memory: Memory<O>,
    pub(crate) types: &'static [&'static Shape],
    pub(crate) ranges: Ranges,
    pub(crate) nursery: Nursery,
    pub(crate) mature: Mature,
    pub(crate) large: LargeObjects,
    pub(crate) roots: Rc<Roots>,
    /// Addresses outside the nursery where a reference into it was stored.
    pub(crate) remembered: RefCell<Vec<u32>>,
    pub(crate) advice: Advice,
    pub(crate) references: References,
    pub(crate) groups: Groups,
    /// Flips with each full collection; an object whose header has it was reached.
    pub(crate) epoch: bool,
    pub(crate) statistics: Statistics,
    pub(crate) collecting: Duration,
    pub(crate) room_left: RoomLeft,
    limit_bytes: u32,
    hook: Option<Box<dyn Hook<O>>>,
}

impl<O: Observer> Heap<O> {
    /// An empty heap for a program of these types ([`classes!`](crate::classes) makes the list).
    ///
    /// # Errors
    /// The limit is too large or too small, the system refuses, or there is no libgc.
    pub fn new(config: Config, types: &'static [&'static Shape], observer: O) -> Result<Self, NoHeap> {
        let limit_bytes = config.limit_bytes / PAGE_BYTES * PAGE_BYTES;
        let ranges = Ranges::new(limit_bytes).ok_or(NoHeap::TooLarge(limit_bytes))?;
        if limit_bytes < 2 * MIN_NURSERY_BYTES {
            return Err(NoHeap::TooSmall(limit_bytes));
        }
        let roots = Rc::default();
        let bytes = ranges.large.end;
        let reserve = || Area::reserve(bytes).map_err(|error| NoHeap::NoAddresses(bytes, error));
        let (mature, area, ranges) = match config.collector {
            Collector::Libgc(library) => {
                let (space, area, ranges) = LibgcSpace::start(library, limit_bytes, types, &roots)?;
                (Mature::Libgc(space), area, ranges)
            }
            Collector::MarkSweep => {
                (Mature::MarkSweep(MarkSweep::new(ranges.mature.clone())), reserve()?, ranges)
            }
            Collector::Copying => {
                (Mature::Copying(Semispaces::new(ranges.mature.clone())), reserve()?, ranges)
            }
        };
        let start = ranges.nursery.start;
        let mut heap = Self {
            memory: Memory::new(area, observer),
            types,
            nursery: Nursery { start, top: start, end: start },
            mature,
            large: LargeObjects::new(ranges.large.clone()),
            ranges,
            roots,
            remembered: RefCell::default(),
            advice: Advice::none(),
            references: References::default(),
            groups: Groups::default(),
            epoch: false,
            statistics: Statistics::default(),
            collecting: Duration::ZERO,
            room_left: RoomLeft::default(),
            limit_bytes,
            hook: None,
        };
        heap.size_nursery();
        Ok(heap)
    }

    /// An object with null references and zeros.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn allocate<T: Class>(&mut self) -> Result<Handle<T>, OutOfMemory> {
        self.allocate_object(0)
    }

    /// An array of `length` null references.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn allocate_references<T: ReferenceArray>(&mut self, length: u32) -> Result<Handle<T>, OutOfMemory> {
        self.allocate_object(length)
    }

    /// An array of `length` zeros.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn allocate_data<T: DataArray>(&mut self, length: u32) -> Result<Handle<T>, OutOfMemory> {
        self.allocate_object(length)
    }

    /// What to allocate together from the next collection on. Objects that are mature stay where they are.
    pub fn advise(&mut self, advice: Advice) {
        self.advice = advice;
    }

    /// What is advised now.
    #[must_use]
    pub fn advice(&self) -> &Advice {
        &self.advice
    }

    /// Whom to ask at safe points.
    pub fn set_hook(&mut self, hook: Option<Box<dyn Hook<O>>>) {
        self.hook = hook;
    }

    /// A safe point: the program holds no [`crate::Ref`]. It calls this now and then, as a compiler's code does in loops.
    pub fn safe_point(&mut self) {
        self.with_hook(|hook, heap| hook.at_safe_point(heap));
    }

    /// Asks the hook. It is absent meanwhile, so that it may use the heap.
    pub(crate) fn with_hook(&mut self, ask: impl FnOnce(&mut dyn Hook<O>, &mut Self)) {
        if let Some(mut hook) = self.hook.take() {
            ask(&mut *hook, self);
            self.hook.get_or_insert(hook);
        }
    }

    /// What has happened so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        match &self.mature {
            Mature::Libgc(space) => Statistics { full_collections: space.collections(), ..self.statistics },
            _ => self.statistics,
        }
    }

    /// How long collections took so far.
    #[must_use]
    pub fn collecting(&self) -> Duration {
        self.collecting
    }

    /// The program's types.
    #[must_use]
    pub fn types(&self) -> &'static [&'static Shape] {
        self.types
    }

    /// Where the spaces are.
    #[must_use]
    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Where offset 0 is in the process's address space.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.memory.base()
    }

    pub(crate) fn limit_bytes(&self) -> u32 {
        self.limit_bytes
    }

    /// Bytes in use: the nursery's objects, and the pages of the other spaces.
    #[must_use]
    pub fn used_bytes(&self) -> u32 {
        let pages = self.mature.used_pages() + self.large.used_pages();
        pages * PAGE_BYTES + (self.nursery.top - self.nursery.start)
    }

    fn allocate_object<T: Object>(&mut self, length: u32) -> Result<Handle<T>, OutOfMemory> {
        let known = self.types.get(usize::from(T::ID)).is_some_and(|shape| shape.name == T::SHAPE.name);
        assert!(known, "{} is no type of this heap's program", T::SHAPE.name);
        let full = OutOfMemory { limit_bytes: self.limit_bytes, wanted_bytes: u32::MAX };
        let bytes = T::SHAPE.bytes(length).ok_or(full)?;
        let address = self.room(T::SHAPE, bytes).ok_or(OutOfMemory { wanted_bytes: bytes, ..full })?;
        if !matches!(&self.mature, Mature::Libgc(space) if space.clears(T::SHAPE)) {
            self.memory.clear(address, bytes);
        }
        self.memory.set_header(address, Header::new(T::ID).with_epoch(self.epoch), By::Allocator);
        self.memory.set_second(address, length, By::Allocator);
        self.statistics.allocated_bytes += u64::from(bytes);
        Ok(self.roots.hold(address, Origin::OTHER))
    }

    /// Room for a new object.
    fn room(&mut self, shape: &Shape, bytes: u32) -> Option<u32> {
        if let Mature::Libgc(space) = &self.mature {
            return space.allocate(shape, bytes);
        }
        if bytes > MAX_CELL_BYTES {
            return self.large_room(bytes);
        }
        if bytes > self.nursery.end - self.nursery.top {
            self.collect_nursery();
            if self.nursery.end - self.nursery.start < MIN_NURSERY_BYTES {
                self.collect_all();
                while self.nursery.end - self.nursery.start < MIN_NURSERY_BYTES {
                    if !self.defragment() {
                        return None;
                    }
                }
            }
        }
        let address = self.nursery.top;
        self.nursery.top += bytes;
        Some(address)
    }

    fn large_room(&mut self, bytes: u32) -> Option<u32> {
        let pages = bytes.div_ceil(PAGE_BYTES);
        if !self.has_pages(pages) {
            self.collect_all();
            while !self.has_pages(pages) && self.defragment() {}
        }
        let address = if self.has_pages(pages) { self.large.allocate(bytes) } else { None };
        self.size_nursery();
        address
    }

    /// Whether so many pages fit beside everything else, and what it would take to copy all that into.
    fn has_pages(&self, pages: u32) -> bool {
        let nursery = (self.nursery.top - self.nursery.start).div_ceil(PAGE_BYTES);
        let promoted = nursery.saturating_sub(self.mature.spare_bytes() / PAGE_BYTES);
        let wanted = pages + nursery + promoted + MIN_NURSERY_BYTES / PAGE_BYTES;
        self.free_pages().is_some_and(|free| free >= wanted)
    }

    /// Pages that neither the mature nor the large objects need; `None` if these exceed the limit.
    pub(crate) fn free_pages(&self) -> Option<u32> {
        let used = self.mature.used_pages() + self.mature.reserve_pages() + self.large.used_pages();
        (self.limit_bytes / PAGE_BYTES).checked_sub(used)
    }

    /// Lets the nursery have so much that its survivors find room even if all are (an Appel-style nursery): half of what is free,
    /// and more where the mature space can take some of them into the blocks that it has.
    pub(crate) fn size_nursery(&mut self) {
        let free = self.free_pages().unwrap_or(0) * PAGE_BYTES;
        let spare = self.mature.spare_bytes();
        let bytes = if free <= spare { free } else { free.midpoint(spare) };
        let end = self.nursery.start + bytes / PAGE_BYTES * PAGE_BYTES;
        self.nursery.end = end.min(self.ranges.nursery.end).max(self.nursery.top);
    }
}
