//! Precise sampling against the model: periods, threads, loss, stacks, late PMIs.

use crate::rig::core::Instruction::{Load, Store};
use crate::rig::scene::{
    acquired, config, counted, each_keeps_its_period, interrupting, one_thread, precise, take_turns,
    BRANCHES, INSTRUCTIONS, LOADS, MIX, PRECISE_INSTRUCTIONS, STORES,
};
use crate::rig::Rig;
use hpm_abi::{QuantumEnd, SessionConfig, SEGMENT_BYTES};
use hpm_core::port::Port;
use hpm_core::registers::{IA32_DS_AREA, IA32_PEBS_ENABLE, IA32_PERF_GLOBAL_CTRL};
use hpm_core::Program;
use vpmu::profile::Profile;
use vpmu::Options;

#[test]
fn one_thread_is_sampled_every_period() {
    let (mut rig, session, tid) = one_thread(&config(&[precise(LOADS, 1000), counted(INSTRUCTIONS)]));
    rig.run(0, 100_005, &MIX);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[..2], [40_002, 100_005]);
    // The event after each overflow is recorded.
    assert_eq!((seen.records[0], seen.records_lost), (40, 0));
    assert_eq!(rig.sessions[session].totals().records, 40);
}

#[test]
fn a_segment_is_filled_and_the_next_one_begun_without_a_gap() {
    let (mut rig, session, tid) = one_thread(&config(&[precise(LOADS, 100)]));
    for _ in 0..10 {
        rig.run(0, 20_000, &[Load]);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let totals = rig.sessions[session].totals();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.records[0], seen.records_lost), (1999, 0));
    // 327 records fit; the PMI comes 16 before.
    assert_eq!(totals.pmis, 1999 / 311);
}

#[test]
fn one_interrupt_for_a_large_segment() {
    let large = SessionConfig { segments: 42, segment_bytes: u32::MAX, ..config(&[precise(LOADS, 100)]) };
    let (mut rig, session, tid) = one_thread(&large);
    let used = *rig.sessions[session].program.config();
    assert_eq!((used.segment_count(), used.segment_bytes), (3, 14 * SEGMENT_BYTES));
    for _ in 0..10 {
        rig.run(0, 200_000, &[Load]);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.counts[0], seen.records[0], seen.records_lost), (2_000_000, 19_999, 0));
    // 4587 records fit; the PMI comes 16 before.
    assert_eq!(rig.sessions[session].totals().pmis, 19_999 / 4571);
}

fn named(name: &str) -> &'static Profile {
    vpmu::profile::ALL.iter().find(|profile| profile.name == name).expect("a profile")
}

#[test]
fn segments_are_small_where_the_driver_looks_at_each_record_and_a_power_of_two_where_hardware_wants_it() {
    let largest = |profile: &str, config: SessionConfig, hides: bool| {
        let rig = Rig::of(named(profile), 1, Options::default());
        let mut program = Program::new(&rig.pmu, &SessionConfig { segments: 42, ..config }).expect("valid");
        if hides {
            program.hide_kernel();
        }
        program.largest_segment(u32::MAX) / SEGMENT_BYTES
    };
    let one = config(&[precise(LOADS, 100)]);
    assert_eq!(largest("skylake", one, false), 14);
    assert_eq!(largest("skylake", one, true), 1);
    assert_eq!(largest("skylake", config(&[precise(LOADS, 100), precise(STORES, 100)]), false), 1);
    assert_eq!(largest("skylake", config(&[interrupting(LOADS, 100)]), false), 1);
    assert_eq!(largest("skylake", SessionConfig { frames: 8, stack_ring_bytes: 1 << 16, ..one }, false), 1);
    assert_eq!(largest("clearwaterforest", one, false), 8);
}

#[test]
fn without_a_free_segment_events_are_counted_on_and_records_lost_exactly() {
    let mut config = config(&[precise(LOADS, 100), counted(INSTRUCTIONS)]);
    config.segments = 2;
    let (mut rig, session, tid) = one_thread(&config);
    rig.run(0, 200_050, &[Load]);
    // Two segments of 311 records; the rest is lost until the reader gives one back.
    assert_eq!(rig.sessions[session].totals().records, 622);
    rig.read_all();
    rig.cut(0, QuantumEnd::Timer);
    rig.run(0, 10_000, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[..2], [210_050, 210_050]);
    let (written, lost) = (seen.records[0], seen.records_lost);
    assert_eq!((written, lost), (622 + 100, 210_050 / 100 - 722));
    assert_eq!(rig.sessions[session].totals().records_lost, lost);
}

#[test]
fn quanta_without_room_are_counted_and_their_records_are_not_mixed_with_others() {
    let mut config = config(&[precise(LOADS, 100)]);
    config.quanta = 64;
    let (mut rig, session, tid) = one_thread(&config);
    for _ in 0..100 {
        rig.run(0, 400, &[Load]);
        rig.cut(0, QuantumEnd::Timer);
    }
    rig.read_all();
    rig.run(0, 400, &[Load]);
    rig.stop(session);
    rig.read_all();
    let totals = rig.sessions[session].totals();
    let reader = &rig.sessions[session].reader;
    assert_eq!((totals.quanta, totals.quanta_lost), (65, 36));
    assert_eq!(reader.quanta_lost, 36);
    assert_eq!(totals.counts[0], 40_400);
    assert_eq!(reader.threads[&tid].counts[0], 65 * 400);
    // Each quantum of 400 loads overflows four times; the last record of one is written at the start of the next.
    assert_eq!(totals.records + totals.records_lost, 403);
    assert_eq!(totals.records_lost, 36 * 4);
}

#[test]
fn precise_events_without_a_second_counter_are_counted_from_their_records() {
    let events = [
        precise(PRECISE_INSTRUCTIONS, 1000),
        precise(LOADS, 700),
        precise(STORES, 300),
        precise(BRANCHES, 130),
    ];
    let (mut rig, session, tid) = one_thread(&config(&events));
    let own = (0..4).filter(|&event| rig.sessions[session].program.counting_counter(event).is_some());
    assert_eq!(own.count(), 1, "instructions have the fixed counter");
    each_keeps_its_period(&mut rig, session, tid, &events);
}

#[test]
fn an_overflow_of_one_thread_leaves_no_indication_for_another() {
    let mut rig = acquired(1);
    let session = rig.add_session(&config(&[precise(LOADS, 1000), precise(STORES, 1000)]));
    let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
    rig.switch(0, threads[0], QuantumEnd::Preempted);
    // The overflow that lets the next load be recorded.
    rig.run(0, 1000, &[Load]);
    let overflowed = |rig: &Rig| rig.cores[0].borrow_mut().pmu.rdmsr(0x38E).expect("exists");
    assert_ne!(overflowed(&rig), 0);
    rig.switch(0, threads[1], QuantumEnd::Preempted);
    assert_eq!(overflowed(&rig), 0);
}

#[test]
fn threads_keep_their_positions_across_switches_and_cpus() {
    let mut rig = acquired(2);
    let session = rig.add_session(&config(&[precise(LOADS, 1000)]));
    let threads = take_turns(&mut rig, session, 200, |_| {});
    rig.stop(session);
    rig.read_all();
    for (thread, loads) in threads {
        let seen = &rig.sessions[session].reader.threads[&thread];
        assert_eq!((seen.counts[0], seen.records[0]), (loads, loads / 1000));
    }
}

#[test]
fn a_thread_without_a_place_is_counted_exactly_and_says_that_its_position_is_not_kept() {
    let mut config = config(&[precise(LOADS, 1000)]);
    config.max_threads = 1;
    let mut rig = acquired(1);
    let session = rig.add_session(&config);
    let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
    for _ in 0..10 {
        for thread in threads {
            rig.switch(0, thread, QuantumEnd::Preempted);
            rig.run(0, 600, &[Load]);
        }
    }
    rig.stop(session);
    rig.read_all();
    let [kept, overflowed] =
        threads.map(|thread| rig.sessions[session].reader.threads[&rig.users[thread].tid].clone());
    assert_eq!((kept.counts[0], kept.records[0], kept.overflowed), (6000, 5, false));
    assert_eq!((overflowed.counts[0], overflowed.records[0], overflowed.overflowed), (6000, 0, true));
    assert_eq!(rig.sessions[session].totals().threads_overflowed, 1);
}

#[test]
fn the_place_of_a_thread_that_exits_is_free_for_another() {
    let mut config = config(&[precise(LOADS, 1000)]);
    config.max_threads = 1;
    let mut rig = acquired(1);
    let session = rig.add_session(&config);
    for _ in 0..3 {
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 600, &[Load]);
        rig.switch(0, 0, QuantumEnd::Exit);
    }
    assert_eq!(rig.sessions[session].totals().threads_overflowed, 0);
}

fn with_stacks(bytes: u32) -> SessionConfig {
    SessionConfig { stack_bytes: bytes, stack_ring_bytes: 1 << 16, ..config(&[precise(LOADS, 1000)]) }
}

#[test]
fn with_stacks_each_record_has_its_own_quantum_and_stack() {
    let (mut rig, session, tid) = one_thread(&with_stacks(1024));
    rig.run(0, 20_500, &[Load]);
    rig.stop(session);
    rig.read_all();
    let totals = rig.sessions[session].totals();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.records[0], seen.stacks), (20, 20));
    assert_eq!((totals.pmis, totals.quanta), (20, 21));
}

#[test]
fn frames_are_followed_from_the_records_rbp() {
    for (frames, bytes, truncated) in [(2, 16, 20), (16, 24, 0)] {
        let request = SessionConfig { frames, stack_ring_bytes: 1 << 16, ..config(&[precise(LOADS, 1000)]) };
        let (mut rig, session, tid) = one_thread(&request);
        rig.run(0, 20_500, &[Load]);
        rig.stop(session);
        rig.read_all();
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert_eq!((seen.stacks, seen.stack_bytes, seen.stacks_truncated), (20, 20 * bytes, truncated));
    }
}

#[test]
fn a_full_stack_ring_costs_the_stack_and_not_the_record() {
    let (mut rig, session, tid) = one_thread(&with_stacks(32 * 1024));
    rig.run(0, 5500, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.records[0], seen.stacks, seen.stacks_lost), (5, 2, 3));
}

#[test]
fn a_pmi_that_arrives_inside_a_section_is_served_at_its_end() {
    for latency in 0..40 {
        let (mut rig, session, tid) = one_thread(&config(&[precise(LOADS, 100)]));
        rig.cores[0].borrow_mut().machine.nmi_latency = latency;
        // The 311th record reaches the threshold: the timer's cut begins before the PMI is delivered.
        rig.run(0, 31_101, &[Load]);
        rig.cut(0, QuantumEnd::Timer);
        rig.run(0, 40_000, &[Load]);
        rig.read_all();
        rig.stop(session);
        rig.read_all();
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert_eq!((seen.counts[0], seen.records[0]), (71_101, 711), "latency {latency}");
        assert_eq!(rig.cores[0].borrow().dropped, 0);
        // One for each PMI, the timer's and the last; but the late PMI finds that the timer's cut has done its work.
        let totals = rig.sessions[session].totals();
        assert_eq!((totals.pmis, totals.quanta), (2, if latency == 0 { 4 } else { 3 }), "latency {latency}");
    }
}

/// What KVM does between is not hpm's; that records are allowed again comes with the thread.
#[test]
fn no_record_can_be_written_within_a_guest() {
    let mut rig = acquired(1);
    let session = rig.add_session(&config(&[precise(STORES, 503)]));
    let thread = rig.add_thread(Some(session));
    for _ in 0..20 {
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 1000, &[Store]);
        rig.switch(0, 0, QuantumEnd::Flush);
        let mut seen = [u64::MAX; 2];
        rig.guest(0, |port| {
            seen = [IA32_PEBS_ENABLE, IA32_PERF_GLOBAL_CTRL].map(|register| port.rdmsr(register));
            port.wrmsr(IA32_DS_AREA, 0);
        });
        assert_eq!(seen, [0; 2], "within the guest");
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let user = &rig.users[thread];
    let seen = &rig.sessions[session].reader.threads[&user.tid];
    assert_eq!(seen.records[0] + seen.records_lost, user.truth[0] / 503, "{seen:?}");
    assert_eq!(seen.records_lost, 0);
}
