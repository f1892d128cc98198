//! Files of `perf record` are read as traces are; the trace that is made of one for now leaves nothing behind.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../libhpm/tests/data/perf").join(name)
}

/// Runs hpmctl with a folder for temporary files of its own, in which nothing may be left.
fn hpmctl(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
    let output = command.args(arguments).env("TMPDIR", folder.path()).output().unwrap();
    assert!(is_empty(folder.path()), "{arguments:?} left something behind");
    output
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_file_is_explored_but_keeps_no_definitions() {
    let path = file("plain.data");
    let path = path.to_str().unwrap();
    let output = hpmctl(&["explore", path]);
    assert!(output.status.success(), "{}", said(&output));
    let output = hpmctl(&["explore", "--save", "-d", "a=cpu", path]);
    let text = said(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("is a file, and --save keeps definitions in a trace's folder"), "{text}");
}

#[test]
fn a_signal_leaves_no_trace_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (temporary, pipe) = (folder.path().join("tmp"), folder.path().join("pipe"));
    fs::create_dir(&temporary).unwrap();
    // Nobody reads it, so that hpmctl waits with the trace made.
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_hpmctl")])
        .args(["export", "-f", "csv", "--table", "maps", "-o", pipe.to_str().unwrap()])
        .arg(file("plain.data"))
        .env("TMPDIR", &temporary)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| is_whole(&temporary));
    let send = |signal| kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    send(Signal::SIGHUP);
    sleep(Duration::from_millis(200));
    assert!(is_whole(&temporary), "a signal that it was started to ignore does nothing");
    send(Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    assert!(is_empty(&temporary), "the trace is left behind");
}

#[test]
fn a_signal_ends_a_replay_and_what_was_replayed_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (temporary, result) = (folder.path().join("tmp"), folder.path().join("result"));
    fs::create_dir(&temporary).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_hpmctl"))
        .args(["stat", "--speed", "0.01", "-I", "10", "-o", result.to_str().unwrap(), "--trace"])
        .arg(file("plain.data"))
        .env("TMPDIR", &temporary)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // An interval shows that it has begun.
    wait_until(|| fs::read_to_string(&result).is_ok_and(|text| !text.is_empty()));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fs::read_to_string(&result).unwrap().contains("Counts of the trace"));
    assert!(is_empty(&temporary), "the trace is left behind");
}

fn wait_until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        sleep(Duration::from_millis(20));
    }
}

/// Whether a trace was made in a folder below.
fn is_whole(temporary: &Path) -> bool {
    let made = fs::read_dir(temporary).unwrap().flatten().next();
    let meta = made.map(|made| made.path().join("plain.data.hpm/meta.json"));
    meta.and_then(|meta| fs::read_to_string(meta).ok())
        .is_some_and(|meta| meta.contains("\"complete\": true"))
}
