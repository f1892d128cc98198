//! The Pentium 4's PMU: what is asked of it is refused, or programmed without a fault and counted right, on a processor of one
//! thread and on one of two that share the PMU.

use crate::rig;
use crate::rig::core::Instruction::{Branch, Load, Plain, Store};
use crate::rig::netburst::{
    encoding, BRANCHES, FRONT_END, INSTRUCTIONS, INSTRUCTIONS_COMPLETED, REPLAY, TAG_LOADS, TAG_STORES,
};
use crate::rig::scene::{config, counted, exercise, precise};
use crate::rig::Rig;
use hpm_abi::{EventMode, EventSpec, QuantumEnd, Reason, SessionConfig, SessionFlags};
use hpm_core::pmu::netburst::events::{Encoding, EventRule, Tagging, EVENTS};
use hpm_core::pmu::netburst::registers::{Block, Cccr, Escr, EscrId, Pair};
use hpm_core::pmu::netburst::{Share, Unit};
use hpm_core::pmu::Interface;
use hpm_core::turns::Turns;
use hpm_core::{Pmu, Port, Program};
use proptest::prelude::*;
use vpmu::profile::PRESCOTT;
use vpmu::Options;

fn alone() -> Rig {
    Rig::of(&PRESCOTT, 1, Options::default())
}

fn siblings() -> Rig {
    Rig::siblings(&PRESCOTT, Options::default())
}

fn loads(period: u64) -> EventSpec {
    EventSpec { extra: TAG_LOADS, ..precise(FRONT_END, period) }
}

fn stores() -> EventSpec {
    EventSpec { extra: TAG_STORES, ..counted(FRONT_END) }
}

fn of_rule(rule: &EventRule, mask: u64) -> u64 {
    let (escr_select, block) = (rule.pair.escr_select().into(), rule.pair.block() as u64);
    encoding(rule.select.into(), mask, escr_select, block)
}

fn replays(pebs_enable: u64, matrix_vert: u64) -> EventSpec {
    EventSpec { extra: matrix_vert << 32 | pebs_enable, ..counted(REPLAY) }
}

fn refused(pmu: &Pmu, events: &[EventSpec]) -> (Reason, [u64; 2]) {
    let refusal = Program::new(pmu, &config(events)).expect_err("refused");
    (refusal.reason, refusal.detail)
}

/// Table 18-63 of the SDM: the counters of each block, and where its ESCRs are.
#[test]
fn every_counter_has_the_escrs_of_its_half() {
    let all = [0, 1].map(|half| Block::ALL.iter().fold(0, |bits, block| bits | block.counters(half)));
    assert_eq!(all, [0b01_0011_0011_0011_0011, 0b10_1100_1100_1100_1100]);
    assert_eq!(Pair::Cru2.half(1).address(), 0x3CD);
    assert_eq!(Pair::Fsb.half(0).address(), 0x3A2);
    for half in [0, 1] {
        assert!(EscrId::of_half(half).all(|escr| escr.address() % 2 == half));
    }
    let named = |pair: &Pair| (pair.block() as u32, pair.escr_select());
    let mut names: Vec<_> = Pair::ALL.iter().map(named).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "block and ESCR Select name one pair");
}

#[test]
fn an_encoding_names_one_event() {
    for rule in &EVENTS {
        assert_eq!(Encoding(of_rule(rule, 0)).rule(), Some(rule));
    }
}

#[test]
fn a_thread_alone_is_counted_and_sampled_exactly() {
    let mut rig = alone();
    let before = rig.registers();
    rig.acquire();
    let events = [loads(700), counted(INSTRUCTIONS), counted(INSTRUCTIONS_COMPLETED), counted(BRANCHES)];
    let session = rig.add_session(&config(&events));
    let thread = rig.add_thread(Some(session));
    for round in 0..40 {
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 997, &[Plain, Load, Load, Store, Branch]);
        rig.cut(0, QuantumEnd::Timer);
        rig.run(0, 331, &[Load, Branch]);
        rig.switch(0, 0, QuantumEnd::Yielded);
        rig.run_unjudged(0, 100 + round, &[Load, Load]);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let truth = rig.users[thread].truth;
    let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
    assert_eq!(seen.counts, truth);
    assert!(truth[..4].iter().all(|&count| count > 10_000), "{truth:?}");
    let due = truth[0] / 700 - seen.records[0];
    assert!(due <= 1 && seen.records_lost == 0, "{due}");
    rig.release();
    assert_eq!(rig.registers(), before);
}

#[test]
fn each_sibling_counts_its_own_thread() {
    let mut rig = siblings();
    let before = rig.registers();
    rig.acquire();
    let session = rig.add_session(&config(&[loads(300), counted(INSTRUCTIONS)]));
    let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
    let nobody = rig.add_thread(None);
    for round in 0..60 {
        // Both measured, or one of them beside a thread of nobody.
        rig.switch(0, threads[0], QuantumEnd::Preempted);
        rig.switch(1, if round % 2 == 0 { threads[1] } else { nobody }, QuantumEnd::Preempted);
        for _ in 0..20 {
            rig.run(0, 37, &[Plain, Load, Load, Store, Branch]);
            rig.run(1, 41, &[Load, Store, Branch]);
        }
        rig.cut(round % 2, QuantumEnd::Timer);
        rig.run(1, 5, &[Load]);
        for cpu in [0, 1] {
            rig.switch(cpu, cpu, QuantumEnd::Yielded);
        }
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    for thread in threads {
        let truth = rig.users[thread].truth;
        let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
        assert_eq!(seen.counts, truth);
        assert!(truth[..2].iter().all(|&count| count > 5_000), "{truth:?}");
        let due = truth[0] / 300 - seen.records[0];
        assert!(due <= 1 && seen.records_lost == 0, "{due}");
    }
    rig.release();
    assert_eq!(rig.registers(), before);
}

/// uops_retired with NBOGUS, mispred_branch_retired with NBOGUS: in the ESCRs of instr_retired.
const UOPS: u64 = encoding(0x01, 1, 4, 3);
const MISPREDICTED: u64 = encoding(0x03, 1, 4, 3);
/// page_walk_type with DTMISS, IOQ_active_entries with ALL_READ, x87_FP_uop with ALL.
const PAGE_WALKS: u64 = encoding(0x01, 1, 4, 0);
const BUS_QUEUE: u64 = encoding(0x1A, 1 << 5, 6, 0);
const X87: u64 = encoding(0x04, 1 << 15, 1, 2);
/// MOB_load_replay with NO_STA.
const STORE_REPLAYS: u64 = encoding(0x03, 1 << 1, 2, 0);
/// execution_event with NBOGUS0.
const EXECUTION: u64 = encoding(0x0C, 1, 5, 3);

#[test]
fn an_escr_selects_one_event_for_all_its_counters() {
    let (alone, siblings) = (alone().pmu, siblings().pmu);
    let events = [INSTRUCTIONS, UOPS, MISPREDICTED].map(counted);
    assert!(Program::new(&alone, &config(&events[..2])).is_ok());
    assert_eq!(refused(&alone, &events), (Reason::NoCounter, [2, 0]));
    assert_eq!(refused(&siblings, &events[..2]), (Reason::NoCounter, [1, 0]));
    let same = [counted(INSTRUCTIONS); 7];
    assert!(
        Program::new(&alone, &config(&same[..6])).is_ok()
            && Program::new(&siblings, &config(&same[..3])).is_ok()
    );
    assert_eq!(refused(&alone, &same), (Reason::NoCounter, [6, 0]));
    assert_eq!(refused(&siblings, &same), (Reason::NoCounter, [3, 0]));
    // An event that is moved to the other half makes room.
    let moved = [counted(INSTRUCTIONS), loads(500), counted(BRANCHES), counted(UOPS)];
    let program = Program::new(&alone, &config(&moved)).expect("two halves");
    assert!(program.counting_counter(1).is_some(), "and the precise event has a second counter");
}

/// Linux, arch/x86/events/intel/p4.c: "counter 1 is broken (erratum)". Of the bus unit's block that leaves counters 0, 2 and 3, and
/// only the first to the first logical processor.
#[test]
fn counter_1_is_given_to_no_event() {
    for (rig, fitting) in [(alone(), 3), (siblings(), 1)] {
        let same = [counted(STORE_REPLAYS); 4];
        let program = Program::new(&rig.pmu, &config(&same[..fitting])).expect("as many as there are");
        let mut given: Vec<_> =
            (0..fitting).map(|event| program.counting_counter(event).expect("counted").bit()).collect();
        given.sort_unstable();
        assert_eq!(given, &[0, 2, 3][..fitting]);
        assert_eq!(refused(&rig.pmu, &same[..=fitting]), (Reason::NoCounter, [fitting as u64, 0]));
    }
    let unit = Unit { share: Share::Whole, prescott: true };
    assert!(EVENTS.iter().all(|rule| rule.counters(&unit) & 1 << 1 == 0));
    assert!(unit.counters().any(|counter| counter == 1), "and nobody else has it meanwhile");
}

#[test]
fn what_does_not_fit_takes_turns() {
    let pmu = siblings().pmu;
    let request = SessionConfig {
        flags: SessionFlags::MULTIPLEX,
        ..config(&[INSTRUCTIONS, UOPS, MISPREDICTED, BRANCHES].map(counted))
    };
    assert_eq!(Turns::new(&pmu, &request).expect("in turns").count(), 3);
}

#[test]
fn tags_are_those_of_the_tables_and_one_kind_for_a_session() {
    let pmu = alone().pmu;
    let ok = |events: &[EventSpec]| Program::new(&pmu, &config(events)).is_ok();
    for (pebs_enable, matrix_vert) in
        [(1, 1), (2, 1), (4, 1), (4, 2), (4, 3), (0x1_8000, 0x10), (0x200, 1), (0x400, 1), (0x400, 2)]
    {
        assert!(ok(&[replays(pebs_enable, matrix_vert)]), "{pebs_enable:#x} {matrix_vert:#x}");
    }
    assert_eq!(refused(&pmu, &[counted(REPLAY)]), (Reason::ExtraMissing, [0, 0x3F1]));
    assert_eq!(refused(&pmu, &[replays(1, 2)]), (Reason::ExtraBits, [0, 2 << 32 | 1]));
    let record = 1 << 25;
    assert_eq!(refused(&pmu, &[replays(1 | record, 1)]), (Reason::ExtraBits, [0, 1 << 32 | 1 | record]));
    assert!(ok(&[replays(1, 1), replays(1, 1)]));
    assert_eq!(refused(&pmu, &[replays(1, 1), replays(2, 1)]), (Reason::ExtraConflict, [1, 0x3F1]));
    assert_eq!(refused(&pmu, &[loads(500), stores()]), (Reason::ExtraConflict, [1, 0x3BC]));
    let both = EventSpec { extra: TAG_LOADS | TAG_STORES, ..counted(FRONT_END) };
    assert!(ok(&[both, replays(1, 1)]));
    let tagged = EventSpec { extra: TAG_LOADS, ..counted(INSTRUCTIONS) };
    assert_eq!(refused(&pmu, &[tagged]), (Reason::ExtraBits, [0, TAG_LOADS]));
    // x87 micro-operations with the lowest tag, and with another than is counted.
    let executed = |tag: u64| EventSpec { extra: X87 | (1 << 4 | tag << 5) << 32, ..counted(EXECUTION) };
    assert!(ok(&[executed(1), counted(X87)]));
    let packed =
        EventSpec { extra: executed(1).extra & !X87 | encoding(0x08, 1 << 15, 1, 2), ..counted(EXECUTION) };
    assert_eq!(refused(&pmu, &[executed(1), packed]), (Reason::ExtraConflict, [1, 0x3A5]));
    assert_eq!(refused(&pmu, &[executed(2)]), (Reason::ExtraBits, [0, executed(2).extra]));
}

#[test]
fn what_belongs_to_no_logical_processor_is_counted_only_where_there_is_one() {
    let (alone, siblings) = (alone(), siblings());
    let executed = EventSpec { extra: X87 | (1 << 4 | 1 << 5) << 32, ..counted(EXECUTION) };
    for event in [counted(PAGE_WALKS), counted(X87), executed, replays(0x400, 1), replays(0x400, 2)] {
        assert!(Program::new(&alone.pmu, &config(&[event])).is_ok(), "{:#x}", event.encoding);
        for pmu in &siblings.pmus {
            assert_eq!(refused(pmu, &[event]), (Reason::SharedEvent, [0, 0]), "{:#x}", event.encoding);
        }
    }
    // In the second ESCR only, which is the second logical processor's.
    assert!(Program::new(&alone.pmu, &config(&[counted(BUS_QUEUE)])).is_ok());
    assert_eq!(refused(&siblings.pmu, &[counted(BUS_QUEUE)]), (Reason::NoCounter, [0, 0]));
    assert!(siblings.pmu.serves_one_session() && !alone.pmu.serves_one_session());
}

#[test]
fn every_bit_of_an_encoding_is_checked() {
    let pmu = alone().pmu;
    let bits = |bits: u64| refused(&pmu, &[counted(INSTRUCTIONS | bits)]);
    // Extended cascading, Enable, Active Thread, FORCE_OVF, OVF_PMI, Cascade, OVF; qualification and tags in the ESCR.
    for bit in [11, 12, 16, 25, 26, 27, 30, 31, 32, 35, 36, 37, 63] {
        assert_eq!(bits(1 << bit), (Reason::EventBits, [0, 1 << bit]), "bit {bit}");
    }
    let compare = u64::from(Cccr::COMPARE);
    let edge = u64::from(Cccr::EDGE);
    assert_eq!(bits(edge), (Reason::EventBits, [0, edge]));
    assert!(Program::new(&pmu, &config(&[counted(INSTRUCTIONS | edge | compare | 3 << 20)])).is_ok());
    let mask = u64::from(Escr::EVENT_MASK) << 32;
    assert_eq!(refused(&pmu, &[counted(INSTRUCTIONS & !mask)]), (Reason::EventBits, [0, mask]));
    let unknown = encoding(0x3F, 1, 4, 3);
    assert_eq!(refused(&pmu, &[counted(unknown)]).0, Reason::EventBits);
    let older = Unit { share: Share::Whole, prescott: false };
    let older = Pmu { interface: Interface::NetBurst(older), ..pmu };
    assert_eq!(refused(&older, &[counted(INSTRUCTIONS_COMPLETED)]).0, Reason::EventBits);
}

#[test]
fn one_event_of_micro_operations_that_retired_can_be_sampled_precisely() {
    let pmu = alone().pmu;
    assert_eq!(refused(&pmu, &[precise(INSTRUCTIONS, 500)]), (Reason::NotPrecise, [0, 0]));
    let bogus = EventSpec { encoding: encoding(0x08, 2, 5, 3), ..loads(500) };
    assert_eq!(refused(&pmu, &[bogus]), (Reason::NotPrecise, [0, 0]));
    let edge = EventSpec { encoding: FRONT_END | u64::from(Cccr::COMPARE | Cccr::EDGE), ..loads(500) };
    assert_eq!(refused(&pmu, &[edge]), (Reason::NotPrecise, [0, 0]));
    assert_eq!(refused(&pmu, &[loads(500), loads(700)]), (Reason::OnePrecise, [1, 0]));
    assert_eq!(refused(&pmu, &[loads(1 << 39)]).0, Reason::Field);
    let without = Pmu { pebs: Err(hpm_core::Refusal::new(Reason::NoPebs, [0; 2])), ..pmu };
    assert_eq!(refused(&without, &[loads(500)]), (Reason::NoPebs, [0, 0]));
    assert_eq!(refused(&without, &[replays(1, 1)]), (Reason::NoPebs, [0, 0]));
}

#[test]
fn a_counter_that_runs_on_the_sibling_is_somebody_elses() {
    let rig = siblings();
    let running = u64::from(Cccr::ENABLE | Cccr::ACTIVE_THREAD);
    rig.cores[0].borrow_mut().pmu.wrmsr(0x362, running).expect("a CCCR");
    let acquire = |cpu: usize| {
        let mut engine = hpm_core::Engine::new(cpu as u32);
        engine.acquire(&mut rig.port(cpu), &rig.pmus[cpu])
    };
    assert!(acquire(0).is_ok());
    let refusal = acquire(1).expect_err("a counter of its half runs");
    assert_eq!((refusal.reason, refusal.detail), (Reason::CountersRunning, [0x362, running]));
}

#[test]
fn a_sibling_that_comes_or_goes_leaves_the_others_records_alone() {
    let mut rig = siblings();
    let before = rig.registers();
    rig.acquire();
    let session = rig.add_session(&config(&[loads(300)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    for _ in 0..3 {
        rig.release_cpu(1);
        rig.run(0, 1000, &[Load, Store]);
        rig.acquire_cpu(1);
        rig.run(0, 1000, &[Load, Store]);
    }
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
    assert_eq!((seen.counts[0], seen.records[0]), (3000, 9));
    rig.release();
    assert_eq!(rig.registers(), before);
}

/// Mostly events that the processor has, in any use.
fn any_event() -> impl Strategy<Value = EventSpec> {
    let filter = prop_oneof![
        3 => Just(0),
        1 => any::<u32>().prop_map(|bits| bits & 0x1F4_0000 | Cccr::COMPARE),
        1 => any::<u32>().prop_map(|bits| bits & 0x1F8_0800),
    ];
    let mode = prop::sample::select(vec![EventMode::Count, EventMode::Precise, EventMode::Interrupt]);
    let rules = prop::sample::select(EVENTS.iter().collect::<Vec<_>>());
    let mask = prop_oneof![3 => any::<u16>().prop_map(|mask| (mask, true)), 1 => any::<u16>().prop_map(|mask| (mask, false))];
    (rules, mask, filter, mode, 1..4u8, 100..5000u64, any::<u8>()).prop_map(
        |(rule, (mask, valid), filter, mode, privilege, period, pick)| {
            let mask = if valid { mask & rule.mask_bits } else { mask };
            let encoding = of_rule(rule, mask.into()) | u64::from(filter);
            let period = if mode == EventMode::Count { 0 } else { period };
            let extra = extra_of(rule.tagging, mask, pick);
            EventSpec { encoding, period, privilege, extra, mode: mode as u8, ..EventSpec::default() }
        },
    )
}

fn extra_of(tagging: Tagging, mask: u16, pick: u8) -> u64 {
    let front_end = [TAG_LOADS, TAG_STORES, TAG_LOADS | TAG_STORES, 0];
    let replay =
        [1 << 32 | 1, 1 << 32 | 2, 1 << 32 | 4, 2 << 32 | 4, 3 << 32 | 4, 2 << 32 | 0x400, 0x7 << 32];
    match tagging {
        Tagging::None => 0,
        Tagging::FrontEnd => front_end[usize::from(pick) % front_end.len()],
        Tagging::Replay => replay[usize::from(pick) % replay.len()],
        Tagging::Execution => X87 | (1 << 4 | u64::from(mask | mask >> 4) << 5 & 0x1E0) << 32,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_refused_or_runs_without_a_fault(
        events in prop::collection::vec(any_event(), 1..=6),
        shared in any::<bool>(),
    ) {
        exercise(if shared { siblings() } else { alone() }, &config(&events));
    }
}

/// 18.15.5: an ESCR says what is counted, and the CCCR of a counter which ESCR that is; Enable is bit 12.
#[test]
fn what_somebody_else_counts_meanwhile_is_counted_on() {
    const MSR_FLAME_ESCR0: u32 = 0x3A6;
    const MSR_FLAME_CCCR0: u32 = 0x368;
    let escr = (MSR_FLAME_ESCR0, 0x0800_0204);
    let cccr = (MSR_FLAME_CCCR0, 1 << 12 | 3 << 16);
    for released in [false, true] {
        let mut rig = alone();
        rig.acquire();
        let session = rig.add_session(&config(&[counted(INSTRUCTIONS), loads(1000)]));
        rig::scene::start_thread(&mut rig, session);
        rig.run(0, 100, &[Load]);
        for (register, value) in [escr, cccr] {
            rig.intrude(0, register, value);
        }
        rig.stop(session);
        assert!(rig.is_intruded(0));
        if released {
            rig.release();
        }
        for (register, value) in [escr, cccr] {
            assert_eq!(rig.port(0).rdmsr(register), value, "{register:#x}");
        }
        let mut counters = (Unit { share: Share::Whole, prescott: true }).counters();
        let running = counters.find(|&number| {
            let register = 0x360 + number;
            register != MSR_FLAME_CCCR0 && rig.port(0).rdmsr(register) >> 12 & 1 == 1
        });
        assert_eq!(running, None, "a counter of hpm's runs on");
    }
}
