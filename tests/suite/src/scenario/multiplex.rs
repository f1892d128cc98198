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

/// How many the guest part counts.
const EVENTS: usize = 11;

/// What an event that the guest part names counts.
fn meant(name: &str) -> Event {
    if name.starts_with("load") {
        Event::Load
    } else if name.starts_with("branch") || name.contains("0xc4") {
        Event::Branch
    } else {
        Event::Instruction
    }
}

/// Every scaled count lies within 5 % of the truth and says that it is scaled.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("multiplex: scaled counts are within 5 % of the truth, and say that they are scaled", || {
        scaled(boot)
    });
}

fn scaled(boot: &Boot) -> Result<String> {
    let stat = boot.report.facts.get(COUNTS).context("the guest left no counts")?;
    let events = stat["events"].as_array().with_context(|| format!("no events in {stat}"))?;
    ensure!(events.len() == EVENTS, "{} events", events.len());
    let report: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    // As the program names its window.
    let millions =
        boot.report.facts.get(MILLIONS).and_then(Value::as_u64).context("the guest left no rounds")?;
    let tag = format!("strides{}", char::from(b'0' + millions as u8));
    let window = report.windows.iter().find(|window| window.tag == tag).context("the truth has no window")?;
    let mut worst = 0.0_f64;
    let mut turns = 0;
    for told in events {
        let event = meant(told["name"].as_str().with_context(|| format!("no name in {told}"))?);
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
