//! Precise records against the PMU model's log of what truly happened.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use libhpm::record::{Attribution, Level};
use libhpm::trace::{MapRow, Registers, SampleRow};
use vpmu::DataSource;
use vpmu::event::Privilege;
use vpmu::profile::{DataRecord, EventSpec, Profile};
use vpmu::truth::Report;

use super::records::{Pair, RCX, at_its_time, lead_to, open, pairs, periods, rows, totals};
use super::{ibs, several};
use crate::check::Tally;
use crate::guest::processor::sampled_event;
use crate::guest::sampling::{
    KERNEL, LOADS, LONG, LONG_LOADS, MISSES, RANDOMISED, REGISTERS, SEVERAL, tells_events_apart,
};
use crate::lab::Boot;

/// Every record of every trace is right, belongs to the right thread, and none is missing.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    if boot.machine.profile.amd().is_some() {
        return ibs::compare(boot, tally);
    }
    let report = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    let mut paired = Vec::new();
    let fixed = [MISSES[0], MISSES[1], MISSES[2], LOADS, LONG_LOADS, REGISTERS];
    let single: Vec<&str> = fixed.into_iter().chain([RANDOMISED]).collect();
    let several = tells_events_apart(boot.machine.profile);
    let all: Vec<&str> = single.iter().copied().chain([KERNEL]).chain(several.then_some(SEVERAL)).collect();
    tally.run("sampling: the samples are the records that were written, in order", || {
        paired = pairs(boot, &all, &report)?;
        Ok(format!("{} records", paired.len()))
    });
    for &name in &single {
        let of_trace: Vec<&Pair<'_>> = paired.iter().filter(|pair| pair.trace == name).collect();
        tally.run(&format!("sampling: every record of {name} is right"), || records(boot, name, &of_trace));
    }
    for name in fixed {
        tally.run(&format!("sampling: samples × period agrees with the count in {name}"), || {
            Ok(format!("{} lost", periods(boot, name)?))
        });
    }
    if several {
        tally.run("sampling: two precise events at once have their own samples", || {
            several::compare(boot, &paired)
        });
    }
    tally.run("sampling: randomised periods differ, and agree with the count", || randomised(boot));
    tally.run("sampling: every sample lies in code that its process had mapped", || mapped(boot));
    tally.run("sampling: every record of kernel mode is right, and of kernel mode", || kernel(boot, &paired));
    tally.run("sampling: strides' misses are on its missing load", || strides(&paired));
    tally.run("sampling: every register is at its place", || registers(&paired));
    tally.run("sampling: sampled loads have their latency and their data's source", || {
        let levels = loads(boot, &paired, LOADS)?;
        // Half of the loads hit, the others walk an array that is larger than the first level.
        let hits = levels.get(&Level::L1).copied().unwrap_or(0);
        let all: u64 = levels.values().sum();
        ensure!(hits * 3 > all && hits * 3 < all * 2, "{hits} of {all} sampled loads hit the first level");
        Ok(format!("samples of each level: {levels:?}"))
    });
    tally.run("sampling: no load is sampled that took no longer than was asked for", || {
        let levels = loads(boot, &paired, LONG_LOADS)?;
        let long = |pair: &&Pair<'_>| pair.sample.latency_cycles > Some(LONG);
        let short = paired.iter().filter(|pair| pair.trace == LONG_LOADS).find(|pair| !long(pair));
        ensure!(short.is_none(), "a load took {:?} cycles", short.map(|pair| pair.sample.latency_cycles));
        // Those that hit take longer only where their address had to be found first. Where the array fits the second level, which takes no
        // longer either, few are left: as many as the counts say, and on an efficient core hardly any.
        periods(boot, LONG_LOADS)?;
        let few = if boot.machine.types_of_core() > 1 { 0 } else { 10 };
        let hits = levels.get(&Level::L1).copied().unwrap_or(0);
        let all: u64 = levels.values().sum();
        ensure!(all > few && hits * 4 < all, "{hits} of {all} sampled loads hit the first level");
        Ok(format!("samples of each level: {levels:?}"))
    });
    tally.run("sampling: no process has another's samples", || {
        processes(boot, &paired, |truth| truth.page_table)
    });
    tally.run("sampling: no thread has another's samples", || threads(boot));
}

/// Intervals lie within a sixteenth around the period, draws replace one another, and the thread begins anywhere in an interval: what all
/// samples stand for is the count but for a period and a sixteenth.
fn randomised(boot: &Boot) -> Result<String> {
    let totals = totals(boot, RANDOMISED)?;
    let period = open(boot, RANDOMISED)?.meta().events[0].period;
    let samples = rows::<SampleRow>(boot, RANDOMISED)?;
    let spans = 1 + samples.array_windows().filter(|[one, next]| one.period != next.period).count();
    // With each segment at least, which hold some hundred records each.
    ensure!(spans >= 3, "periods were drawn {spans} times for {} samples", samples.len());
    let near = period - period / 16..=period + period / 16;
    let far = samples.iter().find(|sample| !near.contains(&sample.period));
    ensure!(
        far.is_none(),
        "a sample stands for {:?} events, not for {near:?}",
        far.map(|sample| sample.period)
    );
    let counted: u64 = totals.counts.iter().sum();
    let sampled = samples.iter().map(|sample| sample.period).sum::<u64>() + totals.records_lost * period;
    // Of a lost record's period the range alone is known.
    let most = period + (1 + totals.records_lost) * (period / 16 + 1);
    ensure!(
        counted.abs_diff(sampled) <= most,
        "{counted} events, but the samples of {spans} spans and {} lost ones stand for {sampled} (period {period})",
        totals.records_lost
    );
    Ok(format!("{} samples of {spans} spans stand for {sampled} of {counted} events", samples.len()))
}

/// The event that a trace sampled on this core.
fn event_of(core: &'static Profile, trace: &str) -> Result<&'static EventSpec> {
    if ![LOADS, LONG_LOADS].contains(&trace) {
        return sampled_event(core);
    }
    let found = core.events.iter().find(|event| event.data == DataRecord::LoadLatency);
    found.with_context(|| format!("no event of {} samples latencies", core.name))
}

/// Time, instruction, next instruction, registers' RIP and data address of each sample are the truth's, as far as the format
/// and the event have them.
fn records(boot: &Boot, name: &str, paired: &[&Pair<'_>]) -> Result<String> {
    ensure!(!paired.is_empty(), "no sample is paired with a record");
    let attribution = open(boot, name)?.meta().events[0].attribution;
    for pair in paired {
        let Pair { sample, truth, .. } = pair;
        let core = boot.machine.profile.of_cpu(sample.cpu, boot.machine.cpus);
        let ip = if attribution == Attribution::Cause { truth.pc } else { truth.next_pc };
        let has_address = event_of(core, name)?.data != DataRecord::None;
        let right = (ip, Some(truth.next_pc), truth.load.filter(|_| has_address));
        let got = (sample.ip, sample.next_ip, sample.data_address);
        ensure!(got == right, "a record says {got:x?}, the truth is {right:x?}");
        let rip = sample.registers.map(|registers| registers.at(Registers::RIP));
        ensure!(rip == Some(truth.next_pc), "RIP is {rip:x?}, the next instruction {:#x}", truth.next_pc);
        at_its_time(boot, pair)?;
    }
    Ok(format!("{} records", paired.len()))
}

/// Whoever may see the kernel sees where it loads from.
fn kernel(boot: &Boot, paired: &[Pair<'_>]) -> Result<String> {
    let attribution = open(boot, KERNEL)?.meta().events[0].attribution;
    let samples: Vec<&Pair<'_>> = paired.iter().filter(|pair| pair.trace == KERNEL).collect();
    for Pair { sample, truth, .. } in &samples {
        let ip = if attribution == Attribution::Cause { truth.pc } else { truth.next_pc };
        let got = (sample.ip, sample.next_ip, truth.privilege);
        let right = (ip, Some(truth.next_pc), Privilege::Kernel);
        ensure!(got == right, "a record says {got:x?}, the truth is {right:x?}");
    }
    ensure!(samples.len() > 100, "{} samples of 100,000 system calls", samples.len());
    Ok(format!("{} samples, {} lost", samples.len(), periods(boot, KERNEL)?))
}

/// The misses are on one instruction, but for the few that an interrupt caused by evicting the other load's line.
fn strides(paired: &[Pair<'_>]) -> Result<String> {
    let samples: Vec<&Pair<'_>> = paired.iter().filter(|pair| pair.trace == MISSES[0]).collect();
    let hot = hottest(samples.iter().map(|pair| &pair.sample));
    let on_hot = samples.iter().filter(|pair| pair.sample.ip == hot);
    ensure!(
        !samples.is_empty() && on_hot.clone().count() * 100 >= samples.len() * 99,
        "fewer than 99 % of the misses are on {hot:#x}"
    );
    for Pair { sample, truth, .. } in on_hot {
        lead_to(sample, truth.load)?;
    }
    Ok(format!("{} samples", samples.len()))
}

/// Each register of a record is what it was in the program, whose registers' bytes are their places there.
fn registers(paired: &[Pair<'_>]) -> Result<String> {
    /// What the load leaves of ZF, CF, OF and SF (SDM Vol. 1, 3.4.3).
    const ZF: u64 = 1 << 6;
    const FLAGS: u64 = 1 | ZF | 1 << 7 | 1 << 11;
    let samples: Vec<&Pair<'_>> = paired.iter().filter(|pair| pair.trace == REGISTERS).collect();
    let hot = hottest(samples.iter().map(|pair| &pair.sample));
    let on_hot: Vec<_> = samples.iter().filter(|pair| pair.sample.ip == hot).collect();
    ensure!(on_hot.len() > 100 && on_hot.len() * 100 >= samples.len() * 99, "{} samples", on_hot.len());
    for Pair { sample, truth, .. } in &on_hot {
        // RSI and RCX.
        lead_to(sample, truth.load)?;
        let registers = sample.registers.context("a sample has no registers")?;
        let steady =
            (Registers::RAX..Registers::COUNT).filter(|place| ![RCX, Registers::RSI].contains(place));
        for place in steady {
            let (found, right) = (registers.at(place), 0x0101_0101_0101_0101 * place as u64);
            ensure!(found == right, "the register at place {place} is {found:#x}, truly {right:#x}");
        }
        let flags = registers.at(Registers::RFLAGS);
        ensure!(flags & FLAGS == ZF, "RFLAGS are {flags:#x}");
    }
    Ok(format!("{} samples", on_hot.len()))
}

/// Cycles, level, second-level TLB and lock of each load that this trace sampled are the truth's; how many are of each level.
fn loads(boot: &Boot, paired: &[Pair<'_>], trace: &str) -> Result<BTreeMap<Level, u64>> {
    let mut levels = BTreeMap::<Level, u64>::new();
    for Pair { sample, truth, .. } in paired.iter().filter(|pair| pair.trace == trace) {
        let core = boot.machine.profile.of_cpu(sample.cpu, boot.machine.cpus);
        let outcome = truth.load_outcome.context("the truth has not followed the load")?;
        let level = match outcome.source {
            DataSource::L1 => Level::L1,
            DataSource::L2 => Level::L2,
            DataSource::L3 => Level::L3,
            DataSource::Memory => Level::LocalDram,
        };
        let told = core.perfmon().is_some_and(|pmu| pmu.data_source_tlb_lock);
        let tells = |what: bool| told.then_some(what);
        let right = (
            Some(u32::from(outcome.latency_cycles)),
            Some(level as u8),
            tells(outcome.stlb_miss),
            tells(truth.locked),
        );
        let got = (sample.latency_cycles, sample.level, sample.stlb_miss, sample.locked);
        ensure!(got == right, "a load's latency, level, TLB miss and lock are {got:?}, truly {right:?}");
        *levels.entry(level).or_default() += 1;
    }
    Ok(levels)
}

/// Two runs of one position-independent program have it at two addresses; a sample must name its own process'.
pub(super) fn mapped(boot: &Boot) -> Result<String> {
    // PEBS formats 0 and 1 name the instruction after the one that caused the event, which after a load that an interrupt follows is the
    // kernel's entry (SDM Vol. 3B 20.3.1.1.1): this session's root may see it.
    let names_next = boot.machine.profile.perfmon().is_some_and(|pmu| pmu.pebs_format() < 2);
    let (mut samples, mut entries) = (0, 0);
    for name in [MISSES[1], MISSES[2]] {
        let maps: Vec<MapRow> = rows(boot, name)?;
        for sample in rows::<SampleRow>(boot, name)? {
            let holds = |map: &MapRow| map.executable && (map.start..map.end).contains(&sample.ip);
            let entry = names_next && sample.ip >> 63 == 1;
            ensure!(entry || maps.iter().any(holds), "{name}: {:#x} is in no executable mapping", sample.ip);
            samples += 1;
            entries += u64::from(entry);
        }
    }
    ensure!(entries * 100 <= samples, "{entries} of {samples} samples are of the kernel");
    Ok(format!("{samples} samples, {entries} of them at an entry of the kernel"))
}

/// By the truth, each trace's samples come from one address space, and no two traces share one.
pub(super) fn processes<T>(boot: &Boot, paired: &[Pair<'_, T>], page_table: fn(&T) -> u64) -> Result<String> {
    let two = || paired.iter().filter(|pair| MISSES[1..].contains(&pair.trace));
    let mut owner = BTreeMap::<u64, &str>::new();
    for Pair { trace, truth, .. } in two() {
        let page_table = page_table(truth);
        let first = *owner.entry(page_table).or_insert(trace);
        ensure!(first == *trace, "page table {page_table:#x} is in {first} and in {trace}");
    }
    ensure!(owner.len() == 2, "{} address spaces where two processes ran", owner.len());
    let on = two().filter(|pair| pair.trace == MISSES[1]);
    let cpus: BTreeSet<u32> = on.map(|pair| pair.sample.cpu).collect();
    ensure!(cpus.len() == boot.machine.cpus as usize, "the process was seen on CPUs {cpus:?}");
    Ok(String::new())
}

/// Threads walk at the same time, each on its own stack, so that where RSP is at the walk's load tells them apart; each has the share of
/// the samples that it has of the loads.
fn threads(boot: &Boot) -> Result<String> {
    let mut seen = 0;
    for name in [MISSES[1], MISSES[2]] {
        let mut stacks = BTreeMap::<u64, u32>::new();
        let mut counts = BTreeMap::<u32, usize>::new();
        let samples = rows::<SampleRow>(boot, name)?;
        let hot = hottest(&samples);
        for sample in samples.iter().filter(|sample| sample.ip == hot) {
            let registers = sample.registers.context("a sample has no registers")?;
            let stack = registers.at(Registers::RSP);
            *counts.entry(sample.tid).or_default() += 1;
            let owner = *stacks.entry(stack).or_insert(sample.tid);
            ensure!(
                owner == sample.tid,
                "{name}: threads {owner} and {} on the stack {stack:#x}",
                sample.tid
            );
        }
        ensure!(counts.len() == stacks.len(), "{name}: a thread walked on several stacks: {stacks:x?}");
        seen += counts.len();
        // The threads of tests/guest/src/bin/threads.rs walk once, twice, three times as far.
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable();
        let all: usize = counts.iter().sum();
        let parts = counts.len() * (counts.len() + 1) / 2;
        let right = |(place, &count): (usize, &usize)| {
            let wanted = all * (place + 1) / parts;
            count.abs_diff(wanted) * 10 <= wanted
        };
        ensure!(counts.iter().enumerate().all(right), "{name}: samples of the threads: {counts:?}");
    }
    ensure!(seen == 5, "{seen} threads have samples where 5 walked");
    Ok(format!("{seen} threads"))
}

/// The instruction with the most samples: the walk's load.
fn hottest<'a>(samples: impl IntoIterator<Item = &'a SampleRow>) -> u64 {
    let mut counts = BTreeMap::<u64, u64>::new();
    for sample in samples {
        *counts.entry(sample.ip).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or(0, |(ip, _)| ip)
}
