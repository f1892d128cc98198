//! Last branch records: of programs whose branches are known, of a program of many threads, as call stacks, in a session
//! that sees the kernel and in one that may not; and what is left of them afterwards.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use libhpm::symbol::KERNEL_START;
use libhpm::trace::{SampleRow, StackRow, TraceReader};
use serde_json::Value;

use super::GuestReport;
use super::bad_input::refused;
use super::lifecycle::{settled_registers, unchanged};
use super::processor::{BranchRecords, LOADS, branch_records, profile};
use super::programs::{built, hpmctl, record_of, record_with, succeed};
use super::scopes::{as_nobody, open_to_nobody};

/// Traces with branches of all types, which the host part compares with the truth.
pub(crate) const TRACES: [&str; 2] = ["branches.hpm", "threads.hpm"];
/// A trace with the calls of [`super::stacks`]'s program, and one of calls deeper than the records go.
pub(crate) const CALLS: &str = "lbr";
pub(crate) const DEEP: &str = "deep.hpm";
/// Branches that `branches` takes in each round.
const ROUND: usize = 6;

/// Records all of it, and checks what needs no truth.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let before = settled_registers()?;
    succeed(record_loads(TRACES[0], &["--branches"])?.arg(built("branches")?))?;
    succeed(
        record_loads(TRACES[1], &["--branches"])?
            .arg(built("threads")?)
            .args(["2", "200"])
            .stdout(Stdio::null()),
    )?;
    let BranchRecords { depth, follow_calls } = branch_records(profile()?)?;
    if follow_calls {
        succeed(record_with(&format!("{CALLS}.hpm"), &["--stacks=lbr"])?.arg(built("calls")?))?;
        succeed(record_loads(DEEP, &["--stacks=lbr"])?.arg(built("branches")?))?;
    } else {
        report.check("stacks of records that cannot follow calls are refused", || {
            let mut command = record_loads(DEEP, &["--stacks=lbr"])?;
            command.arg("true");
            refused(command, "call")
        });
    }
    report.check("report shows the loop's branches equally often", loops_branches);
    report.check("only the types asked for are recorded", only_calls);
    report.check("samples by interrupt have the branches before them", by_interrupt);
    report.check("a session that sees the kernel has the kernel's branches", || kernels_branches(depth));
    report.check("a user's session never has an address of the kernel", || no_kernel_address(follow_calls));
    report.check("a filter that nothing passes is refused", || {
        let mut command = record_loads("far.hpm", &["--branches", "--branch-types", "far"])?;
        command.arg("true");
        refused(command, "")
    });
    report.check("every branch register is as it was", || unchanged(&before));
    Ok(())
}

/// As [`record_with`], of loads: whether they miss does not matter, and the model follows no caches for them.
fn record_loads(trace: &str, options: &[&str]) -> Result<Command> {
    record_of(LOADS, trace, options)
}

fn rows<R: libhpm::trace::Row>(trace: &str) -> Result<Vec<R>> {
    let reader = TraceReader::open(trace).with_context(|| format!("opening {trace}"))?;
    Ok(reader.rows::<R>().collect())
}

/// From and to of each branch record of each sample.
fn ends(trace: &str) -> Result<Vec<Vec<(u64, u64)>>> {
    let pairs = |row: &SampleRow| -> Vec<(u64, u64)> {
        let (entries, _) = row.branches.as_deref().unwrap_or_default().as_chunks::<3>();
        entries.iter().map(|&[from, to, _]| (from, to)).collect()
    };
    Ok(rows::<SampleRow>(trace)?.iter().map(pairs).collect())
}

/// A round's branches stand in the records of its samples in turn, so that their numbers differ by one for each sample.
fn loops_branches() -> Result<String> {
    let words = ["report", "--by", "branch", "--json", TRACES[0]];
    let report: Value = serde_json::from_slice(&succeed(&mut hpmctl(&words)?)?.stdout)?;
    let branches = &report["branches"];
    let counts: Vec<u64> = branches["entries"]
        .as_array()
        .context("no branches in the report")?
        .iter()
        .filter_map(|entry| entry["count"].as_u64())
        .collect();
    ensure!(counts.len() > ROUND, "only {} branches", counts.len());
    let samples = rows::<SampleRow>(TRACES[0])?.len() as u64;
    let (loops, others) = counts.split_at(ROUND);
    ensure!(loops[0] - loops[ROUND - 1] <= samples, "the loop's branches stand there {loops:?} times");
    ensure!(others[0] < loops[ROUND - 1] / 2, "another branch stands there {} times", others[0]);
    let names = ["direct", "indirect"];
    let found = |end: &str, name: &str| {
        branches["entries"].as_array().is_some_and(|all| {
            all.iter().take(ROUND).any(|entry| entry[end]["function"].as_str() == Some(name))
        })
    };
    for name in names {
        ensure!(found("from", name) && found("to", name), "no branch to and from {name} among the first");
    }
    Ok(format!("{loops:?} of {}", branches["all"]))
}

/// Calls of `branches`: three places, of which two are in the loop.
fn only_calls() -> Result<String> {
    let trace = "only_calls.hpm";
    let options = ["--branches=8", "--branch-types", "call,indirect-call"];
    succeed(record_loads(trace, &options)?.arg(built("branches")?))?;
    let ends = ends(trace)?;
    let mut places: Vec<u64> = ends.iter().flatten().map(|(from, _)| *from).collect();
    ensure!(ends.iter().filter(|sample| sample.len() == 8).count() * 10 > ends.len() * 9, "too few records");
    places.sort_unstable();
    places.dedup();
    ensure!(places.len() <= 4, "calls at {places:x?}");
    Ok(format!("{} samples, calls at {} places", ends.len(), places.len()))
}

/// Between the newest branch's target and where the interrupt found the program lies no branch.
fn by_interrupt() -> Result<String> {
    let trace = "interrupt.hpm";
    let options = ["--imprecise", "--branches"];
    succeed(record_loads(trace, &options)?.arg(built("branches")?))?;
    let samples = rows::<SampleRow>(trace)?;
    ensure!(samples.len() > 100, "{} samples", samples.len());
    for (sample, branches) in samples.iter().zip(ends(trace)?) {
        let (_, to) = branches.first().context("a sample has no branches")?;
        let distance = sample.ip.wrapping_sub(*to);
        ensure!(distance < 64, "{:#x} is no code that begins at {to:#x}", sample.ip);
    }
    Ok(format!("{} samples", samples.len()))
}

/// Of 16 records few hold a way in or out, so that it takes more samples; but with one in 1009 loads a debug kernel on two CPUs was seen to
/// come to nothing else.
fn kernels_branches(depth: usize) -> Result<String> {
    let trace = "kernel.hpm";
    let period = if depth > 16 { "10007" } else { "1009" };
    let words = ["record", "-e", "load", "-c", period, "--branches", "-o", trace, "--"];
    let mut command = hpmctl(&words)?;
    succeed(command.args(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=300"]))?;
    let ends = ends(trace)?;
    let kernel = |address: u64| address >= KERNEL_START;
    let [mut within, mut into, mut back] = [0; 3];
    for &(from, to) in ends.iter().flatten() {
        match (kernel(from), kernel(to)) {
            (true, true) => within += 1,
            (false, true) => into += 1,
            (true, false) => back += 1,
            _ => {}
        }
    }
    ensure!(within > 0 && into > 0 && back > 0, "{within} in the kernel, {into} into it, {back} back");
    Ok(format!("{within} in the kernel, {into} into it, {back} back"))
}

/// As nobody, of a program that is in the kernel half of its time.
fn no_kernel_address(follow_calls: bool) -> Result<String> {
    open_to_nobody()?;
    let mut seen = 0;
    let calls = follow_calls.then_some(("nobodys_calls", "--stacks=lbr"));
    for (name, option) in [("nobody", "--branches")].into_iter().chain(calls) {
        let trace = format!("/tmp/nobody/{name}.hpm");
        let words = ["record", "-e", LOADS, "-c", "307", option, "-o", &trace, "--"];
        let mut command: Command = as_nobody(hpmctl(&words)?);
        succeed(
            command
                .args(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=1000"])
                .current_dir("/tmp/nobody"),
        )?;
        let stacks = rows::<StackRow>(&trace)?.into_iter().flat_map(|stack| stack.frames);
        let ends = ends(&trace)?;
        let ends = ends.iter().flatten().flat_map(|&(from, to)| [from, to]);
        let addresses: Vec<u64> = stacks.chain(ends).collect();
        ensure!(!addresses.is_empty(), "{name}: nothing was recorded");
        let kernel = addresses.iter().find(|address| **address >= KERNEL_START);
        ensure!(kernel.is_none(), "{name}: {:#x} is the kernel's", kernel.unwrap_or(&0));
        seen += addresses.len();
        fs::remove_dir_all(&trace)?;
    }
    Ok(format!("{seen} addresses"))
}
