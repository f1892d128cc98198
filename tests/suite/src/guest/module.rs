//! `hpmctl module`: loading, unloading and status, and each refusal in one sentence.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::GuestReport;
use super::bad_input::refused;
use super::lifecycle::MODULE;
use super::programs::{hpmctl, pid_of, succeed};

/// Checks every command; the module is loaded before and after.
pub(super) fn run(report: &mut GuestReport) {
    report.check("module: unloads, loads with a parameter, and the status tells", cycle);
    report.check("module: loading twice is refused", || {
        refused(hpmctl(&["module", "load", "--path", MODULE])?, "already loaded")
    });
    report.check("module: unloading names who uses it", in_use);
    report.check("module: only root may unload", || {
        let mut command = hpmctl(&["module", "unload"])?;
        command.uid(65534).gid(65534);
        refused(command, "root")
    });
    report.check("module: what is no module, or is not there, is refused", refusals);
}

/// The status, and whether it says that the module is loaded.
fn status() -> Result<(String, bool)> {
    let output = hpmctl(&["module", "status"])?.output()?;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
}

fn cycle() -> Result<String> {
    succeed(&mut hpmctl(&["module", "unload"])?)?;
    let (said, loaded) = status()?;
    ensure!(!loaded && said.contains("not loaded"), "after unloading the status is {said:?}");
    succeed(&mut hpmctl(&["module", "load", "--path", MODULE, "max_sessions=5"])?)?;
    let (said, loaded) = status()?;
    ensure!(loaded && said.contains("parameter max_sessions: 5"), "after loading the status is {said:?}");
    let pmu = said.lines().find(|line| line.starts_with("PMU: ")).context("the status names no PMU")?;
    Ok(pmu.to_owned())
}

fn in_use() -> Result<String> {
    let mut session = hpmctl(&["stat", "-e", "instructions:u", "--", "sleep", "600"])?
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let sleep = nix::unistd::Pid::from_raw(pid_of("sleep")?);
    let said = refused(hpmctl(&["module", "unload"])?, &format!("hpmctl (PID {})", session.id()));
    nix::sys::signal::kill(sleep, nix::sys::signal::Signal::SIGKILL)?;
    session.wait()?;
    said
}

fn refusals() -> Result<String> {
    succeed(&mut hpmctl(&["module", "unload"])?)?;
    let both = refused(hpmctl(&["module", "load", "--path", "/etc/hostname"])?, "is no kernel module")
        .and_then(|_| refused(hpmctl(&["module", "load", "--path", "/no/hpm.ko"])?, "/no/hpm.ko"))
        .and_then(|_| refused(hpmctl(&["module", "unload"])?, "not loaded"));
    succeed(&mut hpmctl(&["module", "load", "--path", MODULE])?)?;
    both
}
