//! What was computed, as text or JSON.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use libhpm::analysis::explore::{Correlation, Metric, Record, Statistics, Timeline};
use serde_json::{Value, json};

use super::plot::{Plot, Point};
use super::{ExploreArgs, Show, View, timeline};
use crate::output::{counted, grouped, time};
use crate::report::text::remarks;

/// Characters of threads in graphs, in the order of their appearance; more share the last.
const GLYPHS: &str = "abcdefghijklmnopqrstuvwxyz";

pub(super) fn render(args: &ExploreArgs, view: &View<'_>) -> Result<String> {
    let (chosen, all) = (view.chosen.len() as u64, view.records.all().len() as u64);
    let mut head = format!("{} of {} records\n", grouped(chosen), grouped(all));
    remarks(&mut head, &view.remarks);
    let body = match args.show {
        Show::Statistics if args.json => return json_statistics(args, view),
        Show::Correlation if args.json => return json_correlations(view),
        Show::Records if args.json => return json_records(args, view),
        _ if args.json => bail!("graphs have no JSON; --show records has what they show"),
        Show::Statistics => statistics(args, view),
        Show::Correlation => correlation(view)?,
        Show::Records => records(args, view),
        Show::Scatter => {
            let (x, y) = view.scatter()?;
            let point = |record: &Record| (view.value(x, record), view.value(y, record));
            plot(args, view, (&x.text, &y.text), &[], point)
        }
        Show::Time => {
            let y = view.time()?;
            let marks: Vec<f64> =
                view.records.markers().iter().map(|marker| marker.time_ns as f64 / 1e6).collect();
            let point = |record: &Record| (record.start_ns as f64 / 1e6, view.value(y, record));
            plot(args, view, ("start in ms", &y.text), &marks, point)
        }
        Show::Threads => timeline::draw(view, Timeline::Threads, args.width.into()),
        Show::Cpus => timeline::draw(view, Timeline::Cpus, args.width.into()),
        Show::Names => String::new(),
    };
    Ok(format!("{head}\n{body}"))
}

/// Rows with what has to be known of them.
pub(super) fn document(rows: Vec<Value>, warnings: &[String], remarks: &[String]) -> Result<String> {
    let document = json!({ "rows": rows, "warnings": warnings, "remarks": remarks });
    Ok(serde_json::to_string_pretty(&document)?)
}

/// Statistics of one metric over a group.
struct Row<'a> {
    group: String,
    metric: &'a str,
    records: usize,
    overall: f64,
    statistics: Statistics,
}

/// The rows of the groups that are shown, and how many groups more there are.
fn rows<'a>(args: &ExploreArgs, view: &View<'a>) -> (Vec<Row<'a>>, u64) {
    let mut groups: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for &record in view.chosen {
        groups.entry(args.by.map_or_else(String::new, |by| by.key(record))).or_default().push(record);
    }
    let of_group = |(group, records): (String, Vec<&Record>)| {
        let row = |metric: &'a Metric| Row {
            group: group.clone(),
            metric: &metric.text,
            records: records.len(),
            overall: metric.overall(records.iter().copied()),
            statistics: Statistics::of(records.iter().map(|record| view.value(metric, record))),
        };
        view.metrics.iter().map(row).collect()
    };
    let mut groups: Vec<Vec<Row<'a>>> = groups.into_iter().map(of_group).collect();
    // Of equal ones the names' order stays.
    let first_sum = |rows: &Vec<Row<'a>>| rows.first().map_or(0.0, |row| row.statistics.sum);
    groups.sort_by(|one, other| first_sum(other).total_cmp(&first_sum(one)));
    let more = groups.len().saturating_sub(args.limit) as u64;
    (groups.into_iter().take(args.limit).flatten().collect(), more)
}

fn json_statistics(args: &ExploreArgs, view: &View<'_>) -> Result<String> {
    let row = |row: &Row<'_>| {
        json!({
            "group": row.group, "records": row.records, "metric": row.metric, "overall": row.overall,
            "statistics": row.statistics,
        })
    };
    let (rows, more) = rows(args, view);
    let left_out = (more > 0).then(|| format!("{} left out (--limit)", counted(more, "more group")));
    let remarks: Vec<String> = view.remarks.iter().cloned().chain(left_out).collect();
    document(rows.iter().map(row).collect(), view.warnings, &remarks)
}

fn statistics(args: &ExploreArgs, view: &View<'_>) -> String {
    let (rows, more) = rows(args, view);
    let group = args.by.map_or("", |_| "group");
    let mut table =
        table(&[group, "records", "metric", "overall", "sum", "min", "max", "mean", "sd", "mean delta"]);
    let mut undefined = 0;
    for Row { group, metric, records, overall, statistics: s } in &rows {
        undefined += s.undefined;
        let overall = if overall.is_finite() { number(*overall) } else { String::new() };
        let numbers = match s.count {
            0 => Default::default(),
            _ => [s.sum, s.min, s.max, s.mean, s.sd, s.mean_delta].map(number),
        };
        let records = match s.undefined {
            0 => records.to_string(),
            _ => format!("{} of {records}", s.count),
        };
        table.add_row([group.clone(), records, (*metric).to_owned(), overall].into_iter().chain(numbers));
    }
    align(&mut table, &[1, 3, 4, 5, 6, 7, 8, 9]);
    let mut text = lines(&table) + &and_more(more);
    text += "\noverall is computed of the sums over all records, the rest of the values of single records\n";
    if undefined > 0 {
        text += "\"N of M\": the metric cannot be computed for the other records\n";
    }
    text
}

fn pairs<'a>(view: &View<'a>) -> Result<Vec<(&'a str, &'a str, Correlation)>> {
    if view.metrics.len() < 2 {
        bail!("a correlation needs two metrics: give two expressions");
    }
    let mut rows = Vec::new();
    for (index, a) in view.metrics.iter().enumerate() {
        for b in &view.metrics[index + 1..] {
            let values = view.chosen.iter().map(|record| (view.value(a, record), view.value(b, record)));
            rows.push((a.text.as_str(), b.text.as_str(), Correlation::of(values)));
        }
    }
    Ok(rows)
}

fn json_correlations(view: &View<'_>) -> Result<String> {
    let rows = pairs(view)?;
    let row = |(a, b, correlation): &(&str, &str, Correlation)| json!({ "a": a, "b": b, "correlation": correlation });
    document(rows.iter().map(row).collect(), view.warnings, &view.remarks)
}

fn correlation(view: &View<'_>) -> Result<String> {
    let mut table = table(&["metric", "metric", "records", "r", "95 % interval"]);
    for (a, b, correlation) in pairs(view)? {
        let r = correlation.r.map_or_else(|| "one does not vary".to_owned(), |r| format!("{r:.3}"));
        let interval =
            correlation.interval.map_or_else(String::new, |(low, high)| format!("{low:.3} to {high:.3}"));
        table.add_row([a.to_owned(), b.to_owned(), correlation.count.to_string(), r, interval]);
    }
    align(&mut table, &[2, 3]);
    Ok(lines(&table))
}

fn json_records(args: &ExploreArgs, view: &View<'_>) -> Result<String> {
    let row = |record: &&Record| {
        let metrics: BTreeMap<&str, f64> =
            view.metrics.iter().map(|metric| (metric.text.as_str(), view.value(metric, record))).collect();
        json!({
            "cpu": record.cpu, "pid": record.pid, "tid": record.tid, "thread": &*record.thread,
            "start_ns": record.start_ns, "end_ns": record.end_ns, "end": record.end_name(),
            "function": &*record.function, "samples": record.samples, "metrics": metrics,
        })
    };
    document(view.chosen.iter().take(args.limit).map(row).collect(), view.warnings, &view.remarks)
}

fn records(args: &ExploreArgs, view: &View<'_>) -> String {
    let fixed = ["start", "duration", "cpu", "thread", "tid", "end", "function"];
    let metrics = view.metrics.iter().map(|metric| metric.text.as_str());
    let names: Vec<&str> = fixed.into_iter().chain(metrics).collect();
    let mut table = table(&names);
    for record in view.chosen.iter().take(args.limit) {
        let cells = [
            time(record.start_ns),
            time(record.duration_ns()),
            record.cpu.to_string(),
            record.thread.to_string(),
            record.tid.to_string(),
            record.end_name().to_owned(),
            record.function.to_string(),
        ];
        let values = view.metrics.iter().map(|metric| number(view.value(metric, record)));
        table.add_row(cells.into_iter().chain(values));
    }
    let numbers: Vec<usize> = [0, 1, 2, 4].into_iter().chain(fixed.len()..names.len()).collect();
    align(&mut table, &numbers);
    lines(&table) + &and_more(view.chosen.len().saturating_sub(args.limit) as u64)
}

/// Says how much --limit left out.
fn and_more(more: u64) -> String {
    if more > 0 { format!(" … and {} more (--limit)\n", grouped(more)) } else { String::new() }
}

/// Points of a letter for each thread.
fn plot(
    args: &ExploreArgs,
    view: &View<'_>,
    (x_label, y_label): (&str, &str),
    marks: &[f64],
    of: impl Fn(&Record) -> (f64, f64),
) -> String {
    let threads = view.threads();
    let letters = GLYPHS.chars().chain(std::iter::repeat('z'));
    let glyphs: HashMap<u32, char> = threads.iter().map(|(tid, _)| *tid).zip(letters).collect();
    let points = view.chosen.iter().map(|record| {
        let (x, y) = of(record);
        Point { x, y, glyph: glyphs[&record.tid] }
    });
    let plot = Plot { x_label, y_label, width: args.width.into(), height: args.height.into(), marks };
    let legend: Vec<String> = threads.iter().map(|(tid, name)| format!("{} {name}", glyphs[tid])).collect();
    let marked = if marks.is_empty() { "" } else { "; : a marker" };
    format!("{}{}; * several{marked}\n", plot.draw(points), legend.join(", "))
}

fn table(names: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(names);
    table
}

fn align(table: &mut Table, numbers: &[usize]) {
    for &column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn lines(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Whole numbers with groups of digits, others with the digits that matter.
pub(super) fn number(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "undefined".into(),
        _ if value.abs() >= 1000.0 && value.abs() < 1e18 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(value.abs().round() as u64))
        }
        _ if value == value.trunc() => format!("{value}"),
        _ if value.abs() >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.2e}"),
    }
}
