//! Who is likely to hold the performance counters. The kernel keeps no record of it (its reservation is a bitmap without
//! holders), so this names whoever could.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

/// A process with descriptors of some kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// PID.
    pub pid: u32,
    /// Name (`comm`).
    pub name: String,
    /// How many of them it has open. Not all perf_event descriptors need be hardware events.
    pub descriptors: usize,
}

/// Likely holders of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holders {
    /// The kernel's NMI watchdog is on; it counts cycles on every CPU.
    pub watchdog: bool,
    /// Processes with perf_event descriptors, this one left out. Without privilege, only those of the same user are seen.
    pub processes: Vec<Holder>,
}

impl Holders {
    /// Looks below `root`, which is `/` but in tests.
    #[must_use]
    pub fn find(root: &Path) -> Self {
        let watchdog = fs::read_to_string(root.join("proc/sys/kernel/nmi_watchdog"))
            .is_ok_and(|text| text.trim() == "1");
        let processes = processes_with(root, Path::new("anon_inode:[perf_event]"));
        Self { watchdog, processes }
    }

    /// Whether nobody was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.watchdog && self.processes.is_empty()
    }
}

/// Processes that have the driver's device open, by PID, this one left out. Without privilege, only those of the same user
/// are seen.
#[must_use]
pub fn driver_users() -> Vec<Holder> {
    processes_with(Path::new("/"), Path::new(hpm_abi::DEVICE_PATH))
}

/// Processes with descriptors whose link in `/proc` reads `target`, by PID, this one left out.
fn processes_with(root: &Path, target: &Path) -> Vec<Holder> {
    let own = std::process::id();
    let pids = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let mut processes: Vec<Holder> = pids
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own)
        .filter_map(|pid| holder(root, pid, target))
        .collect();
    processes.sort_by_key(|holder| holder.pid);
    processes
}

/// The process, if it has such descriptors. One that ends meanwhile, or may not be looked at, has none.
fn holder(root: &Path, pid: u32, target: &Path) -> Option<Holder> {
    let process = root.join(format!("proc/{pid}"));
    let is_one = |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|link| link == target);
    let descriptors = fs::read_dir(process.join("fd")).ok()?.flatten().filter(is_one).count();
    let name = || {
        fs::read_to_string(process.join("comm"))
            .map_or_else(|_| "?".into(), |comm| comm.trim_end().to_owned())
    };
    (descriptors > 0).then(|| Holder { pid, name: name(), descriptors })
}

impl fmt::Display for Holders {
    /// What to do about them, as the second half of a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str(
                "no likely holder was found; run `hpmctl doctor` as root to look at every process, and stop virtual \
                 machines that use the PMU",
            );
        }
        if self.watchdog {
            f.write_str("probably the kernel's NMI watchdog, which `sysctl kernel.nmi_watchdog=0` stops")?;
        }
        if !self.processes.is_empty() {
            let list: Vec<String> =
                self.processes.iter().map(|holder| format!("{} (PID {})", holder.name, holder.pid)).collect();
            let start = if self.watchdog { ", or" } else { "probably" };
            write!(
                f,
                "{start} a process with perf_event descriptors, which would have to end: {}",
                list.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn root(watchdog: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        fs::create_dir_all(proc.join("sys/kernel")).unwrap();
        fs::write(proc.join("sys/kernel/nmi_watchdog"), watchdog).unwrap();
        for (pid, name, links) in
            [(7, "perf", &["anon_inode:[perf_event]", "/dev/null"][..]), (8, "sh", &["/dev/tty"])]
        {
            let process = proc.join(pid.to_string());
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::write(process.join("comm"), format!("{name}\n")).unwrap();
            for (fd, target) in links.iter().enumerate() {
                symlink(target, process.join("fd").join(fd.to_string())).unwrap();
            }
        }
        root
    }

    #[test]
    fn only_processes_with_perf_event_descriptors_are_holders() {
        let root = root("0\n");
        let holders = Holders::find(root.path());
        assert_eq!(holders.processes, [Holder { pid: 7, name: "perf".into(), descriptors: 1 }]);
        assert!(!holders.watchdog);
        let on_terminal = processes_with(root.path(), Path::new("/dev/tty"));
        assert_eq!(on_terminal, [Holder { pid: 8, name: "sh".into(), descriptors: 1 }]);
        assert_eq!(
            holders.to_string(),
            "probably a process with perf_event descriptors, which would have to end: perf (PID 7)"
        );
    }

    #[test]
    fn the_watchdog_is_named_first() {
        let root = root("1\n");
        let text = Holders::find(root.path()).to_string();
        assert!(text.starts_with(
            "probably the kernel's NMI watchdog, which `sysctl kernel.nmi_watchdog=0` stops, or a"
        ));
    }
}
