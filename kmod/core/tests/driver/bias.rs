//! Whether every store of a loop is sampled as often as the others (Schneider, thesis, §3.5: the loop of figure 3.10, the
//! distributions of figures 3.11 to 3.13 and the sweep of figure 3.14). `cargo test --release -p hpm-core --test
//! driver -- --ignored --nocapture bias::` prints the tables.

use crate::rig::scene::{config, precise, STORES};
use crate::rig::{Rig, TID_SHIFT};
use hpm_abi::{EventSpec, QuantumEnd, SessionConfig};
use vpmu::Options;

/// What a drain holds whose end has intervals drawn anew.
const RECORDS_PER_DRAIN: u64 = 48;
/// What it holds where the segment is full first, as in the comparison with perf (`suite bench`).
const RECORDS_PER_SEGMENT: u64 = 4571;

/// Samples of each store of a loop of `stores`, each executed equally often, in drains of so many records.
fn distribution(stores: u64, period: u64, randomise: bool, [drains, records]: [u64; 2]) -> Vec<u64> {
    let flags = if randomise { EventSpec::RANDOMISE } else { 0 };
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    let request = config(&[EventSpec { flags, ..precise(STORES, period) }]);
    let session = rig.add_session(&SessionConfig { segments: 42, segment_bytes: u32::MAX, ..request });
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    for _ in 0..drains {
        rig.run_stores(0, records * period);
        rig.cut(0, QuantumEnd::Timer);
        rig.read_all();
    }
    rig.stop(session);
    let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
    assert_eq!((seen.counts[0], seen.records_lost), (drains * records * period, 0));
    assert!(seen.weighed[0].abs_diff(seen.counts[0]) <= period + period / 8, "records stand for the count");
    let mut samples = vec![0; stores as usize];
    for (rip, _) in &seen.recorded {
        samples[((rip & ((1 << TID_SHIFT) - 1)) % stores) as usize] += 1;
    }
    samples
}

fn ratio(samples: &[u64]) -> f64 {
    let (least, most) = (samples.iter().min().copied(), samples.iter().max().copied());
    most.unwrap_or(0) as f64 / least.unwrap_or(0) as f64
}

/// Compares fixed and randomised periods on a loop of so many stores, and prints them as rows of a table.
fn compare(stores: u64) {
    for (period, randomise) in [(399_999, false), (400_000, false), (400_000, true)] {
        let samples = distribution(stores, period, randomise, [2000, RECORDS_PER_DRAIN]);
        let ratio = ratio(&samples);
        println!("| {stores} | {period} | {randomise} | {samples:?} | {ratio:.2} |");
        if randomise {
            assert!(ratio <= 1.2, "{ratio} for {stores} stores");
        } else if period % stores == 0 {
            assert!(ratio > 100.0, "the loop of {stores} stores divides {period}");
        }
    }
}

#[test]
fn a_fixed_period_that_the_loop_divides_sees_one_store_and_a_randomised_one_sees_all_alike() {
    compare(8);
}

/// The periods of a thread's quanta, which are cut after each so many stores.
fn periods_of(config: &SessionConfig, stores: u64, cuts: usize) -> Vec<u64> {
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    let session = rig.add_session(config);
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    let tid = rig.users[thread].tid;
    (0..cuts)
        .map(|_| {
            rig.run_stores(0, stores);
            rig.cut(0, QuantumEnd::Timer);
            rig.read_all();
            rig.sessions[session].reader.threads[&tid].period
        })
        .collect()
}

fn changes(periods: &[u64]) -> usize {
    periods.windows(2).filter(|two| two[0] != two[1]).count()
}

#[test]
fn intervals_are_drawn_anew_at_the_cut_that_ends_48_records_or_one_with_a_stack() {
    let randomised = config(&[EventSpec { flags: EventSpec::RANDOMISE, ..precise(STORES, 100_000) }]);
    // Of eight records each; a segment, with which they would be drawn too, holds more than all of them.
    let periods = periods_of(&randomised, 8 * 100_000, 72);
    let kept = periods.chunk_by(|one, next| one == next).rev().skip(1).all(|alike| alike.len() >= 6);
    assert!(kept && (8..=12).contains(&changes(&periods)), "{periods:?}");
    let with_stacks = SessionConfig { frames: 4, stack_ring_bytes: 1 << 16, ..randomised };
    let periods = periods_of(&with_stacks, 2 * 100_000, 36);
    assert!(changes(&periods) > 30, "{periods:?}");
}

#[test]
#[ignore = "takes a minute: the table of docs/measurements.md"]
fn loops_of_five_to_sixteen_stores() {
    println!("| stores | period | randomised | samples of each store | largest / smallest |\n|---|---|---|---|---|");
    (5..=16).for_each(compare);
}

#[test]
#[ignore = "takes minutes: the table of docs/measurements.md"]
fn full_segments_of_five_to_sixteen_stores() {
    println!("| stores | samples of each store | largest / smallest |\n|---|---|---|");
    for stores in 5..=16 {
        // With a longer one the stores' addresses would not fit below the thread's number.
        let samples = distribution(stores, 100_000, true, [2000, RECORDS_PER_SEGMENT]);
        let ratio = ratio(&samples);
        println!("| {stores} | {samples:?} | {ratio:.2} |");
        assert!(ratio <= 1.2, "{ratio} for {stores} stores");
    }
}

/// Samples of one store of eight, fixed and randomised.
fn one_of_eight(period: u64) {
    const DRAINS: u64 = 400;
    let expected = DRAINS * RECORDS_PER_DRAIN / 8;
    let [fixed, randomised] =
        [false, true].map(|yes| distribution(8, period, yes, [DRAINS, RECORDS_PER_DRAIN])[0]);
    println!("| {period} | {fixed} | {randomised} |");
    assert!(randomised.abs_diff(expected) < expected / 4, "{randomised} at {period}");
    if period % 8 == 0 {
        assert!(fixed == 0 || fixed + 1 >= 8 * expected, "{fixed} at {period}");
    }
}

#[test]
fn one_store_of_eight_is_sampled_alike_at_a_randomised_period() {
    for period in [100_000, 100_004] {
        one_of_eight(period);
    }
}

#[test]
#[ignore = "takes a minute: the table of docs/measurements.md"]
fn one_store_of_eight_over_the_periods_of_figure_3_14() {
    println!("| period | fixed | randomised |\n|---|---|---|");
    (99_980..=100_020).for_each(one_of_eight);
}
