//! From the tables of a trace to records.

use std::sync::Arc;

use libhpm::analysis::explore::{Marker, QuantumEnd, Record, Records};
use libhpm::report::Resolver;

use libhpm::symbol::FileFinder;
use libhpm::trace::{MarkerRow, QuantumRow, TraceReader};

use crate::report::samples::unfinished;

/// The quanta with the names of their threads and of the functions in which they ended, the markers, and what is missing.
pub(super) fn records(reader: &TraceReader, finder: FileFinder) -> (Records, Vec<String>) {
    let mut resolver = Resolver::new(reader, finder);
    let khz = reader.meta().clock.tsc_khz.max(1);
    let mut rows = reader.rows::<QuantumRow>();
    let quanta: Vec<QuantumRow> = rows.by_ref().collect();
    let first = quanta.iter().map(|row| row.start_tsc).min().unwrap_or(0);
    let ns = |tsc: u64| (u128::from(tsc.saturating_sub(first)) * 1_000_000 / u128::from(khz)) as u64;
    let mut record = |row: QuantumRow| Record {
        cpu: row.cpu,
        pid: row.pid,
        tid: row.tid,
        thread: resolver.name_at(row.tid, row.end_tsc),
        function: row
            .last_ip
            .and_then(|ip| resolver.function(row.pid, row.end_tsc, ip))
            .unwrap_or_else(|| Arc::from("")),
        start_ns: ns(row.start_tsc),
        end_ns: ns(row.end_tsc),
        end: QuantumEnd::from_number(row.end.into()),
        samples: row.records,
        lost: row.records_lost,
        counts: row.counts,
    };
    let records = quanta.into_iter().map(&mut record).collect();
    let marker = |row: MarkerRow| {
        let ticks = i128::from(row.tsc) - i128::from(first);
        Marker { time_ns: (ticks * 1_000_000 / i128::from(khz)) as i64, text: row.text }
    };
    let mut marker_rows = reader.rows::<MarkerRow>();
    // The recorder's own would stand between a record and what the program or its user named.
    let markers = marker_rows.by_ref().filter(|row| !row.is_recorders()).map(marker).collect();
    let events = reader.meta().events.iter().map(|event| event.name.clone()).collect();
    let cuts = resolver.cuts().iter().cloned().chain(rows.cut()).chain(marker_rows.cut());
    let warnings = cuts.map(|cut| cut.to_string()).chain(unfinished(reader)).collect();
    (Records::new(events, records, markers), warnings)
}
