//! How a record of architectural PEBS is written: behind one header, or in fragments with a header each ([`crate::Options::pebs_fragments`]).
//!
//! A header has CONTINUE set, or no group at all (a null record), when another fragment follows (Intel Architecture Instruction Set
//! Extensions Programming Reference, "Architectural PEBS"). When a processor does so is not said, nor where it divides a record, and nobody
//! has seen it: the model takes turns between all that Linux's driver expects (`arch_pebs_record_continued`, `intel_pmu_drain_arch_pebs`),
//! of which the first fragment with a group has the basic one, and groups are whole.

use super::adaptive::append;
use serde::{Deserialize, Serialize};

/// Header: 64-bit mode.
const HEADER_64BIT_MODE: u64 = 1 << 30;
/// Header: another fragment of the record follows.
const CONTINUE: u64 = 1 << 31;
/// Records begin at multiples of this many bytes: the unit of IA32_PEBS_INDEX.
pub(super) const UNIT: usize = 16;

/// A group of a record.
pub(super) struct Part {
    /// Its bits in a header.
    group: u64,
    pub(super) bytes: Vec<u8>,
}

impl Part {
    pub(super) fn of(group: u64, words: &[u64]) -> Self {
        let mut bytes = Vec::new();
        append(&mut bytes, words);
        Self { group, bytes }
    }
}

/// Which records are written in fragments, and how.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Fragmenter {
    /// Records so far, while some are to be in fragments.
    records: u64,
    /// Of them in fragments.
    divided: u64,
}

impl Fragmenter {
    /// The bytes of the next record, of which each `every`th is in fragments.
    pub(super) fn write(&mut self, parts: &[Part], every: u32) -> Vec<u8> {
        let Some(turn) = self.turn(every) else { return fragment(parts, 0) };
        let mut record = Vec::new();
        let first = match turn {
            // A null record.
            0 => {
                append(&mut record, &[UNIT as u64, 0]);
                parts.len()
            }
            1 => 1,
            _ => 2.min(parts.len()),
        };
        let (first, others) = parts.split_at(first);
        record.extend(fragment(first, if others.is_empty() { 0 } else { CONTINUE }));
        // The others each alone, or together.
        let mut others = others.chunks(if turn == 1 { 1 } else { parts.len() }).peekable();
        while let Some(parts) = others.next() {
            record.extend(fragment(parts, if others.peek().is_some() { CONTINUE } else { 0 }));
        }
        record
    }

    /// Which of the ways of dividing it the next record takes.
    fn turn(&mut self, every: u32) -> Option<u64> {
        if every == 0 {
            return None;
        }
        self.records += 1;
        self.records.is_multiple_of(every.into()).then(|| {
            self.divided += 1;
            self.divided % 3
        })
    }
}

/// A header, and what it says that there is.
fn fragment(parts: &[Part], flags: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, &[0, 0]);
    let mut groups = 0;
    for part in parts {
        groups |= part.group;
        bytes.extend_from_slice(&part.bytes);
    }
    bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
    let header = bytes.len() as u64 | HEADER_64BIT_MODE | flags | groups;
    bytes[..8].copy_from_slice(&header.to_le_bytes());
    bytes
}
