//! Looking into the heap: which object an address is in, and whether everything is in order.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use crate::header::{FILLER, reference_slots};
use crate::heap::Heap;
use crate::layout::HEADER_BYTES;
use crate::observe::Observer;
use crate::space::{Mature, Space};

/// The object that an address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The space.
    pub space: Space,
    /// Where the object starts.
    pub start: u32,
    /// Number of its type.
    pub class: u16,
}

/// Something in the heap is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the heap is broken: {0}")]
pub struct Broken(String);

impl<O: Observer> Heap<O> {
    /// Which object the address is in; `None` for free memory, and for the nursery, where only a walk from its start would
    /// tell: no advice depends on young objects.
    #[must_use]
    pub fn place(&self, address: u32) -> Option<Place> {
        let space = self.ranges.space(address)?;
        let (from, end) = match space {
            Space::Nursery => return None,
            Space::Large => {
                let start = self.large.start(address)?;
                (start, start + self.peek_bytes(start)?)
            }
            Space::Mature => match &self.mature {
                Mature::MarkSweep(blocks) => {
                    let (start, bytes) = blocks.cell(address)?;
                    (start, start + bytes)
                }
                Mature::Libgc(space) => {
                    let (start, bytes) = space.cell(address)?;
                    (start, start + bytes)
                }
                Mature::Copying(halves) => (halves.walk_from(address)?, address + HEADER_BYTES),
            },
        };
        let mut start = from;
        // What is left of a cell is smaller than a header, or belongs to an object that was there before.
        while start <= address && start + HEADER_BYTES <= end {
            let bytes = self.peek_bytes(start)?;
            if address < start + bytes {
                let class = self.memory.peek_header(start).class();
                return (class != FILLER).then_some(Place { space, start, class });
            }
            start += bytes;
        }
        None
    }

    /// Size of what starts at an address; `None` if nothing does.
    pub(crate) fn peek_bytes(&self, start: u32) -> Option<u32> {
        let header = self.memory.peek_header(start);
        let second: u32 = self.memory.peek(start + 4);
        if header.class() == FILLER {
            return Some(second);
        }
        self.types.get(usize::from(header.class()))?.bytes(second)
    }

    /// Checks everything that is reachable: each reference leads to the start of an object of a known type, in memory that is
    /// in use; no two objects overlap; what refers into the nursery from outside is remembered. Returns how many objects
    /// are reachable.
    ///
    /// # Errors
    /// [`Broken`] with the first thing that is not so.
    pub fn verify(&self) -> Result<usize, Broken> {
        let remembered = self.remembered.borrow();
        let mut objects = BTreeMap::new();
        let mut queue: VecDeque<u32> = self.roots.addresses().into();
        while let Some(object) = queue.pop_front() {
            if objects.contains_key(&object) {
                continue;
            }
            let bytes = self.verify_object(object)?;
            objects.insert(object, bytes);
            let shape = self.types[usize::from(self.memory.peek_header(object).class())];
            for slot in reference_slots(object, shape, self.memory.peek(object + 4)) {
                let child: u32 = self.memory.peek(slot);
                let is_young = self.ranges.space(child) == Some(Space::Nursery);
                let is_old = self.ranges.space(object) != Some(Space::Nursery);
                if is_young && is_old && !remembered.contains(&slot) {
                    return Err(Broken(format!("{slot:#x} refers to the nursery, and is not remembered")));
                }
                if child != 0 {
                    queue.push_back(child);
                }
            }
        }
        let starts: Vec<(u32, u32)> = objects.iter().map(|(start, bytes)| (*start, *bytes)).collect();
        let overlap = starts.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
        match overlap {
            Some(pair) => {
                Err(Broken(format!("the objects at {:#x} and {:#x} overlap", pair[0].0, pair[1].0)))
            }
            None => Ok(objects.len()),
        }
    }

    /// Size of a reachable object.
    fn verify_object(&self, object: u32) -> Result<u32, Broken> {
        let space = self.ranges.space(object);
        let header = self.memory.peek_header(object);
        let bytes = self.peek_bytes(object).filter(|_| header.class() != FILLER && !header.is_forwarded());
        let bytes = bytes.ok_or_else(|| Broken(format!("no object of a known type is at {object:#x}")))?;
        let found = match space {
            None => false,
            Some(Space::Nursery) => object + bytes <= self.nursery.top,
            // The last byte belongs to it, too.
            Some(_) => [object, object + bytes - 1]
                .into_iter()
                .all(|address| self.place(address).is_some_and(|place| place.start == object)),
        };
        if found { Ok(bytes) } else { Err(Broken(format!("{object:#x} is reachable, but not in use"))) }
    }
}
