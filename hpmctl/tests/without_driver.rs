//! The program on a machine without the driver: one clear sentence, a failing exit status, nothing left behind.

use std::path::Path;
use std::process::{Command, Output};

fn hpmctl(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_hpmctl")).args(arguments).current_dir(&folder).output().unwrap();
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{arguments:?} left something behind");
    output
}

fn driver_is_here() -> bool {
    Path::new("/dev/hpm").exists()
}

#[test]
fn measuring_says_that_the_module_is_not_loaded() {
    if driver_is_here() {
        return;
    }
    for arguments in
        [&["stat", "--", "true"][..], &["record", "-e", "load", "--", "true"], &["stat", "-p", "1"]]
    {
        let output = hpmctl(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "hpmctl: /dev/hpm does not exist: the hpm module is not loaded; load it as root with `modprobe hpm` or \
             `insmod hpm.ko`\n"
        );
    }
}

#[test]
fn doctor_names_the_obstacle_in_text_and_json() {
    if driver_is_here() {
        return;
    }
    let text = hpmctl(&["doctor"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(String::from_utf8(text.stdout).unwrap().contains("hpm is not loaded"));
    let json: serde_json::Value = serde_json::from_slice(&hpmctl(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(json["usable"], false);
    let module =
        json["findings"].as_array().unwrap().iter().find(|finding| finding["topic"] == "module").unwrap();
    assert_eq!(module["status"], "obstacle");
}

#[test]
fn events_of_an_unknown_pmu_are_refused() {
    let output = hpmctl(&["list", "--pmu", "nonesuch"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .starts_with("hpmctl: hpm has no table of events for the PMU `nonesuch`")
    );
}
