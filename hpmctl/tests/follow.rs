//! A trace that is being recorded is shown again and again, until it is complete.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn hpmctl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
    command.args(arguments);
    command
}

/// How many samples each of the JSON documents knows.
fn samples(output: &Output) -> Vec<u64> {
    let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    documents.map(|document| document.unwrap()["all"][0]["samples"].as_u64().unwrap()).collect()
}

#[test]
fn a_trace_is_followed_until_it_is_complete() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("growing.hpm");
    let name = trace.to_str().unwrap();
    let program = ["timeout", "4", "sh", "-c", "while :; do :; done"];
    let mut recorder = hpmctl(&["record", "--source", "perf", "-e", "cpu-clock:u", "-o", name, "--"])
        .args(program)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !trace.join("meta.json").exists() && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let followed = hpmctl(&["locality", "--follow=1", "--json", name]).output().unwrap();
    let said = String::from_utf8_lossy(&followed.stderr).into_owned();
    assert!(followed.status.success(), "{said}");
    assert!(said.contains("the recording goes on"), "{said}");
    let known = samples(&followed);
    assert!(known.len() >= 2 && known.is_sorted(), "{known:?}");
    assert_eq!(recorder.wait().unwrap().code(), Some(124), "the program's");
    let once = samples(&hpmctl(&["locality", "--json", name]).output().unwrap());
    assert_eq!(known.last(), once.last(), "the last is of the whole trace");
}
