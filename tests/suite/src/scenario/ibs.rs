//! Samples of AMD's instruction-based sampling against the interrupts that the PMU model requested for them.
//!
//! Each names the sampled instruction itself, however late its interrupt comes. IBS knows no privilege levels: of what it samples
//! in the kernel hpm keeps nothing.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use libhpm::record::Level;
use libhpm::trace::SampleRow;
use vpmu::Privilege;
use vpmu::event::Event;
use vpmu::truth::{PmiReport, Report};

use super::records::{Pair, all_paired, rows, totals};
use super::sampling::{mapped, processes};
use crate::check::Tally;
use crate::guest::sampling::MISSES;
use crate::lab::Boot;

/// Instructions of the loop of `strides`, and where the loads are (tests/guest/src/bin/strides.rs).
const LOOP: usize = 6;
const MISSING: usize = 0;
const HITTING: usize = 1;

/// Every sample is of the instruction that the model says, in its order, and none is missing.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let report = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    // A branch to the kernel, as SYSCALL is, has the kernel's address in its record: it is withheld as a whole.
    let user = |pmi: &&PmiReport| pmi.privilege == Privilege::User && pmi.next_pc >> 63 == 0;
    let mut paired = Vec::new();
    tally.run("sampling: the samples are what was sampled in user mode, in order", || {
        paired = all_paired(boot, &MISSES, report.pmis.iter().filter(user))?;
        Ok(format!("{} samples", paired.len()))
    });
    for name in MISSES {
        tally.run(&format!("sampling: every sample of {name} is of the sampled instruction"), || {
            instructions(name, &paired)
        });
    }
    tally.run("sampling: the ops of strides are counted exactly", || counted(boot, &report));
    let mut hot = Vec::new();
    tally.run("sampling: the instructions of strides' loop are sampled alike", || {
        hot = loop_of(&rows(boot, MISSES[0])?)?;
        alike(&hot)
    });
    tally.run("sampling: strides' loads have their addresses and their data's sources", || loads(&hot));
    tally.run("sampling: every sample lies in code that its process had mapped", || mapped(boot));
    tally.run("sampling: no process has another's samples", || {
        processes(boot, &paired, |truth| truth.page_table)
    });
}

fn instructions(name: &str, paired: &[Pair<'_, PmiReport>]) -> Result<String> {
    let mut samples = 0;
    for Pair { sample, truth, .. } in paired.iter().filter(|pair| pair.trace == name) {
        ensure!(sample.ip == truth.pc, "a sample says {:#x}, the truth is {:#x}", sample.ip, truth.pc);
        samples += 1;
    }
    ensure!(samples > 500, "only {samples} samples");
    Ok(format!("{samples} samples"))
}

/// The model's instructions are one op each.
fn counted(boot: &Boot, report: &Report) -> Result<String> {
    /// What `strides` does outside its window: the CPUID that opens it and what is before, exit(0) (tests/guest/src/bin/strides.rs).
    const OUTSIDE_WINDOW: u64 = 12;
    let counted = totals(boot, MISSES[0])?.counts[0];
    let window = report.windows.iter().find(|window| window.tag == "strides1");
    let truth = window.context("the truth has no window strides1")?.counts.of(Event::Instruction).user;
    ensure!(
        counted == truth + OUTSIDE_WINDOW,
        "hpm counted {counted}, the truth is {truth} and {OUTSIDE_WINDOW} more"
    );
    Ok(format!("{counted}"))
}

/// The samples of the loop's instructions, in the order of their addresses.
fn loop_of(samples: &[SampleRow]) -> Result<Vec<Vec<SampleRow>>> {
    let mut by_instruction = BTreeMap::<u64, Vec<SampleRow>>::new();
    for sample in samples {
        by_instruction.entry(sample.ip).or_default().push(sample.clone());
    }
    let mut all: Vec<Vec<SampleRow>> = by_instruction.into_values().collect();
    all.sort_by_key(|samples| std::cmp::Reverse(samples.len()));
    all.truncate(LOOP);
    ensure!(all.len() == LOOP, "only {} instructions have samples", all.len());
    all.sort_by_key(|samples| samples[0].ip);
    Ok(all)
}

/// Each has its share, within five standard deviations.
fn alike(hot: &[Vec<SampleRow>]) -> Result<String> {
    let counts: Vec<usize> = hot.iter().map(Vec::len).collect();
    let all: usize = counts.iter().sum();
    let expected = all as f64 / LOOP as f64;
    let most = 5.0 * (expected * (1.0 - 1.0 / LOOP as f64)).sqrt();
    ensure!(counts.iter().all(|&count| (count as f64 - expected).abs() <= most), "their samples: {counts:?}");
    Ok(format!("{counts:?}"))
}

/// One load walks an array that is larger than the first level, in steps of a line; the other reads one line always. A few of the
/// latter miss, after an interrupt has evicted its line, and pages that are new are in the cache.
fn loads(hot: &[Vec<SampleRow>]) -> Result<String> {
    let of = |place: usize| hot.get(place).context("the loop was not found");
    let in_l1 =
        |samples: &[SampleRow]| samples.iter().filter(|sample| sample.level == Some(Level::L1 as u8)).count();
    let (missing, hitting) = (of(MISSING)?, of(HITTING)?);
    let others = hot.iter().enumerate().filter(|(place, _)| ![MISSING, HITTING].contains(place));
    for (_, samples) in others {
        let with = samples.iter().find(|sample| sample.data_address.is_some() || sample.level.is_some());
        ensure!(with.is_none(), "an instruction that does not load has data: {with:?}");
    }
    let addresses = |samples: &[SampleRow]| -> Option<BTreeSet<u64>> {
        samples.iter().map(|sample| sample.data_address).collect()
    };
    let walked = addresses(missing).context("a sample of the missing load has no address")?;
    let steady = addresses(hitting).context("a sample of the hitting load has no address")?;
    let span = walked.last().zip(walked.first()).map_or(0, |(last, first)| last - first);
    ensure!(walked.iter().all(|at| at % 64 == 0) && span < 1 << 20, "the walk goes over {span:#x} bytes");
    ensure!(
        walked.len() * 2 > missing.len().min(1 << 14),
        "{} places in {} samples",
        walked.len(),
        missing.len()
    );
    ensure!(steady.len() == 1, "the steady load reads at {steady:x?}");
    ensure!(in_l1(missing) * 50 <= missing.len(), "{} of {} hit L1", in_l1(missing), missing.len());
    let evicted = hitting.len() - in_l1(hitting);
    ensure!(evicted * 50 <= hitting.len(), "{evicted} of {} missed L1", hitting.len());
    let timed = missing.iter().filter(|sample| sample.latency_cycles.is_some()).count();
    ensure!(timed * 50 >= missing.len() * 49, "{timed} of {} misses have a latency", missing.len());
    Ok(format!("{} misses and {} hits", missing.len(), hitting.len()))
}
