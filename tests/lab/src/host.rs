//! What cargo builds for the lab: PID 1 of the guest, and the PMU plugin.

use crate::paths;
use crate::progress::step;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds PID 1, statically linked because the initramfs has no libraries.
///
/// # Errors
/// When cargo fails: the message names the log.
pub(crate) fn init(cache: &Path) -> Result<PathBuf> {
    let args = ["rustc", "--release", "--package", "lab-init", "--bin", "lab-init", "--"];
    let flags = ["-Ctarget-feature=+crt-static", "-Cstrip=symbols"];
    cargo(cache, "init", &[&args[..], &flags[..]].concat())?;
    found(target(cache).join("release/lab-init"))
}

/// Builds the PMU plugin.
///
/// # Errors
/// When cargo fails: the message names the log.
pub(crate) fn plugin(cache: &Path) -> Result<PathBuf> {
    cargo(cache, "plugin", &["build", "--release", "--package", "vpmu-qemu"])?;
    found(target(cache).join("release/libvpmu_qemu.so"))
}

/// A target folder of its own: the flags and profiles differ from everyday builds, and cargo's lock is free.
fn target(cache: &Path) -> PathBuf {
    cache.join("cargo")
}

fn found(path: PathBuf) -> Result<PathBuf> {
    if !path.exists() {
        bail!("cargo succeeded but left no {}", path.display());
    }
    Ok(path)
}

fn cargo(cache: &Path, what: &str, args: &[&str]) -> Result<()> {
    // CARGO is the cargo that runs this program, if one does.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).env("CARGO_TARGET_DIR", target(cache)).current_dir(paths::project());
    step(&format!("building the {what}"), &paths::log(cache, what), &mut command)
}
