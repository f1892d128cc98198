//! `hpmtop --cgroup` shows the threads of a control group, and nobody else's. It needs root and control groups, and says so where it
//! has not got them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

const BUSY: &str = "while :; do :; done";
/// Intervals in which somebody who joins has to be seen.
const INTERVALS: usize = 40;

/// Where the hierarchy of control groups is mounted by which perf_event measures, and whether that was done here.
struct Hierarchy {
    folder: PathBuf,
    mounted: bool,
}

impl Hierarchy {
    /// The second version's, unless perf_event has one of its own, of the first version; that is mounted if nobody has.
    fn find(temp: &Path) -> Result<Self, String> {
        let controllers = fs::read_to_string("/proc/cgroups").unwrap_or_default();
        let number =
            controllers.lines().find_map(|line| line.strip_prefix("perf_event\t")?.split('\t').next());
        let number = number.ok_or("the kernel has no control groups for perf_event")?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let is_it = |line: &&str| {
            if number == "0" {
                line.contains(" - cgroup2 ")
            } else {
                line.contains(" - cgroup ") && line.ends_with("perf_event")
            }
        };
        if let Some(folder) = mounts.lines().find(is_it).and_then(|line| line.split(' ').nth(4)) {
            return Ok(Self { folder: folder.into(), mounted: false });
        }
        let folder = temp.join("cgroups");
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let options: &[&str] =
            if number == "0" { &["-t", "cgroup2"] } else { &["-t", "cgroup", "-o", "perf_event"] };
        let mount = Command::new("mount").args(options).arg("none").arg(&folder).output();
        match mount {
            Ok(done) if done.status.success() => Ok(Self { folder, mounted: true }),
            Ok(done) => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
            Err(error) => Err(format!("mount: {error}")),
        }
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(&self.folder).status();
        }
    }
}

/// A control group that is taken away again.
struct Group(PathBuf);

impl Group {
    /// A new one.
    fn new(hierarchy: &Hierarchy) -> Result<Self, String> {
        let folder = hierarchy.folder.join(format!("hpmtop-test-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    fn members(&self) -> BTreeSet<u64> {
        let text = fs::read_to_string(self.procs()).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for pid in self.members() {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), nix::sys::signal::SIGKILL);
        }
        // Who was killed is gone a moment later.
        let begun = Instant::now();
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < Duration::from_secs(5) {
            sleep(Duration::from_millis(10));
        }
    }
}

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shell(script: &str) -> Running {
    Running(Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap())
}

/// The processes of the rows that `--format json` printed, with whether they ran.
fn rows(line: &str) -> Vec<(u64, bool)> {
    let told: Value = serde_json::from_str(line).unwrap();
    let row = |row: &Value| (row["pid"].as_u64().unwrap(), row["cpu%"].as_f64().unwrap() > 0.0);
    told["rows"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn only_the_threads_of_the_control_group_are_shown() {
    let temp = tempfile::tempdir().unwrap();
    let found = Hierarchy::find(temp.path());
    // Dropped in the other order: the group is taken away before its hierarchy.
    let group = match found.as_ref().map_err(Clone::clone).and_then(Group::new) {
        Ok(group) => group,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let (procs, flag) = (group.procs(), temp.path().join("join"));
    let (procs, flag_path) = (procs.display(), flag.display());
    // Two processes inside, one outside, and one that joins once it is told to.
    let _inside = shell(&format!("echo $$ > {procs}; ({BUSY}) & {BUSY}"));
    let outside = shell(BUSY);
    let joins = shell(&format!("while [ ! -e {flag_path} ]; do :; done; echo $$ > {procs}; {BUSY}"));
    let begun = Instant::now();
    while group.members().len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the processes do not start");
        sleep(Duration::from_millis(10));
    }
    let members = group.members();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmtop"));
    command.args(["--source", "perf", "-e", "cpu-clock", "--interval", "200", "--format", "json"]);
    command.arg(format!("--batch={INTERVALS}")).arg("--cgroup").arg(&group.0);
    command.env("XDG_CONFIG_HOME", temp.path()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut hpmtop = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(hpmtop.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first = rows(&lines.next().expect("perf_event is not refused to root"));
    let pids = |rows: &[(u64, bool)]| rows.iter().map(|(pid, _)| *pid).collect::<BTreeSet<u64>>();
    assert_eq!(pids(&first), members, "the group's processes and no others");
    assert!(first.iter().any(|(_, ran)| *ran), "they run all the time: {first:?}");
    fs::write(&flag, "").unwrap();
    let joined = u64::from(joins.0.id());
    let seen = lines.map(|line| rows(&line)).find(|rows| rows.contains(&(joined, true)));
    let seen = seen.expect("who joins the group is seen to run");
    assert!(pids(&seen).is_superset(&members) && !pids(&seen).contains(&u64::from(outside.0.id())));
}
