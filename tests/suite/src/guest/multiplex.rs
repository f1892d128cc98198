//! More events than counters: refused, or on request counted in turns.

use anyhow::{Result, ensure};

use super::bad_input::refused;
use super::processor::profile;
use super::programs::{built, hpmctl, succeed};
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
    report.fact(COUNTS, serde_json::from_slice(&std::fs::read("turns.json")?)?);
    report.check("the text says in how much of the time each was counted", || {
        let text = String::from_utf8(stat(&[])?.stderr)?;
        let labelled = text.lines().filter(|line| line.contains("% of the time")).count();
        ensure!(labelled >= 6 && text.contains("are scaled"), "it says:\n{text}");
        Ok(format!("{labelled} events"))
    });
    Ok(())
}
