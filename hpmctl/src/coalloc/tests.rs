//! Advice of a trace of a C program that is compiled here: its types and machine code are real, its samples are made.

use std::path::Path;
use std::process::Command;

use clap::Parser;
use libhpm::record::Attribution;
use libhpm::symbol::{Code, FileFinder, Place};
use libhpm::trace::{AllocationRow, Allocations, Event, MapRow, Totals, TraceWriter};
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
    let code = Code::around(&place, program, &FileFinder::default()).unwrap().unwrap();
    let found = code.instructions.iter().rev().find(|one| one.text.contains(text));
    let found = found.unwrap_or_else(|| panic!("no {text:?} in {:?}", code.instructions));
    (BASE + found.address, found.bytes.into())
}

/// Strings and their characters, each in a line of its own.
fn allocate(writer: &mut TraceWriter) {
    let stack = writer.stack(&[0x1000], true).unwrap();
    for number in 0..150 {
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

/// 150 misses of `string->value->hash`, and 20 of `entry->items[item]->length`.
fn trace(temp: &TempDir, debug: &str) -> PathBuf {
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
    allocate(&mut writer);
    let (walk, walk_bytes) = instruction(&program, "walk", "mov rax, [rax]");
    let (third, third_bytes) = instruction(&program, "third", "mov rax, [rax]");
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

/// Without debug information the place of allocation stands for the type.
#[test]
fn without_types_places_of_allocation_are_named() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, "-g0");
    let json: serde_json::Value = serde_json::from_str(&run(&folder, &["--json"]).unwrap()).unwrap();
    assert_eq!(json["fields"][0]["parent"], "[unknown]+0xfff");
    assert_eq!(json["fields"][0]["name"], "+8");
    assert_eq!(json["fields"][0]["samples"], 150.0);
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
