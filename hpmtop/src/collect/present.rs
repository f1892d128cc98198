//! What there is now: the threads and mappings of living processes, for whoever comes later.

use std::collections::HashMap;

use libhpm::trace::{MapRow, ThreadChange, ThreadRow};

/// Mappings of one process that are kept; of more, the oldest go, whose code then has no names.
const MAPS_MAX: usize = 4096;

/// Threads and mappings of living processes.
#[derive(Default)]
pub(crate) struct Present {
    maps: HashMap<u32, Vec<MapRow>>,
    threads: HashMap<u32, ThreadRow>,
}

impl Present {
    /// Takes note of a mapping.
    pub(crate) fn map(&mut self, row: &MapRow) {
        let maps = self.maps.entry(row.pid).or_default();
        if maps.len() >= MAPS_MAX {
            maps.remove(0);
        }
        maps.push(row.clone());
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
                let own = |map: MapRow| MapRow { pid: row.pid, ..map };
                self.maps.insert(row.pid, inherited.unwrap_or_default().into_iter().map(own).collect());
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
        self.maps.values().flatten()
    }

    /// The mappings of a process.
    pub(crate) fn maps_of(&self, pid: u32) -> impl Iterator<Item = &MapRow> {
        self.maps.get(&pid).into_iter().flatten()
    }

    /// All threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &ThreadRow> {
        self.threads.values()
    }
}
