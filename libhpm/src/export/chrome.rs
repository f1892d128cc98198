//! The Chrome trace event format (JSON): each quantum on its thread's track and on its CPU's, each marker as an instant.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hpm_abi::QuantumEnd;
use serde_json::{Map, Value, json};

use super::{first_tsc, quanta_remarks, ticks_to_ns};
use crate::trace::{Cut, MarkerRow, QuantumRow, ThreadRow, TraceReader};

/// Process number of the tracks of CPUs: no process has it.
const CPUS: u32 = u32::MAX;

/// Writes quanta and markers. Times are µs since the first quantum. What is missing in the tables is returned, and said in the file
/// behind the events, because it is known only then.
///
/// # Errors
/// The output cannot be written.
pub fn write_chrome(reader: &TraceReader, output: &mut dyn Write) -> io::Result<Vec<Cut>> {
    let khz = reader.meta().clock.tsc_khz;
    let first = first_tsc(reader);
    let us = |tsc: u64| ticks_to_ns(tsc.saturating_sub(first), khz) as f64 / 1e3;
    let mut events = Events { output, any: false };
    writeln!(events.output, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut cuts = Vec::new();
    let names = names(reader, &mut events, &mut cuts)?;
    let (mut quanta, mut markers) = (reader.rows::<QuantumRow>(), reader.rows::<MarkerRow>());
    for row in quanta.by_ref() {
        let name = names.get(&row.tid).map_or("", String::as_str);
        let args = arguments(reader, &row);
        let (ts, dur) = (us(row.start_tsc), duration(us(row.start_tsc), us(row.end_tsc)));
        let quantum = |name: &str, pid: u32, tid: u32| json!({ "ph": "X", "cat": "quantum", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args });
        events.write(&quantum(&format!("CPU {}", row.cpu), row.pid, row.tid))?;
        events.write(&quantum(&format!("{name} {}", row.tid), CPUS, row.cpu))?;
    }
    for row in markers.by_ref() {
        let (scope, pid, tid) = match (row.pid, row.tid) {
            (Some(pid), Some(tid)) => ("t", pid, tid),
            _ => ("g", 0, 0),
        };
        events.write(&json!({
            "ph": "i", "cat": "marker", "name": row.text, "s": scope, "pid": pid, "tid": tid, "ts": us(row.tsc),
            "args": { "value": row.value },
        }))?;
    }
    cuts.extend(quanta.cut().into_iter().chain(markers.cut()));
    let remarks: Vec<String> =
        quanta_remarks(reader.meta()).into_iter().chain(cuts.iter().map(ToString::to_string)).collect();
    let other = json!({ "exporter": concat!("hpm ", env!("CARGO_PKG_VERSION")), "remarks": remarks });
    writeln!(events.output, "\n],\"otherData\":{other}}}")?;
    Ok(cuts)
}

/// A duration that, added to the start as readers do, does not reach beyond the end: rounding would let one quantum overlap
/// the next.
pub(super) fn duration(start: f64, end: f64) -> f64 {
    let mut duration = (end - start).max(0.0);
    while duration > 0.0 && start + duration > end {
        duration = duration.next_down();
    }
    duration
}

/// Writes one event after another.
struct Events<'a> {
    output: &'a mut dyn Write,
    any: bool,
}

impl Events<'_> {
    fn write(&mut self, event: &Value) -> io::Result<()> {
        if std::mem::replace(&mut self.any, true) {
            self.output.write_all(b",\n")?;
        }
        serde_json::to_writer(&mut self.output, event).map_err(io::Error::from)
    }
}

/// Names the tracks; the last name of each thread.
fn names(
    reader: &TraceReader,
    events: &mut Events<'_>,
    cuts: &mut Vec<Cut>,
) -> io::Result<BTreeMap<u32, String>> {
    let mut names = BTreeMap::new();
    let mut pids = BTreeMap::new();
    let mut threads = reader.rows::<ThreadRow>();
    for row in threads.by_ref() {
        pids.insert(row.tid, row.pid);
        names.insert(row.tid, row.name);
    }
    cuts.extend(threads.cut());
    let mut meta = |what: &str, pid: u32, tid: u32, name: &str| {
        events.write(&json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } }))
    };
    meta("process_name", CPUS, 0, "CPUs")?;
    for (tid, name) in &names {
        let pid = pids[tid];
        meta("thread_name", pid, *tid, name)?;
        if pid == *tid {
            meta("process_name", pid, pid, name)?;
        }
    }
    Ok(names)
}

fn arguments(reader: &TraceReader, row: &QuantumRow) -> Value {
    let mut arguments = Map::new();
    for (event, count) in reader.meta().events.iter().zip(&row.counts) {
        arguments.insert(event.name.clone(), (*count).into());
    }
    let end = match QuantumEnd::from_number(row.end.into()) {
        Some(QuantumEnd::Yielded) => "yielded",
        Some(QuantumEnd::Preempted) => "pre-empted",
        Some(QuantumEnd::Exit) => "exited",
        _ => "cut",
    };
    arguments.insert("end".into(), end.into());
    arguments.insert("samples".into(), row.records.into());
    if row.records_lost > 0 {
        arguments.insert("samples lost".into(), row.records_lost.into());
    }
    Value::Object(arguments)
}
