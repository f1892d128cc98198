//! The large object space: each object has pages of its own, and never moves.

use std::ops::Range;

use super::pages::{PAGE_BYTES, Pages};

/// The space.
#[derive(Debug)]
pub(crate) struct LargeObjects {
    pages: Pages,
    /// First address and pages of each object.
    objects: Vec<Option<(u32, u32)>>,
}

impl LargeObjects {
    pub(crate) fn new(range: Range<u32>) -> Self {
        Self { pages: Pages::new(range), objects: Vec::new() }
    }

    pub(crate) fn used_pages(&self) -> u32 {
        self.pages.used()
    }

    /// Pages for so many bytes.
    pub(crate) fn allocate(&mut self, bytes: u32) -> Option<u32> {
        let number = self.objects.iter().position(Option::is_none).unwrap_or(self.objects.len());
        let pages = bytes.div_ceil(PAGE_BYTES);
        let start = self.pages.take(pages, number as u32)?;
        if number == self.objects.len() {
            self.objects.push(None);
        }
        self.objects[number] = Some((start, pages));
        Some(start)
    }

    /// The start of the object whose pages `address` is in.
    pub(crate) fn start(&self, address: u32) -> Option<u32> {
        let number = self.pages.owner(address)?;
        self.objects[number as usize].map(|(start, _)| start)
    }

    /// Frees the objects of which `lives` says no, by their starts; returns their pages.
    pub(crate) fn sweep(&mut self, lives: impl Fn(u32) -> bool) -> Vec<Range<u32>> {
        let mut freed = Vec::new();
        for object in &mut self.objects {
            let Some((start, pages)) = *object else { continue };
            if !lives(start) {
                self.pages.give(start, pages);
                freed.push(start..start + pages * PAGE_BYTES);
                *object = None;
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_its_pages_until_it_is_swept() {
        let mut space = LargeObjects::new(4096..4096 + 16 * PAGE_BYTES);
        let first = space.allocate(9000).unwrap();
        let second = space.allocate(4096 * 5).unwrap();
        assert_eq!(second, first + 3 * PAGE_BYTES);
        assert_eq!(space.start(second + 20_000), Some(second));
        let freed = space.sweep(|start| start == second);
        assert_eq!(freed.into_iter().map(|run| (run.start, run.end)).collect::<Vec<_>>(), [(first, second)]);
        assert_eq!((space.start(first), space.used_pages()), (None, 5));
        assert_eq!(space.allocate(100), Some(first));
    }
}
