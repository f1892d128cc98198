//! Counts the misses of a real program, for comparison with Cachegrind.

use std::fmt::Write;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::GuestReport;
use super::programs::{hpmctl, left_in, succeed};

/// Instructions, loads' first-level misses, last-level misses, and instruction fetches' first-level misses.
const EVENTS: &str =
    "instructions:u,MEM_LOAD_RETIRED.L1_MISS:u,MEM_LOAD_RETIRED.L3_MISS:u,ICACHE_64B.IFTAG_MISS:u";

/// The program's input: lines in an order that only sorting changes, the same in every run.
fn write_input() -> Result<()> {
    let mut state = 1u64;
    let mut text = String::new();
    for _ in 0..40_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        writeln!(text, "{state:016x}")?;
    }
    std::fs::write("text", text).context("writing the input")
}

/// Measures `sort` on a CPU of its own.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    write_input()?;
    let mut first = CpuSet::new();
    first.set(0)?;
    sched_setaffinity(Pid::this(), &first).context("moving to CPU 0")?;
    succeed(
        hpmctl(&["stat", "--json", "-o", "sort.json", "-e", EVENTS, "--", "taskset", "-c", "1"])?
            .args(["sort", "--parallel=1", "text"])
            .env("LC_ALL", "C"),
    )?;
    report.fact("sort", left_in("sort.json")?);
    Ok(())
}
