//! The command on a small trace of known numbers.

use clap::Parser;
use libhpm::trace::{
    Event, EventUse, MarkerRow, Meta, QuantumRow, ThreadChange, ThreadRow, Totals, TraceReader, TraceWriter,
};
use std::fs;
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    explore: ExploreArgs,
}

/// A worker that moves between two CPUs with falling IPC and rising misses, and a helper; a marker at the end.
fn trace(temp: &TempDir) -> PathBuf {
    let folder = temp.path().join("small.hpm");
    let event = |name: &str| Event { name: name.into(), user: true, ..Event::default() };
    let mut meta =
        Meta { events: ["instructions", "cycles", "l1d-load-miss"].map(event).into(), ..Meta::default() };
    meta.clock.tsc_khz = 1_000_000;
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    for (tid, name) in [(1, "worker"), (2, "helper")] {
        let what = ThreadChange::Start as u8;
        writer.thread(&ThreadRow { pid: 1, tid, name: name.into(), what, ..ThreadRow::default() }).unwrap();
    }
    for number in 0..8_u64 {
        let helper = number == 5;
        let start_tsc = 1_000 + number * 1_000_000;
        let row = QuantumRow {
            sequence: number / 2,
            cpu: (number % 2) as u32,
            pid: 1,
            tid: if helper { 2 } else { 1 },
            start_tsc,
            end_tsc: start_tsc + 900_000,
            end: if helper { 2 } else { 1 },
            counts: if helper {
                vec![10, 0, 0]
            } else {
                vec![2000 - number * 100, 1000, 7 * number + number % 3]
            },
            periods: vec![0; 3],
            ..QuantumRow::default()
        };
        writer.quantum(&row).unwrap();
    }
    writer.marker(&MarkerRow { tsc: 8_001_000, text: "gc".into(), ..MarkerRow::default() }).unwrap();
    // The recorder's own are not the program's.
    for (tsc, text) in [(5_000_000, MarkerRow::PAUSED), (7_500_000, MarkerRow::RESUMED)] {
        writer.marker(&MarkerRow { tsc, text: text.into(), value: Some(1), ..MarkerRow::default() }).unwrap();
    }
    writer.finish(Totals { counts: vec![0; 3], ..Totals::default() }).unwrap();
    folder
}

fn explore(folder: &std::path::Path, options: &[&str]) -> Result<String> {
    let words = ["explore", folder.to_str().unwrap()].into_iter().chain(options.iter().copied());
    let args = Cli::try_parse_from(words).unwrap().explore;
    let reader = TraceReader::open(&args.trace)?;
    let (records, warnings) = load::records(&reader, libhpm::symbol::FileFinder::default());
    assert!(warnings.is_empty(), "{warnings:?}");
    output(&args, reader.meta(), &records, &warnings)
}

fn text(options: &[&str]) -> String {
    let temp = TempDir::new().unwrap();
    explore(&trace(&temp), options).unwrap()
}

#[test]
fn statistics_of_all_and_of_groups() {
    insta::assert_snapshot!(text(&[]));
    insta::assert_snapshot!(text(&["--by", "thread", "ipc", "l1d_mpki"]));
    // By what is counted, not by the name; also in JSON only what the limit leaves.
    let limited = text(&["--by", "thread", "--limit", "1", "duration_ns"]);
    assert!(limited.contains("worker 1") && !limited.contains("helper"), "{limited}");
    assert!(limited.contains(" … and 1 more (--limit)\n"), "{limited}");
    let json = text(&["--by", "thread", "--limit", "1", "--json", "duration_ns"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["rows"].as_array().unwrap().len(), &json["rows"][0]["group"]), (1, &"worker 1".into()));
    assert_eq!(json["remarks"].as_array().unwrap().last().unwrap(), "1 more group left out (--limit)");
}

#[test]
fn records_before_a_marker() {
    let filter = "next_marker == \"gc\" and until_marker_ns < 3 ms";
    insta::assert_snapshot!(text(&["--where", filter, "--show", "records", "ipc", "--limit", "2"]));
}

#[test]
fn correlation_and_graphs() {
    let metrics = ["--where", "thread == \"worker\"", "ipc", "l1d-load-miss"];
    let size = ["--width", "40", "--height", "8"];
    let with =
        |show: &'static str, count: usize| text(&[&metrics[..count], &["--show", show], &size].concat());
    insta::assert_snapshot!([with("correlation", 4), with("scatter", 4), with("time", 3)].join("\n"));
}

#[test]
fn timelines() {
    let shown = |what| text(&["--show", what, "--width", "32"]);
    insta::assert_snapshot!([shown("threads"), shown("cpus")].join("\n"));
}

#[test]
fn definitions_are_kept_with_the_trace() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp);
    let head = |options: &[&str]| {
        explore(&folder, options).map(|text| text.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(head(&["--save", "-d", "slow=ipc < 1.5", "--where", "slow"]).unwrap(), "2 of 8 records");
    assert_eq!(head(&["--where", "not slow and cpu == 0"]).unwrap(), "3 of 8 records");
    assert!(explore(&folder, &["--show", "names"]).unwrap().contains("slow               ipc < 1.5"));
    std::fs::write(folder.join("explore.json"), "{\"a\": \"(\"}").unwrap();
    assert!(head(&[]).unwrap_err().to_string().contains("mend or remove it"));
}

#[test]
fn what_cannot_be_shown_is_told() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp);
    let sentence = |options: &[&str]| explore(&folder, options).unwrap_err().to_string();
    assert!(sentence(&["--where", "cpu == 9"]).contains("none of the 8 records"));
    assert!(sentence(&["--show", "scatter", "ipc"]).contains("two metrics"));
    assert!(sentence(&["ipcs"]).contains("did you mean `ipc`"));
    for show in ["records", "correlation", "threads", "names"] {
        assert!(
            sentence(&["--by", "thread", "--show", show]).contains("--by groups statistics: leave it out")
        );
    }
    assert!(sentence(&["--json", "--show", "threads"]).contains("graphs have no JSON"));
    assert!(sentence(&["-d", "slow"]).contains("no NAME=EXPRESSION"));
    assert!(sentence(&["-d", "cycles=1"]).contains("already means something"));
    assert!(sentence(&["--picture", "graph.svg"]).contains("--show scatter, time, threads or cpus"));
    assert_eq!(
        sentence(&["--where", "cpu = 1"]),
        "the expression has `=`, which means nothing here; to compare, write ==\n  cpu = 1\n      ^"
    );
}

#[test]
fn json_has_what_the_table_has() {
    let json: serde_json::Value = serde_json::from_str(&text(&["--json", "ipc"])).unwrap();
    assert_eq!(json["rows"][0]["statistics"]["count"], 7);
    let json: serde_json::Value =
        serde_json::from_str(&text(&["--json", "--by", "thread", "ipc", "instructions"])).unwrap();
    // The helper has one record, in which no cycle was counted.
    let [without, single] = [2, 3].map(|row| &json["rows"][row]["statistics"]);
    assert_eq!((&without["mean"], &without["sum"]), (&serde_json::Value::Null, &0.0.into()));
    assert_eq!((&single["mean"], &single["sd"]), (&10.0.into(), &serde_json::Value::Null));
    let json: serde_json::Value =
        serde_json::from_str(&text(&["--json", "--show", "records", "ipc"])).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 8);
    assert_eq!(json["rows"][0]["metrics"]["ipc"], 2.0);
    let temp = TempDir::new().unwrap();
    let (folder, page) = (trace(&temp), temp.path().join("page.html"));
    let text = explore(&folder, &["--json", "--html", page.to_str().unwrap(), "ipc"]).unwrap();
    assert!(page.exists() && serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
}

#[test]
fn names_are_listed_and_have_json() {
    insta::assert_snapshot!(text(&["--show", "names", "-d", "slow=ipc < 1.5"]));
    let json = text(&["--json", "--show", "names", "-d", "slow=ipc < 1.5"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows[0], serde_json::json!({ "kind": "event", "name": "instructions" }));
    let defined = serde_json::json!({ "kind": "defined", "name": "slow", "expression": "ipc < 1.5" });
    assert_eq!(rows.last(), Some(&defined));
    assert!(rows.iter().any(|row| row["kind"] == "built_in") && json["remarks"].is_array(), "{json}");
}

/// By perf_event what quanta counted is only known from samples.
#[test]
fn counts_that_are_estimates_are_told() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp);
    assert!(!explore(&folder, &["ipc"]).unwrap().contains("estimates"));
    let path = folder.join("meta.json");
    let mut meta: Meta = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    meta.source = "perf_event".into();
    meta.events.iter_mut().for_each(|event| (event.mode, event.period) = (EventUse::Interrupt, 1000));
    fs::write(&path, serde_json::to_vec(&meta).unwrap()).unwrap();
    let told = "counts of instructions, cycles, l1d-load-miss are estimates: \
                the sums of the periods of the samples in each quantum";
    assert!(explore(&folder, &["ipc"]).unwrap().contains(told));
    let json: serde_json::Value =
        serde_json::from_str(&explore(&folder, &["--json", "ipc"]).unwrap()).unwrap();
    let remarks: Vec<&str> =
        json["remarks"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
    assert!(remarks.contains(&told), "{json}");
    assert!(remarks.iter().any(|told| told.starts_with("a record's function is that of its last sample")));
}

#[test]
fn pictures_have_a_shape_for_each_record() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp);
    let path = temp.path().join("picture.svg");
    let draw = |options: &[&str]| {
        let svg = ["--picture", path.to_str().unwrap()];
        explore(&folder, &[options, &svg].concat()).unwrap();
        fs::read_to_string(&path).unwrap()
    };
    // The helper has no cycles, and so no IPC.
    let time = draw(&["--show", "time", "ipc"]);
    assert_eq!(time.matches("stroke-linecap").count(), 7);
    assert!(
        time.contains(">worker 1</text>") && !time.contains(">gc</text>"),
        "the marker lies behind the end"
    );
    assert_eq!(draw(&["--show", "scatter", "cycles", "instructions"]).matches("stroke-linecap").count(), 8);
    let threads = draw(&["--show", "threads"]);
    assert_eq!((threads.matches("<circle").count(), threads.matches("#d00000").count()), (7, 1));
    assert!(draw(&["--show", "cpus"]).contains(">CPU 1</text>"));
}

#[test]
fn the_page_has_the_records_and_loads_nothing() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp);
    let path = temp.path().join("page.html");
    let filter = "thread != \"</script>\"";
    explore(&folder, &["--html", path.to_str().unwrap(), "--where", filter, "ipc"]).unwrap();
    let page = fs::read_to_string(&path).unwrap();
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["filter"], filter);
    assert_eq!(data["values"][0][0], 2.0);
    assert_eq!(data["values"][0][5], serde_json::Value::Null, "not a number");
    assert_eq!(data["start"].as_array().unwrap().len(), 8);
    assert_eq!(data["markers"][0][1], "gc");
    assert_eq!(data["overall"], serde_json::json!([["/", { "sum": 0 }, { "sum": 1 }]]), "{data}");
    assert_eq!(data["added"].as_array().unwrap().len(), 2);
    assert!(!page.contains("{{") && !page.contains("src=") && !page.contains("http"));
}
