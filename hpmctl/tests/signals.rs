//! Programs that a signal ends, and measurements that one does.

mod common;

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::common::said;

fn hpmctl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
    command.args(arguments);
    command
}

/// Whether anything measures here.
fn measures() -> bool {
    std::path::Path::new("/dev/hpm").exists() || libhpm::source::perf::software().is_ok()
}

const FAULT: [&str; 3] = ["sh", "-c", "kill -SEGV $$"];

#[test]
fn the_signal_that_ended_a_program_is_told() {
    if !measures() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    for before in [&["stat", "--"][..], &["record", "-o", trace.to_str().unwrap(), "--"]] {
        let output = hpmctl(&[before, &FAULT].concat()).output().unwrap();
        let said = said(&output.stderr);
        assert_eq!(output.status.code(), Some(139), "{said}");
        assert!(
            said.ends_with("hpmctl: the program was ended by SIGSEGV (segmentation fault)\n"),
            "{before:?}: {said}"
        );
    }
    let output = hpmctl(&["stat", "sh", "-c", "exit 139"]).output().unwrap();
    assert!(
        output.status.code() == Some(139) && !said(&output.stderr).contains("ended by"),
        "{}",
        said(&output.stderr)
    );
}

#[test]
fn a_run_that_a_signal_of_its_own_ended_is_counted_as_one_that_failed() {
    if !measures() {
        return;
    }
    let output = hpmctl(&[&["stat", "-r", "3", "--"][..], &FAULT].concat()).output().unwrap();
    let said = said(&output.stderr);
    assert_eq!(output.status.code(), Some(139), "{said}");
    assert!(said.contains("in 3 runs:"), "{said}");
    let failed = "Warning: 3 of the runs ended with a failure, by SIGSEGV (segmentation fault).\n";
    assert!(said.contains(failed) && !said.contains("came to their end"), "{said}");
}

/// What a series of five runs says that is interrupted as soon as a run has made the file `waits` in `$0`.
fn interrupted(script: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["stat", "-r", "5", "--", "sh", "-c", script, folder.path().to_str().unwrap()];
    let series = hpmctl(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    while !folder.path().join("waits").exists() {
        sleep(Duration::from_millis(20));
    }
    // Not by SIGINT, which what is started in a shell's background ignores, and these tests may be.
    kill(Pid::from_raw(series.id() as i32), Signal::SIGTERM).unwrap();
    let output = series.wait_with_output().unwrap();
    let said = said(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{said}");
    said
}

#[test]
fn a_series_that_is_interrupted_has_no_failed_run() {
    if !measures() {
        return;
    }
    assert_eq!(
        interrupted("touch \"$0/waits\"; exec sleep 60"),
        "hpmctl: a signal ended the run before anything was counted, so that there is nothing to show\n"
    );
    let second = "test -e \"$0/ran\" && { touch \"$0/waits\"; exec sleep 60; }; touch \"$0/ran\"";
    let said = interrupted(second);
    assert!(said.contains("only 1 of 5 runs came to their end"), "{said}");
    assert!(!said.contains("failure") && !said.contains("ended by"), "{said}");
}
