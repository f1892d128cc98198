//! Taking a CPU's PMU and giving it back, and knowing whose it is.

use crate::rig;
use crate::rig::core::Instruction::Load;
use crate::rig::scene::{config, counted, interrupting, precise, INSTRUCTIONS, LOADS};
use crate::rig::{foreign_nmi, Rig};
use hpm_abi::{QuantumEnd, Reason};
use hpm_core::port::Port;
use hpm_core::{Engine, Refusal};
use proptest::prelude::*;
use vpmu::profile::{self, amd, Profile};
use vpmu::Options;

fn write(rig: &Rig, register: u32, value: u64) {
    rig.cores[0].borrow_mut().pmu.wrmsr(register, value).expect("a legal value");
}

#[test]
fn every_register_is_given_back_as_it_was_found() {
    let mut rig = Rig::new(1, Options::default());
    // What another owner has left: programmed, but stopped by IA32_PERF_GLOBAL_CTRL.
    for (register, value) in [
        (0x38F, 0),
        (0x186, 0x0041_00C0),
        (0x187, 0x0053_4F2E),
        (0x4C1, 0xFFFF_1234_5678),
        (0x4C2, 77),
        (0x309, 0x8000_0000_0001),
        (0x38D, 0x0B3),
        (0x600, 0xffff_fe00_0000_2000),
    ] {
        write(&rig, register, value);
    }
    let before = rig.registers();
    rig.acquire();
    for events in [vec![precise(LOADS, 100), counted(INSTRUCTIONS)], vec![counted(LOADS)]] {
        let session = rig.add_session(&config(&events));
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 100_000, &[Load]);
        rig.switch(0, 0, QuantumEnd::Yielded);
        rig.stop(session);
    }
    assert_ne!(rig.registers(), before);
    rig.release();
    assert_eq!(rig.registers(), before);
}

/// As the kernel's perf leaves it when its last event has stopped.
#[test]
fn architectural_pebs_that_was_found_enabled_writes_nothing_until_it_is_given_back() {
    const IA32_PEBS_INDEX: u32 = 0x3F5;
    const EN: u64 = 1 << 32;
    let mut rig = Rig::of(&vpmu::profile::CLEARWATER_FOREST, 1, Options::default());
    write(&rig, IA32_PEBS_INDEX, EN);
    let before = rig.registers();
    rig.acquire();
    assert_eq!(rig.port(0).rdmsr(IA32_PEBS_INDEX) & EN, 0);
    rig.release();
    assert_eq!(rig.registers(), before);
}

/// Who allows records again finds no address of memory that may have been freed since.
#[test]
fn architectural_pebs_forgets_where_records_went_when_a_session_ends() {
    const IA32_PEBS_BASE: u32 = 0x3F4;
    let mut rig = Rig::of(&profile::CLEARWATER_FOREST, 1, Options::default());
    let before = rig.port(0).rdmsr(IA32_PEBS_BASE);
    rig.acquire();
    let session = rig.add_session(&config(&[precise(LOADS, 100)]));
    rig::scene::start_thread(&mut rig, session);
    rig.run(0, 1000, &[Load]);
    assert_ne!(rig.port(0).rdmsr(IA32_PEBS_BASE), before);
    rig.stop(session);
    assert_eq!(rig.port(0).rdmsr(IA32_PEBS_BASE), before);
}

#[test]
fn a_running_counter_is_refused_and_left_alone() {
    for (register, value, global) in [(0x186, 0x0041_00C0, 1), (0x38D, 0x20, 1 << 33)] {
        let rig = Rig::new(1, Options::default());
        write(&rig, register, value);
        write(&rig, 0x38F, global);
        let before = rig.registers();
        let refusal = Engine::new(0).acquire(&mut rig.port(0), &rig.pmu);
        assert_eq!(refusal, Err(Refusal::new(Reason::CountersRunning, [register.into(), value])));
        assert_eq!(rig.registers(), before);
    }
}

/// Lion Cove has ten, of which hpm uses eight; to stop it would stop the others, too.
#[test]
fn a_running_counter_that_hpm_does_not_use_is_refused_too() {
    const CFG_A_OF_9: u32 = 0x1900 + 4 * 9 + 1;
    let rig = Rig::of(&profile::LUNAR_LAKE, 1, Options::default());
    write(&rig, 0x38F, 0x3FF);
    assert!(
        Engine::new(0).acquire(&mut rig.port(0), &rig.pmu).is_ok(),
        "the kernel's perf enables all of them"
    );
    let rig = Rig::of(&profile::LUNAR_LAKE, 1, Options::default());
    write(&rig, 0x38F, 0x3FF);
    write(&rig, CFG_A_OF_9, 0x0041_00C0);
    let refusal = Engine::new(0).acquire(&mut rig.port(0), &rig.pmu);
    assert_eq!(refusal, Err(Refusal::new(Reason::CountersRunning, [CFG_A_OF_9.into(), 0x0041_00C0])));
}

/// Registers of somebody else's counters: each counter's event select, and what starts it; and one that starts all.
struct Intruder {
    profile: &'static Profile,
    /// The first event select and counter, and how far apart two are.
    selects: (u32, u32),
    counters: (u32, u32),
    event: u64,
    /// The register that starts counters together, if there is one.
    starts: Option<u32>,
}

const INTRUDERS: [Intruder; 6] = [
    Intruder::of_intel(&profile::NEHALEM),
    Intruder::of_intel(&profile::SKYLAKE),
    Intruder::of_intel(&profile::SAPPHIRE_RAPIDS),
    Intruder::of_intel(&profile::CLEARWATER_FOREST),
    Intruder { starts: None, ..Intruder::of_amd(&amd::ZEN_3) },
    Intruder::of_amd(&amd::ZEN_4),
];

/// IA32_FIXED_CTR1, by its bit in IA32_PERF_GLOBAL_CTRL.
const FIXED: u32 = 33;

impl Intruder {
    const fn of_intel(profile: &'static Profile) -> Self {
        let (selects, counters) = ((0x186, 1), (0xC1, 1));
        Self { profile, selects, counters, event: 0x43_00C0, starts: Some(0x38F) }
    }

    const fn of_amd(profile: &'static Profile) -> Self {
        let (selects, counters) = ((0xC001_0200, 2), (0xC001_0201, 2));
        Self { profile, selects, counters, event: 0x43_00C0, starts: Some(0xC000_0301) }
    }

    fn select(&self, number: u32) -> u32 {
        self.selects.0 + number * self.selects.1
    }

    fn counter(&self, number: u32) -> u32 {
        if number == FIXED {
            0x30A
        } else {
            self.counters.0 + number * self.counters.1
        }
    }

    /// The select that lets it count instructions, or cycles of the fixed one.
    fn selected(&self, number: u32) -> (u32, u64) {
        if number == FIXED {
            (0x38D, 0x30)
        } else {
            (self.select(number), self.event)
        }
    }

    /// Programs counters behind the session's back, and says what is to be found in which register for as long as they count.
    fn program(&self, rig: &Rig, numbers: &[u32]) -> Vec<(u32, u64)> {
        let selects = numbers.iter().map(|&number| self.selected(number));
        let bits = numbers.iter().fold(0_u64, |bits, number| bits | 1 << number);
        rig.cores[0].borrow_mut().intruded = true;
        let written: Vec<_> = selects.chain(self.starts.map(|register| (register, bits))).collect();
        written.iter().for_each(|&(register, value)| write(rig, register, value));
        written
    }
}

proptest! {
    /// Nothing keeps out who writes registers himself, or the kernel's perf from PerfMon version 6 on.
    #[test]
    fn what_somebody_else_counts_meanwhile_is_counted_on(
        place in 0..INTRUDERS.len(),
        numbers in proptest::sample::subsequence(vec![0, 1, 2, 3, FIXED], 1..=5),
        sampled in any::<bool>(),
        released in any::<bool>(),
    ) {
        let intruder = &INTRUDERS[place];
        let has = |number: &u32| *number != FIXED || intruder.profile.amd().is_none();
        let numbers: Vec<_> = numbers.into_iter().filter(has).collect();
        prop_assume!(!numbers.is_empty());
        let mut rig = Rig::of(intruder.profile, 1, Options::default());
        rig.acquire();
        let event = if sampled { interrupting(INSTRUCTIONS, 1000) } else { counted(INSTRUCTIONS) };
        let session = rig.add_session(&config(&[event, counted(if intruder.profile.amd().is_some() { 0xC2 } else { 0xC4 })]));
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 100, &[Load]);
        let written = intruder.program(&rig, &numbers);
        let stands = |rig: &Rig| {
            written.iter().all(|&(register, value)| match rig.port(0).rdmsr(register) {
                // Counters that are not programmed may be started, too.
                found if Some(register) == intruder.starts => found & value == value,
                found => found == value,
            })
        };
        rig.stop(session);
        prop_assert!(stands(&rig), "after the session: {:x?}", rig.registers());
        prop_assert!(rig.is_intruded(0));
        if released {
            rig.release();
            prop_assert!(stands(&rig), "after it was given back: {:x?}", rig.registers());
        }
        let selects = (0..4).filter(|number| !numbers.contains(number)).map(|number| intruder.select(number));
        let others: Vec<_> = selects.map(|select| rig.port(0).rdmsr(select)).collect();
        prop_assert!(others.iter().all(|&select| select == 0), "hpm's counters run on: {others:x?}");
        let general = numbers.iter().filter(|&&number| number != FIXED);
        let read = |rig: &Rig| general.clone().map(|&number| rig.port(0).rdmsr(intruder.counter(number))).collect();
        let before: Vec<u64> = read(&rig);
        rig.run(0, 500, &[Load]);
        let after: Vec<u64> = read(&rig);
        prop_assert!(before.iter().zip(&after).all(|(before, after)| after - before >= 500), "{before:?} {after:?}");
    }
}

#[test]
fn no_counter_runs_after_a_session_has_stopped() {
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    let session = rig.add_session(&config(&[counted(INSTRUCTIONS), precise(LOADS, 100)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 1000, &[Load]);
    rig.stop(session);
    let stopped = rig.registers();
    // Not even if somebody else writes IA32_PERF_GLOBAL_CTRL.
    let enabled = |register| [0x186, 0x187, 0x188, 0x189, 0x38D, 0x3F1].contains(&register);
    assert!(stopped.iter().all(|&(register, value)| !enabled(register) || value == 0));
    rig.run(0, 1000, &[Load]);
    assert_eq!(rig.registers(), stopped);
}

#[test]
fn an_nmi_that_is_not_a_pmi_is_left_to_others() {
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    let session = rig.add_session(&config(&[precise(LOADS, 1000)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 1500, &[Load]);
    assert!(!foreign_nmi(&rig, 0));
    rig.run(0, 1000, &[Load]);
    rig.stop(session);
    rig.read_all();
    assert_eq!(rig.sessions[session].totals().records, 2);
}

/// Its indication can be gone: the counter has another session's event by the time the NMI comes. Linux would complain of it.
#[test]
fn an_nmi_of_a_pmi_whose_indication_is_gone_is_taken() {
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    rig.cores[0].borrow_mut().machine.lvtpc_masked = true;
    assert!(foreign_nmi(&rig, 0));
    // Its acknowledgement has unmasked LVTPC, and so the next is nobody's.
    assert!(!foreign_nmi(&rig, 0));
}
