//! Records of a session that may see user mode only.
//!
//! Hardware takes a record some instructions after the event (skid), so that a counter which counts at CPL 3 only can
//! write one with the kernel's instruction pointer and registers (SDM Vol. 3B 20.3.1.1.1). Such a session therefore never
//! maps memory that hardware writes: [`super::Rings::map_segment`] puts staging memory of the driver's own into the
//! window, and at each cut the records are moved from there to the same place of the session's segment, without those
//! that the kernel shows in.

use super::layout::RecordLayout;
use super::port::{Port, Rings};
use super::records::{self, Record};

/// Words that are moved at a time.
const WORDS: usize = 32;

/// What came of moving records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// First byte of the segment after the records that were kept.
    pub(super) end: u32,
    /// Records that were not kept.
    pub(super) withheld: u64,
    /// The last record was not kept.
    pub(super) last_withheld: bool,
    /// Something in the records that were kept looked like a kernel address and reads 0 now.
    pub(super) scrubbed: bool,
}

/// Moves the records from `start` to `end` of the window to the segment in this slot, from `start` on. Bytes that are no record stay where
/// they are, and all behind them.
pub(super) fn move_records<P: Port, R: Rings>(
    port: &mut P,
    rings: &mut R,
    layout: &RecordLayout,
    slot: u32,
    (start, end): (u32, u32),
) -> Moved {
    let mut moved = Moved { end: start, ..Moved::default() };
    let mut at = start;
    while at < end {
        let Some(record) = records::next(port, layout, at, end) else { break };
        moved.last_withheld = record.shows_kernel(port, layout);
        if moved.last_withheld {
            moved.withheld += 1;
        } else {
            moved.scrubbed |= move_record(port, rings, &record, slot, moved.end);
            moved.end += record.end - record.start;
        }
        at = record.end;
    }
    moved
}

/// Moves one record; whether something in it was scrubbed.
fn move_record<P: Port, R: Rings>(port: &mut P, rings: &mut R, record: &Record, slot: u32, to: u32) -> bool {
    let mut scrubbed = false;
    let (from, bytes) = (record.start, record.end - record.start);
    for part in (0..bytes).step_by(8 * WORDS) {
        let mut words = [0; WORDS];
        let used = (bytes - part).div_ceil(8).min(WORDS as u32) as usize;
        for (offset, word) in (part..).step_by(8).zip(words.iter_mut().take(used)) {
            *word = port.pebs_read(from + offset);
            if looks_like_kernel_address(*word) {
                *word = 0;
                scrubbed = true;
            }
        }
        if let Some(words) = words.get(..used) {
            rings.write_record(slot, to + part, words);
        }
    }
    scrubbed
}

/// Whether the value lies in the kernel's half of the address space, with five-level paging too (SDM Vol. 3A 4.5.1), but
/// not in its last page, which is never mapped: a small negative number.
const fn looks_like_kernel_address(value: u64) -> bool {
    value >= 0xff00_0000_0000_0000 && value < 0xffff_ffff_ffff_f000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_negative_numbers_and_user_addresses_are_no_kernel_addresses() {
        let kernel = [0xffff_8880_0000_0000, 0xffff_ffff_8100_0000, 0xff11_0000_0000_0000];
        let others = [0, 0x7fff_ffff_f000, u64::MAX, -4096i64 as u64, 1 << 62];
        assert!(kernel.into_iter().all(looks_like_kernel_address));
        assert!(!others.into_iter().any(looks_like_kernel_address));
    }
}
