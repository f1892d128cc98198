//! Scaled counts against the truth.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vpmu::event::Event;
use vpmu::truth::{Report, WindowReport};

use crate::check::Tally;
use crate::guest::multiplex::{COUNTS, LONG, MILLIONS, TYPED};
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
    if let Some(stat) = boot.report.facts.get(TYPED) {
        tally.run("multiplex: counts of one type of cores are scaled by the time on these", || {
            typed(boot, stat)
        });
    }
}

/// The events of what `hpmctl stat` wrote.
fn events_of(stat: &Value) -> Result<&Vec<Value>> {
    stat["events"].as_array().with_context(|| format!("no events in {stat}"))
}

/// What the program executed that makes so many million rounds less than the first one.
fn window(boot: &Boot, less: u64) -> Result<WindowReport> {
    let report: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let millions =
        boot.report.facts.get(MILLIONS).and_then(Value::as_u64).context("the guest left no rounds")?;
    // As the program names it.
    let tag = format!("strides{}", char::from(b'0' + (millions - less) as u8));
    report.windows.into_iter().find(|window| window.tag == tag).context("the truth has no window")
}

/// What the efficient cores counted, in turns and scaled, are the loads that the performance cores did not count, which need no turns.
fn typed(boot: &Boot, stat: &Value) -> Result<String> {
    let truth = window(boot, 1)?.counts.of(Event::Load).user;
    let number =
        |told: &Value, field: &str| told[field].as_u64().with_context(|| format!("no {field} in {told}"));
    let (core, atoms) = events_of(stat)?.split_first().context("no events")?;
    let core = number(core, "count")?;
    ensure!(core < truth && atoms.len() == 9, "{core} of {truth} loads, {} events", atoms.len());
    let others = (truth - core) as f64;
    ensure!(others > truth as f64 * 0.1, "the program was to be moved: {core} of {truth} loads");
    let mut worst = 0.0_f64;
    for told in atoms {
        let (count, scaled) = (number(told, "count")? as f64, number(told, "scaled")? as f64);
        let error = (scaled - others).abs() / others;
        ensure!(count < others * 0.9 && error < 0.05, "{told}, but the truth is {others}");
        worst = worst.max(error);
    }
    Ok(format!(
        "worst {:.2} %, {:.0} % of the loads on efficient cores",
        worst * 100.0,
        others / truth as f64 * 100.0
    ))
}

fn scaled(boot: &Boot) -> Result<String> {
    let stat = boot.report.facts.get(COUNTS).context("the guest left no counts")?;
    let events = events_of(stat)?;
    ensure!(events.len() == EVENTS, "{} events", events.len());
    let window = window(boot, 0)?;
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
