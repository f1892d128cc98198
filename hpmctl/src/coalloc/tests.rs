//! Advice of a trace of a C program that is compiled here: its types and machine code are real, its samples are made.

use std::path::Path;
use std::process::Command;

use clap::Parser;
use libhpm::record::{Attribution, BranchType};
use libhpm::symbol::{Code, FileFinder, Place};
use libhpm::trace::{AllocationRow, Allocations, Event, MapRow, Totals, TraceReader, TraceWriter, Within};
use tempfile::TempDir;

use super::*;
use crate::report::tests::meta;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    coalloc: CoallocArgs,
}

/// The chain of SPECjvm98's db: a string, and the characters that it refers to.
const SOURCE: &str = "
#include <stddef.h>
struct characters { long hash; char text[40]; };
struct string { long length; struct characters *value; };
struct entry { struct string *items[4]; struct string *name; };
__attribute__((noinline)) long walk(struct string *string) { return string->value->hash; }
__attribute__((noinline)) long third(struct entry *entry, size_t item) { return entry->items[item]->length; }
int main(void) { return 0; }
";

const BASE: u64 = 0x10_0000_0000;
const STRING: u64 = 0x20_0000;
const CHARACTERS: u64 = 0x30_0000;

/// Where the instruction with this text is in a function: its address in memory, and its bytes.
fn instruction(program: &Path, function: &str, text: &str) -> (u64, u64) {
    let place = Place::Symbol(function.to_owned(), 0);
    let code = Code::around(&place, program, None, &FileFinder::default()).unwrap().unwrap();
    let found = code.instructions.iter().rev().find(|one| one.text.contains(text));
    let found = found.unwrap_or_else(|| panic!("no {text:?} in {:?}", code.instructions));
    (BASE + found.address, found.bytes.into())
}

/// Strings and their characters, each in a line of its own: by malloc, or by an allocator of the program's own that has one great
/// object of malloc for each of both.
fn allocate(writer: &mut TraceWriter, own_allocator: bool) {
    let stack = writer.stack(&[0x1000], true).unwrap();
    let regions = [STRING, CHARACTERS].into_iter().filter(|_| own_allocator);
    for address in regions {
        let object = AllocationRow {
            tsc: 1,
            pid: 7,
            tid: 7,
            bytes: 64 * 150,
            stack: Some(stack),
            ..AllocationRow::default()
        };
        writer.allocation(&AllocationRow { address, ..object }).unwrap();
    }
    for number in (0..150).filter(|_| !own_allocator) {
        let object = AllocationRow {
            tsc: 1,
            pid: 7,
            tid: 7,
            bytes: 16,
            stack: Some(stack),
            ..AllocationRow::default()
        };
        writer.allocation(&AllocationRow { address: STRING + 64 * number, ..object.clone() }).unwrap();
        writer.allocation(&AllocationRow { address: CHARACTERS + 64 * number, bytes: 48, ..object }).unwrap();
    }
    // So much later that the others are old.
    let later = AllocationRow {
        tsc: 50,
        pid: 7,
        tid: 7,
        address: 0x7000_0000,
        bytes: 8 << 20,
        ..AllocationRow::default()
    };
    writer.allocation(&later).unwrap();
    writer.allocations_recorded(Allocations { processes: 1, ..Allocations::default() }).unwrap();
}

fn trace(temp: &TempDir, debug: &str) -> PathBuf {
    trace_of(temp, debug, |_| (), false)
}

/// 150 misses of `string->value->hash`, and 20 of `entry->items[item]->length`, of a program that is altered once it is compiled.
fn trace_of(temp: &TempDir, debug: &str, alter: fn(&Path), own_allocator: bool) -> PathBuf {
    let (source, program) = (temp.path().join("db.c"), temp.path().join("db"));
    std::fs::write(&source, SOURCE).unwrap();
    let words = ["-O2", debug, "-fno-pie", "-no-pie", "-Wl,-Ttext-segment=0x1000000", "-o"];
    let status = Command::new("cc").args(words).arg(&program).arg(&source).status().unwrap();
    assert!(status.success());
    let folder = temp.path().join("db.hpm");
    let mut meta = meta();
    meta.events[0].attribution = Attribution::Cause;
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    // All of the file at its own distance from BASE, as far as code is concerned.
    let text = std::fs::metadata(&program).unwrap().len();
    writer
        .map(&MapRow {
            pid: 7,
            start: BASE + 0x100_0000,
            end: BASE + 0x100_0000 + text.next_multiple_of(4096),
            path: program.to_str().unwrap().into(),
            executable: true,
            ..MapRow::default()
        })
        .unwrap();
    allocate(&mut writer, own_allocator);
    let (walk, walk_bytes) = instruction(&program, "walk", "mov rax, [rax]");
    let (third, third_bytes) = instruction(&program, "third", "mov rax, [rax]");
    alter(&program);
    let sample = |ip: u64, bytes: u64, address| SampleRow {
        tsc: 100,
        pid: 7,
        tid: 7,
        period: 1000,
        ip,
        next_ip: Some(ip + bytes),
        data_address: Some(address),
        ..SampleRow::default()
    };
    for number in 0..150 {
        // The string is where RDI still points.
        let mut registers = libhpm::trace::Registers([0; libhpm::trace::Registers::COUNT]);
        registers.0[7] = STRING + 64 * number;
        let row = sample(walk, walk_bytes, CHARACTERS + 64 * number);
        writer.sample(&SampleRow { registers: Some(registers), ..row }).unwrap();
    }
    (0..20).for_each(|_| writer.sample(&sample(third, third_bytes, STRING)).unwrap());
    writer.finish(Totals { counts: vec![170_000, 0], ..Totals::default() }).unwrap();
    folder
}

fn run(folder: &Path, options: &[&str]) -> Result<String> {
    let words = ["coalloc"].into_iter().chain(options.iter().copied()).chain([folder.to_str().unwrap()]);
    output(&Cli::try_parse_from(words).unwrap().coalloc).map(|(text, _)| text)
}

fn json(folder: &Path) -> serde_json::Value {
    serde_json::from_str(&run(folder, &["--json"]).unwrap()).unwrap()
}

#[test]
fn the_hot_reference_is_named_and_advised() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, "-g");
    insta::assert_snapshot!(run(&folder, &[]).unwrap());
    let json: serde_json::Value = serde_json::from_str(&run(&folder, &["--json"]).unwrap()).unwrap();
    assert_eq!(json["fields"][0]["parent"], "string");
    assert_eq!(json["fields"][0]["name"], "value");
    assert_eq!(json["fields"][0]["samples"], 150.0);
    assert_eq!(json["advice"][0]["verdict"], "co-allocate");
}

/// Samples of dense places are no share of all misses: they are taken only where there are no others, or where they are asked for.
#[test]
fn an_event_that_was_sampled_everywhere_comes_first() {
    let args = |words: &[&str]| {
        let words = ["coalloc", "t.hpm"].into_iter().chain(words.iter().copied());
        Cli::try_parse_from(words).unwrap().coalloc
    };
    let within = Some(Within { event: "instructions".into(), events: 1000 });
    let event =
        |name: &str, within| Event { name: name.into(), mode: EventUse::Precise, within, ..Event::default() };
    let dense = event("dense", within);
    let both = Meta { events: vec![dense.clone(), event("plain", None)], ..Meta::default() };
    assert_eq!(chosen_event(&args(&[]), &both).unwrap(), 1);
    assert_eq!(chosen_event(&args(&["-e", "dense"]), &both).unwrap(), 0);
    let alone = Meta { events: vec![dense], ..Meta::default() };
    assert_eq!(chosen_event(&args(&[]), &alone).unwrap(), 0);
}

#[test]
fn of_dense_places_what_is_saved_is_a_share_of_the_samples() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, "-g");
    let file = folder.join("meta.json");
    let mut meta: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    meta["events"][0]["within"] = serde_json::json!({"event": "instructions", "events": 20_000});
    std::fs::write(&file, meta.to_string()).unwrap();
    let text = run(&folder, &[]).unwrap();
    assert!(text.contains("saves: share of the samples (dense places), expected"), "{text}");
}

/// As `trace`, with a call of another place in each sample's branch records, and `meta.json` as altered.
fn with_branches(temp: &TempDir, alter: fn(&mut Meta)) -> serde_json::Value {
    let made = TraceReader::open(trace(temp, "-g")).unwrap();
    let folder = temp.path().join("branches.hpm");
    let mut meta = made.meta().clone();
    alter(&mut meta);
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    made.rows::<MapRow>().for_each(|row| writer.map(&row).unwrap());
    for row in made.rows::<SampleRow>() {
        let branches = Some(vec![BASE, row.ip, 0]);
        writer.sample(&SampleRow { branches, ..row }).unwrap();
    }
    writer.finish(Totals { counts: vec![170_000, 0], ..Totals::default() }).unwrap();
    json(&folder)
}

/// Where some types were not recorded, others can have been taken between two records: the sample's own records would end its way at
/// the call.
#[test]
fn only_records_of_all_branches_tell_which_way_control_came() {
    let told = |alter| {
        let json = with_branches(&TempDir::new().unwrap(), alter);
        (json["fields"][0]["parent"].clone(), json["warnings"].to_string())
    };
    let (_, warnings) = told(|meta| meta.branches = Some(BranchType::ALL.to_vec()));
    assert_eq!(warnings, "[]");
    let (parent, warnings) = told(|meta| meta.branches = Some(vec![BranchType::Call]));
    assert_eq!(parent, "string");
    assert!(warnings.contains("only branches of some types were recorded (call)"), "{warnings}");
    let (_, warnings) = told(|meta| meta.branches = None);
    assert!(warnings.contains("does not say whether branches of all types were recorded"), "{warnings}");
}

/// Without debug information the place of allocation stands for the type.
#[test]
fn without_types_places_of_allocation_are_named() {
    let temp = TempDir::new().unwrap();
    let json = json(&trace(&temp, "-g0"));
    is_without_types(&json);
}

fn is_without_types(json: &serde_json::Value) {
    assert_eq!(json["fields"][0]["parent"], "[unknown]+0xfff");
    assert_eq!(json["fields"][0]["name"], "+8");
    assert_eq!(json["fields"][0]["samples"], 150.0);
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("/db has no debug information that can be read"), "{warnings}");
}

fn change(program: &Path, tool: &str, words: &[&str]) {
    let status = Command::new(tool).args(words).arg(program).status().unwrap();
    assert!(status.success(), "{tool}: {status}");
}

/// Where its functions are is told by its table for unwinding.
#[test]
fn a_stripped_program_has_the_same_references_without_names() {
    let temp = TempDir::new().unwrap();
    let json = json(&trace_of(&temp, "-g", |program| change(program, "strip", &[]), false));
    is_without_types(&json);
    assert_eq!(json["unattributed"], serde_json::json!([]));
}

/// Debug information that ends too early gives the right name or none.
#[test]
fn truncated_debug_information_gives_no_wrong_names() {
    fn keep(program: &Path, quarters: usize) {
        let section = program.with_extension("section");
        let words = format!(".debug_info={}", section.display());
        change(program, "objcopy", &["--dump-section", &words]);
        let bytes = std::fs::read(&section).unwrap();
        std::fs::write(&section, &bytes[..bytes.len() * quarters / 4]).unwrap();
        change(program, "objcopy", &["--update-section", &words]);
    }
    let cuts: [fn(&Path); 4] = [
        |program| keep(program, 0),
        |program| keep(program, 1),
        |program| keep(program, 2),
        |program| keep(program, 3),
    ];
    for cut in cuts {
        let temp = TempDir::new().unwrap();
        let json = json(&trace_of(&temp, "-g", cut, false));
        let field =
            (json["fields"][0]["parent"].as_str().unwrap(), json["fields"][0]["name"].as_str().unwrap());
        assert!([("string", "value"), ("[unknown]+0xfff", "+8")].contains(&field), "{field:?}");
        assert_eq!(json["fields"][0]["samples"], 150.0);
    }
}

/// One object of malloc holds all of them: what the program's own allocator made of it is not known, and nothing is advised for it.
#[test]
fn an_allocator_of_the_programs_own_is_one_object() {
    let temp = TempDir::new().unwrap();
    let json = json(&trace_of(&temp, "-g", |_| (), true));
    assert_eq!(json["fields"][0]["parent"], "string");
    let advice = json["advice"].as_array().unwrap();
    assert!(advice.iter().all(|one| one["verdict"] == "leave"), "{advice:?}");
    let string = advice.iter().find(|one| one["candidate"]["pair"]["field"]["parent"] == "string").unwrap();
    assert_eq!(string["against"][0]["reason"], "too-large");
}

/// Code that was made at run time, of which there is no map.
#[test]
fn samples_in_unknown_code_belong_to_no_field() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("jit.hpm");
    let mut meta = meta();
    meta.events[0].attribution = Attribution::Cause;
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    let (start, end) = (BASE, BASE + 0x1000);
    let map = MapRow { pid: 7, start, end, path: "//anon".into(), executable: true, ..MapRow::default() };
    writer.map(&map).unwrap();
    allocate(&mut writer, false);
    for number in 0..150 {
        let row = SampleRow { tsc: 100, pid: 7, tid: 7, period: 1000, ip: BASE + 8, ..SampleRow::default() };
        let data_address = Some(CHARACTERS + 64 * number);
        writer.sample(&SampleRow { data_address, next_ip: Some(BASE + 12), ..row }).unwrap();
    }
    writer.finish(Totals { counts: vec![150_000, 0], ..Totals::default() }).unwrap();
    let json = json(&folder);
    assert_eq!(json["fields"], serde_json::json!([]));
    assert_eq!(json["advice"], serde_json::json!([]));
    assert_eq!(json["unattributed"], serde_json::json!([["no-code", 150.0]]));
    // A heading of nothing is left out.
    let text = run(&folder, &[]).unwrap();
    assert!(text.contains(" 150 did not: ") && !text.contains("young  field"), "{text}");
}

#[test]
fn what_cannot_be_attributed_is_refused() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("count.hpm");
    let mut meta = meta();
    meta.events = vec![Event { name: "cycles".into(), mode: EventUse::Interrupt, ..Event::default() }];
    TraceWriter::create(&folder, meta).unwrap().finish(Totals::default()).unwrap();
    assert!(run(&folder, &[]).unwrap_err().to_string().contains("no event that was sampled precisely"));
    assert!(run(&folder, &["-e", "cycles"]).unwrap_err().to_string().contains("was not sampled precisely"));
}
