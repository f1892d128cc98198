//! Moving mature objects out of sparse blocks.
//!
//! The mark-sweep space does not move objects, so that cells of sizes that nobody asks for any more stay as they are. Advice that comes during
//! a run changes which sizes are asked for: a heap that was just large enough would then be too small. Where nothing else helps, the
//! sparsest blocks are emptied into what is free, as in Immix (Blackburn and McKinley, PLDI 2008), and what was advised moves together.

use crate::collect::Queue;
use crate::header::reference_slots;
use crate::heap::Heap;
use crate::observe::{By, Observer};
use crate::row::{Member, Row, wastes};
use crate::space::{Mature, PAGE_BYTES};

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

    /// Moves an object out of its block, with those that follow it by advice if they are in such blocks, too; says where it is.
    pub(crate) fn vacate(&mut self, object: u32, queue: &mut Queue) -> u32 {
        let mut row = Row::of(object, self.bytes(object));
        while let Some(()) = self.next_that_leaves(&row).and_then(|next| row.push(next)) {
            self.statistics.co_allocated_pairs += 1;
        }
        self.statistics.co_allocated_rows += u64::from(row.members().len() > 1);
        let to = self.promoted_room(row.bytes());
        let mut end = to;
        for member in row.members() {
            self.relocate(member.object, end, member.bytes, queue);
            end += member.bytes;
        }
        to
    }

    /// Who follows a row's last object without a gap, has not been reached yet, and is of no control group.
    fn next_that_leaves(&self, row: &Row) -> Option<Member> {
        if row.is_full() {
            return None;
        }
        let parent = row.last().object;
        let header = self.memory.header(parent, By::Collector);
        let pairing = self.advice.of(header.class()).filter(|pairing| pairing.gap == 0)?;
        let shape = self.types[usize::from(header.class())];
        let slot = reference_slots(parent, shape, 0).nth(usize::from(pairing.field))?;
        let child: u32 = self.memory.load(slot, By::Collector);
        if child == 0 || row.has(child) || !self.leaves(child) {
            return None;
        }
        let child_header = self.memory.header(child, By::Collector);
        let is_control = self.groups.is_control(header.marks(), header.class());
        let bytes = self.bytes(child);
        let is_new = !child_header.is_forwarded() && child_header.epoch() != self.epoch;
        let fits = row.bytes_with(0, bytes).is_some_and(|sum| !wastes(sum, [row.bytes(), bytes]));
        (is_new && !is_control && fits).then_some(Member { object: child, bytes, gap: 0 })
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
