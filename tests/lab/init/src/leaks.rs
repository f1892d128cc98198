//! Asking a kernel that looks for memory leaks (kmemleak) what it has found.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// Documentation/dev-tools/kmemleak.rst: absent unless the kernel was built with it.
const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// Younger allocations are not reported (mm/kmemleak.c, MSECS_MIN_AGE): a pointer may still be on its way.
const MIN_AGE: Duration = Duration::from_secs(6);

/// Lets the kernel look for leaks; it logs that it found some, and the log gets where they were allocated.
///
/// # Errors
/// When the kernel refuses to look.
pub(crate) fn report() -> Result<()> {
    if !Path::new(KMEMLEAK).exists() {
        return Ok(());
    }
    std::thread::sleep(MIN_AGE);
    // The second scan clears objects whose only pointer moved during the first.
    for _ in 0..2 {
        fs::write(KMEMLEAK, "scan").context("asking kmemleak to scan")?;
    }
    let found = fs::read_to_string(KMEMLEAK).context("reading what kmemleak found")?;
    for line in found.lines() {
        // PID 1's standard error is the console, whose log the lab keeps.
        eprintln!("{line}");
    }
    Ok(())
}
