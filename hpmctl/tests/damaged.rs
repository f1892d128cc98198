//! Every command that reads a trace says what of it is damaged, lost or measured in turns, in its JSON as in its text.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libhpm::symbol::{Code, FileFinder, Place};
use libhpm::trace::{
    Event, EventUse, MapRow, Meta, QuantumRow, SampleRow, ThreadRow, Totals, TraceReader, TraceWriter,
};
use serde_json::Value;
use tempfile::TempDir;

const BASE: u64 = 0x1000_0000;

/// Commands with the options of each way to show a trace.
const COMMANDS: [&[&str]; 17] = [
    &["report"],
    &["report", "--callees"],
    &["report", "--off-cpu"],
    &["report", "--wall-clock"],
    &["report", "--distribution"],
    &["report", "--by", "offset", "--around", "main"],
    &["annotate"],
    &["diff"],
    &["explore"],
    &["explore", "--show", "records"],
    &["explore", "--show", "correlation", "cycles", "instructions"],
    &["phases"],
    &["phases", "--by", "process"],
    &["locality"],
    &["locality", "--by", "line"],
    &["coalloc"],
    &["info"],
];

/// A trace of this test's own `main`, in two batches of each table; something was lost, and an event took turns.
fn trace(temp: &TempDir) -> PathBuf {
    // Debug information would have to be read by each command, which takes most of its time.
    let file = temp.path().join("program");
    let strip =
        Command::new("strip").arg("-g").arg("-o").arg(&file).arg(std::env::current_exe().unwrap()).status();
    assert!(strip.unwrap().success());
    let code = Code::around(&Place::of_symbol("main"), &file, None, &FileFinder::default()).unwrap().unwrap();
    let size = file.metadata().unwrap().len();
    let address = code.instructions[1].address;
    let pages = (0..4096).map(|page| address.wrapping_sub(page * 4096));
    let offset = pages.into_iter().find(|&offset| code.instruction_of(offset) == Some(1)).unwrap();
    let event =
        |name: &str, mode, period| Event { name: name.into(), mode, period, user: true, ..Event::default() };
    let events = vec![event("cycles", EventUse::Precise, 1000), event("instructions", EventUse::Count, 0)];
    let mut meta = Meta { events, ..Meta::default() };
    meta.clock.tsc_khz = 1_000_000;
    let folder = temp.path().join("damaged.hpm");
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    let path = file.to_str().unwrap().into();
    let map = MapRow { pid: 7, start: BASE, end: BASE + size, executable: true, path, ..MapRow::default() };
    writer.map(&map).unwrap();
    writer.thread(&ThreadRow { pid: 7, tid: 7, name: "sort".into(), ..ThreadRow::default() }).unwrap();
    for batch in 0..2 {
        for number in batch * 50..(batch + 1) * 50 {
            let start_tsc = 1000 + number * 2_000_000;
            let end_tsc = start_tsc + 1_000_000;
            let counts = vec![3000 + number % 7, 2000 + number];
            let (sequence, quantum) = (number, number);
            writer
                .quantum(&QuantumRow {
                    sequence,
                    pid: 7,
                    tid: 7,
                    start_tsc,
                    end_tsc,
                    end: 1,
                    counts,
                    ..QuantumRow::default()
                })
                .unwrap();
            let ip = BASE + offset;
            let tsc = start_tsc + 1;
            let sample = SampleRow { tsc, quantum, pid: 7, tid: 7, ip, period: 1000, ..SampleRow::default() };
            writer.sample(&sample).unwrap();
        }
        writer.flush().unwrap();
    }
    let totals = Totals {
        counts: vec![300_000, 200_000],
        quanta_lost: 3,
        running_tsc: vec![50, 100],
        on_cpu_tsc: 100,
        ..Totals::default()
    };
    writer.finish(totals).unwrap();
    folder
}

/// What a command prints of a trace.
fn shown(command: &[&str], trace: &Path, options: &[&str]) -> String {
    let mut hpmctl = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
    hpmctl.arg(command[0]).arg(trace);
    if command[0] == "diff" {
        hpmctl.arg(trace);
    }
    let output = hpmctl.args(&command[1..]).args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(command: &[&str], trace: &Path) -> Value {
    serde_json::from_str(&shown(command, trace, &["--json"])).unwrap()
}

/// Cuts a file's end off.
fn cut(file: &Path) {
    let file = File::options().write(true).open(file).unwrap();
    file.set_len(file.metadata().unwrap().len() - 200).unwrap();
}

#[test]
fn damage_is_in_every_json() {
    let temp = TempDir::new().unwrap();
    let trace = trace(&temp);
    for command in COMMANDS {
        assert_eq!(json(command, &trace)["warnings"], serde_json::json!([]), "{command:?}");
    }
    cut(&trace.join("quanta.arrows"));
    cut(&trace.join("samples.arrows"));
    for command in COMMANDS {
        let warnings = json(command, &trace)["warnings"].to_string();
        assert!(warnings.contains("50 rows were read of 100"), "{command:?}: {warnings}");
    }
}

#[test]
fn what_has_to_be_known_is_in_every_json_and_text() {
    let temp = TempDir::new().unwrap();
    let trace = trace(&temp);
    for command in COMMANDS.iter().filter(|command| command[0] != "info") {
        let remarks = json(command, &trace)["remarks"].to_string();
        assert!(remarks.contains("3 quanta were lost"), "{command:?}: {remarks}");
        assert!(remarks.contains("cycles took turns"), "{command:?}: {remarks}");
        let text = shown(command, &trace, &[]);
        assert!(text.contains("3 quanta were lost") || text.contains("3 lost"), "{command:?}: {text}");
        assert!(text.contains("took turns"), "{command:?}: {text}");
    }
}

#[test]
fn counts_that_took_turns_are_not_compared() {
    let temp = TempDir::new().unwrap();
    let trace = trace(&temp);
    let side = &json(&["diff"], &trace)["events"][0]["sides"][1];
    assert_eq!((&side["counted_share"], &side["quanta_lost"]), (&0.5.into(), &3.into()));
    let text = shown(&["diff"], &trace, &[]);
    let counted = text.lines().find(|line| line.starts_with("counted")).unwrap();
    assert!(counted.contains("50.0 % of the time") && !counted.contains("(+"), "{counted}");
}

#[test]
fn a_recording_without_its_end_is_in_every_json() {
    let temp = TempDir::new().unwrap();
    let trace = trace(&temp);
    let meta = Meta { complete: false, ..TraceReader::open(&trace).unwrap().meta().clone() };
    std::fs::write(trace.join("meta.json"), serde_json::to_string(&meta).unwrap()).unwrap();
    // A program that another test starts has the tables' locks until it is executed.
    let begun = Instant::now();
    while TraceReader::open(&trace).unwrap().is_growing() && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(10));
    }
    for command in COMMANDS {
        let warnings = json(command, &trace)["warnings"].to_string();
        assert!(warnings.contains("did not come to its proper end"), "{command:?}: {warnings}");
    }
}
