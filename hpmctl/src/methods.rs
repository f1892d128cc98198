//! `hpmctl methods`: method-level phases of a program, in three steps.

mod begun;
mod exclude;
mod folder;
mod launch;
mod measure;
mod profile;
mod report;

mod select;
mod svg;
mod text;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use libhpm::call_log::{Clock, Counting};

/// Find the functions that make a program's phases, and measure them.
///
/// The program has to be compiled with `gcc -finstrument-functions` (or clang's), and linked dynamically.
#[derive(Args, Debug)]
pub(crate) struct MethodsArgs {
    #[command(subcommand)]
    step: Step,
}

#[derive(Subcommand, Debug)]
enum Step {
    Profile(profile::ProfileArgs),
    Select(select::SelectArgs),
    Measure(measure::MeasureArgs),
    Report(report::ReportArgs),
    Exclude(exclude::ExcludeArgs),
}

/// Values of `--clock`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ClockArg {
    /// The thread's cycles by the hpm module if it can be used, else its time on a CPU
    #[default]
    Auto,
    /// The thread's cycles in user mode, by the hpm module
    Cycles,
    /// The thread's time on a CPU
    Cpu,
    /// Real time by the TSC, waiting included
    Tsc,
}

impl From<ClockArg> for Clock {
    fn from(clock: ClockArg) -> Self {
        match clock {
            ClockArg::Auto => Self::Auto,
            ClockArg::Cycles => Self::Cycles,
            ClockArg::Cpu => Self::Cpu,
            ClockArg::Tsc => Self::Tsc,
        }
    }
}

/// Values of `--source`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum CountingArg {
    /// The hpm module where it can be used, else perf_event
    #[default]
    Auto,
    /// The hpm module's self-read counters
    Driver,
    /// perf_event, by a system call for each event that is read
    Perf,
}

impl From<CountingArg> for Counting {
    fn from(counting: CountingArg) -> Self {
        match counting {
            CountingArg::Auto => Self::Auto,
            CountingArg::Driver => Self::Driver,
            CountingArg::Perf => Self::Perf,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// What the step says.
pub(crate) fn run(args: &MethodsArgs) -> Result<ExitCode> {
    match &args.step {
        Step::Profile(args) => profile::run(args),
        Step::Select(args) => select::run(args).map(|()| ExitCode::SUCCESS),
        Step::Measure(args) => measure::run(args),
        Step::Report(args) => report::run(args).map(|()| ExitCode::SUCCESS),
        Step::Exclude(args) => exclude::run(args).map(|()| ExitCode::SUCCESS),
    }
}

/// A part of a whole: `1%`, `0.5 %`, or a number from 0 to 1.
fn part(text: &str) -> Result<f64, String> {
    let (digits, unit) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 100.0),
        None => (text, 1.0),
    };
    match digits.parse::<f64>() {
        Ok(number) if (0.0..=1.0).contains(&(number / unit)) => Ok(number / unit),
        _ => Err("neither a percentage, as 1%, nor a number from 0 to 1".into()),
    }
}

#[cfg(test)]
mod tests;
