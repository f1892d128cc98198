//! `hpmctl doctor`: what this machine can do, what stands in the way, and what to do about it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use libhpm::machine::{Facts, Finding, Status, assess};
use libhpm::source::perf;
use serde::Serialize;

use crate::output::print;

/// Tell what this machine can do, what stands in the way, and what to do about it.
///
/// Exits with 0 when the hpm module can be used here, else with 1.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
}

/// What the JSON shows.
#[derive(Serialize)]
struct Report<'a> {
    usable: bool,
    /// How `stat` and `record` measure without the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    perf_event: Option<&'static str>,
    findings: &'a [Finding],
    facts: &'a Facts,
}

pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let facts = Facts::gather();
    let findings = assess(&facts);
    let usable = usable(&findings);
    if args.json {
        let report = Report { usable, perf_event: instead(), findings: &findings, facts: &facts };
        print(&serde_json::to_string_pretty(&report).context("cannot write JSON")?)?;
    } else {
        print(&text(&findings, instead()))?;
    }
    Ok(if usable { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usable(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.status != Status::Obstacle)
}

/// What measures where the module cannot.
fn instead() -> Option<&'static str> {
    match (perf::software(), perf::hardware()) {
        (Err(_), _) => None,
        (Ok(()), Ok(())) => Some("with the PMU's counters"),
        (Ok(()), Err(_)) => Some("with software events only, such as task-clock and page-faults"),
    }
}

/// A table of the findings, and the verdict; with obstacles, how perf_event measures `instead`.
fn text(findings: &[Finding], instead: Option<&str>) -> String {
    let mut table = Table::new();
    // Wrapped to the terminal's width; as it is when there is none.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    for finding in findings {
        let mark = match finding.status {
            Status::Ok => "ok",
            Status::Note => "note",
            Status::Obstacle => "OBSTACLE",
        };
        let text = match finding.advice.as_str() {
            "" => finding.what.clone(),
            advice => format!("{}\n-> {advice}", finding.what),
        };
        table.add_row([mark, finding.topic, &text]);
    }
    let obstacles = findings.iter().filter(|finding| finding.status == Status::Obstacle).count();
    let verdict = match obstacles {
        0 => "The hpm module can be used on this machine.".to_owned(),
        1 => "The hpm module cannot be used on this machine: one obstacle.".to_owned(),
        n => format!("The hpm module cannot be used on this machine: {n} obstacles."),
    };
    let instead = instead.filter(|_| obstacles > 0).map_or_else(String::new, |how| {
        format!("\n`hpmctl stat` and `hpmctl record` work all the same: by the kernel's perf_event, {how}.")
    });
    format!("{}\n\n{verdict}{instead}", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(status: Status, advice: &str) -> Finding {
        Finding { topic: "module", status, what: "hpm is not loaded".into(), advice: advice.into() }
    }

    #[test]
    fn obstacles_come_with_advice_and_a_verdict() {
        let findings = [
            finding(Status::Ok, ""),
            finding(Status::Note, "look at it"),
            finding(Status::Obstacle, "load it as root with `insmod hpm.ko`"),
        ];
        insta::assert_snapshot!(text(&findings, Some("with software events only")));
        assert!(!usable(&findings));
        assert!(usable(&findings[..2]));
    }
}
