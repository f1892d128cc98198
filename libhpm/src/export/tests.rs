//! Each format read back by somebody else's reader, or by the format's own definition.

use std::collections::BTreeMap;
use std::io::Read as _;

use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use prost::Message as _;
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::report::{CallChain, Extent, Resolver, Sample};
use crate::symbol::{FileFinder, Frame};
use crate::trace::{
    Event, EventUse, KernelSymbolRow, MarkerRow, Meta, Row, StackRow, ThreadChange, ThreadRow, Totals,
    TraceWriter, Within,
};

const KERNEL: u64 = 0xffff_ffff_8100_0000;

/// Three samples of 1000 cycles in `copy`, called by `read`, of thread 7; one of 500 in `read` of thread 8, truncated; one of 3
/// misses in `copy` of thread 7. Samples were lost.
fn trace(temp: &TempDir) -> TraceReader {
    let folder = temp.path().join("a.hpm");
    let event =
        |name: &str, period| Event { name: name.into(), mode: EventUse::Precise, period, ..Event::default() };
    let counted = Event { name: "instructions".into(), ..Event::default() };
    let events = vec![event("cycles", 1000), counted, event("misses", 3)];
    let mut meta = Meta { events, command: vec!["/bin/sort".into(), "-n".into()], ..Meta::default() };
    meta.clock.tsc_khz = 1_000_000;
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    for (offset, name) in [(0, "entry"), (0x100, "read"), (0x200, "copy")] {
        let row = KernelSymbolRow { address: KERNEL + offset, name: name.into(), module: None };
        writer.kernel_symbol(&row).unwrap();
    }
    for (tid, name) in [(7, "sort"), (8, "a \"helper\", too")] {
        let what = ThreadChange::Start as u8;
        writer.thread(&ThreadRow { pid: 7, tid, name: name.into(), what, ..ThreadRow::default() }).unwrap();
    }
    let deep = writer.stack(&[KERNEL + 0x210, KERNEL + 0x150], false).unwrap();
    let cut = writer.stack(&[KERNEL + 0x150], true).unwrap();
    let samples = [
        (1000, 7, 0, 1000, 0x210, deep),
        (2000, 7, 0, 1000, 0x210, deep),
        (3000, 8, 0, 500, 0x150, cut),
        (3500, 7, 2, 3, 0x210, deep),
        (4000, 7, 0, 1000, 0x210, deep),
    ];
    for (tsc, tid, event, period, ip, stack) in samples {
        let ip = KERNEL + ip;
        let row =
            SampleRow { tsc, pid: 7, tid, event, period, ip, stack: Some(stack), ..SampleRow::default() };
        writer.sample(&row).unwrap();
    }
    for (sequence, tid, end) in [(0, 7, 2), (1, 8, 1)] {
        let start_tsc = 1000 + sequence * 2000;
        let (end_tsc, counts) = (start_tsc + 1500, vec![42, 43, 44]);
        let row =
            QuantumRow { sequence, pid: 7, tid, start_tsc, end_tsc, end, counts, ..QuantumRow::default() };
        writer.quantum(&row).unwrap();
    }
    let row =
        MarkerRow { tsc: 2500, text: "half".into(), tid: Some(8), value: Some(5), ..MarkerRow::default() };
    writer.marker(&row).unwrap();
    let totals =
        Totals { records_lost: 12, running_tsc: vec![30, 30, 15], on_cpu_tsc: 30, ..Totals::default() };
    writer.finish(totals).unwrap();
    TraceReader::open(folder).unwrap()
}

fn written(write: fn(&Stacks<'_>, &mut dyn Write) -> io::Result<()>, events: &[usize]) -> Vec<u8> {
    let temp = TempDir::new().unwrap();
    written_of(&trace(&temp), write, events)
}

/// The same of a trace whose cycles were sampled only where they are dense.
fn written_dense(write: fn(&Stacks<'_>, &mut dyn Write) -> io::Result<()>, events: &[usize]) -> Vec<u8> {
    let temp = TempDir::new().unwrap();
    let file = trace(&temp).folder().join("meta.json");
    let mut meta: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    meta["events"][0]["within"] = serde_json::json!({"event": "instructions", "events": 300});
    std::fs::write(&file, meta.to_string()).unwrap();
    written_of(&TraceReader::open(temp.path().join("a.hpm")).unwrap(), write, events)
}

fn written_of(
    reader: &TraceReader,
    write: fn(&Stacks<'_>, &mut dyn Write) -> io::Result<()>,
    events: &[usize],
) -> Vec<u8> {
    let mut resolver = Resolver::new(reader, FileFinder::default());
    let (stacks, cut) = Stacks::read(reader, &mut resolver, events);
    assert_eq!(cut, None);
    let mut bytes = Vec::new();
    write(&stacks, &mut bytes).unwrap();
    bytes
}

#[test]
fn remarks_tell_what_is_lost_and_what_was_measured_in_turns() {
    let temp = TempDir::new().unwrap();
    let told = remarks(trace(&temp).meta());
    assert_eq!(
        told,
        [
            "12 samples could not be written or were held back",
            "misses took turns with other events, or the PMU was another hpm session's: it was measured in 50.0 % of the time, and nothing is scaled",
        ]
    );
    assert_eq!(remarks(&Meta { complete: true, ..Meta::default() }), [""; 0]);
    let totals = Some(Totals { throttled: 4, ..Totals::default() });
    let held_back = Meta { complete: true, source: "perf_event".into(), totals, ..Meta::default() };
    assert_eq!(
        remarks(&held_back),
        ["samples were held back 4 times: they came faster than the kernel allows"]
    );
}

/// Counts by perf_event are sums of periods, but for clocks, whose quanta have their length, and events that are sampled each time.
#[test]
fn counts_that_are_estimates_are_told() {
    let event = |name: &str, mode, period| Event { name: name.into(), mode, period, ..Event::default() };
    let events = vec![
        Event { user: true, ..event("cpu-clock:u", EventUse::Software, 1_000_000) },
        event("instructions:u", EventUse::Interrupt, 100_000),
        event("page-faults:u", EventUse::Software, 1),
        event("cycles:u", EventUse::Count, 0),
    ];
    let meta = Meta { complete: true, source: "perf_event".into(), events, ..Meta::default() };
    let told =
        "counts of instructions:u are estimates: the sums of the periods of the samples in each quantum";
    let of_both =
        "counts of cpu-clock:u are the time on CPUs in user and kernel mode; samples alone are of one mode";
    assert_eq!(quanta_remarks(&meta), [of_both, told]);
    assert_eq!(quanta_remarks(&Meta { source: "perf.data".into(), ..meta.clone() }), [of_both, told]);
    assert_eq!(counts_remarks(&meta, false), [of_both]);
    assert_eq!(quanta_remarks(&Meta { source: "driver".into(), ..meta }), [""; 0]);
}

/// Nobody knows how many events they stand for.
#[test]
fn samples_of_dense_places_count_as_one_each() {
    let folded = String::from_utf8(written_dense(write_folded, &[0])).unwrap();
    assert_eq!(folded, "a \"helper\", too;[truncated];read 1\nsort;read;copy 3\n");
    let svg = String::from_utf8(written_dense(write_svg, &[0])).unwrap();
    assert!(svg.contains("copy (3 samples of cycles"), "{svg}");
    let told = "samples of cycles come only where 1000 of it happen within 300 instructions: shares are of these dense places";
    assert!(svg.contains(told), "{svg}");
    let mut bytes = Vec::new();
    GzDecoder::new(&written_dense(write_pprof, &[0, 2])[..]).read_to_end(&mut bytes).unwrap();
    let profile = pprof::Profile::decode(&bytes[..]).unwrap();
    let kinds = profile.sample_type.iter().map(|of| profile.string_table[of.kind as usize].as_str());
    assert!(kinds.eq(["cycles_samples", "cycles_dense_samples", "misses_samples", "misses"]));
    assert_eq!(profile.period, 1);
    assert!(profile.sample.iter().any(|sample| sample.value == [3, 3, 1, 3]), "{:?}", profile.sample);
}

#[test]
fn samples_of_dense_places_weigh_one_beside_others_that_stand_for_events() {
    let svg = String::from_utf8(written_dense(write_svg, &[0, 2])).unwrap();
    assert!(svg.contains("copy (6 samples of cycles + misses"), "{svg}");
    let file: Value = serde_json::from_slice(&written_dense(write_speedscope, &[0, 2])).unwrap();
    let weights = |index: usize| file["profiles"][index]["weights"].clone();
    assert_eq!([weights(0), weights(1)], [serde_json::json!([1, 1, 1]), serde_json::json!([1])]);
    assert_eq!(file["profiles"][2]["endValue"], 3, "misses stand for their period");
    let profile: Value = serde_json::from_slice(&written_dense(write_firefox, &[0])).unwrap();
    assert_eq!(profile["threads"][0]["samples"]["weight"], serde_json::json!([1, 1, 1]));
}

/// As a merged trace has them.
#[test]
fn events_of_one_name_are_told_apart() {
    let within = |events| Some(Within { event: "instructions".into(), events });
    let event = |name: &str, within| Event { name: name.into(), period: 50, within, ..Event::default() };
    let events = vec![event("load", within(1000)), event("store", within(1000)), event("load", within(2000))];
    let meta = Meta { events, ..Meta::default() };
    let told = dense_places(&meta);
    for (sentence, begin) in told.iter().zip([
        "samples of load#1 come only where 50 of it happen within 1000",
        "samples of store come",
        "samples of load#2 come only where 50 of it happen within 2000",
    ]) {
        assert!(sentence.starts_with(begin), "{sentence}");
    }
    assert_eq!((told.len(), meta.event_name(3)), (3, String::new()));
}

#[test]
fn folded_stacks() {
    let text = String::from_utf8(written(write_folded, &[0])).unwrap();
    assert_eq!(text, "a \"helper\", too;[truncated];read 500\nsort;read;copy 3000\n");
}

#[test]
fn a_flame_graph_names_the_functions_and_the_loss() {
    let svg = String::from_utf8(written(write_svg, &[0])).unwrap();
    assert!(svg.contains("copy (3,000") && svg.contains("12 samples could not"), "{svg}");
    assert!(svg.trim_end().ends_with("</svg>"));
}

#[test]
fn speedscope_has_a_profile_of_each_event_in_each_thread() {
    let file: Value = serde_json::from_slice(&written(write_speedscope, &[0, 2])).unwrap();
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let names: Vec<&str> = file["shared"]["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["name"].as_str().unwrap())
        .collect();
    let profile = |index: usize| &file["profiles"][index];
    let stack = |of: &Value| -> Vec<&str> {
        of.as_array().unwrap().iter().map(|place| names[place.as_u64().unwrap() as usize]).collect()
    };
    let titles: Vec<&str> = (0..3).map(|index| profile(index)["name"].as_str().unwrap()).collect();
    assert_eq!(titles, ["sort 7: cycles", "a \"helper\", too 8: cycles", "sort 7: misses"]);
    let ends: Vec<u64> = (0..3).map(|index| profile(index)["endValue"].as_u64().unwrap()).collect();
    assert_eq!(ends, [3000, 500, 3]);
    assert_eq!(profile(0)["samples"].as_array().unwrap().len(), 3);
    assert_eq!(stack(&profile(0)["samples"][0]), ["read", "copy"]);
    assert_eq!(stack(&profile(1)["samples"][0]), ["[truncated]", "read"]);
}

#[test]
fn pprof_has_samples_and_counts_of_each_event() {
    let mut bytes = Vec::new();
    GzDecoder::new(&written(write_pprof, &[0, 2])[..]).read_to_end(&mut bytes).unwrap();
    let profile = pprof::Profile::decode(&bytes[..]).unwrap();
    let string = |place: i64| profile.string_table[place as usize].as_str();
    assert_eq!(profile.string_table[0], "");
    let types: Vec<_> = profile.sample_type.iter().map(|of| (string(of.kind), string(of.unit))).collect();
    let names = ["cycles_samples", "cycles", "misses_samples", "misses"];
    assert_eq!(types, names.map(|name| (name, "count")));
    let function = |id: u64| {
        let location = profile.location.iter().find(|location| location.id == id).unwrap();
        let function = profile.function.iter().find(|function| function.id == location.line[0].function_id);
        string(function.unwrap().name)
    };
    let samples: BTreeMap<Vec<&str>, &[i64]> = profile
        .sample
        .iter()
        .map(|sample| (sample.location_id.iter().map(|id| function(*id)).collect(), &sample.value[..]))
        .collect();
    let expected =
        [(vec!["copy", "read"], &[3, 3000, 1, 3][..]), (vec!["read", "[truncated]"], &[1, 500, 0, 0])];
    assert_eq!(samples, BTreeMap::from(expected));
    let label = profile.sample[0].label[0];
    assert_eq!((string(label.key), string(label.str)), ("thread", "sort"));
    let comments: Vec<&str> = profile.comment.iter().map(|&comment| string(comment)).collect();
    assert_eq!(comments[..2], ["/bin/sort -n", "12 samples could not be written or were held back"]);
    assert_eq!(string(profile.default_sample_type), "cycles");
}

#[test]
fn inlined_functions_are_lines_of_one_pprof_location() {
    let temp = TempDir::new().unwrap();
    let reader = trace(&temp);
    let mut resolver = Resolver::new(&reader, FileFinder::default());
    let (mut stacks, _) = Stacks::read(&reader, &mut resolver, &[0]);
    let frame = |name: &str, inlined| Frame {
        function: Some(name.into()),
        module: "/usr/bin/sort".into(),
        inlined,
        ..Frame::default()
    };
    let calls = vec![[frame("compare", true), frame("main", false)].into()];
    let chain = CallChain { calls, extent: Extent::Whole, linked_address: 0 }.into();
    stacks.samples = vec![StackSample {
        sample: Sample { chain, ..stacks.samples[0].sample.clone() },
        ..stacks.samples[0].clone()
    }];
    let mut bytes = Vec::new();
    write_pprof(&stacks, &mut bytes).unwrap();
    let mut plain = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
    let profile = pprof::Profile::decode(&plain[..]).unwrap();
    assert_eq!((profile.location.len(), profile.location[0].line.len()), (1, 2));
    let names: Vec<&str> = profile
        .function
        .iter()
        .map(|function| profile.string_table[function.name as usize].as_str())
        .collect();
    assert_eq!(names, ["compare", "main"], "innermost first");
    assert_eq!(profile.string_table[profile.mapping[0].filename as usize], "/usr/bin/sort");
}

#[test]
fn firefox_has_threads_with_weighted_samples_cpu_time_and_markers() {
    let profile: Value = serde_json::from_slice(&written(write_firefox, &[0])).unwrap();
    assert!(profile["meta"]["product"].as_str().unwrap().starts_with("sort; 12 samples could not"));
    assert_eq!(profile["meta"]["symbolicated"], true);
    let threads = profile["threads"].as_array().unwrap();
    let names: Vec<&str> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sort", "a \"helper\", too"]);
    let samples = &threads[0]["samples"];
    assert_eq!(samples["weight"], serde_json::json!([1000, 1000, 1000]));
    // The first quantum is from 0 to 1.5 µs; the samples come at 0, 1 and 3 µs. The format has whole µs.
    assert_eq!(samples["threadCPUDelta"], serde_json::json!([0, 1, 0]), "{samples}");
    assert_eq!(threads[1]["markers"]["length"], 1);
    assert!(profile.to_string().contains("\"copy\"") && profile.to_string().contains("\"half\""));
    let both: Value = serde_json::from_slice(&written(write_firefox, &[0, 2])).unwrap();
    assert!(both["threads"].as_array().unwrap().iter().any(|thread| thread["name"] == "sort (misses)"));
}

#[test]
fn the_chrome_trace_has_quanta_on_both_tracks_and_markers() {
    let temp = TempDir::new().unwrap();
    let mut bytes = Vec::new();
    assert_eq!(write_chrome(&trace(&temp), &mut bytes).unwrap(), []);
    let file: Value = serde_json::from_slice(&bytes).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let quanta = of("X");
    assert_eq!(quanta.len(), 4);
    assert_eq!(
        (&quanta[0]["pid"], &quanta[0]["tid"], &quanta[0]["ts"], &quanta[0]["dur"]),
        (&7.into(), &7.into(), &0.0.into(), &1.5.into())
    );
    assert_eq!((&quanta[0]["args"]["cycles"], &quanta[0]["args"]["end"]), (&42.into(), &"pre-empted".into()));
    assert_eq!(quanta[1]["name"], "sort 7");
    assert!(file["otherData"]["remarks"][0].as_str().unwrap().starts_with("12 samples"));
    assert_eq!((&of("i")[0]["name"], &of("i")[0]["ts"]), (&"half".into(), &1.5.into()));
    assert!(of("M").iter().any(|event| event["args"]["name"] == "a \"helper\", too"));
}

#[test]
fn the_chrome_trace_says_what_it_lacks() {
    let temp = TempDir::new().unwrap();
    let reader = trace(&temp);
    let table = reader.folder().join("quanta.arrows");
    let length = table.metadata().unwrap().len();
    std::fs::File::options().write(true).open(&table).unwrap().set_len(length - 100).unwrap();
    let mut bytes = Vec::new();
    let cuts = write_chrome(&reader, &mut bytes).unwrap();
    assert_eq!((cuts.len(), cuts[0].table), (1, "quanta"));
    let file: Value = serde_json::from_slice(&bytes).unwrap();
    let remarks = file["otherData"]["remarks"].as_array().unwrap();
    assert_eq!(remarks.last().unwrap(), &Value::from(cuts[0].to_string()));
}

proptest! {
    /// Quanta that follow each other do not overlap for a reader that adds a duration to a start.
    #[test]
    fn durations_end_in_time(start in 0_u64..1 << 50, length in 0_u64..1 << 40) {
        let us = |ns: u64| ns as f64 / 1e3;
        let (from, until) = (us(start), us(start + length));
        let duration = chrome::duration(from, until);
        prop_assert!(from + duration <= until && duration >= 0.0);
        prop_assert!(until - (from + duration) <= until * f64::EPSILON * 2.0);
    }
}

#[test]
fn tables_as_csv() {
    let temp = TempDir::new().unwrap();
    let reader = trace(&temp);
    let mut bytes = Vec::new();
    write_csv::<ThreadRow>(&mut reader.batches(), reader.meta(), &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text, "tsc,pid,tid,parent_pid,name,what\n0,7,7,,sort,1\n0,7,8,,\"a \"\"helper\"\", too\",1\n");
    let mut bytes = Vec::new();
    write_csv::<StackRow>(&mut reader.batches(), reader.meta(), &mut bytes).unwrap();
    let lines = String::from_utf8(bytes).unwrap();
    assert_eq!(lines.lines().nth(1).unwrap(), format!("0,{} {},false", KERNEL + 0x210, KERNEL + 0x150));
    let mut bytes = Vec::new();
    write_csv::<QuantumRow>(&mut reader.batches(), reader.meta(), &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let rows: Vec<BTreeMap<&str, &str>> = {
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let head = lines.next().unwrap();
        lines.map(|cells| head.iter().copied().zip(cells).collect()).collect()
    };
    assert_eq!((rows[0]["counts.cycles"], rows[0]["counts.misses"], rows[0]["last_ip"]), ("42", "44", ""));
    assert_eq!((rows.len(), rows[1]["periods.cycles"], rows[1]["records_lost"]), (2, "", "0"));
}

#[test]
fn tables_as_parquet() {
    let temp = TempDir::new().unwrap();
    let reader = trace(&temp);
    let mut bytes = Vec::new();
    write_parquet::<SampleRow>(&mut reader.batches(), reader.meta(), &mut bytes).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
    let pairs = builder.metadata().file_metadata().key_value_metadata().unwrap();
    let meta = pairs.iter().find(|pair| pair.key == "hpm.meta").and_then(|pair| pair.value.clone()).unwrap();
    assert_eq!(&serde_json::from_str::<Meta>(&meta).unwrap(), reader.meta());
    let batches: Vec<_> = builder.build().unwrap().map(Result::unwrap).collect();
    let read: Vec<SampleRow> = batches
        .iter()
        .flat_map(|batch| {
            let arrays = SampleRow::arrays(batch).expect("the columns of samples");
            (0..batch.num_rows()).map(move |row| SampleRow::row(&arrays, row)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(read, reader.rows::<SampleRow>().collect::<Vec<_>>());
}
