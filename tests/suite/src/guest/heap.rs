//! The example heap's database (tests/heap), as it is, advised by its own samples, copied, and on libgc, in heaps of several sizes.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::GuestReport;
use super::programs::{built, succeed};

/// File in the working folder with the smallest heap in KiB, which the host has looked for.
pub(crate) const MINIMUM: &str = "minimum";
/// Number of the database's entries, in percent of the usual: the model executes some hundred times slower than a processor.
pub(crate) const SCALE: &str = "50";
/// Heap sizes, in tenths of the smallest of the mark-sweep collector. The copying collector needs about twice of that, libgc a
/// sixth more.
pub(crate) const TENTHS: [u32; 5] = [10, 11, 14, 20, 40];
/// The smallest of these that the copying collector can do with.
pub(crate) const SMALLEST_COPYING: u32 = 20;
/// Ways to run it, with their options. Periods and intervals are such that there are some of them in an iteration.
pub(crate) const WAYS: [(&str, &[&str]); 4] = [
    ("base", &[]),
    ("live", &["--live", "1009", "--period", "20000000"]),
    ("copy", &["--collector", "copying"]),
    // The host has left the library in the working folder.
    ("libgc", &["--collector", "libgc", "--libgc", "./libgc.so.1"]),
];

/// Name of a run's window in the truth, and of its fact.
pub(crate) fn tag(way: &str, tenths: u32) -> String {
    format!("{way}{tenths}")
}

/// Whether the way is possible in a heap of this size.
pub(crate) fn is_possible(way: &str, tenths: u32) -> bool {
    match way {
        "copy" => tenths >= SMALLEST_COPYING,
        "libgc" => tenths >= 14,
        _ => true,
    }
}

/// Each run leaves a fact.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let minimum: u32 = fs::read_to_string(MINIMUM)?.trim().parse().context("the smallest heap")?;
    for tenths in TENTHS {
        let limit = (minimum * tenths / 10).to_string();
        for (way, options) in WAYS.into_iter().filter(|(way, _)| is_possible(way, tenths)) {
            let tag = tag(way, tenths);
            let mut command = std::process::Command::new(built("heap")?);
            command.args(["run", "db", "--json", "--scale", SCALE, "--limit", &limit, "--window", &tag]);
            let output = succeed(command.args(options))?;
            let said: Value = serde_json::from_slice(&output.stdout).context("what heap run printed")?;
            report.fact(&tag, said);
        }
    }
    Ok(())
}
