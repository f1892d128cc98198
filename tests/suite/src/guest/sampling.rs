//! Precise sampling: the records of one program, of two interleaved ones on both CPUs, and of loads with their latencies.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::processor::latency_events;
use super::programs::{built, record, record_of, succeed, wait_at_most};

/// The trace of loads sampled for their latency.
pub(crate) const LOADS: &str = "loads.hpm";

/// Records traces for the host part to compare with the truth.
pub(super) fn run() -> Result<()> {
    succeed(record("strides.hpm")?.arg(built("strides")?))?;
    // Two programs of several threads each, more threads than CPUs, each with a session of its own.
    let mut first =
        record("first.hpm")?.arg(built("threads")?).args(["3", "300"]).stdout(Stdio::null()).spawn()?;
    let mut second =
        record("second.hpm")?.arg(built("threads")?).args(["2", "600"]).stdout(Stdio::null()).spawn()?;
    for child in [&mut first, &mut second] {
        let status = wait_at_most(child, Duration::from_secs(600))?;
        ensure!(status.success(), "hpmctl record ended with {status}");
    }
    succeed(record_of(&latency_events()?, LOADS, &[])?.arg(built("strides")?))?;
    Ok(())
}
