//! Runs the guest in `guest/` on the lab's QEMU with the plugin. It checks the plugin from inside; the reasons are there.
//!
//! Needs what `cargo run -p lab -- build` fetches: `cargo test -p vpmu-qemu -- --ignored`.

mod common;

use std::process::{Command, Output};

fn run(name: &str, plugin_arguments: &str, arguments: &[&str]) -> Output {
    let machine = common::machine(&common::build_guest(name), plugin_arguments);
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "120"]).arg(machine.get_program()).args(machine.get_args());
    command.args(arguments).output().expect("QEMU starts")
}

/// Fails unless the guest reached its end without a failed check.
fn judge(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{complaint}");
    assert!(said.ends_with("\n0 checks failed\n"), "the guest did not reach its end:\n{said}\n{complaint}");
    // Each level has run: a guest that skips one cannot pass.
    for level in ["ok basic: ", "ok everything: ", "ok x2APIC: "] {
        assert!(said.lines().any(|line| line.starts_with(level)), "no check of level {level}:\n{said}");
    }
}

#[test]
#[ignore = "needs the lab's QEMU"]
fn the_guest_finds_nothing_wrong() {
    judge(&run("plain", "", &[]));
}

#[test]
#[ignore = "needs the lab's QEMU"]
fn the_guest_finds_nothing_wrong_when_time_is_counted_in_instructions() {
    judge(&run("icount", "", &["-icount", "shift=1,sleep=off"]));
}

#[test]
#[ignore = "needs the lab's QEMU"]
fn an_interrupt_comes_as_late_as_asked_for() {
    judge(&run("skid", ",skid=7", &["-append", "7"]));
}

#[test]
#[ignore = "needs the lab's QEMU"]
fn a_wrong_argument_is_refused_in_one_sentence() {
    let output = run("refused", ",profile=z80", &[]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(complaint.contains("vpmu: profile=z80: no such profile; there are nehalem, "), "{complaint}");
}
