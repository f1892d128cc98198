//! Records of two precise events at once: each sample is of the event whose counter made its record.

use anyhow::{Context, Result, ensure};
use libhpm::record::{Attribution, Level};
use libhpm::trace::{SampleRow, Totals};
use vpmu::profile::DataRecord;
use vpmu::truth::PebsReport;
use vpmu::{DataSource, Event, PebsOutcome};

use super::records::{Pair, open, periods, totals};
use crate::guest::processor::precise_event;
use crate::guest::sampling::{SEVERAL, always_tells_events_apart};
use crate::lab::Boot;

/// The program's loads and stores are other instructions, so that the truth of a record tells which event it is of.
pub(super) fn compare(boot: &Boot, paired: &[Pair<'_>]) -> Result<String> {
    let events = open(boot, SEVERAL)?.meta().events.clone();
    let (mut of_each, mut told, mut periods_of_each) = ([0_u64; 2], 0_u64, [0_u64; 2]);
    let mut counters_of = [0_u64; 2];
    for Pair { sample, truth, .. } in paired.iter().filter(|pair| pair.trace == SEVERAL) {
        let event = &events[usize::from(sample.event)];
        let is_store = event.name.contains("store");
        let core = boot.machine.profile.of_cpu(sample.cpu, boot.machine.cpus);
        let spec = precise_event(core, if is_store { Event::Store } else { Event::Load });
        let has_address = spec.context("no precise event counts this")?.data != DataRecord::None;
        let done = if is_store { truth.store.filter(|_| truth.load.is_none()) } else { truth.load };
        ensure!(done.is_some() || !has_address, "a sample of {} is of neither: {truth:x?}", event.name);
        // What has no address in its record is not followed by the truth, either, but that tells whose counter it is.
        if let PebsOutcome::Written { counters, .. } = truth.outcome {
            counters_of[usize::from(is_store)] |= counters;
        }
        let ip = if event.attribution == Attribution::Cause { truth.pc } else { truth.next_pc };
        let right = (ip, done.filter(|_| has_address));
        let got = (sample.ip, sample.data_address);
        ensure!(got == right, "a record of {} says {got:x?}, the truth is {right:x?}", event.name);
        if is_store {
            told += u64::from(store_is_right(sample, truth)?);
        }
        of_each[usize::from(is_store)] += 1;
        periods_of_each[usize::from(is_store)] += sample.period;
    }
    if !always_tells_events_apart(boot.machine.profile) {
        let [loads, stores] = counters_of;
        ensure!(
            loads.is_power_of_two() && stores.is_power_of_two() && loads != stores,
            "loads are of the counters {loads:#x}, and stores of {stores:#x}"
        );
        return left_out(&totals(boot, SEVERAL)?, of_each, periods_of_each);
    }
    let lost = totals(boot, SEVERAL)?.records_lost;
    if lost == 0 {
        // Of which event a lost record would have been is not known.
        periods(boot, SEVERAL)?;
    }
    let [loads, stores] = of_each;
    ensure!(
        loads > 100 && loads.abs_diff(stores) < 20 + lost,
        "{loads} loads and {stores} stores of as many were sampled, {lost} are lost"
    );
    Ok(format!("{loads} loads and {stores} stores, {told} of which tell of their data, {lost} lost"))
}

/// Where records do not always say which event they are for, the rest is told, and no event is without samples.
fn left_out(totals: &Totals, of_each: [u64; 2], periods_of_each: [u64; 2]) -> Result<String> {
    let missing = totals.records_unattributed + totals.records_lost;
    let [loads, stores] = of_each;
    for (samples, (periods, count)) in of_each.iter().zip(periods_of_each.iter().zip(&totals.counts)) {
        // Twice the mean period, which its randomised ones do not reach; and each thread has one begun.
        let most = 2 * periods / samples.max(&1);
        ensure!(
            *samples > 100 && periods.abs_diff(*count) <= (missing + 4) * most,
            "{samples} samples stand for {periods} events, {count} were counted, and {missing} records are of no event or lost"
        );
    }
    Ok(format!("{loads} loads and {stores} stores, {missing} records of no event or lost"))
}

/// What a store's record says of its data's place is the truth's, if it says anything: some processors tell of the first level only.
fn store_is_right(sample: &SampleRow, truth: &PebsReport) -> Result<bool> {
    let Some(level) = sample.level.and_then(Level::from_number) else { return Ok(false) };
    let outcome = truth.store_outcome.context("the truth has not followed the store")?;
    let got = (level == Level::L1, sample.stlb_miss, sample.locked);
    let tells = |told: Option<bool>, what: bool| told.map(|_| what);
    let right =
        (outcome.source == DataSource::L1, tells(got.1, outcome.stlb_miss), tells(got.2, truth.locked));
    ensure!(got == right, "a store's L1 hit, TLB miss and lock are {got:?}, truly {right:?}");
    Ok(true)
}
