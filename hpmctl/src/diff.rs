//! `hpmctl diff`: what changed between two traces, and whether it is more than chance.

mod windows;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use libhpm::export::is_clock_of_one_mode;
use libhpm::report::{
    Basis, By, Change, EventSummary, Grouping, Order, Resolver, Summary, Table, Tally, changes,
};
use libhpm::trace::{Event, Meta, SampleRow};
use serde::Serialize;

use self::windows::{check_windows, windows_differ};
use crate::files::FilesArgs;
use crate::filters::FilterArgs;
use crate::opened::open_trace;
use crate::output::{amount, grouped, print, warn};
use crate::report::samples::{all_remarks, sampled_events, unfinished};
use crate::report::{event_index, named, table, text};

/// Show what changed between two traces, function by function, and whether it is more than chance.
///
/// Shares of all samples are compared, as runs may be of different length; with --absolute events, for runs that did the same
/// work. What is shown could be chance in at most 5 % of the rows (exact tests: Fisher's, with --absolute binomial ones; Benjamini and Hochberg's correction).
/// That is the chance of sampling alone: other differences between two runs it does not know.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// What to group samples by; several at once, as in function,level, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "function")]
    by: Vec<DiffBy>,
    /// Compare events as estimated from samples, and not their shares
    #[arg(long)]
    absolute: bool,
    /// Also show what changed no more than chance allows
    #[arg(long)]
    all: bool,
    /// Show at most this many rows of each table
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: usize,
    /// Compare only this event [default: all that both traces sampled]
    #[arg(short, long, value_name = "NAME")]
    event: Option<String>,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FilesArgs,
    /// The trace before
    #[arg(value_name = "BEFORE.hpm")]
    before: PathBuf,
    /// The trace after
    #[arg(value_name = "AFTER.hpm")]
    after: PathBuf,
    #[command(flatten)]
    filters: FilterArgs,
}

/// Values of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DiffBy {
    Function,
    Line,
    /// Instruction, by the address that the linker gave it: for two runs of the same file
    Instruction,
    /// File that has the code
    Module,
    /// What is mapped where the data is
    Region,
    /// Cache or memory where the data was found
    Level,
}

impl From<DiffBy> for By {
    fn from(by: DiffBy) -> Self {
        match by {
            DiffBy::Function => Self::Function,
            DiffBy::Line => Self::Line,
            DiffBy::Instruction => Self::Instruction,
            DiffBy::Module => Self::Module,
            DiffBy::Region => Self::Region,
            DiffBy::Level => Self::Level,
        }
    }
}

impl DiffArgs {
    fn grouping(&self) -> Grouping {
        Grouping::new(self.by.iter().copied().map(By::from))
    }
}

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Diff {
    basis: Basis,
    by: Grouping,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    traces: [String; 2],
    events: Vec<Compared>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// One event in both traces.
#[derive(Serialize)]
struct Compared {
    name: String,
    sides: [Side; 2],
    changes: Vec<Change>,
}

/// An event in one trace.
#[derive(Serialize)]
struct Side {
    #[serde(skip)]
    meta: Meta,
    event: Event,
    counted: u64,
    /// Share of the time in which the event was counted; absent when that is always.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted_share: Option<f64>,
    samples: u64,
    events: u64,
    quanta_lost: u64,
    records_lost: u64,
    throttled: u64,
}

/// A trace that was read.
struct Read {
    name: String,
    meta: Meta,
    summary: Summary,
    /// A table for each event.
    tables: Vec<Table>,
    warnings: Vec<String>,
    remarks: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// A folder is no trace, or the traces have nothing in common.
pub(crate) fn run(args: &DiffArgs) -> Result<()> {
    let (output, warnings) = output(args)?;
    warn(&warnings);
    print(output.trim_end())
}

fn output(args: &DiffArgs) -> Result<(String, Vec<String>)> {
    let (before, after) = (Read::new(&args.before, args)?, Read::new(&args.after, args)?);
    let basis = if args.absolute { Basis::Events } else { Basis::Share };
    let (mut events, mut windows) = (Vec::new(), Vec::new());
    for (place, event) in before.meta.events.iter().enumerate() {
        let Some(other) = after.meta.events.iter().position(|other| other.name == event.name) else {
            continue;
        };
        let (one, two) = (&before.tables[place], &after.tables[other]);
        if one.all().samples + two.all().samples > 0 {
            let of = [event, &after.meta.events[other]];
            check_windows(args, of)?;
            windows.extend(windows_differ(of));
            let entries = [one, two].map(|table| table.entries(Order::Events));
            let changes = changes((&entries[0], one.all()), (&entries[1], two.all()), basis);
            let sides = [before.side(place), after.side(other)];
            events.push(Compared { name: event.name.clone(), sides, changes });
        }
    }
    if events.is_empty() {
        // A trace that is damaged may have nothing for that alone.
        warn(&[&before.warnings[..], &after.warnings[..]].concat());
        bail!(
            "{} and {} have no samples of an event in common{}",
            before.name,
            after.name,
            if args.filters.words().is_some() { " that were asked for" } else { "" }
        );
    }
    let diff = Diff {
        basis,
        by: args.grouping(),
        filter: args.filters.words(),
        traces: [before.name, after.name],
        events,
        warnings: [before.warnings, after.warnings].concat(),
        remarks: [before.remarks, after.remarks, windows].concat(),
    };
    let output = if args.json {
        serde_json::to_string_pretty(&diff)? + "\n"
    } else {
        render(&diff, args.limit, args.all)
    };
    Ok((output, diff.warnings))
}

impl Read {
    fn new(path: &Path, args: &DiffArgs) -> Result<Self> {
        let reader = open_trace(path)?;
        let meta = reader.meta();
        let only = args.event.as_deref().map(|name| event_index(meta, name)).transpose()?;
        let finder = args.files.finder();
        let mut resolver = Resolver::new(&reader, finder);
        let filter = args.filters.of(&reader)?;
        let (mut summary, cut) = Summary::new(&reader, &filter, &resolver);
        let wanted = sampled_events(meta, only);
        let mut tables: Vec<Table> = meta.events.iter().map(|_| Table::new(args.grouping())).collect();
        let (mut rows, mut tally) = (reader.rows::<SampleRow>(), Tally::default());
        for row in rows.by_ref().filter(|row| wanted.contains(&usize::from(row.event))) {
            let sample = resolver.resolve(&row);
            if filter.takes(&row, &sample) {
                tally.add(sample, row.period, row.latency_cycles);
            }
        }
        for (sample, sum) in tally.iter() {
            summary.add(sample, sum);
            tables[usize::from(sample.event)].add(sample, sum);
        }
        let name = path.display().to_string();
        let cuts = resolver.cuts().iter().cloned().chain(cut).chain(rows.cut()).map(|cut| cut.to_string());
        let warnings = named(&name, cuts.chain(unfinished(&reader)));
        let compares_events = args.absolute && !filter.chooses_code_or_data();
        let far = summary.events.iter().filter(|_| compares_events).filter_map(far_off);
        let remarks = named(&name, all_remarks(meta, &filter).into_iter().chain(far));
        Ok(Self { name, meta: meta.clone(), summary, tables, warnings, remarks })
    }

    fn side(&self, event: usize) -> Side {
        let of = &self.summary.events[event];
        Side {
            meta: self.meta.clone(),
            event: of.event.clone(),
            counted: of.counted,
            counted_share: of.counted_share,
            samples: of.sampled.samples,
            events: of.sampled.events,
            quanta_lost: self.summary.quanta_lost,
            records_lost: self.summary.records_lost,
            throttled: self.summary.throttled,
        }
    }
}

/// What has to be known of an estimate that is far from what was counted, as where the kernel adapts a period badly; a sentence.
fn far_off(of: &EventSummary) -> Option<String> {
    let (counted, sampled) = (of.counted, of.sampled.events);
    let is_of_all =
        of.counted_share.is_none() && of.event.within.is_none() && !is_clock_of_one_mode(&of.event);
    let exceeds = |one: u64, other: u64| u128::from(one) * 4 > u128::from(other) * 5;
    let is_far = counted > 0 && sampled > 0 && (exceeds(sampled, counted) || exceeds(counted, sampled));
    (is_of_all && is_far).then(|| {
        let percent = sampled as f64 * 100.0 / counted as f64;
        format!("the events of {} as estimated from samples are {percent:.0} % of its count", of.event.name)
    })
}

fn render(diff: &Diff, limit: usize, all: bool) -> String {
    let mut text = String::new();
    let [before, after] = &diff.traces;
    text::line(&mut text, format_args!("before    {before}\nafter     {after}"));
    if let Some(filter) = &diff.filter {
        text::line(&mut text, format_args!("only      {filter}"));
    }
    text::remarks(&mut text, &diff.remarks);
    for compared in &diff.events {
        head(&mut text, compared);
        rows(&mut text, diff, compared, limit, all);
    }
    text.push_str(match diff.basis {
        Basis::Share => "\nchange is of the share in all samples, in percentage points",
        Basis::Events => {
            "\nchange is of the events as estimated from samples, for runs that did the same work"
        }
    });
    text.push_str(
        ".\nchance is the rate of false discoveries among the rows that are at least as clear. It covers sampling alone: two \
         runs can differ for other reasons, so compare several.\n",
    );
    text
}

fn head(text: &mut String, compared: &Compared) {
    let [before, after] = &compared.sides;
    text::line(text, format_args!("\nevent     {}", compared.name));
    let counted = |side: &Side| {
        let turns = side
            .counted_share
            .map_or_else(String::new, |share| format!(" in {:.1} % of the time, not scaled,", share * 100.0));
        text::counted(&side.event.name, side.counted, side.events) + &turns
    };
    // Counts of different parts of the time cannot be compared.
    let took_turns = before.counted_share.is_some() || after.counted_share.is_some();
    let ratio = match (before.counted, after.counted) {
        (0, _) | (_, 0) => String::new(),
        _ if took_turns => String::new(),
        (one, other) => format!(" ({:+.1} %)", (other as f64 / one as f64 - 1.0) * 100.0),
    };
    text::line(text, format_args!("counted   {} before, {} after{ratio}", counted(before), counted(after)));
    for (side, name) in [(before, "before"), (after, "after")] {
        let throttled = match side.throttled {
            0 => String::new(),
            throttled => format!(", held back {}", side.meta.held_back(&grouped(throttled)).0),
        };
        text::line(
            text,
            format_args!(
                "samples   {name} {}, in {}, {}; {}{throttled}",
                grouped(side.samples),
                text::privilege(&side.event),
                text::how(&side.event, &side.meta.machine),
                side.meta.lost(side.records_lost, &grouped(side.records_lost))
            ),
        );
    }
}

fn rows(text: &mut String, diff: &Diff, compared: &Compared, limit: usize, all: bool) {
    let shown: Vec<&Change> =
        compared.changes.iter().filter(|change| all || change.is_significant()).collect();
    let chance = compared.changes.iter().filter(|change| !change.is_significant()).count();
    if !shown.is_empty() {
        let mut table = table::plain();
        let numbers = ["before", "after", "change", "chance"];
        table.set_header(numbers.into_iter().chain(table::names(&diff.by)));
        for change in shown.iter().take(limit) {
            table.add_row(cells(&compared.name, change, diff));
        }
        text.push('\n');
        table::finish(text, table, numbers.len());
    }
    if shown.len() > limit {
        text::line(text, format_args!(" … and {} more (--limit)", shown.len() - limit));
    }
    if chance > 0 && !all {
        text::line(
            text,
            format_args!(" {} changed no more than chance allows (--all)", grouped(chance as u64)),
        );
    }
}

fn cells(event: &str, change: &Change, diff: &Diff) -> Vec<String> {
    let mut cells = match diff.basis {
        Basis::Share => {
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            let grown = change.growth(diff.basis) * 100.0;
            vec![
                percent(change.share_before.share),
                percent(change.share_after.share),
                format!("{grown:+.1}"),
            ]
        }
        Basis::Events => {
            let (before, after) = (change.before.events, change.after.events);
            let grown = match before {
                0 => "new".to_owned(),
                before => format!("{:+.1} %", (after as f64 / before as f64 - 1.0) * 100.0),
            };
            vec![amount(event, before), amount(event, after), grown]
        }
    };
    cells.push(match change.false_discovery_rate * 100.0 {
        rate if rate < 0.01 => "< 0.01 %".to_owned(),
        rate => format!("{rate:.2} %"),
    });
    cells.extend(table::name(&diff.by, &change.key));
    cells
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;
    use libhpm::trace::{EventUse, KernelSymbolRow, Meta, Totals, TraceWriter, Within};
    use tempfile::TempDir;

    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        diff: DiffArgs,
    }

    /// Samples of `sort`, `read` and `copy`.
    pub(super) fn trace(temp: &TempDir, name: &str, event: &str, samples: [u64; 3]) -> PathBuf {
        trace_within(temp, name, event, samples, None)
    }

    /// The same, sampled within windows.
    pub(super) fn trace_within(
        temp: &TempDir,
        name: &str,
        event: &str,
        samples: [u64; 3],
        within: Option<Within>,
    ) -> PathBuf {
        let folder = temp.path().join(name);
        let event = Event {
            name: event.into(),
            mode: EventUse::Precise,
            period: 1000,
            within,
            user: true,
            ..Event::default()
        };
        let mut writer =
            TraceWriter::create(&folder, Meta { events: vec![event], ..Meta::default() }).unwrap();
        for ((place, name), count) in (0..).zip(["sort", "read", "copy"]).zip(samples) {
            let address = KERNEL + place * 0x100;
            writer.kernel_symbol(&KernelSymbolRow { address, name: name.into(), module: None }).unwrap();
            let sample = SampleRow { period: 1000, ip: address, ..SampleRow::default() };
            (0..count).for_each(|_| writer.sample(&sample).unwrap());
        }
        let counts = vec![samples.iter().sum::<u64>() * 1000];
        writer.finish(Totals { counts, ..Totals::default() }).unwrap();
        folder
    }

    pub(super) fn diff(before: &Path, after: &Path, options: &[&str]) -> Result<String> {
        let paths = [before.to_str().unwrap(), after.to_str().unwrap()];
        let words = ["diff"].iter().chain(&paths).chain(options);
        output(&Cli::try_parse_from(words).unwrap().diff).map(|(text, _)| text)
    }

    #[test]
    fn changes_are_told_from_chance() {
        let temp = TempDir::new().unwrap();
        let before = trace(&temp, "a.hpm", "load", [600, 300, 100]);
        let after = trace(&temp, "b.hpm", "load", [100, 310, 95]);
        let shown = |options: &[&str]| {
            diff(&before, &after, options).unwrap().replace(&format!("{}/", temp.path().display()), "")
        };
        insta::assert_snapshot!(shown(&[]));
        insta::assert_snapshot!(shown(&["--absolute", "--all"]));
        let json: serde_json::Value = serde_json::from_str(&shown(&["--json", "--absolute"])).unwrap();
        let changes = json["events"][0]["changes"].as_array().unwrap();
        assert_eq!((changes.len(), &changes[0]["function"]), (3, &"sort".into()));
        assert!(
            changes[0]["p_value"].as_f64().unwrap() < 1e-60 && changes[1]["p_value"].as_f64().unwrap() > 0.5
        );
    }

    #[test]
    fn groups_may_have_several_things_in_common() {
        let temp = TempDir::new().unwrap();
        let before = trace(&temp, "a.hpm", "load", [600, 300, 100]);
        let after = trace(&temp, "b.hpm", "load", [100, 310, 95]);
        let grouped = |by: &str| -> serde_json::Value {
            let text = diff(&before, &after, &["--json", "--absolute", "--by", by]).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let json = grouped("module");
        let changes = json["events"][0]["changes"].as_array().unwrap();
        assert_eq!((changes.len(), &changes[0]["module"]), (1, &"[kernel]".into()));
        let json = grouped("level,function");
        let changes = json["events"][0]["changes"].as_array().unwrap();
        assert_eq!((&json["by"], changes.len()), (&"level,function".into(), 3), "{changes:?}");
    }

    #[test]
    fn traces_without_a_common_event_are_an_error() {
        let temp = TempDir::new().unwrap();
        let one = trace(&temp, "a.hpm", "load", [1, 1, 1]);
        let other = trace(&temp, "b.hpm", "store", [1, 1, 1]);
        let error = diff(&one, &other, &[]).unwrap_err().to_string();
        assert!(error.contains("have no samples of an event in common"), "{error}");
        assert!(
            diff(&one, &other, &["--event", "load"]).unwrap_err().to_string().contains("no event `load`")
        );
        let same = diff(&one, &one, &[]).unwrap();
        assert!(same.contains("3 changed no more than chance allows"), "{same}");
    }
}
