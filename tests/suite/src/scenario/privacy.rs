//! What the session of an unprivileged user got of records that show the kernel, against the truth.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vpmu::truth::{PebsReport, Report};

use crate::check::Tally;
use crate::lab::Boot;

/// Exactly the records that show the kernel were withheld.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("privacy: the records withheld are those that truly showed the kernel", || exact(boot));
}

fn exact(boot: &Boot) -> Result<String> {
    let fact = |name: &str| {
        let value = boot.report.facts.get(name).and_then(Value::as_u64);
        value.with_context(|| format!("the guest left no number of records {name}"))
    };
    let (records, withheld, lost) = (fact("records")?, fact("withheld")?, fact("lost")?);
    let truth: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let kernel = truth.pebs.iter().filter(|record| shows_kernel(record)).count() as u64;
    let user = truth.pebs.len() as u64 - kernel;
    ensure!(kernel > 100, "only {kernel} records came late enough to show the kernel");
    ensure!(lost == 0, "{lost} records were lost");
    ensure!((records, withheld) == (user, kernel), "{records} and {withheld} of truly {user} and {kernel}");
    Ok(format!("{records} records shown, {withheld} withheld"))
}

fn shows_kernel(record: &PebsReport) -> bool {
    let (pc, next_pc) = record.taken.map_or((record.pc, record.next_pc), |taken| (taken.pc, taken.next_pc));
    (pc | next_pc) >> 63 != 0
}
