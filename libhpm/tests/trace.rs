//! Traces: what is written can be read, also when the files were cut off or damaged anywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libhpm::trace::{
    AllocationRow, ClockPair, Event, EventUse, KernelSymbolRow, MapRow, MarkerRow, Meta, QuantumRow,
    Registers, Row, SampleRow, StackRow, ThreadChange, ThreadRow, Totals, TraceError, TraceReader,
    TraceWriter,
};
use proptest::prelude::*;
use tempfile::TempDir;

fn meta() -> Meta {
    let event =
        Event { name: "l1d-load-miss".into(), mode: EventUse::Precise, period: 1000, ..Event::default() };
    Meta { hpm_version: "1.2.3".into(), source: "driver".into(), events: vec![event], ..Meta::default() }
}

fn quantum(number: u64) -> QuantumRow {
    QuantumRow {
        sequence: number,
        cpu: 1,
        start_tsc: number * 100,
        end_tsc: number * 100 + 99,
        end: 2,
        last_ip: number.is_multiple_of(2).then_some(0x40_0000 + number),
        counts: vec![number * 7, 3],
        periods: vec![1000, 0],
        records: 2,
        ..QuantumRow::default()
    }
}

fn sample(number: u64, stack: Option<u32>) -> SampleRow {
    SampleRow {
        tsc: number,
        quantum: number / 2,
        period: 1000,
        ip: 0x40_1000 + number,
        next_ip: Some(0x40_1004 + number),
        level: (number % 3 == 1).then_some(3),
        stlb_miss: (number % 3 == 1).then_some(number.is_multiple_of(2)),
        branches: number.is_multiple_of(5).then(|| vec![number, number + 1, 0]),
        data_address: number.is_multiple_of(3).then_some(u64::MAX - number),
        latency_cycles: (number % 3 == 1).then_some(200),
        stack,
        registers: (number % 2 == 1).then(|| Registers(std::array::from_fn(|place| place as u64 + number))),
        ..SampleRow::default()
    }
}

/// Writes three batches of each table; returns the folder and the rows of `samples` and of `quanta`.
fn write(temp: &TempDir, finish: bool) -> (PathBuf, Vec<SampleRow>, Vec<QuantumRow>) {
    let folder = temp.path().join("small.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    let (mut samples, mut quanta) = (Vec::new(), Vec::new());
    for batch in 0..3 {
        for number in batch * 2..batch * 2 + 2 {
            quanta.push(quantum(number));
            writer.quantum(quanta.last().unwrap()).unwrap();
            let stack = writer.stack(&[0x40_1000, 0x40_0500 + batch], batch == 1).unwrap();
            samples.push(sample(number, Some(stack)));
            writer.sample(samples.last().unwrap()).unwrap();
        }
        writer.flush().unwrap();
    }
    if finish {
        writer.finish(Totals { counts: vec![1, 2], ..Totals::default() }).unwrap();
    }
    (folder, samples, quanta)
}

fn read<R: Row>(folder: &Path) -> Vec<R> {
    TraceReader::open(folder).unwrap().rows().collect()
}

#[test]
fn every_table_comes_back_as_written() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("all.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    let map = MapRow {
        tsc: 5,
        path: "/bin/true".into(),
        build_id: Some(vec![1, 2, 3]),
        executable: true,
        ..MapRow::default()
    };
    let anonymous = MapRow { path: "//anon".into(), ..map.clone() };
    let anonymous = MapRow { build_id: None, ..anonymous };
    let thread = ThreadRow {
        parent_pid: Some(1),
        name: "näme".into(),
        what: ThreadChange::Fork as u8,
        ..ThreadRow::default()
    };
    let symbol = KernelSymbolRow { address: u64::MAX, name: "schedule".into(), module: Some("ext4".into()) };
    let marker = MarkerRow { tsc: 9, pid: None, tid: Some(4), text: "phase 2".into(), value: Some(7) };
    let samples = [sample(0, None), sample(1, Some(0)), sample(2, Some(0))];
    writer.map(&map).unwrap();
    writer.map(&anonymous).unwrap();
    writer.thread(&thread).unwrap();
    writer.kernel_symbol(&symbol).unwrap();
    writer.marker(&marker).unwrap();
    writer.quantum(&quantum(0)).unwrap();
    samples.iter().for_each(|sample| writer.sample(sample).unwrap());
    assert_eq!(writer.stack(&[1, 2], false).unwrap(), 0);
    assert_eq!(writer.stack(&[1, 2], true).unwrap(), 1);
    assert_eq!(writer.stack(&[1, 2], false).unwrap(), 0);
    writer.clock_pair(ClockPair { tsc: 1, monotonic_raw_ns: 2, realtime_ns: 3 }).unwrap();
    writer.finish(Totals { records: 3, ..Totals::default() }).unwrap();

    assert_eq!(read::<MapRow>(&folder), [map, anonymous]);
    assert_eq!(read::<ThreadRow>(&folder), [thread]);
    assert_eq!(read::<KernelSymbolRow>(&folder), [symbol]);
    assert_eq!(read::<MarkerRow>(&folder), [marker]);
    assert_eq!(read::<QuantumRow>(&folder), [quantum(0)]);
    assert_eq!(read::<SampleRow>(&folder), samples);
    let stack = |id, truncated| StackRow { id, frames: vec![1, 2], truncated };
    assert_eq!(read::<StackRow>(&folder), [stack(0, false), stack(1, true)]);
    let reader = TraceReader::open(&folder).unwrap();
    assert!(reader.meta().complete);
    assert_eq!(reader.meta().rows["samples"], 3);
    assert_eq!(reader.meta().totals.as_ref().unwrap().records, 3);
    assert_eq!(reader.meta().clock.pairs.len(), 1);
    assert_eq!(reader.meta().events, meta().events);
}

#[test]
fn a_table_cut_at_any_byte_gives_its_whole_batches_and_says_so() {
    let temp = TempDir::new().unwrap();
    let (folder, samples, _) = write(&temp, true);
    let file = folder.join("samples.arrows");
    let whole = fs::read(&file).unwrap();
    let mut lengths = Vec::new();
    for length in 0..=whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let reader = TraceReader::open(&folder).unwrap();
        let mut rows = reader.rows::<SampleRow>();
        let read: Vec<SampleRow> = rows.by_ref().collect();
        assert_eq!(read, samples[..read.len()], "cut at byte {length}");
        assert_eq!(
            rows.cut().is_none(),
            read.len() == samples.len(),
            "cut at byte {length}: {:?}",
            rows.cut()
        );
        lengths.push(read.len());
    }
    assert!(lengths.is_sorted());
    lengths.dedup();
    assert_eq!(lengths, [0, 2, 4, 6], "batches are whole or absent");
}

#[test]
fn a_missing_table_is_empty_and_says_so() {
    let temp = TempDir::new().unwrap();
    let (folder, ..) = write(&temp, true);
    fs::remove_file(folder.join("quanta.arrows")).unwrap();
    let reader = TraceReader::open(&folder).unwrap();
    let mut rows = reader.rows::<QuantumRow>();
    assert_eq!(rows.by_ref().count(), 0);
    let sentence = rows.cut().unwrap().to_string();
    assert!(sentence.contains("`quanta`") && sentence.contains("first 0 rows were read of 6"), "{sentence}");
    // A recording always writes the table, also without rows.
    let markers = folder.join("markers.arrows");
    let cut = |folder: &Path| {
        let mut rows = TraceReader::open(folder).unwrap().rows::<MarkerRow>();
        assert_eq!(rows.by_ref().count(), 0);
        rows.cut().map(|cut| cut.to_string())
    };
    assert_eq!(cut(&folder), None);
    fs::write(&markers, "").unwrap();
    assert!(cut(&folder).unwrap().contains("the table `markers` is missing or damaged; it had no rows"));
    fs::remove_file(&markers).unwrap();
    assert!(cut(&folder).unwrap().contains("the table `markers` is missing or damaged; it had no rows"));
    // That of allocations it need not have.
    assert_eq!(TraceReader::open(&folder).unwrap().rows::<AllocationRow>().cut(), None);
}

#[test]
fn a_table_with_the_columns_of_another_says_so() {
    let temp = TempDir::new().unwrap();
    let (folder, ..) = write(&temp, true);
    fs::copy(folder.join("quanta.arrows"), folder.join("samples.arrows")).unwrap();
    let reader = TraceReader::open(&folder).unwrap();
    let mut rows = reader.rows::<SampleRow>();
    assert_eq!(rows.by_ref().count(), 0);
    assert!(rows.cut().unwrap().to_string().contains("columns"));
}

#[test]
fn a_writer_that_is_dropped_leaves_what_it_was_given() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("dropped.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    writer.quantum(&quantum(7)).unwrap();
    drop(writer);
    assert_eq!(read::<QuantumRow>(&folder), [quantum(7)]);
    let reader = TraceReader::open(&folder).unwrap();
    assert!(!reader.meta().complete);
    assert_eq!(reader.rows::<QuantumRow>().cut(), None);
}

#[test]
fn rows_that_wait_are_written_after_a_second() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("live.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    writer.quantum(&quantum(0)).unwrap();
    writer.tick().unwrap();
    assert_eq!(read::<QuantumRow>(&folder), []);
    std::thread::sleep(libhpm::trace::BATCH_TIME);
    writer.tick().unwrap();
    assert_eq!(read::<QuantumRow>(&folder), [quantum(0)]);
}

/// Who reads the quanta first would else find samples whose quanta he has not seen.
#[test]
fn samples_written_after_a_growing_trace_was_opened_are_not_read() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("trace");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    let mut write = |numbers: std::ops::Range<u64>| {
        numbers.clone().for_each(|number| writer.quantum(&quantum(number)).unwrap());
        numbers.for_each(|number| writer.sample(&sample(number, None)).unwrap());
        writer.flush().unwrap();
    };
    write(0..10);
    let reader = TraceReader::open(&folder).unwrap();
    write(10..20);
    let quanta = reader.rows::<QuantumRow>().count();
    let mut samples = reader.rows::<SampleRow>();
    assert_eq!((samples.by_ref().count(), quanta), (10, 20));
    assert_eq!(samples.cut(), None);
    assert_eq!(TraceReader::open(&folder).unwrap().rows::<SampleRow>().count(), 20);
}

#[test]
fn many_rows_are_written_without_waiting() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("large.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    let row = sample(1, None);
    let rows = libhpm::trace::BATCH_BYTES.div_ceil(row.bytes());
    (0..rows).for_each(|_| writer.sample(&row).unwrap());
    assert_eq!(read::<SampleRow>(&folder).len(), rows);
}

#[test]
fn what_is_no_trace_is_told_in_a_sentence() {
    let temp = TempDir::new().unwrap();
    let open = |path: &Path| TraceReader::open(path).map(|_| ()).unwrap_err();
    assert!(matches!(open(&temp.path().join("absent")), TraceError::Read { .. }));
    assert!(matches!(open(temp.path()), TraceError::NotATrace(_)));
    assert!(matches!(open(Path::new("/bin/true")), TraceError::NotATrace(_)));

    let (folder, ..) = write(&temp, true);
    assert!(matches!(TraceWriter::create(&folder, meta()), Err(TraceError::Exists(_))));
    let json = fs::read_to_string(folder.join("meta.json")).unwrap();
    let version = |number| format!("\"format\": {number},");
    let other = json.replace(&version(libhpm::trace::FORMAT_VERSION), &version(99));
    fs::write(folder.join("meta.json"), other).unwrap();
    let sentence = open(&folder).to_string();
    assert!(sentence.contains("trace format 99") && sentence.contains("1.2.3"), "{sentence}");
    fs::write(folder.join("meta.json"), &json[..json.len() / 2]).unwrap();
    assert!(matches!(open(&folder), TraceError::Meta { .. }));
}

/// A complete trace, written once: its files by name.
fn written() -> &'static Vec<(String, Vec<u8>)> {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let temp = TempDir::new().unwrap();
        let (folder, ..) = write(&temp, true);
        let file =
            |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
        fs::read_dir(folder).unwrap().map(|entry| file(entry.unwrap())).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Damage anywhere in a trace never panics, and never invents rows beyond those written.
    #[test]
    fn a_damaged_trace_never_panics(file in any::<prop::sample::Index>(), place in any::<prop::sample::Index>(), flip: u8) {
        let folder = TempDir::new().unwrap();
        let damaged = file.index(written().len());
        for (index, (name, bytes)) in written().iter().enumerate() {
            let mut bytes = bytes.clone();
            if index == damaged {
                let place = place.index(bytes.len());
                bytes[place] ^= flip;
            }
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        if let Ok(reader) = TraceReader::open(folder.path()) {
            prop_assert!(reader.rows::<SampleRow>().count() <= 6);
            prop_assert!(reader.rows::<QuantumRow>().count() <= 6);
            prop_assert!(reader.rows::<StackRow>().count() <= 3);
        }
    }
}

proptest! {
    /// Any quantum comes back as it was.
    #[test]
    fn any_quantum_comes_back(numbers: [u64; 4], cpu: u32, counts: Vec<u64>, last_ip: Option<u64>, end: u8) {
        let temp = TempDir::new().unwrap();
        let folder = temp.path().join("any.hpm");
        let [sequence, start_tsc, end_tsc, records_lost] = numbers;
        let row = QuantumRow {
            sequence, start_tsc, end_tsc, records_lost, cpu, counts, last_ip, end, ..QuantumRow::default()
        };
        TraceWriter::create(&folder, meta()).unwrap().quantum(&row).unwrap();
        prop_assert_eq!(read::<QuantumRow>(&folder), [row]);
    }
}
