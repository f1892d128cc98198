//! What sessions counted of a program that they shared, against the truth.

use anyhow::{Context, Result, ensure};

use super::counting::true_counts;
use super::scopes::SLACK_PROCESS;
use crate::check::Tally;
use crate::guest::scopes::PERIOD;
use crate::guest::sharing::{ALONE, SAMPLED, SHARED};
use crate::lab::Boot;

/// By how much a session's part of the time may differ from a fair one, of that.
const UNFAIR: f64 = 0.25;

pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("sharing: a session that does not share counts exactly", || {
        let (counts, _) = left(boot, ALONE)?;
        let [truth, ..] = true_counts(&boot.truth, ALONE)?;
        ensure!(counts == [truth], "it counted {counts:?}, the truth is {truth}");
        Ok(format!("{truth} instructions"))
    });
    for (window, sharers) in SHARED {
        tally
            .run(&format!("sharing: {sharers} sessions each have their part, and nothing is missed"), || {
                shared(boot, window, sharers)
            });
    }
    tally.run("sharing: the samples of two recordings are together as many as loads make", || sampled(boot));
}

fn left(boot: &Boot, window: &str) -> Result<(Vec<u64>, Vec<f64>)> {
    let fact = boot.report.facts.get(window).with_context(|| format!("the guest left no {window}"))?;
    let counts =
        serde_json::from_value(fact["counts"].clone()).with_context(|| format!("counts in {fact}"))?;
    let shares =
        serde_json::from_value(fact["shares"].clone()).with_context(|| format!("shares in {fact}"))?;
    Ok((counts, shares))
}

/// At any time one of them has the PMU, and what it counts no other does.
fn shared(boot: &Boot, window: &str, sharers: usize) -> Result<String> {
    let (counts, shares) = left(boot, window)?;
    ensure!(counts.len() == sharers, "{counts:?} are not of {sharers} sessions");
    let [truth, ..] = true_counts(&boot.truth, window)?;
    let sum: u64 = counts.iter().sum();
    ensure!(
        (truth..=truth + SLACK_PROCESS).contains(&sum),
        "they counted {counts:?}, {sum} together, the truth is {truth}"
    );
    let fair = 1.0 / sharers as f64;
    ensure!(
        shares.iter().all(|share| (share - fair).abs() <= fair * UNFAIR),
        "they had the PMU in {shares:.3?} of the time"
    );
    Ok(format!("{counts:?}, {sum} together, the truth is {truth}; in {shares:.3?} of the time"))
}

/// Each keeps the position of its own counter while the other has the PMU.
fn sampled(boot: &Boot) -> Result<String> {
    let fact = boot.report.facts.get(SAMPLED).with_context(|| format!("the guest left no {SAMPLED}"))?;
    let both = fact.as_array().with_context(|| format!("{fact} is not of two"))?;
    let sum = |name: &str| -> u64 { both.iter().map(|one| one[name].as_u64().unwrap_or(u64::MAX / 4)).sum() };
    let (samples, lost) = (sum("samples"), sum("lost") + sum("quanta_lost"));
    let [_, _, loads, _] = true_counts(&boot.truth, SAMPLED)?;
    let due = loads / PERIOD;
    ensure!(both.len() == 2 && lost == 0, "{lost} records or quanta were lost: {fact}");
    let least = both.iter().map(|one| one["samples"].as_u64().unwrap_or(0)).min();
    ensure!(
        (due.saturating_sub(2)..=due + SLACK_PROCESS / PERIOD).contains(&samples)
            && least.is_some_and(|least| least > due / 4),
        "{samples} samples, {due} of the program's loop: {}",
        fact
    );
    Ok(format!("{samples} samples, {due} of the program's loop"))
}
