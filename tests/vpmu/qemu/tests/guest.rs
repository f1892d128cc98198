//! Runs the guest in `guest/` on the lab's QEMU with the plugin. It checks the plugin from inside; the reasons are there.
//!
//! Needs what `cargo run -p lab -- build` fetches: `cargo test -p vpmu-qemu -- --ignored`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

const PROCESSOR: &str =
    "Skylake-Client-v1,-pcid,-tsc-deadline,-hle,-invpcid,-rtm,-mpx,-xsavec,-xsaves,+x2apic";

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds the guest: no operating system, so no cargo target of the workspace.
fn build_guest(name: &str) -> PathBuf {
    let elf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.elf"));
    let link = [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--image-base=0x100000,--build-id=none,-e,start32",
    ];
    let status = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "-O", "--crate-type", "bin", "-D", "warnings"])
        .args(["-C", "panic=abort", "-C", "relocation-model=static"])
        .args(link.iter().flat_map(|argument| ["-C".to_owned(), format!("link-arg={argument}")]))
        .arg("-o")
        .arg(&elf)
        .arg(package().join("guest/main.rs"))
        .status()
        .expect("rustc starts");
    assert!(status.success(), "the guest does not compile");
    elf
}

/// The lab's QEMU, started by the C library it was made for.
fn qemu() -> Command {
    let target =
        std::env::var_os("HPM_LAB").map_or_else(|| package().join("../../../target/lab"), PathBuf::from);
    let tree = target.join("tree");
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    let loader = libraries.join("ld-linux-x86-64.so.2");
    assert!(loader.exists(), "there is no QEMU in {}; run `cargo run -p lab -- build`", tree.display());
    let mut command = Command::new(loader);
    command.arg("--library-path").arg(&libraries).arg(tree.join("usr/bin/qemu-system-x86_64"));
    for folder in ["usr/share/qemu", "usr/share/seabios"] {
        command.arg("-L").arg(tree.join(folder));
    }
    command
}

/// Builds the plugin: cargo does not build a dynamic library for tests that cannot link it.
fn plugin() -> &'static Path {
    static PLUGIN: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("TARGET/tmp");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", env!("CARGO_PKG_NAME"), "--target-dir"])
            .arg(target)
            .status()
            .expect("cargo starts");
        assert!(status.success(), "the plugin does not compile");
        target.join("debug/libvpmu_qemu.so")
    });
    &PLUGIN
}

fn run(name: &str, plugin_arguments: &str, arguments: &[&str]) -> Output {
    let guest = build_guest(name);
    let mut command = Command::new("timeout");
    let qemu = qemu();
    command.args(["--kill-after=5", "120"]).arg(qemu.get_program()).args(qemu.get_args());
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-m", "128"]);
    command.args(["-cpu", PROCESSOR, "-debugcon", "stdio"]);
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]).arg("-kernel").arg(guest);
    command.arg("-plugin").arg(format!("{}{plugin_arguments}", plugin().display())).args(arguments);
    command.output().expect("QEMU starts")
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
    assert!(complaint.contains("vpmu: profile=z80: no such profile; there are skylake"), "{complaint}");
}
