//! PID 1 of the virtual lab machine.
//!
//! Makes the host's files the guest's root (read-only over 9p, writes go to a tmpfs), loads hpm.ko, runs one
//! command, reports how it ended and resets the machine.

mod command;
mod leaks;
mod ports;
mod rootfs;
mod slices;
mod watchdog;

use anyhow::{Context, Result};
use lab_init::{HPM_PATH, MODULES_DIR, Outcome, PORT_STATUS, RunSpec, SPEC_PATH};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::sys::reboot::{RebootMode, reboot};
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

fn main() {
    if let Err(error) = live() {
        // Reaches the console log: nothing else may be connected yet.
        eprintln!("lab-init: {error:#}");
    }
    nix::unistd::sync();
    // A reset, because QEMU runs with -no-reboot and so exits at once.
    let Err(error) = reboot(RebootMode::RB_AUTOBOOT);
    eprintln!("lab-init: reset failed: {error}");
}

/// Everything between the kernel's hand-over and the reset.
fn live() -> Result<()> {
    rootfs::mount_early()?;
    // The port is opened before the root changes, so that a failure to change it can be reported.
    let status = ports::open(PORT_STATUS)?;
    let outcome = match run() {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    rootfs::flush_shares();
    report(status, &outcome)
}

fn report(mut status: File, outcome: &Outcome) -> Result<()> {
    let text = serde_json::to_vec(outcome).context("encoding the outcome")?;
    status.write_all(&text).context("writing the outcome")
}

fn run() -> Result<Outcome> {
    let text = std::fs::read(SPEC_PATH).with_context(|| format!("reading {SPEC_PATH}"))?;
    let spec: RunSpec = serde_json::from_slice(&text).with_context(|| format!("decoding {SPEC_PATH}"))?;
    for module in &spec.modules {
        load_module(&Path::new(MODULES_DIR).join(module), "")?;
    }
    let hpm = std::fs::read(HPM_PATH).ok();
    rootfs::enter(&spec)?;
    slices::lengthen()?;
    watchdog::run_once()?;
    let module = rootfs::install_tools(&spec, hpm.as_deref())?;
    if let (Some(path), Some(params)) = (module, &spec.hpm_params) {
        // Emulated code takes its time, and would pass the ceiling on the time in the handler. Later parameters prevail.
        load_module(&path, &format!("max_handler_percent=0 {params}"))?;
    }
    let outcome = command::run(&spec)?;
    leaks::report()?;
    Ok(outcome)
}

fn load_module(path: &Path, params: &str) -> Result<()> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let params = CString::new(params).context("module parameters contain a NUL byte")?;
    finit_module(&file, &params, ModuleInitFlags::empty())
        .with_context(|| format!("loading the module {} (see the console log)", path.display()))
}
