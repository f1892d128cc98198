//! How many registers the driver reads and writes for what happens most: switches, cuts, full segments.

use crate::rig::core::Instruction::Load;
use crate::rig::scene::{config, counted, one_thread, precise, INSTRUCTIONS, LOADS};
use crate::rig::Rig;
use hpm_abi::{EventSpec, QuantumEnd, SessionConfig};

/// Reads and writes that were charged to the session so far.
fn accesses(rig: &Rig, session: usize) -> (u64, u64) {
    let totals = rig.sessions[session].totals();
    (totals.msr_reads, totals.msr_writes)
}

/// Those of an act.
fn of(rig: &mut Rig, session: usize, act: impl FnOnce(&mut Rig)) -> (u64, u64) {
    let before = accesses(rig, session);
    act(rig);
    let after = accesses(rig, session);
    (after.0 - before.0, after.1 - before.1)
}

/// A CPU with a thread of the session on it, which has run; the session and the thread.
fn running(config: &SessionConfig) -> (Rig, usize, usize) {
    let (mut rig, session, _) = one_thread(config);
    let thread = rig.on_cpu[0];
    rig.run(0, 5050, &[Load]);
    (rig, session, thread)
}

fn ends_exact(mut rig: Rig, session: usize) {
    rig.run(0, 7777, &[Load]);
    rig.stop(session);
    rig.read_all();
    for user in rig.users.iter().filter(|user| user.session == Some(session)) {
        let seen = &rig.sessions[session].reader.threads[&user.tid];
        assert_eq!(seen.counts, user.truth);
        // The event after the one that overflows is recorded.
        assert_eq!(seen.records[0], (user.truth[0] - 1) / 100, "a record for each period");
    }
}

#[test]
fn a_cut_of_user_mode_reads_the_count_and_writes_nothing() {
    let (mut rig, session, _) = running(&config(&[precise(LOADS, 100)]));
    assert_eq!(of(&mut rig, session, |rig| rig.cut(0, QuantumEnd::Timer)), (1, 0));
    ends_exact(rig, session);
}

#[test]
fn a_thread_of_the_kernels_own_costs_one_read() {
    let (mut rig, session, thread) = running(&config(&[precise(LOADS, 100)]));
    let kernel = rig.add_kernel_thread();
    let there_and_back = |rig: &mut Rig| {
        rig.switch(0, kernel, QuantumEnd::Yielded);
        assert!(rig.is_resting(0));
        rig.run(0, 500, &[Load]);
        rig.switch(0, thread, QuantumEnd::Yielded);
    };
    assert_eq!(of(&mut rig, session, there_and_back), (1, 0));
    ends_exact(rig, session);
}

#[test]
fn a_foreign_thread_costs_one_read_and_two_writes() {
    let (mut rig, session, thread) = running(&config(&[precise(LOADS, 100)]));
    let foreign = rig.add_thread(None);
    let there_and_back = |rig: &mut Rig| {
        rig.switch(0, foreign, QuantumEnd::Preempted);
        rig.run(0, 500, &[Load]);
        rig.switch(0, thread, QuantumEnd::Preempted);
    };
    assert_eq!(of(&mut rig, session, there_and_back), (1, 2));
    ends_exact(rig, session);
}

#[test]
fn a_foreign_thread_behind_one_of_the_kernels_own_is_not_counted() {
    let (mut rig, session, thread) = running(&config(&[precise(LOADS, 100)]));
    let (kernel, foreign) = (rig.add_kernel_thread(), rig.add_thread(None));
    let there_and_back = |rig: &mut Rig| {
        rig.switch(0, kernel, QuantumEnd::Yielded);
        rig.switch(0, foreign, QuantumEnd::Yielded);
        assert!(!rig.is_resting(0));
        rig.run(0, 500, &[Load]);
        rig.switch(0, kernel, QuantumEnd::Yielded);
        rig.switch(0, thread, QuantumEnd::Yielded);
    };
    // What stops the counters in between belongs to no session.
    assert_eq!(of(&mut rig, session, there_and_back), (1, 1));
    ends_exact(rig, session);
}

#[test]
fn an_overflow_that_waits_for_its_record_is_still_the_threads_when_it_comes_back() {
    let (mut rig, session, thread) = running(&config(&[precise(LOADS, 100)]));
    let foreign = rig.add_thread(None);
    // The event that overflows; the next one would be recorded.
    rig.run(0, 50, &[Load]);
    rig.switch(0, foreign, QuantumEnd::Preempted);
    rig.run(0, 500, &[Load]);
    rig.switch(0, thread, QuantumEnd::Preempted);
    ends_exact(rig, session);
}

#[test]
fn threads_of_one_session_find_their_own_positions() {
    let (mut rig, session, thread) = running(&config(&[precise(LOADS, 100)]));
    let (other, kernel) = (rig.add_thread(Some(session)), rig.add_kernel_thread());
    for _ in 0..50 {
        for next in [other, kernel, other, kernel, thread, kernel] {
            rig.switch(0, next, QuantumEnd::Preempted);
            rig.run(0, 37, &[Load]);
        }
    }
    rig.switch(0, thread, QuantumEnd::Preempted);
    ends_exact(rig, session);
}

#[test]
fn a_full_segment_takes_four_accesses() {
    let (mut rig, session, _) = running(&config(&[precise(LOADS, 100)]));
    let before = rig.sessions[session].totals().pmis;
    let until_full = |rig: &mut Rig| {
        while rig.sessions[session].totals().pmis == before {
            rig.run(0, 100, &[Load]);
        }
    };
    // The count is read; the indication is cleared, and counters are stopped and started.
    assert_eq!(of(&mut rig, session, until_full), (1, 3));
    ends_exact(rig, session);
}

#[test]
fn where_the_kernel_is_counted_too_counters_are_stopped() {
    let kernel_too = |event: EventSpec| EventSpec { privilege: EventSpec::USER | EventSpec::KERNEL, ..event };
    let events = [kernel_too(precise(LOADS, 100)), kernel_too(counted(INSTRUCTIONS))];
    let (mut rig, session, thread) = running(&config(&events));
    let kernel = rig.add_kernel_thread();
    rig.switch(0, kernel, QuantumEnd::Yielded);
    assert!(!rig.is_resting(0));
    rig.run(0, 500, &[Load]);
    rig.switch(0, thread, QuantumEnd::Yielded);
    // Both counts are read, and whether they run as they were told to.
    assert_eq!(of(&mut rig, session, |rig| rig.cut(0, QuantumEnd::Timer)), (3, 2));
    ends_exact(rig, session);
}
