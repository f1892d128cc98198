//! Reported instruction pointers against the true ones, for interrupts and for PEBS (Schneider's thesis, Figure 2.3).

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use libhpm::trace::{QuantumRow, Registers, SampleRow};
use serde_json::Value;
use vpmu::truth::Report;

use super::interrupt::overflows;
use super::records::{lead_to, open, pairs, periods, rows, totals};
use crate::check::Tally;
use crate::guest::programs::PERIOD;
use crate::guest::skid::{HISTOGRAMS, IMPRECISE, PICTURE, PRECISE, TEXT};
use crate::lab::Boot;

/// Options of `lab run`.
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", "pebs-log=on", "--plugin-arg", "skid=41"];
/// The model's `skid`: an interrupt comes so many instructions late, and what it reports is the one to be executed next. Together 42,
/// what the thesis saw on an Itanium.
const SKID: i64 = 41;

/// How often the program's loop runs.
const LOADS: u64 = 500_000;

/// PEBS names the load, interrupts what is executed so much later; hpmctl shows both.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    let truth = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    for trace in [IMPRECISE, PRECISE] {
        tally.run(&format!("skid: samples × period agrees with the count in {trace}"), || {
            Ok(format!("{} lost", periods(boot, trace)?))
        });
    }
    tally.run("skid: every true event is the load's", || events(boot, &truth));
    tally.run("skid: PEBS names the load", || peak(boot, PRECISE, 0));
    tally.run("skid: interrupts name what comes so many instructions later", || {
        peak(boot, IMPRECISE, SKID + 1)
    });
    tally.run("skid: registers are those of the overflow, not of an earlier one", || registers(boot, &truth));
    tally.run("skid: a period lies between the overflows", || intervals(boot));
    tally.run("skid: the picture has a bar at each peak", || pictured(boot));
    tally.run("skid: the text shows both side by side", || {
        let text = std::fs::read_to_string(boot.folder.join(TEXT))?;
        let line = |distance: &str| text.lines().find(|line| line.trim_start().starts_with(distance));
        ensure!(line("+42 ").is_some_and(|line| line.contains('█')), "no bar at +42 in {text}");
        ensure!(line("+0 ").is_some_and(|line| line.contains('█')), "no bar at +0 in {text}");
        Ok(String::new())
    });
}

/// The load's address when it was recorded.
fn load(boot: &Boot) -> Result<u64> {
    let histograms = boot.report.facts.get(HISTOGRAMS).context("the guest left no histograms")?;
    histograms["around"]["address"].as_u64().context("the histograms have no address")
}

/// By the truth the overflows that interrupted, and the events that were recorded, are the load's but for a few that an interrupt
/// caused.
fn events(boot: &Boot, truth: &Report) -> Result<String> {
    // The program is linked to fixed addresses.
    let load = load(boot)?;
    let paired = pairs(boot, &[PRECISE], truth)?;
    let recorded = paired.iter().filter(|pair| pair.truth.pc == load).count();
    ensure!(recorded * 100 >= paired.len() * 99, "{recorded} of {} records are", paired.len());
    let samples = rows::<SampleRow>(boot, IMPRECISE)?;
    let overflows = overflows(&samples, truth)?;
    let on_load = overflows.iter().filter(|pmi| pmi.pc == load).count();
    ensure!(on_load * 100 >= samples.len() * 99, "{on_load} of {} overflows are", samples.len());
    Ok(format!("{recorded} records, {on_load} overflows"))
}

/// The trace's histogram, as hpmctl tells it.
fn histogram<'a>(boot: &'a Boot, trace: &str) -> Result<&'a Value> {
    let histograms = boot.report.facts.get(HISTOGRAMS).context("the guest left no histograms")?;
    let traces = histograms["traces"].as_array().context("the histograms have no traces")?;
    traces.iter().find(|one| one["trace"] == trace).with_context(|| format!("no histogram of {trace}"))
}

/// At least 95 % of the samples are at this distance from the load, all others between: when an interrupt of another kind comes first, the
/// PMI's steps pass in the kernel, and the program stands where that one found it.
fn peak(boot: &Boot, trace: &str, distance: i64) -> Result<String> {
    let attribution = open(boot, trace)?.meta().events[0].attribution;
    let histogram = histogram(boot, trace)?;
    let entries = histogram["entries"].as_array().context("it has no entries")?;
    let samples = |value: &Value| value["samples"].as_u64().unwrap_or(0);
    let all = samples(&histogram["all"]);
    let peak = entries.iter().find(|entry| entry["distance"] == distance).context("nothing is there")?;
    let at = samples(peak);
    let between = |entry: &&Value| entry["distance"].as_i64().is_some_and(|at| (0..=distance).contains(&at));
    let near: u64 = entries.iter().filter(between).map(samples).sum();
    ensure!(all > 400 && at * 100 >= all * 95, "{at} of {all} samples are there");
    ensure!(near == all, "{} of {all} samples are not between the load and there", all - near);
    let share = |key: &str| peak["estimate"][key].as_f64().unwrap_or(0.0) * 100.0;
    Ok(format!(
        "{at} of {all} at {distance:+} ({attribution:?}): {:.1} % ± {:.1}",
        share("share"),
        share("error")
    ))
}

/// A sample's registers lead to the address whose load made the counter overflow.
fn registers(boot: &Boot, truth: &Report) -> Result<String> {
    let samples = rows::<SampleRow>(boot, IMPRECISE)?;
    for (sample, pmi) in samples.iter().zip(overflows(&samples, truth)?) {
        lead_to(sample, pmi.load)?;
    }
    Ok(format!("{} samples", samples.len()))
}

/// The program counts its loads down in R13, and each misses: a sample is taken when a whole number of periods is over. It is late where
/// a quantum began with less than two left, and each one since ended before its second load: the driver sets no counter to less.
fn intervals(boot: &Boot) -> Result<String> {
    /// Place in a record (SDM Vol. 3B, "PEBS Record Format"): R8 follows RSP.
    const R13: usize = Registers::RSP + 6;
    /// Loads to the overflow at which a counter is set at least.
    const LEAST: u64 = 2;
    let totals = totals(boot, IMPRECISE)?;
    let counted = totals.counts[0];
    ensure!(counted == LOADS, "{counted} of {LOADS} loads were counted as misses");
    // What lost quanta counted is in none of the others.
    let begun = if totals.quanta_lost == 0 { Some(counted_before(boot)?) } else { None };
    let mut samples = rows::<SampleRow>(boot, IMPRECISE)?;
    samples.sort_by_key(|sample| sample.tsc);
    let (mut last, mut late) = (0, 0);
    for sample in &samples {
        let (ip, left) = (sample.ip, sample.registers.context("a sample has no registers")?.at(R13));
        let executed = LOADS - left + 1;
        ensure!(executed > last, "{executed} loads were executed at {ip:#x}, {last} at the sample before");
        last = executed;
        let due = executed - executed % PERIOD;
        late += usize::from(executed > due);
        if let (true, Some(begun)) = (executed > due, &begun) {
            let own = begun.get(&(sample.cpu, sample.quantum)).context("a sample is of no quantum")?;
            let first = begun.values().copied().filter(|&begun| begun + LEAST > due).min();
            let explained = executed == own + LEAST && first.is_some_and(|first| first <= due);
            ensure!(explained, "{executed} loads were executed at {ip:#x}, {own} before its quantum");
        }
    }
    ensure!(late * 50 <= samples.len(), "{late} of {} samples came late", samples.len());
    Ok(format!("{} samples, {late} of them late, {} quanta lost", samples.len(), totals.quanta_lost))
}

/// How many loads were counted before each quantum, by its CPU and number there.
fn counted_before(boot: &Boot) -> Result<BTreeMap<(u32, u64), u64>> {
    let mut quanta = rows::<QuantumRow>(boot, IMPRECISE)?;
    quanta.sort_by_key(|quantum| quantum.start_tsc);
    let mut sum = 0;
    let before = quanta.iter().map(|quantum| {
        let before = sum;
        sum += quantum.counts[0];
        ((quantum.cpu, quantum.sequence), before)
    });
    Ok(before.collect())
}

fn pictured(boot: &Boot) -> Result<String> {
    let svg = std::fs::read_to_string(boot.folder.join(PICTURE))?;
    for label in ["<title>+42 nop: ", "<title>+0 mov: "] {
        ensure!(svg.contains(label), "it has no {label:?}");
    }
    Ok(String::new())
}
