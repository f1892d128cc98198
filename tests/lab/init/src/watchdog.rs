//! The NMI watchdog, which runs from boot on most machines, and which their users stop before hpm measures.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const WATCHDOG: &str = "/proc/sys/kernel/nmi_watchdog";

/// What the kernel answers where the processor cannot have it (ENOTSUPP of `include/linux/errno.h`).
const NOT_SUPPORTED: i32 = 524;

/// Starts it and stops it again, if it does not run, as the lab's command line says.
///
/// Its event leaves every CPU bound to perf's PMU: from then on perf stops and starts all counters whenever it schedules events of software.
/// A machine on which it never ran would show less.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn run_once() -> Result<()> {
    if !Path::new(WATCHDOG).exists() {
        return Ok(());
    }
    let runs = fs::read_to_string(WATCHDOG).with_context(|| format!("reading {WATCHDOG}"))?;
    if runs.trim() != "0" {
        return Ok(());
    }
    match fs::write(WATCHDOG, "1") {
        Err(error) if error.raw_os_error() == Some(NOT_SUPPORTED) => return Ok(()),
        started => started.with_context(|| format!("writing 1 into {WATCHDOG}"))?,
    }
    fs::write(WATCHDOG, "0").with_context(|| format!("writing 0 into {WATCHDOG}"))
}
