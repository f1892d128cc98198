//! Requests: refused with a reason, or programmed so that the model raises no fault.

use std::mem::offset_of;

use crate::rig::scene::{
    config, counted, exercise, precise, INSTRUCTIONS, LOADS, PRECISE_INSTRUCTIONS, STORES,
};
use crate::rig::Rig;
use hpm_abi::{
    EventSpec, QuantumEnd, Reason, Scope, SessionConfig, SessionFlags, ABI_VERSION, EVENTS_MAX, SEGMENT_BYTES,
};
use hpm_core::allocate::{allocate, Assignment, Counter, CounterSet, COUNTERS_MAX};
use hpm_core::events::{Event, Sampling, Way, PERIOD_MIN};
use hpm_core::port::Port;
use hpm_core::registers::{PerfEvtSel, IA32_PERFEVTSEL0};
use hpm_core::{Program, Refusal};
use proptest::prelude::*;
use vpmu::Options;

fn refusal(request: &SessionConfig) -> Refusal {
    let pmu = Rig::new(1, Options::default()).pmu;
    Program::new(&pmu, request).expect_err("not a valid request")
}

#[test]
fn an_event_that_the_pmu_does_not_have_is_refused_with_the_bits() {
    for (encoding, bits) in [
        (0x0001_00C0, 0x0001_0000), // USR is not the caller's to set.
        (0x0021_00C0, 0x0021_0000), // Nor is ANYTHREAD.
        (0x0010_00C0, 0x0010_0000), // Nor INT.
        (0x1_0000_00C0, 0x1_0000_0000),
        (0x10_0100_00C0, 0x10_0000_0000), // EQ, before version 6.
        (0x00FF, 0xFF),                   // No such event select.
        (0x10C0, 0x1000),
        (0x0400, 0x0400),
    ] {
        let events = [counted(INSTRUCTIONS), counted(encoding)];
        assert_eq!(refusal(&config(&events)), Refusal::new(Reason::EventBits, [1, bits]), "{encoding:#x}");
    }
}

#[test]
fn precise_requests_are_refused_with_what_stands_in_the_way() {
    let case = |event| refusal(&config(&[event]));
    assert_eq!(case(precise(INSTRUCTIONS, 1000)), Refusal::new(Reason::NotPrecise, [0, 0]));
    // A counter mask makes another event of it.
    assert_eq!(case(precise(LOADS | 1 << 24, 1000)), Refusal::new(Reason::NotPrecise, [0, 0]));
    let too_small = Refusal::new(Reason::PeriodTooSmall, [0, PERIOD_MIN]);
    assert_eq!(case(precise(LOADS, PERIOD_MIN - 1)), too_small);
    let period = offset_of!(SessionConfig, events) + offset_of!(EventSpec, period);
    assert_eq!(case(precise(LOADS, 1 << 47)), Refusal::field(period));
    assert_eq!(case(EventSpec { period: 1, ..counted(LOADS) }), Refusal::field(period));
    let mut pmu = Rig::new(1, Options::default()).pmu;
    pmu.pebs = Err(Refusal::new(Reason::NoPebs, [0; 2]));
    let refused = Program::new(&pmu, &config(&[precise(LOADS, 1000)])).expect_err("no PEBS");
    assert_eq!(refused.reason, Reason::NoPebs);
}

#[test]
fn architectural_pebs_has_periods_of_31_bits() {
    let pmu = Rig::of(&vpmu::profile::CLEARWATER_FOREST, 1, Options::default()).pmu;
    let period = offset_of!(SessionConfig, events) + offset_of!(EventSpec, period);
    let refused = |period| Program::new(&pmu, &config(&[precise(LOADS, period)])).err();
    assert_eq!(refused((1 << 31) - 1), None);
    for longer in [1 << 31, 1 << 32, (1 << 32) + 1] {
        assert_eq!(refused(longer), Some(Refusal::field(period)), "{longer}");
    }
}

/// Of what version 6 adds to event selects the model enumerates EQ, and no second unit mask.
#[test]
fn what_version_6_enumerates_is_programmed() {
    let mut rig = Rig::of(&vpmu::profile::CLEARWATER_FOREST, 1, Options::default());
    rig.acquire();
    let session = rig.add_session(&config(&[counted(INSTRUCTIONS | 1 << 24 | 1 << 36)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    let mut port = rig.port(0);
    let mut selects = (0..8).map(|counter| PerfEvtSel(port.rdmsr(IA32_PERFEVTSEL0 + counter)));
    assert!(selects.any(|select| (select.event_select(), select.eq(), select.cmask()) == (0xC0, 1, 1)));
    let request = config(&[counted(INSTRUCTIONS | 1 << 40)]);
    let refused = Program::new(&rig.pmu, &request).expect_err("there is no second unit mask");
    assert_eq!(refused, Refusal::new(Reason::EventBits, [0, 1 << 40]));
}

#[test]
fn events_that_do_not_fit_name_the_first_without_a_place() {
    let loads = [counted(LOADS); 5];
    assert_eq!(refusal(&config(&loads)), Refusal::new(Reason::NoCounter, [4, 0]));
    // PREC_DIST writes records from one counter only.
    let twice = [precise(PRECISE_INSTRUCTIONS, 1000); 2];
    assert_eq!(refusal(&config(&twice)), Refusal::new(Reason::NoCounter, [1, 0]));
}

#[test]
fn fixed_counters_make_room_for_other_events() {
    let rig = Rig::new(1, Options::default());
    let mut events = [counted(LOADS); 7];
    (events[4], events[5], events[6]) = (counted(INSTRUCTIONS), counted(0x003C), counted(0x0300));
    Program::new(&rig.pmu, &config(&events)).expect("four general and three fixed counters");
    // Fixed counters neither invert nor compare.
    events[4].encoding |= 1 << 24;
    assert_eq!(refusal(&config(&events)), Refusal::new(Reason::NoCounter, [4, 0]));
}

#[test]
fn each_field_is_checked() {
    type Change = fn(&mut SessionConfig);
    let valid = config(&[precise(LOADS, 1000)]);
    let first = offset_of!(SessionConfig, events);
    let cases: &[(usize, Change)] = &[
        (offset_of!(hpm_abi::Envelope, size), |c| c.envelope.size -= 8),
        (offset_of!(hpm_abi::Envelope, reserved), |c| c.envelope.reserved = 1),
        (offset_of!(SessionConfig, scope), |c| c.scope = 5),
        (offset_of!(SessionConfig, pid), |c| c.pid = 0),
        (offset_of!(SessionConfig, pid), |c| c.pid = -1),
        (offset_of!(SessionConfig, pid), |c| c.scope = Scope::System as u32),
        (offset_of!(SessionConfig, flags), |c| c.flags = SessionFlags::ALL + 1),
        (offset_of!(SessionConfig, event_count), |c| c.event_count = 0),
        (offset_of!(SessionConfig, event_count), |c| c.event_count = 17),
        (first + size_of::<EventSpec>(), |c| c.events[1].encoding = 1),
        (first + offset_of!(EventSpec, mode), |c| (c.events[0].mode, c.segments) = (4, 0)),
        (first + offset_of!(EventSpec, rate), |c| c.events[0].rate = 1_000_001),
        (first + offset_of!(EventSpec, flags), |c| c.events[0].flags = 4),
        (first + offset_of!(EventSpec, privilege), |c| c.events[0].privilege = 0),
        (first + offset_of!(EventSpec, privilege), |c| c.events[0].privilege = 4),
        (first + offset_of!(EventSpec, reserved), |c| c.events[0].reserved[3] = 1),
        (offset_of!(SessionConfig, segments), |c| c.segments = 1),
        (offset_of!(SessionConfig, segments), |c| c.segments = 257),
        (offset_of!(SessionConfig, segment_bytes), |c| c.segment_bytes = SEGMENT_BYTES - 1),
        (offset_of!(SessionConfig, reserved), |c| c.reserved = 1),
        (offset_of!(SessionConfig, quanta), |c| c.quanta = 96),
        (offset_of!(SessionConfig, quanta), |c| c.quanta = 1 << 17),
        (offset_of!(SessionConfig, stack_bytes), |c| c.stack_bytes = 1000),
        (offset_of!(SessionConfig, frames), |c| c.frames = 255),
        (offset_of!(SessionConfig, stack_ring_bytes), |c| c.frames = 16),
        (offset_of!(SessionConfig, stack_ring_bytes), |c| c.stack_bytes = 1024),
        (offset_of!(SessionConfig, stack_ring_bytes), |c| c.stack_ring_bytes = 1 << 16),
        (offset_of!(SessionConfig, branch_filter), |c| c.branch_filter = 1),
        (offset_of!(SessionConfig, branch_filter), |c| (c.branches, c.branch_filter) = (8, 1 << 8)),
        (offset_of!(SessionConfig, branch_filter), |c| (c.branches, c.branch_filter) = (8, 1 << 7 | 1)),
        (offset_of!(SessionConfig, wake_ms), |c| c.wake_ms = 9),
        (offset_of!(SessionConfig, wake_ms), |c| c.wake_ms = 10_001),
        (offset_of!(SessionConfig, max_quantum_ns), |c| c.max_quantum_ns = 1),
        (offset_of!(SessionConfig, max_threads), |c| c.max_threads = 1 << 20),
        (offset_of!(SessionConfig, pid), |c| c.scope = Scope::Cgroup as u32),
        (offset_of!(SessionConfig, flags), |c| {
            (c.scope, c.flags) = (Scope::Thread as u32, SessionFlags::INHERIT);
        }),
        (offset_of!(SessionConfig, flags), |c| c.flags = SessionFlags::ONE_CPU),
        (offset_of!(SessionConfig, cpu), |c| c.cpu = 1),
        (offset_of!(SessionConfig, cgroup_fd), |c| c.cgroup_fd = 1),
        (offset_of!(SessionConfig, cgroup_fd), |c| {
            (c.scope, c.pid, c.cgroup_fd) = (Scope::Cgroup as u32, 0, -1);
        }),
        (offset_of!(SessionConfig, proof_fd), |c| c.proof_fd = 3),
        (offset_of!(SessionConfig, proof_fd), |c| (c.flags, c.proof_fd) = (SessionFlags::PROOF, -1)),
    ];
    for &(offset, change) in cases {
        let mut request = valid;
        change(&mut request);
        assert_eq!(refusal(&request), Refusal::field(offset));
    }
    let mut other = valid;
    other.envelope.version += 1;
    assert_eq!(refusal(&other), Refusal::new(Reason::Version, [ABI_VERSION.into(), 0]));
}

#[test]
fn defaults_are_filled_in() {
    let rig = Rig::new(1, Options::default());
    let program = Program::new(&rig.pmu, &config(&[counted(STORES)])).expect("valid");
    assert_eq!(program.config().segment_bytes, SEGMENT_BYTES);
    assert_eq!((program.config().max_quantum_ns, program.config().max_threads), (10_000_000, 4096));
    assert_eq!(program.config().wake_ms, 50);
    assert!(!program.samples() && !program.sees_kernel());
}

/// Mostly events that exist.
fn any_event() -> impl Strategy<Value = EventSpec> {
    let known =
        vec![INSTRUCTIONS, LOADS, STORES, 0x04C4, 0x01C0, 0x003C, 0x0300, 0x08D1, 0x3F24, 0x04A3 | 4 << 24];
    let precise_ones = vec![LOADS, STORES, 0x04C4, 0x01C0, 0x08D1];
    let privilege = 1..4u8;
    let count = (prop::sample::select(known), privilege.clone())
        .prop_map(|(encoding, privilege)| EventSpec { privilege, ..counted(encoding) });
    let sample =
        (prop::sample::select(precise_ones), prop_oneof![100..5000u64, Just((1 << 47) - 1)], privilege)
            .prop_map(|(encoding, period, privilege)| EventSpec { privilege, ..precise(encoding, period) });
    let modified =
        (any::<u64>(), 0..0x1_0000u64).prop_map(|(bits, encoding)| counted(encoding | bits & 0xFF84_0000));
    let anything =
        (any::<u64>(), any::<u64>(), 0..4u8, any::<u8>()).prop_map(|(encoding, period, mode, privilege)| {
            EventSpec { encoding, period, mode, privilege, ..EventSpec::default() }
        });
    prop_oneof![20 => count, 10 => sample, 2 => modified, 1 => anything]
}

fn any_request() -> impl Strategy<Value = SessionConfig> {
    (prop::collection::vec(any_event(), 1..=6), 1..6u32, any::<bool>(), 0..3u32).prop_map(
        |(events, segments, stacks, max_threads)| {
            let mut request = config(&events);
            request.segments = if request.segments > 0 || segments == 5 { segments } else { 0 };
            if stacks && request.segments > 0 {
                (request.stack_bytes, request.stack_ring_bytes) = (2048, 1 << 16);
            }
            SessionConfig { max_threads, ..request }
        },
    )
}

/// Each event's wants and whether it samples, with few counters so that many sets do not fit.
fn any_wants() -> impl Strategy<Value = Vec<Event>> {
    let event = (1..16u16, prop::option::of(0..3u32), any::<bool>()).prop_map(|(general, fixed, samples)| {
        let general = CounterSet::general(general);
        let fixed = fixed.map_or(CounterSet::EMPTY, CounterSet::one_fixed);
        let sampling = samples.then_some(Sampling {
            way: Way::Pebs,
            period: 1000,
            encoding: 0,
            counters: general,
            pebs_enable: 0,
        });
        Event { counters: general.union(fixed), sampling, ..Event::NONE }
    });
    prop::collection::vec(event, 1..9)
}

/// Whether all needs can be met at once, by trying everything.
fn fits(needs: &[CounterSet], taken: u32) -> bool {
    needs.split_first().is_none_or(|(first, rest)| {
        first.iter().any(|counter| {
            let bit = 1 << counter.place();
            taken & bit == 0 && fits(rest, taken | bit)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_refused_or_runs_without_a_fault(request in any_request()) {
        exercise(Rig::new(1, Options::default()), &request);
    }

    #[test]
    fn counters_are_found_whenever_an_assignment_exists(events in any_wants()) {
        let needs: Vec<_> =
            events.iter().map(|event| event.sampling.map_or(event.counters, |how| how.counters)).collect();
        let first_misfit = (1..=needs.len()).find(|&count| !fits(&needs[..count], 0));
        match allocate(&events, u32::MAX) {
            Err(refusal) => {
                let index = first_misfit.expect("refused without need") - 1;
                prop_assert_eq!(refusal, Refusal::new(Reason::NoCounter, [index as u64, 0]));
            }
            Ok(assignments) => {
                prop_assert_eq!(first_misfit, None);
                check_assignments(&events, &assignments);
            }
        }
    }
}

/// Hardware that distributes samples precisely does so on its lowest counters; the events' own counts leave them alone.
#[test]
fn records_come_from_the_lowest_counters_and_counts_from_the_highest() {
    let sampling = Sampling {
        way: Way::Pebs,
        period: 1000,
        encoding: 0,
        counters: CounterSet::general(0xF),
        pebs_enable: 0,
    };
    let event = Event { counters: CounterSet::general(0xF), sampling: Some(sampling), ..Event::NONE };
    let [first, second, ..] = allocate(&[event, event], u32::MAX).expect("four counters for four uses");
    let bit = |counter: Option<Counter>| counter.map(Counter::bit);
    assert_eq!([first.sampling, second.sampling].map(bit), [Some(0), Some(1)]);
    assert_eq!([first.counting, second.counting].map(bit), [Some(3), Some(2)]);
}

fn check_assignments(events: &[Event], assignments: &[Assignment; EVENTS_MAX]) {
    let mut used = [false; COUNTERS_MAX];
    for (event, assignment) in events.iter().zip(assignments) {
        assert_eq!(assignment.sampling.is_some(), event.sampling.is_some());
        assert!(assignment.counting.is_some() || event.sampling.is_some());
        let sampling =
            assignment.sampling.map(|counter| (counter, event.sampling.expect("samples").counters));
        let counting = assignment.counting.map(|counter| (counter, event.counters));
        for (counter, allowed) in sampling.into_iter().chain(counting) {
            assert!(allowed.contains(counter));
            assert!(!std::mem::replace(&mut used[counter.place()], true), "a counter serves one event");
        }
    }
}
