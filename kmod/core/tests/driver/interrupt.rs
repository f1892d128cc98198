//! Sampling by interrupt against the model: periods, threads, late PMIs, loss, stacks.

use crate::rig::core::Instruction::Load;
use crate::rig::scene::{
    acquired, config, counted, each_keeps_its_period, interrupting, one_thread, precise, take_turns,
    BRANCHES, INSTRUCTIONS, LOADS, MIX, STORES,
};
use crate::rig::Rig;
use hpm_abi::{EventMode, EventSpec, QuantumEnd, Reason, SessionConfig};
use hpm_core::Program;
use vpmu::Options;

#[test]
fn each_overflow_leaves_a_record_whatever_the_latency_of_the_pmi() {
    for latency in [0, 1, 7, 300] {
        let (mut rig, session, tid) =
            one_thread(&config(&[interrupting(LOADS, 1000), counted(INSTRUCTIONS)]));
        rig.cores[0].borrow_mut().machine.nmi_latency = latency;
        rig.run(0, 100_400, &MIX);
        rig.stop(session);
        rig.read_all();
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert_eq!(seen.counts[..2], [40_160, 100_400], "latency {latency}");
        assert_eq!((seen.records[0], seen.records_lost), (40, 0), "latency {latency}");
        assert_eq!(rig.sessions[session].totals().pmis, 40);
    }
}

#[test]
fn periods_that_pass_before_the_pmi_are_lost_and_counted() {
    let (mut rig, session, tid) = one_thread(&config(&[interrupting(LOADS, 100)]));
    rig.cores[0].borrow_mut().machine.nmi_latency = 250;
    rig.run(0, 10_001, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[0], 10_001);
    // The hundredth overflow's PMI is still on its way.
    assert_eq!((seen.records[0], seen.records_lost), (33, 66));
}

#[test]
fn several_counters_that_interrupt_keep_their_own_periods() {
    let events = [interrupting(LOADS, 700), interrupting(STORES, 300), interrupting(BRANCHES, 130)];
    let (mut rig, session, tid) = one_thread(&config(&events));
    rig.cores[0].borrow_mut().machine.nmi_latency = 3;
    each_keeps_its_period(&mut rig, session, tid, &events);
}

#[test]
fn threads_keep_their_positions_across_switches_and_cpus() {
    let mut rig = acquired(2);
    let session = rig.add_session(&config(&[interrupting(LOADS, 1000)]));
    for core in &rig.cores {
        core.borrow_mut().machine.nmi_latency = 9;
    }
    let threads = take_turns(&mut rig, session, 200, |_| {});
    rig.stop(session);
    rig.read_all();
    for (thread, loads) in threads {
        let seen = &rig.sessions[session].reader.threads[&thread];
        assert_eq!(seen.counts[0], loads);
        // A record that is due at a switch comes with the thread's next event.
        assert!((seen.records[0] * 1000).abs_diff(loads) <= 1000, "{} of {loads}", seen.records[0]);
    }
}

/// The kernel's own loads, between the work for a PMI and the end of the section, are enough for the next PMI.
#[test]
fn a_section_ends_whatever_the_period_and_without_ceilings() {
    for by_pebs in [false, true] {
        let mut spec = if by_pebs { precise(LOADS, 100) } else { interrupting(LOADS, 100) };
        spec.privilege = EventSpec::USER | EventSpec::KERNEL;
        let (mut rig, session, tid) = one_thread(&SessionConfig {
            segments: 64,
            // With stacks each precise record interrupts too.
            stack_bytes: 1024,
            stack_ring_bytes: 1 << 16,
            ..config(&[spec])
        });
        rig.cores[0].borrow_mut().machine.nmi_latency = 5;
        for behind in [150, 0] {
            rig.behind_service = behind;
            rig.run(0, 101, &[Load]);
            rig.cut(0, QuantumEnd::Timer);
        }
        rig.stop(session);
        rig.read_all();
        let seen = &rig.sessions[session].reader.threads[&tid];
        let kernel = seen.counts[0] - 202;
        assert!(kernel % 150 == 0 && (8 * 150..16 * 150).contains(&kernel), "{kernel} loads of the kernel");
        assert!(seen.throttled > 0 && seen.records[0] >= 9, "{} records", seen.records[0]);
        assert!(
            (seen.records[0] + seen.records_lost).abs_diff(seen.counts[0] / 100) <= 1,
            "{}",
            seen.records_lost
        );
    }
}

#[test]
fn without_a_free_segment_nothing_interrupts_and_the_loss_is_exact() {
    let mut config = config(&[interrupting(LOADS, 100)]);
    config.segments = 2;
    let (mut rig, session, tid) = one_thread(&config);
    rig.run(0, 200_050, &[Load]);
    // Two segments of 409 records less the 16 that are kept free.
    let full = 2 * (409 - 16);
    let totals = rig.sessions[session].totals();
    assert_eq!((totals.records, totals.pmis), (full, full));
    rig.read_all();
    rig.cut(0, QuantumEnd::Timer);
    rig.run(0, 10_000, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[0], 210_050);
    assert_eq!(seen.records[0] + seen.records_lost, 2100);
    assert_eq!(seen.records[0], full + 100);
}

#[test]
fn with_stacks_each_record_has_its_own_quantum_and_stack() {
    let config = SessionConfig {
        stack_bytes: 1024,
        stack_ring_bytes: 1 << 16,
        ..config(&[interrupting(LOADS, 1000)])
    };
    let (mut rig, session, tid) = one_thread(&config);
    rig.run(0, 20_500, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.records[0], seen.stacks), (20, 20));
}

#[test]
fn a_session_for_user_mode_gets_user_registers_when_the_pmi_comes_in_the_kernel() {
    let (mut rig, session, tid) = one_thread(&config(&[interrupting(LOADS, 1000)]));
    rig.cores[0].borrow_mut().machine.nmi_latency = 5;
    rig.run(0, 1000, &[Load]);
    // The rig's reader holds every record's RIP against its thread; the kernel's is 1 << 63.
    rig.run_kernel(0, 20);
    rig.stop(session);
    rig.read_all();
    assert_eq!(rig.sessions[session].reader.threads[&tid].records[0], 1);
}

#[test]
fn precise_and_interrupting_events_do_not_go_together() {
    let rig = Rig::new(1, Options::default());
    let refused = Program::new(&rig.pmu, &config(&[precise(LOADS, 1000), interrupting(STORES, 1000)]));
    let mode = std::mem::offset_of!(SessionConfig, events)
        + size_of::<EventSpec>()
        + std::mem::offset_of!(EventSpec, mode);
    let refusal = refused.expect_err("two kinds of records");
    assert_eq!((refusal.reason, refusal.detail[0]), (Reason::Field, mode as u64));
}

#[test]
fn an_event_that_only_a_fixed_counter_has_cannot_interrupt() {
    let rig = Rig::new(1, Options::default());
    let reference_cycles = EventSpec { mode: EventMode::Interrupt as u8, ..interrupting(0x0300, 1000) };
    let refusal = Program::new(&rig.pmu, &config(&[reference_cycles])).expect_err("no general counter");
    assert_eq!(refusal.reason, Reason::NoCounter);
}
