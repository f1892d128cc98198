//! Reports of a small trace whose every function is known: it was recorded in the kernel, whose symbols it carries.

use std::fs;
use std::path::Path;

use clap::Parser;
use libhpm::record::{Attribution, Level, Snoop};
use libhpm::symbol::{Code, Place};
use libhpm::trace::{
    Event, EventUse, KernelSymbolRow, Machine, MapRow, QuantumRow, SampleRow, ThreadChange, ThreadRow,
    Totals, TraceWriter,
};
use tempfile::TempDir;

use super::*;

pub(super) const KERNEL: u64 = 0xffff_ffff_8100_0000;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    report: ReportArgs,
}

pub(crate) fn meta() -> Meta {
    let event = |name: &str, mode, period| Event {
        name: name.into(),
        mode,
        period,
        user: true,
        kernel: true,
        ..Event::default()
    };
    Meta {
        hpm_version: "0.1.0".into(),
        source: "driver".into(),
        machine: Machine {
            pmu: "skylake".into(),
            vendor: "GenuineIntel".into(),
            family: 6,
            model: 94,
            stepping: 3,
            cpus: 2,
            kernel_release: "7.3.4".into(),
            host_name: "lab".into(),
            boot_id: String::new(),
        },
        events: vec![
            event("l1d-load-miss", EventUse::Precise, 1000),
            event("instructions", EventUse::Count, 0),
        ],
        command: vec!["sort".into(), "file".into()],
        ..Meta::default()
    }
}

/// Ten samples in `copy`, called by `read`; three in `read` itself; one with an address only. One stack is truncated.
pub(super) fn trace(temp: &TempDir, complete: bool) -> PathBuf {
    let folder = temp.path().join("small.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    for (offset, name) in [(0, "entry"), (0x100, "read"), (0x200, "copy"), (0x300, "idle")] {
        let symbol = KernelSymbolRow { address: KERNEL + offset, name: name.into(), module: None };
        writer.kernel_symbol(&symbol).unwrap();
    }
    let name = |tsc, tid, name: &str| ThreadRow {
        tsc,
        pid: 7,
        tid,
        name: name.into(),
        what: ThreadChange::Start as u8,
        ..ThreadRow::default()
    };
    writer.thread(&name(0, 7, "sort")).unwrap();
    writer.thread(&name(0, 8, "helper")).unwrap();
    let deep = writer.stack(&[KERNEL + 0x210, KERNEL + 0x150, KERNEL + 0x50], false).unwrap();
    let shallow = writer.stack(&[KERNEL + 0x160], true).unwrap();
    let sample = |number: u64, tid, offset, stack| SampleRow {
        tsc: number,
        cpu: u32::from(number.is_multiple_of(4)),
        pid: 7,
        tid,
        period: 1000,
        ip: KERNEL + offset,
        stack,
        ..SampleRow::default()
    };
    (0..10).for_each(|number| writer.sample(&sample(number, 7, 0x210, Some(deep))).unwrap());
    (10..13).for_each(|number| writer.sample(&sample(number, 8, 0x160, Some(shallow))).unwrap());
    writer.sample(&sample(13, 8, 0x300, None)).unwrap();
    let quantum =
        QuantumRow { counts: vec![14_500, 1_234_567], records: 14, records_lost: 2, ..QuantumRow::default() };
    writer.quantum(&quantum).unwrap();
    if complete {
        let totals =
            Totals { counts: vec![14_600, 1_300_000], records_lost: 2, quanta_lost: 1, ..Totals::default() };
        writer.finish(totals).unwrap();
    }
    folder
}

pub(super) fn report(folder: &Path, options: &[&str]) -> Result<(String, Vec<String>)> {
    let words = ["report"].into_iter().chain(options.iter().copied()).chain([folder.to_str().unwrap()]);
    output(&Cli::try_parse_from(words).unwrap().report)
}

fn text(options: &[&str]) -> String {
    let temp = TempDir::new().unwrap();
    report(&trace(&temp, true), options).unwrap().0
}

#[test]
fn stacks_by_frame_pointers_are_not_called_whole() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, true);
    let file = folder.join("meta.json");
    let meta = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, meta.replacen('{', "{\"frame_pointers\": true,", 1)).unwrap();
    let text = report(&folder, &[]).unwrap().0;
    assert!(text.contains("10 by frame pointers, less callers that keep none, 3 without"), "{text}");
}

#[test]
fn of_several_events_of_one_name_one_is_chosen() {
    let mut meta = meta();
    meta.events.push(Event { period: 5000, ..meta.events[0].clone() });
    assert_eq!(event_index(&meta, "instructions").unwrap(), 1);
    assert_eq!([1, 2].map(|number| event_index(&meta, &format!("l1d-load-miss#{number}")).unwrap()), [0, 2]);
    for name in ["l1d-load-miss", "l1d-load-miss#3", "l1d-load-miss#0"] {
        let error = event_index(&meta, name).unwrap_err().to_string();
        assert!(error.starts_with("the trace has 2 events called `l1d-load-miss`"), "{error}");
    }
}

#[test]
fn functions_and_lines() {
    insta::assert_snapshot!(text(&[]));
}

/// The words of the lines of a table that begin with these samples.
fn row(options: &[&str], samples: &str) -> Vec<String> {
    let text = text(options);
    let of = text.lines().find(|line| line.split_whitespace().next() == Some(samples));
    of.unwrap_or_else(|| panic!("{text}")).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn processes_and_files_of_code() {
    let process = row(&["--by", "process"], "14");
    assert_eq!((&process[1], &process[4..]), (&"100.0".to_owned(), &["sort", "7"].map(str::to_owned)[..]));
    let module = row(&["--by", "module"], "14");
    assert_eq!(
        (&module[4..6], &module[6..]),
        (&["100.0", "%"].map(str::to_owned)[..], &["[kernel]".to_owned()][..])
    );
}

#[test]
fn threads() {
    insta::assert_snapshot!(text(&["--by", "thread"]));
}

#[test]
fn cpus() {
    insta::assert_snapshot!(text(&["--by", "cpu"]));
}

#[test]
fn instructions_up_to_a_limit() {
    insta::assert_snapshot!(text(&["--by", "instruction", "--limit", "1"]));
}

/// Four loads: one from L2 and three from DRAM, one of which missed the TLB; and one that does not tell.
fn memory_trace(temp: &TempDir) -> PathBuf {
    let folder = temp.path().join("memory.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    let load = |level: Level, latency_cycles, stlb_miss| SampleRow {
        period: 1000,
        ip: KERNEL,
        level: Some(level as u8),
        snoop: Some(Snoop::None as u8),
        stlb_miss: Some(stlb_miss),
        locked: Some(false),
        latency_cycles: Some(latency_cycles),
        ..SampleRow::default()
    };
    writer.sample(&load(Level::L2, 14, false)).unwrap();
    writer.sample(&load(Level::LocalDram, 300, false)).unwrap();
    writer.sample(&load(Level::LocalDram, 310, false)).unwrap();
    writer.sample(&load(Level::LocalDram, 401, true)).unwrap();
    writer.sample(&SampleRow { period: 1000, ip: KERNEL, ..SampleRow::default() }).unwrap();
    writer.finish(Totals { counts: vec![5000, 0], ..Totals::default() }).unwrap();
    folder
}

#[test]
fn data_sources_with_their_latencies() {
    let temp = TempDir::new().unwrap();
    let folder = memory_trace(&temp);
    let text = |options: &[&str]| report(&folder, options).unwrap().0;
    insta::assert_snapshot!(text(&["--by", "source"]));
    insta::assert_snapshot!(text(&["--by", "level", "--sort", "latency"]));
    insta::assert_snapshot!(text(&["--by", "function,level", "--sort", "latency"]));
    let json: serde_json::Value = serde_json::from_str(&text(&["--by", "level,source", "--json"])).unwrap();
    assert_eq!(json["tables"][0]["by"], "level,source");
}

#[test]
fn without_latencies_there_is_nothing_to_sort_by() {
    let temp = TempDir::new().unwrap();
    let refused = report(&trace(&temp, true), &["--sort", "latency"]).unwrap_err().to_string();
    assert!(refused.contains("no sample here has a latency to sort by"), "{refused}");
}

#[test]
fn branches_with_their_mispredictions() {
    const MISPREDICTED: u64 = 1 << 63;
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("branches.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    for (offset, name) in [(0, "entry"), (0x100, "read")] {
        writer
            .kernel_symbol(&KernelSymbolRow { address: KERNEL + offset, name: name.into(), module: None })
            .unwrap();
    }
    let (call, back) = ([KERNEL + 0x10, KERNEL + 0x100, 6], [KERNEL + 0x120, KERNEL + 0x15, 0]);
    let missed = [back[0], back[1], MISPREDICTED | 9];
    for branches in [[call, back, call], [missed, call, back]] {
        let row =
            SampleRow { period: 1000, ip: KERNEL, branches: Some(branches.concat()), ..SampleRow::default() };
        writer.sample(&row).unwrap();
    }
    writer.finish(Totals { counts: vec![2000, 0], ..Totals::default() }).unwrap();
    let (text, _) = report(&folder, &["--by", "branch"]).unwrap();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |row: &[&str]| assert!(words.iter().any(|words| words == row), "{row:?} is not in\n{text}");
    let [from, to] = [call[0], call[1]].map(|address| format!("{address:#x}"));
    has(&["3", "50.0", "%", "0.0", "%", "6.0", &from, "entry", &to, "read"]);
    let [from, to] = [back[0], back[1]].map(|address| format!("{address:#x}"));
    has(&["3", "50.0", "%", "33.3", "%", "9.0", &from, "read", &to, "entry"]);
    let error = report(&memory_trace(&temp), &["--by", "branch"]).unwrap_err().to_string();
    assert!(error.contains("no branch records"), "{error}");
}

#[test]
fn json_has_the_same_numbers() {
    let json: serde_json::Value = serde_json::from_str(&text(&["--json"])).unwrap();
    assert_eq!(json["summary"]["events"][0]["sampled"]["samples"], 14);
    assert_eq!(json["summary"]["events"][0]["counted"], 14_600);
    assert_eq!(json["summary"]["events"][0]["truncated_stacks"], 3);
    let copy = &json["tables"][0]["entries"][0];
    assert_eq!((copy["function"].as_str(), copy["self"]["samples"].as_u64()), (Some("copy"), Some(10)));
    let entry =
        json["tables"][0]["entries"].as_array().unwrap().iter().find(|entry| entry["function"] == "entry");
    assert_eq!(
        (&entry.unwrap()["self"]["events"], &entry.unwrap()["total"]["events"]),
        (&0.into(), &10_000.into())
    );
}

#[test]
fn the_flame_graph_is_written_and_named() {
    let temp = TempDir::new().unwrap();
    let svg = temp.path().join("graph.svg");
    let path = svg.to_str().unwrap();
    let (text, _) = report(&trace(&temp, true), &["--picture", path]).unwrap();
    assert!(text.ends_with(&format!("flame graph: {path}\n")), "{text}");
    let svg = fs::read_to_string(&svg).unwrap();
    assert!(["sort: l1d-load-miss", "entry", "copy", "[truncated]"].iter().all(|word| svg.contains(word)));
}

#[test]
fn an_unfinished_trace_is_reported_with_a_warning() {
    let temp = TempDir::new().unwrap();
    let (text, warnings) = report(&trace(&temp, false), &[]).unwrap();
    assert!(text.contains("counted   14,500") && text.contains("copy"), "{text}");
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].contains("did not come to its proper end"));
}

#[test]
fn a_trace_cut_in_the_middle_is_reported_with_a_warning() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, true);
    let samples = folder.join("samples.arrows");
    let bytes = fs::read(&samples).unwrap();
    fs::write(&samples, &bytes[..bytes.len() / 2]).unwrap();
    let (text, warnings) = report(&folder, &[]).unwrap();
    assert!(text.contains("samples   0"), "{text}");
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("`samples`") && warnings[0].contains("0 rows were read of 14"),
        "{warnings:?}"
    );
}

#[test]
fn nothing_to_report_is_an_error() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, true);
    for table in ["samples", "quanta"] {
        fs::write(folder.join(format!("{table}.arrows")), "").unwrap();
    }
    let error = report(&folder, &[]).unwrap_err().to_string();
    let damaged = "holds no quantum and no sample that can be read: ";
    assert!(error.contains(damaged), "{error}");
    let empty = temp.path().join("empty.hpm");
    TraceWriter::create(&empty, meta()).unwrap().finish(Totals::default()).unwrap();
    let error = report(&empty, &[]).unwrap_err().to_string();
    let cure = "empty.hpm holds no quantum and no sample: record for longer, or sample more often (-c)";
    assert!(error.ends_with(cure), "{error}");
    assert!(report(temp.path(), &[]).unwrap_err().to_string().contains("not an hpm trace"));
}

#[test]
fn an_event_that_the_trace_has_not_is_an_error() {
    let temp = TempDir::new().unwrap();
    let error = report(&trace(&temp, true), &["--event", "cycles"]).unwrap_err().to_string();
    assert_eq!(error, "the trace has no event `cycles`; it has l1d-load-miss, instructions");
}

/// Samples of this test's own `main`, with the instruction's place in it and how many there are.
fn trace_of_main(temp: &TempDir, name: &str, event: Event, samples: &[(usize, u64)]) -> PathBuf {
    trace_of_another_main(temp, name, event, samples, None)
}

/// The same, of a file that had this build ID.
fn trace_of_another_main(
    temp: &TempDir,
    name: &str,
    event: Event,
    samples: &[(usize, u64)],
    build_id: Option<Vec<u8>>,
) -> PathBuf {
    const BASE: u64 = 0x1000_0000;
    let file = std::env::current_exe().unwrap();
    let finder = libhpm::symbol::FileFinder::default();
    let code = Code::around(&Place::of_symbol("main"), &file, None, &finder).unwrap().unwrap();
    let offset = |place: usize| {
        let address = code.instructions[place].address;
        let pages = (0..4096).map(|page| address.wrapping_sub(page * 4096));
        pages.into_iter().find(|&offset| code.instruction_of(offset) == Some(place)).unwrap()
    };
    let folder = temp.path().join(name);
    let meta = Meta { events: vec![event], complete: true, ..meta() };
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    let map = MapRow {
        pid: 7,
        start: BASE,
        end: BASE + file.metadata().unwrap().len(),
        executable: true,
        path: file.to_str().unwrap().into(),
        build_id,
        ..MapRow::default()
    };
    writer.map(&map).unwrap();
    for &(place, count) in samples {
        let ip = BASE + offset(place);
        let sample = SampleRow { tsc: 1, pid: 7, tid: 7, period: 1000, ip, ..SampleRow::default() };
        (0..count).for_each(|_| writer.sample(&sample).unwrap());
    }
    let elsewhere = SampleRow { tsc: 1, pid: 7, tid: 7, period: 1000, ip: 5, ..SampleRow::default() };
    writer.sample(&elsewhere).unwrap();
    writer.finish(Totals::default()).unwrap();
    folder
}

#[test]
fn offsets_of_several_traces_stand_side_by_side() {
    let temp = TempDir::new().unwrap();
    let event = |mode, attribution| Event {
        name: "load".into(),
        mode,
        attribution,
        period: 1000,
        user: true,
        ..Event::default()
    };
    let late =
        trace_of_main(&temp, "late.hpm", event(EventUse::Interrupt, Attribution::Skid), &[(3, 6), (4, 3)]);
    let exact = trace_of_main(&temp, "exact.hpm", event(EventUse::Precise, Attribution::Cause), &[(0, 9)]);
    let next = trace_of_main(&temp, "next.hpm", event(EventUse::Precise, Attribution::Next), &[(1, 9)]);
    let svg = temp.path().join("offsets.svg");
    let report = |options: &[&str]| {
        let traces = [&late, &exact, &next].map(|path| path.to_str().unwrap());
        let words = ["report", "--by", "offset", "--around", "main", "--picture", svg.to_str().unwrap()];
        let all = words.iter().chain(options).copied().chain(traces);
        output(&Cli::try_parse_from(all).unwrap().report).unwrap().0
    };
    let json: serde_json::Value = serde_json::from_str(&report(&["--json"])).unwrap();
    let histogram = |trace: usize| -> Vec<(i64, u64)> {
        let entries = json["traces"][trace]["entries"].as_array().unwrap();
        entries
            .iter()
            .map(|one| (one["distance"].as_i64().unwrap(), one["samples"].as_u64().unwrap()))
            .collect()
    };
    assert_eq!(histogram(0), [(3, 6), (4, 3)]);
    assert_eq!(
        (histogram(1), histogram(2)),
        (vec![(0, 9)], vec![(0, 9)]),
        "the next one's cause is the one before"
    );
    assert_eq!(json["traces"][0]["elsewhere"]["samples"], 1);
    let text = report(&[]);
    for wanted in [
        "load by interrupts, 10 samples, 1 of them in other functions",
        "60.0 %",
        "90.0 %",
        "next instruction",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in {text}");
    }
    let fewer = report(&["--limit", "1"]);
    assert!(fewer.contains("and 1 more"), "{fewer}");
    assert_eq!(std::fs::read_to_string(svg).unwrap().matches("<title>").count(), 4);
}

#[test]
fn offsets_need_a_place_that_exists() {
    let temp = TempDir::new().unwrap();
    let event = Event { name: "load".into(), mode: EventUse::Precise, ..Event::default() };
    let folder = trace_of_main(&temp, "one.hpm", event, &[(0, 1)]);
    let error = |options: &[&str]| {
        let words = ["report", "--by", "offset", folder.to_str().unwrap()];
        let all = words.iter().chain(options).copied();
        output(&Cli::try_parse_from(all).unwrap().report).unwrap_err().to_string()
    };
    assert!(error(&[]).contains("--around"));
    assert!(error(&["--around", "no_such_function"]).contains("no_such_function"));
    assert!(error(&["--around", "0x5"]).contains("mapped at 0x5"));
}

#[test]
fn offsets_are_of_the_recorded_file_only() {
    let temp = TempDir::new().unwrap();
    let event = || Event { name: "load".into(), mode: EventUse::Precise, ..Event::default() };
    let known = trace_of_main(&temp, "known.hpm", event(), &[(0, 1)]);
    let other = trace_of_another_main(&temp, "other.hpm", event(), &[(0, 1)], Some(vec![1, 2, 3]));
    let error = |around: &str, traces: &[&Path]| {
        let words = ["report", "--by", "offset", "--around", around].into_iter();
        let all = words.chain(traces.iter().map(|path| path.to_str().unwrap()));
        format!("{:#}", output(&Cli::try_parse_from(all).unwrap().report).unwrap_err())
    };
    let cases: [(&str, &[&Path]); 3] =
        [("main", &[&other]), ("0x10000000", &[&other]), ("main", &[&known, &other])];
    for (around, traces) in cases {
        let error = error(around, traces);
        assert!(error.contains("its build ID differs") && error.contains("--symfs"), "{error}");
    }
}
