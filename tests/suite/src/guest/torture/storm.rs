//! Random requests of two users, while CPUs come and go and programs of known length are measured.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use super::senders::Senders;
use super::{PERIOD, totals};
use crate::guest::GuestReport;
use crate::guest::mutation::Depth;
use crate::guest::processor::{LOADS, counted_events};
use crate::guest::programs::{built, hpmctl, left_in, stat_command};

/// A guest that does not answer for so long hangs; the machine below may be busy.
const RESPONSIVE: Duration = Duration::from_secs(30);
/// Of a long storm, how long a CPU stays and how long nothing is measured in between: both stop the senders.
const CALM: Duration = Duration::from_secs(5);
/// Requests from which on a storm is long.
const LONG: u64 = 100_000;
/// How many programs must have been counted, and how many sampled, before the last request is sent.
const ENOUGH: [usize; 2] = [4, 2];
/// How often others send at most until so many have been: on a slow machine a program takes as long as all requests of a short storm.
const ROUNDS_MAX: u32 = 20;
/// The CPU that comes and goes.
const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

/// What was measured meanwhile.
#[derive(Default)]
struct Measured {
    counts: Vec<Value>,
    sampled: Vec<Value>,
    /// Another session measured everything, or the same.
    refused: u64,
}

/// Sends requests and measures until the senders end.
pub(super) fn run(report: &mut GuestReport, requests: u64) -> Result<()> {
    // Which types of core there are is asked while all CPUs are there.
    let (counted, sampled) = (counted_events()?, LOADS);
    let mut senders = Senders::start(requests, false)?;
    let (done, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let [stays, pause] =
        if requests < LONG { [Duration::from_millis(500), Duration::ZERO] } else { [CALM; 2] };
    let (answers, plugged, measured) = std::thread::scope(|scope| {
        let plugging = scope.spawn(|| plug_and_unplug(&done, stays));
        let measuring = scope.spawn(|| {
            // What failed will not be enough however long requests come.
            measure([&done, &enough], pause, [counted, sampled])
                .inspect_err(|_| enough.store(true, Ordering::Relaxed))
        });
        let answers = responsive(&mut senders, requests, &enough);
        done.store(true, Ordering::Relaxed);
        (answers, plugging.join(), measuring.join())
    });
    report.check("the guest answers while random requests come", || answers);
    report.check("CPU 1 goes and comes while random requests come", || {
        plugged.unwrap_or_else(|_| bail!("the thread panicked"))
    });
    let depth = if requests < LONG { Depth::Some } else { Depth::Each(20) };
    senders.judge(report, "while CPU 1 goes and comes", Some(depth));
    let mut seen = Measured::default();
    report.check("programs are measured while random requests come", || {
        seen = measured.unwrap_or_else(|_| bail!("the thread panicked"))?;
        let (counted, sampled) = (seen.counts.len(), seen.sampled.len());
        ensure!(enough.load(Ordering::Relaxed), "only {counted} programs were counted and {sampled} sampled");
        Ok(format!("{counted} counted, {sampled} sampled, {} refused beside others", seen.refused))
    });
    report.fact("storm_counts", json!(seen.counts));
    report.fact("storm_sampled", json!(seen.sampled));
    Ok(())
}

/// The longest that a moment's sleep took while the senders ran, which go on until enough has been measured.
fn responsive(senders: &mut Senders, requests: u64, enough: &AtomicBool) -> Result<String> {
    let (mut worst, mut rounds) = (Duration::ZERO, 1);
    loop {
        if !senders.send()? {
            if enough.load(Ordering::Relaxed) || rounds == ROUNDS_MAX {
                break;
            }
            senders.start_more(requests)?;
            rounds += 1;
        }
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(10));
        worst = worst.max(start.elapsed());
        ensure!(worst < RESPONSIVE, "the guest did not answer for {worst:?}");
    }
    Ok(format!("10 ms took at most {} ms", worst.as_millis()))
}

fn plug_and_unplug(done: &AtomicBool, stays: Duration) -> Result<String> {
    if !Path::new(SWITCH).exists() {
        return Ok("this machine has one CPU".to_owned());
    }
    let mut times = 0;
    loop {
        fs::write(SWITCH, "0")?;
        std::thread::sleep(Duration::from_millis(50));
        fs::write(SWITCH, "1")?;
        times += 1;
        if done.load(Ordering::Relaxed) {
            return Ok(format!("{times} times"));
        }
        std::thread::sleep(stays);
    }
}

/// Counts and samples `loops` again and again, with a pause after each, by these events; says when it was often enough.
fn measure(
    [done, enough]: [&AtomicBool; 2],
    pause: Duration,
    [counted, sampled]: [&str; 2],
) -> Result<Measured> {
    let mut measured = Measured::default();
    let mut turn = 0_u64;
    while !done.load(Ordering::Relaxed) {
        turn += 1;
        let is_sampled = turn.is_multiple_of(3);
        match if is_sampled { sample(sampled)? } else { count(counted)? } {
            Some(value) if is_sampled => measured.sampled.push(value),
            Some(value) => measured.counts.push(value),
            None => measured.refused += 1,
        }
        if measured.counts.len() >= ENOUGH[0] && measured.sampled.len() >= ENOUGH[1] {
            enough.store(true, Ordering::Relaxed);
        }
        std::thread::sleep(pause);
    }
    Ok(measured)
}

/// `None` when another session stood in the way.
fn count(events: &str) -> Result<Option<Value>> {
    let mut command = stat_command(events, "storm.json", &["loops", "x"])?;
    if !went_through(&mut command)? {
        return Ok(None);
    }
    let counted = left_in("storm.json")?;
    Ok(Some(json!({ "events": counted["events"] })))
}

/// The sums of a recording of loads; `None` when another session stood in the way.
fn sample(events: &str) -> Result<Option<Value>> {
    let (trace, period) = ("storm.hpm", PERIOD.to_string());
    let _ = fs::remove_dir_all(trace);
    let mut command = hpmctl(&["record", "-e", events, "-c", &period, "--no-randomise", "-o", trace, "--"])?;
    if !went_through(command.arg(built("loops")?).arg("x"))? {
        return Ok(None);
    }
    totals(trace).map(Some)
}

/// False for a refusal because of another session: a random one may measure everything.
fn went_through(command: &mut Command) -> Result<bool> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() || said.contains("excludes"), "{command:?}: {}", said.trim());
    Ok(output.status.success())
}
