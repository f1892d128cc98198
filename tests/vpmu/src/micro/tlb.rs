//! Translation look-aside buffers: two levels, 4-KiB pages, no process-context identifiers.

use crate::profile::TlbGeometry;

const PAGE_SHIFT: u32 = 12;
/// Bits of a linear page number; the generation is kept above them.
const PAGE_BITS: u32 = 64 - PAGE_SHIFT;

/// One level.
#[derive(Debug, Clone)]
pub(super) struct Tlb {
    set_mask: u64,
    ways: usize,
    /// Page numbers tagged with the generation they were filled in, most recently used first within each set.
    pages: Vec<u64>,
    /// Counts flushes: an entry of an earlier generation matches nothing and ages out like an empty one.
    generation: u64,
}

/// Where a translation was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    /// In the first-level TLB.
    First,
    /// In the second-level TLB.
    Second,
    /// By walking the page tables.
    Walk,
}

impl Tlb {
    pub(super) fn new(geometry: TlbGeometry) -> Self {
        let sets = (geometry.entries / geometry.associativity).max(1);
        assert!(sets.is_power_of_two(), "a profile's TLB has a power of two of sets");
        let ways = if geometry.entries == 0 { 0 } else { geometry.associativity as usize };
        let pages = vec![0; geometry.entries as usize];
        Self { set_mask: u64::from(sets) - 1, ways, pages, generation: 1 }
    }

    /// Makes the page of `linear` the most recently used of its set; whether it was there.
    #[inline]
    fn touch(&mut self, linear: u64) -> bool {
        let page = linear >> PAGE_SHIFT;
        let tagged = page | self.generation << PAGE_BITS;
        let start = (page & self.set_mask) as usize * self.ways;
        let set = &mut self.pages[start..start + self.ways];
        match set.first() {
            Some(&first) if first == tagged => return true,
            // There is no such TLB.
            None => return false,
            Some(_) => {}
        }
        let found = set.iter().position(|&other| other == tagged);
        let replaced = found.unwrap_or(set.len() - 1);
        set.copy_within(0..replaced, 1);
        set[0] = tagged;
        found.is_some()
    }

    /// Forgets everything.
    pub(super) fn flush(&mut self) {
        self.generation += 1;
        if self.generation >> (64 - PAGE_BITS) != 0 {
            self.generation = 1;
            self.pages.fill(0);
        }
    }
}

/// Translates an access of `size` bytes at `linear`; an access that crosses pages is as slow as its slower
/// page.
#[inline]
pub(super) fn translate(first: &mut Tlb, second: &mut Tlb, linear: u64, size: u8) -> Found {
    let last = linear.wrapping_add(u64::from(size.max(1)) - 1);
    let found = translate_page(first, second, linear);
    if linear >> PAGE_SHIFT == last >> PAGE_SHIFT {
        found
    } else {
        found.max(translate_page(first, second, last))
    }
}

#[inline]
fn translate_page(first: &mut Tlb, second: &mut Tlb, linear: u64) -> Found {
    if first.touch(linear) {
        Found::First
    } else if second.touch(linear) {
        Found::Second
    } else {
        Found::Walk
    }
}
