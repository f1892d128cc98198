//! Objects that are promoted together (Schneider's thesis, Figure 5.7): one, what its advised field refers to, and what that one's does.
//!
//! In the thesis a row has two objects. A program that follows a path of references, as db does from an entry through its vector to the
//! strings, then finds each second object of it elsewhere, whatever is advised, and fields whose pairs share an object compete.

use crate::collect::Queue;
use crate::header::{FILLER, Header, reference_slots};
use crate::heap::{Heap, MIN_NURSERY_BYTES};
use crate::layout::{HEADER_BYTES, WORD_BYTES};
use crate::observe::{By, Observer};
use crate::space::{MAX_CELL_BYTES, Mature, PAGE_BYTES, cell_bytes, class_of};

/// Most objects in a row: more would seldom share a line with the first.
const LONGEST: usize = 3;
/// Full collections after which it is remembered how much they left free.
const REMEMBERED: usize = 8;
/// Part of the heap that they must leave for rows that take more room than their objects would.
const PLENTY: u32 = 4;

/// An object of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Member {
    pub(crate) object: u32,
    pub(crate) bytes: u32,
    /// The empty bytes between it and the one before it.
    pub(crate) gap: u32,
}

/// Objects for one cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    members: [Member; LONGEST],
    length: usize,
    bytes: u32,
}

impl Row {
    pub(crate) fn of(object: u32, bytes: u32) -> Self {
        let mut members = [Member::default(); LONGEST];
        members[0] = Member { object, bytes, gap: 0 };
        Self { members, length: 1, bytes }
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members[..self.length]
    }

    pub(crate) fn last(&self) -> Member {
        self.members[self.length - 1]
    }

    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.length == LONGEST
    }

    pub(crate) fn has(&self, object: u32) -> bool {
        self.members().iter().any(|member| member.object == object)
    }

    /// Bytes that it would have with another member.
    pub(crate) fn bytes_with(&self, gap: u32, bytes: u32) -> Option<u32> {
        self.bytes.checked_add(gap)?.checked_add(bytes).filter(|sum| *sum <= MAX_CELL_BYTES)
    }

    /// Adds a member, unless all of it would be too large.
    pub(crate) fn push(&mut self, member: Member) -> Option<()> {
        self.bytes = self.bytes_with(member.gap, member.bytes)?;
        self.members[self.length] = member;
        self.length += 1;
        Some(())
    }
}

/// Bytes that the last full collections have left free, in pages and in cells.
#[derive(Debug)]
pub(crate) struct RoomLeft {
    bytes: [u32; REMEMBERED],
    next: usize,
}

impl Default for RoomLeft {
    fn default() -> Self {
        Self { bytes: [u32::MAX; REMEMBERED], next: 0 }
    }
}

impl<O: Observer> Heap<O> {
    /// Promotes the object with those that follow it, if there are any; says where it is.
    pub(crate) fn trace_row(&mut self, object: u32, bytes: u32, queue: &mut Queue) -> Option<u32> {
        let mut row = Row::of(object, bytes);
        while let Some(()) = self.next_of(&row).and_then(|next| row.push(next)) {}
        if row.members().len() < 2 {
            return None;
        }
        let to = self.promoted_room(row.bytes());
        let mut end = to;
        self.statistics.co_allocated_rows +=
            u64::from(row.members()[1..].iter().any(|member| member.gap == 0));
        for member in row.members() {
            if member.gap > 0 {
                self.memory.set_header(end, Header::new(FILLER), By::Collector);
                self.memory.set_second(end, member.gap, By::Collector);
                self.statistics.separated_pairs += 1;
                end += member.gap;
            } else if end > to {
                self.statistics.co_allocated_pairs += 1;
            }
            self.promote(member.object, end, member.bytes, queue);
            end += member.bytes;
        }
        Some(to)
    }

    /// Who follows a row's last object: what its advised field refers to, if that is in the nursery and was not moved before, all fits one
    /// cell, and chance does not make it one of a control group.
    fn next_of(&mut self, row: &Row) -> Option<Member> {
        if row.is_full() {
            return None;
        }
        let parent = row.last().object;
        let header = self.memory.header(parent, By::Collector);
        let pairing = self.advice.of(header.class())?;
        let shape = self.types[usize::from(header.class())];
        let slot = reference_slots(parent, shape, 0).nth(usize::from(pairing.field))?;
        let child: u32 = self.memory.load(slot, By::Collector);
        let is_young = self.ranges.nursery.contains(&child) && !row.has(child);
        if !is_young || self.memory.header(child, By::Collector).is_forwarded() {
            return None;
        }
        let bytes = self.bytes(child);
        let advised = row.bytes_with(whole_gap(pairing.gap)?, bytes)?;
        if !self.may_pair(advised, [row.bytes(), bytes]) {
            return None;
        }
        let gap = whole_gap(self.gap_by_chance(row, child, pairing)?)?;
        Some(Member { object: child, bytes, gap })
    }

    /// Whether a row and an object of these sizes may have a cell of so many bytes: only in the mark-sweep space, where such a cell is free
    /// already, or has pages that the nursery will not need. Where memory is short, objects rather go one by one to cells that are free, and
    /// where it is not plenty, no row takes more room than its parts would (larger size classes are farther apart). What rows of any
    /// gap can take is so bounded, too.
    fn may_pair(&mut self, bytes: u32, apart: [u32; 2]) -> bool {
        let may_have_pages = self.has_pages_for_rows() && (self.has_plenty() || !wastes(bytes, apart));
        match &mut self.mature {
            Mature::MarkSweep(space) => space.has_cell(bytes) || may_have_pages,
            Mature::Copying(_) | Mature::Libgc(_) => false,
        }
    }

    /// Whether mature and large objects leave more free than the smallest nursery needs, for itself and for its survivors.
    fn has_pages_for_rows(&self) -> bool {
        self.free_pages().is_some_and(|free| free * PAGE_BYTES > 2 * MIN_NURSERY_BYTES)
    }

    /// Whether a quarter of the heap was free after each of the last full collections. What is free now says little: a program that drops
    /// everything, and begins anew, will need as much as before.
    fn has_plenty(&self) -> bool {
        self.room_left.bytes.iter().all(|&left| left >= self.limit_bytes() / PLENTY)
    }

    /// Remembers what a full collection has left free.
    pub(crate) fn note_room_left(&mut self) {
        let pages = self.free_pages().unwrap_or(0) * PAGE_BYTES;
        let cells = match &self.mature {
            Mature::MarkSweep(space) => space.free_bytes(),
            Mature::Copying(_) | Mature::Libgc(_) => 0,
        };
        let RoomLeft { bytes, next } = &mut self.room_left;
        bytes[*next] = pages + cells;
        *next = (*next + 1) % REMEMBERED;
    }
}

/// Whether a cell for so many bytes is larger than those for two parts of them are together.
pub(crate) fn wastes(bytes: u32, apart: [u32; 2]) -> bool {
    let cell = |bytes: u32| cell_bytes(class_of(bytes));
    apart.iter().any(|&bytes| bytes > MAX_CELL_BYTES) || cell(bytes) > apart.into_iter().map(cell).sum()
}

/// Empty bytes that can be described: none, or whole words and at least a header.
fn whole_gap(gap: u32) -> Option<u32> {
    if gap == 0 { Some(0) } else { Some(gap.checked_next_multiple_of(WORD_BYTES)?.max(HEADER_BYTES)) }
}
