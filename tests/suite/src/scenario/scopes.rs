//! What sessions of each scope counted, against the truth.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::counting::true_counts;
use crate::check::Tally;
use crate::guest::scopes::SYSTEM;
use crate::lab::Boot;

/// What else may run in user mode within the scope while the program does: the end of the shell that became it, and on a
/// whole CPU the waiting programs of the check.
const SLACK_PROCESS: u64 = 200_000;
const SLACK_CPU: u64 = 8_000_000;

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
}

fn within(boot: &Boot, window: &str, slack: u64) -> Result<String> {
    let fact = boot.report.facts.get(window).context("the guest counted nothing")?;
    let count = fact["events"][0]["count"].as_u64().with_context(|| format!("no count in {fact}"))?;
    let [truth, ..] = true_counts(&boot.truth, window)?;
    ensure!((truth..=truth + slack).contains(&count), "it counted {count}, the truth is {truth}");
    let user_only = fact["events"][0]["kernel"] == Value::Bool(false);
    ensure!(user_only, "the kernel was counted too");
    Ok(format!("{count} instructions, the truth is {truth}"))
}
