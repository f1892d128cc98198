//! The two words before an object's fields, and what follows from them.

use crate::layout::{HEADER_BYTES, Shape, WORD_BYTES};
use crate::memory::Memory;
use crate::observe::{By, Observer};

/// Number of the "type" of empty bytes between two objects of one cell.
pub(crate) const FILLER: u16 = u16::MAX;

/// The first word of a header: type number, two flags, and what trials marked the object with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header(u32);

impl Header {
    /// The object has been moved; the second word says where to.
    const FORWARDED: u32 = 1 << 16;
    /// The object was reached by a full collection with this epoch.
    const EPOCH: u32 = 1 << 17;
    /// First of the bits with the number of its marks; 0 for none.
    const MARKS_SHIFT: u32 = 18;

    pub(crate) fn new(class: u16) -> Self {
        Self(u32::from(class))
    }

    pub(crate) fn class(self) -> u16 {
        self.0 as u16
    }

    pub(crate) fn is_forwarded(self) -> bool {
        self.0 & Self::FORWARDED != 0
    }

    pub(crate) fn epoch(self) -> bool {
        self.0 & Self::EPOCH != 0
    }

    #[must_use]
    pub(crate) fn with_epoch(self, epoch: bool) -> Self {
        Self(self.0 & !Self::EPOCH | if epoch { Self::EPOCH } else { 0 })
    }

    /// The number of what the object is marked with by trials.
    pub(crate) fn marks(self) -> u16 {
        (self.0 >> Self::MARKS_SHIFT) as u16
    }

    /// With this number in the place of any other.
    #[must_use]
    pub(crate) fn with_marks(self, number: u16) -> Self {
        Self(self.0 & ((1 << Self::MARKS_SHIFT) - 1) | u32::from(number) << Self::MARKS_SHIFT)
    }
}

/// Reading and writing headers.
impl<O: Observer> Memory<O> {
    pub(crate) fn header(&self, object: u32, by: By) -> Header {
        Header(self.load(object, by))
    }

    pub(crate) fn set_header(&self, object: u32, header: Header, by: By) {
        self.store(object, header.0, by);
    }

    /// The header, seen by nobody.
    pub(crate) fn peek_header(&self, object: u32) -> Header {
        Header(self.peek(object))
    }

    /// The second word: of an array its length, of a forwarded object its new address.
    #[inline]
    pub(crate) fn second(&self, object: u32, by: By) -> u32 {
        self.load(object + WORD_BYTES, by)
    }

    pub(crate) fn set_second(&self, object: u32, value: u32, by: By) {
        self.store(object + WORD_BYTES, value, by);
    }

    /// Leaves in the place of an object where it has gone.
    pub(crate) fn forward(&self, object: u32, to: u32) {
        let header: u32 = self.load(object, By::Collector);
        self.store(object, header | Header::FORWARDED, By::Collector);
        self.set_second(object, to, By::Collector);
    }

    /// Size of an object in bytes.
    ///
    /// # Panics
    /// If its header names a type that the program does not have: the heap is broken.
    pub(crate) fn object_bytes(&self, object: u32, types: &[&Shape], by: By) -> u32 {
        let shape = types[usize::from(self.header(object, by).class())];
        let length = self.second(object, by);
        shape.bytes(length).expect("an object of the heap has a size")
    }
}

/// The addresses of an object's references.
pub(crate) fn reference_slots(object: u32, shape: &Shape, length: u32) -> impl Iterator<Item = u32> + use<> {
    (0..shape.references(length)).map(move |field| object + HEADER_BYTES + field * WORD_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_leave_the_rest_of_a_header_as_it_is() {
        let header = Header::new(0xABCD).with_epoch(true);
        assert_eq!(header.marks(), 0);
        for number in [1, (1 << 14) - 1] {
            let marked = header.with_marks(5).with_marks(number);
            assert_eq!((marked.marks(), marked.class(), marked.epoch()), (number, 0xABCD, true));
            assert_eq!(marked.with_epoch(false).marks(), number);
            assert!(!marked.is_forwarded());
        }
    }
}
