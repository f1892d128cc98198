//! `hpmctl explore`: sets of a trace's records, metrics of them, statistics, correlations and graphs.

mod html;
mod load;
mod names;
mod plot;
mod saved;
mod svg;
mod text;
mod timeline;

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use libhpm::analysis::explore::{BUILT_IN, Definitions, Metric, Record, RecordScope, Records};
use libhpm::analysis::expression::Scope as _;
use libhpm::export::quanta_remarks;
use libhpm::trace::Meta;

use crate::files::FilesArgs;
use crate::late_file;
use crate::opened::open_trace;
use crate::output::{print, warn};
use crate::picture;

/// Explore the records of a trace: what each thread did on each CPU from when to when.
///
/// A record is a quantum: one stay of one thread on one CPU, with what was counted meanwhile. --where chooses records by an
/// expression, the EXPRESSIONs are metrics to compute of them, --show says what to make of both. --define names an expression;
/// of named sets `a or b` is the union, `a and b` the intersection and `a and not b` the difference.
#[derive(Args, Debug)]
pub(crate) struct ExploreArgs {
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
    /// What to compute of each record, such as 'instructions / cycles' [default: its duration, every counter, and the built-in
    /// metrics that these allow]
    #[arg(value_name = "EXPRESSION")]
    metrics: Vec<String>,
    /// Records to look at, such as 'thread ~ "worker" and duration_ns > 5 ms' [default: all]
    #[arg(short = 'w', long = "where", value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Name an expression for this and later expressions (can be given several times)
    #[arg(short, long = "define", value_name = "NAME=EXPRESSION")]
    definitions: Vec<String>,
    /// Keep the definitions in the trace's folder, where later calls find them
    #[arg(long)]
    save: bool,
    /// What to show
    #[arg(short, long, value_enum, default_value_t)]
    show: Show,
    /// Statistics of each group instead of all, first of the group for which the first expression's sum is greatest: for --show statistics
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<Group>,
    /// Show at most this many records, or groups of --by
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Characters of a graph's width
    #[arg(long, default_value_t = 72, value_name = "N", value_parser = clap::value_parser!(u16).range(10..=1000))]
    width: u16,
    /// Lines of a graph's height
    #[arg(long, default_value_t = 18, value_name = "N", value_parser = clap::value_parser!(u16).range(3..=1000))]
    height: u16,
    /// Also draw the graph or timeline into this file, NAME.svg or NAME.png
    #[arg(long, value_name = "FILE", alias = "svg", value_parser = crate::picture::file)]
    picture: Option<PathBuf>,
    /// Also write a page for the browser with the graphs, timelines, statistics and the table of these records, which zooms
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON for other programs (of statistics, records, correlations and names)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FilesArgs,
}

/// Values of `--show`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Show {
    /// Sum, least, greatest, mean, standard deviation and mean delta of each metric
    #[default]
    Statistics,
    /// The records themselves
    Records,
    /// Pearson's correlation of each two metrics
    Correlation,
    /// One metric against another as points
    Scatter,
    /// A metric over time
    Time,
    /// A line for each thread, with the CPUs it was on
    Threads,
    /// A line for each CPU, with the threads that it ran
    Cpus,
    /// The names that expressions can use
    Names,
}

/// Values of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    Thread,
    Cpu,
    /// Function in which records ended
    Function,
    /// How records ended
    End,
}

/// Words of the language.
const RESERVED: [&str; 3] = ["and", "or", "not"];

impl Group {
    fn key(self, record: &Record) -> String {
        match self {
            Self::Thread => name_of(record),
            Self::Cpu => format!("CPU {}", record.cpu),
            Self::Function if record.function.is_empty() => "[unknown]".to_owned(),
            Self::Function => record.function.to_string(),
            Self::End => record.end_name().to_owned(),
        }
    }
}

/// A record's thread by name and number.
fn name_of(record: &Record) -> String {
    format!("{} {}", record.thread, record.tid)
}

/// Records to show, and what of them.
struct View<'a> {
    meta: &'a Meta,
    /// All records of the trace.
    records: &'a Records,
    /// Those for which the filter holds, in the order of time.
    chosen: &'a [&'a Record],
    metrics: &'a [Metric],
    /// What of the trace is damaged, and what else has to be known before its numbers are believed.
    warnings: &'a [String],
    remarks: Vec<String>,
}

impl View<'_> {
    /// The two metrics that a scatter plot has, the horizontal one first.
    fn scatter(&self) -> Result<(&Metric, &Metric)> {
        let [x, y] = self.metrics else {
            bail!("a scatter plot needs two metrics: give two expressions, the horizontal one first");
        };
        Ok((x, y))
    }

    /// The metric that a time graph has.
    fn time(&self) -> Result<&Metric> {
        let [y] = self.metrics else {
            bail!("a time graph needs one metric: give one expression");
        };
        Ok(y)
    }

    /// What a metric comes to for a record.
    fn value(&self, metric: &Metric, record: &Record) -> f64 {
        metric.of(self.records, record)
    }

    /// The chosen threads, in the order of their appearance.
    fn threads(&self) -> Vec<(u32, String)> {
        let mut threads: Vec<(u32, String)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for record in self.chosen.iter().filter(|record| seen.insert(record.tid)) {
            threads.push((record.tid, name_of(record)));
        }
        threads
    }
}

pub(crate) fn run(args: &ExploreArgs) -> Result<()> {
    if args.save && args.trace.is_file() {
        bail!(
            "{} is a file, and --save keeps definitions in a trace's folder: make one with `hpmctl import`",
            args.trace.display()
        );
    }
    let reader = open_trace(&args.trace)?;
    let finder = args.files.finder();
    let (records, warnings) = load::records(&reader, finder);
    warn(&warnings);
    if records.all().is_empty() {
        bail!(reader.lacks_quanta("that can be read"));
    }
    print(output(args, reader.meta(), &records, &warnings)?.trim_end())
}

/// What has to be known of functions that only samples tell; a sentence.
fn of_last_sample(meta: &Meta) -> Option<String> {
    matches!(meta.source.as_str(), "perf_event" | "perf.data").then(|| {
        "a record's function is that of its last sample, which can be long before its end, and [unknown] without one".to_owned()
    })
}

/// What is to be printed; files are written and definitions saved on the way.
fn output(args: &ExploreArgs, meta: &Meta, records: &Records, warnings: &[String]) -> Result<String> {
    if args.by.is_some() && args.show != Show::Statistics {
        bail!("--by groups statistics: leave it out, or leave --show out");
    }
    let definitions = definitions(args, records)?;
    let scope = RecordScope::new(records, &definitions);
    if args.show == Show::Names {
        let names = names::names(records, &definitions);
        return if args.json { names::json(&names, meta, warnings) } else { Ok(names::text(&names)) };
    }
    let metrics = metrics(args, records, &scope)?;
    let filter = args.filter.as_ref().map(|text| Metric::new(text, &scope)).transpose()?;
    let chosen: Vec<&Record> = match &filter {
        None => records.all().iter().collect(),
        Some(filter) => filter.choose(records).collect(),
    };
    if chosen.is_empty() {
        let filter = args.filter.as_deref().unwrap_or_default();
        bail!("none of the {} records is one for which `{filter}` holds", records.all().len());
    }
    let remarks = quanta_remarks(meta).into_iter().chain(of_last_sample(meta)).collect();
    let view = View { meta, records, chosen: &chosen, metrics: &metrics, warnings, remarks };
    let (mut text, mut files) = (text::render(args, &view)?, String::new());
    if let Some(path) = &args.picture {
        let drawing = svg::draw(args.show, &view)?;
        picture::write(path, |file| file.write_all(drawing.as_bytes()))?;
        files += &format!("\npicture: {}\n", path.display());
    }
    if let Some(path) = &args.html {
        late_file::write(path, html::page(&view, args.filter.as_deref())?)?;
        files += &format!("\npage: {}\n", path.display());
    }
    // JSON is for other programs, which know the files' names.
    if !args.json {
        text += &files;
    }
    Ok(text)
}

/// Those of earlier calls and of this one, all of which must mean something here.
fn definitions(args: &ExploreArgs, records: &Records) -> Result<Definitions> {
    let mut definitions = saved::read(&args.trace)?;
    for definition in &args.definitions {
        let (name, text) =
            definition.split_once('=').with_context(|| format!("`{definition}` is no NAME=EXPRESSION"))?;
        let name = name.trim();
        if name.is_empty() || name.contains('`') {
            bail!("`{definition}` has no name before its equals sign");
        }
        if RecordScope::new(records, &definitions).variable(name).is_some() || RESERVED.contains(&name) {
            bail!("`{name}` cannot be defined: it already means something (--show names)");
        }
        definitions.define(name, text.trim())?;
        Metric::new(text.trim(), &RecordScope::new(records, &definitions))?;
    }
    if args.save {
        saved::write(&args.trace, &definitions)?;
    }
    Ok(definitions)
}

fn metrics(args: &ExploreArgs, records: &Records, scope: &RecordScope<'_>) -> Result<Vec<Metric>> {
    if !args.metrics.is_empty() {
        return Ok(args.metrics.iter().map(|text| Metric::new(text, scope)).collect::<Result<_, _>>()?);
    }
    let mut metrics = vec![Metric::new("duration_ns", scope)?];
    for event in records.events() {
        let plain = Metric::new(event, scope).or_else(|_| Metric::new(&format!("`{event}`"), scope))?;
        metrics.push(plain);
    }
    // Those whose events were not counted cannot be had.
    metrics.extend(BUILT_IN.iter().filter_map(|(name, _)| Metric::new(name, scope).ok()));
    Ok(metrics)
}
