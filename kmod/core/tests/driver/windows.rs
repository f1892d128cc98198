//! Samples in windows (auto counter reload) against the model: how many there are follows from each window alone.

use crate::rig::core::Instruction::{self, Load, Plain, Store};
use crate::rig::scene::{
    config, counted, hybrid_of, interrupting, precise, start_thread, BRANCHES, INSTRUCTIONS, LOADS, STORES,
};
use crate::rig::Rig;
use hpm_abi::{CoreType, EventSpec, QuantumEnd, Reason, SessionConfig, SessionFlags};
use hpm_core::port::Port;
use hpm_core::registers::{IA32_PERF_GLOBAL_CTRL, IA32_PMC_GP0_CTR};
use hpm_core::Program;
use proptest::prelude::*;
use vpmu::profile::{Profile, CLEARWATER_FOREST, LUNAR_LAKE};
use vpmu::Options;

/// Where a general counter's CFG_B and CFG_C are, behind its CTR.
const CFG_B: u32 = 2;
const CFG_C: u32 = 3;

fn windowed(encoding: u64, period: u64) -> EventSpec {
    EventSpec { flags: EventSpec::WINDOWED, ..precise(encoding, period) }
}

fn window(length: u64) -> EventSpec {
    EventSpec { period: length, ..counted(INSTRUCTIONS) }
}

fn one_thread(events: &[EventSpec]) -> (Rig, usize, u32) {
    one_thread_of(&CLEARWATER_FOREST, events)
}

fn one_thread_of(core: &'static Profile, events: &[EventSpec]) -> (Rig, usize, u32) {
    let mut rig = Rig::of(core, 1, Options::default());
    rig.acquire();
    let core_type = rig.pmu.core_type as u8;
    let events: Vec<_> = events.iter().map(|event| EventSpec { core_type, ..*event }).collect();
    let session = rig.add_session(&config(&events));
    let tid = start_thread(&mut rig, session);
    (rig, session, tid)
}

/// A window's instructions, of which the first are loads.
fn dense(loads: usize, all: usize) -> Vec<Instruction> {
    (0..all).map(|number| if number < loads { Load } else { Plain }).collect()
}

#[test]
fn only_dense_windows_are_sampled_and_all_is_counted() {
    let (mut rig, session, tid) = one_thread(&[windowed(LOADS, 50), window(1000)]);
    for _ in 0..100 {
        rig.run(0, 1000, &dense(120, 1000));
        rig.run(0, 1000, &dense(49, 1000));
        rig.run(0, 1000, &dense(0, 1000));
        rig.cut(0, QuantumEnd::Timer);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[..2], [16_900, 300_000]);
    assert_eq!(seen.counts, rig.users[1].truth);
    // Without windows it would be every fiftieth of 16,900.
    assert_eq!((seen.records[0], seen.records_lost), (200, 0));
}

#[test]
fn several_events_share_the_windows() {
    let (mut rig, session, tid) = one_thread(&[windowed(LOADS, 20), window(100), windowed(STORES, 10)]);
    for _ in 0..500 {
        // Of the one every twentieth of 25, of the other none of 9.
        rig.run(0, 100, &[[Load; 25].as_slice(), &[Store; 9], &[Plain; 66]].concat());
        // Of the one none, of the other every tenth of 31.
        rig.run(0, 100, &[[Load; 19].as_slice(), &[Store; 31], &[Plain; 50]].concat());
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts, rig.users[1].truth);
    assert_eq!((seen.records[0], seen.records[2], seen.records_lost), (500, 1500, 0));
}

#[test]
fn a_window_begins_anew_where_a_thread_comes_to_the_cpu() {
    let (mut rig, session, _) = one_thread(&[windowed(LOADS, 50), window(1000)]);
    let other = rig.add_thread(Some(session));
    for _ in 0..100 {
        // 40 loads in each stay: never 50 in a window, whosever they are.
        for thread in [other, 1] {
            rig.switch(0, thread, QuantumEnd::Preempted);
            rig.run(0, 300, &dense(40, 300));
        }
    }
    rig.stop(session);
    rig.read_all();
    let threads = &rig.sessions[session].reader.threads;
    let records: u64 = threads.values().map(|seen| seen.records[0]).sum();
    assert_eq!(records, 0);
    for thread in [1, other] {
        assert_eq!(threads[&rig.users[thread].tid].counts, rig.users[thread].truth);
    }
}

/// Lion Cove's counters set nothing back: what measures windows is only counted there.
#[test]
fn on_cores_where_nothing_is_sampled_no_counter_measures_windows() {
    let mut rig = hybrid_of(&LUNAR_LAKE);
    let before = rig.registers();
    rig.acquire();
    let loads = EventSpec { core_type: CoreType::Atom as u8, ..windowed(LOADS, 50) };
    let session = rig.add_session(&config(&[loads, window(1000)]));
    let thread = rig.add_thread(Some(session));
    for cpu in [0, 1, 0, 1] {
        rig.switch(cpu, thread, QuantumEnd::Preempted);
        for _ in 0..10 {
            rig.run(cpu, 1000, &dense(120, 1000));
            rig.run(cpu, 1000, &dense(40, 1000));
        }
        rig.switch(cpu, cpu, QuantumEnd::Yielded);
    }
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
    assert_eq!(seen.counts[..2], [2 * 10 * 160, 4 * 20_000]);
    // Two for each of twenty dense windows on the efficient core.
    assert_eq!((seen.records[0], seen.records_lost), (40, 0));
    rig.release();
    assert_eq!(rig.registers(), before);
}

#[test]
fn what_could_not_be_written_is_not_counted_as_lost() {
    let mut request = config(&[windowed(LOADS, 50), window(1000)]);
    request.segments = 2;
    let mut rig = Rig::of(&CLEARWATER_FOREST, 1, Options::default());
    rig.acquire();
    let session = rig.add_session(&request);
    let tid = start_thread(&mut rig, session);
    rig.run(0, 200_000, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[..2], [200_000, 200_000]);
    assert!(seen.records[0] > 0 && seen.records[0] < 4000 && seen.records_lost == 0);
}

/// Loads and stores in turn: where a segment is full one of the two has passed its period, and its record is due.
#[test]
fn a_record_that_is_due_when_a_segment_is_full_is_written() {
    for core in [&CLEARWATER_FOREST, LUNAR_LAKE.of_cpu(1, 2)] {
        let events = [windowed(LOADS, 20), window(1_000_000), windowed(STORES, 20)];
        let (mut rig, session, tid) = one_thread_of(core, &events);
        for _ in 0..100 {
            rig.run(0, 9_999, &[Load, Store]);
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        assert!(rig.sessions[session].totals().pmis > 50);
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert_eq!(seen.counts, rig.users[1].truth);
        for event in [0, 2] {
            let all = seen.counts[event] / 20;
            // Where both are due the later one comes an event late, after which it counts anew.
            assert!(all - seen.records[event] < all / 100, "{} of {all}", seen.records[event]);
        }
    }
}

#[test]
fn a_record_that_is_due_when_its_thread_leaves_comes_when_it_is_back() {
    let (mut rig, session, tid) = one_thread(&[windowed(LOADS, 50), window(1000)]);
    for _ in 0..100 {
        // The last load passes the period, in each second round: the record that is due comes first in the others, and 47 are left.
        rig.run(0, 50, &[Load]);
        rig.switch(0, 0, QuantumEnd::Yielded);
        let other = rig.add_thread(Some(session));
        rig.switch(0, other, QuantumEnd::Preempted);
        rig.switch(0, 1, QuantumEnd::Preempted);
    }
    rig.run(0, 5, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.counts[0], seen.records[0]), (5005, 50));
}

/// Nothing keeps the kernel's perf out from version 6 on, and it writes neither register for an event that needs none.
#[test]
fn counters_that_somebody_else_takes_are_set_back_no_more() {
    let (mut rig, session, _) = one_thread(&[windowed(LOADS, 50), window(1000)]);
    rig.run(0, 500, &dense(120, 500));
    let settings = |rig: &Rig, counter: u32| {
        [CFG_B, CFG_C].map(|register| rig.port(0).rdmsr(IA32_PMC_GP0_CTR + 4 * counter + register))
    };
    let taken: Vec<u32> = (2..8).filter(|&counter| settings(&rig, counter)[0] != 0).collect();
    assert_eq!(taken.len(), 2, "what measures windows and what samples");
    for counter in &taken {
        // IA32_PERFEVTSELx: instructions in user and kernel mode.
        rig.intrude(0, 0x186 + counter, 0x43_00C0);
    }
    let started = taken.iter().fold(0, |bits, counter| bits | 1 << counter);
    rig.intrude(0, IA32_PERF_GLOBAL_CTRL, started);
    rig.stop(session);
    let count = |rig: &Rig, counter: u32| rig.port(0).rdmsr(IA32_PMC_GP0_CTR + 4 * counter);
    let before: Vec<u64> = taken.iter().map(|&counter| count(&rig, counter)).collect();
    rig.run(0, 5000, &[Load]);
    for (&counter, before) in taken.iter().zip(before) {
        assert_eq!(settings(&rig, counter), [0, 0]);
        assert_eq!(count(&rig, counter).wrapping_sub(before) & 0xFFFF_FFFF_FFFF, 5000);
    }
}

fn refused(events: &[EventSpec]) -> (Reason, [u64; 2]) {
    refused_on(&Rig::of(&CLEARWATER_FOREST, 1, Options::default()), &config(events))
}

fn refused_on(rig: &Rig, request: &SessionConfig) -> (Reason, [u64; 2]) {
    let refusal = Program::new(&rig.pmu, request).expect_err("refused");
    (refusal.reason, refusal.detail)
}

#[test]
fn windows_that_hardware_cannot_measure_are_refused() {
    let [loads, instructions] = [windowed(LOADS, 50), window(1000)];
    let skylake = Rig::new(1, Options::default());
    assert_eq!(refused_on(&skylake, &config(&[instructions, loads])), (Reason::NoReload, [1, 0]));
    let at = |index: usize, inside: usize| {
        let events = std::mem::offset_of!(SessionConfig, events);
        (Reason::Field, [(events + index * std::mem::size_of::<EventSpec>() + inside) as u64, 0])
    };
    let flags = std::mem::offset_of!(EventSpec, flags);
    let period = std::mem::offset_of!(EventSpec, period);
    let rate = std::mem::offset_of!(EventSpec, rate);
    // No window, or one that nothing is sampled in, or two.
    assert_eq!(refused(&[loads, counted(INSTRUCTIONS)]), at(0, flags));
    assert_eq!(refused(&[precise(LOADS, 100), instructions]), at(1, period));
    let branches = EventSpec { period: 100, ..counted(BRANCHES) };
    assert_eq!(refused(&[loads, instructions, branches]), at(2, period));
    // What the counters could not keep to.
    let randomised = EventSpec { flags: EventSpec::WINDOWED | EventSpec::RANDOMISE, ..loads };
    assert_eq!(refused(&[randomised, instructions]), at(0, flags));
    let by_interrupt = EventSpec { flags: EventSpec::WINDOWED, ..interrupting(LOADS, 100) };
    assert_eq!(refused(&[by_interrupt, instructions]), at(0, flags));
    assert_eq!(refused(&[EventSpec { rate: 1000, ..loads }, instructions]), at(0, rate));
    assert_eq!(refused(&[windowed(LOADS, 1 << 31), instructions]), at(0, period));
    assert_eq!(refused(&[loads, window(1 << 31)]), at(1, period));
    assert_eq!(refused(&[windowed(LOADS, 9), instructions]), (Reason::PeriodTooSmall, [0, 10]));
    assert_eq!(refused(&[loads, window(99)]), (Reason::PeriodTooSmall, [1, 100]));
    let turns = SessionConfig { flags: SessionFlags::MULTIPLEX, ..config(&[loads, instructions]) };
    let rig = Rig::of(&CLEARWATER_FOREST, 1, Options::default());
    let field = std::mem::offset_of!(SessionConfig, flags) as u64;
    assert_eq!(refused_on(&rig, &turns), (Reason::Field, [field, 0]));
}

/// The kernel's perf leaves CFG_B as it is when its events have stopped.
#[test]
fn what_was_left_in_cfg_b_sets_no_counter_of_hpms_back_and_is_given_back() {
    let mut rig = Rig::of(&CLEARWATER_FOREST, 1, Options::default());
    for counter in 2..8 {
        rig.intrude(0, IA32_PMC_GP0_CTR + 4 * counter + CFG_B, 0xFC);
        rig.intrude(0, IA32_PMC_GP0_CTR + 4 * counter + CFG_C, 0xFFFF_FF00);
    }
    rig.cores[0].borrow_mut().intruded = false;
    let before = rig.registers();
    rig.acquire();
    let events = [
        precise(LOADS, 100),
        precise(STORES, 100),
        counted(BRANCHES),
        counted(INSTRUCTIONS),
        EventSpec { privilege: EventSpec::KERNEL, ..counted(INSTRUCTIONS) },
    ];
    let session = rig.add_session(&config(&events));
    let tid = start_thread(&mut rig, session);
    rig.run(0, 100_000, &[Load, Store, Plain]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[..4], rig.users[1].truth[..4]);
    assert_eq!((seen.records[0], seen.records_lost), (33_334 / 100, 0));
    rig.release();
    assert_eq!(rig.registers(), before);
}

/// What hardware does with one event and its windows, told event by event.
struct Naive {
    length: u64,
    period: u64,
    in_window: u64,
    left: u64,
    /// It has overflowed, and its next event is recorded.
    due: bool,
    records: u64,
}

impl Naive {
    fn retire(&mut self, instruction: Instruction) {
        if instruction == Load {
            if std::mem::take(&mut self.due) {
                self.records += 1;
                self.left = self.period;
            }
            self.left -= 1;
            self.due |= self.left == 0;
        }
        self.in_window += 1;
        if self.in_window == self.length {
            (self.in_window, self.left) = (0, self.period);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_are_those_of_each_window(
        debug_store in any::<bool>(),
        length in 100..700u64,
        period in 10..200u64,
        parts in prop::collection::vec((0..300usize, 0..300usize), 1..40),
    ) {
        // Skymont's records go to the debug store, Darkmont's do not.
        let core = if debug_store { LUNAR_LAKE.of_cpu(1, 2) } else { &CLEARWATER_FOREST };
        let (mut rig, session, tid) = one_thread_of(core, &[windowed(LOADS, period), window(length)]);
        let mut naive = Naive { length, period, in_window: 0, left: period, due: false, records: 0 };
        for (loads, others) in parts {
            let part = dense(loads, loads + others);
            part.iter().for_each(|&instruction| naive.retire(instruction));
            rig.run(0, part.len(), &part);
            rig.cut(0, QuantumEnd::Timer);
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        let seen = &rig.sessions[session].reader.threads[&tid];
        prop_assert_eq!(seen.counts, rig.users[1].truth);
        prop_assert_eq!((seen.records[0], seen.records_lost), (naive.records, 0));
    }
}
