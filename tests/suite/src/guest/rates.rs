//! Sampling by interrupts, adapted periods and the driver's ceilings, on a loop whose length is known.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libhpm::trace::{EventUse, QuantumRow, Totals, TraceReader};

use super::GuestReport;
use super::programs::{built, hpmctl, succeed};

/// Arguments of `loops` for some seconds of work.
const SECONDS_OF_WORK: usize = 400;
/// What is wished for, in samples per second.
const RATE: u64 = 2000;
/// The module's parameter that the ceiling's check lowers.
const MAX_RECORD_RATE: &str = "/sys/module/hpm/parameters/max_record_rate";

/// Makes every check.
pub(super) fn run(report: &mut GuestReport) {
    report.check("samples by interrupts stand for the count", interrupts);
    report.check("the report calls them imprecise", || {
        let text = succeed(hpmctl(&["report", "interrupts.hpm"])?.env("NO_COLOR", "1"))?.stdout;
        let text = String::from_utf8_lossy(&text);
        ensure!(text.contains("imprecise by interrupts (with skid)"), "it says: {text}");
        Ok(String::new())
    });
    report.check("an event that is not precise is sampled on request only", || {
        let output = hpmctl(&["record", "-e", "CPU_CLK_UNHALTED.THREAD_P:u", "-o", "no.hpm", "--", "true"])?
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && text.contains("--imprecise"), "it says: {text}");
        Ok(String::new())
    });
    report.check("the period settles to the wished rate", settles);
    report.check("records above the ceiling are held back, and counted as lost", ceiling);
}

/// Records loads of `loops` with so many arguments.
fn record(trace: &str, options: &[&str], arguments: usize) -> Result<TraceReader> {
    let mut command = hpmctl(&["record", "-e", "load:u", "-o", trace])?;
    command.args(options).arg("--").arg(built("loops")?).args(vec!["x"; arguments]);
    succeed(&mut command)?;
    Ok(TraceReader::open(trace)?)
}

fn totals(reader: &TraceReader) -> Result<Totals> {
    reader.meta().totals.clone().context("the recording has no totals")
}

fn interrupts() -> Result<String> {
    const PERIOD: u64 = 1009;
    let options = ["--imprecise", "--no-randomise", "-c", &PERIOD.to_string()];
    let reader = record("interrupts.hpm", &options, 4)?;
    let totals = totals(&reader)?;
    ensure!(reader.meta().events[0].mode == EventUse::Interrupt, "they are {:?}", reader.meta().events[0]);
    let sampled = (totals.records + totals.records_lost) * PERIOD;
    let counted = totals.counts[0];
    ensure!(counted.abs_diff(sampled) <= PERIOD, "{counted} loads, {sampled} sampled");
    ensure!(totals.records > 1000, "only {} records", totals.records);
    Ok(format!("{} records, {} lost", totals.records, totals.records_lost))
}

/// Records in each second of time on a CPU.
fn by_second(reader: &TraceReader) -> Vec<u64> {
    let mut quanta: Vec<QuantumRow> = reader.rows().collect();
    quanta.sort_by_key(|quantum| quantum.start_tsc);
    let second = reader.meta().clock.tsc_khz * 1000;
    let (mut ticks, mut records) = (0, Vec::new());
    for quantum in quanta {
        ticks += quantum.end_tsc.saturating_sub(quantum.start_tsc);
        let number = (ticks / second) as usize;
        records.resize(records.len().max(number + 1), 0);
        records[number] += u64::from(quantum.records);
    }
    // The last second is not whole.
    records.pop();
    records
}

fn settles() -> Result<String> {
    let reader = record("adapted.hpm", &["-F", &RATE.to_string()], SECONDS_OF_WORK)?;
    let rates = by_second(&reader);
    let settled = rates.get(2..).filter(|settled| !settled.is_empty());
    let settled = settled.with_context(|| format!("it ran for {} s only", rates.len()))?;
    ensure!(settled.iter().all(|rate| rate.abs_diff(RATE) <= RATE / 10), "samples in each second: {rates:?}");
    Ok(format!("samples in each second: {rates:?}"))
}

fn ceiling() -> Result<String> {
    const PERIOD: u64 = 101;
    let found = fs::read_to_string(MAX_RECORD_RATE)?;
    fs::write(MAX_RECORD_RATE, "5000").context("lowering the ceiling")?;
    let begun = Instant::now();
    let reader = record("throttled.hpm", &["--no-randomise", "-c", &PERIOD.to_string()], 20);
    fs::write(MAX_RECORD_RATE, found.trim()).context("raising the ceiling again")?;
    let totals = totals(&reader?)?;
    ensure!(totals.throttled > 0, "nothing was held back: {totals:?}");
    let sampled = (totals.records + totals.records_lost) * PERIOD;
    ensure!(
        totals.counts[0].abs_diff(sampled) <= 2 * PERIOD,
        "{} loads, {sampled} sampled or lost",
        totals.counts[0]
    );
    ensure!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    let text = succeed(&mut hpmctl(&["report", "throttled.hpm"])?)?.stdout;
    ensure!(String::from_utf8_lossy(&text).contains("held back"), "the report is silent about it");
    Ok(format!(
        "{} records, {} lost, {} quanta throttled",
        totals.records, totals.records_lost, totals.throttled
    ))
}
