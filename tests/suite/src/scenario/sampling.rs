//! Precise records against the PMU model's log of what truly happened.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use libhpm::trace::{MapRow, QuantumRow, SampleRow, TraceReader};
use vpmu::truth::{PebsReport, Report};

use crate::check::Tally;
use crate::lab::Boot;

/// Every record of every trace is right, belongs to the right thread, and none is missing.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let report = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    for name in ["strides.hpm", "first.hpm", "second.hpm"] {
        tally.run(&format!("sampling: every record of {name} is right"), || records(boot, name, &report));
        tally.run(&format!("sampling: samples × period agrees with the count in {name}"), || {
            periods(boot, name)
        });
    }
    tally.run("sampling: every sample lies in code that its process had mapped", || mapped(boot));
    tally.run("sampling: strides' misses are on its missing load", || strides(boot));
    tally.run("sampling: no process has another's samples", || processes(boot, &report));
    tally.run("sampling: no thread has another's samples", || threads(boot));
}

/// The rows of a table, or why they cannot be read.
fn rows<R: libhpm::trace::Row>(boot: &Boot, name: &str) -> Result<Vec<R>> {
    let reader = TraceReader::open(boot.folder.join(name)).with_context(|| format!("opening {name}"))?;
    let mut rows = reader.rows::<R>();
    let all: Vec<R> = rows.by_ref().collect();
    ensure!(rows.cut().is_none(), "a table of {name} is cut off");
    ensure!(!all.is_empty(), "{name} has no {} rows", R::TABLE);
    Ok(all)
}

/// The true log, by what a record and the truth have in common.
fn by_time(report: &Report) -> BTreeMap<(u32, u64), &PebsReport> {
    report.pebs.iter().map(|record| ((record.cpu, record.tsc), record)).collect()
}

/// Instruction, next instruction, registers' RIP and data address of each sample are the truth's.
fn records(boot: &Boot, name: &str, report: &Report) -> Result<String> {
    let truth = by_time(report);
    let samples = rows::<SampleRow>(boot, name)?;
    for sample in &samples {
        let true_record = truth.get(&(sample.cpu, sample.tsc)).with_context(|| {
            format!("the truth has no record of CPU {} at TSC {}", sample.cpu, sample.tsc)
        })?;
        let right = (true_record.pc, true_record.next_pc, true_record.load);
        let got = (sample.ip, sample.next_ip.unwrap_or(0), sample.data_address);
        ensure!(got == right, "a record says {got:x?}, the truth is {right:x?}");
        if let Some(registers) = sample.registers {
            let rip = registers.at(libhpm::trace::Registers::RIP);
            ensure!(
                rip == true_record.next_pc,
                "RIP is {rip:#x}, the next instruction {:#x}",
                true_record.next_pc
            );
        }
    }
    Ok(format!("{} records", samples.len()))
}

/// For each thread: |records × period − count| ≤ period.
fn periods(boot: &Boot, name: &str) -> Result<String> {
    let mut counted = BTreeMap::<u32, u64>::new();
    let mut lost = 0;
    for quantum in rows::<QuantumRow>(boot, name)? {
        *counted.entry(quantum.tid).or_default() += quantum.counts[0];
        lost += quantum.records_lost;
    }
    let mut sampled = BTreeMap::<u32, u64>::new();
    let mut period = 0;
    for sample in rows::<SampleRow>(boot, name)? {
        *sampled.entry(sample.tid).or_default() += sample.period;
        period = sample.period;
    }
    ensure!(lost == 0, "{lost} records were lost");
    for (tid, count) in &counted {
        let samples = sampled.get(tid).copied().unwrap_or(0);
        ensure!(
            count.abs_diff(samples) <= period,
            "thread {tid}: {count} events, but its samples stand for {samples} (period {period})"
        );
    }
    Ok(format!("{} threads", counted.len()))
}

/// The misses are on one instruction, but for the few that an interrupt caused by evicting the other load's line. Its data
/// address is RSI + RCX of the record: the registers are those after the load, before the add.
fn strides(boot: &Boot) -> Result<String> {
    /// Places of RCX and RSI in a record (SDM Vol. 3B, "PEBS Record Format").
    const RCX: usize = 4;
    const RSI: usize = 6;
    let samples = rows::<SampleRow>(boot, "strides.hpm")?;
    let hot = hottest(&samples);
    let on_hot = samples.iter().filter(|sample| sample.ip == hot);
    ensure!(
        on_hot.clone().count() * 100 >= samples.len() * 99,
        "fewer than 99 % of the misses are on {hot:#x}"
    );
    for sample in on_hot {
        let registers = sample.registers.context("a sample has no registers")?;
        let address = registers.at(RSI) + registers.at(RCX);
        ensure!(
            sample.data_address == Some(address),
            "data address {:x?}, but RSI + RCX = {address:#x}",
            sample.data_address
        );
    }
    Ok(format!("{} samples", samples.len()))
}

/// Two runs of one position-independent program have it at two addresses; a sample must name its own process'.
fn mapped(boot: &Boot) -> Result<String> {
    let mut samples = 0;
    for name in ["first.hpm", "second.hpm"] {
        let maps: Vec<MapRow> = rows(boot, name)?;
        for sample in rows::<SampleRow>(boot, name)? {
            let holds = |map: &MapRow| map.executable && (map.start..map.end).contains(&sample.ip);
            ensure!(maps.iter().any(holds), "{name}: {:#x} is in no executable mapping", sample.ip);
            samples += 1;
        }
    }
    Ok(format!("{samples} samples"))
}

/// By the truth, each trace's samples come from one address space, and no two traces share one.
fn processes(boot: &Boot, report: &Report) -> Result<String> {
    let truth = by_time(report);
    let mut owner = BTreeMap::<u64, &str>::new();
    for name in ["first.hpm", "second.hpm"] {
        for sample in rows::<SampleRow>(boot, name)? {
            let record = truth.get(&(sample.cpu, sample.tsc)).context("the truth lacks a record")?;
            let first = *owner.entry(record.page_table).or_insert(name);
            ensure!(first == name, "page table {:#x} is in {first} and in {name}", record.page_table);
        }
    }
    ensure!(owner.len() == 2, "{} address spaces where two processes ran", owner.len());
    let cpus: BTreeSet<u32> = rows::<SampleRow>(boot, "first.hpm")?.iter().map(|sample| sample.cpu).collect();
    ensure!(cpus.len() == boot.machine.cpus.min(2) as usize, "the process was seen on CPUs {cpus:?}");
    Ok(String::new())
}

/// Each thread of `threads` walks 4 MiB of its own, so the ranges of data addresses by thread must not meet.
fn threads(boot: &Boot) -> Result<String> {
    let mut seen = 0;
    for name in ["first.hpm", "second.hpm"] {
        let mut ranges = BTreeMap::<u32, (u64, u64)>::new();
        let samples = rows::<SampleRow>(boot, name)?;
        let hot = hottest(&samples);
        for sample in samples.iter().filter(|sample| sample.ip == hot) {
            let address = sample.data_address.context("a sample has no data address")?;
            let range = ranges.entry(sample.tid).or_insert((address, address));
            *range = (range.0.min(address), range.1.max(address));
        }
        let mut sorted: Vec<(u64, u64)> = ranges.values().copied().collect();
        sorted.sort_unstable();
        ensure!(
            sorted.iter().all(|(low, high)| high - low < 4 << 20),
            "{name}: a thread read more than its own"
        );
        ensure!(sorted.windows(2).all(|pair| pair[0].1 < pair[1].0), "{name}: two threads' ranges meet");
        seen += sorted.len();
    }
    ensure!(seen == 5, "{seen} threads have samples where 5 walked");
    Ok(format!("{seen} threads"))
}

/// The instruction with the most samples: the walk's load.
fn hottest(samples: &[SampleRow]) -> u64 {
    let mut counts = BTreeMap::<u64, u64>::new();
    for sample in samples {
        *counts.entry(sample.ip).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(ip, _)| ip)
}
