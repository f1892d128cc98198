//! `hpmctl report`: which functions and lines the samples of a trace name.

mod offset;
mod text;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use libhpm::flame::FoldedStacks;
use libhpm::report::{BranchEntry, BranchTable, By, Entry, Order, Resolver, Sum, Summary, Table, Tally};
use libhpm::symbol::FileFinder;
use libhpm::trace::{EventUse, Meta, SampleRow, TraceReader};
use serde::Serialize;

use crate::output::print;

/// Show which functions and source lines the samples of a trace name.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// What to group samples by [default: function, then line]
    #[arg(long, value_enum)]
    by: Option<GroupBy>,
    /// What to put first
    #[arg(long, value_enum, default_value_t)]
    sort: SortBy,
    /// Show at most this many rows of each table
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Report only this event
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
    /// The place that --by offset measures from: a function or another symbol, with a number of bytes behind it, or a
    /// recorded address
    #[arg(long, value_name = "SYMBOL[+BYTES]|0xADDRESS")]
    around: Option<String>,
    /// Also draw a flame graph into this file; with --by offset, the histograms
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    /// Folder with the recorded machine's files, when it is another machine
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// Folder with separate debug information, searched before /usr/lib/debug (can be given several times)
    #[arg(long = "debug-dir", value_name = "DIR")]
    debug_dirs: Vec<PathBuf>,
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
    /// More traces, to show beside it: with --by offset
    #[arg(value_name = "NAME.hpm", requires = "around")]
    beside: Vec<PathBuf>,
}

/// Values of `--by`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum GroupBy {
    Function,
    Line,
    Thread,
    Cpu,
    Address,
    /// Cache or memory where the data was found
    Level,
    /// The same, with snoop, TLB and lock
    Source,
    /// Branches in the samples' branch records: from, to, how often, how often mispredicted
    Branch,
    /// Distance from the instruction that --around names, as a histogram
    Offset,
}

/// Values of `--sort`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SortBy {
    #[default]
    Events,
    /// Sum of the samples' latencies
    Latency,
}

impl From<SortBy> for Order {
    fn from(by: SortBy) -> Self {
        match by {
            SortBy::Events => Self::Events,
            SortBy::Latency => Self::Latency,
        }
    }
}

impl GroupBy {
    /// The tables of samples; branches and offsets have their own.
    fn tables(self) -> Vec<By> {
        vec![match self {
            Self::Function => By::Function,
            Self::Line => By::Line,
            Self::Thread => By::Thread,
            Self::Cpu => By::Cpu,
            Self::Address => By::Address,
            Self::Level => By::Level,
            Self::Source => By::Source,
            Self::Branch | Self::Offset => return vec![],
        }]
    }
}

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Report<'a> {
    meta: &'a Meta,
    summary: Summary,
    tables: Vec<Grouped>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branches: Option<Taken>,
    warnings: Vec<String>,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    svg: Option<&'a Path>,
}

/// The branches of the samples' branch records, cut to the number of rows asked for.
#[derive(Serialize)]
struct Taken {
    /// Branch records of all samples.
    all: u64,
    /// How many different branches there are.
    groups: usize,
    entries: Vec<BranchEntry>,
}

/// One table of one event, cut to the number of rows asked for.
#[derive(Serialize)]
struct Grouped {
    /// Index into the events of the summary.
    event: usize,
    by: By,
    all: Sum,
    groups: usize,
    entries: Vec<Entry>,
}

/// Runs the command.
///
/// # Errors
/// The folder is no trace, nothing in it can be read, or the output cannot be written.
pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let by_offset = matches!(args.by, Some(GroupBy::Offset));
    if args.around.is_some() && !by_offset {
        bail!("--around is for --by offset");
    }
    let (output, warnings) = if by_offset { offset::output(args)? } else { output(args)? };
    for warning in warnings {
        eprintln!("hpmctl: warning: {warning}");
    }
    print(output.trim_end())
}

/// What is to be printed, and what is to be warned of; the flame graph is written on the way.
fn output(args: &ReportArgs) -> Result<(String, Vec<String>)> {
    let reader = TraceReader::open(&args.trace)?;
    let event = args.event.as_deref().map(|name| event_index(reader.meta(), name)).transpose()?;
    let finder = FileFinder { symfs: args.symfs.clone(), debug_dirs: args.debug_dirs.clone() };
    let mut resolver = Resolver::new(&reader, finder);
    let collected = Collected::read(&reader, &mut resolver, args, event);
    if collected.nothing() {
        bail!(
            "{} holds no quantum and no sample that can be read{}; record again",
            args.trace.display(),
            collected.warnings.first().map_or_else(String::new, |warning| format!(": {warning}"))
        );
    }
    if let Some(path) = &args.svg {
        write_svg(path, &collected, reader.meta())?;
    }
    let tables = collected.tables(args.limit, args.sort.into());
    let branches = collected.taken(args)?;
    let report = Report {
        meta: reader.meta(),
        notes: notes(&resolver, &tables),
        tables,
        branches,
        summary: collected.summary,
        warnings: collected.warnings,
        svg: args.svg.as_deref(),
    };
    let output =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { text::render(&report) };
    Ok((output, report.warnings))
}

fn event_index(meta: &Meta, name: &str) -> Result<usize> {
    let names = || meta.events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>().join(", ");
    meta.events
        .iter()
        .position(|event| event.name == name)
        .with_context(|| format!("the trace has no event `{name}`; it has {}", names()))
}

/// What one pass over a trace gathers.
struct Collected {
    summary: Summary,
    /// Tables with the index of their event.
    tables: Vec<(usize, Table)>,
    stacks: FoldedStacks,
    branches: BranchTable,
    /// The event whose stacks are drawn.
    drawn: Option<usize>,
    warnings: Vec<String>,
}

impl Collected {
    fn read(reader: &TraceReader, resolver: &mut Resolver, args: &ReportArgs, only: Option<usize>) -> Self {
        let (mut summary, cut) = Summary::new(reader);
        let by = args.by.map_or_else(|| vec![By::Function, By::Line], |by| by.tables());
        let sampled = |(index, event): (usize, &libhpm::trace::Event)| {
            (event.mode != EventUse::Count && only.is_none_or(|only| only == index)).then_some(index)
        };
        let events: Vec<usize> = reader.meta().events.iter().enumerate().filter_map(sampled).collect();
        let mut tables: Vec<(usize, Table)> =
            events.iter().flat_map(|&event| by.iter().map(move |&by| (event, Table::new(by)))).collect();
        // Events of different kinds cannot be added up, so one picture shows one event.
        let drawn = events.first().copied();
        let mut stacks = FoldedStacks::default();
        let mut rows = reader.rows::<SampleRow>();
        let mut tally = Tally::default();
        let mut branches = BranchTable::default();
        let (all, show_branches) = (only.is_none(), matches!(args.by, Some(GroupBy::Branch)));
        rows.by_ref().for_each(|row| {
            if show_branches && (all || only == Some(usize::from(row.event))) {
                branches.add(resolver, &row);
            }
            tally.add(resolver.resolve(&row), row.period, row.latency_cycles);
        });
        for (sample, sum) in tally.iter() {
            let event = usize::from(sample.event);
            summary.add(sample, sum);
            tables.iter_mut().filter(|(of, _)| *of == event).for_each(|(_, table)| table.add(sample, sum));
            if drawn == Some(event) {
                stacks.add(sample, sum);
            }
        }
        let cuts = resolver.cuts().iter().cloned().chain(cut).chain(rows.cut());
        let mut warnings: Vec<String> = cuts.map(|cut| cut.to_string()).collect();
        if !reader.meta().complete {
            warnings.push(
                "the recording did not come to its proper end; the report covers what was written until then"
                    .to_owned(),
            );
        }
        Self { summary, tables, stacks, branches, drawn, warnings }
    }

    /// The branches, when they are asked for.
    fn taken(&self, args: &ReportArgs) -> Result<Option<Taken>> {
        if !matches!(args.by, Some(GroupBy::Branch)) {
            return Ok(None);
        }
        if self.branches.all() == 0 {
            bail!("{} has no branch records: record with --branches", args.trace.display());
        }
        let mut entries = self.branches.entries();
        let groups = entries.len();
        entries.truncate(args.limit);
        Ok(Some(Taken { all: self.branches.all(), groups, entries }))
    }

    fn nothing(&self) -> bool {
        self.summary.quanta == 0 && self.summary.events.iter().all(|event| event.sampled.samples == 0)
    }

    fn tables(&self, limit: usize, order: Order) -> Vec<Grouped> {
        let grouped = |(event, table): &(usize, Table)| {
            let mut entries = table.entries(order);
            let groups = entries.len();
            entries.truncate(limit);
            Grouped { event: *event, by: table.by(), all: table.all(), groups, entries }
        };
        self.tables.iter().map(grouped).collect()
    }
}

fn write_svg(path: &Path, collected: &Collected, meta: &Meta) -> Result<()> {
    let Some(event) = collected.drawn.filter(|_| !collected.stacks.is_empty()) else {
        bail!("no samples to draw a flame graph from; record with a precise event");
    };
    let name = &meta.events[event].name;
    let title = match meta.command.first() {
        // The arguments would not fit the picture's width.
        Some(program) => format!("{}: {name}", program.rsplit('/').next().unwrap_or(program)),
        None => name.clone(),
    };
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        collected.stacks.write_svg(&title, name, &mut file)?;
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// What stands in the way of full symbols for the modules in the tables.
fn notes(resolver: &Resolver, tables: &[Grouped]) -> Vec<String> {
    let modules =
        tables.iter().flat_map(|table| &table.entries).filter_map(|entry| entry.key.module.as_deref());
    let mut notes: Vec<String> =
        modules.filter_map(|module| resolver.note(module)).map(str::to_owned).collect();
    notes.sort();
    notes.dedup();
    notes
}

#[cfg(test)]
mod tests;
