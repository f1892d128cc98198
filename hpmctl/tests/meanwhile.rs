//! What is there already is measured while a program runs, whose exit status is passed on.

mod common;

use std::process::{Child, Command, Output};

use serde_json::Value;

use self::common::said;

/// What it came to; `None` where neither the driver nor perf_event measures.
fn hpmctl(arguments: &[&str]) -> Option<Output> {
    let measures = std::path::Path::new("/dev/hpm").exists() || libhpm::source::perf::software().is_ok();
    measures.then(|| Command::new(env!("CARGO_BIN_EXE_hpmctl")).args(arguments).output().unwrap())
}

/// Works until it is killed.
fn busy() -> Child {
    Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap()
}

#[test]
fn a_process_is_measured_and_not_the_program_that_runs_meanwhile() {
    let mut process = busy();
    let pid = process.id().to_string();
    let output = hpmctl(&["stat", "--json", "-p", &pid, "sh", "-c", "sleep 0.5; exit 3"]);
    process.kill().unwrap();
    process.wait().unwrap();
    let Some(output) = output else { return };
    assert_eq!(output.status.code(), Some(3), "{}", said(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(told["target"], format!("PID {pid} while `sh -c sleep 0.5; exit 3` ran"));
    assert_eq!(told["exit_status"], 3);
    assert!(told["user_ns"].is_null(), "the program's own time is none of the process's: {told}");
    let on_cpu = told["on_cpu_ns"].as_u64().unwrap();
    assert!(on_cpu > 50_000_000, "the program slept, the process did not: {told}");
}

#[test]
fn a_process_that_ends_first_ends_the_measurement_but_not_the_program() {
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let (done, trace) = (folder.path().join("done"), folder.path().join("trace"));
    let script = "kill \"$1\"; sleep 1; touch \"$0\"; exit 4";
    let output = hpmctl(&[
        "record",
        "-o",
        trace.to_str().unwrap(),
        "-p",
        &pid,
        "sh",
        "-c",
        script,
        done.to_str().unwrap(),
        &pid,
    ]);
    // The program has done so unless it never began.
    process.kill().unwrap();
    process.wait().unwrap();
    let Some(output) = output else { return };
    assert_eq!(output.status.code(), Some(4), "{}", said(&output.stderr));
    assert!(done.exists());
    let meta: Value = serde_json::from_slice(&std::fs::read(trace.join("meta.json")).unwrap()).unwrap();
    assert_eq!((&meta["command"][0], &meta["subject"]), (&"sleep".into(), &Value::Null));
    assert_eq!(meta["complete"], true);
}

#[test]
fn a_program_that_cannot_be_run_meanwhile_is_refused() {
    let mut process = busy();
    let output = hpmctl(&["stat", "-p", &process.id().to_string(), "./no/such/program"]);
    process.kill().unwrap();
    process.wait().unwrap();
    let Some(output) = output else { return };
    assert_eq!(output.status.code(), Some(127), "as a shell has it");
    assert!(said(&output.stderr).contains("./no/such/program"), "{}", said(&output.stderr));
}
