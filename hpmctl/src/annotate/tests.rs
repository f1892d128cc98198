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
    // Most samples lie where there is no code to be shown.
    let nowhere = 5_u64.wrapping_sub(BASE);
    (sampled(temp, program, &[(nowhere, 30), (offset(0), 1), (offset(load), 9)]), load)
}

/// A trace with so many samples at each byte of a program.
fn sampled(temp: &TempDir, program: &Path, places: &[(u64, usize)]) -> PathBuf {
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
    for &(offset, count) in places {
        let sample = SampleRow {
            tsc: 1,
            pid: 7,
            tid: 7,
            period: 100,
            ip: BASE.wrapping_add(offset),
            latency_cycles: Some(200),
            ..SampleRow::default()
        };
        (0..count).for_each(|_| writer.sample(&sample).unwrap());
    }
    writer.finish(Totals { counts: vec![1000], ..Totals::default() }).unwrap();
    folder
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
    // Also what is left out behind the last row is told.
    let rows: Vec<&str> = near.lines().filter(|row| row.contains('…') || row.contains(" %   ")).collect();
    assert!(rows.last().unwrap().contains('…'), "{near}");
}

/// As distributions have their programs: a function that no other file calls has a symbol in the debug file alone, and another one is
/// the last before it in the program's own table. A label in the middle of the function is reported as a function of its own.
#[test]
fn a_function_has_the_name_and_the_bounds_that_reports_give_it() {
    let temp = TempDir::new().unwrap();
    let [source, program, debug] = ["part.c", "part", "part.debug"].map(|name| temp.path().join(name));
    let text = "long exported(long n) { return n + 1; }\n\
                __asm__(\".text\\n.type hidden,@function\\nhidden: nop\\nnop\\nmarked: cld\\nret\\n.size hidden,.-hidden\\n\");\n\
                int main(void) { return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let run = |tool: &str, words: &[&str]| {
        assert!(Command::new(tool).args(words).status().unwrap().success(), "{tool} {words:?}");
    };
    let [source, path, debug] = [&source, &program, &debug].map(|path| path.to_str().unwrap());
    run("cc", &["-O1", "-rdynamic", "-fno-toplevel-reorder", "-o", path, source]);
    run("objcopy", &["--only-keep-debug", path, debug]);
    run("strip", &["--strip-all", path]);
    run("objcopy", &[&format!("--add-gnu-debuglink={debug}"), path]);
    let finder = libhpm::symbol::FileFinder::default();
    let code = Code::around(&Place::of_symbol("hidden"), &program, None, &finder).unwrap().unwrap();
    assert_eq!(code.instructions.len(), 4);
    let offset = |place| (0..1 << 16).find(|&offset| code.instruction_of(offset) == Some(place)).unwrap();
    let folder = sampled(&temp, &program, &[(offset(1), 3), (offset(2), 1)]);
    let text = annotate(&folder, &[]).unwrap();
    assert!(
        text.contains(&format!("function  hidden of {path}\n")) && text.contains("3 samples here"),
        "{text}"
    );
    assert_eq!(text.matches(" nop").count(), 2, "{text}");
    assert!(!text.contains("cld"), "{text}");
    let label = annotate(&folder, &["marked"]).unwrap();
    assert!(label.contains("1 sample here") && label.contains("100.0 %"), "{label}");
    assert!(label.contains("cld") && label.contains("ret") && !label.contains(" nop"), "{label}");
}

#[test]
fn code_without_symbols_is_said_to_be_that() {
    let temp = TempDir::new().unwrap();
    let program = program(&temp);
    let finder = libhpm::symbol::FileFinder::default();
    let code = Code::around(&Place::of_symbol("walk"), &program, None, &finder).unwrap().unwrap();
    let offset = (0..1 << 16).find(|&offset| code.instruction_of(offset) == Some(0)).unwrap();
    assert!(Command::new("strip").arg(&program).status().unwrap().success());
    let folder = sampled(&temp, &program, &[(offset, 4)]);
    let sentence = format!("{:#}", annotate(&folder, &[]).unwrap_err());
    let file = program.display();
    let expected =
        format!("nothing can be annotated: most samples lie in code without a symbol of {file}; {file} ");
    assert!(sentence.contains(&expected), "{sentence}");
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
    assert!(error(&["main"]).contains("no sample lies in a function `main`; functions"));
    assert!(error(&["wlak"]).contains("no sample lies in a function `wlak`: did you mean `walk`?"));
    let filtered = error(&["--code", "_walk"]);
    assert!(filtered.ends_with("no sample lies in a function `_walk`: did you mean `walk`?"), "{filtered}");
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
