//! Runs on libgc, of which a process has one: each is a process of its own, this program again.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use heap::Collector;
use heap::workload::Workload;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ModelArgs;
use crate::measure::{Done, Plan};

/// What the process is to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[arg(value_parser = crate::workload)]
    workload: Workload,
    #[arg(long)]
    scale: u32,
    #[arg(long)]
    library: String,
    #[arg(long)]
    limit_bytes: u32,
    #[arg(long)]
    iterations: u32,
    /// Only whether the heap suffices.
    #[arg(long)]
    fits: bool,
    #[command(flatten)]
    model: ModelArgs,
}

/// The process: prints what came of it, as JSON.
///
/// # Errors
/// There is no libgc.
pub(crate) fn main(options: &Options) -> Result<()> {
    let collector = Collector::Libgc(options.library.clone().leak());
    let plan = Plan::new(options.workload, options.scale, collector, options.limit_bytes)
        .repeated(options.iterations);
    if options.fits {
        return print(&plan.fits_here()?);
    }
    print(&plan.run_here(&options.model)?)
}

fn print(result: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(result)?);
    Ok(())
}

/// Runs a plan in a process of its own; `None` when the heap is too small.
///
/// # Errors
/// There is no libgc.
pub(crate) fn run(plan: &Plan, library: &str, model: &ModelArgs) -> Result<Option<Done>> {
    ensure!(plan.rules.is_none(), "libgc takes no advice");
    let number = |number: u64| number.to_string();
    let [interval, period] = [number(model.interval), number(model.period)];
    ask(plan, library, &["--profile", model.profile.name, "--interval", &interval, "--period", &period])
}

/// Whether the plan's heap suffices.
///
/// # Errors
/// There is no libgc.
pub(crate) fn fits(plan: &Plan, library: &str) -> Result<bool> {
    ask(plan, library, &["--fits"])
}

fn ask<T: DeserializeOwned>(plan: &Plan, library: &str, more: &[&str]) -> Result<T> {
    let number = |number: u32| number.to_string();
    let [scale, limit, iterations] = [plan.scale, plan.limit_bytes, plan.iterations].map(number);
    let output = Command::new(std::env::current_exe().context("asking where this program is")?)
        .args(["on-libgc", plan.workload.name(), "--library", library, "--scale", &scale])
        .args(["--limit-bytes", &limit, "--iterations", &iterations])
        .args(more)
        .output()
        .context("starting this program again")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        bail!("{}", said.strip_prefix("heap: ").unwrap_or(said));
    }
    serde_json::from_slice(&output.stdout).context("what the process on libgc printed")
}
