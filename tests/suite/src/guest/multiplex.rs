//! More events than counters: refused, or on request counted in turns.

use anyhow::{Result, ensure};

use super::GuestReport;
use super::bad_input::refused;
use super::programs::{built, hpmctl, succeed};

/// Three events, each several times over, of which no processor has counters for all: the same event must come to the same. One
/// instruction counter may be a fixed one, the others need a general one each.
const EVENTS: &str = "instructions:u,branch:u,load:u,cpu/event=0xc0/u,cpu/event=0xc4/u,load:u,cpu/event=0xc0/u,cpu/event=0xc4/u,\
    load:u,cpu/event=0xc0/u,cpu/event=0xc4/u";

/// Counts a steady program with too many events.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let program = built("strides")?;
    report.check("without --multiplex they are refused", || {
        let mut command = hpmctl(&["stat", "-e", EVENTS, "--"])?;
        command.arg(&program);
        refused(command, "--multiplex")
    });
    let arguments = ["x"; 7];
    let stat = |options: &[&str]| -> Result<std::process::Output> {
        let mut command = hpmctl(&["stat", "--multiplex", "-e", EVENTS])?;
        succeed(command.args(options).arg("--").arg(&program).args(arguments))
    };
    stat(&["--json", "-o", "turns.json"])?;
    report.fact("strides8", serde_json::from_slice(&std::fs::read("turns.json")?)?);
    report.check("the text says in how much of the time each was counted", || {
        let text = String::from_utf8(stat(&[])?.stderr)?;
        let labelled = text.lines().filter(|line| line.contains("% of the time")).count();
        ensure!(labelled >= 6 && text.contains("are scaled"), "it says:\n{text}");
        Ok(format!("{labelled} events"))
    });
    Ok(())
}
