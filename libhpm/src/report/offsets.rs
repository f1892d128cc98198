//! How far from an instruction samples lie: the histogram of reported instruction pointers around it.
//!
//! Schneider's thesis, Figure 2.3: an interrupt reports an instruction far behind the one that caused the event, PEBS that one.

use std::collections::HashMap;

use serde::Serialize;

use super::{Estimate, Resolver, Sum};
use crate::record::Attribution;
use crate::symbol::Code;
use crate::trace::SampleRow;

/// Where a histogram's distance 0 is.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The file that has the code.
    pub module: &'a str,
    /// The function around the place.
    pub code: &'a Code,
}

/// Samples of one event by their distance, in instructions, from one of a function's instructions.
#[derive(Debug, Default)]
pub struct Offsets {
    /// By the instruction's place in the function; `None` for those elsewhere.
    counted: HashMap<Option<usize>, Sum>,
    all: Sum,
}

/// The samples of one instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OffsetEntry {
    /// Instructions from the place to this one, by address: negative before it.
    pub distance: i64,
    /// The samples.
    #[serde(flatten)]
    pub own: Sum,
    /// Their share in all events of the histogram.
    pub estimate: Estimate,
}

impl Offsets {
    /// Counts a row's sample. Where records name the instruction after the one that caused the event
    /// ([`Attribution::Next`]) that is the one before it by address; of a record at a function's first instruction nobody knows.
    pub fn add(
        &mut self,
        resolver: &Resolver,
        row: &SampleRow,
        attribution: Attribution,
        around: Around<'_>,
    ) {
        let in_file = resolver.file(row, row.ip).filter(|file| &*file.path == around.module);
        let reported = in_file.and_then(|file| around.code.instruction_of(file.file_offset_of(row.ip)));
        let place = match attribution {
            Attribution::Next => reported.and_then(|place| place.checked_sub(1)),
            _ => reported,
        };
        let sum = Sum::sample(row.period, row.latency_cycles);
        self.counted.entry(place).or_default().add(sum);
        self.all.add(sum);
    }

    /// All samples, also those elsewhere.
    #[must_use]
    pub fn all(&self) -> Sum {
        self.all
    }

    /// Those that lie in another function.
    #[must_use]
    pub fn elsewhere(&self) -> Sum {
        self.counted.get(&None).copied().unwrap_or_default()
    }

    /// The function's instructions that have samples, in the order of their addresses.
    #[must_use]
    pub fn entries(&self, code: &Code) -> Vec<OffsetEntry> {
        let reference = code.reference as i64;
        let entry = |(place, &own): (&Option<usize>, &Sum)| {
            let distance = (*place)? as i64 - reference;
            let estimate = Estimate::of(own, self.all);
            Some(OffsetEntry { distance, own, estimate })
        };
        let mut entries: Vec<OffsetEntry> = self.counted.iter().filter_map(entry).collect();
        entries.sort_by_key(|entry| entry.distance);
        entries
    }
}
