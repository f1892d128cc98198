//! Samples by interrupts against the interrupts that the PMU model requested.
//!
//! The model raises each [`SKID`] instructions after the overflow. So a sample must name an instruction to which that many
//! steps lead from where the overflow truly was, and hold the registers of the thread that ran there.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use libhpm::record::Attribution;
use libhpm::trace::{EventUse, Registers, SampleRow};
use vpmu::truth::{PmiReport, Report};

use super::records::{open, periods, rows};
use crate::check::Tally;
use crate::guest::interrupt::TRACES;
use crate::lab::Boot;

/// Options of `lab run`.
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", "pebs-log=on", "--plugin-arg", "skid=20"];
/// The model's `skid`.
const SKID: usize = 20;

/// Every sample belongs to an interrupt and to its thread.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let report = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    for (trace, arguments) in TRACES {
        tally.run(&format!("interrupt: {trace} says that its samples have skid"), || labelled(boot, trace));
        tally.run(&format!("interrupt: samples × period agrees with the count in {trace}"), || {
            Ok(format!("{} lost", periods(boot, trace)?))
        });
        tally.run(&format!("interrupt: samples of {trace} lie where the skid leads"), || {
            places(boot, trace, &report)
        });
        tally.run(&format!("interrupt: registers in {trace} are the thread's own"), || {
            registers(boot, trace, arguments)
        });
    }
}

fn labelled(boot: &Boot, trace: &str) -> Result<String> {
    let reader = open(boot, trace)?;
    let event = &reader.meta().events[0];
    ensure!((event.mode, event.attribution) == (EventUse::Interrupt, Attribution::Skid), "it says {event:?}");
    Ok(String::new())
}

/// What each instruction was followed by, as far as overflows showed it.
fn successors<'a>(pmis: impl Iterator<Item = &'a PmiReport>) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut successors = BTreeMap::<u64, BTreeSet<u64>>::new();
    for pmi in pmis {
        successors.entry(pmi.pc).or_default().insert(pmi.next_pc);
    }
    successors
}

/// Where so many steps can lead.
fn after(from: u64, steps: usize, successors: &BTreeMap<u64, BTreeSet<u64>>) -> BTreeSet<u64> {
    let mut reached = BTreeSet::from([from]);
    for _ in 0..steps {
        reached = reached.iter().filter_map(|at| successors.get(at)).flatten().copied().collect();
    }
    reached
}

/// The overflow that each sample is of: the last before it on its CPU, each of one sample.
pub(super) fn overflows<'a>(samples: &[SampleRow], report: &'a Report) -> Result<Vec<&'a PmiReport>> {
    let mut pmis = BTreeMap::<(u32, u64), &PmiReport>::new();
    pmis.extend(report.pmis.iter().map(|pmi| ((pmi.cpu, pmi.tsc), pmi)));
    let mut overflows = Vec::with_capacity(samples.len());
    let mut taken = BTreeSet::new();
    for sample in samples {
        let last = pmis.range((sample.cpu, 0)..=(sample.cpu, sample.tsc)).next_back();
        let (key, pmi) = last.with_context(|| format!("no PMI came before the sample at {}", sample.tsc))?;
        ensure!(taken.insert(*key), "two samples belong to the PMI of CPU {} at TSC {}", key.0, key.1);
        overflows.push(*pmi);
    }
    Ok(overflows)
}

/// The histogram of instruction pointers is that of the overflows, each moved on by the skid. A few samples may differ: an
/// interrupt of another kind between overflow and PMI uses up steps, and the ends of loops are seldom seen overflowing.
fn places(boot: &Boot, trace: &str, report: &Report) -> Result<String> {
    let samples = rows::<SampleRow>(boot, trace)?;
    let overflows = overflows(&samples, report)?;
    let successors = successors(overflows.iter().copied());
    let mut seen = BTreeMap::<u64, usize>::new();
    let mut right = 0;
    for (sample, pmi) in samples.iter().zip(&overflows) {
        right += usize::from(after(pmi.next_pc, SKID, &successors).contains(&sample.ip));
        *seen.entry(sample.ip).or_default() += 1;
    }
    // Four, three and five instructions are in the loops.
    ensure!(samples.len() > 1000 && seen.len() >= 12, "{} samples of {} places", samples.len(), seen.len());
    ensure!(right * 100 >= samples.len() * 99, "only {right} of {} samples do", samples.len());
    Ok(format!("{right} of {} samples, {} places", samples.len(), seen.len()))
}

/// `loops` keeps its length in R12 and its tag in R14 (tests/guest/src/bin/loops.rs), both unlike the other's that ran beside it.
fn registers(boot: &Boot, trace: &str, arguments: u64) -> Result<String> {
    /// Places in a record (SDM Vol. 3B, "PEBS Record Format"): R8 follows RSP.
    const R12: usize = Registers::RSP + 5;
    const R14: usize = Registers::RSP + 7;
    let number = 1 + arguments;
    let own = (number * 1_000_000, u64::from_le_bytes(*b"loops\0\0\0") | (0x30 + number) << 40);
    let samples = rows::<SampleRow>(boot, trace)?;
    let mut before = 0;
    for sample in &samples {
        let registers = sample.registers.context("a sample has no registers")?;
        let rip = registers.at(Registers::RIP);
        ensure!(rip == sample.ip, "RIP is {rip:#x}, the sample at {:#x}", sample.ip);
        // The first instructions have yet to load them.
        before += usize::from((registers.at(R12), registers.at(R14)) != own);
    }
    ensure!(before <= 1, "{before} of {} samples have other values in R12 and R14", samples.len());
    Ok(format!("{} samples", samples.len()))
}
