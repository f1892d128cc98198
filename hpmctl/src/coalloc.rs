//! `hpmctl coalloc`: through which references missed objects were reached, and which objects belong together.

mod text;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use libhpm::analysis::coallocation::layout::{Hint, hints};
use libhpm::analysis::coallocation::{Advice, Field, Rules, Weight, advise};
use libhpm::export::remarks;
use libhpm::report::{Locator, References, Resolver, Unattributed, objects};
use libhpm::trace::{Allocations, EventUse, Meta, SampleRow};
use serde::Serialize;

use crate::files::FilesArgs;
use crate::filters::FilterArgs;
use crate::follow::FollowArgs;
use crate::locality::unknown_objects;
use crate::opened::open_trace;
use crate::report::event_index;
use crate::report::samples::{sampled_events, unfinished};

/// Show through which fields missed objects were reached, and which objects are worth allocating together.
///
/// Each sample's address is followed backwards through its function's machine code to the field that it was loaded from. Types and fields
/// have names where the program has debug information; else the places of allocation stand for types, where the trace was recorded with
/// --allocations. Sizes, ages and lifetimes of objects need --allocations, too.
#[derive(Args, Debug)]
pub(crate) struct CoallocArgs {
    /// The event to look at, which should be one of missing loads [default: the first that was sampled precisely]
    #[arg(short, long, value_name = "NAME")]
    event: Option<String>,
    /// Samples that a field needs before something is advised
    #[arg(long, default_value_t = 100.0, value_name = "N")]
    threshold: f64,
    /// Bytes of a cache line
    #[arg(long, default_value_t = 64, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(8..=4096))]
    line: u64,
    /// An object that is freed before its process has allocated so many bytes more dies young
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20)]
    nursery: u64,
    /// Show at most this many fields, pairs and types
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    follow: FollowArgs,
    #[command(flatten)]
    files: FilesArgs,
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
    #[command(flatten)]
    filters: FilterArgs,
}

/// Everything that is shown.
#[derive(Serialize)]
struct Report<'a> {
    meta: &'a Meta,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    event: &'a str,
    /// It was sampled only where it is dense.
    #[serde(skip)]
    dense: bool,
    /// All samples that were looked at.
    all: Weight,
    /// What came through no known field, by reason, in samples.
    unattributed: Vec<(Unattributed, f64)>,
    /// How many fields there are; `fields` is cut to the number of rows asked for, as `advice` and `types` are.
    field_count: usize,
    fields: Vec<Row>,
    rules: Rules,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocations: Option<Allocations>,
    advice: Vec<Advice>,
    types: Vec<Type>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// A row of Table 5.1.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    field: Field,
    #[serde(flatten)]
    weight: Weight,
}

/// Hints for the fields of a type.
#[derive(Serialize)]
struct Type {
    name: String,
    bytes: u64,
    samples: u64,
    hints: Vec<Hint>,
}

/// Runs the command.
///
/// # Errors
/// The folder is no trace, has no sample that was asked for, or the output cannot be written.
pub(crate) fn run(args: &CoallocArgs) -> Result<()> {
    args.follow.show(&args.trace, || output(args))
}

fn output(args: &CoallocArgs) -> Result<(String, Vec<String>)> {
    let reader = open_trace(&args.trace)?;
    let meta = reader.meta();
    let event = chosen_event(args, meta)?;
    let mut resolver = Resolver::new(&reader, args.files.finder());
    let filter = args.filters.of(&reader)?;
    let (objects, objects_cut) = objects(&reader, &mut resolver);
    let mut locator = Locator::new(&meta.events, args.files.finder());
    let mut references = References::new(meta, args.files.finder());
    for row in reader.rows::<SampleRow>() {
        locator.note(&row);
        references.note(&resolver, &mut locator, &row);
    }
    let mut rows = reader.rows::<SampleRow>();
    for mut row in rows.by_ref().filter(|row| usize::from(row.event) == event) {
        let located = locator.locate(&resolver, &row, |address| {
            let (object, _) = objects.at(row.pid, row.tsc, address)?;
            let young = objects.dies_young(object.number as usize, args.nursery);
            Some((object, young))
        });
        row.data_address = located.access.address.ok();
        if filter.is_empty() || filter.takes(&row, &resolver.resolve(&row)) {
            references.add(&resolver, &mut locator, &row, &located, &objects);
        }
    }
    let weights = references.weights();
    let all = weights.all();
    if all.samples == 0.0 {
        bail!(
            "{} holds no sample of {}{}",
            args.trace.display(),
            meta.events[event].name,
            if filter.is_empty() { "" } else { " that was asked for" }
        );
    }
    let rules = args.rules();
    let mut advice = advise(references.candidates(), all, &rules);
    advice.truncate(args.limit);
    let table = weights.table();
    let cuts = resolver.cuts().iter().cloned().chain(rows.cut()).chain(objects_cut);
    let warnings: Vec<String> =
        cuts.map(|cut| cut.to_string()).chain(unfinished(&reader)).chain(left_out(&references)).collect();
    let report = Report {
        meta,
        filter: args.filters.words(),
        event: &meta.events[event].name,
        dense: meta.events[event].within.is_some(),
        all,
        unattributed: references.unattributed(),
        field_count: table.len(),
        fields: table.into_iter().take(args.limit).map(|(field, weight)| Row { field, weight }).collect(),
        rules,
        allocations: meta.allocations,
        advice,
        types: types(&references, args),
        warnings,
        remarks: remarks(meta).into_iter().chain(unknown_objects(meta)).collect(),
    };
    let output =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { text::render(&report) };
    Ok((output, report.warnings))
}

impl CoallocArgs {
    /// A programmer follows the advice, not a collector that moves objects.
    fn rules(&self) -> Rules {
        Rules { hot_samples: self.threshold, line_bytes: self.line, elements_apart: true, ..Rules::default() }
    }
}

/// Warnings of binaries whose types are not known, and of branch records that do not tell enough.
fn left_out(references: &References) -> impl Iterator<Item = String> {
    let untyped = references.untyped().map(|path| {
        format!(
            "{path} has no debug information that can be read: places of allocation stand for types, or the loads themselves"
        )
    });
    untyped.chain(references.ways_left_out().map(str::to_owned))
}

/// The event that was asked for, or the first that can be attributed.
fn chosen_event(args: &CoallocArgs, meta: &Meta) -> Result<usize> {
    let event = match &args.event {
        Some(name) => event_index(meta, name)?,
        None => {
            let precise = |&event: &usize| meta.events[event].mode == EventUse::Precise;
            let events = || sampled_events(meta, None).into_iter().filter(precise);
            // Samples of dense places are no share of all misses.
            let of_all = events().find(|&event| meta.events[event].within.is_none());
            match of_all.or_else(|| events().next()) {
                Some(event) => event,
                None => bail!(
                    "{} has no event that was sampled precisely: record one of missing loads, as l1d-load-miss",
                    args.trace.display()
                ),
            }
        }
    };
    if meta.events[event].mode != EventUse::Precise {
        bail!(
            "{} was not sampled precisely, so that its samples do not name the instruction that missed",
            meta.events[event].name
        );
    }
    Ok(event)
}

/// Hints for the types that have any.
fn types(references: &References, args: &CoallocArgs) -> Vec<Type> {
    let hinted = references.heat().into_iter().filter_map(|heat| {
        let hints = hints(heat.bytes, &heat.fields, args.line, args.threshold.ceil() as u64);
        let samples = heat.fields.iter().map(|field| field.samples).sum();
        (!hints.is_empty()).then(|| Type { name: heat.name.to_string(), bytes: heat.bytes, samples, hints })
    });
    hinted.take(args.limit).collect()
}

#[cfg(test)]
mod tests;
