//! How soon periods settle when event rates change, and what the ceilings let through.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use libhpm::session::QuantumFlags;
use libhpm::trace::{QuantumRow, SampleRow, Totals};

use super::records::{open, periods, rows, totals};
use crate::check::Tally;
use crate::guest::adaptive::{LONG_QUANTA, PMIS, RATES, RECORDS, STEERED};
use crate::lab::Boot;

/// Options of `lab run`: a second is as many instructions on any machine.
pub(super) const OPTIONS: &[&str] = &["--deterministic"];

/// Rates settle, and ceilings hold.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    for (rate, trace) in RATES {
        let name =
            format!("adaptive: {rate} samples/s settle within 2 s though events come 100 times as often");
        tally.run(&name, || settles(boot, trace, rate));
    }
    tally.run("adaptive: another rate is taken while a recording runs, and its trace says so", || {
        steered(boot)
    });
    for ((trace, ceiling), quanta) in [(RECORDS, "of 10 ms"), (LONG_QUANTA, "of 1 s")] {
        let name = format!(
            "adaptive: in quanta {quanta} no more records than max_record_rate, and all others counted as lost"
        );
        tally.run(&name, || {
            let totals = throttled(boot, trace)?;
            held(boot, &totals, totals.records, ceiling)
        });
    }
    let (trace, ceiling) = PMIS;
    tally.run("adaptive: no more interrupts than max_pmi_rate, and all others counted as lost", || {
        let totals = throttled(boot, trace)?;
        held(boot, &totals, totals.pmis, ceiling)
    });
}

/// One phase of the program: samples in each second of time on a CPU.
#[derive(Debug)]
struct Phase {
    ip: u64,
    begun: u64,
    seconds: Vec<u64>,
}

/// The phases, each of which has its events at one instruction.
fn phases(boot: &Boot, trace: &str) -> Result<Vec<Phase>> {
    let second = open(boot, trace)?.meta().clock.tsc_khz * 1000;
    let mut quanta = rows::<QuantumRow>(boot, trace)?;
    quanta.sort_by_key(|quantum| quantum.start_tsc);
    // Time on a CPU before each quantum.
    let mut before = BTreeMap::new();
    let mut ticks = 0;
    for quantum in &quanta {
        before.insert((quantum.cpu, quantum.sequence), (quantum.start_tsc, ticks));
        ticks += quantum.end_tsc - quantum.start_tsc;
    }
    let mut samples = Vec::new();
    for sample in rows::<SampleRow>(boot, trace)? {
        let (start, ticks) = before.get(&(sample.cpu, sample.quantum)).context("a sample of no quantum")?;
        samples.push((ticks + sample.tsc - start, sample.ip));
    }
    // By time alone: before PEBS format 3 records have none of their own, and of equal times the first record is the earlier one.
    samples.sort_by_key(|&(time, _)| time);
    let mut phases: Vec<Phase> = Vec::new();
    for (time, ip) in samples {
        if phases.last().is_none_or(|phase| phase.ip != ip) {
            phases.push(Phase { ip, begun: time, seconds: Vec::new() });
        }
        let Some(phase) = phases.last_mut() else { continue };
        let number = ((time - phase.begun) / second) as usize;
        phase.seconds.resize(phase.seconds.len().max(number + 1), 0);
        phase.seconds[number] += 1;
    }
    Ok(phases)
}

/// The samples in each second of each of the program's three phases.
fn seconds(boot: &Boot, trace: &str) -> Result<Vec<Vec<u64>>> {
    let seen: Vec<Vec<u64>> = phases(boot, trace)?.into_iter().map(|phase| phase.seconds).collect();
    ensure!(seen.len() == 3, "{} phases: {seen:?}", seen.len());
    Ok(seen)
}

/// After its first two seconds a phase has this rate.
fn settled(seconds: &[u64], rate: u64) -> Result<()> {
    // The last second of a phase is not whole.
    let settled = seconds.split_last().and_then(|(_, whole)| whole.get(2..)).unwrap_or_default();
    ensure!(!settled.is_empty(), "a phase lasted for less than 3 s");
    ensure!(settled.iter().all(|samples| samples.abs_diff(rate) * 10 <= rate), "not the rate, by the second");
    Ok(())
}

/// In every whole second after the first two of each phase, the rate is within 10 % of what is wished.
fn settles(boot: &Boot, trace: &str, rate: u64) -> Result<String> {
    let seen = seconds(boot, trace)?;
    seen.iter().try_for_each(|seconds| settled(seconds, rate)).with_context(|| format!("{seen:?}"))?;
    let mut periods: Vec<u64> = rows::<QuantumRow>(boot, trace)?
        .iter()
        .filter_map(|row| row.periods.iter().copied().find(|period| *period > 0))
        .collect();
    periods.sort_unstable();
    let (least, most) = (periods[0], periods[periods.len() - 1]);
    ensure!(
        most / least.max(1) >= 50,
        "periods from {least} to {most}: events did not come 100 times as often"
    );
    Ok(format!("samples in each second of each phase: {seen:?}, periods from {least} to {most}"))
}

/// The program's phases after the first, in which the rate was changed, have the new one; without the change they have the old one, as the
/// trace of that rate shows.
fn steered(boot: &Boot) -> Result<String> {
    let (trace, rate) = STEERED;
    let note = open(boot, trace)?.meta().source_note.clone();
    ensure!(note.contains(&format!("{rate} samples/s became the wish")), "the trace says {note:?}");
    let seen = seconds(boot, trace)?;
    seen[1..].iter().try_for_each(|seconds| settled(seconds, rate)).with_context(|| format!("{seen:?}"))?;
    Ok(format!("samples in each second of each phase: {seen:?}"))
}

/// The totals of a trace in which samples were held back, each of them counted as lost.
fn throttled(boot: &Boot, trace: &str) -> Result<Totals> {
    let totals = totals(boot, trace)?;
    let labelled = rows::<QuantumRow>(boot, trace)?
        .iter()
        .filter(|quantum| quantum.flags & QuantumFlags::THROTTLED != 0)
        .count() as u64;
    ensure!(totals.throttled > 0, "nothing was held back: {totals:?}");
    ensure!(totals.quanta_lost == 0, "{} quanta were lost", totals.quanta_lost);
    ensure!(labelled == totals.throttled, "{labelled} quanta say so, of {}", totals.throttled);
    periods(boot, trace)?;
    Ok(totals)
}

/// As many per second as the ceiling allows, or a window's worth more: what passes a ceiling is seen when a segment is full or a
/// quantum ends.
fn held(boot: &Boot, totals: &Totals, spent: u64, ceiling: u64) -> Result<String> {
    let tsc_khz = open(boot, RECORDS.0)?.meta().clock.tsc_khz;
    let seconds = totals.on_cpu_tsc as f64 / (tsc_khz as f64 * 1e3);
    let rate = spent as f64 / seconds;
    ensure!(rate < ceiling as f64 * 1.5, "{rate:.0} per second of {seconds:.2}");
    ensure!(
        rate > ceiling as f64 * 0.5,
        "only {rate:.0} per second of {seconds:.2}: more was held back than need be"
    );
    Ok(format!("{rate:.0} a second for {seconds:.2} s, {} lost", totals.records_lost))
}
