//! `hpmctl annotate`: source and assembly of functions side by side, with their samples.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use libhpm::export::remarks;
use libhpm::report::{Annotated, AnnotatedInstruction, Estimate, Hotspots, Resolver, Sources, Sum};
use libhpm::trace::{Event, Machine, SampleRow};
use serde::Serialize;

use crate::files::FilesArgs;
use crate::filters::FilterArgs;
use crate::opened::open_trace;
use crate::output::{counted, print, warn};
use crate::report::lacking::{Functions, did_you_mean, no_sample};
use crate::report::samples::{sampled_events, unfinished};
use crate::report::{event_index, table, text};

/// Show source and assembly of functions side by side, with the samples of each instruction.
#[derive(Args, Debug)]
pub(crate) struct AnnotateArgs {
    /// Choose functions by this event, and show only its samples [default: by the first that has samples, and all events]
    #[arg(short, long, value_name = "NAME")]
    event: Option<String>,
    /// Without a function named, show so many: those with most events
    #[arg(long, default_value_t = 1, value_name = "N")]
    limit: usize,
    /// Show so many instructions before and behind each with a sample
    #[arg(long, default_value_t = 10, value_name = "N")]
    context: usize,
    /// Folder in which source files are looked for that are not where the compiler found them (can be given several times)
    #[arg(long = "source-dir", value_name = "DIR")]
    source_dirs: Vec<PathBuf>,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FilesArgs,
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
    /// The functions [default: those with most events]
    #[arg(value_name = "FUNCTION")]
    functions: Vec<String>,
    #[command(flatten)]
    filters: FilterArgs,
}

/// File and name of a function.
type FunctionKey = (Arc<str>, Option<Arc<str>>);

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Listing {
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip)]
    machine: Machine,
    events: Vec<Event>,
    /// All samples of each event.
    all: Vec<Sum>,
    /// Places of the events that are shown.
    shown: Vec<usize>,
    functions: Vec<Annotated>,
    /// Functions that could not be shown, and why.
    notes: Vec<String>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The folder is no trace, or nothing in it can be annotated.
pub(crate) fn run(args: &AnnotateArgs) -> Result<()> {
    let (output, warnings) = output(args)?;
    warn(&warnings);
    print(output.trim_end())
}

fn output(args: &AnnotateArgs) -> Result<(String, Vec<String>)> {
    let reader = open_trace(&args.trace)?;
    let meta = reader.meta();
    let only = args.event.as_deref().map(|name| event_index(meta, name)).transpose()?;
    let shown = sampled_events(meta, only);
    let finder = args.files.finder();
    let mut resolver = Resolver::new(&reader, finder.clone());
    let filter = args.filters.of(&reader)?;
    let (mut hotspots, mut all) = (Hotspots::default(), vec![Sum::default(); meta.events.len()]);
    let mut rows = reader.rows::<SampleRow>();
    for row in rows.by_ref() {
        let sample = resolver.resolve(&row);
        if filter.takes(&row, &sample) {
            hotspots.add(&row, &sample, meta.events.len());
            if let Some(all) = all.get_mut(usize::from(row.event)) {
                all.add(Sum::sample(row.period, row.latency_cycles));
            }
        }
    }
    let cuts = resolver.cuts().iter().cloned().chain(rows.cut()).map(|cut| cut.to_string());
    let warnings: Vec<String> = cuts.chain(unfinished(&reader)).collect();
    let Some(&first) = shown.iter().find(|&&event| all[event].samples > 0) else {
        // A trace that is damaged may have none for that alone.
        warn(&warnings);
        let missing = Functions::of(&reader, &mut resolver).missing(&args.filters);
        bail!("{}{missing}", no_sample(&args.trace, meta, only, &filter));
    };
    let sources = Sources { finder, folders: args.source_dirs.clone() };
    let (functions, notes) = annotated(args, &hotspots, first, &mut resolver, &sources)?;
    let filter = args.filters.words();
    let listing = Listing {
        filter,
        machine: meta.machine.clone(),
        events: meta.events.clone(),
        all,
        shown,
        functions,
        notes,
        warnings,
        remarks: remarks(meta),
    };
    let output = if args.json {
        serde_json::to_string_pretty(&listing)? + "\n"
    } else {
        render(&listing, args.context)
    };
    Ok((output, listing.warnings))
}

/// The functions that were asked for, and what could not be had of them.
fn annotated(
    args: &AnnotateArgs,
    hotspots: &Hotspots,
    event: usize,
    resolver: &mut Resolver,
    sources: &Sources,
) -> Result<(Vec<Annotated>, Vec<String>)> {
    let mut wanted = hotspots.functions(event);
    let (mut functions, mut notes) = (Vec::new(), Vec::new());
    let mut with_more = None;
    match &args.functions[..] {
        [] => {
            with_more = wanted.first().filter(|first| !has_code(first)).cloned();
            wanted.retain(has_code);
            wanted.truncate(args.limit);
        }
        named => wanted = chosen(named, wanted)?,
    }
    for key in &wanted {
        let name = key.1.as_deref().unwrap_or("[no symbol]");
        match hotspots.annotate(key, resolver, sources) {
            Ok(Some(function)) => functions.push(function),
            Ok(None) => notes.push(format!("{name} of {} has no code in a file here", key.0)),
            Err(error) => notes.push(format!("the code of {name} cannot be read from {} ({error})", key.0)),
        }
        notes.extend(resolver.note(&key.0).map(str::to_owned));
    }
    if functions.is_empty() {
        notes.extend(with_more.as_ref().map(|key| without_code(key, resolver)));
        let why = notes.first().map_or_else(String::new, |note| format!(": {note}"));
        return Err(anyhow::anyhow!("nothing can be annotated{why}"))
            .with_context(|| args.trace.display().to_string());
    }
    notes.extend(with_more.map(|(file, name)| {
        let name = name.as_deref().unwrap_or("code without a symbol");
        format!("more samples than in what is shown lie in {name} of {file}, which cannot be shown")
    }));
    notes.sort();
    notes.dedup();
    Ok((functions, notes))
}

/// The functions with these names.
fn chosen(named: &[String], mut functions: Vec<FunctionKey>) -> Result<Vec<FunctionKey>> {
    let is = |(_, function): &FunctionKey, name: &String| function.as_deref() == Some(name);
    for name in named {
        if !functions.iter().any(|function| is(function, name)) {
            let near = did_you_mean(name, functions.iter().filter_map(|(_, function)| function.as_ref()));
            bail!(
                "no sample lies in a function `{name}`{near}; functions that were inlined are shown where they were put"
            );
        }
    }
    functions.retain(|function| named.iter().any(|name| is(function, name)));
    Ok(functions)
}

/// Why the code with most samples cannot be shown, where none can.
fn without_code((file, name): &FunctionKey, resolver: &Resolver) -> String {
    match name {
        Some(name) => {
            format!(
                "most samples lie in {name} of {file}, and neither the kernel's code nor what is made at run time is in a file here"
            )
        }
        None => {
            let cure = resolver.note(file).map_or_else(String::new, |note| format!("; {note}"));
            format!("most samples lie in code without a symbol of {file}{cure}")
        }
    }
}

/// Whether a function has a symbol and is in a file, and not the kernel's or made at run time.
fn has_code((file, name): &FunctionKey) -> bool {
    file.starts_with('/') && name.is_some()
}

fn render(listing: &Listing, context: usize) -> String {
    let mut text = String::new();
    if let Some(filter) = &listing.filter {
        text::line(&mut text, format_args!("only      {filter}"));
    }
    text::remarks(&mut text, &listing.remarks);
    for function in &listing.functions {
        text::line(&mut text, format_args!("function  {} of {}", function.function, function.module));
        for &event in &listing.shown {
            let (of, here, all) = (&listing.events[event], function.all[event], listing.all[event]);
            let share = Estimate::of(here, all);
            text::line(
                &mut text,
                format_args!(
                    "event     {} in {}, {}: {} here, {:.1} % ± {:.1} of all",
                    of.name,
                    text::privilege(of),
                    text::how(of, &listing.machine),
                    counted(here.samples, "sample"),
                    share.share * 100.0,
                    share.error * 100.0
                ),
            );
        }
        body(&mut text, listing, function, context);
        text.push('\n');
    }
    text.push_str("Percentages are of the function's own samples.\n");
    for note in &listing.notes {
        text::line(&mut text, format_args!("note: {note}"));
    }
    text
}

/// Instructions with the source line where it changes; stretches far from any sample are left out.
fn body(text: &mut String, listing: &Listing, function: &Annotated, context: usize) {
    let timed = listing.shown.iter().any(|&event| function.all[event].timed > 0);
    let names = listing.shown.iter().map(|&event| listing.events[event].name.as_str());
    let numbers: Vec<&str> = names.chain(timed.then_some("cycles")).chain(["line"]).collect();
    let mut table = table::plain();
    table.set_header(numbers.iter().chain(&["source", "address", "instruction"]));
    let sampled: Vec<usize> = (0..function.instructions.len())
        .filter(|&place| {
            listing.shown.iter().any(|&event| function.instructions[place].sums[event].samples > 0)
        })
        .collect();
    let near = |place: usize| sampled.iter().any(|&other| place.abs_diff(other) <= context);
    let gap = || numbers.iter().map(|_| String::new()).chain(["…", "", ""].map(str::to_owned));
    let (mut line, mut left_out, mut next) = (None, false, None);
    for (place, instruction) in function.instructions.iter().enumerate() {
        // Parts of a function can lie apart.
        left_out |= next.is_some_and(|next| next != instruction.address);
        next = Some(instruction.address + u64::from(instruction.bytes));
        if !near(place) {
            left_out = true;
            continue;
        }
        if std::mem::take(&mut left_out) {
            table.add_row(gap());
            line = None;
        }
        let begins = instruction.line != line;
        line = instruction.line;
        table.add_row(cells(listing, function, instruction, timed, begins));
    }
    if left_out {
        table.add_row(gap());
    }
    text.push('\n');
    table::finish(text, table, numbers.len());
}

fn cells(
    listing: &Listing,
    function: &Annotated,
    instruction: &AnnotatedInstruction,
    timed: bool,
    begins: bool,
) -> Vec<String> {
    let percent = |&event: &usize| match (instruction.sums[event].events, function.all[event].events) {
        (0, _) | (_, 0) => String::new(),
        (own, all) => format!("{:.1} %", own as f64 * 100.0 / all as f64),
    };
    let mut cells: Vec<String> = listing.shown.iter().map(percent).collect();
    if timed {
        let latency = listing.shown.iter().find_map(|&event| instruction.sums[event].mean_latency());
        cells.push(latency.map_or_else(String::new, |cycles| format!("{cycles:.1}")));
    }
    let line = instruction.line.filter(|_| begins).map(|line| &function.lines[line]);
    cells.push(line.map_or_else(String::new, |line| line.line.to_string()));
    cells.push(line.map_or_else(String::new, |line| match &line.text {
        Some(source) => cut(source.trim_end()),
        None => table::shortened(&line.file).into_owned(),
    }));
    let target = instruction.target.as_ref().map_or_else(String::new, |target| format!(" <{target}>"));
    cells.push(format!("{:x}", instruction.address));
    cells.push(format!("{}{target}", instruction.text));
    cells
}

/// A source line as far as a table bears it.
fn cut(line: &str) -> String {
    const CHARACTERS: usize = 60;
    let spaces = line.replace('\t', "    ");
    match spaces.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &spaces[..end]),
        None => spaces,
    }
}

#[cfg(test)]
mod tests;
