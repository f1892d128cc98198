//! The debug store's PEBS buffer: its management area in 64-bit layout (SDM Vol. 3B, figures 17-8 and 18-22), and the record
//! that was the first.

use crate::bus::{Bus, PageFault, Registers};

/// Offset of "PEBS buffer base" in the management area; index, absolute maximum and threshold follow.
const PEBS_BUFFER_BASE: u64 = 0x20;
/// Offset of "PEBS index".
const PEBS_INDEX: u64 = 0x28;
/// A general register's place in a record is not its encoding: RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to
/// R15.
const RECORD_ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// The words of a record of format 0, with which those of formats 1 to 3 begin.
pub(super) const FORMAT_0_WORDS: usize = 18;
/// Its size.
pub(super) const FORMAT_0_BYTES: u32 = 8 * FORMAT_0_WORDS as u32;

/// What became of a record.
pub(super) struct Stored {
    /// Where it was written; `None` if there was no room for it.
    pub(super) at: Option<u64>,
    /// The index has reached the interrupt threshold.
    pub(super) threshold_reached: bool,
}

/// Reads 64-bit words.
pub(super) fn words<const N: usize>(bus: &mut dyn Bus, at: u64) -> Result<[u64; N], PageFault> {
    let mut words = [0; N];
    for (word, at) in words.iter_mut().zip((0..).step_by(8).map(|offset| at.wrapping_add(offset))) {
        let mut bytes = [0; 8];
        bus.read(at, &mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}

/// Appends `record` to the buffer. Nothing is written past the absolute maximum, and nothing is signalled (SDM Vol. 3B
/// 18.8.1.1); nor is anything to a buffer of more than `most` bytes, which is what becomes here of a part that hangs.
pub(super) fn store(ds_area: u64, most: u64, record: &[u8], bus: &mut dyn Bus) -> Result<Stored, PageFault> {
    let [base, index, absolute_maximum, threshold] = words(bus, ds_area.wrapping_add(PEBS_BUFFER_BASE))?;
    let fits = absolute_maximum.saturating_sub(base) <= most;
    let end = index.checked_add(record.len() as u64).filter(|&end| fits && end <= absolute_maximum);
    let Some(end) = end else { return Ok(Stored { at: None, threshold_reached: false }) };
    bus.write(index, record)?;
    bus.write(ds_area.wrapping_add(PEBS_INDEX), &end.to_le_bytes())?;
    Ok(Stored { at: Some(index), threshold_reached: end >= threshold })
}

/// A record of format 0: RFLAGS, RIP and the general registers after the instruction (SDM Vol. 3B 18.4.4.2, figure 17-10).
pub(super) fn format_0(registers: &Registers) -> [u64; FORMAT_0_WORDS] {
    let mut words = [0; FORMAT_0_WORDS];
    words[0] = registers.rflags;
    words[1] = registers.rip;
    for (word, &register) in words[2..].iter_mut().zip(&RECORD_ORDER) {
        *word = registers.general[register];
    }
    words
}
