//! Periods that are randomised or adapted, and the ceilings on sampling, against the model.

use crate::rig::core::Instruction::{Load, Store};
use crate::rig::scene::{
    acquired, config, counted, interrupting, one_thread, precise, INSTRUCTIONS, LOADS, STORES,
};
use crate::rig::Rig;
use hpm_abi::{CpuControl, EventSpec, QuantumEnd, SessionConfig};
use hpm_core::Limits;

#[test]
fn randomised_records_times_their_periods_stay_with_the_count_over_switches_and_cpus() {
    for spec in [precise(LOADS, 1000), interrupting(LOADS, 1000)] {
        let mut rig = acquired(2);
        let randomised = EventSpec { flags: EventSpec::RANDOMISE, ..spec };
        let session = rig.add_session(&config(&[randomised, counted(INSTRUCTIONS)]));
        let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
        for round in 0..400 {
            let cpu = round % 2;
            rig.switch(cpu, threads[0], QuantumEnd::Preempted);
            rig.switch(1 - cpu, threads[1], QuantumEnd::Preempted);
            rig.run(cpu, 3333, &[Load]);
            rig.run(1 - cpu, 777, &[Load, Store]);
            rig.switch(cpu, 0, QuantumEnd::Yielded);
            rig.switch(1 - cpu, 1, QuantumEnd::Yielded);
        }
        rig.stop(session);
        rig.read_all();
        for thread in threads {
            let user = &rig.users[thread];
            let seen = &rig.sessions[session].reader.threads[&user.tid];
            assert_eq!(seen.counts[..2], user.truth[..2]);
            assert_eq!(seen.records_lost, 0);
            // The interval that has begun, and the shift.
            assert!(seen.weighed[0].abs_diff(user.truth[0]) <= 1000 + 3 * 1000 / 16, "{seen:?}");
        }
    }
}

/// With a place for its positions, or where the only one is another's.
#[test]
fn a_thread_that_ends_before_a_period_has_the_records_that_it_counts_for() {
    for (flags, with_places) in [(EventSpec::RANDOMISE, true), (EventSpec::RANDOMISE, false), (0, true)] {
        let mut rig = acquired(1);
        let event = EventSpec { flags, ..interrupting(LOADS, 400) };
        let max_threads = if with_places { 64 } else { 1 };
        let session = rig.add_session(&SessionConfig { max_threads, ..config(&[event]) });
        let [first, stranger] = [rig.add_thread(Some(session)), rig.add_thread(None)];
        rig.switch(0, first, QuantumEnd::Preempted);
        for _ in 0..4000 {
            let thread = rig.add_thread(Some(session));
            rig.switch(0, thread, QuantumEnd::Yielded);
            rig.run(0, 100, &[Load]);
            rig.switch(0, stranger, QuantumEnd::Exit);
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        let totals = rig.sessions[session].totals();
        assert_eq!((totals.counts[0], totals.records_lost), (400_000, 0));
        assert_eq!(totals.threads_overflowed > 0, !with_places);
        let expected = if flags == 0 { 0..=0 } else { 900..=1100 };
        assert!(expected.contains(&totals.records), "{} records, {flags} {with_places}", totals.records);
    }
}

/// The rig's clock ticks once an instruction: this makes that 10 ns, so that 10,000 instructions are 0.1 ms.
const TSC_KHZ: u32 = 100_000;

#[test]
fn the_period_is_adapted_to_the_wished_rate_and_to_a_new_wish() {
    let rated = EventSpec { rate: 2000, ..precise(STORES, 10_007) };
    let (mut rig, session, tid) = one_thread(&config(&[rated]));
    rig.cores[0].borrow_mut().limits.tsc_khz = TSC_KHZ;
    let second = |rig: &mut Rig, stores_of_hundred: u64| {
        let before = rig.sessions[session].reader.threads.get(&tid).map_or(0, |seen| seen.records[0]);
        for _ in 0..100 {
            // 10 ms with so many stores; the rest of the time passes without.
            rig.run_stores(0, 10_000 * stores_of_hundred);
            rig.cores[0].borrow_mut().machine.pass_time(10_000 * (100 - stores_of_hundred));
            rig.cut(0, QuantumEnd::Timer);
            rig.read_all();
        }
        rig.sessions[session].reader.threads[&tid].records[0] - before
    };
    for (share, seconds) in [(100, 3), (1, 3), (100, 3)] {
        let rates: Vec<u64> = (0..seconds).map(|_| second(&mut rig, share)).collect();
        let last = rates[seconds - 1];
        assert!(last.abs_diff(2000) <= 200, "{rates:?} with {share} % stores");
    }
    rig.cores[0].borrow_mut().machine.shared[session].control.rate = 4000;
    second(&mut rig, 100);
    let faster = second(&mut rig, 100);
    assert!(faster.abs_diff(4000) <= 400, "{faster}");
    let status = rig.cores[0].borrow().machine.shared[session].status;
    assert_eq!(status.periods.into_iter().max(), Some(rig.sessions[session].reader.threads[&tid].period));
}

/// Large segments and no cut but the PMI's.
#[test]
fn a_period_far_too_short_is_adapted_long_before_its_quantum_ends() {
    let rated = EventSpec { rate: 2000, ..precise(STORES, 1009) };
    let mut config = config(&[rated]);
    (config.segments, config.segment_bytes) = (42, u32::MAX);
    let (mut rig, session, tid) = one_thread(&config);
    rig.cores[0].borrow_mut().limits.tsc_khz = TSC_KHZ;
    // A second with 99,108 times this period.
    rig.run_stores(0, 100_000_000);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[0], 100_000_000);
    assert!(seen.records[0].abs_diff(2000) <= 2 * 500, "{} records", seen.records[0]);
    assert!(rig.sessions[session].totals().pmis <= 10, "{} PMIs", rig.sessions[session].totals().pmis);
}

#[test]
fn a_rate_of_few_samples_a_second_is_reached_too() {
    for rate in [1, 5, 12] {
        let rated = EventSpec { rate, ..precise(STORES, 10_007) };
        let (mut rig, session, tid) = one_thread(&config(&[rated]));
        rig.cores[0].borrow_mut().limits.tsc_khz = TSC_KHZ;
        // Ten seconds of 100 million ticks, in quanta of 10 ms.
        for _ in 0..1000 {
            rig.run_stores(0, 10_000);
            rig.cores[0].borrow_mut().machine.pass_time(990_000);
            rig.cut(0, QuantumEnd::Timer);
            rig.read_all();
        }
        let period = rig.sessions[session].reader.threads[&tid].period;
        let wanted = 1_000_000 / rate;
        assert!(period.abs_diff(wanted) * 5 <= wanted, "{period} for {rate} samples a second");
    }
}

/// Two windows of 100 ms, in so many quanta.
fn throttled(spec: EventSpec, limits: Limits, quanta: usize) -> (Rig, usize, u32) {
    let mut config = config(&[spec, counted(INSTRUCTIONS)]);
    (config.segments, config.segment_bytes) = (256, u32::MAX);
    let (mut rig, session, tid) = one_thread(&config);
    rig.cores[0].borrow_mut().limits = limits;
    // New limits hold from the next cut on.
    rig.cut(0, QuantumEnd::Timer);
    for _ in 0..quanta {
        rig.run(0, 200_000 / quanta, &[Load]);
        rig.cut(0, QuantumEnd::Timer);
    }
    rig.stop(session);
    rig.read_all();
    (rig, session, tid)
}

#[test]
fn a_ceiling_on_interrupts_or_records_holds_samples_back_and_the_loss_is_exact() {
    let limits = Limits { tsc_khz: 1000, ..Limits::default() };
    let cases = [
        (interrupting(LOADS, 100), Limits { pmi_rate: 2000, ..limits }, 20, 200),
        (interrupting(LOADS, 100), Limits { record_rate: 2000, ..limits }, 20, 300),
        // Hardware interrupts in time, also where nothing else cuts.
        (precise(LOADS, 100), Limits { record_rate: 2000, ..limits }, 4, 201),
    ];
    for (spec, limits, quanta, most_per_window) in cases {
        let (rig, session, tid) = throttled(spec, limits, quanta);
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert_eq!(seen.counts[..2], [200_000, 200_000], "{limits:?}");
        // The last overflow of PEBS lets an event be recorded that never came.
        assert!((1999..=2000).contains(&(seen.records[0] + seen.records_lost)), "{limits:?}");
        assert!(seen.throttled > 0 && seen.records[0] >= 200, "{limits:?}");
        assert!(seen.records[0] <= 3 * (most_per_window + 1), "{} records, {limits:?}", seen.records[0]);
        assert_eq!(rig.sessions[session].totals().throttled, seen.throttled);
    }
}

/// Counters count on, what was not sampled is not lost, and sampling goes on where it was wanted again.
#[test]
fn a_reader_that_wants_no_samples_gets_counts_alone() {
    for spec in [interrupting(LOADS, 100), precise(LOADS, 100)] {
        let mut config = config(&[spec, counted(INSTRUCTIONS)]);
        config.segments = 256;
        let (mut rig, session, tid) = one_thread(&config);
        for pause in [0, CpuControl::PAUSE, u64::MAX] {
            rig.cores[0].borrow_mut().machine.shared[session].control.pause = pause;
            rig.cut(0, QuantumEnd::Timer);
            for _ in 0..10 {
                rig.run(0, 1000, &[Load]);
                rig.cut(0, QuantumEnd::Timer);
            }
        }
        rig.stop(session);
        rig.read_all();
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert_eq!(seen.counts[..2], [30_000, 30_000], "{spec:?}");
        // PEBS lets an event be recorded at each overflow; the last one before a pause never comes.
        assert!((198..=201).contains(&seen.records[0]), "{} records, {spec:?}", seen.records[0]);
        assert!(
            seen.records_lost <= 1 && (10..=11).contains(&seen.paused),
            "{} lost, {} paused, {spec:?}",
            seen.records_lost,
            seen.paused
        );
    }
}

#[test]
fn below_the_ceilings_nothing_is_held_back() {
    let limits = Limits { tsc_khz: 1000, pmi_rate: 1 << 30, record_rate: 1 << 30, handler_percent: 99 };
    let (rig, session, tid) = throttled(interrupting(LOADS, 100), limits, 20);
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.records[0], seen.records_lost, seen.throttled), (2000, 0, 0));
}
