//! Counter pages against the model: what a thread reads of itself, and what others are told of it.

use std::sync::atomic::Ordering;

use crate::rig::core::Instruction::{Branch, Load, Plain, Store};
use crate::rig::scene::{acquired, config, counted, precise, INSTRUCTIONS, LOADS, STORES};
use crate::rig::Rig;
use hpm_abi::{
    CounterPageFlags, CounterReading, EventSpec, QuantumEnd, SessionConfig, COUNT_ABSENT, COUNT_ASK,
    COUNT_HELD, EVENTS_MAX,
};
use hpm_core::counters;
use vpmu::profile::CLEARWATER_FOREST;
use vpmu::Options;

fn with_pages(events: &[EventSpec]) -> SessionConfig {
    SessionConfig { flags: hpm_abi::SessionFlags::COUNTER_PAGES, ..config(events) }
}

/// What the thread on this CPU reads of an event, as `hpm_abi::counters` says; `None` when it has to ask.
fn read_self(rig: &Rig, session: usize, page: usize, cpu: usize, event: usize) -> Option<u64> {
    let page = &rig.sessions[session].pages[page];
    assert_eq!(page.sequence.load(Ordering::Relaxed) % 2, 0, "nobody writes now");
    let event = &page.events[event];
    let base = event.base.load(Ordering::Relaxed);
    match event.counter.load(Ordering::Relaxed) {
        COUNT_HELD | COUNT_ABSENT => Some(base),
        COUNT_ASK => None,
        counter => {
            let value = rig.cores[cpu].borrow_mut().pmu.user_rdpmc(counter).expect("a counter that exists");
            let counted = value.wrapping_sub(event.start.load(Ordering::Relaxed));
            Some(base + (counted & event.mask.load(Ordering::Relaxed)))
        }
    }
}

fn reading(rig: &Rig, session: usize, page: usize) -> CounterReading {
    let mut reading = CounterReading::default();
    assert!(counters::reading(&rig.sessions[session].pages[page], &mut reading));
    reading
}

#[test]
fn a_thread_reads_itself_exactly_wherever_it_runs() {
    let mut rig = acquired(2);
    let session = rig.add_session(&with_pages(&[counted(INSTRUCTIONS), counted(LOADS), counted(STORES)]));
    let other = rig.add_thread(Some(session));
    let thread = rig.add_thread(Some(session));
    let page = rig.open_page(session, thread);
    for round in 0..50 {
        let cpu = round % 2;
        rig.switch(cpu, thread, QuantumEnd::Preempted);
        rig.run(cpu, 10 + round, &[Load, Store, Store]);
        for event in 0..3 {
            let truth = rig.users[thread].truth[event];
            assert_eq!(read_self(&rig, session, page, cpu, event), Some(truth));
        }
        rig.cut(cpu, QuantumEnd::Timer);
        rig.run(cpu, 7, &[Load, Plain]);
        assert_eq!(read_self(&rig, session, page, cpu, 1), Some(rig.users[thread].truth[1]));
        // Sometimes straight to a thread of the same session, sometimes to one of nobody.
        rig.switch(cpu, if round % 3 == 0 { other } else { cpu }, QuantumEnd::Yielded);
        rig.run(cpu, 20, &[Load, Store]);
        rig.switch(cpu, cpu, QuantumEnd::Yielded);
        let said = reading(&rig, session, page);
        assert_eq!(said.counts, rig.users[thread].truth, "what others read of it while it sleeps");
        assert_eq!(said.tid, rig.users[thread].tid);
        assert_eq!(said.running_tsc[0], said.enabled_tsc);
    }
}

#[test]
fn a_page_begins_to_count_when_it_is_made_and_others_learn_the_count_of_a_running_thread() {
    let mut rig = acquired(1);
    let session = rig.add_session(&with_pages(&[counted(LOADS)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 100, &[Load]);
    let page = rig.open_page(session, thread);
    rig.refresh(session, 0);
    rig.run(0, 40, &[Load]);
    assert_eq!(read_self(&rig, session, page, 0, 0), Some(40));
    rig.refresh(session, 0);
    assert_eq!(reading(&rig, session, page).counts[0], 40);
    rig.run(0, 5, &[Load]);
    assert_eq!(read_self(&rig, session, page, 0, 0), Some(45));
    rig.switch(0, 0, QuantumEnd::Yielded);
    rig.stop(session);
    rig.read_all();
    assert_eq!(reading(&rig, session, page).counts[0], 45);
    assert_eq!(rig.sessions[session].totals().counts[0], 145, "reading takes nothing from the session");
}

#[test]
fn reading_goes_on_beside_pebs() {
    let mut rig = acquired(1);
    let session = rig.add_session(&with_pages(&[precise(LOADS, 101), counted(INSTRUCTIONS)]));
    let thread = rig.add_thread(Some(session));
    let page = rig.open_page(session, thread);
    rig.switch(0, thread, QuantumEnd::Preempted);
    for _ in 0..200 {
        rig.run(0, 77, &[Load, Plain, Branch]);
        assert_eq!(read_self(&rig, session, page, 0, 0), Some(rig.users[thread].truth[0]));
        assert_eq!(read_self(&rig, session, page, 0, 1), Some(rig.users[thread].truth[1]));
    }
    assert!(rig.cores[0].borrow().written > 50, "records were written meanwhile");
}

#[test]
fn an_event_that_only_its_sampling_counter_counts_is_asked_for() {
    let mut rig = acquired(1);
    // Four precise events take the four counters, and leave none for a second one each.
    let events = [precise(LOADS, 500), precise(STORES, 500), precise(0x04C4, 500), precise(0x01C4, 500)];
    let session = rig.add_session(&with_pages(&events));
    let thread = rig.add_thread(Some(session));
    let page = rig.open_page(session, thread);
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run_unjudged(0, 1234, &[Load, Store]);
    assert_eq!(read_self(&rig, session, page, 0, 0), None);
    rig.refresh(session, 0);
    assert_eq!(reading(&rig, session, page).counts[..2], [617, 617]);
}

#[test]
fn without_the_right_the_page_names_no_counter() {
    let mut rig = acquired(1);
    let session = rig.add_session(&with_pages(&[counted(LOADS)]));
    let thread = rig.add_thread(Some(session));
    let page = rig.open_page(session, thread);
    rig.sessions[session].pages[page].flags.fetch_and(!CounterPageFlags::MAY_RDPMC, Ordering::Relaxed);
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 10, &[Load]);
    assert_eq!(read_self(&rig, session, page, 0, 0), None);
}

#[test]
fn a_thread_that_exits_leaves_its_last_counts_and_its_page_to_the_next() {
    let mut rig = acquired(1);
    let session = rig.add_session(&with_pages(&[counted(LOADS)]));
    let thread = rig.add_thread(Some(session));
    let page = rig.open_page(session, thread);
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 10, &[Load]);
    rig.switch(0, 0, QuantumEnd::Exit);
    assert_eq!(reading(&rig, session, page).counts[0], 10);
    let keys = &rig.sessions[session].keys;
    let tid = rig.users[thread].tid;
    assert_eq!(keys.find(tid), None);
    keys.assign(page, tid);
    assert_eq!(keys.find(0), None, "the idle thread of a CPU has no page, though others have");
    keys.forget(tid);
    assert_eq!(keys.find(tid), None);
    assert_ne!(keys.claim(tid, |_| false), Some(page), "somebody still looks at it");
    assert_eq!(keys.claim(tid, |_| true), Some(page));
}

#[test]
fn a_foreign_thread_that_may_use_rdpmc_finds_nothing() {
    let mut rig = acquired(1);
    let session =
        rig.add_session(&with_pages(&[counted(INSTRUCTIONS), counted(LOADS), precise(STORES, 1000)]));
    let thread = rig.add_thread(Some(session));
    for _ in 0..3 {
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 100, &[Load, Store]);
        rig.switch(0, 0, QuantumEnd::Yielded);
        rig.conceal(0);
        rig.run(0, 50, &[Load]);
        let pmu = &mut rig.cores[0].borrow_mut().pmu;
        let mut counters = (0..4).chain((0..3).map(|number| 1 << 30 | number));
        assert!(counters.all(|counter| pmu.rdpmc(counter) == Ok(0)));
    }
    rig.stop(session);
    let mut expected = [0; EVENTS_MAX];
    expected[..3].copy_from_slice(&[300, 150, 150]);
    assert_eq!(rig.sessions[session].totals().counts, expected);
}

/// What RDPMC reads of all counters that the first CPU has, in user mode or not.
fn all_counters(rig: &Rig, user: bool) -> Vec<u64> {
    let pmu = &mut rig.cores[0].borrow_mut().pmu;
    let ecx = (0..8).chain([0, 1, 2, 4, 5, 6].map(|number| 1 << 30 | number));
    ecx.map(|ecx| if user { pmu.user_rdpmc(ecx) } else { pmu.rdpmc(ecx) }.expect("a counter")).collect()
}

/// RDPMC user disable (CPUID.23H.0:EBX bit 2), which no part of the model has by itself.
#[test]
fn where_the_processor_can_counters_are_kept_from_user_mode() {
    let mut rig = Rig::of(&CLEARWATER_FOREST, 1, Options { rdpmc_user_disable: true, ..Options::default() });
    let before = rig.registers();
    rig.acquire();
    let events = [counted(INSTRUCTIONS), counted(LOADS), precise(STORES, 1000)];
    // A process that may use RDPMC comes before anybody conceals anything.
    let session = rig.add_session(&config(&events));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 100, &[Load, Store]);
    assert!(all_counters(&rig, false).iter().filter(|value| **value != 0).count() >= 3);
    assert!(all_counters(&rig, true).iter().all(|value| *value == 0), "a session without pages");
    rig.stop(session);
    assert!(all_counters(&rig, false).iter().any(|value| *value != 0), "it left values");
    assert!(all_counters(&rig, true).iter().all(|value| *value == 0), "what it left");
    let session = rig.add_session(&with_pages(&events));
    let thread = rig.add_thread(Some(session));
    let page = rig.open_page(session, thread);
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 100, &[Load, Store]);
    for (event, count) in [100, 50].into_iter().enumerate() {
        assert_eq!(read_self(&rig, session, page, 0, event), Some(count));
    }
    // Those of three events, of which one has a second counter that samples; that one, too, is nobody's to read.
    let [shown, there] = [true, false].map(|user| all_counters(&rig, user));
    let differ = shown.iter().zip(&there).filter(|(shown, there)| shown != there);
    assert!(
        differ.count() >= 1 && shown.iter().zip(&there).all(|(shown, there)| *shown == 0 || shown == there)
    );
    rig.stop(session);
    rig.release();
    assert_eq!(rig.registers(), before);
}
