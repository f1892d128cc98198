//! More events than counters: refused, or on request counted in turns.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use vpmu::Profile;

use super::bad_input::refused;
use super::counting::moved;
use super::processor::{cpus, every_cpu, profile};
use super::programs::{built, hpmctl, left_in, succeed};
use super::scopes::pin;
use super::{GuestReport, is_asked_for};

/// Three events, each several times over, of which no processor has counters for all: the same event must come to the same. One
/// instruction counter may be a fixed one, the others need a general one each.
const EVENTS: &str = "instructions:u,branch:u,load:u,cpu/event=0xc0/u,cpu/event=0xc4/u,load:u,cpu/event=0xc0/u,cpu/event=0xc4/u,\
    load:u,cpu/event=0xc0/u,cpu/event=0xc4/u";

/// The kernel's argument for a program eight times as long: where time passes with instructions it would have few turns otherwise.
pub(crate) const LONG: &str = "hpm.multiplex=long";
/// The facts that have the counts, and how many million rounds the program's loop made.
pub(crate) const COUNTS: &str = "counts";
pub(crate) const MILLIONS: &str = "millions";
/// Of a program that is moved between both types of cores, and makes a million rounds less: the loads of the one type, and as many times over
/// as they need turns those of the other.
pub(crate) const TYPED: &str = "typed";
const TYPED_EVENTS: &str = "cpu_core/load/u,cpu_atom/load/u,cpu_atom/load/u,cpu_atom/load/u,cpu_atom/load/u,cpu_atom/load/u,\
    cpu_atom/load/u,cpu_atom/load/u,cpu_atom/load/u,cpu_atom/load/u";

/// Counts a steady program with too many events.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let program = built("strides")?;
    // Loads are one event for each type of core, and the truth does not tell on which they were executed.
    let events =
        if profile()?.hybrid.is_some() { EVENTS.replace("load", "branch") } else { EVENTS.to_owned() };
    report.check("without --multiplex they are refused", || {
        let mut command = hpmctl(&["stat", "-e", &events, "--"])?;
        command.arg(&program);
        refused(command, "--multiplex")
    });
    let millions: u8 = if is_asked_for(LONG)? { 64 } else { 8 };
    let arguments = vec!["x"; usize::from(millions) - 1];
    report.fact(MILLIONS, millions.into());
    let stat = |options: &[&str]| -> Result<std::process::Output> {
        let mut command = hpmctl(&["stat", "--multiplex", "-e", &events])?;
        succeed(command.args(options).arg("--").arg(&program).args(&arguments))
    };
    stat(&["--json", "-o", "turns.json"])?;
    report.fact(COUNTS, left_in("turns.json")?);
    if profile()?.hybrid.is_some() && cpus()? > 1 {
        let mut command =
            hpmctl(&["stat", "--multiplex", "-e", TYPED_EVENTS, "--json", "-o", "typed.json", "--"])?;
        command.arg(&program).args(&arguments[1..]);
        // The first CPU is a performance core.
        let efficient = first_efficient(profile()?, cpus()?)?;
        let places = [0, 0, 0, efficient];
        // It begins where the first of them is.
        pin(&places[..1])?;
        moved(command, "strides", &places, Duration::from_millis(20))?;
        pin(&every_cpu()?)?;
        report.fact(TYPED, left_in("typed.json")?);
    }
    report.check("the text says in how much of the time each was counted", || {
        let text = String::from_utf8(stat(&[])?.stderr)?;
        let labelled = text.lines().filter(|line| line.contains("% of the time")).count();
        ensure!(labelled >= 6 && text.contains("are scaled"), "it says:\n{text}");
        Ok(format!("{labelled} events"))
    });
    Ok(())
}

/// The first CPU that is an efficient core.
fn first_efficient(profile: &'static Profile, cpus: usize) -> Result<usize> {
    let wanted = profile.hybrid.and_then(|hybrid| hybrid.efficient).context("it is not hybrid")?;
    let is_one = |&cpu: &usize| profile.of_cpu(cpu as u32, cpus as u32).name == wanted.name;
    (0..cpus).find(is_one).context("no CPU is an efficient core")
}
