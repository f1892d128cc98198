//! The mark-sweep space: blocks of equal cells.
//!
//! The free list of a block is kept as a bitmap, from which cells are taken in the order of their addresses, as from a list
//! that a sweep has just threaded. A cell lives as long as something in it is marked: a pair of co-allocated objects is
//! freed when both are dead.

use std::ops::Range;

use super::pages::{PAGE_BYTES, Pages};
use super::size_class::{CLASSES, block_pages, cell_bytes, class_of};

/// A run of pages that is divided into cells.
#[derive(Debug)]
struct Block {
    start: u32,
    class: usize,
    cells: u32,
    /// Bits of the cells that are taken.
    taken: Vec<u64>,
    /// Bits of the cells in which something was marked.
    marked: Vec<u64>,
    /// No cell before this one is free.
    next: u32,
    /// Its objects leave it with the next collection.
    emptied: bool,
}

/// A block of which more than three quarters are taken, is not worth emptying.
const SPARSE: (u32, u32) = (3, 4);

/// The space.
#[derive(Debug)]
pub(crate) struct MarkSweep {
    pages: Pages,
    blocks: Vec<Option<Block>>,
    /// Numbers of blocks that are no more.
    vacant: Vec<u32>,
    /// Of each size class the blocks that may have a free cell; cells are taken from the last one.
    open: Vec<Vec<u32>>,
    /// Bytes of the cells that are not taken, in all blocks.
    free_bytes: u32,
}

impl Block {
    fn new(start: u32, class: usize) -> Self {
        let cells = block_pages(class) * PAGE_BYTES / cell_bytes(class);
        let words = cells.div_ceil(64) as usize;
        Self { start, class, cells, taken: vec![0; words], marked: vec![0; words], next: 0, emptied: false }
    }

    /// The free cell with the lowest address.
    fn free(&mut self) -> Option<u32> {
        let mut word = self.next as usize / 64;
        while let Some(&bits) = self.taken.get(word) {
            if bits != u64::MAX {
                self.next = (word as u32 * 64 + bits.trailing_ones()).min(self.cells);
                return (self.next < self.cells).then_some(self.next);
            }
            word += 1;
        }
        self.next = self.cells;
        None
    }

    /// Takes that cell.
    fn take(&mut self) -> Option<u32> {
        let cell = self.free()?;
        self.taken[cell as usize / 64] |= 1 << (cell % 64);
        Some(self.start + cell * cell_bytes(self.class))
    }

    fn taken_cells(&self) -> u32 {
        self.taken.iter().map(|bits| bits.count_ones()).sum()
    }

    /// The cell that this address of the block is in, if it is in one.
    fn cell(&self, address: u32) -> Option<u32> {
        let cell = (address - self.start) / cell_bytes(self.class);
        (cell < self.cells).then_some(cell)
    }
}

impl MarkSweep {
    pub(crate) fn new(range: Range<u32>) -> Self {
        Self {
            pages: Pages::new(range),
            blocks: Vec::new(),
            vacant: Vec::new(),
            open: vec![Vec::new(); CLASSES],
            free_bytes: 0,
        }
    }

    pub(crate) fn used_pages(&self) -> u32 {
        self.pages.used()
    }

    /// Bytes of the cells that are not taken.
    pub(crate) fn free_bytes(&self) -> u32 {
        self.free_bytes
    }

    /// Whether a cell for so many bytes is free in the blocks that there are.
    pub(crate) fn has_cell(&mut self, bytes: u32) -> bool {
        self.open_block(class_of(bytes)).is_some()
    }

    /// The block from which the next cell of a class is taken.
    fn open_block(&mut self, class: usize) -> Option<&mut Block> {
        while let Some(&number) = self.open[class].last() {
            if self.blocks[number as usize].as_mut().is_some_and(|block| block.free().is_some()) {
                return self.blocks[number as usize].as_mut();
            }
            self.open[class].pop();
        }
        None
    }

    /// A cell for so many bytes.
    pub(crate) fn allocate(&mut self, bytes: u32) -> Option<u32> {
        let class = class_of(bytes);
        if let Some(address) = self.open_block(class).and_then(Block::take) {
            self.free_bytes -= cell_bytes(class);
            return Some(address);
        }
        let number = self.vacant.pop().unwrap_or(self.blocks.len() as u32);
        let start = self.pages.take(block_pages(class), number)?;
        let mut block = Block::new(start, class);
        let address = block.take();
        self.free_bytes += (block.cells - 1) * cell_bytes(class);
        if number as usize == self.blocks.len() {
            self.blocks.push(None);
        }
        self.blocks[number as usize] = Some(block);
        self.open[class].push(number);
        address
    }

    /// Chooses the sparsest blocks, with at most so many bytes in them, to be emptied by the next collection. Whether there are any.
    pub(crate) fn choose_sparse_blocks(&mut self, bytes_max: u32) -> bool {
        let mut sparse: Vec<(u32, &mut Block)> = self
            .blocks
            .iter_mut()
            .flatten()
            .map(|block| (block.taken_cells(), block))
            .filter(|(taken, block)| taken * SPARSE.1 <= block.cells * SPARSE.0)
            .collect();
        sparse.sort_by_key(|(taken, block)| (u64::from(*taken) * 1000 / u64::from(block.cells), block.start));
        let (mut bytes, mut any) = (0, false);
        for (taken, block) in sparse {
            bytes += taken * cell_bytes(block.class);
            if bytes > bytes_max {
                break;
            }
            (block.emptied, any) = (true, true);
            self.free_bytes -= (block.cells - taken) * cell_bytes(block.class);
        }
        let blocks = &self.blocks;
        let stays = |number: &u32| blocks[*number as usize].as_ref().is_some_and(|block| !block.emptied);
        self.open.iter_mut().for_each(|open| open.retain(stays));
        any
    }

    /// Whether `address` is in a block that is being emptied.
    pub(crate) fn is_emptied(&self, address: u32) -> bool {
        let block = self.pages.owner(address).and_then(|number| self.blocks[number as usize].as_ref());
        block.is_some_and(|block| block.emptied)
    }

    /// Keeps the cell that `address` is in from the next sweep.
    pub(crate) fn mark(&mut self, address: u32) {
        let Some(block) = self.block_mut(address) else { return };
        if let Some(cell) = block.cell(address) {
            block.marked[cell as usize / 64] |= 1 << (cell % 64);
        }
    }

    /// Start and size of the taken cell that `address` is in.
    pub(crate) fn cell(&self, address: u32) -> Option<(u32, u32)> {
        let number = self.pages.owner(address)?;
        let block = self.blocks[number as usize].as_ref()?;
        let cell = block.cell(address)?;
        let is_taken = block.taken[cell as usize / 64] >> (cell % 64) & 1 == 1;
        is_taken.then(|| (block.start + cell * cell_bytes(block.class), cell_bytes(block.class)))
    }

    /// Frees what is not marked, and the marks; returns the runs of pages that became free.
    pub(crate) fn sweep(&mut self) -> Vec<Range<u32>> {
        let mut freed = Vec::new();
        self.open.iter_mut().for_each(Vec::clear);
        self.free_bytes = 0;
        for (number, place) in self.blocks.iter_mut().enumerate() {
            let Some(block) = place else { continue };
            let (class, start) = (block.class, block.start);
            if block.marked.iter().all(|&bits| bits == 0) {
                self.pages.give(start, block_pages(class));
                freed.push(start..start + block_pages(class) * PAGE_BYTES);
                self.vacant.push(number as u32);
                *place = None;
                continue;
            }
            std::mem::swap(&mut block.taken, &mut block.marked);
            block.marked.fill(0);
            block.next = 0;
            self.free_bytes += (block.cells - block.taken_cells()) * cell_bytes(class);
            self.open[class].push(number as u32);
        }
        // The lowest block is used first, so that the highest ones become empty.
        let blocks = &self.blocks;
        let start = |number: &u32| blocks[*number as usize].as_ref().map(|block| block.start);
        for open in &mut self.open {
            open.sort_by_key(|number| std::cmp::Reverse(start(number)));
        }
        freed
    }

    fn block_mut(&mut self, address: u32) -> Option<&mut Block> {
        let number = self.pages.owner(address)?;
        self.blocks[number as usize].as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> MarkSweep {
        MarkSweep::new(4096..4096 + 64 * PAGE_BYTES)
    }

    #[test]
    fn cells_of_a_class_follow_one_another_and_classes_have_pages_of_their_own() {
        let mut space = space();
        let [first, second, other] = [24, 23, 64].map(|bytes| space.allocate(bytes).unwrap());
        assert_eq!(second, first + 24);
        assert_eq!(other, first + PAGE_BYTES);
        assert_eq!(space.cell(second + 5), Some((second, 24)));
        assert_eq!(space.cell(second + 24), None, "not taken");
    }

    #[test]
    fn a_sweep_frees_what_is_not_marked() {
        let mut space = space();
        let cells: Vec<u32> = (0..200).map(|_| space.allocate(64).unwrap()).collect();
        space.mark(cells[3] + 63);
        assert_eq!(space.sweep().len(), 3, "three of four blocks are empty");
        assert_eq!((space.used_pages(), space.free_bytes()), (1, 4096 - 64));
        assert_eq!(space.allocate(64), Some(cells[0]));
        assert_eq!(space.free_bytes(), 4096 - 128);
        assert_eq!((1..3).map(|_| space.allocate(64).unwrap()).collect::<Vec<_>>(), cells[1..3]);
        assert_eq!(space.allocate(64), Some(cells[4]));
        space.sweep();
        assert_eq!((space.used_pages(), space.free_bytes()), (0, 0));
    }

    #[test]
    fn the_sparsest_blocks_are_emptied() {
        let mut space = space();
        let cells: Vec<u32> = (0..192).map(|_| space.allocate(64).unwrap()).collect();
        // Of three blocks one is full, one has two cells, one has one.
        cells[..64].iter().chain([&cells[64], &cells[65], &cells[128]]).for_each(|&cell| space.mark(cell));
        space.sweep();
        assert!(!space.choose_sparse_blocks(63));
        assert!(space.choose_sparse_blocks(64 + 127), "the second one's cells are too many");
        assert_eq!([0, 64, 128].map(|number: usize| space.is_emptied(cells[number])), [false, false, true]);
        assert_eq!(space.allocate(64), Some(cells[66]), "nothing is put into a block that is being emptied");
    }

    #[test]
    fn a_space_that_is_full_says_so() {
        let mut space = space();
        assert_eq!((0..).take_while(|_| space.allocate(8192).is_some()).count(), 32);
        assert!(space.allocate(4).is_none());
    }
}
