//! After torture: counts as exact as before, and no record missing uncounted.

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::counting::{counts_of, stat_counts, true_counts};
use super::records::periods;
use crate::check::Tally;
use crate::guest::torture;
use crate::lab::Boot;

/// With the driver's own ceiling on the time in its handler, which the lab lifts because handlers are slow there: without one, the
/// kernel sampled at a shorter period than its way out of an NMI does nothing else.
pub(super) const OPTIONS: &[&str] =
    &["--plugin-arg", "truth-level=basic", "--module-param", "max_handler_percent=25"];
/// With more sessions, too: each of the sixteen programs that send has six at hand, and up to eight that a mapping keeps. At the usual most
/// nearly all others were refused, and the measured program with them.
pub(super) const OPTIONS_LONG: &[&str] = &[
    "--plugin-arg",
    "truth-level=basic",
    "--module-param",
    "max_handler_percent=25",
    "--module-param",
    "max_sessions=256",
    "--append",
    "hpm.torture=long",
];

/// Period of the hot event (guest/torture.rs).
const PERIOD: u64 = 100;

/// Compares what was counted with the truth.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("torture: counts are exact afterwards", || {
        let (counted, truth) = (stat_counts(boot, "loops1")?, true_counts(&boot.truth, "loops1")?);
        ensure!(counted == truth, "hpmctl counted {counted:?}, the truth is {truth:?}");
        Ok(format!("{counted:?}"))
    });
    tally.run("torture: counts are exact while random requests come", || storm_counts(boot));
    tally.run("torture: while random requests come the lost records are those that are missing", || {
        storm_samples(boot)
    });
    tally.run("torture: each of a thousand threads has samples for what it counted", || {
        Ok(format!("{} lost", periods(boot, torture::THREADS_TRACE)?))
    });
    tally.run("torture: at a tiny period the lost records are those that are missing", || tiny(boot));
}

fn fact<T: DeserializeOwned>(boot: &Boot, name: &str) -> Result<T> {
    let fact = boot.report.facts.get(name).with_context(|| format!("the guest left no {name}"))?;
    Ok(serde_json::from_value(fact.clone())?)
}

/// Every run of the same program counts what its window in the truth did.
fn storm_counts(boot: &Boot) -> Result<String> {
    let (all, truth) = (fact::<Vec<Value>>(boot, "storm_counts")?, true_counts(&boot.truth, "loops2")?);
    let all = all.iter().map(counts_of).collect::<Result<Vec<_>>>()?;
    let wrong: Vec<_> = all.iter().filter(|counted| **counted != truth).collect();
    ensure!(wrong.is_empty(), "of {} runs hpmctl counted {wrong:?}, the truth is {truth:?}", all.len());
    Ok(format!("{} times {truth:?}", all.len()))
}

fn storm_samples(boot: &Boot) -> Result<String> {
    let all: Vec<Value> = fact(boot, "storm_sampled")?;
    let [_, _, truth, _] = true_counts(&boot.truth, "loops2")?;
    let mut sums = [0; 2];
    for totals in &all {
        let one = records_and_lost(totals, truth, torture::PERIOD)?;
        sums.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
    }
    Ok(format!("{} times, {} records, {} lost", all.len(), sums[0], sums[1]))
}

/// Records and lost ones of a recording of loads, when they are as many as `truth` loads make at this period. The event after each
/// overflow is recorded, so that the last record may still be due; where each type of core has its own event, each has a remainder.
fn records_and_lost(totals: &Value, truth: u64, period: u64) -> Result<[u64; 2]> {
    let counts: Vec<u64> = serde_json::from_value(totals["counts"].clone()).context("no counts")?;
    let (count, events) = (counts.iter().sum::<u64>(), counts.len() as u64);
    ensure!(count == truth, "{count} loads were counted, the truth is {truth}");
    let sum = |name: &str| totals[name].as_u64().with_context(|| format!("no {name} in {totals}"));
    let (records, lost, due) = (sum("records")?, sum("records_lost")?, truth / period);
    let least = (due + 1).saturating_sub(2 * events);
    ensure!(
        (least..=due).contains(&(records + lost)),
        "{records} records were written and {lost} lost of {due}"
    );
    Ok([records, lost])
}

fn tiny(boot: &Boot) -> Result<String> {
    let totals = boot.report.facts.get("loops4").context("the guest left no sums")?;
    let [_, _, truth, _] = true_counts(&boot.truth, "loops4")?;
    let [records, lost] = records_and_lost(totals, truth, PERIOD)?;
    Ok(format!("{records} records, {lost} lost, of {}", truth / PERIOD))
}
