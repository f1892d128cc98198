//! The heap's memory and whoever observes it: every access of the program, the allocator and the collector goes through here.

use crate::observe::{Access, By, Observer};
use crate::raw::{Area, Plain};

/// Observed memory.
#[derive(Debug)]
pub(crate) struct Memory<O> {
    area: Area,
    observer: O,
}

/// Bytes that are moved at once.
const MOVE_BYTES: u32 = 16;

impl<O: Observer> Memory<O> {
    pub(crate) fn new(area: Area, observer: O) -> Self {
        Self { area, observer }
    }

    /// Where offset 0 is in the process.
    pub(crate) fn base(&self) -> u64 {
        self.area.base()
    }

    #[inline]
    pub(crate) fn load<T: Plain>(&self, address: u32, by: By) -> T {
        self.observer.access(Access { address, bytes: T::BYTES, store: false, by });
        self.area.read(address)
    }

    #[inline]
    pub(crate) fn store<T: Plain>(&self, address: u32, value: T, by: By) {
        self.observer.access(Access { address, bytes: T::BYTES, store: true, by });
        self.area.write(address, value);
    }

    /// The number at an address, seen by nobody: for looking into the heap without disturbing what is measured.
    pub(crate) fn peek<T: Plain>(&self, address: u32) -> T {
        self.area.read(address)
    }

    pub(crate) fn copy(&self, from: u32, to: u32, bytes: u32) {
        self.moved(bytes, |at, bytes| {
            self.observer.access(Access { address: from + at, bytes, store: false, by: By::Collector });
            self.observer.access(Access { address: to + at, bytes, store: true, by: By::Collector });
        });
        self.area.copy(from, to, bytes);
    }

    pub(crate) fn clear(&self, address: u32, bytes: u32) {
        self.moved(bytes, |at, bytes| {
            self.observer.access(Access { address: address + at, bytes, store: true, by: By::Allocator });
        });
        self.area.clear(address, bytes);
    }

    /// Gives pages back to the system. Should it refuse, they stay, and are cleared when they are used again, as all are.
    pub(crate) fn release(&self, pages: std::ops::Range<u32>) {
        let _ = self.area.release(pages.start, pages.end - pages.start);
    }

    fn moved(&self, bytes: u32, mut piece: impl FnMut(u32, u32)) {
        for at in (0..bytes).step_by(MOVE_BYTES as usize) {
            piece(at, MOVE_BYTES.min(bytes - at));
        }
    }
}
