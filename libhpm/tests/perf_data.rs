//! Files of `perf record` (6.1): read as `perf script` reads them, and also when they are cut off or damaged anywhere.
//!
//! The files of `tests/data/perf` are recordings of one program that computes in `leaf`, called by `middle`, called by `main`:
//! `perf record -e cpu-clock:u OPTIONS ./tiny`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use libhpm::Result;
use libhpm::record::Attribution;
use libhpm::report::Resolver;
use libhpm::source::opened::open_trace;
use libhpm::source::perf_data::{PerfData, import, is_perf_data};
use libhpm::source::{Sink, Source};
use libhpm::symbol::FileFinder;
use libhpm::trace::{
    self, EventUse, MapRow, QuantumRow, SampleRow, ThreadChange, ThreadRow, TraceError, TraceReader,
};
use proptest::prelude::*;
use tempfile::TempDir;

/// An event's name, its samples and the sum of their periods.
type Sum = (&'static str, u64, u64);

/// Each file with what `perf script` shows of its events.
const FILES: [(&str, &[Sum]); 6] = [
    // -F 250 --sample-cpu --switch-events
    ("plain", &[("cpu-clock:u", 18, 72_000_000)]),
    // -F 200 -e page-faults -g --sample-cpu
    ("two", &[("cpu-clock:u", 10, 50_000_000), ("page-faults", 5, 431)]),
    // -F 50 --call-graph dwarf,1024
    ("dwarf", &[("cpu-clock:u", 2, 40_000_000)]),
    // -F 500 -z
    ("packed", &[("cpu-clock:u", 26, 52_000_000)]),
    // -F 200 -g -o -
    ("stream", &[("cpu-clock:u", 18, 90_000_000)]),
    // -e '{cpu-clock:u,page-faults:u}:S' -F 200 -g: perf script shows what was read of both with the first one's samples, which
    // is not taken over
    ("group", &[("cpu-clock:u", 17, 17 * 5_000_000), ("page-faults:u", 0, 0)]),
];

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/data/perf", &format!("{name}.data")].iter().collect()
}

fn bytes(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap()
}

/// Keeps what it is given.
#[derive(Default)]
struct Kept {
    samples: Vec<SampleRow>,
    quanta: Vec<QuantumRow>,
    maps: Vec<MapRow>,
    threads: Vec<ThreadRow>,
    stacks: Vec<(Vec<u64>, bool)>,
}

impl Sink for Kept {
    fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        self.samples.push(row.clone());
        Ok(())
    }
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        self.quanta.push(row.clone());
        Ok(())
    }
    fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        self.maps.push(row.clone());
        Ok(())
    }
    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        self.threads.push(row.clone());
        Ok(())
    }
    fn stack(&mut self, frames: &[u64], truncated: bool) -> Result<u32, TraceError> {
        self.stacks.push((frames.to_vec(), truncated));
        Ok(self.stacks.len() as u32 - 1)
    }
}

/// Everything of a file.
fn taken(bytes: Vec<u8>) -> Result<(Kept, PerfData)> {
    let mut source = PerfData::from_bytes(bytes)?;
    let mut kept = Kept::default();
    source.start(&mut kept)?;
    while !source.is_over() {
        source.take(&mut kept)?;
    }
    Ok((kept, source))
}

/// Samples and sum of periods of each event.
fn sums(kept: &Kept, source: &PerfData) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> =
        source.meta().events.iter().map(|event| (event.name.clone(), (0, 0))).collect();
    for row in &kept.samples {
        let sum = sums.get_mut(&source.meta().events[usize::from(row.event)].name).unwrap();
        *sum = (sum.0 + 1, sum.1 + row.period);
    }
    sums
}

/// What was lost, but for the names of the kernel's functions: the files were recorded under another kernel than most machines run.
fn but_the_kernel(mut losses: Vec<String>) -> Vec<String> {
    losses.retain(|loss| !loss.starts_with("functions of the kernel have no names"));
    losses
}

#[test]
fn samples_are_those_that_perf_script_shows() {
    for (name, expected) in FILES {
        let (kept, source) = taken(bytes(name)).unwrap();
        let sums = sums(&kept, &source);
        for &(event, samples, periods) in expected {
            let found = sums[event];
            assert_eq!(found.0, samples, "{name}: {event}");
            assert!(periods == 0 || found.1 == periods, "{name}: {event}: {found:?}");
        }
        assert_eq!(sums.len(), expected.len(), "{name}");
        assert_eq!(but_the_kernel(source.losses()), [""; 0], "{name}");
    }
}

#[test]
fn events_are_labelled_for_what_they_are() {
    let (_, source) = taken(bytes("two")).unwrap();
    let [clock, faults] = &source.meta().events[..] else { panic!() };
    assert_eq!((clock.mode, clock.attribution, clock.rate), (EventUse::Software, Attribution::Skid, 200));
    assert!(clock.user && !clock.kernel);
    assert_eq!((faults.mode, faults.attribution), (EventUse::Software, Attribution::Cause));
    assert!(source.meta().source_note.contains("perf 6.1"), "{}", source.meta().source_note);
    assert!(source.meta().command.ends_with(&["./tiny".into()]), "{:?}", source.meta().command);
}

#[test]
fn mappings_names_and_quanta_are_there() {
    let (kept, source) = taken(bytes("plain")).unwrap();
    let program = kept.maps.iter().find(|row| row.path.ends_with("/tiny") && row.executable).unwrap();
    assert_eq!(program.build_id.as_ref().map(Vec::len), Some(20));
    assert!(kept.samples.iter().all(|row| (program.start..program.end).contains(&row.ip)));
    let exec = kept.threads.iter().find(|row| row.what == ThreadChange::Exec as u8).unwrap();
    assert_eq!(exec.name, "tiny");
    assert!(!kept.quanta.is_empty());
    for row in &kept.samples {
        let of = kept.quanta.iter().find(|of| (of.cpu, of.sequence) == (row.cpu, row.quantum)).unwrap();
        assert!(of.tid == row.tid && (of.start_tsc..=of.end_tsc).contains(&row.tsc), "{of:?} {row:?}");
    }
    let on_cpu: u64 = kept.quanta.iter().map(|row| row.end_tsc - row.start_tsc).sum();
    assert_eq!(source.totals().unwrap().on_cpu_tsc, on_cpu);
    // 18 samples of 4 ms, and what is before the first and behind the last.
    assert!((68_000_000..100_000_000).contains(&on_cpu), "{on_cpu}");
}

#[test]
fn call_chains_are_stacks() {
    let (kept, _) = taken(bytes("two")).unwrap();
    let stacks: Vec<_> = kept.samples.iter().filter(|row| row.event == 0).map(|row| row.stack).collect();
    assert!(stacks.iter().all(Option::is_some), "{stacks:?}");
    for row in &kept.samples {
        let (frames, _) = &kept.stacks[row.stack.unwrap() as usize];
        assert_eq!(frames[0], row.ip);
        assert!(frames.iter().all(|&address| address < (-4095_i64) as u64), "no marks of modes");
    }
}

#[test]
fn a_trace_of_it_is_whole() {
    let temp = TempDir::new().unwrap();
    for (name, expected) in FILES {
        assert!(is_perf_data(&path(name)));
        let folder = temp.path().join(name);
        assert_eq!(but_the_kernel(import(&path(name), &folder).unwrap()), [""; 0]);
        let reader = TraceReader::open(&folder).unwrap();
        let verdict = trace::verify(&reader);
        assert!(verdict.is_good(), "{name}: {:?} {:?}", verdict.cuts, verdict.problems);
        let samples: u64 = expected.iter().map(|(_, samples, _)| samples).sum();
        let mut resolver = Resolver::new(&reader, FileFinder::default());
        let names: Vec<_> = reader.rows().map(|row| resolver.resolve(&row).thread_name).collect();
        assert_eq!(names.len() as u64, samples);
        assert!(names.iter().all(|name| ["tiny", "perf"].contains(&&**name)), "{name}: {names:?}");
    }
    assert!(!is_perf_data(temp.path()) && !is_perf_data(&temp.path().join("none")));
}

#[test]
fn a_file_and_a_trace_are_opened_alike_and_what_was_made_for_it_goes() {
    let temp = TempDir::new().unwrap();
    let made = temp.path().join("a.hpm");
    import(&path("two"), &made).unwrap();
    let trace = open_trace(&made).unwrap();
    assert!(trace.name() == made && trace.remarks().is_empty() && trace.folder() == made);
    assert!(trace.lacks_quanta("to be seen").ends_with("a.hpm holds no quantum to be seen; record again"));
    let file = open_trace(&path("two")).unwrap();
    let folder = file.folder().to_owned();
    assert!(file.name() == path("two") && folder.is_dir());
    assert_eq!(but_the_kernel(file.remarks().to_vec()), [""; 0]);
    assert!(file.lacks_quanta("").contains("--switch-events"));
    assert_eq!(file.rows::<SampleRow>().count(), trace.rows::<SampleRow>().count());
    drop(file);
    assert!(!folder.exists() && !folder.parent().unwrap().exists());
    let problem = open_trace(temp.path()).err().unwrap().to_string();
    assert!(problem.contains("is not an hpm trace"), "{problem}");
}

#[test]
fn what_cannot_be_read_is_said_in_a_sentence() {
    let sentence = |bytes: &[u8]| PerfData::from_bytes(bytes.to_vec()).err().unwrap().to_string();
    let mut swapped = bytes("plain");
    swapped[..8].reverse();
    let mut attr_size = bytes("plain");
    attr_size[16..24].fill(0);
    for (bytes, words) in [
        (&b""[..], "does not begin as a file"),
        (b"PERFILE", "does not begin as a file"),
        (&bytes("plain")[..60], "its header is cut off"),
        (&swapped, "another byte order"),
        (&attr_size, "the list of its events is damaged"),
    ] {
        assert!(sentence(bytes).contains(words), "{}", sentence(bytes));
    }
}

/// `perf record` that was killed: the header says that there are no records, and nothing comes behind them.
#[test]
fn a_recording_that_was_killed_keeps_its_samples() {
    let mut killed = bytes("two");
    let word = |at: usize| u64::from_le_bytes(killed[at..at + 8].try_into().unwrap()) as usize;
    let end = word(40) + word(48);
    killed.truncate(end);
    killed[48..56].fill(0);
    killed[72..104].fill(0);
    let (kept, source) = taken(killed).unwrap();
    let names: Vec<&str> = source.meta().events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["cpu-clock-0", "page-faults-1"], "the kinds are known, the names not");
    let counts: Vec<u64> = sums(&kept, &source).into_values().map(|sum| sum.0).collect();
    assert_eq!(counts, [10, 5]);
    assert!(source.losses()[0].contains("did not come to its end"), "{:?}", source.losses());
}

#[test]
fn a_file_that_is_cut_off_keeps_what_is_whole() {
    let whole = bytes("plain");
    let (all, _) = taken(whole.clone()).unwrap();
    let data = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let size = u64::from_le_bytes(whole[48..56].try_into().unwrap()) as usize;
    let mut last = 0;
    for end in (data..data + size).step_by(40) {
        let (kept, source) = taken(whole[..end].to_vec()).unwrap();
        assert!(!source.losses().is_empty(), "{end} of {}", data + size);
        assert!(kept.samples.len() >= last && kept.samples.len() <= all.samples.len());
        last = kept.samples.len();
        for (row, of) in kept.samples.iter().zip(&all.samples) {
            assert_eq!((row.tsc, row.ip, row.period), (of.tsc, of.ip, of.period));
        }
    }
    assert!(last + 1 >= all.samples.len(), "{last} of {}", all.samples.len());
}

#[test]
fn a_trace_of_a_file_that_is_cut_off_is_not_whole() {
    let temp = TempDir::new().unwrap();
    let (cut, folder) = (temp.path().join("cut.data"), temp.path().join("cut.hpm"));
    let whole = bytes("plain");
    let word = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    fs::write(&cut, &whole[..word(40) + word(48) / 2]).unwrap();
    let losses = import(&cut, &folder).unwrap();
    let reader = TraceReader::open(&folder).unwrap();
    let missing = &reader.meta().missing;
    assert!(missing.iter().any(|what| what.contains("the file is cut off")), "{missing:?}");
    assert!(missing.iter().all(|what| losses.contains(what)), "{missing:?} {losses:?}");
    assert!(!trace::verify(&reader).is_good());
}

/// An event's attributes that claim another size are not followed by something else.
#[test]
fn attributes_of_an_unknown_size_are_damage() {
    // Places of the header: how large an event is in the list of events, and where the list begins; and the feature EVENT_DESC, without which the list is
    // read.
    const EACH: usize = 16;
    const LIST: usize = 24;
    const EVENT_DESC: (usize, u8) = (72 + 12 / 8, 1 << (12 % 8));
    for (name, ..) in FILES {
        let whole = bytes(name);
        let number = |at: usize| usize::from(u16::from_le_bytes([whole[at], whole[at + 1]]));
        for (size, event) in (0..=u8::MAX).flat_map(|size| [(size, 0), (size, 1)]) {
            let mut damaged = whole.clone();
            damaged[number(LIST) + event * number(EACH) + 4] = size;
            damaged[EVENT_DESC.0] &= !EVENT_DESC.1;
            if let Err(error) = taken(damaged) {
                assert!(error.to_string().starts_with("(memory) cannot be read as"), "{error}");
            }
        }
    }
}

proptest! {
    /// Bits that are flipped and ends that are cut off are no reason to panic, nor to take more memory than the file has.
    #[test]
    fn damage_is_no_reason_to_panic(
        file in 0..FILES.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..12),
        head in prop::collection::vec((0_usize..400, any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut damaged = bytes(FILES[file].0);
        for (place, bit) in flips {
            let place = place.index(damaged.len());
            damaged[place] ^= 1 << bit;
        }
        for (place, byte) in head {
            damaged[place] = byte;
        }
        if let Some(cut) = cut {
            damaged.truncate(cut.index(damaged.len()));
        }
        if let Err(error) = taken(damaged) {
            prop_assert!(error.to_string().starts_with("(memory) cannot be read as"), "{}", error);
        }
    }
}
