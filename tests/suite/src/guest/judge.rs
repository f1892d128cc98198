//! The outside judge: Linux's own driver and Debian's perf on the modelled PMU, without hpm.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};
use vpmu::Profile;
use vpmu::event::{Event, EventSet};
use vpmu::profile::EventSpec;

use super::programs::{PERIOD, built, succeed};
use super::{GuestReport, processor};

/// perf's PMU for CPU 0: a hybrid part has one per type of core.
fn pmu(profile: &Profile) -> &'static str {
    if profile.hybrid.is_some() { "cpu_core" } else { "cpu" }
}

/// perf's events in the order of [`super::counting`]'s: instructions, branches, loads and stores in user mode, as the
/// processor's own encodings.
fn events(profile: &Profile) -> Result<String> {
    let mut names = Vec::new();
    for event in [Event::Instruction, Event::Branch, Event::Load, Event::Store] {
        let counts = EventSet::of(&[event]);
        let plain =
            |spec: &&EventSpec| spec.counts == counts && spec.cmask == 0 && spec.counters.count_ones() >= 4;
        let spec = profile.events.iter().find(plain);
        let spec = spec.with_context(|| format!("no event of {} counts {event:?}", profile.name))?;
        names.push(format!("{}/event={:#x},umask={:#x}/u", pmu(profile), spec.select, spec.umask));
    }
    Ok(names.join(","))
}

/// Counts the loops and samples the strides with perf.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let profile = processor::profile()?;
    // The first CPU of a hybrid part is a performance core, which the profile describes.
    let mut first = CpuSet::new();
    first.set(0)?;
    sched_setaffinity(Pid::this(), &first).context("moving to CPU 0")?;
    unthrottled()?;
    report.fact("loops1", counts(profile, &[])?);
    report.fact("loops3", counts(profile, &["x", "x"])?);
    report.fact("strides1", samples(profile)?);
    Ok(())
}

/// perf drops samples when its handler takes long by wall time, as it does in an emulated machine beside others.
fn unthrottled() -> Result<()> {
    for (name, value) in [("perf_event_max_sample_rate", "1000000"), ("perf_cpu_time_max_percent", "0")] {
        let path = format!("/proc/sys/kernel/{name}");
        std::fs::write(&path, value).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}

/// `perf stat -x,`: a line per event, the count first.
fn counts(profile: &Profile, arguments: &[&str]) -> Result<Value> {
    let output = succeed(
        Command::new("perf")
            .args(["stat", "-x,", "-e", &events(profile)?, "--"])
            .arg(built("loops")?)
            .args(arguments)
            .stdin(Stdio::null()),
    )?;
    let text = String::from_utf8(output.stderr)?;
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| line.matches(',').count() >= 3)
        .map(|line| line.split(',').next().unwrap_or_default().parse::<u64>())
        .collect::<Result<_, _>>()
        .with_context(|| format!("perf stat printed no counts: {text}"))?;
    Ok(json!(counts))
}

/// `perf record` by PEBS of missing loads, then the instruction, symbol and data address of each sample.
fn samples(profile: &Profile) -> Result<Value> {
    let spec = processor::sampled_event(profile)?;
    let event = format!("{}/event={:#x},umask={:#x}/upp", pmu(profile), spec.select, spec.umask);
    let period = PERIOD.to_string();
    succeed(
        Command::new("perf")
            .args(["record", "-q", "-d", "-c", &period, "-o", "perf.data"])
            .args(["-e", &event, "--"])
            .arg(built("strides")?)
            .stdin(Stdio::null()),
    )?;
    let output = succeed(
        Command::new("perf")
            .args(["script", "-i", "perf.data", "-F", "ip,sym,addr"])
            .stdin(Stdio::null())
            .stderr(Stdio::null()),
    )?;
    let text = String::from_utf8(output.stdout)?;
    let samples: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    Ok(json!(samples))
}
