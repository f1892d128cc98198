//! Runs of pages of one space.

use std::ops::Range;

/// Bytes of a page.
pub const PAGE_BYTES: u32 = 4096;

/// The pages of a fixed range of addresses, each free or part of the numbered item that took it.
#[derive(Debug)]
pub(crate) struct Pages {
    start: u32,
    owners: Vec<Option<u32>>,
    used: u32,
    /// No page before this one is free.
    hint: usize,
}

impl Pages {
    /// Of this range, which begins and ends at pages.
    pub(crate) fn new(range: Range<u32>) -> Self {
        let pages = (range.end - range.start) / PAGE_BYTES;
        Self { start: range.start, owners: vec![None; pages as usize], used: 0, hint: 0 }
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// The first address of a run of free pages, which now belong to `owner`; `None` if there is no such run.
    pub(crate) fn take(&mut self, pages: u32, owner: u32) -> Option<u32> {
        let mut run = 0;
        let wanted = pages as usize;
        let mut at = self.hint;
        let mut seen_free = false;
        while at < self.owners.len() {
            if self.owners[at].is_none() {
                if !seen_free {
                    (self.hint, seen_free) = (at, true);
                }
                run += 1;
                if run == wanted {
                    let first = at + 1 - wanted;
                    self.owners[first..=at].fill(Some(owner));
                    self.used += pages;
                    return Some(self.start + first as u32 * PAGE_BYTES);
                }
            } else {
                run = 0;
            }
            at += 1;
        }
        None
    }

    /// Frees the run at `address`.
    pub(crate) fn give(&mut self, address: u32, pages: u32) {
        let first = ((address - self.start) / PAGE_BYTES) as usize;
        self.owners[first..first + pages as usize].fill(None);
        self.used -= pages;
        self.hint = self.hint.min(first);
    }

    /// Whose page this address is in.
    #[inline]
    pub(crate) fn owner(&self, address: u32) -> Option<u32> {
        let page = address.checked_sub(self.start)? / PAGE_BYTES;
        self.owners.get(page as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_taken_lowest_first_and_come_back() {
        let mut pages = Pages::new(8192..8192 + 8 * PAGE_BYTES);
        assert_eq!(pages.take(2, 0), Some(8192));
        assert_eq!(pages.take(3, 1), Some(8192 + 2 * PAGE_BYTES));
        assert_eq!(pages.take(4, 2), None);
        pages.give(8192, 2);
        assert_eq!(pages.take(3, 3), Some(8192 + 5 * PAGE_BYTES));
        assert_eq!(pages.take(1, 4), Some(8192));
        assert_eq!(
            (pages.owner(8192 + 100), pages.owner(8192 + PAGE_BYTES), pages.owner(0)),
            (Some(4), None, None)
        );
        assert_eq!(pages.used(), 7);
    }
}
