use proptest::prelude::*;

use super::*;
use crate::event;
use crate::session::fake::{Fake, Stay};
use crate::session::{Options, Session, Stack, Target};
use crate::source::driver::compact::tests::needed;
use crate::source::driver::rows::Rows;
use crate::trace::{
    self, MapRow, MarkerRow, Meta, QuantumRow, SampleRow, StackRow, ThreadRow, TraceReader, TraceWriter,
};

const PMU: &str = "skylake";
const CONFIG: SessionConfig = SessionConfig { segments: 64, quanta: 4096, ..SessionConfig::EMPTY };

fn meta() -> Meta {
    let mut meta = Meta::default();
    meta.machine.pmu = PMU.into();
    meta.events = vec![trace::Event { name: "load:u".into(), ..trace::Event::default() }];
    meta
}

fn session(fake: &Fake) -> Session<&Fake> {
    let load = event::parse("load:u", PMU).unwrap();
    let options = Options::new(Target::System).sample(load, 1000).stack(Stack::FramePointers(8));
    Session::configure(fake, &options).unwrap()
}

/// What a trace holds of quanta, samples and stacks.
fn rows(reader: &TraceReader) -> (Vec<QuantumRow>, Vec<SampleRow>, Vec<StackRow>) {
    (reader.rows().collect(), reader.rows().collect(), reader.rows().collect())
}

/// Publishes stays, a list for each look at the rings, and hands each look's batch to `each`.
fn looks(stays: &[Vec<(usize, Stay)>], mut each: impl FnMut(&Batch<'_>)) {
    let fake = Fake::new(2);
    let mut session = session(&fake);
    for look in stays {
        look.iter().for_each(|(cpu, stay)| fake.publish(*cpu, *stay));
        each(&session.batch().unwrap());
    }
}

/// The trace of these stays, whose rows were made at once.
fn at_once(folder: &Path, stays: &[Vec<(usize, Stay)>]) -> TraceReader {
    let mut writer = TraceWriter::create(folder, meta()).unwrap();
    let mut made = Rows::new(&[event::parse("load:u", PMU).unwrap()], PMU, false, None);
    looks(stays, |batch| {
        batch.quanta().for_each(|quantum| made.quantum(&mut writer, &quantum.unwrap()).unwrap());
    });
    drop(writer);
    TraceReader::open(folder).unwrap()
}

/// A trace of these stays that was not ended, and whose rows were not made.
fn deferred(folder: &Path, stays: &[Vec<(usize, Stay)>]) -> TraceWriter {
    let writer = TraceWriter::create(folder, meta()).unwrap();
    let mut spool = Spool::create(&writer.deferred_file(), &CONFIG).unwrap();
    spool.begin(Begun::default()).unwrap();
    looks(stays, |batch| spool.append(batch).unwrap());
    writer
}

fn stay() -> impl Strategy<Value = (usize, Stay)> {
    (0..2_usize, 1..9_u32, 0..40_u64, 0..4_u32, any::<u32>()).prop_map(
        |(cpu, tid, records, frames, count)| {
            let stack = if records > 0 { 8 * frames } else { 0 };
            (cpu, Stay { tid, records, stack, count: count.into() })
        },
    )
}

proptest! {
    /// A recording that was killed has the rows that it would have had, and a torn file those of its whole frames.
    #[test]
    fn rows_are_the_same_whenever_they_are_made(
        stays in prop::collection::vec(prop::collection::vec(stay(), 0..12), 1..5),
        torn in BLOCK as u64..60_000,
    ) {
        let temp = tempfile::tempdir().unwrap();
        let folder = |name: &str| temp.path().join(name);
        let wanted = rows(&at_once(&folder("a.hpm"), &stays));
        let writer = deferred(&folder("b.hpm"), &stays);
        let file = writer.deferred_file();
        drop(writer);
        let reader = TraceReader::open(folder("b.hpm")).unwrap();
        prop_assert_eq!(rows(&reader), wanted.clone());
        prop_assert!(trace::verify(&reader).is_good());
        // Somebody kills it while it writes.
        let whole = std::fs::read(&file).unwrap();
        let cut = whole.len().saturating_sub(torn as usize).max(8 * HEAD);
        std::fs::write(&file, &whole[..cut]).unwrap();
        let left = rows(&TraceReader::open(folder("b.hpm")).unwrap());
        prop_assert!(wanted.0.starts_with(&left.0) && wanted.1.starts_with(&left.1));
        let looks = stays.iter().filter(|look| !look.is_empty()).count();
        prop_assert!(looks < 2 || cut == 8 * HEAD || left.0.len() < wanted.0.len());
    }

    /// Any file is read to its end or refused.
    #[test]
    fn damage_is_told(place in 0..4000_usize, value: u8) {
        let temp = tempfile::tempdir().unwrap();
        let stays = vec![vec![(0, Stay { tid: 3, records: 5, stack: 16, count: 9 }), (1, Stay::default())]; 3];
        let writer = deferred(&temp.path().join("a.hpm"), &stays);
        let file = writer.deferred_file();
        let mut bytes = std::fs::read(&file).unwrap();
        let place = place % bytes.len();
        bytes[place] = value;
        std::fs::write(&file, bytes).unwrap();
        let reader = TraceReader::open(temp.path().join("a.hpm")).unwrap();
        let mut quanta = reader.rows::<QuantumRow>();
        prop_assert!(quanta.by_ref().count() <= 6);
        let _ = quanta.cut().map(|cut| cut.to_string());
        let _ = trace::verify(&reader);
    }
}

/// A published quantum as it is after all, and copies of its records and its stack.
fn copied(quantum: &Quantum<'_>) -> (hpm_abi::Quantum, Vec<u8>, Vec<u8>) {
    let Published { quantum, records, stack } = quantum.published();
    (needed(quantum), records.to_vec(), stack.to_vec())
}

#[test]
fn frames_have_what_was_published_however_often_the_rings_end() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("deferred.raw");
    let mut spool = Spool::create(&file, &CONFIG).unwrap();
    spool.begin(Begun::default()).unwrap();
    let stay = |number: u32| {
        let stack = if number % 50 == 3 { 200_000 } else { 8 * (number % 4) };
        let stay = Stay { tid: number, records: (number % 7).into(), stack, count: number.into() };
        (number.is_multiple_of(11).into(), stay)
    };
    let stays: Vec<_> = (0..9000).map(stay).collect();
    let stays: Vec<_> = stays.chunks(700).map(<[_]>::to_vec).collect();
    let mut published = Vec::new();
    looks(&stays, |batch| {
        published.extend(batch.quanta().map(|quantum| copied(&quantum.unwrap())));
        spool.append(batch).unwrap();
    });
    assert_eq!(published.len(), 9000);
    assert!(published.iter().map(|(_, _, stack)| stack.len()).sum::<usize>() > 2 * (16 << 20));
    let mut frames = spool.read().unwrap();
    let (mut read, mut count) = (Vec::new(), 0);
    while frames
        .next(|part| {
            if let Part::Quantum(quantum) = part {
                read.push(copied(quantum));
            }
            Ok(())
        })
        .unwrap()
    {
        count += 1;
    }
    assert!(read == published);
    // One for each CPU and look, and one more where a ring of quanta ended.
    assert!((13 * 2..13 * 2 + 4).contains(&count), "{count}");
}

#[test]
fn what_a_quantum_cannot_own_is_not_written() {
    type Change = fn(&mut hpm_abi::Quantum);
    let cases: [Change; 4] = [
        |quantum| (quantum.segment, quantum.span_bytes) = (3, 200),
        |quantum| (quantum.span_offset, quantum.span_bytes) = (65_500, 200),
        |quantum| quantum.stack_bytes = 1024,
        |quantum| (quantum.stack_offset, quantum.stack_bytes) = (u64::MAX, 1024),
    ];
    for change in cases {
        let temp = tempfile::tempdir().unwrap();
        let mut spool = Spool::create(&temp.path().join("deferred.raw"), &CONFIG).unwrap();
        spool.begin(Begun::default()).unwrap();
        let fake = Fake::new(1);
        let mut session = session(&fake);
        fake.publish(0, Stay { tid: 3, records: 5, stack: 16, count: 9 });
        fake.publish_raw(0, change);
        assert!(matches!(spool.append(&session.batch().unwrap()), Err(Error::Corrupt { .. })));
        // What is published later can be.
        fake.publish(0, Stay { tid: 4, records: 5, stack: 16, count: 9 });
        spool.append(&session.batch().unwrap()).unwrap();
        let (mut frames, mut threads) = (spool.read().unwrap(), Vec::new());
        let mut each = |part: Part<'_>| {
            if let Part::Quantum(quantum) = part {
                threads.push(quantum.raw().tid);
            }
            Ok(())
        };
        while frames.next(&mut each).unwrap() {}
        assert_eq!(threads, [4]);
    }
}

#[test]
fn neighbours_are_joined_within_their_area() {
    let joined = |spans: &[(u64, u64, u64)]| {
        let mut joined = Vec::new();
        runs(spans.iter().copied(), |area, start, len| {
            joined.push((area, start, len));
            Ok(())
        })
        .unwrap();
        joined
    };
    assert_eq!(joined(&[]), []);
    assert_eq!(joined(&[(1, 0, 8), (0, 0, 0), (1, 8, 16), (1, 32, 8)]), [(1, 0, 24), (1, 32, 8)]);
    assert_eq!(joined(&[(1, 0, 8), (2, 8, 8), (2, 8, 8)]), [(1, 0, 8), (2, 8, 8), (2, 8, 8)]);
    assert_eq!(joined(&[(0, u64::MAX, 8), (0, 7, 8)]), [(0, u64::MAX, 8), (0, 7, 8)]);
}

#[test]
fn the_end_of_a_recording_leaves_tables_only() {
    let temp = tempfile::tempdir().unwrap();
    let stays = vec![vec![(0, Stay { tid: 3, records: 5, stack: 16, count: 9 })]];
    let folder = temp.path().join("a.hpm");
    let mut writer = deferred(&folder, &stays);
    let file = writer.deferred_file();
    writer.marker(&MarkerRow::default()).unwrap();
    writer.flush().unwrap();
    let growing = TraceReader::open(&folder).unwrap();
    assert!(growing.is_growing());
    assert_eq!((growing.rows::<SampleRow>().count(), growing.rows::<MarkerRow>().count()), (5, 1));
    let nothing = (std::iter::empty(), std::iter::empty());
    Frames::open(&file).unwrap().hand_over_all(&meta(), nothing, &mut writer).unwrap();
    writer.flush().unwrap();
    assert_eq!(TraceReader::open(&folder).unwrap().rows::<SampleRow>().count(), 5, "not twice");
    writer.finish(trace::Totals::default()).unwrap();
    assert!(!file.exists());
    assert_eq!(TraceReader::open(&folder).unwrap().rows::<SampleRow>().count(), 5);
    assert_eq!(growing.rows::<StackRow>().count(), 1, "who has begun to read goes on");
}

#[test]
fn what_cannot_be_read_is_said() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("a.hpm");
    let stays = vec![vec![(0, Stay { tid: 3, records: 5, stack: 0, count: 9 })]; 2];
    let writer = deferred(&folder, &stays);
    let file = writer.deferred_file();
    let bytes = std::fs::read(&file).unwrap();
    let cut = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let reader = TraceReader::open(&folder).unwrap();
        let mut quanta = reader.rows::<QuantumRow>();
        let count = quanta.by_ref().count();
        (count, quanta.cut().map(|cut| cut.failure.unwrap()).unwrap_or_default())
    };
    assert_eq!(cut(&bytes), (2, String::new()));
    let heads = bytes.windows(8).enumerate().filter(|(_, word)| *word == QUANTA.to_ne_bytes());
    let frame = heads.map(|(at, _)| at).nth(1).unwrap() - 8 * HEAD;
    let mut other = bytes.clone();
    other[8 * HEAD + frame] ^= 1;
    let (count, reason) = cut(&other);
    assert!(count == 1 && reason.contains("where a frame should begin"), "{count}: {reason}");
    other = bytes.clone();
    other[8] ^= 1;
    let (count, reason) = cut(&other);
    assert!(count == 0 && reason.contains("another version of hpm"), "{count}: {reason}");
    // The layout of whole quanta had the version of the driver's interface alone.
    other[8..16].copy_from_slice(&u64::from(ABI_VERSION).to_ne_bytes());
    let (count, reason) = cut(&other);
    assert!(count == 0 && reason.contains("another version of hpm"), "{count}: {reason}");
    assert_eq!(cut(&bytes[..8 * HEAD + frame + 8]), (1, String::new()), "cut within a frame's head");
    // Sizes in the second frame's head that are not its parts', or not words.
    for (word, change, wanted) in [
        (1, 64, "other records than they name"),
        (2, 64, "other records than they name"),
        (2, 4, "where a frame should begin"),
        (3, u64::MAX - 7, "where a frame should begin"),
    ] {
        other.copy_from_slice(&bytes);
        let head = other[8 * HEAD + frame..].as_chunks_mut::<8>().0;
        let sum = u64::from_ne_bytes(head[word]).wrapping_add(change);
        head[word] = sum.to_ne_bytes();
        // What a part has too much the next one has too little, so that the frame is whole.
        if change < 1000 && change.is_multiple_of(8) {
            let other = if word == 1 { 2 } else { 1 };
            head[other] = (u64::from_ne_bytes(head[other]) - change).to_ne_bytes();
        }
        let (count, reason) = cut(&other);
        assert!(count <= 2 && reason.contains(wanted), "{word}: {count}: {reason}");
    }
}

/// A record of perf_event_open(2) with the thread and time that follow each: a name, by an execve or not.
fn name(reports: &mut Vec<u8>, tid: u32, ns: u64, name: &[u8; 8]) {
    const COMM: u32 = 3;
    let thread = [tid.to_ne_bytes(), tid.to_ne_bytes()].concat();
    let body = [&thread[..], name, &thread, &ns.to_ne_bytes()].concat();
    reports.extend(COMM.to_ne_bytes());
    reports.extend(0_u16.to_ne_bytes());
    reports.extend((8 + body.len() as u16).to_ne_bytes());
    reports.extend(body);
}

/// A thread, made by another one.
fn fork(reports: &mut Vec<u8>, tid: u32, parent: u32, ns: u64) {
    const FORK: u32 = 7;
    let thread = [tid.to_ne_bytes(), tid.to_ne_bytes()].concat();
    let (pids, tids) =
        ([tid.to_ne_bytes(), parent.to_ne_bytes()].concat(), [tid, parent].map(u32::to_ne_bytes).concat());
    let body = [&pids[..], &tids, &ns.to_ne_bytes(), &thread, &ns.to_ne_bytes()].concat();
    reports.extend(FORK.to_ne_bytes());
    reports.extend(0_u16.to_ne_bytes());
    reports.extend((8 + body.len() as u16).to_ne_bytes());
    reports.extend(body);
}

#[test]
fn an_event_whose_name_was_made_is_known_by_its_encoding() {
    let temp = tempfile::tempdir().unwrap();
    let load = event::parse("load:u", PMU).unwrap();
    let mut meta = meta();
    meta.events[0] =
        trace::Event { name: "no name".into(), encoding: load.precise_encoding, ..trace::Event::default() };
    let writer = TraceWriter::create(temp.path().join("a.hpm"), meta).unwrap();
    let mut spool = Spool::create(&writer.deferred_file(), &CONFIG).unwrap();
    spool.begin(Begun::default()).unwrap();
    looks(&[vec![(0, Stay { tid: 3, records: 5, stack: 0, count: 9 })]], |batch| {
        spool.append(batch).unwrap()
    });
    drop(writer);
    assert_eq!(TraceReader::open(temp.path().join("a.hpm")).unwrap().rows::<SampleRow>().count(), 5);
}

#[test]
fn reports_become_rows_behind_those_of_what_was_there() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("a.hpm");
    let mut meta = meta();
    meta.clock.tsc_khz = 2_000_000;
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    let mut spool = Spool::create(&writer.deferred_file(), &CONFIG).unwrap();
    writer.map(&MapRow { path: "/there".into(), ..MapRow::default() }).unwrap();
    writer.thread(&ThreadRow { tid: 3, name: "there".into(), ..ThreadRow::default() }).unwrap();
    let empty = TraceReader::open(&folder).unwrap();
    assert_eq!(
        (empty.rows::<ThreadRow>().count(), empty.rows::<ThreadRow>().cut()),
        (0, None),
        "no head yet"
    );
    spool.begin(Begun { calls: None, maps: 1, threads: 1 }).unwrap();
    let mut bytes = Vec::new();
    name(&mut bytes, 4, 1200, b"later\0\0\0");
    name(&mut bytes, 4, 900, b"sooner\0\0");
    fork(&mut bytes, 5, 3, 1300);
    let now = ClockPair { tsc: 10_000, monotonic_raw_ns: 1500, realtime_ns: 0 };
    spool.reports(&Reports::of(&bytes), now).unwrap();
    looks(&[Vec::new()], |batch| spool.append(batch).unwrap());
    // Of a killed recording, which had begun to make rows of them.
    writer.thread(&ThreadRow { tid: 4, name: "sooner".into(), ..ThreadRow::default() }).unwrap();
    drop(writer);
    let reader = TraceReader::open(&folder).unwrap();
    let rows: Vec<ThreadRow> = reader.rows().collect();
    let rows: Vec<_> = rows.iter().map(|row| (row.tid, row.tsc, row.name.as_str())).collect();
    assert_eq!(rows, [(3, 0, "there"), (4, 8800, "sooner"), (4, 9400, "later"), (5, 9600, "there")]);
    assert_eq!(reader.rows::<MapRow>().count(), 1);
    // What is no record ends them.
    assert_eq!(Reports::of(&bytes[..bytes.len() - 1]).entries().len(), 2);
    assert_eq!(Reports::of(&[0; 16]).entries(), []);
}

#[test]
fn a_stack_that_found_no_room_is_counted_whenever_rows_are_made() {
    let temp = tempfile::tempdir().unwrap();
    // No ring has room for the second one.
    let stack = |stack| (0, Stay { tid: 3, records: 1, stack, count: 9 });
    let stays = vec![vec![stack(16), stack(1 << 30), stack(16)]];
    let load = || [event::parse("load:u", PMU).unwrap()];
    let (mut at_once, mut later) =
        (Rows::new(&load(), PMU, false, None), Rows::new(&load(), PMU, false, None));
    let mut writer = deferred(&temp.path().join("a.hpm"), &stays);
    looks(&stays, |batch| {
        batch.quanta().for_each(|quantum| at_once.quantum(&mut writer, &quantum.unwrap()).unwrap());
    });
    let mut frames = Frames::open(&writer.deferred_file()).unwrap();
    let mut each = |part: Part<'_>| match part {
        Part::Quantum(quantum) => later.quantum(&mut writer, quantum),
        Part::Reports(..) => Ok(()),
    };
    while frames.next(&mut each).unwrap() {}
    assert_eq!((at_once.stacks_lost, later.stacks_lost), (1, 1));
}
