//! Scaled counts against the truth.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vpmu::event::Event;
use vpmu::truth::Report;

use crate::check::Tally;
use crate::guest::multiplex::{COUNTS, LONG, MILLIONS};
use crate::lab::Boot;

/// The scenario where time passes with instructions: with the time of the machine below the lab, counts on a debug kernel were seen to be a
/// fifth off.
pub(super) const DETERMINISTIC: &str = "multiplex.deterministic";
/// Its options of `lab run`.
pub(super) const OPTIONS_DETERMINISTIC: &[&str] =
    &["--deterministic", "--plugin-arg", "truth-level=basic", "--append", LONG];

/// Of whichever event the guest part counts in each place.
const EVENTS: [Event; 11] = [
    Event::Instruction,
    Event::Branch,
    Event::Load,
    Event::Instruction,
    Event::Branch,
    Event::Load,
    Event::Instruction,
    Event::Branch,
    Event::Load,
    Event::Instruction,
    Event::Branch,
];

/// Every scaled count lies within 5 % of the truth and says that it is scaled.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("multiplex: scaled counts are within 5 % of the truth, and say that they are scaled", || {
        scaled(boot)
    });
}

fn scaled(boot: &Boot) -> Result<String> {
    let stat = boot.report.facts.get(COUNTS).context("the guest left no counts")?;
    let events = stat["events"].as_array().with_context(|| format!("no events in {stat}"))?;
    ensure!(events.len() == EVENTS.len(), "{} events", events.len());
    let report: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    // As the program names its window.
    let millions =
        boot.report.facts.get(MILLIONS).and_then(Value::as_u64).context("the guest left no rounds")?;
    let tag = format!("strides{}", char::from(b'0' + millions as u8));
    let window = report.windows.iter().find(|window| window.tag == tag).context("the truth has no window")?;
    let mut worst = 0.0_f64;
    let mut turns = 0;
    for (event, told) in EVENTS.into_iter().zip(events) {
        let truth = window.counts.of(event).user as f64;
        let number = |field: &str| told[field].as_u64().with_context(|| format!("no {field} in {told}"));
        let (count, scaled) = (number("count")?, number("scaled")?);
        let waited = number("running_ns")? < number("enabled_ns")?;
        turns += u32::from(waited);
        ensure!(waited || count == scaled, "an event that never waited is scaled: {told}");
        let error = (scaled as f64 - truth).abs() / truth;
        ensure!(error < 0.05, "{told}, but the truth is {truth}");
        worst = worst.max(error);
    }
    // At most one of them has the fixed counter for itself, and one general counter may serve one for good.
    ensure!(turns >= 6, "only {turns} events took turns: {}", Value::from(events.clone()));
    Ok(format!("worst {:.2} %", worst * 100.0))
}
