//! `hpmctl report --by offset --around PLACE TRACE…`: how far from an instruction samples lie, for several traces side by side.

mod text;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use libhpm::export::remarks;
use libhpm::histogram::{self, Bar, Panel};
use libhpm::report::{Around, OffsetEntry, Offsets, Resolver, Sum};
use libhpm::symbol::{Code, FileFinder, Instruction, Place};
use libhpm::trace::{Event, EventUse, SampleRow};
use serde::Serialize;

use super::samples::unfinished;
use super::{ReportArgs, event_index, named};
use crate::filters::lacking;
use crate::opened::open_trace;
use crate::output::counted;
use crate::picture;

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Histograms<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    module: &'a str,
    function: &'a str,
    /// The instruction at distance 0.
    around: &'a Instruction,
    traces: Vec<Histogram>,
    warnings: Vec<String>,
    remarks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<&'a Path>,
}

/// One trace's event.
#[derive(Serialize)]
struct Histogram {
    trace: String,
    event: Event,
    all: Sum,
    /// Samples in other functions.
    elsewhere: Sum,
    entries: Vec<OffsetEntry>,
}

/// Path and build ID of a file.
type FileKey = (Arc<str>, Option<Arc<[u8]>>);

/// A trace that is open.
struct Trace {
    name: String,
    resolver: Resolver,
    event: Event,
    /// Samples of the event.
    rows: Vec<SampleRow>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// What is to be printed, and what is to be warned of; the picture is written on the way.
pub(super) fn output(args: &ReportArgs) -> Result<(String, Vec<String>)> {
    let Some(around) = &args.around else {
        bail!("--by offset needs a place to measure from: --around SYMBOL, SYMBOL+BYTES or 0xADDRESS");
    };
    let finder = args.files.finder();
    let paths = std::iter::once(&args.trace).chain(&args.beside);
    let traces: Vec<Trace> = paths.map(|path| Trace::open(path, args, &finder)).collect::<Result<_>>()?;
    let (module, code) = find(around, &traces, &finder)?;
    traces.iter().try_for_each(|trace| trace.check(&module, &finder))?;
    let of_all = |of: fn(&Trace) -> &[String]| traces.iter().flat_map(of).cloned().collect();
    let histograms = Histograms {
        filter: args.filters.words(),
        module: &module,
        function: &code.function,
        around: &code.instructions[code.reference],
        traces: traces.iter().map(|trace| trace.histogram(Around { module: &module, code: &code })).collect(),
        warnings: of_all(|trace| &trace.warnings),
        remarks: of_all(|trace| &trace.remarks),
        picture: args.picture.as_deref(),
    };
    if let Some(path) = &args.picture {
        picture::write(path, |file| draw(&histograms, &code, file))?;
    }
    let output = if args.json {
        serde_json::to_string_pretty(&histograms)? + "\n"
    } else {
        text::render(&histograms, &code, args.limit)
    };
    Ok((output, histograms.warnings))
}

impl Trace {
    fn open(path: &Path, args: &ReportArgs, finder: &FileFinder) -> Result<Self> {
        let reader = open_trace(path)?;
        let events = &reader.meta().events;
        let index = match &args.event {
            Some(name) => event_index(reader.meta(), name)?,
            None => events.iter().position(|event| event.mode != EventUse::Count).unwrap_or(0),
        };
        let mut resolver = Resolver::new(&reader, finder.clone());
        let filter = args.filters.of(&reader)?;
        let mut all = reader.rows::<SampleRow>();
        let taken = |row: &SampleRow| {
            usize::from(row.event) == index
                && (filter.is_empty() || filter.takes(row, &resolver.resolve(row)))
        };
        let rows: Vec<SampleRow> = all.by_ref().filter(taken).collect();
        let name = path.display().to_string();
        let cuts = resolver.cuts().iter().cloned().chain(all.cut()).map(|cut| cut.to_string());
        let warnings = named(&name, cuts.chain(unfinished(&reader)));
        let remarks = named(&name, remarks(reader.meta()));
        if rows.is_empty() && !filter.is_empty() {
            bail!("{name} holds no sample of this event {}", lacking(&filter));
        }
        let event = events.get(index).filter(|_| !rows.is_empty()).cloned();
        let Some(event) = event else { bail!("{name} has no samples of this event; record again") };
        Ok(Self { name, resolver, event, rows, warnings, remarks })
    }

    fn histogram(&self, around: Around<'_>) -> Histogram {
        let mut offsets = Offsets::default();
        self.rows.iter().for_each(|row| offsets.add(&self.resolver, row, self.event.attribution, around));
        Histogram {
            trace: self.name.clone(),
            event: self.event.clone(),
            all: offsets.all(),
            elsewhere: offsets.elsewhere(),
            entries: offsets.entries(around.code),
        }
    }

    /// The files that have samples, the one with most of them first.
    fn files(&self) -> Vec<FileKey> {
        let mut counted = std::collections::HashMap::<FileKey, u64>::new();
        for file in self.rows.iter().filter_map(|row| self.resolver.file(row, row.ip)) {
            *counted.entry((Arc::clone(&file.path), file.build_id.clone())).or_default() += 1;
        }
        let mut files: Vec<(FileKey, u64)> = counted.into_iter().collect();
        files.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        files.into_iter().map(|(file, _)| file).collect()
    }

    /// The code that is here has to be the recorded one of every trace.
    fn check(&self, module: &Arc<str>, finder: &FileFinder) -> Result<()> {
        for (path, build_id) in self.files().iter().filter(|(path, _)| path == module) {
            Code::around(&Place::Linked(0), Path::new(&**path), build_id.as_deref(), finder)
                .with_context(|| format!("{}: cannot read the code of {path}", self.name))?;
        }
        Ok(())
    }
}

/// The file and the function that the place is in. A symbol is looked for in the files that have samples.
fn find(around: &str, traces: &[Trace], finder: &FileFinder) -> Result<(Arc<str>, Code)> {
    if let Some(digits) = around.strip_prefix("0x") {
        let address = u64::from_str_radix(digits, 16).ok();
        let address = address.with_context(|| {
            format!("`{around}` is no address: write 0x and at most 16 hexadecimal digits, or a symbol")
        })?;
        let place =
            |trace: &Trace| trace.rows.iter().find_map(|row| trace.resolver.file(row, address)).cloned();
        let file = traces
            .iter()
            .find_map(place)
            .with_context(|| format!("no recorded process had code of a file mapped at {around}"))?;
        let (module, build_id) = (file.path.clone(), file.build_id.as_deref());
        let place = Place::FileOffset(file.file_offset_of(address));
        let code = Code::around(&place, Path::new(&*module), build_id, finder);
        let code = code.with_context(|| format!("cannot read the code of {module}"))?;
        return Ok((
            Arc::clone(&module),
            code.with_context(|| format!("no function of {module} covers {around}"))?,
        ));
    }
    let place = Place::of_symbol(around);
    let mut unread = None;
    for (module, build_id) in traces.iter().flat_map(Trace::files) {
        match Code::around(&place, Path::new(&*module), build_id.as_deref(), finder) {
            Ok(Some(code)) => return Ok((module, code)),
            Ok(None) => {}
            Err(error) => {
                unread.get_or_insert((module, error));
            }
        }
    }
    match unread {
        Some((module, error)) => Err(error).with_context(|| {
            format!("no file with samples has code at `{around}`, but {module} cannot be read")
        }),
        None => bail!(
            "no file with samples has code at `{around}`; `hpmctl report --by instruction` shows where the samples are"
        ),
    }
}

/// How the samples of an event were taken, and what they name.
fn how(event: &Event) -> String {
    let name = &event.name;
    match event.mode {
        EventUse::Interrupt => format!("{name} by interrupts"),
        EventUse::Software => format!("{name} by software"),
        _ => format!("{name}, precise"),
    }
}

fn draw(histograms: &Histograms<'_>, code: &Code, file: &mut Vec<u8>) -> std::io::Result<()> {
    let panel = |histogram: &Histogram| {
        let bar = |entry: &OffsetEntry| Bar {
            at: entry.distance,
            share: entry.estimate.share,
            error: entry.estimate.error,
            label: format!(
                "{:+} {}: {}, {:.2} % ± {:.2}",
                entry.distance,
                text::instruction(code, entry.distance).mnemonic,
                counted(entry.own.samples, "sample"),
                entry.estimate.share * 100.0,
                entry.estimate.error * 100.0
            ),
        };
        Panel {
            title: format!(
                "{}: {}, {}",
                histogram.trace,
                how(&histogram.event),
                counted(histogram.all.samples, "sample")
            ),
            bars: histogram.entries.iter().map(bar).collect(),
        }
    };
    let panels: Vec<Panel> = histograms.traces.iter().map(panel).collect();
    let title = format!("Reported instructions in {}", histograms.function);
    let axis = format!("instructions from {:#x} ({})", histograms.around.address, histograms.around.mnemonic);
    histogram::write_svg(&title, &axis, &panels, file)
}
