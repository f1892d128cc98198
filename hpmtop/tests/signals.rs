//! What prints without a terminal ends when it is told to: its recording is whole, and the program that it ran has ended.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libhpm::trace::TraceReader;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longest time until something comes about.
const PATIENCE: Duration = Duration::from_secs(20);

fn hpmtop(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmtop"));
    command.env("XDG_CONFIG_HOME", folder).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what} does not come about");
        sleep(Duration::from_millis(20));
    }
}

/// Whether it ends well after the signal.
fn ends_by(signal: Signal, child: &mut Child) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{signal}: {status}");
            return;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{signal} does not end it");
        }
        sleep(Duration::from_millis(20));
    }
}

/// Whether a process blocks a signal, and so has begun to listen for it.
fn blocks(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal as i32 - 1)) != 0
}

#[test]
fn a_replay_without_a_terminal_ends_when_told_to() {
    let temp = tempfile::tempdir().unwrap();
    let trace = temp.path().join("made.hpm");
    hpmtop::synthetic::write_trace(&trace).unwrap();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let mut command = hpmtop(temp.path());
        command.arg("--replay").arg(&trace).args(["--once", "--keys", "wait=600000"]);
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        // Only a taken terminal has to be given back before a stop. A process that has yet to become hpmtop blocks them all.
        wait_for("listening", || blocks(pid, signal) && !blocks(pid, Signal::SIGTSTP));
        ends_by(signal, &mut child);
    }
}

/// Also when the signal comes while the trace is made, or nobody listens yet.
#[test]
fn what_was_made_of_a_file_of_perf_record_goes_with_a_signal() {
    let temp = tempfile::tempdir().unwrap();
    let for_now = temp.path().join("tmp");
    fs::create_dir(&for_now).unwrap();
    let entries = || fs::read_dir(&for_now).unwrap().count();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../libhpm/tests/data/perf/plain.data");
    for patience in [0, 200] {
        let mut command = hpmtop(temp.path());
        command.args(["--replay", file, "--once", "--keys", "wait=600000"]).env("TMPDIR", &for_now);
        let mut child = command.spawn().unwrap();
        wait_for("a folder for now", || entries() > 0);
        sleep(Duration::from_millis(patience));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        wait_for("the end", || child.try_wait().unwrap().is_some());
        assert_eq!(entries(), 0, "after {patience} ms");
    }
}

#[test]
fn a_recording_is_finished_and_the_program_ended() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let (trace, pid) = (temp.path().join("live.hpm"), temp.path().join("pid"));
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; while :; do :; done", pid.display());
    let mut command = hpmtop(temp.path());
    command.args(["--source", "perf", "-e", "cpu-clock:u", "--batch", "--record"]).arg(&trace);
    let mut child = command.args(["--", "sh", "-c", &script]).spawn().unwrap();
    wait_for("the program", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        pid.exists() && trace.join("meta.json").exists()
    });
    ends_by(Signal::SIGINT, &mut child);
    let program = fs::read_to_string(&pid).unwrap();
    assert!(!Path::new("/proc").join(program.trim()).exists(), "the program is ended");
    assert!(TraceReader::open(&trace).unwrap().meta().complete);
}
