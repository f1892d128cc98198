//! Which file was mapped where in which process, and when: built from the `maps` and `threads` rows, live or from a trace.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::trace::{MapRow, ThreadChange, ThreadRow};

/// A file mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// TSC since when.
    pub tsc: u64,
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Byte of the file at `start`.
    pub file_offset: u64,
    /// The file.
    pub path: Arc<str>,
    /// The file's GNU build ID.
    pub build_id: Option<Arc<[u8]>>,
    /// Code can be run from it.
    pub executable: bool,
}

impl Mapping {
    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether a file is mapped: not memory that the kernel or the process names (as perf's `is_anon_memory` and
    /// `is_no_dso_memory` have it, Linux, tools/perf/util/map.c).
    #[must_use]
    pub fn is_file(&self) -> bool {
        const MEMORY: [&str; 5] = ["//", "/memfd:", "/dev/zero", "/anon_hugepage", "/SYSV"];
        self.path.starts_with('/') && !MEMORY.iter().any(|name| self.path.starts_with(name))
    }

    /// The byte of the file at an address that it contains.
    #[must_use]
    pub fn file_offset_of(&self, address: u64) -> u64 {
        address.wrapping_sub(self.start).wrapping_add(self.file_offset)
    }

    /// The parts of it that `newer` leaves.
    fn without(self, newer: &Self) -> impl Iterator<Item = Self> {
        let before = Self { end: self.end.min(newer.start), ..self.clone() };
        let after_start = self.start.max(newer.end);
        let after = Self { start: after_start, file_offset: self.file_offset_of(after_start), ..self };
        [before, after].into_iter().filter(|part| part.start < part.end)
    }
}

/// One process through time.
#[derive(Debug, Default)]
struct History {
    /// In order of `tsc`.
    mappings: Vec<Mapping>,
    /// Where each of them is: what look-ups go through, apart because it is much smaller.
    extents: Vec<(u64, u64)>,
    /// Where code is or was: few, beside the mappings of data that some programs make all the time.
    code: Vec<(u64, u64)>,
    /// When mappings were made that changed where code is, in order.
    code_changes: Vec<u64>,
    /// When the address space began anew (exec; or the PID was given to a new process), in order.
    beginnings: Vec<u64>,
}

impl History {
    /// The time span of the address space that the process had at `tsc`.
    fn lifetime(&self, tsc: u64) -> (u64, u64) {
        let next = self.beginnings.partition_point(|&beginning| beginning <= tsc);
        let from = next.checked_sub(1).map_or(0, |last| self.beginnings[last]);
        (from, self.beginnings.get(next).copied().unwrap_or(u64::MAX))
    }

    fn during(&self, span: (u64, u64)) -> &[Mapping] {
        &self.mappings[self.places(span)]
    }

    fn places(&self, (from, until): (u64, u64)) -> Range<usize> {
        let first = self.mappings.partition_point(|mapping| mapping.tsc < from);
        first..self.mappings.partition_point(|mapping| mapping.tsc < until).max(first)
    }

    fn insert(&mut self, mapping: Mapping) {
        let place = self.mappings.partition_point(|other| other.tsc <= mapping.tsc);
        self.extents.insert(place, (mapping.start, mapping.end));
        let covers = |&(start, end): &(u64, u64)| start < mapping.end && mapping.start < end;
        let extent = (mapping.start, mapping.end);
        if mapping.executable && !self.code.contains(&extent) {
            self.code.push(extent);
        }
        if mapping.executable || self.code.iter().any(covers) {
            let place = self.code_changes.partition_point(|&other| other <= mapping.tsc);
            self.code_changes.insert(place, mapping.tsc);
        }
        self.mappings.insert(place, mapping);
    }

    fn begin(&mut self, tsc: u64) {
        let place = self.beginnings.partition_point(|&other| other <= tsc);
        self.beginnings.insert(place, tsc);
    }
}

/// The address spaces of all processes of a recording.
#[derive(Debug, Default)]
pub struct AddressSpaces {
    processes: HashMap<u32, History>,
}

impl AddressSpaces {
    /// Takes note of a mapping. Rows of different CPUs may come slightly out of order.
    pub fn map(&mut self, row: &MapRow) {
        self.processes.entry(row.pid).or_default().insert(Mapping {
            tsc: row.tsc,
            start: row.start,
            end: row.end,
            file_offset: row.file_offset,
            path: row.path.as_str().into(),
            build_id: row.build_id.as_deref().map(Into::into),
            executable: row.executable,
        });
    }

    /// Takes note of an exec, which ends all mappings, or of a fork, which copies those of the parent.
    pub fn thread(&mut self, row: &ThreadRow) {
        match ThreadChange::from_number(row.what) {
            Some(ThreadChange::Exec) => self.processes.entry(row.pid).or_default().begin(row.tsc),
            Some(ThreadChange::Fork) => {
                let inherited = row.parent_pid.map_or_else(Vec::new, |parent| self.at(parent, row.tsc));
                let history = self.processes.entry(row.pid).or_default();
                history.begin(row.tsc);
                for mapping in inherited {
                    history.insert(Mapping { tsc: row.tsc, ..mapping });
                }
            }
            Some(ThreadChange::Start | ThreadChange::Exit | ThreadChange::Rename) | None => {}
        }
    }

    /// The mapping at an address of a process at a time. When none was made before `tsc`, the first one made later counts:
    /// a mapping is reported a little after it was made.
    #[must_use]
    pub fn find(&self, pid: u32, tsc: u64, address: u64) -> Option<&Mapping> {
        let history = self.processes.get(&pid)?;
        let places = history.places(history.lifetime(tsc));
        let mappings = &history.mappings[places.clone()];
        let extents = &history.extents[places];
        let later = mappings.partition_point(|mapping| mapping.tsc <= tsc);
        let contains = |&(start, end): &(u64, u64)| (start..end).contains(&address);
        let before = extents[..later].iter().rposition(contains);
        let place = before.or_else(|| extents[later..].iter().position(contains).map(|place| later + place));
        place.map(|place| &mappings[place])
    }

    /// What was ever mapped into a process, in the order of time.
    pub fn paths(&self, pid: u32) -> impl Iterator<Item = &Arc<str>> {
        self.processes
            .get(&pid)
            .into_iter()
            .flat_map(|history| &history.mappings)
            .map(|mapping| &mapping.path)
    }

    /// The mappings of a process at a time; none overlaps another.
    #[must_use]
    pub fn at(&self, pid: u32, tsc: u64) -> Vec<Mapping> {
        let Some(history) = self.processes.get(&pid) else { return Vec::new() };
        let (from, _) = history.lifetime(tsc);
        let mut current: Vec<Mapping> = Vec::new();
        for mapping in history.during((from, tsc.saturating_add(1))) {
            current = current.into_iter().flat_map(|older| older.without(mapping)).collect();
            current.push(mapping.clone());
        }
        current
    }

    /// A value that is the same for two times of a process only if it had the same code at the same places.
    #[must_use]
    pub fn epoch(&self, pid: u32, tsc: u64) -> (u64, usize) {
        let Some(history) = self.processes.get(&pid) else { return (0, 0) };
        let (from, _) = history.lifetime(tsc);
        (from, history.code_changes.partition_point(|&change| change <= tsc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(tsc: u64, pid: u32, range: (u64, u64), path: &str) -> MapRow {
        MapRow {
            tsc,
            pid,
            start: range.0,
            end: range.1,
            path: path.into(),
            executable: true,
            ..MapRow::default()
        }
    }

    fn change(tsc: u64, pid: u32, parent: Option<u32>, what: ThreadChange) -> ThreadRow {
        ThreadRow { tsc, pid, tid: pid, parent_pid: parent, what: what as u8, ..ThreadRow::default() }
    }

    fn path(spaces: &AddressSpaces, pid: u32, tsc: u64, address: u64) -> Option<&str> {
        spaces.find(pid, tsc, address).map(|mapping| &*mapping.path)
    }

    #[test]
    fn a_newer_mapping_covers_an_older_one() {
        let mut spaces = AddressSpaces::default();
        spaces.map(&map(10, 1, (0x1000, 0x5000), "old"));
        spaces.map(&map(20, 1, (0x2000, 0x3000), "new"));
        assert_eq!(path(&spaces, 1, 15, 0x2000), Some("old"));
        assert_eq!(path(&spaces, 1, 25, 0x2000), Some("new"));
        assert_eq!(path(&spaces, 1, 25, 0x3000), Some("old"));
        let now: Vec<_> = spaces.at(1, 25).iter().map(|m| (m.start, m.end, m.file_offset)).collect();
        assert_eq!(now, [(0x1000, 0x2000, 0), (0x3000, 0x5000, 0x2000), (0x2000, 0x3000, 0)]);
    }

    #[test]
    fn exec_ends_what_was_mapped() {
        let mut spaces = AddressSpaces::default();
        spaces.map(&map(10, 1, (0x1000, 0x2000), "shell"));
        spaces.thread(&change(20, 1, None, ThreadChange::Exec));
        spaces.map(&map(21, 1, (0x4000, 0x5000), "program"));
        assert_eq!(path(&spaces, 1, 15, 0x1000), Some("shell"));
        assert_eq!(path(&spaces, 1, 30, 0x1000), None);
        assert_eq!(path(&spaces, 1, 15, 0x4000), None);
        assert_eq!(spaces.at(1, 30).len(), 1);
        assert_ne!(spaces.epoch(1, 15), spaces.epoch(1, 30));
        assert_eq!(spaces.epoch(1, 30), spaces.epoch(1, 31));
    }

    #[test]
    fn a_forked_process_has_its_parents_mappings() {
        let mut spaces = AddressSpaces::default();
        spaces.map(&map(10, 1, (0x1000, 0x2000), "before"));
        spaces.thread(&change(20, 2, Some(1), ThreadChange::Fork));
        spaces.map(&map(30, 1, (0x3000, 0x4000), "after"));
        assert_eq!(path(&spaces, 2, 40, 0x1000), Some("before"));
        assert_eq!(path(&spaces, 2, 40, 0x3000), None);
    }

    #[test]
    fn a_mapping_reported_late_still_counts() {
        let mut spaces = AddressSpaces::default();
        spaces.map(&map(10, 1, (0x1000, 0x2000), "file"));
        assert_eq!(path(&spaces, 1, 9, 0x1800), Some("file"));
        assert_eq!(path(&spaces, 1, 9, 0x2000), None);
    }
}
