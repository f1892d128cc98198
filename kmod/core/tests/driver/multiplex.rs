//! Events that take turns against the model.

use std::collections::BTreeSet;

use crate::rig;
use crate::rig::core::Instruction::{Branch, Load, Plain, Store};
use crate::rig::scene::{
    acquired, config, counted, hybrid, interrupting, precise, INSTRUCTIONS, LOADS, STORES,
};
use crate::rig::{Rig, TURN_TSC};
use hpm_abi::{CoreType, CounterReading, EventSpec, QuantumEnd, Reason, SessionConfig, SessionFlags};
use hpm_core::counters;
use hpm_core::port::Port;
use hpm_core::registers::{IA32_PERFEVTSEL0, IA32_PERF_GLOBAL_CTRL};
use hpm_core::turns::Turns;
use hpm_core::{Program, Refusal};

const BRANCHES_COUNTED: u64 = 0x00C4;

fn multiplexed(events: &[EventSpec]) -> SessionConfig {
    SessionConfig { flags: SessionFlags::MULTIPLEX, ..config(events) }
}

/// Seven events where four general counters and one fixed one serve.
fn seven_events() -> [EventSpec; 7] {
    [INSTRUCTIONS, LOADS, STORES, BRANCHES_COUNTED, LOADS, STORES, LOADS].map(counted)
}

fn programs(rig: &Rig, config: &SessionConfig) -> Result<Vec<Program>, Refusal> {
    let turns = Turns::new(&rig.pmu, config)?;
    (0..turns.count()).map(|turn| rig::program(&turns, turn, &rig.pmu, config)).collect()
}

#[test]
fn without_the_flag_they_are_refused_and_what_fits_takes_no_turns() {
    let rig = acquired(1);
    let refusal = programs(&rig, &config(&seven_events())).expect_err("they do not fit");
    assert_eq!((refusal.reason, refusal.detail[0]), (Reason::NoCounter, 5));
    assert_eq!(programs(&rig, &multiplexed(&seven_events()[..4])).expect("they fit").len(), 1);
}

#[test]
fn every_event_has_as_many_turns_as_its_counters_allow() {
    let rig = acquired(1);
    let programs = programs(&rig, &multiplexed(&seven_events())).expect("they take turns");
    let turns = |event: usize| programs.iter().filter(|program| program.is_active(event)).count();
    assert_eq!(turns(0), programs.len(), "a fixed counter has no other use");
    let [fewest, most] = [(1..7).map(turns).min(), (1..7).map(turns).max()].map(|n| n.expect("six"));
    assert_eq!(fewest, most, "six events share four counters");
    assert_eq!(fewest * 6, programs.len() * 4, "no counter is idle");
}

#[test]
fn sampled_events_keep_their_counters_in_every_turn() {
    let rig = acquired(1);
    let events =
        [counted(LOADS), precise(STORES, 500), counted(STORES), counted(BRANCHES_COUNTED), counted(LOADS)];
    let programs = programs(&rig, &multiplexed(&events)).expect("they take turns");
    assert!(programs.len() > 1);
    let samplers: Vec<_> = programs.iter().map(Program::samplers).collect();
    assert!(samplers.windows(2).all(|pair| pair[0] == pair[1]));
    let many = [precise(LOADS, 500); 5];
    assert!(self::programs(&rig, &multiplexed(&many)).is_err(), "sampled events take no turns");
}

/// MSR_OFFCORE_RSP_0 and _1 have room for two values; a third one waits for a turn of its own.
#[test]
fn registers_beside_the_encoding_are_each_turns_own() {
    const MSR_OFFCORE_RSP: [(u64, u32); 2] = [(0x01B7, 0x1A6), (0x01BB, 0x1A7)];
    let mut rig = acquired(1);
    let values = [1, 2, 4];
    let request = values.map(|extra| EventSpec { extra, ..counted(0x01B7) });
    let refusal = programs(&rig, &config(&request)).expect_err("two registers");
    assert_eq!((refusal.reason, refusal.detail), (Reason::ExtraConflict, [2, 0x1A6]));
    let request = multiplexed(&request);
    let active = |program: &Program| -> Vec<u64> {
        (0..3).filter(|&event| program.is_active(event)).map(|event| values[event]).collect()
    };
    let programs = programs(&rig, &request).expect("they take turns");
    let wanted: BTreeSet<Vec<u64>> = programs.iter().map(active).collect();
    assert!(wanted.len() > 1 && wanted.iter().all(|turn| turn.len() == 2), "{wanted:?}");
    let session = rig.add_session(&request);
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let mut port = rig.port(0);
        let selects =
            (0..4).map(|counter| port.rdmsr(IA32_PERFEVTSEL0 + counter) & 0xFFFF).collect::<Vec<_>>();
        let counted = MSR_OFFCORE_RSP.iter().filter(|(encoding, _)| selects.contains(encoding));
        let mut counted: Vec<u64> = counted.map(|(_, register)| port.rdmsr(*register)).collect();
        counted.sort_unstable();
        seen.insert(counted);
        rig.run_unjudged(0, TURN_TSC as usize + 1, &[Plain]);
        rig.cut(0, QuantumEnd::Timer);
        rig.read_all();
    }
    assert_eq!(seen, wanted);
}

/// Two threads that take the CPU from each other in step with the turns, which would show each of them the same turn
/// if turns were the CPU's.
#[test]
fn each_thread_has_every_turn_and_the_scaled_counts_are_right() {
    let mut rig = acquired(1);
    let session = rig.add_session(&multiplexed(&seven_events()));
    let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
    for round in 0..120 {
        rig.switch(0, threads[round % 2], QuantumEnd::Preempted);
        let mix = if round % 2 == 0 { [Load, Load, Plain] } else { [Store, Branch, Load] };
        rig.run(0, TURN_TSC as usize, &mix);
        if round % 16 == 0 {
            rig.read_all();
        }
    }
    rig.stop(session);
    let totals = rig.sessions[session].totals();
    for event in 0..7 {
        let truth: u64 = threads.iter().map(|&thread| rig.users[thread].truth[event]).sum();
        let scaled = totals.counts[event] * totals.on_cpu_tsc / totals.running_tsc[event];
        assert!(scaled.abs_diff(truth) * 20 <= truth, "event {event}: {scaled} for {truth}");
    }
    assert_eq!(totals.running_tsc[0], totals.on_cpu_tsc);
    assert!(totals.running_tsc[1] * 4 < totals.on_cpu_tsc * 3);
}

#[test]
fn threads_too_short_for_a_turn_do_not_all_have_the_first() {
    let mut rig = acquired(1);
    let session = rig.add_session(&multiplexed(&seven_events()));
    for _ in 0..60 {
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 50, &[Load, Store]);
        rig.switch(0, 0, QuantumEnd::Exit);
    }
    rig.stop(session);
    let totals = rig.sessions[session].totals();
    for event in 1..7 {
        assert!(totals.running_tsc[event] * 2 > totals.on_cpu_tsc, "event {event} ran two turns of three");
    }
}

#[test]
fn a_timer_moves_a_thread_to_its_next_turn_while_it_samples() {
    let mut rig = acquired(1);
    let events =
        [counted(LOADS), precise(STORES, 103), counted(STORES), counted(BRANCHES_COUNTED), counted(LOADS)];
    let session = rig.add_session(&multiplexed(&events));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    for _ in 0..60 {
        rig.run(0, TURN_TSC as usize + 1, &[Load, Store]);
        rig.cut(0, QuantumEnd::Timer);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let truth = rig.users[thread].truth;
    let totals = rig.sessions[session].totals();
    assert_eq!(totals.counts[1], truth[1], "the sampled event never waits");
    let records = rig.sessions[session].reader.threads[&rig.users[thread].tid].records[1];
    assert!((records * 103).abs_diff(truth[1]) <= 103);
    for event in [0, 2, 4] {
        let scaled = totals.counts[event] * totals.on_cpu_tsc / totals.running_tsc[event];
        assert!(scaled.abs_diff(truth[event]) * 20 <= truth[event], "event {event}");
    }
}

/// Three events have one value beside their encoding and their turn together, and two have one each: the first turn uses fewer
/// counters than the second.
#[test]
fn an_interrupt_leaves_the_counters_of_its_turn_running() {
    let mut rig = acquired(1);
    let offcore = |extra| EventSpec { extra, ..counted(0x01B7) };
    let events = [interrupting(STORES, 400), offcore(2), offcore(4), offcore(1), offcore(1), offcore(1)];
    let session = rig.add_session(&multiplexed(&events));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let running = |rig: &Rig| rig.port(0).rdmsr(IA32_PERF_GLOBAL_CTRL);
        let before = running(&rig);
        rig.run_unjudged(0, TURN_TSC as usize + 1, &[Store]);
        assert_eq!(running(&rig), before);
        seen.insert(before);
        rig.cut(0, QuantumEnd::Timer);
        rig.give_back_all();
    }
    assert!(seen.len() > 1, "{seen:x?}");
    assert!(rig.sessions[session].totals().pmis > 8);
}

/// A count that was made in turns is scaled by the time on cores that have the event: three quarters of this thread's are on others.
#[test]
fn on_a_hybrid_processor_turns_are_those_on_cores_that_have_the_event() {
    let mut rig = hybrid();
    rig.acquire();
    let of = |core_type: CoreType, encoding| EventSpec { core_type: core_type as u8, ..counted(encoding) };
    let mut events = vec![of(CoreType::Core, LOADS)];
    events.extend([of(CoreType::Atom, LOADS); 9]);
    let flags = SessionFlags::MULTIPLEX | SessionFlags::COUNTER_PAGES;
    let session = rig.add_session(&SessionConfig { flags, ..config(&events) });
    let thread = rig.add_thread(Some(session));
    let page = rig.open_page(session, thread);
    for round in 0..240 {
        let cpu = usize::from(round % 4 == 3);
        rig.switch(cpu, thread, QuantumEnd::Preempted);
        rig.run(cpu, TURN_TSC as usize, &[Load, Load, Plain]);
        rig.switch(cpu, cpu, QuantumEnd::Yielded);
        rig.read_all();
    }
    rig.stop(session);
    let (totals, truth) = (rig.sessions[session].totals(), rig.users[thread].truth);
    let mut page_says = CounterReading::default();
    assert!(counters::reading(&rig.sessions[session].pages[page], &mut page_says));
    for (event, &truth) in truth.iter().enumerate().take(events.len()) {
        let scaled = |count: u64, enabled: u64, running: u64, absent: u64| {
            let scaled = count * (enabled - absent) / (running - absent);
            assert!(
                truth > 1000 && scaled.abs_diff(truth) * 20 <= truth,
                "event {event}: {scaled} for {truth}"
            );
        };
        let (running, absent) = (totals.running_tsc[event], totals.absent_tsc[event]);
        scaled(totals.counts[event], totals.on_cpu_tsc, running, absent);
        let (running, absent) = (page_says.running_tsc[event], page_says.absent_tsc[event]);
        scaled(page_says.counts[event], page_says.enabled_tsc, running, absent);
        assert_eq!(running < page_says.enabled_tsc, event > 0, "the nine take turns, and the one does not");
    }
}

/// Ends a turn so that the thread runs on, or leaves and comes back before another is measured.
const TURNS_END: [fn(&mut Rig, usize); 2] = [
    |rig, _| rig.cut(0, QuantumEnd::Timer),
    |rig, thread| {
        rig.switch(0, 0, QuantumEnd::Yielded);
        rig.switch(0, thread, QuantumEnd::Preempted);
    },
];

/// Architectural PEBS has a counter's period in a register of its events, which each turn sets.
#[test]
fn an_adapted_period_stays_in_every_turn() {
    for turn_ends in TURNS_END {
        let mut rig = Rig::of(&vpmu::profile::CLEARWATER_FOREST, 1, vpmu::Options::default());
        rig.acquire();
        let rated = EventSpec { rate: 500, ..precise(STORES, 1009) };
        let mut events = vec![rated];
        events.extend([counted(LOADS); 9]);
        let session = rig.add_session(&multiplexed(&events));
        // A tick is 10 ns.
        rig.cores[0].borrow_mut().limits.tsc_khz = 100_000;
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        for _ in 0..400 {
            rig.run(0, 4 * TURN_TSC as usize, &[Store, Store, Load]);
            turn_ends(&mut rig, thread);
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        let user = &rig.users[thread];
        let seen = &rig.sessions[session].reader.threads[&user.tid];
        assert!(seen.period > 10 * 1009, "it was to be adapted: {seen:?}");
        let due = seen.weighed[0];
        assert!(
            due.abs_diff(user.truth[0]) <= seen.period + 1009,
            "{due} by records, {} in truth",
            user.truth[0]
        );
    }
}
