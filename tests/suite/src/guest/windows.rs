//! Samples in windows: loads where they are dense, by hpmctl and by perf, on the last CPU.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use vpmu::Profile;
use vpmu::event::{Event, EventSet};
use vpmu::profile::Hybrid;

use super::GuestReport;
use super::judge::unthrottled;
use super::processor::{every_cpu, profile};
use super::programs::{built, hpmctl, record_each, succeed};
use super::sampling::TAKEN;
use super::scopes::pin;

/// The trace of loads in windows, and that of all loads with the same period.
pub(crate) const WITHIN: &str = "within.hpm";
pub(crate) const WITHOUT: &str = "without.hpm";
/// Loads from sample to sample, and instructions from window to window: `sparse` has 84 loads in as many, `dense` 600.
pub(crate) const LOADS: u64 = 170;
pub(crate) const WINDOW: u64 = 1000;
/// The facts that have the functions of perf's samples, and what hpmctl reports of its own.
pub(crate) const PERF: &str = "perf";
pub(crate) const REPORTS: &str = "reports";

/// The core that the last CPU is, and the name that Linux gives its PMU.
fn core(profile: &'static Profile) -> (&'static Profile, &'static str) {
    match profile.hybrid.into_iter().flat_map(Hybrid::others).last() {
        Some(other) => (other, "cpu_atom"),
        None => (profile, "cpu"),
    }
}

/// Records by hpmctl with windows and without, then by perf with windows.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let last = *every_cpu()?.last().context("no CPU")?;
    pin(&[last]).context("moving to the last CPU")?;
    let (core, pmu) = core(profile()?);
    let load = if pmu == "cpu" { "load:u".to_owned() } else { format!("{pmu}/load/u") };
    let window = format!("instructions:u={WINDOW}");
    let mut reports = Vec::<Value>::new();
    for (trace, options) in [(WITHIN, ["--window", window.as_str()].as_slice()), (WITHOUT, &[])] {
        succeed(record_each(&load, LOADS, trace, options)?.arg(built("dense")?))?;
        let shown = succeed(&mut hpmctl(&["report", "--by", "function", "--json", trace])?)?;
        reports.push(serde_json::from_slice(&shown.stdout)?);
    }
    report.fact(REPORTS, json!(reports));
    unthrottled()?;
    let by_perf = by_perf(core, pmu)?;
    report.fact(TAKEN, json!(by_perf.len()));
    report.fact(PERF, json!(by_perf));
    Ok(())
}

/// The function of each sample of perf's. A counter is set back by those of the group whose bits `acr_mask` has
/// (intel_pmu_acr_late_setup in Linux's arch/x86/events/intel/core.c): both by the second, which counts instructions.
fn by_perf(core: &Profile, pmu: &str) -> Result<Vec<String>> {
    let plain =
        |spec: &&vpmu::profile::EventSpec| spec.precise && spec.counts == EventSet::of(&[Event::Load]);
    let load = core.events.iter().find(plain).context("no precise event counts loads")?;
    let (select, umask) = (load.select, load.umask);
    let group = format!(
        "{{{pmu}/event={select:#x},umask={umask:#x},period={LOADS},acr_mask=0x2/upp,\
         {pmu}/event=0xc0,period={WINDOW},acr_mask=0x2/u}}"
    );
    let recorded = Command::new("perf")
        .args(["record", "-q", "-o", "perf.data", "-e", &group, "--"])
        .arg(built("dense")?)
        .stdin(Stdio::null())
        .output()?;
    ensure!(recorded.status.success(), "perf record: {}", String::from_utf8_lossy(&recorded.stderr));
    let shown = ["script", "-i", "perf.data", "-F", "ip,sym"];
    let output = succeed(Command::new("perf").args(shown).stdin(Stdio::null()).stderr(Stdio::null()))?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect())
}
