//! `hpmctl export`: a trace as a file of another program.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use crate::files::FilesArgs;
use crate::opened::open_trace;
use crate::output::{note, say};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use libhpm::export::{self, Stacks};
use libhpm::report::Resolver;
use libhpm::trace::{
    AllocationRow, Cut, EventUse, KernelSymbolRow, MapRow, MarkerRow, QuantumRow, Row, SampleRow, StackRow,
    ThreadRow, TraceReader,
};

use crate::late_file::LateFile;
use crate::picture;

/// Write a trace as a file of another program.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// What to write
    #[arg(short, long, value_enum)]
    format: Format,
    /// The file; `-` for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The one event whose samples are shown as stacks [default: all that were sampled; of folded, svg and png the first]
    #[arg(short, long, value_name = "NAME")]
    event: Option<String>,
    /// The table of csv and parquet [default: quanta]
    #[arg(long, value_enum)]
    table: Option<Table>,
    #[command(flatten)]
    files: FilesArgs,
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
}

/// Values of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Processed profile of the Firefox Profiler: samples in time with their stacks
    Firefox,
    /// profile.proto, for go tool pprof
    Pprof,
    /// Lines of folded stacks, for flame graph tools
    Folded,
    /// A flame graph
    Svg,
    /// A flame graph as pixels
    Png,
    /// speedscope's own format: a profile for each thread
    Speedscope,
    /// Chrome's trace events, for Perfetto and chrome://tracing: the quanta of each thread and CPU, and markers
    Chrome,
    /// A table as comma-separated values
    Csv,
    /// A table as Parquet
    Parquet,
}

/// Values of `--table`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Table {
    #[default]
    Quanta,
    Samples,
    Stacks,
    Maps,
    Threads,
    KernelSymbols,
    Markers,
    /// Only of a trace recorded with --allocations
    Allocations,
}

pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    if args.table.is_some() && !matches!(args.format, Format::Csv | Format::Parquet) {
        bail!("--table is for csv and parquet; other formats have a content of their own");
    }
    let reader = open_trace(&args.trace)?;
    // Everything is read before the file is made, so that a refusal leaves none behind.
    let stacks = stacks(args, &reader)?;
    let result = if args.output.as_os_str() == "-" {
        write(args, &reader, stacks.as_ref(), io::stdout())
    } else {
        let file = LateFile::open(&args.output)
            .with_context(|| format!("cannot write {}", args.output.display()))?;
        write(args, &reader, stacks.as_ref(), file)
    };
    match result {
        Err(error) if args.output.as_os_str() == "-" && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.with_context(|| format!("cannot write {}", args.output.display())),
    }
}

/// The samples, for a format that shows stacks.
fn stacks<'a>(args: &ExportArgs, reader: &'a TraceReader) -> Result<Option<Stacks<'a>>> {
    note(&export::remarks(reader.meta()));
    if matches!(args.format, Format::Chrome | Format::Csv | Format::Parquet) {
        if args.event.is_some() {
            bail!("--event is for formats of stacks; tables and the Chrome trace have all events");
        }
        if args.format != Format::Chrome && args.table == Some(Table::Allocations) {
            has_allocations(args, reader)?;
        }
        return Ok(None);
    }
    let events = events(args, reader)?;
    let finder = args.files.finder();
    let mut resolver = Resolver::new(reader, finder);
    let (stacks, cut) = Stacks::read(reader, &mut resolver, &events);
    warn(resolver.cuts().iter().cloned().chain(cut));
    if stacks.samples.is_empty() {
        let names: Vec<&str> =
            events.iter().map(|&event| reader.meta().events[event].name.as_str()).collect();
        bail!("{} has no samples of {}", args.trace.display(), names.join(", "));
    }
    Ok(Some(stacks))
}

/// Refuses a trace whose table of allocations was never made, or is gone.
fn has_allocations(args: &ExportArgs, reader: &TraceReader) -> Result<()> {
    let (name, known) = (args.trace.display(), reader.meta().allocations.is_some());
    match reader.has::<AllocationRow>() {
        true => Ok(()),
        false if known => bail!("{name} has lost its table of allocations; export another one"),
        false => bail!("{name} has no allocations: record with --allocations"),
    }
}

/// The events to show: the one that was asked for, else all that were sampled, of which some formats have room for one.
fn events(args: &ExportArgs, reader: &TraceReader) -> Result<Vec<usize>> {
    let events = &reader.meta().events;
    let names = || events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = &args.event {
        let found = events.iter().position(|event| event.name == *name);
        return Ok(vec![
            found.with_context(|| format!("the trace has no event `{name}`; it has {}", names()))?,
        ]);
    }
    let mut sampled: Vec<usize> =
        (0..events.len()).filter(|&index| events[index].mode != EventUse::Count).collect();
    if sampled.is_empty() {
        bail!("no event of the trace was sampled, only counted: {}", names());
    }
    if matches!(args.format, Format::Folded | Format::Svg | Format::Png) && sampled.len() > 1 {
        let (first, others) = (&events[sampled[0]].name, sampled.len() - 1);
        say(format_args!("note: this format shows one event, {first}; --event chooses from {others} more"));
        sampled.truncate(1);
    }
    Ok(sampled)
}

fn write(
    args: &ExportArgs,
    reader: &TraceReader,
    stacks: Option<&Stacks<'_>>,
    file: impl Write + Send,
) -> io::Result<()> {
    let mut output = BufWriter::new(file);
    match (args.format, stacks) {
        (Format::Firefox, Some(stacks)) => export::write_firefox(stacks, &mut output),
        (Format::Pprof, Some(stacks)) => export::write_pprof(stacks, &mut output),
        (Format::Folded, Some(stacks)) => export::write_folded(stacks, &mut output),
        (Format::Svg, Some(stacks)) => export::write_svg(stacks, &mut output),
        (Format::Png, Some(stacks)) => {
            let mut svg = Vec::new();
            export::write_svg(stacks, &mut svg)?;
            // Refused without a font: only what can be drawn replaces what the file holds.
            output.write_all(&picture::png(&svg).map_err(io::Error::other)?)
        }
        (Format::Speedscope, Some(stacks)) => export::write_speedscope(stacks, &mut output),
        (Format::Chrome, _) => export::write_chrome(reader, &mut output).map(warn),
        (format, _) => match args.table.unwrap_or_default() {
            Table::Quanta => table::<QuantumRow>(format, reader, &mut output),
            Table::Samples => table::<SampleRow>(format, reader, &mut output),
            Table::Stacks => table::<StackRow>(format, reader, &mut output),
            Table::Maps => table::<MapRow>(format, reader, &mut output),
            Table::Threads => table::<ThreadRow>(format, reader, &mut output),
            Table::KernelSymbols => table::<KernelSymbolRow>(format, reader, &mut output),
            Table::Markers => table::<MarkerRow>(format, reader, &mut output),
            Table::Allocations => table::<AllocationRow>(format, reader, &mut output),
        },
    }?;
    output.flush()
}

fn table<R: Row>(format: Format, reader: &TraceReader, output: &mut (impl Write + Send)) -> io::Result<()> {
    let mut batches = reader.batches::<R>();
    match format {
        Format::Parquet => export::write_parquet::<R>(&mut batches, reader.meta(), output)?,
        _ => export::write_csv::<R>(&mut batches, reader.meta(), output)?,
    }
    warn(batches.cut());
    Ok(())
}

fn warn(cuts: impl IntoIterator<Item = Cut>) {
    for cut in cuts {
        say(format_args!("warning: {cut}"));
    }
}
