//! Co-allocation by the truth: misses and cycles of the last iteration of the example heap's database.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use vpmu::event::Event;
use vpmu::truth::Report;

use crate::check::Tally;
use crate::guest::heap::{MINIMUM, SCALE, SMALLEST_COPYING, TENTHS, WAYS, is_possible, tag};
use crate::lab::{Boot, TRUTH_OF_ALL};
use crate::libgc;

pub(super) const NAME: &str = "heap";

/// Options of `lab run`. With real time as its clock the guest would do little but serve timer interrupts: the model is slow.
///
/// The caches are to db's heap what the thesis's were: 64 KiB in front of memory beside a smallest heap of 1.75 MiB, as its Pentium 4
/// had 1 MiB beside 20 MB (§5.2.1). All of that heap fits the 8 MiB of Skylake's last level, where misses cost little.
pub(super) const OPTIONS: &[&str] = &[
    "--deterministic",
    "--plugin-arg",
    TRUTH_OF_ALL,
    "--plugin-arg",
    "D1=16384:8:64",
    "--plugin-arg",
    "L2=none",
    "--plugin-arg",
    "LL=65536:16:64",
];

/// Parts of the misses and of the cycles that advice must save, by heap size in tenths of the smallest. The thesis's db saves 28 % of the misses
/// and 14 % of the time at four times the smallest heap, and 9.3 % of the time in the smallest (§5.2.5, Figures 5.9 and 5.10).
/// Addresses differ from run to run, and with them the misses by some percent.
const SAVED: [(u32, f64, f64); TENTHS.len()] =
    [(10, 0.15, 0.093), (11, 0.15, 0.093), (14, 0.15, 0.093), (20, 0.15, 0.093), (40, 0.25, 0.14)];
/// How many fewer cycles it must take than the copying collector in the smallest heap that this can do with (Figure 5.12).
const BETTER_THAN_COPYING: f64 = 0.08;

/// Leaves the smallest heap for the guest, which would take long to find it, and libgc.
///
/// # Errors
/// The heap's program is not built, or fails; there is no libgc.
pub(super) fn prepare(root: &Path, folder: &Path) -> Result<()> {
    let output = Command::new(root.join("target/release/heap"))
        .args(["minimum", "db", "--scale", SCALE])
        .output()
        .context("target/release/heap cannot be started; `make tools` builds it")?;
    ensure!(output.status.success(), "heap minimum: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.trim_start().starts_with("db"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).context("heap minimum names no db")?;
    fs::write(folder.join(MINIMUM), kib).context("writing the smallest heap")?;
    let library = folder.join(libgc::NAME);
    fs::copy(libgc::library(root)?, library).map(drop).context("leaving libgc for the guest")
}

/// Every run computes the same; advice comes during the run, and saves misses and cycles at each heap size.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("heap: every collector and all advice compute the same", || checksums(boot));
    for (tenths, misses, cycles) in SAVED {
        let size = f64::from(tenths) / 10.0;
        tally.run(
            &format!("heap: the run takes advice from its samples at {size} times the smallest heap"),
            || advised(boot, tenths),
        );
        tally.run(&format!("heap: advice saves misses and cycles at {size} times the smallest heap"), || {
            saved(boot, tenths, [misses, cycles])
        });
    }
}

fn fact<'a>(boot: &'a Boot, way: &str, tenths: u32) -> Result<&'a Value> {
    let tag = tag(way, tenths);
    boot.report.facts.get(&tag).with_context(|| format!("the guest left no {tag}"))
}

fn checksums(boot: &Boot) -> Result<String> {
    let first = fact(boot, "base", TENTHS[0])?["checksum"].as_u64().context("no checksum")?;
    for tenths in TENTHS {
        for (way, _) in WAYS.iter().filter(|(way, _)| is_possible(way, tenths)) {
            let sum = fact(boot, way, tenths)?["checksum"].as_u64();
            ensure!(sum == Some(first), "{way} at {tenths} tenths has {sum:?}, the first run {first}");
        }
    }
    Ok(format!("{first:016x}"))
}

fn advised(boot: &Boot, tenths: u32) -> Result<String> {
    let said = fact(boot, "live", tenths)?;
    ensure!(said["failed"].is_null(), "samples ended: {}", said["failed"]);
    let pairs = said["co_allocated_pairs"].as_u64().unwrap_or(0);
    ensure!(pairs > 0, "nothing was co-allocated: {said}");
    Ok(format!("{pairs} pairs, {} samples, {}", said["samples"], said["decisions"]))
}

/// First-level misses and cycles of a run's last iteration, in user mode.
fn truth(report: &Report, way: &str, tenths: u32) -> Result<[f64; 2]> {
    let tag = tag(way, tenths);
    let window = report.windows.iter().find(|window| window.tag == tag);
    let counts = &window.with_context(|| format!("the truth has no window {tag}"))?.counts;
    Ok([Event::LoadL1Miss, Event::Cycle].map(|event| counts.of(event).user as f64))
}

fn saved(boot: &Boot, tenths: u32, least: [f64; 2]) -> Result<String> {
    let report: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let [misses, cycles] = truth(&report, "base", tenths)?;
    let change = |way: &str| -> Result<[f64; 2]> {
        let [other_misses, other_cycles] = truth(&report, way, tenths)?;
        Ok([other_misses / misses - 1.0, other_cycles / cycles - 1.0])
    };
    let live = change("live")?;
    let mut text = format!("misses {:+.1} %, cycles {:+.1} %", live[0] * 100.0, live[1] * 100.0);
    // All of libgc's own misses and cycles are in the truth, too.
    for (way, name) in [("copy", "copying"), ("libgc", "libgc")] {
        if is_possible(way, tenths) {
            let other = change(way)?;
            text += &format!("; {name}: {:+.1} %, {:+.1} %", other[0] * 100.0, other[1] * 100.0);
        }
    }
    ensure!(live[0] <= -least[0] && live[1] <= -least[1], "{text}");
    if tenths == SMALLEST_COPYING {
        let copying = change("copy")?[1];
        ensure!((1.0 + live[1]) <= (1.0 + copying) * (1.0 - BETTER_THAN_COPYING), "{text}");
    }
    Ok(text)
}
