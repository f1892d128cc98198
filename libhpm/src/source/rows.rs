//! Entries of the side band as rows of `maps` and `threads`.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Sink;
use crate::address_space::AddressSpaces;
use crate::build_id;
use crate::sideband::{self, Change, Entry, FileId, Mapping};
use crate::sys::clock::ClockPair;
use crate::trace::{MapRow, ThreadChange, ThreadRow, TraceError};

/// A row of one of the two tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SidebandRow {
    Map(MapRow),
    Thread(ThreadRow),
}

impl SidebandRow {
    /// Lets later addresses be looked up in it.
    pub(super) fn note_in(&self, spaces: &mut AddressSpaces) {
        match self {
            Self::Map(row) => spaces.map(row),
            Self::Thread(row) => spaces.thread(row),
        }
    }

    /// Hands it over.
    pub(super) fn hand_to(&self, sink: &mut dyn Sink) -> Result<(), TraceError> {
        match self {
            Self::Map(row) => sink.map(row),
            Self::Thread(row) => sink.thread(row),
        }
    }
}

/// `uname -r`.
pub(super) fn kernel_release() -> String {
    of_kernel("osrelease")
}

/// `uname -n`.
pub(super) fn host_name() -> String {
    of_kernel("hostname")
}

/// What names this boot.
pub(super) fn boot_id() -> String {
    of_kernel("random/boot_id")
}

fn of_kernel(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default().trim().to_owned()
}

/// Turns entries into rows: converts their times, and remembers what a row needs from earlier ones.
#[derive(Default)]
pub(super) struct SidebandRows {
    /// Name of each thread, by its ID.
    names: HashMap<u32, String>,
    /// Build ID of each file that somebody told by its name.
    told: HashMap<String, Vec<u8>>,
    /// Build ID of each file that living processes have mapped, so that it is read once. Other containers have other files under the
    /// same name.
    read: HashMap<(String, FileId), Option<Vec<u8>>>,
    /// The processes are there, so that the files they have mapped can be read.
    living: bool,
    looks_no_more: bool,
    /// Entries that the kernel had no room for.
    pub(super) lost: u64,
}

impl SidebandRows {
    /// For processes of this machine: the build IDs of what they map are read.
    pub(super) fn of_living_processes() -> Self {
        Self { living: true, ..Self::default() }
    }

    /// Tells the build ID of a file, for mappings that do not tell it themselves.
    pub(super) fn set_build_id(&mut self, path: &str, build_id: &[u8]) {
        if self.told.get(path).map(Vec::as_slice) != Some(build_id) {
            self.told.insert(path.to_owned(), build_id.to_vec());
        }
    }

    /// Tells the name of a thread that was there before.
    pub(super) fn set_name(&mut self, row: &ThreadRow) {
        self.names.insert(row.tid, row.name.clone());
    }

    /// From now on no file is read: the processes may have ended long ago, and others have their numbers.
    pub(super) fn look_no_more(&mut self) {
        self.looks_no_more = true;
    }

    /// Reads the build IDs that rows of these entries will have and that nobody tells.
    pub(super) fn look_up(&mut self, entries: Vec<Entry>) {
        for Entry { pid, change, .. } in entries {
            if let Change::Map(mapping) = change {
                self.map(0, pid, mapping);
            }
        }
    }

    /// The row for an entry, if it is one; `now` and `tsc_khz` convert its time.
    pub(super) fn row(&mut self, entry: Entry, now: ClockPair, tsc_khz: u32) -> Option<SidebandRow> {
        let tsc = tsc_at(entry.monotonic_raw_ns, now, tsc_khz);
        let Entry { pid, tid, .. } = entry;
        let mut parent_pid = None;
        let what = match entry.change {
            Change::Map(mapping) => return Some(SidebandRow::Map(self.map(tsc, pid, mapping))),
            Change::Lost(entries) => {
                self.lost += entries;
                return None;
            }
            Change::Name { name, exec } => match self.names.insert(tid, name) {
                _ if exec => ThreadChange::Exec,
                Some(_) => ThreadChange::Rename,
                None => ThreadChange::Start,
            },
            Change::Fork { parent_pid: parent, parent_tid } => {
                // A new thread has its creator's name.
                let name = self.names.get(&parent_tid).cloned().unwrap_or_default();
                self.names.insert(tid, name);
                parent_pid = (parent != pid).then_some(parent);
                if parent == pid { ThreadChange::Start } else { ThreadChange::Fork }
            }
            Change::Exit => ThreadChange::Exit,
        };
        let name = match what {
            ThreadChange::Exit => self.names.remove(&tid),
            _ => self.names.get(&tid).cloned(),
        };
        let name = name.unwrap_or_default();
        Some(SidebandRow::Thread(ThreadRow { tsc, pid, tid, parent_pid, name, what: what as u8 }))
    }

    fn map(&mut self, tsc: u64, pid: u32, mapping: Mapping) -> MapRow {
        let Mapping { start, end, file_offset, path, executable, file } = mapping;
        if let (FileId::BuildId(told), false) = (&file, self.living) {
            self.set_build_id(&path, told);
        }
        // Only code is symbolised, and only a file has a build ID.
        let is_file = path.starts_with('/') && !path.starts_with("//");
        let build_id = if executable && is_file { self.build_id(pid, &path, file) } else { None };
        MapRow { tsc, pid, start, end, file_offset, path, build_id, executable }
    }

    fn build_id(&mut self, pid: u32, path: &str, file: FileId) -> Option<Vec<u8>> {
        match file {
            FileId::BuildId(told) => Some(told),
            _ if !self.living => self.told.get(path).cloned(),
            FileId::Untold if self.looks_no_more => None,
            FileId::Untold => build_id(&mapped_file(pid, path, &FileId::Untold)),
            file => {
                let key = (path.to_owned(), file);
                if let Some(known) = self.read.get(&key) {
                    return known.clone();
                }
                if self.looks_no_more {
                    return None;
                }
                let found = mapped_file(pid, path, &key.1);
                let read = build_id(&found);
                // With its process the way to the file may have gone, which another one still has.
                if found.exists() {
                    self.read.insert(key, read.clone());
                }
                read
            }
        }
    }
}

/// Where the file is that a process of this machine has mapped, or had: as the process sees it; once that has ended, under the same
/// name here, if it is the same file.
fn mapped_file(pid: u32, path: &str, id: &FileId) -> PathBuf {
    let root = Path::new("/proc").join(pid.to_string()).join("root");
    let here = Path::new(path);
    let same = |file: fs::Metadata| {
        *id == FileId::Inode(file.dev(), file.ino())
            // Of some file systems (Btrfs, overlays) the kernel's list of mappings has another device than stat(2).
            || sideband::mounted_device(here).is_some_and(|device| *id == FileId::Inode(device, file.ino()))
    };
    if !root.exists() && fs::metadata(here).is_ok_and(same) {
        return here.to_owned();
    }
    root.join(path.trim_start_matches('/'))
}

/// The TSC at a time of CLOCK_MONOTONIC_RAW near `now`.
fn tsc_at(monotonic_raw_ns: u64, now: ClockPair, tsc_khz: u32) -> u64 {
    let ns = i128::from(monotonic_raw_ns) - i128::from(now.monotonic_raw_ns);
    let ticks = ns * i128::from(tsc_khz) / 1_000_000;
    u64::try_from(i128::from(now.tsc) + ticks).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: ClockPair = ClockPair { tsc: 1_000_000, monotonic_raw_ns: 500_000, realtime_ns: 0 };

    fn entry(pid: u32, tid: u32, change: Change) -> Entry {
        Entry { monotonic_raw_ns: 499_000, pid, tid, change }
    }

    fn threads(entries: impl IntoIterator<Item = Entry>) -> Vec<(u32, ThreadChange, String, Option<u32>)> {
        let mut rows = SidebandRows::default();
        let rows = entries.into_iter().filter_map(|entry| rows.row(entry, NOW, 2_000_000));
        rows.map(|row| match row {
            SidebandRow::Thread(row) => {
                (row.tid, ThreadChange::from_number(row.what).unwrap(), row.name, row.parent_pid)
            }
            SidebandRow::Map(row) => panic!("{row:?}"),
        })
        .collect()
    }

    #[test]
    fn times_are_converted() {
        assert_eq!(tsc_at(499_000, NOW, 2_000_000), 998_000);
        assert_eq!(tsc_at(501_000, NOW, 2_000_000), 1_002_000);
        assert_eq!(tsc_at(0, NOW, 4_000_000_000), 0, "before the counter began");
    }

    #[test]
    fn a_thread_has_its_creators_name_until_it_gets_its_own() {
        let name = |name: &str, exec| Change::Name { name: name.into(), exec };
        let fork = |parent| Change::Fork { parent_pid: parent, parent_tid: 1 };
        let rows = threads([
            entry(1, 1, name("server", false)),
            entry(1, 2, fork(1)),
            entry(1, 2, name("worker", false)),
            entry(3, 3, fork(1)),
            entry(3, 3, name("ls", true)),
            entry(3, 3, Change::Exit),
        ]);
        let expected = [
            (1, ThreadChange::Start, "server", None),
            (2, ThreadChange::Start, "server", None),
            (2, ThreadChange::Rename, "worker", None),
            (3, ThreadChange::Fork, "server", Some(1)),
            (3, ThreadChange::Exec, "ls", None),
            (3, ThreadChange::Exit, "ls", None),
        ];
        assert_eq!(rows, expected.map(|(tid, what, name, parent)| (tid, what, name.to_owned(), parent)));
    }

    #[test]
    fn losses_are_counted_and_no_row() {
        let mut rows = SidebandRows::default();
        assert_eq!(rows.row(entry(1, 1, Change::Lost(4)), NOW, 1), None);
        assert_eq!(rows.lost, 4);
    }

    #[test]
    fn the_file_of_a_process_that_has_ended_is_known_by_its_inode() {
        let own = std::env::current_exe().unwrap();
        let (file, path) = (fs::metadata(&own).unwrap(), own.to_str().unwrap());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let found = |id| build_id(&mapped_file(child.id(), path, &id));
        assert_eq!(found(FileId::Inode(file.dev(), file.ino())), build_id(&own));
        assert_eq!(found(FileId::Inode(file.dev(), file.ino() + 1)), None, "another file has its name now");
        assert_eq!(found(FileId::Untold), None);
        assert_eq!(
            mapped_file(std::process::id(), path, &FileId::Untold),
            Path::new("/proc").join(std::process::id().to_string()).join("root").join(&path[1..])
        );
    }

    #[test]
    fn only_files_have_build_ids() {
        let mapping =
            |path: &str| Mapping { end: 1, path: path.into(), executable: true, ..Mapping::default() };
        let mut rows = SidebandRows::of_living_processes();
        let own = std::env::current_exe().unwrap();
        let mut id = |path: &str| rows.map(0, std::process::id(), mapping(path)).build_id;
        assert_eq!(id(own.to_str().unwrap()), build_id(&own));
        assert_eq!(id("//anon"), None);
        assert_eq!(id("[vdso]"), None);
        let told = Mapping { file: FileId::BuildId(vec![7; 20]), ..mapping("/replaced") };
        assert_eq!(rows.map(0, 1, told).build_id, Some(vec![7; 20]), "as the kernel read it");
        assert_eq!(
            rows.map(0, std::process::id(), mapping("/replaced")).build_id,
            None,
            "not of another file"
        );
    }

    #[test]
    fn files_of_one_name_have_their_own_build_ids() {
        let own = std::env::current_exe().unwrap();
        let path = own.to_str().unwrap();
        let here = |file| Mapping { end: 1, path: path.into(), executable: true, file, ..Mapping::default() };
        let mut rows = SidebandRows::of_living_processes();
        let told = here(FileId::BuildId(vec![7; 20]));
        assert_eq!(rows.map(0, 1, told).build_id, Some(vec![7; 20]), "in a container");
        let read = build_id(&own);
        assert_eq!(rows.map(0, std::process::id(), here(FileId::Untold)).build_id, read);
        // A process that has ended leaves no way to the file, of which another one tells.
        assert_eq!(rows.map(0, u32::MAX, here(FileId::Inode(1, 2))).build_id, None);
        assert_eq!(rows.map(0, std::process::id(), here(FileId::Inode(1, 2))).build_id, read);
        // Once read it is known; another file under that name is not it.
        assert_eq!(rows.map(0, u32::MAX, here(FileId::Inode(1, 2))).build_id, read);
        assert_eq!(rows.map(0, u32::MAX, here(FileId::Inode(1, 3))).build_id, None);
        // Of a recorded file the last that was told holds for the name.
        let mut recorded = SidebandRows::default();
        recorded.set_build_id(path, &[5; 20]);
        assert_eq!(recorded.map(0, 1, here(FileId::Untold)).build_id, Some(vec![5; 20]));
    }
}
