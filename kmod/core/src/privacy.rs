//! Records of a session that may see user mode only.
//!
//! Hardware takes a record some instructions after the event (skid), so that a counter which counts at CPL 3 only can
//! write one with the kernel's instruction pointer and registers (SDM Vol. 3B 20.3.1.1.1). Such a session therefore never
//! maps memory that hardware writes: [`super::Rings::map_segment`] puts staging memory of the driver's own into the
//! window, and at each cut the records are moved from there to the same place of the session's segment, without those
//! that the kernel shows in.

use super::layout::RecordLayout;
use super::port::{Port, Rings};

/// Words that are moved at a time.
const WORDS: usize = 32;

/// Where a record says which instruction it is for, and which came next; both the same where it has only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    record_size: u16,
    instruction_pointers: [u16; 2],
}

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

impl Sight {
    /// For records of this layout.
    pub(super) const fn of(layout: &RecordLayout) -> Self {
        Self { record_size: layout.record_size, instruction_pointers: layout.instruction_pointers }
    }
}

/// Moves the records from `start` to `end` of the window to the segment in this slot, from `start` on.
pub(super) fn move_records<P: Port, R: Rings>(
    port: &mut P,
    rings: &mut R,
    sight: &Sight,
    slot: u32,
    (start, end): (u32, u32),
) -> Moved {
    let mut moved = Moved { end: start, ..Moved::default() };
    for record in (start..end).step_by(sight.record_size.into()) {
        let kernel = |offset: &u16| port.pebs_read(record + u32::from(*offset)) >> 63 != 0;
        moved.last_withheld = sight.instruction_pointers.iter().any(kernel);
        if moved.last_withheld {
            moved.withheld += 1;
        } else {
            moved.scrubbed |= move_record(port, rings, sight, slot, (record, moved.end));
            moved.end += u32::from(sight.record_size);
        }
    }
    moved
}

/// Moves one record; whether something in it was scrubbed.
fn move_record<P: Port, R: Rings>(
    port: &mut P,
    rings: &mut R,
    sight: &Sight,
    slot: u32,
    (from, to): (u32, u32),
) -> bool {
    let mut scrubbed = false;
    let bytes = u32::from(sight.record_size);
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
