//! Recordings that end after a time, and those that are started, stopped and dumped from outside.

mod common;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use libhpm::sys::clock::ClockPair;
use libhpm::trace::{QuantumRow, SampleRow, TraceReader};

use self::common::said;

fn hpmctl(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
    command.args(arguments).current_dir(folder);
    command
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
    assert!(lines.by_ref().any(|line| line.contains("hpmctl control start|stop|dump|end|rate")));
    let pid = recorder.id().to_string();
    let ask =
        |request: &str| -> Output { hpmctl(folder.path(), &["control", request, &pid]).output().unwrap() };
    let refused = hpmctl(folder.path(), &["control", "rate", &pid, "2000"]).output().unwrap();
    assert!(!refused.status.success() && said(&refused.stderr).contains("only the module"), "{refused:?}");
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

#[test]
fn with_a_delay_nothing_before_its_end_is_written_and_a_duration_counts_from_there() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    const DELAY_NS: u64 = 300_000_000;
    let folder = tempfile::tempdir().unwrap();
    let begin = ["record", "--source", "perf", "-e", "cpu-clock:u", "-o", "a.hpm"];
    let options =
        ["--delay", "300ms", "--duration", "500ms", "timeout", "2", "sh", "-c", "while :; do :; done"];
    let before = ClockPair::now().monotonic_raw_ns;
    let output = hpmctl(folder.path(), &[&begin[..], &options].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "that of timeout: {}", said(&output.stderr));
    let reader = TraceReader::open(folder.path().join("a.hpm")).unwrap();
    let samples: Vec<u64> = reader.rows::<SampleRow>().map(|row| row.tsc).collect();
    let (first, last) =
        (samples.iter().min().expect("samples after the delay"), samples.iter().max().unwrap());
    // The clock of the samples is another one than that of the delay, and may go a little slower.
    assert!(*first >= before + DELAY_NS / 100 * 99, "{} ns after the beginning", first - before);
    assert!(last - first < 1_200_000_000, "not until the program's end, {} ns", last - first);
    // The one that ran then is there as a whole.
    assert!(reader.rows::<QuantumRow>().all(|row| row.end_tsc >= before + DELAY_NS / 100 * 99));
    assert!(reader.meta().complete);
}

#[test]
fn who_asks_decides_instead_of_the_delay_and_the_duration_counts_from_then() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    // Longer than the delay less the duration: the latter must not count from the beginning.
    let wait = Duration::from_millis(1500);
    for (request, written, wait) in [("start", true, wait), ("stop", false, Duration::ZERO)] {
        let folder = tempfile::tempdir().unwrap();
        let begin = ["record", "--source", "perf", "-e", "cpu-clock:u", "-o", "a.hpm", "--control"];
        let rest =
            ["--delay", "2s", "--duration", "600ms", "timeout", "4", "sh", "-c", "while :; do :; done"];
        let mut recorder =
            hpmctl(folder.path(), &[&begin[..], &rest].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(recorder.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.by_ref().any(|line| line.contains("hpmctl control start|stop|dump|end|rate")));
        std::thread::sleep(wait);
        let pid = recorder.id().to_string();
        assert!(hpmctl(folder.path(), &["control", request, &pid]).output().unwrap().status.success());
        let told: Vec<String> = lines.collect();
        assert_eq!(recorder.wait().unwrap().code(), Some(124), "that of timeout: {told:?}");
        assert!(!told.iter().any(|line| line.contains("nothing was written")), "{told:?}");
        let reader = TraceReader::open(folder.path().join("a.hpm")).unwrap();
        let samples: Vec<u64> = reader.rows::<SampleRow>().map(|row| row.tsc).collect();
        assert_eq!(!samples.is_empty(), written, "after {request}: {told:?}");
        if let (Some(first), Some(last)) = (samples.iter().min(), samples.iter().max()) {
            assert!(last - first > 400_000_000, "{} ns of 600 ms", last - first);
        }
    }
}

#[test]
fn what_ended_before_its_delay_is_said_to_have() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = hpmctl(
        folder.path(),
        &["record", "--source", "perf", "-e", "cpu-clock:u", "-o", "a.hpm", "--delay", "10m", "true"],
    )
    .output()
    .unwrap();
    let words = "nothing was written: the recording ended before its delay of 600s was over";
    assert!(output.status.success() && said(&output.stderr).contains(words), "{}", said(&output.stderr));
}
