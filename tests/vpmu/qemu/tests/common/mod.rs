//! The guest, the plugin and the lab's QEMU, for tests and measurements.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

const PROCESSOR: &str =
    "Skylake-Client-v1,-pcid,-tsc-deadline,-hle,-invpcid,-rtm,-mpx,-xsavec,-xsaves,+x2apic";

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds the guest: no operating system, so no cargo target of the workspace.
pub(crate) fn build_guest(name: &str) -> PathBuf {
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
            .args(["build", "--quiet", "--release", "--package", env!("CARGO_PKG_NAME"), "--target-dir"])
            .arg(target)
            .status()
            .expect("cargo starts");
        assert!(status.success(), "the plugin does not compile");
        target.join("release/libvpmu_qemu.so")
    });
    &PLUGIN
}

/// The command that runs the built guest with the plugin.
pub(crate) fn machine(guest: &Path, plugin_arguments: &str) -> Command {
    let mut command = qemu();
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-m", "128"]);
    command.args(["-cpu", PROCESSOR, "-debugcon", "stdio"]);
    command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]).arg("-kernel").arg(guest);
    command.arg("-plugin").arg(format!("{}{plugin_arguments}", plugin().display()));
    command
}
