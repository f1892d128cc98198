//! `hpmctl locality`: where in memory the events of a trace happen, and which threads share cache lines.

mod csv;
mod text;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use libhpm::analysis::address::Unknown;
use libhpm::analysis::locality::{self, Entry, Profile, Sharing, Space, Sum};
use libhpm::export::remarks;
use libhpm::report::{Agreement, Locator, Resolver, objects};
use libhpm::trace::{Allocations, Meta, SampleRow, TraceReader};
use serde::Serialize;

use crate::files::FilesArgs;
use crate::filters::{FilterArgs, lacking};
use crate::follow::FollowArgs;
use crate::opened::open_trace;
use crate::output::grouped;
use crate::report::event_index;
use crate::report::samples::{sampled_events, unfinished};

/// Bytes of a nursery, as of a usual generational heap: what a program allocated within so many bytes is young.
const NURSERY_BYTES: u64 = 4 << 20;

/// Show where in memory the samples of a trace are: stack, variables, heap, files; by page, line, object.
///
/// An address is the one that hardware gave, else computed from the instruction and the registers of the sample, else unknown, with the
/// reason. Objects and their places of allocation are known of a trace that was recorded with --allocations.
#[derive(Args, Debug)]
pub(crate) struct LocalityArgs {
    /// What to group samples by
    #[arg(long, value_enum, default_value_t)]
    by: GroupBy,
    /// Report only this event
    #[arg(short, long, value_name = "NAME")]
    event: Option<String>,
    /// Show at most this many rows
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Of lines show only those that several threads share, and of these first the candidates for false sharing
    #[arg(long)]
    sharing: bool,
    /// An object is young until its process has allocated so many bytes more
    #[arg(long, value_name = "BYTES", default_value_t = NURSERY_BYTES)]
    nursery: u64,
    /// Print JSON for other programs
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values: a line for each group and event
    #[arg(long)]
    csv: bool,
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

/// Values of `--by`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum GroupBy {
    /// Kind of memory: stack, global, heap, …
    #[default]
    Space,
    /// Page of 4096 bytes
    Page,
    /// Cache line of 64 bytes, with the threads that use it
    Line,
    /// Variable
    Symbol,
    /// Allocated object
    Object,
    /// Place of allocation
    Site,
    /// Why addresses are not known
    Reason,
}

impl From<GroupBy> for locality::By {
    fn from(by: GroupBy) -> Self {
        match by {
            GroupBy::Space => Self::Space,
            GroupBy::Page => Self::Page,
            GroupBy::Line => Self::Line,
            GroupBy::Symbol => Self::Symbol,
            GroupBy::Object => Self::Object,
            GroupBy::Site => Self::Site,
            GroupBy::Reason => Self::Reason,
        }
    }
}

/// Everything that is shown.
#[derive(Serialize)]
struct Report<'a> {
    meta: &'a Meta,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    by: locality::By,
    /// Names of the events, in the order of the sums.
    events: Vec<&'a str>,
    /// All samples of each event.
    all: Vec<Sum>,
    addresses: Addresses,
    groups: usize,
    entries: Vec<Entry>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// How addresses came to be known.
#[derive(Debug, Default, Serialize)]
struct Addresses {
    /// Samples whose address hardware gave.
    hardware: u64,
    /// Samples whose address was computed.
    computed: u64,
    /// Samples without, by reason, the most frequent first.
    unknown: Vec<(Unknown, u64)>,
    /// Of samples that have both, how many agree.
    agreement: Agreement,
    /// Bytes of the nursery by which objects are young; absent without recorded allocations.
    #[serde(skip_serializing_if = "Option::is_none")]
    nursery: Option<u64>,
    /// How allocations were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocations: Option<Allocations>,
}

/// Runs the command.
///
/// # Errors
/// The folder is no trace, has no sample that was asked for, or the output cannot be written.
pub(crate) fn run(args: &LocalityArgs) -> Result<()> {
    args.follow.show(&args.trace, || output(args))
}

fn output(args: &LocalityArgs) -> Result<(String, Vec<String>)> {
    if args.sharing && args.by != GroupBy::Line {
        bail!("--sharing chooses lines: add --by line");
    }
    let reader = open_trace(&args.trace)?;
    let meta = reader.meta();
    let needs_objects = matches!(args.by, GroupBy::Object | GroupBy::Site);
    if needs_objects && meta.allocations.is_none() {
        bail!(
            "{} has no allocations, so that its objects are not known: record with --allocations",
            args.trace.display()
        );
    }
    let only = args.event.as_deref().map(|name| event_index(meta, name)).transpose()?;
    let events = sampled_events(meta, only);
    let Collected { profile, addresses, warnings } = collect(args, &reader, &events)?;
    let mut entries = chosen(args, &profile);
    let groups = entries.len();
    entries.truncate(args.limit);
    let report = Report {
        meta,
        filter: args.filters.words(),
        by: profile.by(),
        events: events.iter().map(|&event| meta.events[event].name.as_str()).collect(),
        all: profile.all().to_vec(),
        addresses,
        groups,
        entries,
        warnings,
        remarks: remarks(meta).into_iter().chain(unknown_objects(meta)).collect(),
    };
    let output = match (args.json, args.csv) {
        (true, _) => serde_json::to_string_pretty(&report)? + "\n",
        (_, true) => csv::render(&report),
        _ => text::render(&report),
    };
    // A table has no place for remarks.
    let remarks = report.remarks.into_iter().filter(|_| args.csv);
    Ok((output, report.warnings.into_iter().chain(remarks).collect()))
}

/// What has to be known of objects when not all were recorded.
pub(crate) fn unknown_objects(meta: &Meta) -> Option<String> {
    meta.allocations.and_then(|how| how.sentence(&grouped(how.sampled_bytes)))
}

/// What one pass over the samples gathers.
struct Collected {
    profile: Profile,
    addresses: Addresses,
    warnings: Vec<String>,
}

/// Locates the samples of these events that the filters choose.
fn collect(args: &LocalityArgs, reader: &TraceReader, events: &[usize]) -> Result<Collected> {
    let meta = reader.meta();
    let mut resolver = Resolver::new(reader, args.files.finder());
    let filter = args.filters.of(reader)?;
    let (objects, objects_cut) = objects(reader, &mut resolver);
    let mut locator = Locator::new(&meta.events, args.files.finder());
    reader.rows::<SampleRow>().for_each(|row| locator.note(&row));
    let mut profile = Profile::new(args.by.into(), events.len());
    let mut addresses = Addresses::default();
    let mut rows = reader.rows::<SampleRow>();
    for mut row in rows.by_ref() {
        let Some(place) = events.iter().position(|&event| event == usize::from(row.event)) else { continue };
        let located = locator.locate(&resolver, &row, |address| {
            let (object, age) = objects.at(row.pid, row.tsc, address)?;
            Some((object, age < args.nursery))
        });
        // So that --data chooses by computed addresses, too.
        row.data_address = located.access.address.ok();
        if !filter.is_empty() && !filter.takes(&row, &resolver.resolve(&row)) {
            continue;
        }
        addresses.add(located.access.address, located.by_hardware);
        profile.add(&locality::Access { event: place, ..located.access });
    }
    addresses.agreement = locator.agreement();
    addresses.allocations = meta.allocations;
    addresses.nursery = meta.allocations.map(|_| args.nursery);
    if profile.all().iter().all(|sum| sum.samples == 0) {
        bail!("{} holds no sample {}", args.trace.display(), lacking(&filter));
    }
    let cuts = resolver.cuts().iter().cloned().chain(rows.cut()).chain(objects_cut);
    let warnings: Vec<String> = cuts.map(|cut| cut.to_string()).chain(unfinished(reader)).collect();
    Ok(Collected { profile, addresses, warnings })
}

/// The groups that are asked for, in the order in which they are shown.
fn chosen(args: &LocalityArgs, profile: &Profile) -> Vec<Entry> {
    let mut entries = profile.entries();
    if args.sharing {
        entries.retain(|entry| entry.sharing.is_some());
        // What can be mended comes first.
        entries.sort_by_key(|entry| match entry.sharing {
            Some(Sharing::False) => 0,
            Some(Sharing::True) => 1,
            Some(Sharing::ReadOnly) | None => 2,
        });
    }
    entries
}

impl Addresses {
    fn add(&mut self, address: Result<u64, Unknown>, by_hardware: bool) {
        match address {
            Ok(_) if by_hardware => self.hardware += 1,
            Ok(_) => self.computed += 1,
            Err(reason) => {
                match self.unknown.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, samples)) => *samples += 1,
                    None => self.unknown.push((reason, 1)),
                }
                self.unknown.sort_by_key(|(reason, samples)| (std::cmp::Reverse(*samples), *reason));
            }
        }
    }

    fn known(&self) -> u64 {
        self.hardware + self.computed
    }

    fn unknown_samples(&self) -> u64 {
        self.unknown.iter().map(|(_, samples)| samples).sum()
    }
}

/// What a group is called.
fn name(entry: &Entry) -> String {
    let key = &entry.key;
    let at = key.address.map(|address| format!("{address:#x}"));
    let bytes = key.bytes.map(|bytes| format!("{bytes} bytes"));
    let name = key.name.as_deref().map(str::to_owned);
    let space = (key.space != Space::Unknown || name.is_none()).then(|| key.space.name().to_owned());
    at.into_iter().chain(space).chain(bytes).chain(name).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests;
