//! The outside judge: Linux's own driver and Debian's perf on the modelled PMU, without hpm.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::GuestReport;
use super::programs::{PERIOD, built, succeed};

/// perf's events in the order of [`super::counting`]'s: instructions, branches, loads and stores in user mode.
const EVENTS: &str = "instructions:u,branches:u,cpu/event=0xd0,umask=0x81/u,cpu/event=0xd0,umask=0x82/u";

/// Counts the loops and samples the strides with perf.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    report.fact("loops1", counts(&[])?);
    report.fact("loops3", counts(&["x", "x"])?);
    report.fact("strides1", samples()?);
    Ok(())
}

/// `perf stat -x,`: a line per event, the count first.
fn counts(arguments: &[&str]) -> Result<Value> {
    let output = succeed(
        Command::new("perf")
            .args(["stat", "-x,", "-e", EVENTS, "--"])
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

/// `perf record` by PEBS of L1 misses, then the instruction, symbol and data address of each sample.
fn samples() -> Result<Value> {
    let period = PERIOD.to_string();
    succeed(
        Command::new("perf")
            .args(["record", "-q", "-d", "-c", &period, "-o", "perf.data"])
            .args(["-e", "cpu/event=0xd1,umask=0x08/upp", "--"])
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
