//! The outside judge: Linux's own driver and Debian's perf on the modelled PMU, without hpm.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};
use vpmu::Profile;
use vpmu::event::{Event, EventSet};
use vpmu::profile::amd::{AmdEvent, Units};
use vpmu::profile::{Amd, EventSpec};

use super::GuestReport;
use super::counting::moved;
use super::processor::{self, every_cpu};
use super::programs::{PERIOD, built, hpmctl, left_in, succeed};

/// Period of samples by IBS, each of which is an interrupt; of those that its registers hold, a multiple of 16.
pub(crate) const IBS_PERIOD: u64 = 20_000;

/// perf's PMU for CPU 0: a hybrid part has one per type of core.
fn pmu(profile: &Profile) -> &'static str {
    if profile.hybrid.is_some() { "cpu_core" } else { "cpu" }
}

/// perf's events in the order of [`super::counting`]'s: instructions, branches, loads and stores in user mode, as the
/// processor's own encodings.
fn events(profile: &Profile) -> Result<String> {
    if let Some(facts) = profile.amd() {
        return amd_events(profile, facts);
    }
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

/// [`events`] of an AMD processor.
fn amd_events(profile: &Profile, facts: &Amd) -> Result<String> {
    let mut wanted = vec![EventSet::of(&[Event::Instruction]), EventSet::of(&[Event::Branch])];
    if processor::counts_accesses(profile) {
        wanted.push(EventSet::of(&[Event::L1dRead, Event::L1dWrite]));
    } else {
        wanted.extend([EventSet::of(&[Event::Load]), EventSet::of(&[Event::Store])]);
    }
    let mut names = Vec::new();
    for counts in wanted {
        let unit = |event: &AmdEvent| match event.units {
            Units::None(all) => (all == counts).then_some(0),
            Units::Bits(bits) => bits.iter().find(|(_, each)| *each == counts).map(|(bit, _)| *bit),
        };
        let found = facts.events().find_map(|event| Some((event.select, unit(event)?)));
        let (select, umask) =
            found.with_context(|| format!("no event of {} counts {counts:?}", profile.name))?;
        names.push(format!("cpu/event={select:#x},umask={umask:#x}/u"));
    }
    Ok(names.join(","))
}

/// The window of the program that hpmctl counts by perf_event while it is moved between cores of every type.
pub(crate) const MOVED: &str = "loops9";

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
    match profile.amd() {
        None => report.fact("strides1", samples(profile)?),
        Some(facts) if facts.ibs != 0 => report.fact("strides1", ibs_samples()?),
        // What samples by interrupts is off by as much as the interrupt is late, which is no judgement of the model.
        Some(_) => {}
    }
    if profile.hybrid.is_some() {
        report.fact(MOVED, of_every_type()?);
    }
    Ok(())
}

/// `hpmctl stat` by perf_event, which has a PMU for each type of cores: instructions and branches, instructions by their
/// encoding, and of what software counts the time.
fn of_every_type() -> Result<Value> {
    let mut command =
        hpmctl(&["stat", "--source", "perf", "-e", "instructions:u,branches:u,r00c0:u,task-clock"])?;
    command.args(["--json", "-o", "moved.json", "--"]).arg(built("loops")?).args(["x"; 8]);
    let moves = moved(command, "loops", &every_cpu()?, Duration::from_millis(20))?;
    ensure!(moves > 3, "the program was moved {moves} times");
    left_in("moved.json")
}

/// perf drops samples when its handler takes long by wall time, as it does in an emulated machine beside others.
pub(super) fn unthrottled() -> Result<()> {
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

/// `perf record` by IBS of ops in user and kernel mode, then the instruction of each sample.
fn ibs_samples() -> Result<Value> {
    let period = IBS_PERIOD.to_string();
    succeed(
        Command::new("perf")
            .args(["record", "-q", "-c", &period, "-o", "perf.data", "-e", "ibs_op/cnt_ctl=1/", "--"])
            .arg(built("strides")?)
            .stdin(Stdio::null()),
    )?;
    Ok(json!(script("ip")?))
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
    Ok(json!(script("ip,sym,addr")?))
}

/// The fields of each sample.
fn script(fields: &str) -> Result<Vec<Vec<String>>> {
    let output = succeed(
        Command::new("perf")
            .args(["script", "-i", "perf.data", "-F", fields])
            .stdin(Stdio::null())
            .stderr(Stdio::null()),
    )?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect())
}
