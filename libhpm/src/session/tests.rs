//! Sessions on the fake device: iteration, consumption, loss and waiting.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hpm_abi::{QuantumEnd, QuantumFlags, Reason};
use proptest::prelude::*;

use super::fake::{Fake, RECORD, Stay};
use super::options::with_less_memory;
use super::{Options, Quantum, Session, Stack, Target, Windows};
use crate::Error;
use crate::event::parse;
use crate::sys::device::{Command, Denied};

fn options() -> Options {
    Options::new(Target::Process(1)).sample(parse("l1d-load-miss", "skylake").unwrap(), 1000)
}

fn session(fake: &Fake) -> Session<&Fake> {
    Session::configure(fake, &options().stack(Stack::Copied(1024))).unwrap()
}

fn stay(tid: u32, records: u64) -> Stay {
    Stay { tid, records, stack: 0, count: 10 }
}

#[test]
fn windows_that_cannot_be_are_refused_before_the_driver_is_asked() {
    let windows = Windows { events: vec![parse("instructions", "skylake").unwrap()], length: 5000 };
    let options = options().imprecise(true).windows(Some(windows));
    let refused = Session::configure(&Fake::new(1), &options).err().unwrap();
    assert!(matches!(refused, Error::Windows { .. }), "{refused}");
}

#[test]
fn quanta_come_with_their_own_samples() {
    let fake = Fake::new(2);
    let mut session = session(&fake);
    fake.publish(1, stay(7, 3));
    fake.publish(1, stay(8, 0));
    fake.publish(1, Stay { stack: 1024, ..stay(9, 2) });
    let batch = session.batch().unwrap();
    let quanta: Vec<_> = batch.quanta().map(Result::unwrap).collect();
    let seen: Vec<_> =
        quanta.iter().map(|q| (q.raw().tid, q.samples().unwrap().count(), q.counts())).collect();
    assert_eq!(seen, [(7, 3, &[10][..]), (8, 0, &[10]), (9, 2, &[10])]);
    assert_eq!(quanta[0].end().unwrap(), QuantumEnd::Yielded);
    let samples: Vec<_> = quanta[2].samples().unwrap().map(Result::unwrap).collect();
    assert!(samples.iter().all(|s| s.record.registers.unwrap().rip() == 9 && s.events().eq([(0, 1000)])));
    let stacks: Vec<_> = samples.iter().map(|s| s.stack.len()).collect();
    assert_eq!(stacks, [0, 1024], "the stack belongs to the last record");
}

#[test]
fn a_batch_is_given_back_when_dropped_and_only_then() {
    let fake = Fake::new(1);
    let mut session = session(&fake);
    fake.publish(0, stay(1, 1));
    let batch = session.batch().unwrap();
    fake.publish(0, stay(2, 1));
    assert_eq!(batch.quanta().count(), 1, "a batch does not grow");
    assert_eq!(fake.consumed(0).quanta_consumed, 0);
    drop(batch);
    assert_eq!(fake.consumed(0).quanta_consumed, 1);
    assert_eq!(session.batch().unwrap().quanta().count(), 1);
    assert!(session.batch().unwrap().is_empty());
}

#[test]
fn the_segment_being_filled_is_not_given_back() {
    let fake = Fake::new(1);
    let mut session = session(&fake);
    let full = u64::from(hpm_abi::SEGMENT_BYTES) / RECORD as u64;
    fake.publish(0, stay(1, full));
    fake.publish(0, stay(1, 5));
    drop(session.batch().unwrap());
    assert_eq!(fake.status(0).segments_begun, 2);
    assert_eq!(fake.consumed(0).segments_consumed, 1);
}

#[test]
fn what_finds_no_room_is_reported_and_later_quanta_go_on() {
    let fake = Fake::new(1);
    let mut session = session(&fake);
    let room = u64::from(session.config().quanta);
    for _ in 0..room + 3 {
        fake.publish(0, stay(1, 0));
    }
    let batch = session.batch().unwrap();
    assert_eq!(batch.quanta().count() as u64, room);
    drop(batch);
    fake.publish(0, stay(1, 1));
    let batch = session.batch().unwrap();
    let next = batch.quanta().next().unwrap().unwrap();
    assert_eq!(next.raw().sequence, room + 3, "lost quanta are numbered too");
    assert_ne!(next.raw().flags & QuantumFlags::QUANTA_LOST_BEFORE, 0);
    assert_eq!(fake.status(0).quanta_lost, 3);
}

#[test]
fn contradictions_are_errors_and_not_reads() {
    type Change = fn(&mut hpm_abi::Quantum);
    let cases: [Change; 6] = [
        |q| (q.segment, q.span_bytes) = (3, 200),
        |q| (q.span_offset, q.span_bytes) = (65_500, 200),
        |q| (q.span_bytes, q.record_size) = (200, 96),
        |q| (q.span_bytes, q.record_format) = (200, 4),
        |q| q.stack_bytes = 1024,
        |q| (q.stack_offset, q.stack_bytes) = (u64::MAX, 1024),
    ];
    for (case, change) in cases.into_iter().enumerate() {
        let fake = Fake::new(1);
        let mut session = session(&fake);
        fake.publish(0, stay(1, 10));
        drop(session.batch().unwrap());
        fake.publish_raw(0, change);
        let batch = session.batch().unwrap();
        let samples = |quantum: Quantum<'_>| quantum.samples()?.map(|sample| sample.map(|_| ())).collect();
        let result: crate::Result<Vec<()>> = batch.quanta().next().unwrap().and_then(samples);
        assert!(
            matches!(result, Err(Error::Corrupt { .. } | Error::RecordFormat { .. })),
            "case {case}: {result:?}"
        );
    }
}

#[test]
fn waiting_ends_with_quanta_with_others_and_with_time() {
    let fake = Fake::new(1);
    let session = session(&fake);
    let begun = Instant::now();
    assert!(session.wait(&[], Duration::from_millis(20)).unwrap().is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(20));
    let (readable, writer) = std::io::pipe().unwrap();
    drop(writer);
    assert_eq!(session.wait(&[readable.as_fd()], Duration::from_secs(60)).unwrap(), [true]);
    assert!(!session.target_gone());
    fake.target_gone();
    session.wait(&[], Duration::from_secs(60)).unwrap();
    assert!(session.target_gone());
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn refusals_name_the_event() {
    let fake = Fake::new(1);
    let denied = Denied { errno: libc::EINVAL, reason: Reason::NotPrecise as u32, detail: [0, 0] };
    let session = session(&fake);
    fake.deny.set(Some(denied));
    let error = session.start().unwrap_err().to_string();
    assert!(error.starts_with("the event `l1d-load-miss` cannot be sampled precisely"), "{error}");
    session.start().unwrap();
    session.flush().unwrap();
    session.stop().unwrap();
    assert_eq!(*fake.commands.borrow(), [Command::Start, Command::Flush, Command::Stop]);
}

#[test]
fn totals_include_what_was_lost() {
    let fake = Fake::new(1);
    let session = Session::configure(&fake, &Options::new(Target::System)).unwrap();
    for _ in 0..100 {
        fake.publish(0, stay(1, 0));
    }
    assert_eq!(session.totals().unwrap().counts[0], 1000);
    assert_eq!(fake.status(0).quanta_lost, 100 - u64::from(session.config().quanta));
}

/// What a test does to a session.
#[derive(Clone, Debug)]
enum Step {
    Publish { cpu: usize, tid: u32, records: u64, stack: u32 },
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    let stack = prop_oneof![Just(0_u32), (1..=8_u32).prop_map(|n| n * 1024), Just(61_440)];
    prop_oneof![
        4 => (0..2_usize, 1..100_u32, 0..400_u64, stack)
            .prop_map(|(cpu, tid, records, stack)| Step::Publish { cpu, tid, records, stack }),
        1 => Just(Step::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However publishing and reading interleave: every published quantum is read once and in order, its records and its
    /// stack are its own, and what is missing was counted as lost.
    #[test]
    fn nothing_is_mixed_up_or_missed(steps in prop::collection::vec(step(), 1..400)) {
        let fake = Fake::new(2);
        let mut session = session(&fake);
        let mut read = [0_u64; 2];
        let (mut records, mut published_records) = (0, 0);
        for step in steps.into_iter().chain([Step::Read]) {
            match step {
                Step::Publish { cpu, tid, records, stack } => {
                    fake.publish(cpu, Stay { tid, records, stack, count: 1 });
                    published_records += records;
                }
                Step::Read => {
                    let batch = session.batch().unwrap();
                    for quantum in batch.quanta() {
                        let quantum = quantum.unwrap();
                        let raw = quantum.raw();
                        read[raw.cpu as usize] += 1;
                        records += raw.records_lost;
                        for (index, sample) in quantum.samples().unwrap().enumerate() {
                            let sample = sample.unwrap();
                            prop_assert_eq!(sample.record.registers.unwrap().rip(), u64::from(raw.tid));
                            prop_assert_eq!(sample.record.tsc.unwrap(), index as u64);
                            prop_assert!(sample.stack.iter().all(|byte| *byte == raw.tid as u8));
                            records += 1;
                        }
                    }
                }
            }
        }
        for (cpu, read) in read.into_iter().enumerate() {
            prop_assert_eq!(read, fake.status(cpu).quanta_produced);
            prop_assert_eq!(fake.status(cpu).quanta_lost, 0, "400 quanta fit");
        }
        prop_assert_eq!(records, published_records);
    }
}

/// Numbers near the limits of some field, and any.
fn number() -> impl Strategy<Value = u64> {
    let edges = vec![0, 1, 2, 95, 96, 97, 1024, 65_535, 65_536, 1 << 32, 1 << 63, u64::MAX];
    prop_oneof![3 => prop::sample::select(edges), 1 => any::<u64>()]
}

/// Changes a field by which the library finds memory, or that it interprets.
fn change(quantum: &mut hpm_abi::Quantum, field: usize, value: u64) {
    match field {
        0 => quantum.sequence = value,
        1 => quantum.segment = value,
        2 => quantum.span_offset = value as u32,
        3 => quantum.span_bytes = value as u32,
        4 => quantum.record_size = value as u16,
        5 => quantum.record_format = value as u16,
        6 => quantum.stack_offset = value,
        7 => quantum.stack_bytes = value as u32,
        8 => quantum.flags = value as u16,
        9 => quantum.end = value as u16,
        10 => quantum.pebs_data_cfg = value,
        11 => quantum.counter_event = value.to_ne_bytes(),
        12 => quantum.sampler_counter = value.to_ne_bytes(),
        13 => quantum.active = value as u16,
        _ => quantum.absent = value as u16,
    }
}

proptest! {
    /// Whatever a quantum claims, its samples are read or an error: never what lies outside of its segment, and no panic.
    #[test]
    fn any_quantum_is_read_or_an_error(
        changes in prop::collection::vec((0..15_usize, number()), 1..6),
        records in 0..40_u64,
    ) {
        let fake = Fake::new(1);
        let mut session = session(&fake);
        fake.publish(0, stay(1, records));
        drop(session.batch());
        fake.publish_raw(0, |quantum| {
            changes.iter().for_each(|&(field, value)| change(quantum, field, value));
        });
        if let Ok(batch) = session.batch() {
            for quantum in batch.quanta().take(4).flatten() {
                // The smallest record has 16 bytes.
                let most = hpm_abi::SEGMENT_BYTES as usize / 16;
                let read = quantum.samples().map(|samples| samples.take(most + 1).flatten().count());
                prop_assert!(read.as_ref().map_or(0, |count| *count) <= most, "{:?}", read);
                let alike = quantum.alike().map_or(0, |alike| alike.records.len());
                prop_assert!(alike <= hpm_abi::SEGMENT_BYTES as usize / 8, "{}", alike);
            }
        }
    }
}

#[test]
fn a_session_without_memory_for_large_segments_has_small_ones() {
    let denied = |reason: Reason| Denied { errno: libc::ENOMEM, reason: reason as u32, detail: [0; 2] };
    let asked = |refused: Option<Reason>| {
        let fake = Fake::new(1);
        fake.deny_large.set(refused.map(denied));
        let result = Session::configure(&fake, &options()).map(|session| session.config().segments);
        result.map_err(|error| error.to_string())
    };
    assert_eq!(asked(None), Ok(42));
    assert_eq!(asked(Some(Reason::MemoryLimit)), Ok(32));
    assert!(asked(Some(Reason::NeedSystemRight)).is_err());
}

/// As on a machine of many CPUs, where an unprivileged user may lock little for each.
#[test]
fn a_session_takes_as_little_memory_as_it_has_to() {
    let mut config = options().config();
    let mut steps = 0;
    while let Some(less) = with_less_memory(&config) {
        assert!(less.segments >= 4 && less.quanta.is_power_of_two() && less.markers.is_power_of_two());
        (config, steps) = (less, steps + 1);
    }
    assert!(steps < 8, "{steps} requests");
    assert_eq!((config.segments, config.segment_bytes, config.quanta, config.markers), (4, 0, 256, 256));
    // What only counts takes none.
    let counting = Options::new(Target::System).count(parse("load", "skylake").unwrap()).config();
    assert_eq!((counting.segments, with_less_memory(&counting)), (0, None));
    let denied =
        Denied { errno: libc::ENOMEM, reason: Reason::MemoryLimit as u32, detail: [9 << 20, 8 << 20] };
    let granted = |most: u32| {
        let fake = Fake::new(1);
        fake.deny_above.set(Some((most, denied)));
        Session::configure(&fake, &options()).map(|session| session.config().segments)
    };
    assert_eq!(granted(9).unwrap(), 8);
    // There is no less than the least: what that needed is told.
    let refusal = granted(3).unwrap_err().to_string();
    assert!(refusal.contains("9437184 bytes"), "{refusal}");
}

#[test]
fn events_are_for_the_only_type_of_cores_that_a_hybrid_processor_has_online() {
    let types = |pmu: &str, large: bool| {
        let fake = Fake::new(1);
        let mut name = [0; 32];
        name[..pmu.len()].copy_from_slice(pmu.as_bytes());
        fake.pmu_name.set(name);
        fake.hybrid.set(true);
        let no_memory = Denied { errno: libc::ENOMEM, reason: Reason::NoMemory as u32, detail: [0; 2] };
        fake.deny_large.set((!large).then_some(no_memory));
        let load = parse("load:u", "goldencove").unwrap();
        let options = Options::new(Target::System).sample(load.clone(), 1000).count(load);
        let config = Session::configure(&fake, &options).map(|session| *session.config());
        config.map(|config| config.events.map(|event| event.core_type)[..3].to_vec())
    };
    for large in [true, false] {
        assert_eq!(types("goldencove", large).unwrap(), [1, 1, 0]);
        assert_eq!(types("gracemont", large).unwrap(), [2, 2, 0]);
    }
    for both in ["goldencove+gracemont", "skylake"] {
        let refusal = types(both, true).unwrap_err().to_string();
        assert!(refusal.contains("say for which cores"), "{refusal}");
    }
}
