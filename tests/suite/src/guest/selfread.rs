//! Threads that read their own counters, and are read by others, while they are moved about.

use anyhow::{Context, Result};
use std::process::Command;

use super::GuestReport;
use super::programs::{built, succeed};

/// More events than there are counters, so that perf uses each.
const ALL_COUNTERS: &str =
    "instructions:u,cycles:u,ref-cycles:u,branches:u,r01c4:u,r81d0:u,r82d0:u,r20d1:u,r08d1:u";

/// Runs the self-reading program plainly, beside PEBS, and with more events than counters.
pub(super) fn run(report: &mut GuestReport) {
    report.check("perf leaves values in the counters that it zeroes later", || {
        succeed(Command::new("perf").args(["stat", "-a", "-e", ALL_COUNTERS, "--"]).arg(built("loops")?))?;
        Ok(String::new())
    });
    for (mode, rounds, how) in [
        ("plain", "2000", "under migration and pre-emption"),
        ("pebs", "2000", "while PEBS writes records of another event"),
        // Fifty times as long.
        ("turns", "1000", "with events that take turns"),
        ("revoked", "2000", "while RDPMC is taken from every process"),
    ] {
        report.check(&format!("threads read themselves exactly {how}"), || read("selfread", &[mode, rounds]));
    }
    // A round takes a third of a second in the lab.
    report.check("a thread that runs is read exactly by another", || read("outside", &["60"]));
}

/// Runs a program that says what is wrong, and fails then.
fn read(program: &str, words: &[&str]) -> Result<String> {
    let output = succeed(Command::new(built(program)?).args(words))?;
    let text = String::from_utf8(output.stdout).context("its output")?;
    Ok(text.trim().to_owned())
}
