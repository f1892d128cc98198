//! Samples in windows (auto counter reload) against the truth, and against perf's.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vpmu::Profile;
use vpmu::event::Event;
use vpmu::profile::{CLEARWATER_FOREST, LUNAR_LAKE, PANTHER_LAKE};
use vpmu::truth::Report;

use super::records::{pairs, totals};
use crate::check::Tally;
use crate::guest::windows::{LOADS, PERF, REPORTS, WINDOW, WITHIN, WITHOUT};
use crate::lab::Boot;

pub(super) const NAME: &str = "windows";
/// Processors whose counters set each other back: one, and two of which only some cores' do, with architectural PEBS and with a debug store.
pub(super) const PROFILES: [&Profile; 3] = [&CLEARWATER_FOREST, &PANTHER_LAKE, &LUNAR_LAKE];
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", "pebs-log=on"];

/// What `dense` does (tests/guest/src/bin/dense.rs): how often, and each time so many instructions with so many loads.
const ROUNDS: u64 = 200;
const SPARSE: [u64; 2] = [20_000 * 12, 20_000];
const DENSE: [u64; 2] = [4_000 * 5, 4_000 * 3];

/// Every sample lies where loads are dense, and is the truth's; counts are whole; perf finds as many.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    let truth = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    tally.run("windows: samples lie where loads are dense, as many as each window's loads allow", || {
        let [within, _] = functions(boot)?;
        in_dense(within)
    });
    tally.run("windows: without them most samples lie elsewhere", || {
        let [_, [dense, others]] = functions(boot)?;
        ensure!(others > dense && others > 0, "{dense} of {} are in dense", dense + others);
        Ok(format!("{dense} of {} in dense", dense + others))
    });
    tally.run("windows: counts are exact beside them", || exact(boot, &truth));
    tally.run("windows: every sample is a record of the truth", || {
        Ok(format!("{} samples", pairs(boot, &[WITHIN, WITHOUT], &truth)?.len()))
    });
    tally.run("windows: perf's samples are as many, in the same place", || {
        let names = boot.report.facts.get(PERF).context("the guest left no samples of perf's")?;
        let names: Vec<String> = serde_json::from_value(names.clone())?;
        let dense = names.iter().filter(|name| *name == "dense").count() as u64;
        in_dense([dense, names.len() as u64 - dense])
    });
}

/// Of samples within [`WINDOW`] instructions each, so many in `dense` and others: a sample may come at the first load behind.
fn in_dense([dense, others]: [u64; 2]) -> Result<String> {
    /// A window that is wholly in `dense` has so many samples; those at its ends may have others' loads, or too few.
    const EACH: u64 = WINDOW * DENSE[1] / DENSE[0] / LOADS;
    let windows = DENSE[0] / WINDOW;
    let allowed = ROUNDS * (windows - 1) * EACH..=ROUNDS * (windows + 1) * EACH;
    ensure!(allowed.contains(&dense), "{dense} samples in dense, not {allowed:?}; {others} elsewhere");
    ensure!(others * 100 <= dense, "{others} samples are not in dense, {dense} are");
    Ok(format!("{dense} samples, and {others} behind"))
}

/// How many samples each recording has in `dense`, and in all other functions.
fn functions(boot: &Boot) -> Result<[[u64; 2]; 2]> {
    let reports = boot.report.facts.get(REPORTS).and_then(Value::as_array).context("no reports")?;
    let each = reports.iter().map(|report| {
        let table = &report["tables"][0];
        let all = table["all"]["samples"].as_u64().context("a table has no samples")?;
        let entries = table["entries"].as_array().context("a table has no entries")?;
        let dense = entries.iter().find(|entry| entry["function"] == "dense");
        let dense = dense.and_then(|entry| entry["self"]["samples"].as_u64()).unwrap_or(0);
        Ok([dense, all - dense])
    });
    each.collect::<Result<Vec<_>>>()?.try_into().ok().context("not two reports")
}

/// Both recordings count the loads of the program, and its instructions.
fn exact(boot: &Boot, truth: &Report) -> Result<String> {
    /// Instructions and loads outside the window: the latter is of the number of arguments.
    const OUTSIDE: [u64; 2] = [12, 1];
    let window = truth.windows.iter().find(|window| window.tag == "dense1");
    let counts = &window.context("the truth has no window dense1")?.counts;
    let loads = counts.of(Event::Load).user;
    ensure!(loads == ROUNDS * (SPARSE[1] + DENSE[1]), "the window has {loads} loads");
    let counted = totals(boot, WITHIN)?.counts.clone();
    ensure!(counted[0] == loads + OUTSIDE[1], "{} loads were counted, truly {loads} and one", counted[0]);
    ensure!(totals(boot, WITHOUT)?.counts[0] == counted[0], "without windows it is another count");
    let instructions = counts.of(Event::Instruction).user;
    ensure!(counted[1] == instructions + OUTSIDE[0], "{} instructions, truly {instructions}", counted[1]);
    Ok(format!("{} loads, {} instructions", counted[0], counted[1]))
}
