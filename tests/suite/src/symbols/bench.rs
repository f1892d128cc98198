//! How fast hpm and perf read the same file of `perf record`, one after the other on the same machine.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};

use super::programs::Programs;

/// Recorded samples of the Rust program, at least.
const SAMPLES: usize = 20_000;

/// What a command took.
struct Cost {
    wall: Duration,
    /// User and system time of it and its children.
    cpu: Duration,
}

/// Prints a table for `docs/measurements.md`.
///
/// # Errors
/// A command fails.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let programs = Programs::make(root)?;
    let hpmctl = root.join("target/release/hpmctl");
    ensure!(hpmctl.exists(), "build hpmctl first: cargo build --release -p hpmctl");
    println!(
        "| what | tool | samples | wall | CPU | samples/s of CPU | hpm is |\n|---|---|---|---|---|---|---|"
    );
    let (_, data) = programs.record("words", SAMPLES)?;
    let path = data.to_str().context("the path is not UTF-8")?;
    let samples = programs.samples(&data)?;
    let report = cost(&hpmctl, &["report", path])?;
    row("function, line and inlined calls of each sample", "hpmctl report", samples, &report, None);
    let others = [
        (
            "perf report --sort sym,srcline",
            &["report", "--stdio", "--sort", "sym,srcline", "--input", path][..],
        ),
        ("perf script -F ip,sym,srcline", &["script", "--fields", "ip,sym,srcline", "--input", path]),
        (
            "perf report (functions only, nothing inlined)",
            &["report", "--stdio", "--sort", "sym", "--input", path],
        ),
        ("perf script (functions only, nothing inlined)", &["script", "--fields", "ip,sym", "--input", path]),
    ];
    for (tool, arguments) in others {
        let other = cost(&programs.perf, arguments)?;
        row("the same", tool, samples, &other, Some(&report));
    }
    let stacks = programs.record_stacks(SAMPLES)?;
    let path = stacks.to_str().context("the path is not UTF-8")?;
    let samples = programs.stacks(&stacks)?;
    let report = cost(&hpmctl, &["report", path])?;
    row("unwound stacks with inlined calls", "hpmctl report", samples, &report, None);
    for (tool, arguments) in [
        (
            "perf report -g",
            &["report", "--stdio", "--no-children", "--call-graph", "caller", "--input", path][..],
        ),
        ("perf script", &["script", "--fields", "ip,sym", "--input", path]),
        ("perf script -F +srcline", &["script", "--fields", "ip,sym,srcline", "--input", path]),
    ] {
        let other = cost(&programs.perf, arguments)?;
        row("the same", tool, samples, &other, Some(&report));
    }
    Ok(ExitCode::SUCCESS)
}

fn cost(program: &Path, arguments: &[&str]) -> Result<Cost> {
    let used = || -> Result<Duration> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
        let time = |time: nix::sys::time::TimeVal| {
            Duration::from_secs(time.tv_sec() as u64) + Duration::from_micros(time.tv_usec() as u64)
        };
        Ok(time(usage.user_time()) + time(usage.system_time()))
    };
    let (began, before) = (Instant::now(), used()?);
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    ensure!(status.success(), "{} {} ended with {status}", program.display(), arguments.join(" "));
    Ok(Cost { wall: began.elapsed(), cpu: used()?.saturating_sub(before) })
}

fn row(what: &str, tool: &str, samples: usize, cost: &Cost, hpm: Option<&Cost>) {
    let rate = samples as f64 / cost.cpu.as_secs_f64();
    let ratio = hpm.map_or_else(String::new, |hpm| {
        format!("{:.1} times as fast", cost.cpu.as_secs_f64() / hpm.cpu.as_secs_f64())
    });
    println!(
        "| {what} | `{tool}` | {samples} | {:.2} s | {:.2} s | {rate:.0} | {ratio} |",
        cost.wall.as_secs_f64(),
        cost.cpu.as_secs_f64()
    );
}
