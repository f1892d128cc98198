//! What sessions of each scope counted, against the truth.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::counting::true_counts;
use crate::check::Tally;
use crate::guest::scopes::{MOVED, PERIOD, RECORDED, SYSTEM};
use crate::lab::Boot;

/// What else may run in user mode within the scope while the program does: the end of the shell that became it, and on a
/// whole CPU the waiting programs of the check.
pub(super) const SLACK_PROCESS: u64 = 200_000;
pub(super) const SLACK_CPU: u64 = 8_000_000;

/// Each count is the program's, and only the program's.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    for (window, scope, slack) in [
        ("loops1", "an unprivileged user's child: exact", 0),
        ("loops2", "an unprivileged user's process", SLACK_PROCESS),
        ("loops3", "one thread", SLACK_PROCESS),
        ("loops4", "one CPU", SLACK_CPU),
        ("loops5", "a control group", SLACK_PROCESS),
        (SYSTEM, "the whole system", SLACK_CPU),
    ] {
        tally.run(&format!("scopes: {scope}"), || within(boot, window, slack));
    }
    tally.run("scopes: a program that moves between two groups is counted by one or the other", || {
        let counts: Vec<u64> = serde_json::from_value(fact(boot, MOVED)?.clone()).context("no counts")?;
        let [truth, ..] = true_counts(&boot.truth, MOVED)?;
        let sum: u64 = counts.iter().sum();
        ensure!(
            (truth..=truth + SLACK_PROCESS).contains(&sum),
            "they counted {counts:?}, the truth is {truth}"
        );
        Ok(format!("{counts:?} instructions, the truth is {truth}"))
    });
    for (window, scope) in RECORDED {
        tally.run(&format!("scopes: {scope}: as many samples as loads make"), || recorded(boot, window));
    }
}

fn fact<'a>(boot: &'a Boot, name: &str) -> Result<&'a Value> {
    boot.report.facts.get(name).with_context(|| format!("the guest left no {name}"))
}

/// Each type of core has its own event where there are two, and its own remainder.
fn recorded(boot: &Boot, window: &str) -> Result<String> {
    let seen = fact(boot, &format!("recorded.{window}"))?;
    let [samples, lost, quanta_lost] =
        ["samples", "lost", "quanta_lost"].map(|name| seen[name].as_u64().unwrap_or(u64::MAX));
    let [_, _, loads, _] = true_counts(&boot.truth, window)?;
    let due = loads / PERIOD;
    let most = due + SLACK_PROCESS / PERIOD;
    ensure!(lost == 0 && quanta_lost == 0, "{lost} records and {quanta_lost} quanta were lost");
    ensure!(
        (due.saturating_sub(2)..=most).contains(&samples),
        "{samples} samples, {due} of the program's loop"
    );
    Ok(format!("{samples} samples, {due} of the program's loop"))
}

fn within(boot: &Boot, window: &str, slack: u64) -> Result<String> {
    let fact = fact(boot, window)?;
    let count = fact["events"][0]["count"].as_u64().with_context(|| format!("no count in {fact}"))?;
    let [truth, ..] = true_counts(&boot.truth, window)?;
    ensure!((truth..=truth + slack).contains(&count), "it counted {count}, the truth is {truth}");
    let user_only = fact["events"][0]["kernel"] == Value::Bool(false);
    ensure!(user_only, "the kernel was counted too");
    Ok(format!("{count} instructions, the truth is {truth}"))
}
