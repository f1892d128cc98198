//! Phases of small traces that were made up.

use std::fs;

use clap::Parser;
use libhpm::analysis::phase::synthetic::{Recipe, TICKS, labelled_set};
use libhpm::trace::{Clock, Event, EventUse, ThreadChange, Totals, TraceWriter};
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    phases: PhasesArgs,
}

fn recipe(name: &str, noise: f64) -> Recipe {
    labelled_set(noise).into_iter().find(|recipe| recipe.name == name).unwrap()
}

/// A thread whose intervals are those of a stream.
struct Thread<'a> {
    tid: u32,
    name: &'a str,
    intervals: Vec<Interval>,
}

fn trace(temp: &TempDir, threads: &[Thread<'_>]) -> PathBuf {
    trace_of(temp, ["l1d-load-miss", "instructions"], threads)
}

fn trace_of(temp: &TempDir, names: [&str; 2], threads: &[Thread<'_>]) -> PathBuf {
    let folder = temp.path().join("made.hpm");
    let event = |name: &str| Event { name: name.into(), user: true, ..Event::default() };
    let meta = Meta {
        events: names.map(event).into(),
        clock: Clock { tsc_khz: TICKS, ..Clock::default() },
        command: vec!["work".into(), "--all <of it>".into()],
        ..Meta::default()
    };
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    for Thread { tid, name, intervals } in threads {
        let (name, what) = ((*name).into(), ThreadChange::Start as u8);
        writer.thread(&ThreadRow { pid: 7, tid: *tid, name, what, ..ThreadRow::default() }).unwrap();
        for interval in intervals {
            let counts = interval.counts[..2].to_vec();
            let (start_tsc, end_tsc) = (interval.start, interval.end);
            writer
                .quantum(&QuantumRow {
                    pid: 7,
                    tid: *tid,
                    start_tsc,
                    end_tsc,
                    counts,
                    ..QuantumRow::default()
                })
                .unwrap();
        }
    }
    writer.finish(Totals::default()).unwrap();
    folder
}

fn phases(folder: &Path, options: &[&str]) -> Result<(String, Vec<String>)> {
    let words = ["phases"].into_iter().chain(options.iter().copied()).chain([folder.to_str().unwrap()]);
    output(&Cli::try_parse_from(words).unwrap().phases)
}

fn two_threads() -> [Thread<'static>; 2] {
    [
        Thread { tid: 7, name: "worker", intervals: recipe("steps", 0.05).stream(1800, 1).intervals },
        Thread { tid: 8, name: "noise", intervals: recipe("no change", 0.3).stream(300, 2).intervals },
    ]
}

#[test]
fn threads_with_and_without_phases() {
    let temp = TempDir::new().unwrap();
    insta::assert_snapshot!(phases(&trace(&temp, &two_threads()), &["--limit", "4"]).unwrap().0);
}

#[test]
fn several_events_related_to_another() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, &two_threads()[..1]);
    let (text, _) =
        phases(&folder, &["-e", "l1d-load-miss", "--per", "instructions", "--by", "process"]).unwrap();
    assert!(text.contains("l1d-load-miss per instructions"), "{text}");
    assert!(text.contains("worker, process 7: 1,800 intervals of 1.00 ms"), "{text}");
    // A round is 180 intervals.
    assert!(text.lines().any(|line| line.contains("3:01") && line.ends_with("180.0 ms")), "{text}");
    let (text, _) = phases(&folder, &["-e", "l1d-load-miss", "-e", "instructions"]).unwrap();
    assert!(text.contains("l1d-load-miss and instructions per time"), "{text}");
}

/// The interval's first count is as good as constant, as a clock's is; the second one has the phases.
#[test]
fn clocks_are_looked_at_only_when_they_are_named() {
    let temp = TempDir::new().unwrap();
    let mut threads = two_threads();
    let [worker, _] = &mut threads;
    worker.intervals.iter_mut().for_each(|interval| interval.counts.swap(0, 1));
    let folder = trace_of(&temp, ["cpu-clock", "page-faults"], &threads[..1]);
    let (text, _) = phases(&folder, &[]).unwrap();
    assert!(text.contains("page-faults per time on a CPU") && !text.contains("no phases"), "{text}");
    assert!(phases(&folder, &["-e", "cpu-clock"]).unwrap().0.contains("cpu-clock per time on a CPU"));
    let refused = phases(&folder, &["--per", "page-faults"]).unwrap_err().to_string();
    assert!(refused.contains("has only clocks beside `page-faults` (cpu-clock), whose"), "{refused}");
    let temp = TempDir::new().unwrap();
    let only = trace_of(&temp, ["cpu-clock:u", "task-clock:u"], &threads[..1]);
    let refused = phases(&only, &[]).unwrap_err().to_string();
    assert!(
        refused.contains("has only clocks (cpu-clock:u, task-clock:u), whose density does not vary")
            && refused.contains("hpmctl record -e cpu-clock,page-faults"),
        "{refused}"
    );
}

#[test]
fn json_has_the_same_numbers() {
    let temp = TempDir::new().unwrap();
    let (text, _) = phases(&trace(&temp, &two_threads()), &["--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let worker = &json["subjects"][0];
    assert_eq!((&worker["tid"], &worker["intervals"]), (&7.into(), &1800.into()));
    let found = &worker["phases"];
    let repetitions = |key: &str| found[key]["repetitions"].as_u64().unwrap();
    assert!(repetitions("found") > repetitions("by_chance"), "{found}");
    // A round's levels are 1, 4 and 2, with 5 % of noise.
    let cov = |key: &str| found[key].as_f64().unwrap();
    assert!(cov("cov") > 0.5 && cov("cov_between_changes") < 0.06, "{found}");
    assert_eq!(found["predicted_ms"], 180.0);
    // 29 changes, and a few that noise makes up.
    let changes = found["changes"]["pelt"].as_array().unwrap().len();
    assert!((29..=36).contains(&changes), "{changes}");
    let noise = &json["subjects"][1]["no_phases"];
    assert!(noise["message"].as_str().is_some_and(|message| !message.is_empty()), "{noise}");
}

/// By perf_event what quanta counted is only known from samples.
#[test]
fn counts_that_are_estimates_are_told() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, &two_threads()[1..]);
    assert!(!phases(&folder, &[]).unwrap().0.contains("estimates"));
    let path = folder.join("meta.json");
    let mut meta: Meta = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    meta.source = "perf_event".into();
    meta.events.iter_mut().for_each(|event| (event.mode, event.period) = (EventUse::Interrupt, 1000));
    fs::write(&path, serde_json::to_vec(&meta).unwrap()).unwrap();
    let told = "counts of l1d-load-miss, instructions are estimates: \
                the sums of the periods of the samples in each quantum";
    assert!(phases(&folder, &[]).unwrap().0.contains(told));
    let json: serde_json::Value = serde_json::from_str(&phases(&folder, &["--json"]).unwrap().0).unwrap();
    assert_eq!(json["remarks"], serde_json::json!([told]));
}

#[test]
fn the_picture_has_a_ribbon() {
    let temp = TempDir::new().unwrap();
    let svg = temp.path().join("phases.svg");
    let (text, _) = phases(&trace(&temp, &two_threads()), &["--picture", svg.to_str().unwrap()]).unwrap();
    assert!(text.contains("picture: "), "{text}");
    let svg = fs::read_to_string(&svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert!(
        ["--all &lt;of it&gt;", "worker", "no phases: ", "#0072b2"].iter().all(|word| svg.contains(word))
    );
    let ticks = svg.matches("stroke=\"black\"").count();
    assert!((29..=45).contains(&ticks), "{ticks}");
}

#[test]
fn without_phases_the_reason_is_given() {
    let temp = TempDir::new().unwrap();
    let mut backwards = recipe("steps", 0.1).stream(100, 1).intervals;
    backwards[50].end = backwards[50].start + 2 * TICKS;
    let thread = |tid, name, intervals| Thread { tid, name, intervals };
    let threads = [
        thread(7, "short", recipe("steps", 0.1).stream(10, 1).intervals),
        thread(8, "constant", recipe("no change", 0.0).stream(100, 1).intervals),
        thread(9, "backwards", backwards),
    ];
    let (text, _) = phases(&trace(&temp, &threads), &[]).unwrap();
    for reason in [
        "no phases: only 10 intervals, and 24 are needed",
        "no phases: the event density is constant",
        "no phases: the quanta are not in order of time: a quantum starts at TSC 51000000, before the end of the same \
         thread's quantum before it at 52000000",
    ] {
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, &two_threads()[..1]);
    let refused = |options: &[&str]| phases(&folder, options).unwrap_err().to_string();
    assert_eq!(
        refused(&["-e", "cycles"]),
        "the trace has no event `cycles`; it has l1d-load-miss, instructions"
    );
    for wrong in ["0", "-1", "nan", "1e300", "x"] {
        assert!(interval(wrong).unwrap_err().contains("from 0.001 to 1000000"), "{wrong}");
    }
    assert_eq!(interval("0.5"), Ok(0.5));
    assert!(phases(temp.path(), &[]).unwrap_err().to_string().contains("not an hpm trace"));
    fs::write(folder.join("quanta.arrows"), "").unwrap();
    assert!(refused(&[]).contains("holds no quantum"));
}
