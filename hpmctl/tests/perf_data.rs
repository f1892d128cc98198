//! Files of `perf record` are read as traces are; the trace that is made of one for now leaves nothing behind.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::common::said;

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

#[test]
fn a_file_is_explored_but_keeps_no_definitions() {
    let path = file("plain.data");
    let path = path.to_str().unwrap();
    let output = hpmctl(&["explore", path]);
    assert!(output.status.success(), "{}", said(&output.stderr));
    let output = hpmctl(&["explore", "--save", "-d", "a=cpu", path]);
    let text = said(&output.stderr);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("is a file, and --save keeps definitions in a trace's folder"), "{text}");
}

#[test]
fn its_quanta_are_counted_in_the_time_of_the_recording() {
    let path = file("plain.data");
    let output = hpmctl(&["stat", "--json", "--trace", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", said(&output.stderr));
    let counted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let (elapsed, on_cpu) = (number(&counted["elapsed_ns"]), number(&counted["on_cpu_ns"]));
    assert!((60_000_000..200_000_000).contains(&elapsed) && on_cpu <= elapsed, "{counted}");
    assert_eq!(number(&counted["events"][0]["count"]), on_cpu, "a clock counts it");
    assert_eq!(counted["source"], format!("the trace {}", path.display()));
    assert!(counted["warnings"].to_string().contains("are approximated"), "{counted}");
    let none = file("two.data");
    let output = hpmctl(&["stat", "--trace", none.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output.stderr).contains("holds no quantum whose counts could be shown"),
        "{}",
        said(&output.stderr)
    );
}

#[test]
fn a_file_that_is_cut_off_is_not_called_whole() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.data");
    // The header says where the records begin, and how long they are.
    let whole = fs::read(file("plain.data")).unwrap();
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    fs::write(&cut, &whole[..word(40) + word(48) / 2]).unwrap();
    let output = hpmctl(&["verify", cut.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("problem: the file is cut off"), "{text}");
    let info = hpmctl(&["info", cut.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(text.contains("missing   the file is cut off") && text.contains("damaged: see"), "{text}");
    fs::write(&cut, b"").unwrap();
    let empty = hpmctl(&["info", cut.to_str().unwrap()]);
    assert!(said(&empty.stderr).contains("or a file of `perf record`"), "{}", said(&empty.stderr));
}

#[test]
fn files_whose_clocks_stand_alone_are_not_merged() {
    let (one, other) = (file("plain.data"), file("two.data"));
    let folder = tempfile::tempdir().unwrap();
    let merged = folder.path().join("m.hpm");
    let merged = merged.to_str().unwrap();
    let output = hpmctl(&["merge", "-o", merged, one.to_str().unwrap(), other.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output.stderr));
    let told = format!("{} does not say how its clock stands", one.display());
    assert!(said(&output.stderr).contains(&told), "{}", said(&output.stderr));
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
