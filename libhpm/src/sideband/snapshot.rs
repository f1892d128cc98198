//! What was there before the side band began: mappings and threads from `/proc`.

use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::{Change, Entry, FileId, Mapping, now_ns, threads};

/// The names of a process's threads and its mappings, as entries of this moment. Empty when the process has ended; without
/// the mappings when this user may not read them.
#[must_use]
pub fn snapshot(pid: u32) -> Vec<Entry> {
    let now = now_ns();
    let entry = |tid, change| Entry { monotonic_raw_ns: now, pid, tid, change };
    let names = threads(pid as i32).into_iter().filter_map(|tid| {
        let comm = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
        // The line end behind it is the file's.
        let name = crate::text::name(comm.strip_suffix(b"\n").unwrap_or(&comm));
        Some(entry(tid as u32, Change::Name { name, exec: false }))
    });
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    names.chain(maps.lines().filter_map(mapping).map(|map| entry(pid, Change::Map(map)))).collect()
}

/// The PIDs of all processes.
#[must_use]
pub fn processes() -> Vec<u32> {
    let entries = fs::read_dir(Path::new("/proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A line of `/proc/PID/maps` (proc_pid_maps(5)): `start-end perms offset device inode   path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail.trim_start();
        word
    };
    let (start, end) = word().split_once('-')?;
    let (permissions, offset, device, inode) = (word(), word(), word(), word());
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        file_offset: hex(offset)?,
        // As perf_event calls memory without a file.
        path: if rest.is_empty() { "//anon".into() } else { rest.to_owned() },
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        file: file(device, inode).unwrap_or_default(),
    })
}

/// Which file it is; `None` where there is none.
fn file(device: &str, inode: &str) -> Option<FileId> {
    let (major, minor) = device.split_once(':')?;
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let inode: u64 = inode.parse().ok().filter(|inode| *inode != 0)?;
    Some(FileId::Inode(libc::makedev(hex(major)?, hex(minor)?), inode))
}

/// The device of the file system that a file is on, as the kernel's lists of mappings have it (proc_pid_mountinfo(5)).
pub(crate) fn mounted_device(path: &Path) -> Option<u64> {
    // O_PATH neither waits nor needs a right to the file.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    let opened = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = opened.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut fields = mounts.lines().map(|line| line.split(' '));
    let device = fields.find_map(|mut fields| (fields.next()? == mount).then(|| fields.nth(1)).flatten())?;
    let (major, minor) = device.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = "7f0010-7f0020 r-xp 00001000 fe:00 1234                       /usr/lib/a file.so";
        let expected = Mapping {
            start: 0x7f_0010,
            end: 0x7f_0020,
            file_offset: 0x1000,
            path: "/usr/lib/a file.so".into(),
            executable: true,
            file: FileId::Inode(libc::makedev(0xfe, 0), 1234),
        };
        assert_eq!(mapping(line), Some(expected));
        let anonymous = mapping("1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.path.as_str(), anonymous.executable), ("//anon", false));
        assert_eq!(anonymous.file, FileId::Untold);
        assert_eq!(mapping("nonsense"), None);
    }

    #[test]
    fn the_device_of_a_mount_is_that_of_mappings() {
        let program = std::env::current_exe().unwrap();
        let mapped = snapshot(std::process::id()).into_iter().find_map(|entry| match entry.change {
            Change::Map(map) if Path::new(&map.path) == program => Some(map.file),
            _ => None,
        });
        let FileId::Inode(device, _) = mapped.unwrap() else { panic!("no inode") };
        assert_eq!(mounted_device(&program), Some(device));
        assert_eq!(mounted_device(Path::new("/nonexistent")), None);
    }

    #[test]
    fn this_process_has_its_own_code_and_thread_names() {
        let entries = snapshot(std::process::id());
        let code = snapshot as *const () as u64;
        assert!(entries.iter().any(|entry| {
            matches!(&entry.change, Change::Map(map) if map.executable && (map.start..map.end).contains(&code))
        }));
        assert!(entries.iter().any(|entry| matches!(entry.change, Change::Name { .. })));
        assert!(processes().contains(&std::process::id()));
    }
}
