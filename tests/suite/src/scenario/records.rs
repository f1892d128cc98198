//! Which record of the truth each sample is.
//!
//! Records have a time only from PEBS format 3 on, so that they are paired by their order: the samples of a quantum must be what the
//! model wrote on its CPU while it lasted, record for record and none besides. Records that are in no quantum must be those that hpm
//! says are lost with quanta for which their reader left no room, as it does when the machine below the lab is overloaded, or those that a
//! program of the guest part took without a trace.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use libhpm::trace::{QuantumRow, Registers, Row, SampleRow, Totals, TraceReader};
use serde_json::Value;
use vpmu::PebsOutcome;
use vpmu::truth::{PebsReport, PmiReport, Report};

use crate::guest::sampling::TAKEN;
use crate::lab::Boot;

/// Something of the truth that makes a sample.
pub(super) trait Moment {
    /// Its CPU, and when it was.
    fn at(&self) -> (u32, u64);

    /// How many counters its record shows of general counters, where it shows all that have overflowed, and for how many of them it is.
    fn shown(&self) -> Option<(u32, u32)> {
        None
    }
}

impl Moment for PebsReport {
    fn at(&self) -> (u32, u64) {
        (self.cpu, self.tsc)
    }

    fn shown(&self) -> Option<(u32, u32)> {
        /// A record of formats 1 and 2.
        const SIZES: [u32; 2] = [0xB0, 0xC0];
        match self.outcome {
            PebsOutcome::Written { bytes, counters, shown, .. } if SIZES.contains(&bytes) => {
                Some(((shown as u32).count_ones(), counters.count_ones()))
            }
            _ => None,
        }
    }
}

impl Moment for PmiReport {
    fn at(&self) -> (u32, u64) {
        (self.cpu, self.tsc)
    }
}

/// A sample and what truly happened.
pub(super) struct Pair<'a, T = PebsReport> {
    /// The trace that has it.
    pub(super) trace: &'static str,
    /// What hpm says.
    pub(super) sample: SampleRow,
    /// What the model says.
    pub(super) truth: &'a T,
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
/// Some sample has no record, or some record has no sample and is not counted as lost; or too many are lost.
pub(super) fn pairs<'a>(boot: &Boot, traces: &[&'static str], report: &'a Report) -> Result<Vec<Pair<'a>>> {
    let dropped = report.pebs.iter().find(|record| !matches!(record.outcome, PebsOutcome::Written { .. }));
    ensure!(dropped.is_none(), "a record was not written: {dropped:?}");
    all_paired(boot, traces, report.pebs.iter())
}

/// Pairs the samples of all traces with all these moments of the truth.
///
/// # Errors
/// Some sample has none, or some has no sample and is not counted as lost; or too many are lost.
pub(super) fn all_paired<'a, T: Moment>(
    boot: &Boot,
    traces: &[&'static str],
    moments: impl Iterator<Item = &'a T>,
) -> Result<Vec<Pair<'a, T>>> {
    let moments: Vec<_> = moments.collect();
    let of_several = moments.iter().filter_map(|moment| moment.shown()).map(|(_, counters)| counters - 1);
    let of_several = of_several.sum::<u32>().into();
    let (pairs, left) = paired(boot, traces, moments.into_iter())?;
    let lost = traces.iter().map(|trace| lost_with_quanta(boot, trace, of_several)).sum::<Result<u64>>()?;
    let lost = lost.checked_sub(of_several).context("records of several counters are not counted as lost")?;
    let taken = boot.report.facts.get(TAKEN).and_then(Value::as_u64).unwrap_or(0);
    ensure!(
        left as u64 == lost + taken,
        "{left} samples are in no trace, {lost} are said to be lost, {taken} to be taken without a trace"
    );
    ensure!(lost * 4 <= pairs.len() as u64, "{lost} records are lost, {} not", pairs.len());
    Ok(pairs)
}

/// Pairs the samples of these traces with what was in their quanta of these moments, and counts those that were in none.
///
/// # Errors
/// A quantum has more samples, or fewer.
pub(super) fn paired<'a, T: Moment>(
    boot: &Boot,
    traces: &[&'static str],
    moments: impl Iterator<Item = &'a T>,
) -> Result<(Vec<Pair<'a, T>>, usize)> {
    let key = |(number, moment): (usize, &'a T)| {
        let (cpu, tsc) = moment.at();
        ((cpu, tsc, number), moment)
    };
    let mut due: BTreeMap<_, _> = moments.enumerate().map(key).collect();
    let mut pairs = Vec::with_capacity(due.len());
    for Stay { trace, quantum, samples } in stays(boot, traces)? {
        let during = (quantum.cpu, quantum.start_tsc, 0)..=(quantum.cpu, quantum.end_tsc, usize::MAX);
        let mut written: Vec<_> = due.range(during).map(|(key, record)| (*key, *record)).collect();
        if quantum.records as usize > samples.len() {
            // Of no event are those that show several counters.
            written.retain(|(key, record)| {
                let of_one = record.shown().is_none_or(|(counters, _)| counters == 1);
                of_one || due.remove(key).is_none()
            });
        }
        ensure!(
            written.len() == samples.len(),
            "{trace}: quantum {} of CPU {} has {} samples, and {} were due while it lasted",
            quantum.sequence,
            quantum.cpu,
            samples.len(),
            written.len()
        );
        for (sample, (key, truth)) in samples.into_iter().zip(written) {
            due.remove(&key);
            pairs.push(Pair { trace, sample, truth });
        }
    }
    Ok((pairs, due.len()))
}

/// A sample's time is that of its record, where records have one: from format 3 on (SDM Vol. 3B 18.13.1).
pub(super) fn at_its_time(boot: &Boot, Pair { sample, truth, .. }: &Pair<'_>) -> Result<()> {
    let core = boot.machine.profile.of_cpu(sample.cpu, boot.machine.cpus);
    let timed = core.perfmon().is_some_and(|pmu| pmu.pebs_format() >= 3);
    ensure!(!timed || sample.tsc == truth.tsc, "the record's TSC is {}, truly {}", sample.tsc, truth.tsc);
    Ok(())
}

/// Records that were lost because their quanta were, or because one was `of_several` counters and no format says so.
fn lost_with_quanta(boot: &Boot, trace: &str, of_several: u64) -> Result<u64> {
    let totals = totals(boot, trace)?;
    ensure!(
        totals.quanta_lost > 0 || totals.records_lost <= of_several,
        "records were lost, and no quanta: {totals:?}"
    );
    Ok(totals.records_lost)
}

/// The driver's sums.
pub(super) fn totals(boot: &Boot, trace: &str) -> Result<Totals> {
    open(boot, trace)?.meta().totals.clone().with_context(|| format!("{trace} has no totals"))
}

/// The quanta of all traces with their samples.
fn stays(boot: &Boot, traces: &[&'static str]) -> Result<Vec<Stay>> {
    let mut stays = Vec::new();
    for &trace in traces {
        let mut samples = BTreeMap::<(u32, u64), Vec<SampleRow>>::new();
        for sample in rows::<SampleRow>(boot, trace)? {
            samples.entry((sample.cpu, sample.quantum)).or_default().push(sample);
        }
        let mut left_out = 0;
        for quantum in rows::<QuantumRow>(boot, trace)? {
            let samples = samples.remove(&(quantum.cpu, quantum.sequence)).unwrap_or_default();
            left_out += u64::from(quantum.records).saturating_sub(samples.len() as u64);
            ensure!(
                quantum.records as usize >= samples.len(),
                "{trace}: {} samples in a quantum of {} records",
                samples.len(),
                quantum.records
            );
            stays.push(Stay { trace, quantum, samples });
        }
        let told = totals(boot, trace)?.records_unattributed;
        ensure!(left_out == told, "{trace}: {left_out} records are no samples, and {told} are said to be");
        ensure!(samples.is_empty(), "{trace}: samples of no quantum");
    }
    Ok(stays)
}

/// Place of RCX in a record (SDM Vol. 3B, "PEBS Record Format"): it follows RBX.
pub(super) const RCX: usize = Registers::RAX + 2;

/// Programs whose load misses read at RSI + RCX: a sample's registers, which are those after the load and before the add, lead to the
/// address that was truly read.
pub(super) fn lead_to(sample: &SampleRow, load: Option<u64>) -> Result<()> {
    let registers = sample.registers.context("a sample has no registers")?;
    let address = registers.at(Registers::RSI) + registers.at(RCX);
    let ip = sample.ip;
    ensure!(load == Some(address), "the data was at {load:x?}, but at {ip:#x} RSI + RCX = {address:#x}");
    Ok(())
}

/// For each event of each thread: |(records + lost ones) × period − count| ≤ period. The period must be fixed. Where quanta were lost,
/// whose threads nobody knows, that holds for the sums over all threads. Returns how many records were lost.
pub(super) fn periods(boot: &Boot, name: &str) -> Result<u64> {
    let (totals, meta) = (totals(boot, name)?, open(boot, name)?.meta().clone());
    let period = meta.events[0].period;
    let sampling = meta.events.iter().filter(|event| event.period > 0).count();
    // Which event a lost record would have been for is known only where one is sampled.
    ensure!(totals.records_lost == 0 || sampling == 1, "{} records were lost", totals.records_lost);
    let mut counted = BTreeMap::<(u32, usize), u64>::new();
    let mut sampled = BTreeMap::<(u32, usize), u64>::new();
    for quantum in rows::<QuantumRow>(boot, name)? {
        for (event, count) in quantum.counts.iter().enumerate().take(sampling) {
            *counted.entry((quantum.tid, event)).or_default() += count;
        }
        *sampled.entry((quantum.tid, 0)).or_default() += quantum.records_lost * period;
    }
    for sample in rows::<SampleRow>(boot, name)? {
        ensure!(sample.period == period, "a sample stands for {} events, not {period}", sample.period);
        *sampled.entry((sample.tid, usize::from(sample.event))).or_default() += period;
    }
    let threads = counted.len() as u64;
    if totals.quanta_lost > 0 {
        counted = BTreeMap::from([((0, 0), totals.counts[0])]);
        sampled = BTreeMap::from([((0, 0), (totals.records + totals.records_lost) * period)]);
    }
    let most = if totals.quanta_lost > 0 { threads * period } else { period };
    for ((tid, event), count) in &counted {
        let samples = sampled.get(&(*tid, *event)).copied().unwrap_or(0);
        ensure!(
            count.abs_diff(samples) <= most,
            "thread {tid}, event {event}: {count} events, but its samples stand for {samples} (period {period})"
        );
    }
    Ok(totals.records_lost)
}
