//! Moving mature objects out of sparse blocks.
//!
//! The mark-sweep space does not move objects, so that cells of sizes that nobody asks for any more stay as they are. Advice that comes during
//! a run changes which sizes are asked for: a heap that was just large enough would then be too small. Where nothing else helps, the
//! sparsest blocks are emptied into what is free, as in Immix (Blackburn and McKinley, PLDI 2008), and what was advised moves together.

use libhpm::analysis::coallocation::Group;

use crate::collect::Queue;
use crate::header::{Header, reference_slots};
use crate::heap::Heap;
use crate::observe::{By, Observer};
use crate::space::{MAX_CELL_BYTES, Mature, PAGE_BYTES};

impl<O: Observer> Heap<O> {
    /// Empties some sparse blocks; the nursery is empty, and everything was just collected. Whether pages became free.
    pub(crate) fn defragment(&mut self) -> bool {
        let before = self.free_pages().unwrap_or(0);
        let changed = self.statistics.co_allocated_pairs + self.statistics.separated_pairs > 0;
        let Mature::MarkSweep(space) = &mut self.mature else { return false };
        // What moves has to fit into what is free; half of that, since blocks are of whole pages.
        if !changed || !space.choose_sparse_blocks(before * PAGE_BYTES / 2) {
            return false;
        }
        self.statistics.defragmentations += 1;
        self.collect_mature();
        self.free_pages().unwrap_or(0) > before
    }

    /// Whether an object is in a block that is being emptied.
    pub(crate) fn leaves(&self, object: u32) -> bool {
        matches!(&self.mature, Mature::MarkSweep(space) if space.is_emptied(object))
    }

    /// Moves an object out of its block, with its advised child if that is in such a block, too, and the two are of no control group.
    /// Says where it is.
    pub(crate) fn vacate(&mut self, object: u32, header: Header, queue: &mut Queue) -> u32 {
        let bytes = self.bytes(object);
        let is_control = header.mark().is_some_and(|mark| mark.group == Group::Control);
        let child = if is_control { None } else { self.child_that_leaves(object, header.class()) };
        let child_bytes = child.map_or(0, |child| self.bytes(child));
        if let Some(child) = child.filter(|_| bytes + child_bytes <= MAX_CELL_BYTES) {
            let to = self.promoted_room(bytes + child_bytes);
            self.statistics.co_allocated_pairs += 1;
            self.relocate(object, to, bytes, queue);
            self.relocate(child, to + bytes, child_bytes, queue);
            return to;
        }
        let to = self.promoted_room(bytes);
        self.relocate(object, to, bytes, queue);
        to
    }

    /// The child of a pair without a gap that has not been reached yet.
    fn child_that_leaves(&self, object: u32, class: u16) -> Option<u32> {
        let pairing = self.advice.of(class).filter(|pairing| pairing.gap == 0)?;
        let shape = self.types[usize::from(class)];
        let slot = reference_slots(object, shape, 0).nth(usize::from(pairing.field))?;
        let child: u32 = self.memory.load(slot, By::Collector);
        if child == 0 || child == object || !self.leaves(child) {
            return None;
        }
        let header = self.memory.header(child, By::Collector);
        (!header.is_forwarded() && header.epoch() != self.epoch).then_some(child)
    }

    fn relocate(&mut self, object: u32, to: u32, bytes: u32, queue: &mut Queue) {
        let header = self.memory.header(object, By::Collector);
        self.memory.copy(object, to, bytes);
        self.memory.set_header(to, header.with_epoch(self.epoch), By::Collector);
        self.memory.forward(object, to);
        if let Mature::MarkSweep(space) = &mut self.mature {
            space.mark(to);
        }
        queue.push_back(to);
    }
}
