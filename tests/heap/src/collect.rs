//! Collections: of the nursery with co-allocation, and of the whole heap by marking or by copying.

use std::collections::VecDeque;
use std::time::Instant;

use crate::header::reference_slots;
use crate::heap::Heap;
use crate::layout::{HEADER_BYTES, WORD_BYTES};
use crate::observe::{By, Observer};
use crate::space::{Mature, Space};

/// Objects that were reached and whose references were not yet looked at, in the order in which they were reached.
pub(crate) type Queue = VecDeque<u32>;

impl<O: Observer> Heap<O> {
    /// Promotes what is reachable of the nursery, and empties it.
    pub fn collect_nursery(&mut self) {
        if matches!(self.mature, Mature::Libgc(_)) {
            // It has none.
            return;
        }
        self.with_hook(|hook, heap| hook.before_collection(heap));
        let start = Instant::now();
        self.statistics.nursery_collections += 1;
        let mut queue = Queue::new();
        let roots = std::rc::Rc::clone(&self.roots);
        roots.update(|object| self.trace(object, &mut queue));
        for slot in std::mem::take(self.remembered.get_mut()) {
            if self.trace_slot(slot, &mut queue) {
                self.count_remembered(slot);
            }
        }
        while let Some(object) = queue.pop_front() {
            let class = self.memory.header(object, By::Collector).class();
            let is_array = self.types[usize::from(class)].fields().is_empty();
            for (field, slot) in self.slots(object).enumerate() {
                if self.trace_slot(slot, &mut queue) {
                    self.references.count(class, if is_array { 0 } else { field });
                }
            }
        }
        self.nursery.top = self.nursery.start;
        self.size_nursery();
        self.collecting += start.elapsed();
    }

    /// Frees everything that cannot be reached.
    pub fn collect_all(&mut self) {
        if let Mature::Libgc(space) = &self.mature {
            space.collect();
            return;
        }
        self.collect_nursery();
        self.collect_mature();
    }

    /// Frees what cannot be reached of mature and large objects; the nursery is empty.
    pub(crate) fn collect_mature(&mut self) {
        let start = Instant::now();
        self.statistics.full_collections += 1;
        self.epoch = !self.epoch;
        match self.mature {
            Mature::MarkSweep(_) => self.mark(),
            Mature::Copying(_) => self.copy_all(),
            Mature::Libgc(_) => {}
        }
        let (memory, epoch) = (&self.memory, self.epoch);
        let freed = self.large.sweep(|object| memory.header(object, By::Collector).epoch() == epoch);
        freed.into_iter().for_each(|pages| memory.release(pages));
        if let Mature::MarkSweep(space) = &mut self.mature {
            space.sweep().into_iter().for_each(|pages| memory.release(pages));
        }
        self.note_room_left();
        self.size_nursery();
        self.collecting += start.elapsed();
    }

    /// Corrects the reference at `slot`, if it leads into the nursery. Whether there is a reference.
    fn trace_slot(&mut self, slot: u32, queue: &mut Queue) -> bool {
        let object: u32 = self.memory.load(slot, By::Collector);
        if object != 0 {
            let moved = self.trace(object, queue);
            if moved != object {
                self.memory.store(slot, moved, By::Collector);
            }
        }
        object != 0
    }

    /// Counts a remembered reference for the field that it is in.
    fn count_remembered(&mut self, slot: u32) {
        let Some(place) = self.place(slot) else { return };
        let is_array = self.types[usize::from(place.class)].fields().is_empty();
        let field = (slot - place.start - HEADER_BYTES) / WORD_BYTES;
        self.references.count(place.class, if is_array { 0 } else { field as usize });
    }

    /// Promotes an object of the nursery unless that was done, together with those that its advised field leads to;
    /// says where it is.
    fn trace(&mut self, object: u32, queue: &mut Queue) -> u32 {
        if object >= self.ranges.nursery.end {
            return object;
        }
        let header = self.memory.header(object, By::Collector);
        if header.is_forwarded() {
            return self.memory.second(object, By::Collector);
        }
        let bytes = self.bytes(object);
        let is_parent = self.advice.of(header.class()).is_some();
        if let Some(moved) = is_parent.then(|| self.trace_row(object, bytes, queue)).flatten() {
            return moved;
        }
        let to = self.promoted_room(bytes);
        self.promote(object, to, bytes, queue);
        to
    }

    pub(crate) fn promote(&mut self, object: u32, to: u32, bytes: u32, queue: &mut Queue) {
        self.memory.copy(object, to, bytes);
        self.memory.forward(object, to);
        self.statistics.promoted_objects += 1;
        queue.push_back(to);
    }

    /// Room in the mature space. The addresses of that space exceed the heap's limit by more than what blocks can waste, so
    /// that a collection never stops half-way; the limit is enforced when it is over.
    pub(crate) fn promoted_room(&mut self, bytes: u32) -> u32 {
        self.mature
            .allocate(bytes)
            .expect("the mature space has addresses for all that a collection may promote")
    }

    /// Marks from the roots.
    fn mark(&mut self) {
        let mut queue = Queue::new();
        let roots = std::rc::Rc::clone(&self.roots);
        roots.update(|object| self.reach(object, &mut queue));
        let mut near = None;
        while let Some(object) = near.take().or_else(|| queue.pop_front()) {
            let (end, slots) = self.end_and_slots(object);
            for slot in slots {
                let child: u32 = self.memory.load(slot, By::Collector);
                if child != 0 {
                    let queued = queue.len();
                    let moved = self.reach(child, &mut queue);
                    if moved != child {
                        self.memory.store(slot, moved, By::Collector);
                    }
                    // What lies right behind its parent is looked at next, while the line is there: in the order in which
                    // they were reached each of a pair's lines would be needed twice.
                    if moved == end && queue.len() > queued {
                        near = queue.pop_back();
                    }
                }
            }
        }
    }

    /// Marks one object where it is, or where it has to move to; says where that is.
    fn reach(&mut self, object: u32, queue: &mut Queue) -> u32 {
        let header = self.memory.header(object, By::Collector);
        if header.is_forwarded() {
            return self.memory.second(object, By::Collector);
        }
        if header.epoch() == self.epoch {
            return object;
        }
        if self.leaves(object) {
            return self.vacate(object, queue);
        }
        self.memory.set_header(object, header.with_epoch(self.epoch), By::Collector);
        if let Mature::MarkSweep(space) = &mut self.mature {
            // Of a large object there is no cell.
            space.mark(object);
        }
        queue.push_back(object);
        object
    }

    /// Copies what is reachable into the other semispace.
    fn copy_all(&mut self) {
        let Mature::Copying(space) = &mut self.mature else { return };
        let old = space.flip();
        let mut queue = Queue::new();
        let roots = std::rc::Rc::clone(&self.roots);
        roots.update(|object| self.evacuate(object, &old, &mut queue));
        while let Some(object) = queue.pop_front() {
            for slot in self.slots(object) {
                let child: u32 = self.memory.load(slot, By::Collector);
                if child != 0 {
                    let moved = self.evacuate(child, &old, &mut queue);
                    self.memory.store(slot, moved, By::Collector);
                }
            }
        }
        let pages = old.start..old.end.next_multiple_of(crate::space::PAGE_BYTES);
        self.memory.release(pages);
    }

    /// Moves an object of the old semispace unless that was done; marks a large one. Says where it is.
    fn evacuate(&mut self, object: u32, old: &std::ops::Range<u32>, queue: &mut Queue) -> u32 {
        if self.ranges.space(object) == Some(Space::Large) {
            self.reach(object, queue);
            return object;
        }
        debug_assert!(old.contains(&object), "{object:#x} is in no semispace that was used");
        let header = self.memory.header(object, By::Collector);
        if header.is_forwarded() {
            return self.memory.second(object, By::Collector);
        }
        let bytes = self.bytes(object);
        let to = self.promoted_room(bytes);
        self.memory.copy(object, to, bytes);
        self.memory.set_header(to, header.with_epoch(self.epoch), By::Collector);
        self.memory.forward(object, to);
        queue.push_back(to);
        to
    }

    pub(crate) fn bytes(&self, object: u32) -> u32 {
        self.memory.object_bytes(object, self.types, By::Collector)
    }

    /// The addresses of an object's references.
    pub(crate) fn slots(&self, object: u32) -> impl Iterator<Item = u32> + use<O> {
        self.end_and_slots(object).1
    }

    /// What lies behind an object, and the addresses of its references.
    fn end_and_slots(&self, object: u32) -> (u32, impl Iterator<Item = u32> + use<O>) {
        let shape = self.types[usize::from(self.memory.header(object, By::Collector).class())];
        let length = self.memory.second(object, By::Collector);
        let bytes = shape.bytes(length).expect("an object of the heap has a size");
        (object + bytes, reference_slots(object, shape, length))
    }
}
