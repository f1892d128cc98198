//! How long threads that share a CPU run before the other one's turn.

use anyhow::{Context, Result};
use std::fs;

use crate::leaks;

/// Where the scheduler tells and takes its slices in nanoseconds (kernel/sched/debug.c).
const BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";

/// 10 ms, as the longest of hpm's quanta are.
const LONG: &str = "10000000";

/// Makes slices longer on a kernel that checks itself.
///
/// They are of 1.4 ms on two CPUs, which a timer of the scheduler's ends (HRTICK). With lockdep and KASAN, emulated, a program that shares its CPU
/// takes about twice as long with these while hpm records it; without hpm the length makes no difference. The stock kernel keeps its own.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn lengthen() -> Result<()> {
    if !leaks::are_looked_for() {
        return Ok(());
    }
    fs::write(BASE_SLICE, LONG).with_context(|| format!("writing {LONG} into {BASE_SLICE}"))
}
