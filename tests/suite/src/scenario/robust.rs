//! Counts under disturbance, against the truth.

use anyhow::{Context, Result, ensure};

use super::counting::{stat_counts, true_counts};
use super::scopes::SLACK_CPU;
use crate::check::Tally;
use crate::guest::robust::{ASLEEP, PERIOD, PLUGGED, PLUGGED_SYSTEM};
use crate::lab::Boot;

/// Counts stay exact, and no record goes missing uncounted.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    for (window, how) in [(PLUGGED, "CPU 1 goes and comes"), (ASLEEP, "the machine sleeps")] {
        tally.run(&format!("robust: counts are exact while {how}"), || {
            let (counted, truth) = (stat_counts(boot, window)?, true_counts(&boot.truth, window)?);
            ensure!(counted == truth, "hpmctl counted {counted:?}, the truth is {truth:?}");
            Ok(format!("{counted:?}"))
        });
    }
    tally.run("robust: the whole system is counted while CPU 1 goes and comes", || {
        let (counted, truth) =
            (stat_counts(boot, PLUGGED_SYSTEM)?, true_counts(&boot.truth, PLUGGED_SYSTEM)?);
        let ([counted, ..], [truth, ..]) = (counted, truth);
        let all = truth..=truth + SLACK_CPU;
        ensure!(all.contains(&counted), "hpmctl counted {counted}, the program executed {truth}");
        Ok(format!("{counted}, of which the program executed {truth}"))
    });
    for (window, how, loses) in
        [("loops3", "scribbles over its page", false), ("loops4", "reads nothing", true)]
    {
        tally.run(&format!("robust: nothing goes missing uncounted when the consumer {how}"), || {
            records(boot, window, loses)
        });
    }
}

/// Loads are counted exactly, and each period of them is a record or a lost one. Whether some must be lost: `loses`.
fn records(boot: &Boot, window: &str, loses: bool) -> Result<String> {
    let fact = boot.report.facts.get(window).context("the guest left no sums")?;
    let [count, records, lost, quanta_lost]: [u64; 4] = serde_json::from_value(fact.clone())?;
    let [_, _, truth, _] = true_counts(&boot.truth, window)?;
    ensure!(count == truth, "{count} loads were counted, the truth is {truth}");
    // The event after each overflow is recorded, so that the last one may still be due; and counts on each type of core.
    let (due, counters) = (truth / PERIOD, boot.machine.types_of_core());
    ensure!((due - counters..=due).contains(&(records + lost)), "{records} records and {lost} lost of {due}");
    ensure!(lost > 0 || !loses, "nothing was lost of {due} records that nobody read");
    Ok(format!("{records} records, {lost} lost with {quanta_lost} quanta, of {due}"))
}
