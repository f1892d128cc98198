//! What each option of a session asks the driver for, and what the driver's own rules say to it.

use std::mem::offset_of;

use hpm_abi::{BranchFilter, EVENTS_MAX, EventMode, EventSpec, Reason, Scope, SessionConfig, SessionFlags};
use hpm_core::config::check;
use libhpm::event::{Event, parse};
use libhpm::session::{Branches, Options, Stack, Target, Windows};

/// A process in which loads are sampled once in 1000.
fn sampling() -> Options {
    Options::new(Target::Process(42)).sample(event("load"), 1000)
}

/// A process in which loads are counted.
fn counting() -> Options {
    Options::new(Target::Process(42)).count(event("load"))
}

fn event(name: &str) -> Event {
    parse(name, "skylake").unwrap()
}

/// Asserts that the second request is the first one with this change, and that the driver accepts both.
#[track_caller]
fn changes(before: &Options, after: &Options, change: impl FnOnce(&mut SessionConfig)) {
    let mut expected = before.config();
    change(&mut expected);
    assert_ne!(expected, before.config(), "nothing would change");
    assert_eq!(after.config(), expected);
    check(&before.config()).unwrap();
    check(&after.config()).unwrap();
}

#[test]
fn each_target_has_its_scope() {
    let of = |target: Target| {
        let SessionConfig { scope, pid, cpu, flags, .. } = Options::new(target).config();
        (scope, pid, cpu, flags)
    };
    let scope = |scope: Scope| scope as u32;
    assert_eq!(of(Target::Process(7)), (scope(Scope::Process), 7, 0, SessionFlags::INHERIT));
    assert_eq!(of(Target::Thread(8)), (scope(Scope::Thread), 8, 0, 0));
    assert_eq!(of(Target::Cgroup("/sys/fs/cgroup".into())), (scope(Scope::Cgroup), 0, 0, 0));
    assert_eq!(of(Target::System), (scope(Scope::System), 0, 0, 0));
    assert_eq!(of(Target::Cpu(3)), (scope(Scope::System), 0, 3, SessionFlags::ONE_CPU));
}

#[test]
fn each_flag_is_one_bit() {
    changes(&counting(), &counting().start_on_exec(true), |c| c.flags |= SessionFlags::START_ON_EXEC);
    changes(&counting(), &counting().inherit(false), |c| c.flags &= !SessionFlags::INHERIT);
    changes(&counting(), &counting().multiplex(true), |c| c.flags |= SessionFlags::MULTIPLEX);
    changes(&counting(), &counting().share(true), |c| c.flags |= SessionFlags::SHARED);
    changes(&counting(), &counting().counter_pages(true), |c| c.flags |= SessionFlags::COUNTER_PAGES);
    changes(&counting(), &counting().quanta(true), |c| c.quanta = 4096);
}

#[test]
fn what_only_a_process_does_is_asked_for_of_no_other_target() {
    let targets = [Target::Thread(1), Target::System, Target::Cpu(0)];
    for target in targets {
        let plain = Options::new(target).count(event("load")).inherit(false);
        let asked = plain.clone().inherit(true).start_on_exec(true);
        assert_eq!(asked.config(), plain.config());
        check(&asked.config()).unwrap();
    }
}

#[test]
fn events_are_counted_or_sampled_in_their_order() {
    let both = sampling().count(event("store:k"));
    changes(&sampling(), &both, |c| {
        c.event_count = 2;
        c.events[1] = EventSpec {
            encoding: event("store").encoding,
            mode: EventMode::Count as u8,
            privilege: EventSpec::KERNEL,
            ..EventSpec::default()
        };
    });
    let SessionConfig { events, event_count, .. } = both.config();
    let load = event("load");
    assert_eq!((event_count, events[0].period, events[0].mode), (2, 1000, EventMode::Precise as u8));
    assert_eq!(events[0].encoding, load.precise_encoding);
    assert_eq!(events[0].privilege, EventSpec::USER | EventSpec::KERNEL);
    assert_eq!(both.names(), ["load", "store:k"]);
}

/// Memory for records where each raises an interrupt, and no wish for large segments.
const SMALL: (u32, u32) = (32, 0);

#[test]
fn what_makes_samples_imprecise_makes_all_so() {
    changes(&sampling(), &sampling().imprecise(true), |c| {
        c.events[0].mode = EventMode::Interrupt as u8;
        c.events[0].encoding = event("load").encoding;
        (c.segments, c.segment_bytes) = SMALL;
    });
    // No table says that cycles are sampled precisely here.
    let mixed = sampling().sample(event("cycles"), 5000).config();
    assert!(mixed.events[..2].iter().all(|spec| spec.mode == EventMode::Interrupt as u8));
    let counted = sampling().count(event("cycles")).config();
    assert_eq!(
        [0, 1].map(|place| counted.events[place].mode),
        [EventMode::Precise as u8, EventMode::Count as u8]
    );
    assert_eq!(counting().imprecise(true).config(), counting().config(), "nothing is sampled");
}

#[test]
fn periods_are_drawn_and_adapted_of_sampled_events_only() {
    let mixed = || sampling().count(event("store"));
    changes(&mixed(), &mixed().randomise(true), |c| c.events[0].flags = EventSpec::RANDOMISE);
    changes(&mixed(), &mixed().rate(4000), |c| c.events[0].rate = 4000);
}

#[test]
fn windows_are_measured_by_an_event_that_is_counted() {
    let windows = |length| Some(Windows { events: vec![event("instructions")], length });
    let counted = || sampling().count(event("instructions"));
    changes(&counted(), &counted().windows(windows(5000)), |c| {
        c.events[0].flags = EventSpec::WINDOWED;
        c.events[1].period = 5000;
    });
    assert_eq!(sampling().windows(windows(5000)).config(), counted().windows(windows(5000)).config());
    let drawn = sampling().randomise(true).rate(4000);
    assert_eq!(drawn.windows(windows(5000)).config(), sampling().windows(windows(5000)).config());
    assert_eq!(check(&sampling().windows(windows(99)).config()).unwrap_err().reason, Reason::PeriodTooSmall);
}

#[test]
fn vector_registers_come_beside_what_records_have_anyway() {
    changes(&sampling(), &sampling().xmm(true), |c| c.record_groups = 0b111);
    assert_eq!(counting().xmm(true).config(), counting().config(), "nothing is sampled");
}

#[test]
fn stacks_have_their_ring() {
    changes(&sampling(), &sampling().stack(Stack::Copied(16 << 10)), |c| {
        (c.stack_bytes, c.stack_ring_bytes) = (16 << 10, 16 << 20);
        (c.segments, c.segment_bytes) = SMALL;
    });
    changes(&sampling(), &sampling().stack(Stack::FramePointers(127)), |c| {
        (c.frames, c.stack_ring_bytes) = (127, 16 << 20);
        (c.segments, c.segment_bytes) = SMALL;
    });
    for stack in [Stack::Copied(1024), Stack::FramePointers(1), Stack::BranchCalls] {
        assert_eq!(counting().stack(stack).config(), counting().config(), "nothing is sampled");
    }
}

#[test]
fn branches_are_kept_with_samples_only() {
    let calls = Some(Branches { count: 8, filter: BranchFilter::CALL });
    changes(&sampling(), &sampling().branches(calls), |c| {
        (c.branches, c.branch_filter) = (8, BranchFilter::CALL);
        (c.stack_ring_bytes, c.quanta) = (512 << 10, 2048);
    });
    assert_eq!(counting().branches(calls).config(), counting().config());
    // The records are those of calls then, whatever else was wished for.
    let followed = sampling().stack(Stack::BranchCalls);
    assert_eq!(followed.clone().branches(calls).config(), followed.config());
    assert_eq!(followed.config().branch_filter, BranchFilter::CALL_STACK);
    assert_eq!(followed.config().max_threads, 1024);
}

#[test]
fn what_the_driver_does_not_take_it_names() {
    let refused = |options: &Options| {
        let refusal = check(&options.config()).expect_err("refused");
        assert_eq!(refusal.reason, Reason::Field);
        refusal.detail[0] as usize
    };
    let many = (0..=EVENTS_MAX).fold(Options::new(Target::System), |options, _| options.count(event("load")));
    let unknown = Some(Branches { count: 1, filter: 1 << 31 });
    let cases = [
        (Options::new(Target::System), offset_of!(SessionConfig, event_count)),
        (many, offset_of!(SessionConfig, event_count)),
        (Options::new(Target::Process(0)).count(event("load")), offset_of!(SessionConfig, pid)),
        (Options::new(Target::Thread(-1)).count(event("load")), offset_of!(SessionConfig, pid)),
        (sampling().stack(Stack::Copied(1000)), offset_of!(SessionConfig, stack_bytes)),
        (sampling().stack(Stack::Copied(65 << 10)), offset_of!(SessionConfig, stack_bytes)),
        (sampling().stack(Stack::FramePointers(255)), offset_of!(SessionConfig, frames)),
        (sampling().branches(unknown), offset_of!(SessionConfig, branch_filter)),
    ];
    for (options, field) in cases {
        assert_eq!(refused(&options), field, "{options:?}");
    }
}
