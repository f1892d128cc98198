//! What was measured: bottlenecks, variability within and between phases, and components.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use libhpm::analysis::method::statistics::{Anova, FiveNumbers, Within, anova, mean_and_deviation};
use libhpm::analysis::method::{
    Bottlenecks, CallEvent, CallMatcher, Calls, Component, Counts, Invocation, MAX_COUNTS, Merged,
    Observation, Run, base, bottlenecks, components, merge, take_common_privilege,
};
use libhpm::call_log::{CallLog, Functions, logs};
use serde::Serialize;

use super::folder::{FunctionRow, ProfileFile, RunFile, SelectionFile, read_profile, read_selection, runs};
use super::{svg, text};
use crate::output::{print, warn};
use crate::picture;

/// Show where the program's time goes, which phases are bottlenecks and why, and how far phases vary.
#[derive(Args, Debug)]
pub(super) struct ReportArgs {
    /// Leave out phases with less than this part of the time
    #[arg(long, default_value = "1%", value_name = "PART", value_parser = super::part)]
    least: f64,
    /// Also draw box plots of the phases, and their behaviour over time, into this file, NAME.svg or NAME.png
    #[arg(long, value_name = "FILE", value_parser = crate::picture::file)]
    picture: Option<PathBuf>,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    /// The folder with a profile, a selection and measured runs
    #[arg(value_name = "NAME.methods")]
    folder: PathBuf,
}

/// Everything that the text, the JSON and the picture show.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) command: Vec<String>,
    /// What times of step 1 are of.
    pub(super) clock: String,
    pub(super) modules: Vec<Component>,
    pub(super) threads: Vec<Component>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) selection: Option<SelectionFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) measured: Option<Measured>,
    pub(super) warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) picture: Option<PathBuf>,
}

/// Step 3's part.
#[derive(Serialize)]
pub(super) struct Measured {
    pub(super) runs: usize,
    /// Runs that counted each event; their means are what is shown.
    pub(super) runs_by_event: BTreeMap<String, u32>,
    /// How events were counted, in words.
    pub(super) counting: String,
    /// How much longer runs took than those without the shim, if there were such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) real_overhead: Option<f64>,
    /// Of the functions that the bottlenecks name by their numbers.
    pub(super) names: BTreeMap<u32, String>,
    pub(super) phases: Vec<Phase>,
    pub(super) bottlenecks: Bottlenecks,
    pub(super) variability: Vec<Variability>,
}

/// A phase's measurements.
#[derive(Serialize)]
pub(super) struct Phase {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u32>,
    pub(super) share: f64,
    pub(super) calls: f64,
    pub(super) metrics: Vec<PhaseMetric>,
}

/// One metric of a phase: a value for each of its invocations.
#[derive(Serialize)]
pub(super) struct PhaseMetric {
    pub(super) metric: String,
    pub(super) mean: f64,
    /// Null of a single invocation.
    pub(super) deviation: f64,
    pub(super) numbers: FiveNumbers,
    /// When each invocation began, in ms, and its value.
    pub(super) over_time: Vec<(f64, f64)>,
}

/// How far a metric varies within phases, and between them (Table 4, Figure 5).
#[derive(Serialize)]
pub(super) struct Variability {
    pub(super) metric: String,
    /// Null where no phase has two measurements.
    pub(super) cov_within: f64,
    /// The part of the phases' time in those with fewer: `cov_within` is without them.
    pub(super) left_out: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) anova: Option<Anova>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) no_anova: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// There is no profile, or the output cannot be written.
pub(super) fn run(args: &ReportArgs) -> Result<()> {
    let report = report(args)?;
    if let Some(path) = &args.picture {
        let Some(measured) = &report.measured else {
            bail!("nothing has been measured that could be drawn: run `hpmctl methods measure`");
        };
        picture::write(path, |file| file.write_all(svg::draw(&report.command, measured).as_bytes()))?;
    }
    warn(&report.warnings);
    let output = if args.json { serde_json::to_string_pretty(&report)? } else { text::report(&report) };
    print(output.trim_end())
}

/// Makes the report.
pub(super) fn report(args: &ReportArgs) -> Result<Report> {
    let profile = read_profile(&args.folder)?;
    let selection = read_selection(&args.folder)?;
    let runs = runs(&args.folder)?;
    let mut warnings = super::profile::warnings(&profile);
    let measured = if runs.iter().any(|(_, run)| !run.baseline) {
        Some(measured(&profile, &runs, args.least, &mut warnings)?)
    } else {
        None
    };
    let module =
        |row: &FunctionRow| profile.modules.get(row.module).map_or("", |module| module.path.as_str());
    let of_module = profile.functions.iter().map(|row| (module(row), row.own, row.calls));
    let of_thread = profile.threads.iter().map(|row| (row.name.as_str(), row.total, row.calls));
    Ok(Report {
        clock: profile.clock.clone(),
        modules: components(of_module),
        threads: components(of_thread),
        command: profile.command.clone(),
        selection,
        measured,
        warnings,
        picture: args.picture.clone(),
    })
}

/// What is known of a run beside its invocations.
struct Read {
    run: Run,
    counting: String,
    lost: u64,
}

fn measured(
    profile: &ProfileFile,
    runs: &[(PathBuf, RunFile)],
    least: f64,
    warnings: &mut Vec<String>,
) -> Result<Measured> {
    let read: Vec<Read> = runs
        .iter()
        .filter(|(_, run)| !run.baseline)
        .map(|(folder, _)| read_run(folder, profile))
        .collect::<Result<_>>()?;
    let lost: u64 = read.iter().map(|read| read.lost).sum();
    if lost > 0 {
        warnings.push(format!("{lost} entries and exits of measured runs are lost"));
    }
    if runs.iter().any(|(_, run)| run.status != profile.status) {
        warnings.push("some runs ended with another status than the profiled one".to_owned());
    }
    let mut counting = read.first().map(|read| read.counting.clone()).unwrap_or_default();
    let mut runs_of: Vec<Run> = read.into_iter().map(|read| read.run).collect();
    counting += privileges(&mut runs_of);
    let merged = merge(&runs_of, base(&runs_of));
    let differs = merged.phases.iter().filter(|phase| phase.differs).count();
    if differs > 0 {
        warnings.push(format!(
            "{differs} phases had other numbers of calls in other runs: their single calls are those of one run, not averaged"
        ));
    }
    let bottlenecks = bottlenecks(&merged, least);
    let name = |function: u32| profile.functions[function as usize].name.clone();
    Ok(Measured {
        runs: runs_of.len(),
        runs_by_event: merged.runs.clone(),
        counting,
        real_overhead: real_overhead(runs),
        names: merged.phases.iter().map(|phase| (phase.function, name(phase.function))).collect(),
        phases: phases(profile, &merged),
        variability: variability(&merged),
        bottlenecks,
    })
}

/// In which modes events were counted, in words; their names tell it only where they differ in that.
fn privileges(runs: &mut [Run]) -> &'static str {
    let counted = runs.iter().any(|run| !run.events.is_empty());
    match take_common_privilege(runs) {
        Some((true, false)) => ", of user mode alone",
        Some((false, true)) => ", of kernel mode alone",
        None if counted => ", of user mode alone with :u, of kernel mode alone with :k, of both without",
        _ => "",
    }
}

/// How much longer runs with the shim took, as a part.
fn real_overhead(runs: &[(PathBuf, RunFile)]) -> Option<f64> {
    let mean = |baseline: bool| {
        let times: Vec<f64> =
            runs.iter().filter(|(_, run)| run.baseline == baseline).map(|(_, run)| run.wall_ms).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    };
    Some(mean(false)? / mean(true)? - 1.0)
}

/// Metrics: for each event other than the base its name and by what single values are multiplied.
fn metrics(merged: &Merged) -> Vec<(&str, String, f64)> {
    let of = |name: &String| match merged.base_of(name) {
        Some(base) if base == name => None,
        Some(_) if merged.is_cpi(name) => Some(("CPI".to_owned(), 1.0)),
        Some(base) => Some((format!("{name} per 1,000 {base}"), 1000.0)),
        None => Some((format!("{name} per ms"), 1.0)),
    };
    merged
        .events
        .iter()
        .filter_map(|name| of(name).map(|(label, factor)| (name.as_str(), label, factor)))
        .collect()
}

fn phases(profile: &ProfileFile, merged: &Merged) -> Vec<Phase> {
    let metrics = metrics(merged);
    let phase = |phase: &libhpm::analysis::method::PhaseData| {
        let row = &profile.functions[phase.function as usize];
        let of = |(name, label, factor): &(&str, String, f64)| {
            let values: Vec<f64> = phase.rates.get(*name)?.iter().map(|value| value * factor).collect();
            let numbers = FiveNumbers::of(&values)?;
            let (mean, deviation) = mean_and_deviation(&values);
            let begins = phase.begins.get(*name)?.iter().map(|ns| *ns as f64 / 1e6);
            let over_time = begins.zip(values).collect();
            Some(PhaseMetric { metric: label.clone(), mean, deviation, numbers, over_time })
        };
        Phase {
            name: row.name.clone(),
            file: row.file.clone(),
            line: row.line,
            share: phase.time_ns / merged.whole_ns,
            calls: phase.calls,
            metrics: metrics.iter().filter_map(of).collect(),
        }
    };
    merged.phases.iter().map(phase).collect()
}

fn variability(merged: &Merged) -> Vec<Variability> {
    let of = |(name, label, _): (&str, String, f64)| {
        let rates = |phase: &'_ libhpm::analysis::method::PhaseData| phase.rates.get(name).cloned();
        let values: Vec<(f64, Vec<f64>)> =
            merged.phases.iter().filter_map(|phase| Some((phase.time_ns, rates(phase)?))).collect();
        let groups: Vec<&[f64]> = values.iter().map(|(_, values)| values.as_slice()).collect();
        let analysed = anova(&groups);
        let within = Within::of(values.iter().map(|(time, values)| (*time, values.as_slice())));
        Variability {
            metric: label,
            cov_within: within.cov,
            left_out: within.left_out,
            no_anova: analysed.as_ref().err().map(ToString::to_string),
            anova: analysed.ok(),
        }
    };
    metrics(merged).into_iter().map(of).collect()
}

/// Reads what a run logged.
fn read_run(folder: &Path, profile: &ProfileFile) -> Result<Read> {
    let mut read = Read { run: Run::default(), counting: String::new(), lost: 0 };
    let mut functions = Functions::default();
    let logs = logs(folder)?;
    let logs: Vec<CallLog<'_>> = logs.threads().collect::<libhpm::Result<_>>()?;
    let mut begin = u64::MAX;
    let mut threads = Vec::new();
    for (number, mut log) in (0..).zip(logs) {
        let mut thread = Thread::new(number, &log);
        let mut matcher = CallMatcher::new();
        let (mut first, mut last): (Option<CallEvent>, Option<CallEvent>) = (None, None);
        while let Some(event) = log.next(&mut functions) {
            first.get_or_insert(event);
            last = Some(event);
            matcher.push(&event, &mut thread);
        }
        matcher.finish(&mut thread);
        read.lost += log.lost;
        read.counting.clone_from(&log.header.counting);
        let Some((first, last)) = first.zip(last) else { continue };
        read.run.whole_ns +=
            thread.ns(last.time - first.time, last.counts[0].saturating_sub(first.counts[0]));
        let counted = last.counts.iter().zip(&first.counts).skip(1);
        for (sum, (last, first)) in read.run.whole.iter_mut().zip(counted) {
            *sum += last.saturating_sub(*first);
        }
        begin = begin.min(first.counts[0]);
        read.run.events = log.header.events.iter().skip(1).cloned().collect();
        threads.push(thread);
    }
    let known: Vec<Option<u32>> =
        functions.keys().iter().map(|key| profile.number(&key.module, key.offset)).collect();
    for thread in threads {
        for (mut seen, tsc) in thread.seen {
            let Some(function) = known[seen.function as usize] else { continue };
            seen.function = function;
            seen.at_ns = (tsc.saturating_sub(begin) as f64 / thread.tsc_per_ms * 1e6) as u64;
            read.run.observations.push(seen);
        }
    }
    Ok(read)
}

/// Takes a thread's invocations, with the TSC at which each began.
struct Thread {
    number: u32,
    ticks_per_ms: Option<f64>,
    tsc_per_ms: f64,
    seen: Vec<(Observation, u64)>,
}

impl Thread {
    fn new(number: u32, log: &CallLog<'_>) -> Self {
        let (ticks_per_ms, tsc_per_ms) = (log.header.ticks_per_ms, log.header.tsc_per_ms);
        Self { number, ticks_per_ms, tsc_per_ms, seen: vec![] }
    }

    /// A time in ns. Cycles have no fixed length: of them the TSC tells it.
    fn ns(&self, ticks: u64, tsc: u64) -> f64 {
        match self.ticks_per_ms {
            Some(per_ms) => ticks as f64 / per_ms * 1e6,
            None => tsc as f64 / self.tsc_per_ms * 1e6,
        }
    }
}

impl Calls for Thread {
    fn enter(&mut self, _caller: Option<usize>, _function: u32) -> usize {
        0
    }

    fn leave(&mut self, _number: usize, invocation: &Invocation) {
        let mut counts: Counts = [0; MAX_COUNTS];
        counts[..MAX_COUNTS - 1].copy_from_slice(&invocation.counts[1..]);
        let seen = Observation {
            function: invocation.function,
            thread: self.number,
            at_ns: 0,
            time_ns: self.ns(invocation.total, invocation.counts[0]),
            outermost: invocation.outermost,
            counts,
        };
        self.seen.push((seen, invocation.before[0]));
    }
}
