//! What there is now: the threads and mappings of living processes, for whoever comes later.

use std::collections::BTreeMap;

use libhpm::numbers::NumberMap;
use libhpm::trace::{MapRow, ThreadChange, ThreadRow};

/// Mappings of one process that are kept; of more, a quarter goes: data before code, and the oldest first.
pub(crate) const MAPS_MAX: usize = 4096;

/// Threads and mappings of living processes.
#[derive(Default)]
pub(crate) struct Present {
    maps: NumberMap<Mapped>,
    threads: NumberMap<ThreadRow>,
}

/// The mappings of a process by their first addresses, each with its number.
#[derive(Clone, Default)]
struct Mapped {
    by_start: BTreeMap<u64, (u64, MapRow)>,
    next: u64,
}

impl Mapped {
    /// Takes note of a mapping. What it covers is gone: the kernel does not report what is unmapped, and a program that maps memory
    /// again and again gets the same addresses.
    fn add(&mut self, row: MapRow) {
        let covered = self.by_start.range(row.start..row.end.max(row.start));
        let covered: Vec<u64> =
            covered.filter(|(_, (_, old))| old.end <= row.end).map(|(start, _)| *start).collect();
        covered.iter().for_each(|start| drop(self.by_start.remove(start)));
        if self.by_start.len() >= MAPS_MAX {
            self.shrink();
        }
        // What is larger, and begins at the same address, is found by its rest.
        if let Some((number, old)) = self.by_start.remove(&row.start).filter(|(_, old)| old.end > row.end) {
            let file_offset = old.file_offset.wrapping_add(row.end - old.start);
            self.by_start.insert(row.end, (number, MapRow { start: row.end, file_offset, ..old }));
        }
        self.by_start.insert(row.start, (self.next, row));
        self.next += 1;
    }

    fn shrink(&mut self) {
        let mut order: Vec<(bool, u64, u64)> =
            self.by_start.iter().map(|(start, (number, row))| (row.executable, *number, *start)).collect();
        order.sort_unstable();
        order.iter().take(MAPS_MAX / 4).for_each(|(_, _, start)| drop(self.by_start.remove(start)));
    }

    /// In the order in which they were made.
    fn rows(&self) -> impl Iterator<Item = &MapRow> {
        let mut rows: Vec<&(u64, MapRow)> = self.by_start.values().collect();
        rows.sort_unstable_by_key(|(number, _)| *number);
        rows.into_iter().map(|(_, row)| row)
    }
}

impl Present {
    /// Takes note of a mapping.
    pub(crate) fn map(&mut self, row: &MapRow) {
        self.maps.entry(row.pid).or_default().add(row.clone());
    }

    /// Takes note of a change in a thread's life.
    pub(crate) fn thread(&mut self, row: &ThreadRow) {
        match ThreadChange::from_number(row.what) {
            Some(ThreadChange::Exit) => {
                self.threads.remove(&row.tid);
                if row.tid == row.pid {
                    self.maps.remove(&row.pid);
                }
                return;
            }
            Some(ThreadChange::Fork) => {
                let inherited = row.parent_pid.and_then(|parent| self.maps.get(&parent)).cloned();
                let mut inherited = inherited.unwrap_or_default();
                inherited.by_start.values_mut().for_each(|(_, map)| map.pid = row.pid);
                self.maps.insert(row.pid, inherited);
            }
            Some(ThreadChange::Exec) => drop(self.maps.remove(&row.pid)),
            Some(ThreadChange::Start | ThreadChange::Rename) | None => {}
        }
        // For who comes later it is simply there.
        let there = ThreadRow { what: ThreadChange::Start as u8, parent_pid: None, ..row.clone() };
        self.threads.insert(row.tid, there);
    }

    /// The mappings of all processes.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &MapRow> {
        self.maps.values().flat_map(Mapped::rows)
    }

    /// The mappings of a process.
    pub(crate) fn maps_of(&self, pid: u32) -> impl Iterator<Item = &MapRow> {
        self.maps.get(&pid).into_iter().flat_map(Mapped::rows)
    }

    /// All threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &ThreadRow> {
        self.threads.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(start: u64, end: u64, executable: bool) -> MapRow {
        MapRow { pid: 1, start, end, executable, path: "/bin/a".into(), ..MapRow::default() }
    }

    fn extents(present: &Present) -> Vec<(u64, u64, u64)> {
        present.maps_of(1).map(|row| (row.start, row.end, row.file_offset)).collect()
    }

    #[test]
    fn what_is_mapped_again_and_again_is_one_mapping_and_code_stays() {
        let mut present = Present::default();
        present.map(&map(0x1000, 0x5000, true));
        (0..3 * MAPS_MAX).for_each(|_| present.map(&map(0x9000, 0xa000, false)));
        assert_eq!(extents(&present), [(0x1000, 0x5000, 0), (0x9000, 0xa000, 0)]);
        let other = |n: usize| map(0x10_0000 + 0x1000 * n as u64, 0x10_1000 + 0x1000 * n as u64, false);
        (0..3 * MAPS_MAX).for_each(|n| present.map(&other(n)));
        let extents = extents(&present);
        assert!(extents.len() <= MAPS_MAX && extents[0] == (0x1000, 0x5000, 0), "the oldest is code");
    }

    #[test]
    fn parts_of_a_mapping_are_mapped_anew() {
        let mut present = Present::default();
        // As the dynamic linker does it: the whole file, and then its segments.
        present.map(&map(0x1000, 0x9000, false));
        present.map(&map(0x3000, 0x5000, true));
        assert_eq!(extents(&present), [(0x1000, 0x9000, 0), (0x3000, 0x5000, 0)]);
        present.map(&map(0x1000, 0x2000, false));
        assert_eq!(extents(&present), [(0x2000, 0x9000, 0x1000), (0x3000, 0x5000, 0), (0x1000, 0x2000, 0)]);
    }
}
