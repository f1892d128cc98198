//! Threads that read their own counters, and are read by others, while they are moved about.

use anyhow::{Context, Result};
use std::process::Command;

use super::GuestReport;
use super::programs::{built, succeed};

/// Runs the self-reading program plainly, beside PEBS, and with more events than counters.
pub(super) fn run(report: &mut GuestReport) {
    for (mode, how) in [
        ("plain", "under migration and pre-emption"),
        ("pebs", "while PEBS writes records of another event"),
        ("turns", "with events that take turns"),
    ] {
        report.check(&format!("threads read themselves exactly {how}"), || read(mode));
    }
}

fn read(mode: &str) -> Result<String> {
    let output = succeed(Command::new(built("selfread")?).args([mode, "2000"]))?;
    let text = String::from_utf8(output.stdout).context("its output")?;
    Ok(text.trim().to_owned())
}
