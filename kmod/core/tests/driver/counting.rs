//! Counting against the model: exact whatever the scheduler does, and cheap.

use crate::rig::core::Instruction::{Branch, Load, Plain, Store};
use crate::rig::scene::{acquired, config, counted, precise, INSTRUCTIONS, LOADS, STORES};
use crate::rig::Rig;
use hpm_abi::{EventSpec, QuantumEnd, EVENTS_MAX};
use vpmu::Options;

const BRANCHES_COUNTED: u64 = 0x00C4;

fn four_events() -> [EventSpec; 4] {
    [counted(INSTRUCTIONS), counted(LOADS), counted(STORES), counted(BRANCHES_COUNTED)]
}

#[test]
fn threads_of_two_sessions_are_counted_apart_on_two_cpus() {
    let mut rig = acquired(2);
    let sessions = [rig.add_session(&config(&four_events())), rig.add_session(&config(&[counted(STORES)]))];
    let threads =
        [rig.add_thread(Some(sessions[0])), rig.add_thread(Some(sessions[1])), rig.add_thread(None)];
    for round in 0..60 {
        let cpu = round % 2;
        rig.switch(cpu, threads[round % 3], QuantumEnd::Preempted);
        rig.run(cpu, 100 + round, &[Plain, Load, Store, Branch, Store]);
        rig.run_kernel(cpu, 20);
        rig.switch(cpu, cpu, QuantumEnd::Yielded);
        rig.run(cpu, 50, &[Load, Store]);
    }
    sessions.into_iter().for_each(|session| rig.stop(session));
    rig.read_all();
    for (session, thread) in sessions.into_iter().zip(threads) {
        let truth = rig.users[thread].truth;
        assert_eq!(rig.sessions[session].totals().counts, truth);
        assert_eq!(rig.sessions[session].reader.threads[&rig.users[thread].tid].counts, truth);
    }
}

#[test]
fn kernel_mode_counts_when_asked_for() {
    let mut both = counted(INSTRUCTIONS);
    both.privilege = EventSpec::USER | EventSpec::KERNEL;
    let mut kernel = counted(LOADS);
    kernel.privilege = EventSpec::KERNEL;
    let mut rig = acquired(1);
    let session = rig.add_session(&config(&[both, kernel]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 100, &[Plain, Load]);
    rig.run_kernel(0, 30);
    rig.stop(session);
    assert_eq!(rig.sessions[session].totals().counts[..2], [130, 30]);
    assert!(rig.sessions[session].program.sees_kernel());
}

#[test]
fn a_switch_between_threads_of_a_counting_session_writes_no_register() {
    let mut rig = acquired(1);
    let session = rig.add_session(&config(&four_events()));
    let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
    rig.switch(0, threads[0], QuantumEnd::Preempted);
    let before = rig.sessions[session].totals();
    for round in 1..=10 {
        rig.run(0, 100, &[Load]);
        rig.switch(0, threads[round % 2], QuantumEnd::Preempted);
    }
    let after = rig.sessions[session].totals();
    assert_eq!(after.msr_writes, before.msr_writes);
    assert_eq!(after.msr_reads - before.msr_reads, 10 * 4, "each counter once per switch");
    assert_eq!(after.counts[0], 1000);
}

#[test]
fn a_switch_between_threads_of_a_sampling_session_needs_six_accesses() {
    let mut rig = acquired(1);
    let session = rig.add_session(&config(&[precise(LOADS, 1000)]));
    let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
    rig.switch(0, threads[0], QuantumEnd::Preempted);
    let before = rig.sessions[session].totals();
    for round in 1..=10 {
        rig.run(0, 100, &[Load]);
        rig.switch(0, threads[round % 2], QuantumEnd::Preempted);
    }
    let after = rig.sessions[session].totals();
    // Stop, disarm, position, arm, start; and one counter read.
    assert_eq!(after.msr_writes - before.msr_writes, 10 * 5);
    assert_eq!(after.msr_reads - before.msr_reads, 10);
}

#[test]
fn a_stopped_counter_is_not_read_again() {
    let mut rig = acquired(1);
    let session = rig.add_session(&config(&[precise(LOADS, 1000), counted(INSTRUCTIONS)]));
    let thread = rig.add_thread(Some(session));
    for stay in 0..10 {
        let before = rig.sessions[session].totals();
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 100, &[Load]);
        rig.switch(0, 0, QuantumEnd::Yielded);
        let after = rig.sessions[session].totals();
        // Both counters when the events have just been programmed, and what says which run; and both at each end.
        let reads = if stay == 0 { 5 } else { 2 };
        assert_eq!(after.msr_reads - before.msr_reads, reads);
    }
}

#[test]
fn an_unmonitored_thread_between_two_quanta_is_not_counted() {
    let mut rig = acquired(1);
    let session = rig.add_session(&config(&four_events()));
    let thread = rig.add_thread(Some(session));
    for _ in 0..5 {
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 10, &[Load]);
        rig.switch(0, 0, QuantumEnd::Yielded);
        rig.run(0, 1000, &[Load]);
    }
    rig.stop(session);
    rig.read_all();
    assert_eq!(rig.sessions[session].totals().counts[..2], [50, 50]);
    assert_eq!(rig.sessions[session].reader.threads.len(), 1);
}

#[test]
fn a_counter_that_wraps_between_two_cuts_is_counted_through() {
    let mut rig = Rig::new(1, Options::default());
    // The fixed counter is left by its owner just below its end.
    rig.cores[0].borrow_mut().pmu.wrmsr(0x309, (1 << 48) - 50).expect("48 bits");
    rig.acquire();
    let session = rig.add_session(&config(&[counted(INSTRUCTIONS)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 100, &[Load]);
    rig.cut(0, QuantumEnd::Timer);
    rig.run(0, 100, &[Load]);
    assert_eq!(rig.cores[0].borrow_mut().pmu.rdmsr(0x309), Ok(150), "it has wrapped");
    rig.stop(session);
    let mut expected = [0; EVENTS_MAX];
    expected[0] = 200;
    assert_eq!(rig.sessions[session].totals().counts, expected);
}
