//! After torture: counts as exact as before, and no record missing uncounted.

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;

use super::counting::{stat_counts, true_counts};
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
    tally.run("torture: at a tiny period the lost records are those that are missing", || tiny(boot));
}

fn fact<T: DeserializeOwned>(boot: &Boot, name: &str) -> Result<T> {
    let fact = boot.report.facts.get(name).with_context(|| format!("the guest left no {name}"))?;
    Ok(serde_json::from_value(fact.clone())?)
}

/// Every run of the same program counts what its window in the truth did.
fn storm_counts(boot: &Boot) -> Result<String> {
    let (all, truth) = (fact::<Vec<[u64; 4]>>(boot, "storm_counts")?, true_counts(&boot.truth, "loops2")?);
    let wrong: Vec<_> = all.iter().filter(|counted| **counted != truth).collect();
    ensure!(wrong.is_empty(), "of {} runs hpmctl counted {wrong:?}, the truth is {truth:?}", all.len());
    Ok(format!("{} times {truth:?}", all.len()))
}

fn storm_samples(boot: &Boot) -> Result<String> {
    let all: Vec<[u64; 3]> = fact(boot, "storm_sampled")?;
    let [_, _, truth, _] = true_counts(&boot.truth, "loops2")?;
    for [count, records, lost] in &all {
        ensure!(*count == truth, "{count} loads were counted, the truth is {truth}");
        missing(records + lost, truth / torture::PERIOD)?;
    }
    let sum = |of: fn(&[u64; 3]) -> u64| all.iter().map(of).sum::<u64>();
    Ok(format!("{} times, {} records, {} lost", all.len(), sum(|one| one[1]), sum(|one| one[2])))
}

/// The event after each overflow is recorded, so that the last record may still be due.
fn missing(accounted: u64, due: u64) -> Result<()> {
    ensure!((due - 1..=due).contains(&accounted), "{accounted} records were written or lost of {due}");
    Ok(())
}

fn tiny(boot: &Boot) -> Result<String> {
    let totals = boot.report.facts.get("loops4").context("the guest left no sums")?;
    let sum = |name: &str| totals[name].as_u64().with_context(|| format!("no {name} in {totals}"));
    let (records, lost) = (sum("records")?, sum("records_lost")?);
    let count = totals["counts"][0].as_u64().with_context(|| format!("no count in {totals}"))?;
    let [_, _, truth, _] = true_counts(&boot.truth, "loops4")?;
    ensure!(count == truth, "{count} loads were counted, the truth is {truth}");
    let due = truth / PERIOD;
    missing(records + lost, due)?;
    Ok(format!("{records} records, {lost} lost, of {due}"))
}
