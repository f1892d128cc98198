//! `hpmctl phases`: the repetitive phases of a recorded trace, or why there are none.

mod svg;
mod text;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use libhpm::analysis::phase::change::{Cusum, pelt};
use libhpm::analysis::phase::metrics::{Quality, evaluate, groups, levels, weighted_cov};
use libhpm::analysis::phase::{
    Base, ByChance, Interval, MAX_EVENTS, NoPhases, Phases, Repeating, Rules, Signal, Subject, SubjectKind,
    find_phases, subjects, usual_event,
};
use libhpm::export::quanta_remarks;
use libhpm::trace::{Meta, QuantumRow, ThreadRow, TraceReader};
use serde::Serialize;

use crate::opened::{how_unfinished, open_trace};
use crate::output::{print, warn};
use crate::picture;
use crate::report::text::measured;

/// Show how a program's behaviour repeats: patterns in how often events happen, and when each comes back.
#[derive(Args, Debug)]
pub(crate) struct PhasesArgs {
    /// Look at this event [default: the trace's first that is no clock]; several are looked at together
    #[arg(short, long = "event", value_name = "NAME")]
    events: Vec<String>,
    /// Relate events to this one, instead of to time on a CPU
    #[arg(long, value_name = "NAME")]
    per: Option<String>,
    /// Time on a CPU that makes an interval, in ms; quanta are not split
    #[arg(long, default_value_t = 1.0, value_name = "MS", value_parser = interval)]
    interval: f64,
    /// Whose phases
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Show at most this many threads or processes, and patterns of each
    #[arg(long, default_value_t = 10, value_name = "N")]
    limit: usize,
    /// Also draw phases over time into this file, NAME.svg or NAME.png
    #[arg(long, value_name = "FILE", alias = "svg", value_parser = crate::picture::file)]
    picture: Option<PathBuf>,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
}

/// Values of `--by`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum By {
    #[default]
    Thread,
    Process,
}

/// Everything that the text, the JSON and the picture show.
#[derive(Serialize)]
struct Report<'a> {
    command: &'a [String],
    /// What was measured, after the word for it.
    #[serde(skip)]
    measured: (&'static str, String),
    events: Vec<&'a str>,
    /// The event that densities are related to; time when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<&'a str>,
    subjects: Vec<Found>,
    /// Threads or processes that are not shown.
    left_out: usize,
    warnings: Vec<String>,
    remarks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<&'a Path>,
}

/// What was found of a thread or process.
#[derive(Serialize)]
struct Found {
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    name: String,
    on_cpu_ms: f64,
    intervals: usize,
    mean_interval_ms: f64,
    #[serde(flatten)]
    outcome: Outcome,
    /// What is drawn: each interval's density.
    #[serde(skip)]
    densities: Vec<f64>,
    /// Each interval's pattern, as index into the patterns; `None` outside of repetitions.
    #[serde(skip)]
    labels: Vec<Option<usize>>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Phases(Box<Repetitive>),
    NoPhases {
        #[serde(flatten)]
        reason: NoPhases,
        message: String,
    },
}

/// The repetitive phases of a thread or process.
#[derive(Serialize)]
struct Repetitive {
    patterns: Vec<Pattern>,
    /// Different patterns, those that are not shown included.
    pattern_count: usize,
    /// What came when predicted.
    found: Repeating,
    /// The most of it when the stretches between variations are in random order.
    by_chance: ByChance,
    /// The whole should repeat after this time, in ms on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_ms: Option<f64>,
    quality: Quality,
    /// Coefficient of variation of the density over all intervals.
    cov: f64,
    /// The same within the stretches between the changes that PELT finds. A repetition has whole rounds of what varies in it.
    cov_between_changes: f64,
    changes: Changes,
}

#[derive(Serialize)]
struct Pattern {
    /// Level and codes.
    pattern: String,
    occurrences: usize,
    repetitive: usize,
    /// Mean time between repetitions that came when predicted, in ms on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    every_ms: Option<f64>,
}

/// Indices of the intervals at which the mean density changes.
#[derive(Serialize)]
struct Changes {
    online: Vec<usize>,
    pelt: Vec<usize>,
}

/// Runs the command.
///
/// # Errors
/// The folder is no trace, has no such event or no quanta, or the output cannot be written.
pub(crate) fn run(args: &PhasesArgs) -> Result<()> {
    let (output, warnings) = output(args)?;
    warn(&warnings);
    print(output.trim_end())
}

/// What is to be printed, and what is to be warned of; the picture is written on the way.
fn output(args: &PhasesArgs) -> Result<(String, Vec<String>)> {
    let reader = open_trace(&args.trace)?;
    let meta = reader.meta();
    let ticks_per_ms = meta.clock.tsc_khz as f64;
    if ticks_per_ms == 0.0 {
        bail!("{} does not say how fast its TSC ran; record again", args.trace.display());
    }
    let (signal, events) = signal(args, meta)?;
    let mut rows = reader.rows::<QuantumRow>();
    let kind = match args.by {
        By::Thread => SubjectKind::Thread,
        By::Process => SubjectKind::Process,
    };
    let all = subjects(rows.by_ref(), kind, ((args.interval * ticks_per_ms) as u64).max(1));
    if all.is_empty() {
        bail!(reader.lacks_quanta("that can be read"));
    }
    let mut warnings: Vec<String> = rows.cut().map(|cut| cut.to_string()).into_iter().collect();
    if !meta.complete {
        warnings.push(how_unfinished(reader.is_growing()).to_owned());
    }
    let names = names(&reader);
    let shown = all.iter().take(args.limit);
    let report = Report {
        command: &meta.command,
        measured: measured(meta),
        events,
        per: args.per.as_deref(),
        subjects: shown.map(|subject| found(subject, signal, ticks_per_ms, &names, args.limit)).collect(),
        left_out: all.len().saturating_sub(args.limit),
        warnings,
        remarks: quanta_remarks(meta),
        picture: args.picture.as_deref(),
    };
    if let Some(path) = &args.picture {
        picture::write(path, |file| file.write_all(svg::draw(&report).as_bytes()))?;
    }
    let output =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { text::render(&report) };
    Ok((output, report.warnings))
}

/// A time that can be one of several in a trace.
fn interval(text: &str) -> Result<f64, String> {
    let ms = text.parse().ok().filter(|ms| (1e-3..=1e6).contains(ms));
    ms.ok_or_else(|| "write milliseconds from 0.001 to 1000000; 1 is usual".to_owned())
}

/// What to look at, and the events' names.
fn signal<'a>(args: &PhasesArgs, meta: &'a Meta) -> Result<(Signal, Vec<&'a str>)> {
    let index = |name: &str| -> Result<usize> {
        let names = || meta.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>().join(", ");
        let index = meta.events.iter().position(|event| event.name == name);
        let index = index.with_context(|| format!("the trace has no event `{name}`; it has {}", names()))?;
        if index >= MAX_EVENTS {
            bail!(
                "`{name}` is the trace's event number {}; phases are looked for in the first {MAX_EVENTS}",
                index + 1
            );
        }
        Ok(index)
    };
    let base = match &args.per {
        Some(name) => Base::Event(index(name)?),
        None => Base::Time,
    };
    let indices: Vec<usize> = match args.events.as_slice() {
        [] => vec![usual(args, meta, base)?],
        events => events.iter().map(|name| index(name)).collect::<Result<_>>()?,
    };
    let signal = Signal::new(&indices, base);
    let names = signal.events().iter().filter_map(|&event| meta.events.get(event));
    Ok((signal, names.map(|event| event.name.as_str()).collect()))
}

/// The event that is looked at when none is named.
fn usual(args: &PhasesArgs, meta: &Meta, base: Base) -> Result<usize> {
    let names = || meta.events.iter().map(|event| event.name.as_str());
    usual_event(names(), base).with_context(|| {
        let beside = args.per.as_ref().map_or_else(String::new, |per| format!(" beside `{per}`"));
        let names: Vec<&str> = names().filter(|name| args.per.as_deref() != Some(name)).collect();
        format!(
            "{} has only clocks{beside} ({}), whose density does not vary with what a program does: record an event that does, such as \
             page-faults, with `hpmctl record -e cpu-clock,page-faults`",
            args.trace.display(),
            names.join(", ")
        )
    })
}

/// The last name of each thread.
fn names(reader: &TraceReader) -> HashMap<(u32, u32), String> {
    reader.rows::<ThreadRow>().map(|row| ((row.pid, row.tid), row.name)).collect()
}

fn found(
    subject: &Subject,
    signal: Signal,
    ticks_per_ms: f64,
    names: &HashMap<(u32, u32), String>,
    limit: usize,
) -> Found {
    let name = names.get(&(subject.pid, subject.tid.unwrap_or(subject.pid))).cloned().unwrap_or_default();
    let intervals = subject.intervals.as_deref().unwrap_or_default();
    let phases = match &subject.intervals {
        Ok(intervals) => find_phases(Rules::NoiseGated, signal, intervals),
        Err(disorder) => Err(NoPhases::Disorder { message: *disorder }),
    };
    let densities: Vec<f64> =
        intervals.iter().map(|interval| signal.density(interval).unwrap_or(f64::NAN)).collect();
    let labels = phases.as_ref().map(labels).unwrap_or_else(|_| vec![None; intervals.len()]);
    let on_cpu_ms = subject.on_cpu as f64 / ticks_per_ms;
    let outcome = match phases {
        Ok(phases) => {
            Outcome::Phases(Box::new(repetitive(&phases, intervals, &densities, ticks_per_ms, limit)))
        }
        Err(reason) => Outcome::NoPhases { message: reason.to_string(), reason },
    };
    let sliced: u64 = intervals.iter().map(|interval| interval.on_cpu).sum();
    Found {
        pid: subject.pid,
        tid: subject.tid,
        name,
        on_cpu_ms,
        intervals: intervals.len(),
        mean_interval_ms: sliced as f64 / ticks_per_ms / intervals.len().max(1) as f64,
        outcome,
        densities,
        labels,
    }
}

/// Each interval's pattern, as its place in [`Phases::patterns`].
fn labels(phases: &Phases) -> Vec<Option<usize>> {
    let places: HashMap<_, _> =
        phases.patterns.iter().enumerate().map(|(place, pattern)| (pattern.key, place)).collect();
    phases.labels().iter().map(|label| label.and_then(|key| places.get(&key).copied())).collect()
}

fn repetitive(
    phases: &Phases,
    intervals: &[Interval],
    densities: &[f64],
    ticks_per_ms: f64,
    limit: usize,
) -> Repetitive {
    let ms = |ticks: u64| ticks as f64 / ticks_per_ms;
    let pattern = |pattern: &libhpm::analysis::phase::PatternSummary| Pattern {
        pattern: pattern.key.to_string(),
        occurrences: pattern.occurrences,
        repetitive: pattern.repetitive,
        every_ms: pattern.mean_length.map(ms),
    };
    let changes = changes(densities);
    let known = || densities.iter().copied().enumerate().filter(|(_, density)| !density.is_nan());
    let stretch = |index: usize| changes.pelt.partition_point(|&change| change <= index);
    Repetitive {
        patterns: phases.patterns.iter().take(limit).map(pattern).collect(),
        pattern_count: phases.patterns.len(),
        found: phases.repeating,
        by_chance: phases.by_chance,
        predicted_ms: phases.prediction.map(|prediction| ms(prediction.length)),
        quality: evaluate(densities, &levels(&phases.steps), &clock(intervals), &groups(&phases.steps)),
        cov: weighted_cov(known().map(|(_, density)| ((), density))),
        cov_between_changes: weighted_cov(known().map(|(index, density)| (stretch(index), density))),
        changes,
    }
}

/// The time on a CPU at which each interval began, in mean intervals.
fn clock(intervals: &[Interval]) -> Vec<f64> {
    let all: u64 = intervals.iter().map(|interval| interval.on_cpu).sum();
    let mean = all as f64 / intervals.len() as f64;
    let begin = |now: &mut f64, interval: &Interval| {
        let begin = *now;
        *now += interval.on_cpu as f64 / mean;
        Some(begin)
    };
    intervals.iter().scan(0.0, begin).collect()
}

/// Where the mean density changes; intervals without a density are passed over.
fn changes(densities: &[f64]) -> Changes {
    let known: Vec<usize> = (0..densities.len()).filter(|&index| !densities[index].is_nan()).collect();
    let values: Vec<f64> = known.iter().map(|&index| densities[index]).collect();
    let mut detector = Cusum::new();
    let online = values.iter().filter_map(|&value| detector.push(value)).map(|alarm| known[alarm.changed]);
    Changes { online: online.collect(), pelt: pelt(&values).into_iter().map(|place| known[place]).collect() }
}

#[cfg(test)]
mod tests;
