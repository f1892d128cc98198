//! Functions of code that a process makes at run time, by address.
//!
//! A tree instead of the page table of Schneider's thesis (3.3.1): it takes new functions while it is used, as he wants, and its
//! look-ups are as fast for many small functions in one page as for one big one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MadeCode {
    /// First address after it.
    pub(super) end: u64,
    /// Its name.
    pub(super) name: Arc<str>,
    /// Address, source file and line, by address: each holds up to the next.
    pub(super) lines: Arc<[(u64, Arc<str>, u32)]>,
}

impl MadeCode {
    /// The source line of an address in it.
    pub(super) fn line_at(&self, address: u64) -> Option<(&Arc<str>, u32)> {
        let after = self.lines.partition_point(|(start, ..)| *start <= address);
        let (_, file, line) = self.lines.get(after.checked_sub(1)?)?;
        Some((file, *line))
    }
}

/// Functions by address. Of two that overlap the later one counts, as memory for code is used again.
#[derive(Debug, Default)]
pub(super) struct CodeMap(BTreeMap<u64, MadeCode>);

impl CodeMap {
    /// Adds a function; what it covers of others is gone.
    pub(super) fn insert(&mut self, start: u64, code: MadeCode) {
        if start >= code.end {
            return;
        }
        let overlapping = self.0.range(..code.end).rev().take_while(|(_, other)| other.end > start);
        let starts: Vec<u64> = overlapping.map(|(&start, _)| start).collect();
        for other_start in starts {
            let Some(other) = self.0.remove(&other_start) else { continue };
            if other.end > code.end {
                self.0.insert(code.end, other.clone());
            }
            if other_start < start {
                self.0.insert(other_start, MadeCode { end: start, ..other });
            }
        }
        self.0.insert(start, code);
    }

    /// Moves the function that begins at an address.
    pub(super) fn relocate(&mut self, from: u64, to: u64) {
        let Some(code) = self.0.remove(&from) else { return };
        let moved = |address: u64| address.wrapping_sub(from).wrapping_add(to);
        let lines = code.lines.iter().map(|(address, file, line)| (moved(*address), Arc::clone(file), *line));
        let lines = lines.collect();
        self.insert(to, MadeCode { end: moved(code.end), lines, name: code.name });
    }

    /// All of it, in the order of addresses.
    pub(super) fn functions(&self) -> impl Iterator<Item = (Range<u64>, Arc<str>)> {
        self.0.iter().map(|(&start, code)| (start..code.end, Arc::clone(&code.name)))
    }

    /// The function that has an address.
    pub(super) fn at(&self, address: u64) -> Option<&MadeCode> {
        let (_, code) = self.0.range(..=address).next_back()?;
        (address < code.end).then_some(code)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(end: u64, name: &str) -> MadeCode {
        MadeCode { end, name: name.into(), ..MadeCode::default() }
    }

    #[test]
    fn a_function_that_moves_takes_its_lines_along() {
        let mut map = CodeMap::default();
        let lines = [(0x100, "a.js".into(), 1), (0x108, "a.js".into(), 2)].into();
        map.insert(0x100, MadeCode { lines, ..code(0x110, "f") });
        map.relocate(0x100, 0x900);
        map.relocate(0x500, 0x600);
        assert!(map.at(0x100).is_none());
        let found = map.at(0x909).unwrap();
        assert_eq!(found.line_at(0x909).map(|(file, line)| (&**file, line)), Some(("a.js", 2)));
        assert_eq!(found.line_at(0x8ff), None);
    }

    proptest! {
        /// At each address the latest function that covers it counts.
        #[test]
        fn the_latest_counts(functions in prop::collection::vec((0_u64..60, 0_u64..30), 0..40)) {
            let mut map = CodeMap::default();
            for (number, &(start, size)) in functions.iter().enumerate() {
                map.insert(start, code(start + size, &number.to_string()));
            }
            for address in 0..100 {
                let latest = functions.iter().rposition(|&(start, size)| (start..start + size).contains(&address));
                prop_assert_eq!(map.at(address).map(|code| code.name.to_string()), latest.map(|number| number.to_string()));
            }
        }
    }
}
