//! What `/proc` says of a process, and of this one.

use std::fs;
use std::path::Path;
use std::time::Instant;

use libhpm::machine::Holders;
use libhpm::numbers::NumberSet;

use crate::model::{Cost, ProcessFacts};

/// The process with this number; `None` when it has ended.
pub(crate) fn process(pid: u32) -> Option<ProcessFacts> {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
    let stat = read("stat")?;
    let stat = String::from_utf8_lossy(&stat);
    let (parent, name) = parent_and_name(&stat)?;
    let command = read("cmdline").unwrap_or_default();
    let kernel = command.is_empty() && (parent == 2 || pid == 2);
    Some(ProcessFacts {
        pid,
        parent: (parent > 0).then_some(parent),
        name,
        command: shown(&command),
        cgroup: cgroup(&String::from_utf8_lossy(&read("cgroup").unwrap_or_default())),
        kernel,
    })
}

/// Parent and name of `/proc/PID/stat` (proc_pid_stat(5)): the name stands in brackets and may have any in it.
fn parent_and_name(stat: &str) -> Option<(u32, String)> {
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let parent = after.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some((parent, name.to_owned()))
}

/// A command line as one line: its words are separated by zero bytes.
fn shown(command: &[u8]) -> String {
    let words = String::from_utf8_lossy(command);
    let line: Vec<&str> = words.split('\0').filter(|word| !word.is_empty()).collect();
    line.join(" ").chars().map(|one| if one.is_control() { ' ' } else { one }).take(512).collect()
}

/// The path of version 2 (`0::/path`, cgroups(7)), else the last one that there is.
fn cgroup(text: &str) -> String {
    let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
    let second = text.lines().find(|line| line.starts_with("0::")).and_then(path);
    second.or_else(|| text.lines().last().and_then(path)).unwrap_or_default()
}

/// The processes of a control group and of those below it, by its directory (cgroups(7)).
pub(crate) fn members(group: &Path) -> NumberSet {
    let mut members = NumberSet::default();
    let mut folders = vec![group.to_owned()];
    while let Some(folder) = folders.pop() {
        let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        members.extend(listed.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    members
}

/// Who else seems to use performance counters: the kernel keeps no record of it.
pub(crate) fn holders() -> Vec<String> {
    let found = Holders::find(Path::new("/"));
    let watchdog = found.watchdog.then(|| "the kernel's NMI watchdog".to_owned());
    let named = found.processes.iter().map(|holder| format!("{} ({})", holder.name, holder.pid));
    watchdog.into_iter().chain(named).collect()
}

/// A moment from which on costs are counted.
pub(crate) struct Since {
    wall: Instant,
    cpu_ns: u64,
}

impl Since {
    /// From now on.
    pub(crate) fn now() -> Self {
        Self { wall: Instant::now(), cpu_ns: cpu_ns().unwrap_or(0) }
    }
}

/// CPU time of this process.
fn cpu_ns() -> Option<u64> {
    let clock = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).ok()?;
    Some(clock.tv_sec() as u64 * 1_000_000_000 + clock.tv_nsec() as u64)
}

/// What this program has cost since then.
pub(crate) fn cost(since: &Since) -> Option<Cost> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten()?;
    Some(Cost {
        cpu_ns: cpu_ns()?.saturating_sub(since.cpu_ns),
        wall_ns: since.wall.elapsed().as_nanos() as u64,
        memory: pages * page as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_brackets() {
        assert_eq!(parent_and_name("12 (a) b (c)) S 7 12"), Some((7, "a) b (c)".to_owned())));
        assert_eq!(parent_and_name("12"), None);
    }

    #[test]
    fn control_groups_of_both_versions() {
        assert_eq!(cgroup("0::/user.slice/a\n"), "/user.slice/a");
        assert_eq!(cgroup("4:cpu:/docker/1\n0::/x\n"), "/x");
        assert_eq!(cgroup("4:cpu:/docker/1\n"), "/docker/1");
        assert_eq!(cgroup(""), "");
    }

    #[test]
    fn this_process_is_known() {
        let facts = process(std::process::id()).unwrap();
        assert!(!facts.command.is_empty() && !facts.kernel);
        assert!(cost(&Since::now()).unwrap().memory > 1 << 20);
        assert_eq!(process(u32::MAX), None);
    }
}
