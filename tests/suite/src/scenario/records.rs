//! Which record of the truth each sample is.
//!
//! Records have a time only from PEBS format 3 on, so that they are paired by their order: what hpm published as the quanta
//! of one CPU, laid end to end, must be what the model wrote on that CPU, record for record and none besides.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use libhpm::trace::{QuantumRow, Row, SampleRow, TraceReader};
use vpmu::PebsOutcome;
use vpmu::truth::{PebsReport, Report};

use crate::lab::Boot;

/// A sample and what truly happened.
pub(super) struct Pair<'a> {
    /// The trace that has it.
    pub(super) trace: &'static str,
    /// What hpm says.
    pub(super) sample: SampleRow,
    /// What the model says.
    pub(super) truth: &'a PebsReport,
}

/// A quantum with its samples.
struct Stay {
    trace: &'static str,
    quantum: QuantumRow,
    samples: Vec<SampleRow>,
}

/// The rows of a table, or why they cannot be read.
pub(super) fn rows<R: Row>(boot: &Boot, name: &str) -> Result<Vec<R>> {
    let reader = open(boot, name)?;
    let mut rows = reader.rows::<R>();
    let all: Vec<R> = rows.by_ref().collect();
    ensure!(rows.cut().is_none(), "a table of {name} is cut off");
    ensure!(!all.is_empty(), "{name} has no {} rows", R::TABLE);
    Ok(all)
}

/// A trace that the guest part left.
pub(super) fn open(boot: &Boot, name: &str) -> Result<TraceReader> {
    TraceReader::open(boot.folder.join(name)).with_context(|| format!("opening {name}"))
}

/// Pairs the samples of all traces with all records of the truth.
///
/// # Errors
/// Some sample has no record, or some record no sample; or a record was due while its quantum did not run.
pub(super) fn pairs<'a>(boot: &Boot, traces: &[&'static str], report: &'a Report) -> Result<Vec<Pair<'a>>> {
    let mut due = BTreeMap::<u32, Vec<&PebsReport>>::new();
    for record in &report.pebs {
        let written = matches!(record.outcome, PebsOutcome::Written { .. });
        ensure!(written, "a record was not written: {record:?}");
        due.entry(record.cpu).or_default().push(record);
    }
    let mut due: BTreeMap<u32, _> =
        due.into_iter().map(|(cpu, records)| (cpu, records.into_iter())).collect();
    let mut pairs = Vec::with_capacity(report.pebs.len());
    for Stay { trace, quantum, samples } in stays(boot, traces)? {
        for sample in samples {
            let next = due.get_mut(&sample.cpu).and_then(Iterator::next);
            let truth = next.with_context(|| format!("{trace}: CPU {} wrote fewer records", sample.cpu))?;
            ensure!(
                (quantum.start_tsc..=quantum.end_tsc).contains(&truth.tsc),
                "{trace}: the next record of CPU {} was written at TSC {}, not from {} to {}",
                sample.cpu,
                truth.tsc,
                quantum.start_tsc,
                quantum.end_tsc
            );
            pairs.push(Pair { trace, sample, truth });
        }
    }
    let left: usize = due.values().map(ExactSizeIterator::len).sum();
    ensure!(left == 0, "{left} records are in no trace");
    ensure!(!pairs.is_empty(), "there are no records");
    Ok(pairs)
}

/// The quanta of all traces with their samples, in the order of time.
fn stays(boot: &Boot, traces: &[&'static str]) -> Result<Vec<Stay>> {
    let mut stays = Vec::new();
    for &trace in traces {
        let mut samples = BTreeMap::<(u32, u64), Vec<SampleRow>>::new();
        for sample in rows::<SampleRow>(boot, trace)? {
            samples.entry((sample.cpu, sample.quantum)).or_default().push(sample);
        }
        for quantum in rows::<QuantumRow>(boot, trace)? {
            let samples = samples.remove(&(quantum.cpu, quantum.sequence)).unwrap_or_default();
            ensure!(
                quantum.records as usize == samples.len(),
                "{trace}: {} samples in a quantum of {} records",
                samples.len(),
                quantum.records
            );
            stays.push(Stay { trace, quantum, samples });
        }
        ensure!(samples.is_empty(), "{trace}: samples of no quantum");
    }
    stays.sort_by_key(|stay| stay.quantum.start_tsc);
    Ok(stays)
}

/// For each thread and event: |(records + lost ones) × period − count| ≤ period. The period must be fixed; which event a lost
/// record would have been for is known only where one is sampled. Returns how many were lost.
pub(super) fn periods(boot: &Boot, name: &str) -> Result<u64> {
    let meta = open(boot, name)?.meta().clone();
    let period = meta.events[0].period;
    let sampling = meta.events.iter().filter(|event| event.period > 0).count();
    let mut counted = BTreeMap::<(u32, usize), u64>::new();
    let mut sampled = BTreeMap::<(u32, usize), u64>::new();
    let mut lost = 0;
    for quantum in rows::<QuantumRow>(boot, name)? {
        for (event, count) in quantum.counts.iter().enumerate().take(sampling) {
            *counted.entry((quantum.tid, event)).or_default() += count;
        }
        *sampled.entry((quantum.tid, 0)).or_default() += quantum.records_lost * period;
        lost += quantum.records_lost;
    }
    ensure!(lost == 0 || sampling == 1, "{lost} records of {sampling} events were lost");
    for sample in rows::<SampleRow>(boot, name)? {
        ensure!(sample.period == period, "a sample stands for {} events, not {period}", sample.period);
        *sampled.entry((sample.tid, usize::from(sample.event))).or_default() += period;
    }
    for ((tid, event), count) in &counted {
        let samples = sampled.get(&(*tid, *event)).copied().unwrap_or(0);
        ensure!(
            count.abs_diff(samples) <= period,
            "thread {tid}, event {event}: {count} events, but its samples stand for {samples} (period {period})"
        );
    }
    Ok(lost)
}
