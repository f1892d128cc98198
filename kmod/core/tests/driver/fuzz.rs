//! Requests with any of their fields changed to anything: refused with a field of the request or a reason, never a panic, and
//! what is accepted is within the limits. Requests of sense, which are then run, are in requests.rs and generations.rs.

use crate::rig;
use crate::rig::scene::{config, counted, interrupting, precise, INSTRUCTIONS, LOADS, STORES};
use crate::rig::Rig;
use hpm_abi::{EventSpec, Reason, SessionConfig, SessionFlags, ABI_VERSION, EVENTS_MAX, SEGMENT_BYTES};
use hpm_core::turns::{Turns, TURNS_MAX};
use proptest::prelude::*;
use vpmu::profile::{Profile, ALL, NETBURST};
use vpmu::Options;

/// Numbers near the limits of some field, and any.
fn number() -> impl Strategy<Value = u64> {
    let edges = vec![
        0,
        1,
        2,
        3,
        63,
        64,
        255,
        256,
        4096,
        65_535,
        65_536,
        1 << 31,
        u64::from(u32::MAX),
        1 << 63,
        u64::MAX,
    ];
    prop_oneof![3 => prop::sample::select(edges), 1 => any::<u64>()]
}

/// Changes the field with this number to this value.
fn change(request: &mut SessionConfig, field: usize, value: u64) {
    let event = &mut request.events[field / 64 % EVENTS_MAX];
    match field % 32 {
        0 => request.envelope.version = value as u32,
        1 => request.envelope.size = value as u32,
        2 => request.envelope.reserved = value as u32,
        3 => request.scope = value as u32,
        4 => request.pid = value as i32,
        5 => request.flags ^= value as u32,
        6 => request.event_count = value as u32,
        7 => request.segments = value as u32,
        8 => request.quanta = value as u32,
        9 => request.stack_bytes = value as u32,
        10 => request.stack_ring_bytes = value as u32,
        11 => request.max_quantum_ns = value,
        12 => request.max_threads = value as u32,
        13 => request.cpu = value as u32,
        14 => request.cgroup_fd = value as i32,
        15 => request.proof_fd = value as i32,
        16 => request.record_groups = value as u32,
        17 => request.frames = value as u32,
        18 => request.branches = value as u32,
        19 => request.markers = value as u32,
        20 => request.wake_ms = value as u32,
        21 => event.encoding ^= value,
        22 => event.period = value,
        23 => event.extra = value,
        24 => event.rate = value,
        25 => event.mode = value as u8,
        26 => event.privilege = value as u8,
        27 => event.flags = value as u8,
        28 => event.core_type = value as u8,
        29 => request.segment_bytes = value as u32,
        30 => request.reserved = value as u32,
        _ => event.reserved[field % 4] = value as u8,
    }
}

fn any_request() -> impl Strategy<Value = SessionConfig> {
    let event = prop_oneof![
        Just(counted(INSTRUCTIONS)),
        Just(counted(LOADS)),
        Just(EventSpec { extra: 1, ..counted(0x01B7) }),
        (1..100_000u64).prop_map(|period| precise(STORES, period)),
        (1..100_000u64).prop_map(|period| interrupting(INSTRUCTIONS, period)),
    ];
    let events = prop::collection::vec(event, 1..=9);
    let changes = prop::collection::vec((any::<usize>(), number()), 0..6);
    (events, any::<bool>(), changes).prop_map(|(events, multiplex, changes)| {
        let mut request = config(&events);
        request.flags = if multiplex { SessionFlags::MULTIPLEX } else { 0 };
        changes.iter().for_each(|&(field, value)| change(&mut request, field, value));
        request
    })
}

fn check(profile: &'static Profile, request: &SessionConfig) -> Result<(), TestCaseError> {
    let pmu = Rig::of(profile, 1, Options::default()).pmu;
    let programs = Turns::new(&pmu, request).and_then(|turns| {
        (0..turns.count())
            .map(|turn| rig::program(&turns, turn, &pmu, request))
            .collect::<Result<Vec<_>, _>>()
    });
    match programs {
        Err(refusal) if refusal.reason == Reason::Field => {
            prop_assert!(refusal.detail[0] < size_of::<SessionConfig>() as u64, "{:?}", refusal);
        }
        Err(_) => {}
        Ok(programs) => {
            prop_assert!((1..=TURNS_MAX).contains(&programs.len()));
            prop_assert_eq!(request.envelope.version, ABI_VERSION);
            for program in &programs {
                let (config, largest) = (program.config(), program.largest_segment(request.segment_bytes));
                prop_assert!(config.segments == 0 || largest / SEGMENT_BYTES <= config.segments / 2);
                prop_assert!((1..=EVENTS_MAX as u32).contains(&config.event_count));
                prop_assert!(config.segments <= 256 && config.quanta <= 65_536 && config.markers <= 65_536);
                prop_assert!(config.stack_bytes <= 64_512 && config.stack_ring_bytes <= 64 << 20);
                prop_assert!(config.max_threads > 0 && config.max_quantum_ns >= 100_000);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_request_is_refused_for_a_reason_or_within_the_limits(
        profile in prop::sample::select([ALL, NETBURST].concat()),
        request in any_request(),
    ) {
        check(profile, &request)?;
    }
}
