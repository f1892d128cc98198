//! Recordings that end after a time, and those that are started, stopped and dumped from outside.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use libhpm::trace::{QuantumRow, SampleRow, TraceReader};

fn hpmctl(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
    command.args(arguments).current_dir(folder);
    command
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_outlives_its_recording_and_its_status_is_passed_on() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let begin = ["record", "--source", "perf", "-e", "cpu-clock:u", "-o", "a.hpm", "--duration", "0.2", "--"];
    let program = ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.6; exit 4"];
    let output = hpmctl(folder.path(), &[&begin[..], &program].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", said(&output.stderr));
    let reader = TraceReader::open(folder.path().join("a.hpm")).unwrap();
    let quanta: Vec<QuantumRow> = reader.rows().collect();
    let ns = quanta.iter().map(|row| row.end_tsc).max().unwrap() - quanta[0].start_tsc;
    assert!(reader.meta().complete && (1..600_000_000).contains(&ns), "{ns} ns");
}

#[test]
fn a_recording_is_started_dumped_and_ended_from_outside() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // It outlives its recording, and if a check fails this test, but not for long.
    let mut program = Command::new("sh").args(["-c", "ulimit -t 20; while :; do :; done"]).spawn().unwrap();
    let begin =
        ["record", "--source", "perf", "-e", "cpu-clock:u", "-o", "a.hpm", "--control", "--paused", "-p"];
    let mut recorder = hpmctl(folder.path(), &[&begin[..], &[&program.id().to_string()]].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(recorder.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|line| line.contains("hpmctl control start|stop|dump|end")));
    let pid = recorder.id().to_string();
    let ask =
        |request: &str| -> Output { hpmctl(folder.path(), &["control", request, &pid]).output().unwrap() };
    for request in ["start", "dump", "stop", "end"] {
        let output = ask(request);
        assert!(output.status.success(), "{request}: {}", said(&output.stderr));
        let complete = said(&output.stdout).contains("a.hpm is complete");
        assert_eq!(complete, request == "dump", "{}", said(&output.stdout));
    }
    assert!(recorder.wait().unwrap().success());
    program.kill().unwrap();
    program.wait().unwrap();
    for name in ["a.hpm", "a-2.hpm"] {
        let reader = TraceReader::open(folder.path().join(name)).unwrap();
        assert!(reader.meta().complete, "{name}");
        let samples = reader.rows::<SampleRow>().count() as u64;
        assert_eq!(Some(&samples), reader.meta().rows.get("samples"), "{name}");
    }
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("a-2.hpm")), "{rest:?}");
    let gone = ask("start");
    assert!(!gone.status.success() && said(&gone.stderr).contains("no `hpmctl record --control`"));
}
