//! Tables, trees, branches and flame graphs of a trace's samples.

use std::path::Path;

use anyhow::{Result, bail};
use libhpm::export::{counts_remarks, remarks};
use libhpm::flame::FoldedStacks;
use libhpm::report::{
    BranchEntry, BranchTable, CallNode, CallTree, Direction, Entry, Filter, Grouping, Order, Resolver, Sum,
    Summary, Table, Tally,
};
use libhpm::trace::{Event, EventUse, Meta, SampleRow, TraceReader};
use serde::Serialize;

use super::lacking::{Functions, no_sample};
use super::{GroupBy, ReportArgs, SortBy, event_index, text};
use crate::filters::lacking;
use crate::opened::{how_unfinished, open_trace};
use crate::output::warn;
use crate::picture;

/// Per cent of the events below which a branch of a tree is left out.
const USUAL_SHARE: f64 = 0.5;

/// Everything that the text and the JSON show.
#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) meta: &'a Meta,
    pub(super) summary: Summary,
    /// Which samples were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter: Option<String>,
    /// The filter chooses code or data, so that the counts are of more than the samples.
    #[serde(skip)]
    pub(super) counts_exceed: bool,
    /// The filter chooses quanta, so that of lost ones it is not known whether it would have chosen them.
    #[serde(skip)]
    pub(super) quanta_chosen: bool,
    pub(super) tables: Vec<Grouped>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) trees: Vec<Calls>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) branches: Option<Taken>,
    pub(super) warnings: Vec<String>,
    remarks: Vec<String>,
    pub(super) notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) picture: Option<&'a Path>,
}

/// The branches of the samples' branch records, cut to the number of rows asked for.
#[derive(Serialize)]
pub(super) struct Taken {
    /// Branch records of all samples.
    pub(super) all: u64,
    /// How many different branches there are.
    pub(super) groups: usize,
    pub(super) entries: Vec<BranchEntry>,
}

/// One table of one event, cut to the number of rows asked for.
#[derive(Serialize)]
pub(super) struct Grouped {
    /// Index into the events of the summary.
    pub(super) event: usize,
    pub(super) by: Grouping,
    pub(super) all: Sum,
    pub(super) groups: usize,
    pub(super) entries: Vec<Entry>,
}

/// Callers or callees of one event's samples.
#[derive(Serialize)]
pub(super) struct Calls {
    /// Index into the events of the summary.
    pub(super) event: usize,
    pub(super) direction: Direction,
    /// The function that the tree begins with; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) function: Option<String>,
    pub(super) all: Sum,
    pub(super) nodes: Vec<CallNode>,
}

/// What is to be printed, and what is to be warned of; the flame graph is written on the way.
pub(super) fn output(args: &ReportArgs) -> Result<(String, Vec<String>)> {
    let reader = open_trace(&args.trace)?;
    let event = args.event.as_deref().map(|name| event_index(reader.meta(), name)).transpose()?;
    let mut resolver = Resolver::new(&reader, args.files.finder());
    let filter = args.filters.of(&reader)?;
    let collected = Collected::read(&reader, &mut resolver, args, event, &filter);
    if collected.nothing(filter.chooses_code_or_data()) {
        let missing = Functions::of(&reader, &mut resolver).missing(&args.filters);
        bail!("{}{missing}", collected.empty(&args.trace, &filter));
    }
    if let Some(path) = &args.picture {
        collected.flame_graph(path, reader.meta()).unwrap_or_else(|| {
            // A trace that is damaged may have none for that alone.
            warn(&collected.warnings);
            bail!(no_sample(&args.trace, reader.meta(), event, &filter))
        })?;
    }
    let tables = collected.tables(args.limit, args.sort.into());
    let untimed = !tables.is_empty() && tables.iter().all(|table| table.all.timed == 0);
    if matches!(args.sort, SortBy::Latency) && untimed {
        bail!(
            "no sample here has a latency to sort by: record loads where the hardware measures it (`hpmctl list` says which events), \
             or sort by events"
        );
    }
    let trees = collected.calls(args, || Functions::of(&reader, &mut resolver))?;
    let branches = collected.taken(args)?;
    let report = Report {
        meta: reader.meta(),
        filter: args.filters.words(),
        counts_exceed: filter.chooses_code_or_data(),
        quanta_chosen: filter.chooses_quanta(),
        notes: notes(&resolver, tables.iter().flat_map(|table| &table.entries)),
        tables,
        trees,
        branches,
        summary: collected.summary,
        warnings: collected.warnings,
        remarks: all_remarks(reader.meta(), &filter),
        picture: args.picture.as_deref(),
    };
    let output =
        if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { text::render(&report) };
    Ok((output, report.warnings))
}

/// What has to be known of samples and counts; of counts of some quanta only, that they may be estimates.
pub(crate) fn all_remarks(meta: &Meta, filter: &Filter) -> Vec<String> {
    remarks(meta).into_iter().chain(counts_remarks(meta, filter.chooses_quanta())).collect()
}

/// What one pass over a trace gathers.
struct Collected {
    summary: Summary,
    /// Tables with the index of their event.
    tables: Vec<(usize, Table)>,
    trees: Vec<(usize, Direction, CallTree)>,
    stacks: FoldedStacks,
    branches: BranchTable,
    /// The event whose stacks are drawn.
    drawn: Option<usize>,
    warnings: Vec<String>,
}

impl Collected {
    fn read(
        reader: &TraceReader,
        resolver: &mut Resolver,
        args: &ReportArgs,
        only: Option<usize>,
        filter: &Filter,
    ) -> Self {
        let (mut summary, cut) = Summary::new(reader, filter, resolver);
        let events = sampled_events(reader.meta(), only);
        let (mut tables, mut trees) = (empty_tables(args, &events), empty_trees(args, &events));
        let mut stacks = FoldedStacks::default();
        let mut rows = reader.rows::<SampleRow>();
        let mut tally = Tally::default();
        let mut branches = BranchTable::default();
        let show_branches = args.only_by(GroupBy::Branch);
        rows.by_ref().for_each(|row| {
            let sample = resolver.resolve(&row);
            if !filter.takes(&row, &sample) {
                return;
            }
            if show_branches && only.is_none_or(|only| only == usize::from(row.event)) {
                branches.add(resolver, &row);
            }
            tally.add(sample, row.period, row.latency_cycles);
        });
        // Events of different kinds cannot be added up, so one picture shows one event: the first that can be seen in it.
        let is_dense = |event: usize| reader.meta().events[event].within.is_some();
        let has_samples = |&event: &usize| tally.iter().any(|(sample, _)| event == usize::from(sample.event));
        let drawn = events.into_iter().filter(|_| args.picture.is_some()).find(has_samples);
        for (sample, sum) in tally.iter() {
            let event = usize::from(sample.event);
            summary.add(sample, sum);
            tables.iter_mut().filter(|(of, _)| *of == event).for_each(|(_, table)| table.add(sample, sum));
            trees.iter_mut().filter(|(of, ..)| *of == event).for_each(|(.., tree)| tree.add(sample, sum));
            if drawn == Some(event) {
                // Of places where the event is dense widths are samples.
                let events = if is_dense(event) { sum.samples } else { sum.events };
                stacks.add(sample, Sum { events, ..sum });
            }
        }
        let cuts = resolver.cuts().iter().cloned().chain(cut).chain(rows.cut());
        let mut warnings: Vec<String> = cuts.map(|cut| cut.to_string()).collect();
        warnings.extend(unfinished(reader));
        let mut collected = Self { summary, tables, trees, stacks, branches, drawn, warnings };
        if let Some(only) = only {
            collected.keep(only);
        }
        collected
    }

    /// Leaves the summaries of other events out. All tables and trees are of this one: it becomes the first.
    fn keep(&mut self, only: usize) {
        self.summary.events = vec![self.summary.events.swap_remove(only)];
        self.tables.iter_mut().for_each(|(event, _)| *event = 0);
        self.trees.iter_mut().for_each(|(event, ..)| *event = 0);
    }

    /// Draws the stacks; `None` when there is no sample to draw.
    fn flame_graph(&self, path: &Path, meta: &Meta) -> Option<Result<()>> {
        let Event { name, within, .. } = &meta.events[self.drawn?];
        let unit =
            if within.is_some() { format!("samples of {name}") } else { format!("{name} (estimated)") };
        Some(draw(path, &self.stacks, meta, name, &unit))
    }

    /// The branches, when they are asked for.
    fn taken(&self, args: &ReportArgs) -> Result<Option<Taken>> {
        if !args.only_by(GroupBy::Branch) {
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

    /// Quanta have neither code nor data.
    fn nothing(&self, only_samples: bool) -> bool {
        let no_sample = self.summary.events.iter().all(|event| event.sampled.samples == 0);
        no_sample && (only_samples || self.summary.quanta == 0)
    }

    /// What to say then.
    fn empty(&self, path: &Path, filter: &Filter) -> String {
        let what = if filter.chooses_code_or_data() { "no sample" } else { "no quantum and no sample" };
        let path = path.display();
        match self.warnings.first() {
            Some(warning) => format!("{path} holds {what} {}: {warning}", lacking(filter)),
            None if filter.is_empty() => {
                format!("{path} holds {what}: record for longer, or sample more often (-c)")
            }
            None => format!("{path} holds {what} {}", lacking(filter)),
        }
    }

    fn tables(&self, limit: usize, order: Order) -> Vec<Grouped> {
        let grouped = |(event, table): &(usize, Table)| {
            let mut entries = table.entries(order);
            let groups = entries.len();
            entries.truncate(limit);
            Grouped { event: *event, by: table.by().clone(), all: table.all(), groups, entries }
        };
        self.tables.iter().map(grouped).collect()
    }

    /// The trees; `functions` are those to choose from.
    fn calls(&self, args: &ReportArgs, functions: impl FnOnce() -> Functions) -> Result<Vec<Calls>> {
        let function = args.callers.clone().or_else(|| args.callees.clone()).flatten();
        let calls = |(event, direction, tree): &(usize, Direction, CallTree)| Calls {
            event: *event,
            direction: *direction,
            function: function.clone(),
            all: tree.all(),
            nodes: tree.nodes(args.limit, args.min_share.unwrap_or(USUAL_SHARE) / 100.0),
        };
        let all: Vec<Calls> = self.trees.iter().map(calls).collect();
        match &function {
            Some(name)
                if !all.is_empty() && self.trees.iter().all(|(.., tree)| tree.nodes(1, 0.0).is_empty()) =>
            {
                let near = functions().near(name);
                bail!(
                    "no sample's stack has a function `{name}`{near}; name it as `hpmctl report` does, and record with --stacks"
                )
            }
            _ => Ok(all),
        }
    }
}

/// The events with samples that are looked at.
pub(crate) fn sampled_events(meta: &Meta, only: Option<usize>) -> Vec<usize> {
    let sampled = |(index, event): (usize, &Event)| {
        (event.mode != EventUse::Count && only.is_none_or(|only| only == index)).then_some(index)
    };
    meta.events.iter().enumerate().filter_map(sampled).collect()
}

fn empty_tables(args: &ReportArgs, events: &[usize]) -> Vec<(usize, Table)> {
    if args.callers.is_some() || args.callees.is_some() {
        return vec![];
    }
    let by = args.tables();
    events.iter().flat_map(|&event| by.iter().map(move |by| (event, Table::new(by.clone())))).collect()
}

fn empty_trees(args: &ReportArgs, events: &[usize]) -> Vec<(usize, Direction, CallTree)> {
    let (direction, function) = match (&args.callers, &args.callees) {
        (Some(function), _) => (Direction::Callers, function),
        (_, Some(function)) => (Direction::Callees, function),
        _ => return vec![],
    };
    let tree = |&event: &usize| (event, direction, CallTree::new(direction, function.clone()));
    events.iter().map(tree).collect()
}

/// What has to be said of a recording that did not end.
pub(crate) fn unfinished(reader: &TraceReader) -> Option<String> {
    let how = how_unfinished(reader.is_growing());
    (!reader.meta().complete).then(|| format!("{how}; the report covers what was written until then"))
}

/// Draws a flame graph of something that was measured in these units.
pub(super) fn draw(path: &Path, stacks: &FoldedStacks, meta: &Meta, what: &str, unit: &str) -> Result<()> {
    let title = match meta.command.first() {
        // The arguments would not fit the picture's width.
        // The kernel's threads have names with slashes.
        Some(thread) if thread.starts_with('[') => format!("{thread}: {what}"),
        Some(program) => format!("{}: {what}", program.rsplit('/').next().unwrap_or(program)),
        None if meta.subject.is_empty() => what.to_owned(),
        None => format!("{}: {what}", meta.subject),
    };
    picture::write(path, |file| stacks.write_svg(&title, unit, file))
}

/// What stands in the way of full symbols for the modules in the tables.
pub(super) fn notes<'a>(resolver: &Resolver, entries: impl Iterator<Item = &'a Entry>) -> Vec<String> {
    let modules = entries.filter_map(|entry| entry.key.module.as_deref());
    let mut notes: Vec<String> =
        modules.filter_map(|module| resolver.note(module)).map(str::to_owned).collect();
    notes.sort();
    notes.dedup();
    notes
}
