//! A function compiled here from known source, with samples at instructions that are known by what they do.

use std::path::Path;
use std::process::Command;

use clap::Parser;
use libhpm::symbol::{Code, Place};
use libhpm::trace::{EventUse, MapRow, Meta, Totals, TraceWriter};
use tempfile::TempDir;

use super::*;

const SOURCE: &str = "long walk(const long *table, long index)\n{\n\tlong sum = table[index];\n\treturn sum * 3;\n}\n\n\
                      int main(void)\n{\n\treturn 0;\n}\n";
const BASE: u64 = 0x5000_0000_0000;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    annotate: AnnotateArgs,
}

/// The program, not optimised so that each line has instructions of its own.
fn program(temp: &TempDir) -> PathBuf {
    let (source, program) = (temp.path().join("walk.c"), temp.path().join("walk"));
    std::fs::write(&source, SOURCE).unwrap();
    let status = Command::new("cc").args(["-O0", "-g", "-o"]).args([&program, &source]).status().unwrap();
    assert!(status.success());
    program
}

/// Nine samples of the instruction with the most bytes before the last one of the function, and one of its first.
fn trace(temp: &TempDir, program: &Path) -> (PathBuf, usize) {
    let finder = libhpm::symbol::FileFinder::default();
    let code = Code::around(&Place::of_symbol("walk"), program, None, &finder).unwrap().unwrap();
    let load = code.instructions.iter().rposition(|one| one.text.starts_with("mov rax, [rax]")).unwrap();
    let offset = |place| (0..1 << 16).find(|&offset| code.instruction_of(offset) == Some(place)).unwrap();
    let event =
        Event { name: "load".into(), mode: EventUse::Precise, period: 100, user: true, ..Event::default() };
    let folder = temp.path().join("walk.hpm");
    let mut writer = TraceWriter::create(&folder, Meta { events: vec![event], ..Meta::default() }).unwrap();
    let map = MapRow {
        pid: 7,
        start: BASE,
        end: BASE + (1 << 20),
        executable: true,
        path: program.to_str().unwrap().into(),
        ..MapRow::default()
    };
    writer.map(&map).unwrap();
    // Most samples lie where there is no code to be shown.
    let elsewhere = SampleRow { tsc: 1, pid: 7, tid: 7, period: 100, ip: 5, ..SampleRow::default() };
    (0..30).for_each(|_| writer.sample(&elsewhere).unwrap());
    for (place, count) in [(0, 1), (load, 9)] {
        let sample = SampleRow {
            tsc: 1,
            pid: 7,
            tid: 7,
            period: 100,
            ip: BASE + offset(place),
            latency_cycles: Some(200),
            ..SampleRow::default()
        };
        (0..count).for_each(|_| writer.sample(&sample).unwrap());
    }
    writer.finish(Totals { counts: vec![1000], ..Totals::default() }).unwrap();
    (folder, load)
}

fn annotate(folder: &Path, options: &[&str]) -> Result<String> {
    let words = ["annotate", folder.to_str().unwrap()];
    output(&Cli::try_parse_from(words.iter().chain(options)).unwrap().annotate).map(|(text, _)| text)
}

#[test]
fn samples_stand_beside_their_source_and_their_instruction() {
    let temp = TempDir::new().unwrap();
    let (folder, load) = trace(&temp, &program(&temp));
    let text = annotate(&folder, &[]).unwrap();
    assert!(text.contains("10 samples here, 25.0 %"), "{text}");
    assert!(text.contains("note: more samples than in what is shown lie in code without a symbol"), "{text}");
    let row = text.lines().find(|line| line.contains("90.0 %")).unwrap();
    assert!(row.contains("200.0") && row.trim_end().ends_with("mov rax, [rax]"), "{text}");
    assert!(
        text.lines().any(|line| line.contains(" 3 ") && line.contains("long sum = table[index];")),
        "{text}"
    );
    let json: serde_json::Value = serde_json::from_str(&annotate(&folder, &["--json"]).unwrap()).unwrap();
    let function = &json["functions"][0];
    let lines: Vec<(u64, u64)> = function["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| (line["line"].as_u64().unwrap(), line["sums"][0]["samples"].as_u64().unwrap()))
        .collect();
    assert_eq!(lines, [(2, 1), (3, 9), (4, 0), (5, 0)]);
    assert_eq!(function["instructions"][load]["sums"][0]["samples"], 9);
    let near = annotate(&folder, &["--context", "0", "walk"]).unwrap();
    assert!(near.contains('…') && near.lines().count() < text.lines().count(), "{near}");
}

#[test]
fn sources_that_were_moved_are_found() {
    let temp = TempDir::new().unwrap();
    let (folder, _) = trace(&temp, &program(&temp));
    let moved = temp.path().join("moved");
    std::fs::create_dir(&moved).unwrap();
    std::fs::rename(temp.path().join("walk.c"), moved.join("walk.c")).unwrap();
    assert!(!annotate(&folder, &[]).unwrap().contains("long sum"));
    assert!(annotate(&folder, &["--source-dir", moved.to_str().unwrap()]).unwrap().contains("long sum"));
}

#[test]
fn what_cannot_be_annotated_is_one_sentence() {
    let temp = TempDir::new().unwrap();
    let program = program(&temp);
    let (folder, _) = trace(&temp, &program);
    let error = |options: &[&str]| format!("{:#}", annotate(&folder, options).unwrap_err());
    assert!(error(&["main"]).contains("no sample lies in a function `main`"));
    assert!(error(&["--event", "store"]).contains("no event `store`"));
    std::fs::remove_file(program).unwrap();
    assert!(error(&[]).contains("nothing can be annotated"));
}

#[test]
fn a_trace_without_samples_says_so() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("empty.hpm");
    let event = Event { name: "cpu-clock".into(), mode: EventUse::Software, ..Event::default() };
    let meta = Meta { events: vec![event], ..Meta::default() };
    TraceWriter::create(&folder, meta).unwrap().finish(Totals::default()).unwrap();
    for options in [&[][..], &["-e", "cpu-clock"], &["main"]] {
        let sentence = format!("{:#}", annotate(&folder, options).unwrap_err());
        assert!(
            sentence.contains(
                "empty.hpm has no sample of `cpu-clock`: record for longer, or sample more often (-c)"
            ),
            "{sentence}"
        );
    }
}
