//! A recording that is killed leaves what it has written, up to the last whole batch.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use self::common::said;

fn hpmctl(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hpmctl")).args(arguments).output().unwrap()
}

#[test]
fn what_was_written_before_kill_9_can_be_read() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("killed.hpm");
    let name = trace.to_str().unwrap();
    // The program outlives its recorder, but not for long.
    let program = ["timeout", "10", "sh", "-c", "while :; do :; done"];
    let mut recorder = Command::new(env!("CARGO_BIN_EXE_hpmctl"))
        .args(["record", "--source", "perf", "-e", "cpu-clock:u", "-o", name, "--"])
        .args(program)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let table = trace.join("samples.arrows");
    let begun = Instant::now();
    // Begun with the columns' names, which are some KiB; the first batch comes after a second.
    let mut first = 0;
    while (first == 0 || bytes(&table) <= first) && begun.elapsed() < Duration::from_secs(20) {
        first = if first == 0 { bytes(&table) } else { first };
        assert!(recorder.try_wait().unwrap().is_none(), "the recorder ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    let growing = hpmctl(&["report", name]);
    assert!(said(&growing.stderr).contains("the recording goes on"), "{}", said(&growing.stderr));
    assert!(said(&hpmctl(&["info", name]).stdout).contains("it is being recorded"));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let verified = hpmctl(&["verify", name]);
    assert_eq!(verified.status.code(), Some(1), "{}{}", said(&verified.stdout), said(&verified.stderr));
    assert!(said(&verified.stdout).contains("did not come to its proper end; what was written is whole"));
    let info = said(&hpmctl(&["info", name]).stdout);
    assert!(info.contains("its recording was killed"), "{info}");
    let report = hpmctl(&["report", "--json", name]);
    let json: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let samples = json["summary"]["events"][0]["sampled"]["samples"].as_u64().unwrap();
    assert!(samples > 0);
    assert!(said(&report.stderr).contains("did not come to its proper end"));
}

fn bytes(file: &Path) -> u64 {
    file.metadata().map_or(0, |file| file.len())
}
