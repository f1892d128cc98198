//! A machine without a PMU, as most virtual machines are.

use anyhow::{Result, ensure};

use super::GuestReport;
use super::bad_input::refused;
use super::programs::hpmctl;

/// The module loads, and everything says what is missing.
pub(super) fn run(report: &mut GuestReport) {
    report.check("the module loads and offers its device", || {
        ensure!(std::path::Path::new("/dev/hpm").exists(), "there is no /dev/hpm");
        Ok(String::new())
    });
    report.check("stat refuses", || {
        refused(hpmctl(&["stat", "-e", "instructions", "--", "true"])?, "shows no PMU")
    });
    report.check("record refuses", || {
        refused(hpmctl(&["record", "-e", "instructions", "--", "true"])?, "shows no PMU")
    });
    report.check("doctor says so and exits with 1", doctor);
}

fn doctor() -> Result<String> {
    let output = hpmctl(&["doctor"])?.output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code() == Some(1), "it ended with {}", output.status);
    let line = said.lines().find(|line| line.contains("PMU"));
    line.map(|line| line.trim().to_owned()).ok_or_else(|| anyhow::anyhow!("no line about the PMU: {said}"))
}
