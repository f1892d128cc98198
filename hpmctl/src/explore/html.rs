//! One page for the browser that holds the records and what draws them, and loads nothing.

use std::collections::HashMap;

use anyhow::Result;
use libhpm::analysis::explore::{Record, Variable};
use serde_json::{Value, json};

use super::View;
use crate::svg::{COLOURS, escaped};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of the chosen records with the metrics of the view.
pub(super) fn page(view: &View<'_>, filter: Option<&str>) -> Result<String> {
    let title = match view.meta.command.is_empty() {
        true => view.meta.machine.host_name.clone(),
        false => view.meta.command.join(" "),
    };
    // A script element ends at its end tag wherever that stands, so that none may stand in the data.
    let data = serde_json::to_string(&data(view, filter))?.replace('<', "\\u003c");
    Ok(PAGE
        .replace("{{title}}", &escaped(&title))
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{data}}", &data))
}

/// Places of texts in a table of different ones.
#[derive(Default)]
struct Texts<'a> {
    places: HashMap<&'a str, usize>,
    all: Vec<&'a str>,
}

impl<'a> Texts<'a> {
    fn place(&mut self, text: &'a str) -> usize {
        *self.places.entry(text).or_insert_with(|| {
            self.all.push(text);
            self.all.len() - 1
        })
    }
}

/// Metrics as the script computes them of sums over records, and the columns of what is added up for that.
fn overall(view: &View<'_>) -> (Vec<Value>, Vec<Vec<u64>>) {
    let mut columns: Vec<Variable> = Vec::new();
    let mut column = |variable: Variable| {
        if view.chosen.iter().all(|record| variable.added(record).is_none()) {
            return Value::Null;
        }
        let place = columns.iter().position(|known| *known == variable).unwrap_or_else(|| {
            columns.push(variable);
            columns.len() - 1
        });
        json!({ "sum": place })
    };
    let outlines = view.metrics.iter().map(|metric| metric.outline(&mut column)).collect();
    let added = |record: &&Record, variable: Variable| variable.added(record).unwrap_or(0);
    let of = |variable: &Variable| view.chosen.iter().map(|record| added(record, *variable)).collect();
    (outlines, columns.iter().map(of).collect())
}

/// The records as columns, of which the script makes all it shows.
fn data(view: &View<'_>, filter: Option<&str>) -> Value {
    let (mut functions, mut threads) = (Texts::default(), Texts::default());
    let records = view.chosen;
    let function: Vec<usize> = records.iter().map(|record| functions.place(&record.function)).collect();
    let thread: Vec<usize> = records.iter().map(|record| threads.place(&record.thread)).collect();
    let values: Vec<Vec<f64>> = view
        .metrics
        .iter()
        .map(|metric| records.iter().map(|record| view.value(metric, record)).collect())
        .collect();
    let (overall, added) = overall(view);
    let remarks = [view.warnings, &view.remarks].concat();
    json!({
        "filter": filter,
        "remarks": remarks,
        "all": view.records.all().len(),
        "colours": COLOURS,
        "metrics": view.metrics.iter().map(|metric| metric.text.as_str()).collect::<Vec<_>>(),
        "markers": view.records.markers().iter().map(|marker| json!([marker.time_ns, marker.text])).collect::<Vec<_>>(),
        "start": records.iter().map(|record| record.start_ns).collect::<Vec<_>>(),
        "end": records.iter().map(|record| record.end_ns).collect::<Vec<_>>(),
        "cpu": records.iter().map(|record| record.cpu).collect::<Vec<_>>(),
        "tid": records.iter().map(|record| record.tid).collect::<Vec<_>>(),
        "how": records.iter().map(|record| record.end_name()).collect::<Vec<_>>(),
        "thread": thread,
        "threads": threads.all,
        "function": function,
        "functions": functions.all,
        "values": values,
        "overall": overall,
        "added": added,
    })
}
