//! Precise sampling: the records of one program, of two interleaved ones on both CPUs, and of loads with their latencies.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use vpmu::Profile;

use super::GuestReport;
use super::processor::{Sampled, profile, sampled};
use super::programs::{PERIOD, built, hpmctl, record, record_each, record_of, succeed, wait_at_most};

/// Traces of what [`super::processor::sampled`] says: of one program, then of two at the same time.
pub(crate) const MISSES: [&str; 3] = ["strides.hpm", "first.hpm", "second.hpm"];
/// The trace of loads sampled for their latency, also of those that hit the first level, which takes 4 cycles.
pub(crate) const LOADS: &str = "loads.hpm";
/// The trace of those that took more cycles than [`LONG`].
pub(crate) const LONG_LOADS: &str = "long_loads.hpm";
pub(crate) const LONG: u32 = 30;
/// The trace of a program whose registers are known.
pub(crate) const REGISTERS: &str = "registers.hpm";

/// The trace of loads in kernel mode, of a program that makes system calls; a prime period, for a thousand of them.
pub(crate) const KERNEL: &str = "kernel.hpm";
const KERNEL_PERIOD: u64 = 10_007;

/// The fact how many records a program of the guest part took itself, which are in no trace.
pub(crate) const TAKEN: &str = "taken";

/// The trace with randomised periods, which is as [`MISSES`]' first otherwise.
pub(crate) const RANDOMISED: &str = "randomised.hpm";

/// The trace of loads and stores, both sampled precisely at once, of a program that has as many of each.
pub(crate) const SEVERAL: &str = "several.hpm";

/// Whether records say something of which counters they are for (SDM Vol. 3B, table 18-23: from format 1 on).
pub(crate) fn tells_events_apart(profile: &Profile) -> bool {
    profile.perfmon().is_some_and(|pmu| pmu.pebs_format() >= 1)
}

/// Whether they say it always (from format 3 on).
pub(crate) fn always_tells_events_apart(profile: &Profile) -> bool {
    profile.perfmon().is_some_and(|pmu| pmu.pebs_format() >= 3)
}

/// Whether records can hold the XMM registers (SDM Vol. 3B, 20.9.2: adaptive records, from format 4 on; architectural ones).
fn can_hold_vectors(profile: &Profile) -> bool {
    profile.perfmon().is_some_and(|pmu| pmu.pebs_format() >= 4)
}

/// Every XMM register of every record is the program's, or the session is refused; how many records there were.
fn vectors() -> Result<u64> {
    let output = Command::new(built("vectors")?).arg(built("registers")?).output()?;
    let (told, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if can_hold_vectors(profile()?) {
        ensure!(output.status.success(), "{told}; {failed}");
        return told.trim().parse().with_context(|| format!("no number of records: {told}"));
    }
    ensure!(!output.status.success() && failed.contains("group"), "it was not refused: {told}; {failed}");
    Ok(0)
}

/// Records traces for the host part to compare with the truth.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    succeed(record(MISSES[0])?.arg(built("strides")?))?;
    // Two programs of several threads each, more threads than CPUs, each with a session of its own.
    let mut first =
        record(MISSES[1])?.arg(built("threads")?).args(["3", "300"]).stdout(Stdio::null()).spawn()?;
    let mut second =
        record(MISSES[2])?.arg(built("threads")?).args(["2", "600"]).stdout(Stdio::null()).spawn()?;
    for child in [&mut first, &mut second] {
        // A debug kernel has been seen to take more than 600 s.
        let status = wait_at_most(child, Duration::from_secs(1800))?;
        ensure!(status.success(), "hpmctl record ended with {status}");
    }
    // IBS samples loads among all ops.
    if profile()?.amd().is_none() {
        for (cycles, trace) in [(3, LOADS), (LONG, LONG_LOADS)] {
            let slower = format!("cpu/mem-loads,ldlat={cycles}/u");
            succeed(record_of(&slower, trace, &[])?.arg(built("strides")?))?;
        }
        succeed(record(REGISTERS)?.arg(built("registers")?))?;
        succeed(record_each("load:k", KERNEL_PERIOD, KERNEL, &[])?.arg(built("syscalls")?))?;
        let mut taken = 0;
        report.check("XMM registers of records are the program's, or refused where there are none", || {
            taken = vectors()?;
            Ok(format!("{taken} records"))
        });
        report.fact(TAKEN, json!(taken));
        // Loads and stores that take turns would overflow together for ever.
        let mut several = if always_tells_events_apart(profile()?) {
            record_of("load:u,store:u", SEVERAL, &[])?
        } else {
            hpmctl(&["record", "-e", "load:u,store:u", "-c", &PERIOD.to_string(), "-o", SEVERAL, "--"])?
        };
        let several = several.arg(built("loops")?).output()?;
        let said = String::from_utf8_lossy(&several.stderr);
        if tells_events_apart(profile()?) {
            ensure!(several.status.success(), "hpmctl record of two events said: {said}");
        } else {
            let refused = !several.status.success() && said.contains("do not say which event they are for");
            ensure!(refused, "hpmctl record of two events said: {said}");
        }
        let Sampled { events, period, .. } = sampled()?;
        let words = ["record", "-e", &events, "-c", &period.to_string(), "-o", RANDOMISED, "--"];
        succeed(hpmctl(&words)?.arg(built("strides")?))?;
    }
    Ok(())
}
