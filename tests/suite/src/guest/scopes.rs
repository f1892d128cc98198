//! Whom a session measures: a process or thread of an unprivileged user, one CPU, a control group; and whom it may not.

mod groups;
mod records;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hpm_abi::QuantumEnd;
use libhpm::trace::{QuantumRow, TraceReader};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

pub(crate) use self::groups::MOVED;
pub(super) use self::groups::{enter, mount_cgroups};
pub(crate) use self::records::{PERIOD, RECORDED};
pub(super) use self::records::{record, samples};
use super::GuestReport;
use super::adaptive::with_ceiling;
use super::bad_input::refused;
use super::counting::moved;
use super::processor::every_cpu;
use super::programs::{built, hpmctl, left_in, pid_of, succeed, wait_at_most};

/// The unprivileged user.
pub(super) const NOBODY: u32 = 65534;
/// Counted in user mode only: its length is the program's own.
pub(super) const EVENTS: &str = "instructions:u";
/// The window of the program that runs while the whole system is measured: the character behind the name is so many behind the digit 0.
pub(crate) const SYSTEM: &str = "loopsO";
/// How long a program may take. Granite Rapids' PEBS has the model follow every instruction (docs/pmu-model.md).
pub(super) const LIMIT: Duration = Duration::from_secs(900);
/// Offset of `e_entry` in an ELF file.
const E_ENTRY: usize = 24;

/// Runs every case; those to be compared with the truth leave a fact named by their program's window.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    open_to_nobody()?;
    counted(report, "a child of an unprivileged user", "loops1", own_child);
    counted(report, "a process of an unprivileged user", "loops2", own_process);
    report.check("another user's process is refused", others_process);
    for (what, part) in [
        ("a proof is refused once its target has executed another program", "stale_proof"),
        ("a session that is refused measures nobody for a moment", "stale_proofs"),
    ] {
        report.check(what, || {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["guest", part]).current_dir("/tmp/nobody");
            succeed(&mut as_nobody(command)).map(|_| String::new())
        });
    }
    report.check("a file of procfs with a name of the user's choice is no proof", forged_proof);
    limits(report);
    report.check("a program that is set to another user's rights is not measured", secure_exec);
    report.check("what a program ends with does not show where the next one begins", exec_hides_entry);
    report.check(
        "a thread is measured, and not whoever has its number next",
        super::identity::is_not_its_number,
    );
    counted(report, "one thread of a process", "loops3", one_thread);
    report.check("two threads of one process, each by its own session", two_threads);
    super::ends::run(report);
    counted(report, "one CPU beside another", "loops4", one_cpu);
    counted(report, "a control group", "loops5", groups::control_group);
    let mut counts = Value::Null;
    report.check("a program is moved from one measured group to the other", || {
        let (both, said) = groups::moves()?;
        counts = both;
        Ok(said)
    });
    report.fact(MOVED, counts);
    counted(report, "the whole system", SYSTEM, whole_system);
    records::run(report);
    super::reports::run(report);
    report.check("the same target twice is refused", twice);
    report.check("what is no control group is refused", || {
        refused(hpmctl(&["stat", "-e", EVENTS, "--cgroup", "/tmp"])?, "cgroup")
    });
    report.check("a CPU that is not there is refused", || {
        refused(hpmctl(&["stat", "-e", EVENTS, "-C", "77"])?, "CPU 77")
    });
    Ok(())
}

/// What asks for more than is allowed.
fn limits(report: &mut GuestReport) {
    report.check("more memory than a user may lock is refused", || {
        let hpmctl = built("hpmctl")?;
        let line = format!(
            "ulimit -l 0; exec {} record -e load:u -o /tmp/nobody/locked.hpm -- true",
            hpmctl.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &line]);
        refused(as_nobody(command), "locked memory")
    });
    report.check("more memory than the module allows a session is refused", || {
        let record = hpmctl(&["record", "-e", "load:u", "-o", "large.hpm", "--", "true"])?;
        with_ceiling("max_session_mib", 1, || refused(record, "max_session_mib"))
    });
    report.check("more sessions than the module allows are refused", || {
        with_ceiling("max_sessions", 1, one_more)
    });
}

/// Calls the only interface of a network of its own `environ` (SIOCSIFNAME), so that procfs has a file of that name.
const RENAME: &str = r#"use Socket; socket(S, AF_INET, SOCK_DGRAM, 0) or die "socket: $!";
    my $names = pack("a16a16", "lo", "environ"); ioctl(S, 0x8923, $names) or die "SIOCSIFNAME: $!"; exec @ARGV or die "exec: $!""#;

fn forged_proof() -> Result<String> {
    if !Path::new("/proc/net/dev_snmp6").exists() {
        return Ok("this kernel has no IPv6, and no such file".to_owned());
    }
    let mut command = Command::new("unshare");
    command.args(["-U", "-r", "-n", "perl", "-e", RENAME]).arg(std::env::current_exe()?);
    command.args(["guest", "forged_proof"]).current_dir("/tmp/nobody");
    succeed(&mut as_nobody(command)).map(|_| String::new())
}

/// Keeps the count of a case as a fact, and why there is none as a failed check.
fn counted(report: &mut GuestReport, case: &str, window: &str, count: impl FnOnce() -> Result<Value>) {
    let mut counts = None;
    report.check(&format!("{case} is counted"), || {
        counts = Some(count()?);
        Ok(String::new())
    });
    if let Some(counts) = counts {
        report.fact(window, counts);
    }
}

/// Everyone may open the device; perf's policy is the kernel's own default.
pub(super) fn open_to_nobody() -> Result<()> {
    fs::set_permissions("/dev/hpm", fs::Permissions::from_mode(0o666))?;
    fs::write("/proc/sys/kernel/perf_event_paranoid", "2")?;
    fs::create_dir_all("/tmp/nobody")?;
    chown("/tmp/nobody", Some(NOBODY), Some(NOBODY))?;
    Ok(())
}

fn file(name: &str) -> String {
    format!("/tmp/nobody/{name}.json")
}

/// `hpmctl stat` with these words, writing its JSON under this name.
pub(super) fn stat(name: &str, words: &[&str]) -> Result<Command> {
    let mut command = hpmctl(&["stat", "--json", "-o", &file(name), "-e", EVENTS])?;
    command.args(words).stdout(Stdio::null());
    Ok(command)
}

pub(super) fn result(name: &str) -> Result<Value> {
    left_in(&file(name))
}

fn count(name: &str) -> Result<u64> {
    result(name)?["events"][0]["count"].as_u64().with_context(|| format!("no count in {name}"))
}

pub(super) fn as_nobody(mut command: Command) -> Command {
    command.uid(NOBODY).gid(NOBODY);
    command
}

/// A process that is stopped before it becomes `loops` with so many arguments.
pub(super) fn stopped_loops(arguments: usize, user: u32) -> Result<Child> {
    let script = format!("kill -STOP $$; exec {} {}", built("loops")?.display(), "x ".repeat(arguments));
    let child = Command::new("sh").args(["-c", &script]).uid(user).gid(user).spawn()?;
    wait_for(child.id(), "State:\tT")?;
    Ok(child)
}

/// Waits until `/proc/PID/status` has a line that starts like this.
fn wait_for(pid: u32, line: &str) -> Result<()> {
    for _ in 0..10_000 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if status.lines().any(|found| found.starts_with(line)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    anyhow::bail!("process {pid} never said {line:?}")
}

pub(super) fn signal(child: &Child, signal: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(child.id() as i32), signal)?)
}

/// Waits until hpmctl holds a session that is started: it then sleeps in poll.
pub(super) fn settled(measuring: &Child) -> Result<()> {
    let device = fs::metadata("/dev/hpm")?.rdev();
    for _ in 0..10_000 {
        let open = fs::read_dir(format!("/proc/{}/fd", measuring.id()))?.flatten();
        let mut open = open.filter_map(|entry| fs::metadata(entry.path()).ok());
        let state = fs::read_to_string(format!("/proc/{}/wchan", measuring.id())).unwrap_or_default();
        if open.any(|file| file.rdev() == device) && state.contains("poll") {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    anyhow::bail!("hpmctl never waited for its target")
}

/// Measures `target` with these words from before it continues to its end.
fn attached(name: &str, command: Command, mut target: Child) -> Result<Value> {
    let mut command = command;
    let mut measuring = command.spawn()?;
    settled(&measuring)?;
    signal(&target, Signal::SIGCONT)?;
    wait_at_most(&mut target, LIMIT)?;
    ends_well(&mut measuring)?;
    result(name)
}

/// Waits for hpmctl, or what it measures, to end as it should.
pub(super) fn ends_well(child: &mut Child) -> Result<()> {
    let status = wait_at_most(child, LIMIT)?;
    ensure!(status.success(), "process {} ended with {status}", child.id());
    Ok(())
}

fn own_child() -> Result<Value> {
    let mut command = stat("own-child", &["--"])?;
    command.arg(built("loops")?);
    succeed(&mut as_nobody(command))?;
    result("own-child")
}

fn own_process() -> Result<Value> {
    let target = stopped_loops(1, NOBODY)?;
    let pid = target.id().to_string();
    attached("own-process", as_nobody(stat("own-process", &["-p", &pid])?), target)
}

fn others_process() -> Result<String> {
    let mut target = stopped_loops(1, 0)?;
    let said = refused(as_nobody(hpmctl(&["stat", "-e", EVENTS, "-p", &target.id().to_string()])?), "belong");
    target.kill()?;
    target.wait()?;
    said
}

/// nobody runs root's program: of its 11 million instructions none may be counted.
fn secure_exec() -> Result<String> {
    let program = Path::new("/tmp/nobody/secure-loops");
    fs::copy(built("loops")?, program)?;
    fs::set_permissions(program, fs::Permissions::from_mode(0o4755))?;
    let mut command = stat("secure", &["--"])?;
    command.arg(program);
    succeed(&mut as_nobody(command))?;
    let seen = count("secure")?;
    ensure!(seen < 100_000, "{seen} instructions of a set-user-ID program were counted");
    Ok(format!("{seen} instructions counted"))
}

/// A shell is measured, and becomes another program: in `execve` the kernel keeps the new one's first address where the user's instruction
/// pointer was, which is no place of the shell, and could be another user's.
fn exec_hides_entry() -> Result<String> {
    let program = built("loops")?;
    let entry = u64::from_le_bytes(fs::read(&program)?[E_ENTRY..E_ENTRY + 8].try_into()?);
    let line = format!("exec {}", program.display());
    succeed(
        hpmctl(&["record", "-e", "load:u", "-c", "10007", "-o", "exec.hpm", "--"])?.args(["sh", "-c", &line]),
    )?;
    let quanta: Vec<QuantumRow> = TraceReader::open("exec.hpm")?.rows().collect();
    let flushed: Vec<_> = quanta.iter().filter(|quantum| quantum.end == QuantumEnd::Flush as u8).collect();
    ensure!(!flushed.is_empty(), "no quantum of {} ended by execve", quanta.len());
    // Its own quanta may end there, for instance when the page is not in memory.
    let shown = flushed.iter().find(|quantum| quantum.last_ip == Some(entry));
    ensure!(shown.is_none(), "a quantum ended at {entry:#x}, where the next program begins");
    Ok(format!("{} quanta ended by a flush", flushed.len()))
}

fn one_thread() -> Result<Value> {
    let target = stopped_loops(2, 0)?;
    let tid = target.id().to_string();
    attached("one-thread", stat("one-thread", &["-t", &tid])?, target)
}

/// Of `threads 2 N`, the second thread does twice the work of the first.
fn two_threads() -> Result<String> {
    let mut target = Command::new(built("threads")?).args(["2", "60000"]).stdout(Stdio::null()).spawn()?;
    wait_for(target.id(), "Threads:\t3")?;
    signal(&target, Signal::SIGSTOP)?;
    wait_for(target.id(), "State:\tT")?;
    let mut tids: Vec<u32> = fs::read_dir(format!("/proc/{}/task", target.id()))?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    ensure!(tids.len() == 3, "the program has not three threads but {tids:?}");
    let mut first = stat("first", &["-t", &tids[1].to_string()])?.spawn()?;
    let mut second = stat("second", &["-t", &tids[2].to_string()])?.spawn()?;
    settled(&first)?;
    settled(&second)?;
    signal(&target, Signal::SIGCONT)?;
    wait_at_most(&mut target, LIMIT)?;
    for child in [&mut first, &mut second] {
        wait_at_most(child, LIMIT)?;
    }
    let (first, second) = (count("first")?, count("second")?);
    let ratio = second as f64 / first as f64;
    // They were stopped soon after they began, so that a little is missing of each.
    ensure!((1.8..2.3).contains(&ratio), "the threads' shares are {first} and {second}");
    Ok(format!("{first} and {second} instructions"))
}

/// Has the calling thread, and what it starts, run on these CPUs.
pub(super) fn pin(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)?;
    }
    Ok(sched_setaffinity(Pid::this(), &set)?)
}

/// `loops` on CPU 1 and a longer one on CPU 0, one session on each CPU: the count of CPU 1 is the fact.
fn one_cpu() -> Result<Value> {
    let mut sessions = [stat("cpu0", &["-C", "0"])?.spawn()?, stat("cpu1", &["-C", "1"])?.spawn()?];
    sessions.iter().try_for_each(settled)?;
    pin(&[0])?;
    let mut elsewhere = Command::new(built("loops")?).args(["x"; 8]).spawn()?;
    pin(&[1])?;
    let mut here = Command::new(built("loops")?).args(["x"; 3]).spawn()?;
    pin(&every_cpu()?)?;
    wait_at_most(&mut here, LIMIT)?;
    wait_at_most(&mut elsewhere, LIMIT)?;
    for session in &mut sessions {
        signal(session, Signal::SIGINT)?;
        wait_at_most(session, LIMIT)?;
    }
    result("cpu1")
}

/// On every CPU, while the program is moved between them.
fn whole_system() -> Result<Value> {
    let mut command = stat("system", &["-a", "--"])?;
    command.arg(built("loops")?).args(["x"; 30]);
    let moves = moved(command, "loops", &every_cpu()?, Duration::from_millis(20))?;
    ensure!(moves > 5, "the program was moved {moves} times");
    result("system")
}

fn one_more() -> Result<String> {
    beside_another(|_| refused(hpmctl(&["stat", "-e", EVENTS, "--", "true"])?, "max_sessions"))
}

fn twice() -> Result<String> {
    beside_another(|sleep| refused(hpmctl(&["stat", "-e", EVENTS, "-t", &sleep.to_string()])?, "excludes"))
}

/// Does something while a program of this PID is measured.
fn beside_another(action: impl FnOnce(i32) -> Result<String>) -> Result<String> {
    let mut first = hpmctl(&["stat", "-e", EVENTS, "--", "sleep", "600"])?.stderr(Stdio::null()).spawn()?;
    let sleep = pid_of("sleep")?;
    settled(&first)?;
    let said = action(sleep);
    kill(Pid::from_raw(sleep), Signal::SIGKILL)?;
    wait_at_most(&mut first, LIMIT)?;
    said
}
