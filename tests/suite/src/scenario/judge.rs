//! Linux's own driver and Debian's perf against the truth: the model is a PMU to others too.

use anyhow::{Context, Result, ensure};

use super::counting::true_counts;
use crate::check::Tally;
use crate::guest::programs::PERIOD;
use crate::lab::Boot;

/// What Linux's Intel driver must say when it finds the model.
const ACCEPTED: &[&str] = &["PEBS fmt3+", "Skylake events", "full-width counters", "Intel PMU driver"];

/// Iterations of `strides` without arguments, each with one L1 miss.
const MISSES: u64 = 1_000_000;

/// perf's counts and samples agree with the truth.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("judge: Linux's Intel driver accepts the model", || accepted(&boot.kernel_log));
    for label in ["loops1", "loops3"] {
        tally.run(&format!("judge: perf stat equals the truth for {label}"), || counted(boot, label));
    }
    tally.run("judge: perf record :pp names the missing load and its data", || sampled(boot));
}

fn accepted(log: &str) -> Result<String> {
    let line =
        log.lines().find(|line| line.contains("Performance Events:")).context("no such line in the log")?;
    for words in ACCEPTED {
        ensure!(line.contains(words), "the line lacks {words:?}: {line}");
    }
    Ok(line.to_owned())
}

fn counted(boot: &Boot, label: &str) -> Result<String> {
    let fact = boot.report.facts.get(label).with_context(|| format!("the guest left no {label}"))?;
    let counted: [u64; 4] = serde_json::from_value(fact.clone()).context("perf's counts")?;
    let truth = true_counts(&boot.truth, label)?;
    ensure!(counted == truth, "perf counted {counted:?}, the truth is {truth:?}");
    Ok(format!("{counted:?}"))
}

/// At least 99 % of the samples lie on the missing load and in its array; the rest on the other load, whose line an
/// interrupt may evict. There are as many as the misses allow.
fn sampled(boot: &Boot) -> Result<String> {
    let fact = boot.report.facts.get("strides1").context("the guest left no samples")?;
    let samples: Vec<Vec<String>> = serde_json::from_value(fact.clone()).context("perf's samples")?;
    let (missing, others): (Vec<_>, Vec<_>) =
        samples.iter().cloned().partition(|sample| sample.iter().any(|word| word == "missing_load"));
    let evicted = others.iter().filter(|sample| sample.iter().any(|word| word == "hitting_load")).count();
    ensure!(evicted == others.len(), "samples on neither load: {others:?}");
    ensure!(evicted * 99 <= missing.len(), "{evicted} of {} samples are on hitting_load", samples.len());
    let expected = MISSES / PERIOD;
    let got = samples.len() as u64;
    ensure!(got.abs_diff(expected) <= 1, "{got} samples where {MISSES} misses / {PERIOD} = {expected}");
    addresses(&missing)?;
    Ok(format!("{got} samples"))
}

/// Data addresses are cache-line starts within one MiB.
fn addresses(samples: &[Vec<String>]) -> Result<()> {
    let parsed: Vec<u64> = samples
        .iter()
        .map(|sample| sample.first().and_then(|a| u64::from_str_radix(a, 16).ok()).unwrap_or(1))
        .collect();
    let (low, high) = (parsed.iter().min().copied().unwrap_or(0), parsed.iter().max().copied().unwrap_or(0));
    ensure!(parsed.iter().all(|a| a % 64 == 0), "a data address is not where the load reads");
    ensure!(high - low < 1 << 20, "the addresses span {low:#x} to {high:#x}, more than the array");
    Ok(())
}
