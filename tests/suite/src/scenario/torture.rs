//! After torture: counts as exact as before, and no record missing uncounted.

use anyhow::{Context, Result, ensure};

use super::counting::{stat_counts, true_counts};
use crate::check::Tally;
use crate::lab::Boot;

/// Period of the hot event (guest/torture.rs).
const PERIOD: u64 = 100;

/// Compares what was counted with the truth.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("torture: counts are exact afterwards", || {
        let (counted, truth) = (stat_counts(boot, "loops1")?, true_counts(&boot.truth, "loops1")?);
        ensure!(counted == truth, "hpmctl counted {counted:?}, the truth is {truth:?}");
        Ok(format!("{counted:?}"))
    });
    tally.run("torture: at a tiny period the lost records are those that are missing", || tiny(boot));
}

fn tiny(boot: &Boot) -> Result<String> {
    let totals = boot.report.facts.get("loops4").context("the guest left no sums")?;
    let sum = |name: &str| totals[name].as_u64().with_context(|| format!("no {name} in {totals}"));
    let (records, lost) = (sum("records")?, sum("records_lost")?);
    let count = totals["counts"][0].as_u64().with_context(|| format!("no count in {totals}"))?;
    let [_, _, truth, _] = true_counts(&boot.truth, "loops4")?;
    ensure!(count == truth, "{count} loads were counted, the truth is {truth}");
    let due = truth / PERIOD;
    // The event after each overflow is recorded, so that the last one may still be due.
    ensure!((due - 1..=due).contains(&(records + lost)), "{records} records and {lost} lost of {due}");
    Ok(format!("{records} records, {lost} lost, of {due}"))
}
