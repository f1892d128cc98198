//! The instruction before the reported one, for hardware that reports the next (PEBS formats 0 and 1, Pentium 4).
//!
//! Instructions of x86 cannot be decoded backwards: the function is decoded from its symbol on (Schneider's thesis, 3.3.2, has
//! the compiler's own map for that). Where the reported instruction was reached by a branch, the one before it by address is
//! not the cause: the sample's newest branch record tells, if it has any.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::address_space::{AddressSpaces, Mapping};
use crate::record::Attribution;
use crate::symbol::{Code, CodeFile, FileFinder, Place};
use crate::trace::{Event, SampleRow};

/// Path and build ID of a file.
type FileKey = (Arc<str>, Option<Arc<[u8]>>);

/// Finds the instructions that caused samples.
pub(super) struct Causes {
    /// Whether each event's samples name the next instruction.
    next: Vec<bool>,
    finder: FileFinder,
    /// Each file, where it can be read, with those of its functions that were decoded.
    files: HashMap<FileKey, (Option<CodeFile>, Vec<Code>)>,
    /// How far before a byte of a file the instruction before it begins.
    back: HashMap<(FileKey, u64), u64>,
}

impl Causes {
    pub(super) fn new(events: &[Event], finder: FileFinder) -> Self {
        let next = events.iter().map(|event| event.attribution == Attribution::Next).collect();
        Self { next, finder, files: HashMap::new(), back: HashMap::new() }
    }

    /// The address of the instruction that caused a sample; the reported one where that is not known.
    pub(super) fn of(&mut self, spaces: &AddressSpaces, row: &SampleRow) -> u64 {
        if !self.next.get(usize::from(row.event)).copied().unwrap_or(false) {
            return row.ip;
        }
        if let Some(&[from, to, ..]) = row.branches.as_deref()
            && to == row.ip
        {
            return from;
        }
        let mapping = spaces.find(row.pid, row.tsc, row.ip);
        let Some(mapping) = mapping.filter(|mapping| mapping.is_file()) else { return row.ip };
        row.ip - self.back(mapping, mapping.file_offset_of(row.ip))
    }

    fn back(&mut self, mapping: &Mapping, offset: u64) -> u64 {
        let file = (Arc::clone(&mapping.path), mapping.build_id.clone());
        let place = (file.clone(), offset);
        if let Some(&back) = self.back.get(&place) {
            return back;
        }
        let (file, functions) = self.files.entry(file).or_insert_with(|| {
            let (path, build_id) = (Path::new(&*mapping.path), mapping.build_id.as_deref());
            (CodeFile::open(path, build_id, &self.finder).ok(), Vec::new())
        });
        if !functions.iter().any(|code| code.instruction_of(offset).is_some())
            && let Some(file) = file
        {
            functions.extend(file.around(&Place::FileOffset(offset)).ok().flatten());
        }
        let before = |code: &Code| {
            let place = code.instruction_of(offset)?.checked_sub(1)?;
            Some(code.instructions[place].bytes.into())
        };
        let back = functions.iter().find_map(before).unwrap_or(0);
        self.back.insert(place, back);
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::MapRow;

    const BASE: u64 = 0x7000_0000_0000;

    /// This test's own `main`, mapped whole; with the places of its first instructions in memory.
    fn own_main(build_id: Option<Vec<u8>>) -> (AddressSpaces, Vec<u64>) {
        let file = std::env::current_exe().unwrap();
        let finder = FileFinder::default();
        let code = Code::around(&Place::of_symbol("main"), &file, None, &finder).unwrap().unwrap();
        let place = |place: usize| {
            let offset = (0..file.metadata().unwrap().len())
                .find(|&offset| code.instruction_of(offset) == Some(place));
            BASE + offset.unwrap()
        };
        let mut spaces = AddressSpaces::default();
        let path = file.to_str().unwrap().into();
        spaces.map(&MapRow {
            pid: 1,
            start: BASE,
            end: BASE + (1 << 32),
            path,
            executable: true,
            build_id,
            ..MapRow::default()
        });
        (spaces, (0..3).map(place).collect())
    }

    #[test]
    fn the_instruction_before_is_found_by_decoding() {
        let (spaces, places) = own_main(None);
        let event = |attribution| Event { attribution, ..Event::default() };
        let mut causes =
            Causes::new(&[event(Attribution::Next), event(Attribution::Cause)], FileFinder::default());
        let mut of = |event, ip, branches: Option<Vec<u64>>| {
            causes.of(&spaces, &SampleRow { pid: 1, event, ip, branches, ..SampleRow::default() })
        };
        assert_eq!([of(0, places[2], None), of(0, places[1], None)], [places[1], places[0]]);
        assert_eq!(of(0, places[0], None), places[0], "nobody knows what is before a function's first one");
        assert_eq!(of(1, places[2], None), places[2], "this event's samples name the cause");
        assert_eq!(of(0, 0x10, None), 0x10, "there is no code");
        assert_eq!(of(0, places[2], Some(vec![0x99, places[2], 0])), 0x99, "a branch led here");
        assert_eq!(of(0, places[2], Some(vec![0x99, places[0], 0])), places[1]);
    }

    #[test]
    fn another_file_than_the_recorded_one_is_not_decoded() {
        let event = Event { attribution: Attribution::Next, ..Event::default() };
        let found = crate::elf::build_id(&std::env::current_exe().unwrap());
        for (build_id, back) in [(found, 1), (Some(vec![1, 2, 3]), 0)] {
            let (spaces, places) = own_main(build_id);
            let mut causes = Causes::new(std::slice::from_ref(&event), FileFinder::default());
            let row = SampleRow { pid: 1, ip: places[2], ..SampleRow::default() };
            assert_eq!(causes.of(&spaces, &row), places[2 - back]);
        }
    }
}
