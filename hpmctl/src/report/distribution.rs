//! `hpmctl report --distribution`: whether few instructions have most of an event, for several traces side by side
//! (Schneider's thesis, Table 4.1, Figures 4.1 and 4.2).

use std::path::Path;

use anyhow::{Result, bail};
use libhpm::export::remarks;
use libhpm::histogram::{self, Bar, Panel};
use libhpm::record::Attribution;
use libhpm::report::{By, Distribution, Entry, Order, QUANTILES, Resolver, Sum, TOP, Table};
use libhpm::trace::{Event, EventUse, SampleRow};
use serde::Serialize;

use super::lacking::no_sample;
use super::samples::{sampled_events, unfinished};
use super::{ReportArgs, event_index, named, table, text};
use crate::opened::open_trace;
use crate::output::{counted, grouped, warn};
use crate::picture;

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Distributions<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    events: Vec<OfEvent>,
    /// Of traces without samples, why.
    #[serde(skip)]
    lacking: Vec<String>,
    warnings: Vec<String>,
    remarks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<&'a Path>,
}

/// One event of one trace.
#[derive(Serialize)]
struct OfEvent {
    trace: String,
    event: Event,
    all: Sum,
    #[serde(flatten)]
    distribution: Distribution,
    /// The instructions with most events.
    top: Vec<Entry>,
}

/// What is to be printed, and what is to be warned of; the picture is drawn on the way.
pub(super) fn output(args: &ReportArgs) -> Result<(String, Vec<String>)> {
    let mut distributions = Distributions {
        filter: args.filters.words(),
        events: Vec::new(),
        lacking: Vec::new(),
        warnings: Vec::new(),
        remarks: Vec::new(),
        picture: args.picture.as_deref(),
    };
    for path in std::iter::once(&args.trace).chain(&args.beside) {
        distributions.add(path, args)?;
    }
    if distributions.events.is_empty() {
        // A trace that is damaged may have none for that alone.
        warn(&distributions.warnings);
        bail!(distributions.lacking.join("; "));
    }
    if let Some(path) = &args.picture {
        picture::write(path, |file| draw(&distributions, file))?;
    }
    let output = if args.json {
        serde_json::to_string_pretty(&distributions)? + "\n"
    } else {
        render(&distributions, args.limit)
    };
    Ok((output, distributions.warnings))
}

impl Distributions<'_> {
    /// Adds a trace.
    fn add(&mut self, path: &Path, args: &ReportArgs) -> Result<()> {
        let reader = open_trace(path)?;
        let only = args.event.as_deref().map(|name| event_index(reader.meta(), name)).transpose()?;
        let mut resolver = Resolver::new(&reader, args.files.finder());
        let filter = args.filters.of(&reader)?;
        let mut tables: Vec<(usize, Table)> = sampled_events(reader.meta(), only)
            .into_iter()
            .map(|event| (event, Table::new(By::Instruction)))
            .collect();
        let mut rows = reader.rows::<SampleRow>();
        let of = |row: &SampleRow| reader.meta().events.get(usize::from(row.event));
        for row in rows.by_ref() {
            let sample = resolver.resolve(&row);
            if filter.takes(&row, &sample) {
                let sum = Sum::sample(of(&row).map_or(row.period, |event| event.weight(row.period)), None);
                let of = tables.iter_mut().find(|(event, _)| *event == usize::from(row.event));
                of.into_iter().for_each(|(_, table)| table.add(&sample, sum));
            }
        }
        let name = path.display().to_string();
        let cuts = resolver.cuts().iter().cloned().chain(rows.cut()).map(|cut| cut.to_string());
        self.warnings.extend(named(&name, cuts.chain(unfinished(&reader))));
        self.remarks.extend(named(&name, remarks(reader.meta())));
        let of_event = |(event, table): (usize, Table)| {
            let mut entries = table.entries(Order::Events);
            let sums: Vec<Sum> = entries.iter().map(|entry| entry.own).collect();
            entries.truncate(TOP);
            OfEvent {
                trace: name.clone(),
                event: reader.meta().events[event].clone(),
                all: table.all(),
                distribution: Distribution::new(&reader.meta().events[event], &sums),
                top: entries,
            }
        };
        tables.retain(|(_, table)| table.all().samples > 0);
        if tables.is_empty() {
            self.lacking.push(no_sample(path, reader.meta(), only, &filter));
        }
        self.events.extend(tables.into_iter().map(of_event));
        Ok(())
    }
}

fn render(distributions: &Distributions<'_>, limit: usize) -> String {
    let mut text = String::new();
    if let Some(filter) = &distributions.filter {
        text::line(&mut text, format_args!("only      {filter}"));
    }
    text::remarks(&mut text, &distributions.remarks);
    if !text.is_empty() {
        text.push('\n');
    }
    quantiles(&mut text, &distributions.events);
    text.push_str(
        "\n100 % is the number of instructions with samples, the other columns how few of them have that share of the events.\n",
    );
    let is_dense = |of: &OfEvent| of.event.within.is_some();
    if !distributions.events.iter().all(is_dense) {
        text.push_str(
            "unseen is about how many more have the event and no sample, at least (Chao's bound).\n",
        );
    }
    if distributions.events.iter().any(is_dense) {
        text.push_str("Where an event was sampled within windows, shares are of its dense places, and what has none of them is not estimated.\n");
    }
    for of in &distributions.events {
        top(&mut text, of, limit);
    }
    if let Some(path) = distributions.picture {
        text::line(&mut text, format_args!("histogram: {}", path.display()));
    }
    text
}

/// Table 4.1, with more quantiles.
fn quantiles(text: &mut String, events: &[OfEvent]) {
    let mut table = table::plain();
    let shares = QUANTILES.map(|percent| format!("{percent} %"));
    let header = ["samples", "100 %"].map(str::to_owned).into_iter().chain(shares);
    table.set_header(header.chain(["unseen", "event", "trace"].map(str::to_owned)));
    for of in events {
        let found = &of.distribution;
        let quantile = |quantile: &libhpm::report::Quantile| {
            format!("{} ({:.1} %)", grouped(quantile.instructions as u64), quantile.part * 100.0)
        };
        let mut cells = vec![grouped(of.all.samples), grouped(found.instructions as u64)];
        cells.extend(found.quantiles.iter().map(quantile));
        // Clocks, too: their interrupts come some instructions late.
        let has_skid = of.event.mode == EventUse::Interrupt || of.event.attribution == Attribution::Skid;
        let imprecise = if has_skid { " (with skid)" } else { "" };
        cells.extend([
            found.unseen.map_or_else(|| "-".to_owned(), |unseen| grouped(unseen.round() as u64)),
            format!("{}{imprecise}", of.event.name),
            of.trace.clone(),
        ]);
        table.add_row(cells);
    }
    table::finish(text, table, QUANTILES.len() + 3);
}

/// The hottest instructions, as a line of bars and as a list.
fn top(text: &mut String, of: &OfEvent, limit: usize) {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = of.top.first().map_or(1, |entry| entry.own.events).max(1);
    let bar = |entry: &Entry| {
        let eighths = (u128::from(entry.own.events) * BARS.len() as u128).div_ceil(highest.into()) as usize;
        BARS[eighths.clamp(1, BARS.len()) - 1]
    };
    let bars: String = of.top.iter().map(bar).collect();
    let share = of.distribution.top_share;
    let whole = if of.event.within.is_some() { "the dense places" } else { "the events" };
    text::line(
        text,
        format_args!(
            "\n{} of {}: the {} instructions with most samples have {:.1} % ± {:.1} of {whole}\n\n {bars}\n",
            of.event.name,
            of.trace,
            of.top.len(),
            share.share * 100.0,
            share.error * 100.0
        ),
    );
    let mut table = table::plain();
    table.set_header(["samples", "share", "±"].into_iter().chain(table::names(&By::Instruction.into())));
    for entry in of.top.iter().take(limit) {
        let own = entry.own_share;
        let numbers = vec![
            grouped(entry.own.samples),
            format!("{:.1} %", own.share * 100.0),
            format!("{:.1}", own.error * 100.0),
        ];
        table.add_row([numbers, table::name(&By::Instruction.into(), &entry.key)].concat());
    }
    table::finish(text, table, 3);
    if of.top.len() > limit {
        text::line(text, format_args!(" … and {} more (--limit)", of.top.len() - limit));
    }
}

fn draw(distributions: &Distributions<'_>, file: &mut Vec<u8>) -> std::io::Result<()> {
    let bar = |(rank, entry): (i64, &Entry)| Bar {
        at: rank,
        share: entry.own_share.share,
        error: entry.own_share.error,
        label: format!(
            "{rank}: {:#x} in {}, {}, {:.2} % ± {:.2}",
            entry.key.address.unwrap_or(0),
            table::function(&entry.key),
            counted(entry.own.samples, "sample"),
            entry.own_share.share * 100.0,
            entry.own_share.error * 100.0
        ),
    };
    let panel = |of: &OfEvent| Panel {
        title: format!("{}: {}, {}", of.trace, of.event.name, counted(of.all.samples, "sample")),
        bars: (1..).zip(&of.top).map(bar).collect(),
    };
    let panels: Vec<Panel> = distributions.events.iter().map(panel).collect();
    let title = format!("The {TOP} instructions with most samples");
    histogram::write_svg(&title, "instructions by rank", &panels, file)
}
