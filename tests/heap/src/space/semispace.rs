//! The copying space: two halves, of which one is used until its survivors are copied into the other.

use std::ops::Range;

use super::pages::PAGE_BYTES;

/// The two halves.
#[derive(Debug)]
pub(crate) struct Semispaces {
    halves: [Range<u32>; 2],
    current: usize,
    top: u32,
    /// The first object that starts in each page of the current half, so that the one at an address can be found.
    starts: Vec<Option<u32>>,
}

impl Semispaces {
    pub(crate) fn new(range: Range<u32>) -> Self {
        let middle = range.start + (range.end - range.start) / PAGE_BYTES / 2 * PAGE_BYTES;
        let halves = [range.start..middle, middle..range.end];
        Self { top: range.start, halves, current: 0, starts: Vec::new() }
    }

    pub(crate) fn used_pages(&self) -> u32 {
        (self.top - self.half().start).div_ceil(PAGE_BYTES)
    }

    /// The next bytes of the current half.
    pub(crate) fn allocate(&mut self, bytes: u32) -> Option<u32> {
        if bytes > self.half().end - self.top {
            return None;
        }
        let start = self.top;
        let page = ((start - self.half().start) / PAGE_BYTES) as usize;
        if self.starts.len() <= page {
            self.starts.resize(page + 1, None);
        }
        self.starts[page].get_or_insert(start);
        self.top += bytes;
        Some(start)
    }

    /// Begins to fill the other half; returns what was used of this one.
    pub(crate) fn flip(&mut self) -> Range<u32> {
        let used = self.half().start..self.top;
        self.current ^= 1;
        self.top = self.half().start;
        self.starts.clear();
        used
    }

    /// Where a walk from object to object finds the one at `address`; `None` if nothing is there.
    pub(crate) fn walk_from(&self, address: u32) -> Option<u32> {
        let half = self.half();
        if !(half.start..self.top).contains(&address) {
            return None;
        }
        let page = ((address - half.start) / PAGE_BYTES) as usize;
        let before = |start: &u32| *start <= address;
        // The object may have begun in an earlier page; none is longer than two, so that each third page has a start.
        (0..=page).rev().find_map(|page| self.starts.get(page).copied().flatten().filter(before))
    }

    fn half(&self) -> &Range<u32> {
        &self.halves[self.current]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_take_turns_and_walks_start_before_the_address() {
        let mut space = Semispaces::new(4096..4096 + 8 * PAGE_BYTES);
        let objects = [100, 6000, 24].map(|bytes| space.allocate(bytes).unwrap());
        assert_eq!(objects, [4096, 4196, 10196]);
        assert_eq!(space.walk_from(4196 + 5000), Some(4096));
        assert_eq!(space.walk_from(10200), Some(10196));
        assert_eq!(space.walk_from(10220), None);
        assert_eq!(space.allocate(5 * PAGE_BYTES), None);
        assert_eq!(space.flip(), 4096..10220);
        assert_eq!((space.used_pages(), space.allocate(8)), (0, Some(4096 + 4 * PAGE_BYTES)));
    }
}
