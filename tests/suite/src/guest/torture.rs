//! Whatever a user may do to the driver: random requests, a storm of forks, a thousand threads, a tiny period.

mod senders;
mod storm;
mod unload;

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use libhpm::trace::{SampleRow, TraceReader};
use serde_json::Value;

use super::lifecycle::{settled_registers, unchanged, with_perfs_changes};
use super::processor::{LOADS, counted_events};
use super::programs::{built, hpmctl, stat, succeed};
use super::scopes::open_to_nobody;
use super::{GuestReport, is_asked_for};

/// On the kernel's command line for the long form.
pub(crate) const LONG: &str = "hpm.torture=long";
/// Requests of each of two users, and those while the module comes and goes.
const REQUESTS_SHORT: [u64; 2] = [2_000, 300];
const REQUESTS_LONG: [u64; 2] = [500_000, 6_000];
/// Period of what is sampled under random requests: a prime, so that no loop length divides it.
pub(crate) const PERIOD: u64 = 1009;
/// The trace of so many threads, each measured from its first instruction to its last.
pub(crate) const THREADS_TRACE: &str = "threads.hpm";
const THREADS: usize = 1000;
const FORKS: u64 = 100;
/// Instructions of `loops` in user mode (tests/guest/src/bin/loops.rs): 11.5 a turn, and 22 around them.
pub(super) const LOOPS: u64 = 11_500_022;

/// Runs every case.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let [requests, fleeting] = if is_asked_for(LONG)? { REQUESTS_LONG } else { REQUESTS_SHORT };
    open_to_nobody()?;
    let before = settled_registers()?;
    storm::run(report, requests)?;
    let before = with_perfs_changes(before)?;
    report.check("random requests leave every PMU register as it was", || unchanged(&before));
    unload::run(report, fleeting, &before)?;
    report.check("a storm of forks is counted", fork_storm);
    report.check("a thousand threads are sampled, each as itself", thousand_threads);
    report.fact("loops4", tiny_period()?);
    report.fact("loops1", stat(counted_events()?, "after.json", &["loops"])?);
    report.check("the module can be unloaded afterwards", || {
        succeed(Command::new("rmmod").arg("hpm"))?;
        unchanged(&before)
    });
    Ok(())
}

fn fork_storm() -> Result<String> {
    let loops = built("loops")?;
    let (all, without) = (forks(&loops.display().to_string())?, forks(":")?);
    let (count, truth) = (all.saturating_sub(without), FORKS * LOOPS);
    ensure!(
        count.abs_diff(truth) < truth / 500,
        "{FORKS} processes of {LOOPS} instructions made {all} out of {without}, which is {count} more, not {truth}"
    );
    Ok(format!("{count} instructions of {FORKS} processes of {LOOPS}, beside {without} of what starts them"))
}

/// User-mode instructions of a shell and its children, which all do this.
fn forks(what: &str) -> Result<u64> {
    let script = format!("for i in $(seq {FORKS}); do {what} & done; wait");
    let output = "/tmp/nobody/storm.json";
    let words = ["stat", "--json", "-o", output, "-e", "instructions:u", "--", "sh", "-c", &script];
    succeed(&mut hpmctl(&words)?)?;
    let counted: Value = serde_json::from_slice(&fs::read(output)?)?;
    counted["events"][0]["count"].as_u64().context("no count")
}

/// What a measured thread does: enough for several samples.
pub(super) fn be_a_thousand_threads() -> Result<()> {
    let work = || (0..200_000u64).map(std::hint::black_box).sum::<u64>();
    let start = || std::thread::Builder::new().stack_size(64 * 1024).spawn(work);
    let threads: Vec<_> = (0..THREADS).map(|_| start()).collect::<std::io::Result<_>>()?;
    for thread in threads {
        ensure!(thread.join().is_ok(), "a thread panicked");
    }
    Ok(())
}

fn thousand_threads() -> Result<String> {
    let program = std::env::current_exe()?;
    let mut command =
        hpmctl(&["record", "-e", "branch:u", "-c", "20011", "--no-randomise", "-o", THREADS_TRACE, "--"])?;
    command.arg(program).args(["guest", "torture_threads"]).stdout(Stdio::null());
    let output = succeed(&mut command)?;
    let reader = TraceReader::open(THREADS_TRACE)?;
    let tids: std::collections::BTreeSet<u32> = reader.rows::<SampleRow>().map(|row| row.tid).collect();
    let totals = totals(THREADS_TRACE)?;
    ensure!(totals["threads_overflowed"] == 0, "not every thread found a place: {totals}");
    ensure!(tids.len() >= THREADS, "samples name {} threads only: {totals}", tids.len());
    Ok(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The sums of a trace.
pub(super) fn totals(trace: &str) -> Result<Value> {
    let meta: Value = serde_json::from_slice(&fs::read(format!("{trace}/meta.json"))?)?;
    Ok(meta["totals"].clone())
}

/// Each hundredth load: as fast as the driver lets records come.
fn tiny_period() -> Result<Value> {
    let mut command =
        hpmctl(&["record", "-e", LOADS, "-c", "100", "--no-randomise", "-o", "tiny.hpm", "--"])?;
    succeed(command.arg(built("loops")?).args(["x"; 3]))?;
    totals("tiny.hpm")
}
