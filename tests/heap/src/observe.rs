//! Watching the heap's accesses: how a model of caches sees a program without the hardware.

use crate::layout::FieldId;

/// Where the reference came from by which the program reached an object: what a compiler knows of each load instruction
/// (Schneider's thesis, §5.1.3). It is a constant at every place in the program, so that a program whose accesses nobody
/// observes does not keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin(u32);

impl Origin {
    /// A root, or an element of an array.
    pub const OTHER: Self = Self(0);

    /// This field.
    #[inline]
    #[must_use]
    pub const fn of(field: FieldId) -> Self {
        Self((field.class as u32) << 16 | (field.field as u32 + 1))
    }

    /// The field, if it was one.
    #[inline]
    #[must_use]
    pub const fn field(self) -> Option<FieldId> {
        match self.0 as u16 {
            0 => None,
            field => Some(FieldId { class: (self.0 >> 16) as u16, field: field - 1 }),
        }
    }
}

/// Who made an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The program, by a reference that it had from there.
    Program(Origin),
    /// The allocator, which writes headers and zeros.
    Allocator,
    /// A collection.
    Collector,
}

/// One access to the heap's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Offset from the start of the heap's memory.
    pub address: u32,
    /// Size in bytes, at most 16: larger moves are seen in pieces.
    pub bytes: u32,
    /// Whether it writes.
    pub store: bool,
    /// Whose it is.
    pub by: By,
}

/// Sees every access to the heap's memory.
pub trait Observer {
    /// An access.
    fn access(&self, access: Access);
}

/// Nobody: the compiler leaves nothing of it.
impl Observer for () {
    #[inline(always)]
    fn access(&self, _: Access) {}
}
