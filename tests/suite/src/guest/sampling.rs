//! Precise sampling: the records of one program, and of two interleaved ones on both CPUs.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::GuestReport;
use super::programs::{built, record, succeed, wait_at_most};

/// Records traces for the host part to compare with the truth.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    succeed(record("strides.hpm")?.arg(built("strides")?).arg("x"))?;
    // Two programs of several threads each, more threads than CPUs, each with a session of its own.
    let mut first =
        record("first.hpm")?.arg(built("threads")?).args(["3", "1"]).stdout(Stdio::null()).spawn()?;
    let mut second =
        record("second.hpm")?.arg(built("threads")?).args(["2", "2"]).stdout(Stdio::null()).spawn()?;
    for child in [&mut first, &mut second] {
        let status = wait_at_most(child, Duration::from_secs(300))?;
        ensure!(status.success(), "hpmctl record ended with {status}");
    }
    report.fact("traces", json!(["strides.hpm", "first.hpm", "second.hpm"]));
    Ok(())
}
