//! Programs that nobody here wrote: what hpmctl advises for their objects, and what they miss once it is followed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GuestReport;
use super::programs::{c_program, hpmctl, record_each, succeed};
use super::truth::Sums;

/// A program, which the host has compiled as it is and with the advice followed.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    arguments: &'static [&'static str],
    /// Misses to a sample: a prime, so that some hundred samples come of a run.
    period: u64,
}

/// All of them.
pub(crate) const PROGRAMS: [Program; 2] = [
    // Every definition of the units is reduced, by names in a hash table.
    Program { name: "units", arguments: &["--check", "-f", "definitions.units"], period: 1009 },
    // Numbers of an array are sorted.
    Program { name: "bc", arguments: &["-q", "sort.bc"], period: 101 },
];
/// As its authors wrote it, and with what was advised.
pub(crate) const BUILDS: [&str; 2] = ["plain", "advised"];
/// Each build is run so often: every run lies elsewhere in memory, and misses a little more or less by that.
const RUNS: usize = 2;

/// What came of a program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// What `hpmctl coalloc --json` says of it as it is.
    pub(crate) report: Value,
    /// What the machine did in each run of each of [`BUILDS`].
    pub(crate) runs: [Vec<Sums>; 2],
    /// All runs printed the same.
    pub(crate) same_output: bool,
}

/// Each program leaves a fact.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    for program in &PROGRAMS {
        let found = found(program).with_context(|| format!("advice for {}", program.name))?;
        report.fact(program.name, serde_json::to_value(found)?);
    }
    Ok(())
}

fn found(program: &Program) -> Result<Found> {
    let builds = BUILDS.map(|build| c_program(&format!("{}.{build}", program.name)));
    let [plain, advised] = builds;
    let (plain, advised) = (plain?, advised?);
    let trace = format!("{}.hpm", program.name);
    // Branch records tell where strings that strcmp misses came from.
    let mut record =
        record_each("l1d-load-miss:u", program.period, &trace, &["--allocations", "--branches"])?;
    let recorded = succeed(as_run(record.arg(&plain), program))?.stdout;
    let json = succeed(&mut hpmctl(&["coalloc", "--json", &trace])?)?.stdout;
    let mut found = Found {
        report: serde_json::from_slice(&json).context("hpmctl coalloc printed no JSON")?,
        runs: Default::default(),
        same_output: true,
    };
    for _ in 0..RUNS {
        for (build, runs) in [&plain, &advised].into_iter().zip(&mut found.runs) {
            let (sums, printed) = measured(build, program)?;
            runs.push(sums);
            found.same_output &= !printed.is_empty() && recorded.ends_with(&printed);
        }
    }
    Ok(found)
}

fn measured(build: &Path, program: &Program) -> Result<(Sums, Vec<u8>)> {
    let mut command = Command::new(build);
    as_run(&mut command, program);
    let before = Sums::now()?;
    let output = command.output();
    let sums = Sums::now()? - before;
    let output = output.with_context(|| format!("starting {}", build.display()))?;
    ensure!(output.status.success(), "{} ended with {}", build.display(), output.status);
    Ok((sums, output.stdout))
}

fn as_run<'a>(command: &'a mut Command, program: &Program) -> &'a mut Command {
    command.args(program.arguments).env("LC_ALL", "C").stdin(Stdio::null())
}
