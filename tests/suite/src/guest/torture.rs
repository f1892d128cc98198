//! Whatever a user may do to the driver: random requests, a storm of forks, a thousand threads, a tiny period.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libhpm::trace::{SampleRow, TraceReader};
use serde_json::Value;

use super::lifecycle::{registers, unchanged};
use super::mutation::{REQUESTS, SEED, check_accepted};
use super::programs::{built, hpmctl, stat, succeed};
use super::scopes::{NOBODY, open_to_nobody};
use super::{GuestReport, REPORT, is_asked_for};

/// On the kernel's command line for the long form.
const LONG: &str = "hpm.torture=long";
const REQUESTS_SHORT: u64 = 10_000;
const REQUESTS_LONG: u64 = 500_000;
/// A guest that does not answer for so long hangs; the machine below may be busy.
const RESPONSIVE: Duration = Duration::from_secs(30);
const THREADS: usize = 1000;
const FORKS: u64 = 100;
/// Instructions of `loops` in user mode (tests/guest/src/bin/loops.rs): 11.5 a turn, and 22 around them.
const LOOPS: u64 = 11_500_022;

/// Runs every case.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let long = is_asked_for(LONG)?;
    let requests = if long { REQUESTS_LONG } else { REQUESTS_SHORT };
    open_to_nobody()?;
    let before = registers()?;
    random_requests(report, requests);
    report.check("random requests leave every PMU register as it was", || unchanged(&before));
    report.check("a storm of forks is counted", fork_storm);
    report.check("a thousand threads are sampled, each as itself", thousand_threads);
    report.fact("loops4", tiny_period()?);
    report.fact("loops1", stat("instructions:u,branch:u,load:u,store:u", "after.json", &["loops"])?);
    report.check("the module can be unloaded afterwards", || {
        succeed(Command::new("rmmod").arg("hpm"))?;
        unchanged(&before)
    });
    Ok(())
}

/// Two users send random requests at the same time.
fn random_requests(report: &mut GuestReport, requests: u64) {
    let users = [("nobody", NOBODY, 1), ("root", 0, 2)];
    let mut workers = vec![];
    for (name, user, seed) in users {
        workers.push(worker(name, user, seed, requests));
    }
    report.check("the guest answers while random requests come", || responsive(&mut workers));
    for (name, _, seed) in users {
        report.check(&format!("{requests} random requests of {name} with seed {seed}"), || {
            let text =
                fs::read(format!("/tmp/torture-{name}/{REPORT}")).context("the sender did not end well")?;
            check_accepted(&serde_json::from_slice(&text)?)
        });
    }
}

fn worker(name: &str, user: u32, seed: u64, requests: u64) -> Result<Child> {
    let folder = format!("/tmp/torture-{name}");
    fs::create_dir_all(&folder)?;
    std::os::unix::fs::chown(&folder, Some(user), Some(user))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["guest", "torture_sender"]).uid(user).gid(user).current_dir(folder);
    Ok(command.env(SEED, seed.to_string()).env(REQUESTS, requests.to_string()).spawn()?)
}

/// The longest that a moment's sleep took while the workers ran.
fn responsive(workers: &mut [Result<Child>]) -> Result<String> {
    let mut worst = Duration::ZERO;
    loop {
        let mut running = false;
        for worker in workers.iter_mut() {
            let worker = worker.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?;
            running |= worker.try_wait()?.is_none();
        }
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(10));
        worst = worst.max(start.elapsed());
        ensure!(worst < RESPONSIVE, "the guest did not answer for {worst:?}");
        if !running {
            return Ok(format!("10 ms took at most {} ms", worst.as_millis()));
        }
    }
}

fn fork_storm() -> Result<String> {
    let script = format!("for i in $(seq {FORKS}); do {} & done; wait", built("loops")?.display());
    let output = "/tmp/nobody/storm.json";
    let words = ["stat", "--json", "-o", output, "-e", "instructions:u", "--", "sh", "-c", &script];
    succeed(&mut hpmctl(&words)?)?;
    let counted: Value = serde_json::from_slice(&fs::read(output)?)?;
    let count = counted["events"][0]["count"].as_u64().context("no count")?;
    // The shell and its children before they became `loops`.
    let (least, most) = (FORKS * LOOPS, FORKS * (LOOPS + 1_000_000));
    ensure!((least..most).contains(&count), "{count} instructions of {FORKS} processes, at least {least}");
    Ok(format!("{count} instructions of {FORKS} processes of {LOOPS}"))
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
        hpmctl(&["record", "-e", "branch:u", "-c", "20011", "--no-randomise", "-o", "threads.hpm", "--"])?;
    command.arg(program).args(["guest", "torture_threads"]).stdout(Stdio::null());
    let output = succeed(&mut command)?;
    let reader = TraceReader::open("threads.hpm")?;
    let tids: std::collections::BTreeSet<u32> = reader.rows::<SampleRow>().map(|row| row.tid).collect();
    let overflowed = totals("threads.hpm")?["threads_overflowed"].as_u64();
    ensure!(overflowed == Some(0), "{overflowed:?} threads found no place");
    ensure!(tids.len() >= THREADS, "samples name {} threads only", tids.len());
    Ok(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The sums of a trace.
fn totals(trace: &str) -> Result<Value> {
    let meta: Value = serde_json::from_slice(&fs::read(format!("{trace}/meta.json"))?)?;
    Ok(meta["totals"].clone())
}

/// Each hundredth load: as fast as the driver lets records come.
fn tiny_period() -> Result<Value> {
    let mut command =
        hpmctl(&["record", "-e", "load:u", "-c", "100", "--no-randomise", "-o", "tiny.hpm", "--"])?;
    succeed(command.arg(built("loops")?).args(["x"; 3]))?;
    totals("tiny.hpm")
}
