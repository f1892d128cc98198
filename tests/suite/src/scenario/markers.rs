//! Markers against what the programs set.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use libhpm::trace::{MarkerRow, QuantumRow, TraceReader};

use crate::check::Tally;
use crate::guest::markers::{C_TRACE, TRACES};
use crate::lab::Boot;

/// Every marker is there, in order, at a time when its thread ran.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let traces = TRACES.iter().map(|(trace, rounds, _)| (*trace, *rounds));
    for (trace, rounds) in traces.chain([C_TRACE]) {
        tally.run(&format!("markers: {trace} has every marker of both threads"), || all(boot, trace, rounds));
        tally.run(&format!("markers: those of {trace} lie in quanta of their threads"), || {
            timely(boot, trace)
        });
    }
    tally.run("markers: a script's are in its trace", || script(boot));
}

fn markers(boot: &Boot, trace: &str) -> Result<Vec<MarkerRow>> {
    let reader = TraceReader::open(boot.folder.join(trace)).with_context(|| format!("opening {trace}"))?;
    Ok(reader.rows().collect())
}

fn all(boot: &Boot, trace: &str, rounds: u64) -> Result<String> {
    let mut threads: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    let mut done = 0;
    for marker in markers(boot, trace)? {
        let value = marker.value.context("a marker without a value")?;
        match marker.text.as_str() {
            "round" => threads.entry(marker.tid.context("whose?")?).or_default().push((marker.tsc, value)),
            "done" if value == rounds => done += 1,
            other => anyhow::bail!("nobody set {other} with {value}"),
        }
    }
    ensure!(threads.len() == 2 && done == 2, "{} threads, {done} of them done", threads.len());
    for set in threads.values_mut() {
        // Rows come CPU after CPU.
        set.sort_unstable();
        let values: Vec<u64> = set.iter().map(|(_, value)| *value).collect();
        ensure!(values == (0..rounds).collect::<Vec<u64>>(), "{} markers instead of {rounds}", values.len());
    }
    Ok(format!("2 × {rounds}"))
}

fn timely(boot: &Boot, trace: &str) -> Result<String> {
    let reader = TraceReader::open(boot.folder.join(trace))?;
    let quanta: Vec<QuantumRow> = reader.rows().collect();
    for marker in markers(boot, trace)? {
        let inside = |quantum: &QuantumRow| {
            Some(quantum.tid) == marker.tid && (quantum.start_tsc..=quantum.end_tsc).contains(&marker.tsc)
        };
        ensure!(quanta.iter().any(inside), "{} at TSC {} lies in no quantum", marker.text, marker.tsc);
    }
    Ok(format!("{} quanta", quanta.len()))
}

fn script(boot: &Boot) -> Result<String> {
    let mut found = markers(boot, "script.hpm")?;
    found.sort_by_key(|marker| marker.tsc);
    let texts: Vec<(&str, Option<u64>)> = found.iter().map(|m| (m.text.as_str(), m.value)).collect();
    ensure!(texts == [("begin", Some(1)), ("end", Some(2))], "found {texts:?}");
    Ok(String::new())
}
