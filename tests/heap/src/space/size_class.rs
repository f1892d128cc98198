//! The size classes of the free-list allocator: 40 of them up to 8 KiB.
//!
//! Those of MMTk's segregated free lists on a 32-bit machine, which the thesis's virtual machine has by default (§5.1.2): 4
//! bytes apart up to 64, 16 up to 128, 32 up to 256, 64 up to 512, 256 up to 2 KiB, 1 KiB up to 8 KiB.

/// How many there are.
pub(crate) const CLASSES: usize = 40;
/// The largest cell in bytes; what is larger goes to the large object space.
pub const MAX_CELL_BYTES: u32 = 8192;

/// The class for objects of so many bytes, from 1 to [`MAX_CELL_BYTES`].
pub(crate) fn class_of(bytes: u32) -> usize {
    debug_assert!((1..=MAX_CELL_BYTES).contains(&bytes), "{bytes} bytes are of no size class");
    let last = bytes - 1;
    (match last {
        0..=63 => last >> 2,
        64..=127 => 12 + (last >> 4),
        128..=255 => 16 + (last >> 5),
        256..=511 => 20 + (last >> 6),
        512..=2047 => 26 + (last >> 8),
        _ => 32 + (last >> 10),
    }) as usize
}

/// Bytes of a class's cells.
pub(crate) fn cell_bytes(class: usize) -> u32 {
    let number = class as u32 + 1;
    match class {
        0..=15 => number * 4,
        16..=19 => (number - 12) * 16,
        20..=23 => (number - 16) * 32,
        24..=27 => (number - 20) * 64,
        28..=33 => (number - 26) * 256,
        _ => (number - 32) * 1024,
    }
}

/// Pages of 4 KiB of a class's blocks: at least four cells, and at most an eighth of a block unused.
pub(crate) fn block_pages(class: usize) -> u32 {
    match cell_bytes(class) {
        0..=256 => 1,
        257..=1024 => 4,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_fits_its_class_and_no_smaller_one() {
        for bytes in 1..=MAX_CELL_BYTES {
            let class = class_of(bytes);
            assert!(cell_bytes(class) >= bytes, "{bytes}");
            assert!(class == 0 || cell_bytes(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(class_of(MAX_CELL_BYTES), CLASSES - 1);
        assert_eq!(cell_bytes(CLASSES - 1), MAX_CELL_BYTES);
    }

    #[test]
    fn blocks_hold_at_least_four_cells() {
        for class in 0..CLASSES {
            assert!(block_pages(class) * 4096 / cell_bytes(class) >= 4);
        }
    }
}
