//! Asking a kernel that looks for memory leaks (kmemleak) what it has found.

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, delete_module};
use std::arch::x86_64::__cpuid_count;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Documentation/dev-tools/kmemleak.rst: absent unless the kernel was built with it.
const KMEMLEAK: &str = "/sys/kernel/debug/kmemleak";

/// Younger allocations are not reported (mm/kmemleak.c, MSECS_MIN_AGE): a pointer may still be on its way.
const MIN_AGE: Duration = Duration::from_secs(6);

/// The PMU model's leaf, and its function by which it observes no more than it must (tests/vpmu/qemu/README.md, "Hypercalls").
const VPMU: u32 = 0x4850_4D00;
const VPMU_REST: u32 = 6;

/// How long processes that were killed may take to give up what they held.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this kernel looks for leaks: the debug kernel does, stock ones do not.
pub(crate) fn are_looked_for() -> bool {
    Path::new(KMEMLEAK).exists()
}

/// Lets the kernel look for leaks; it logs that it found some, and the log gets where they were allocated.
///
/// hpm.ko is unloaded first: what it still held then is a leak, although its own memory referred to it.
///
/// # Errors
/// When the kernel refuses to look, or hpm.ko cannot be unloaded although every process of the run has ended.
pub(crate) fn report() -> Result<()> {
    if !are_looked_for() {
        return Ok(());
    }
    unload()?;
    // The scans read all memory, which takes long where every access is still followed.
    __cpuid_count(VPMU, VPMU_REST);
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

fn unload() -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match delete_module(c"hpm", DeleteModuleFlags::O_NONBLOCK) {
            // Not loaded, or unloaded by the command.
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EWOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(errno) => bail!("hpm.ko cannot be unloaded at the end of the run: {}", errno.desc()),
        }
    }
}
