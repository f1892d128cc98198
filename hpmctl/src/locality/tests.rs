//! Profiles of a trace with known addresses. The code is this test's own `main`, so that computed addresses are tested where code is
//! known: in `libhpm`.

use std::path::Path;

use clap::Parser;
use libhpm::trace::{
    AllocationRow, Allocations, Event, EventUse, MapRow, Registers, SampleRow, Totals, TraceWriter,
};
use tempfile::TempDir;

use super::*;
use crate::report::tests::meta;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    locality: LocalityArgs,
}

fn registers(rsp: u64) -> Option<Registers> {
    let mut registers = Registers([0; Registers::COUNT]);
    registers.0[Registers::RSP] = rsp;
    Some(registers)
}

/// Two threads on a line of `[heap]`, one on its stack, one in a file, and one sample without an address.
fn trace(temp: &TempDir, allocations: bool) -> PathBuf {
    trace_of(temp, allocations.then(|| Allocations { processes: 1, ..Allocations::default() }))
}

/// With two objects, of which this tells how they were recorded.
fn trace_of(temp: &TempDir, allocations: Option<Allocations>) -> PathBuf {
    let folder = temp.path().join("memory.hpm");
    let store = Event { name: "store".into(), mode: EventUse::Precise, ..Event::default() };
    let mut meta = meta();
    meta.events[0].kernel = false;
    meta.events.push(store);
    let mut writer = TraceWriter::create(&folder, meta).unwrap();
    for (range, path) in [(0x10_0000..0x20_0000_u64, "[heap]"), (0x50_0000..0x60_0000, "/data/table")] {
        let (start, end) = (range.start, range.end);
        writer.map(&MapRow { pid: 7, start, end, path: path.into(), ..MapRow::default() }).unwrap();
    }
    let sample = |event, tid, data_address| SampleRow {
        event,
        tid,
        data_address,
        tsc: 100,
        pid: 7,
        period: 1000,
        ip: 0x1,
        registers: registers(0x7ffc_0000_0000),
        ..SampleRow::default()
    };
    for _ in 0..6 {
        writer.sample(&sample(0, 7, Some(0x10_0040))).unwrap();
    }
    for _ in 0..2 {
        writer.sample(&sample(2, 8, Some(0x10_0058))).unwrap();
    }
    writer.sample(&sample(0, 7, Some(0x7ffc_0000_0010))).unwrap();
    writer.sample(&sample(0, 7, Some(0x50_1000))).unwrap();
    writer.sample(&sample(0, 7, None)).unwrap();
    if let Some(how) = allocations {
        let stack = writer.stack(&[0x1000], false).unwrap();
        let object = AllocationRow {
            tsc: 10,
            pid: 7,
            tid: 7,
            address: 0x10_0040,
            bytes: 32,
            stack: Some(stack),
            ..AllocationRow::default()
        };
        writer.allocation(&object).unwrap();
        writer.allocation(&AllocationRow { tsc: 90, address: 0x11_0000, bytes: 512, ..object }).unwrap();
        writer.allocations_recorded(how).unwrap();
    }
    writer.finish(Totals { counts: vec![9000, 0, 2000], ..Totals::default() }).unwrap();
    folder
}

fn run(folder: &Path, options: &[&str]) -> Result<String> {
    let words = ["locality"].into_iter().chain(options.iter().copied()).chain([folder.to_str().unwrap()]);
    output(&Cli::try_parse_from(words).unwrap().locality).map(|(text, _)| text)
}

fn text(options: &[&str]) -> String {
    let temp = TempDir::new().unwrap();
    run(&trace(&temp, true), options).unwrap()
}

#[test]
fn spaces_by_event() {
    insta::assert_snapshot!(text(&[]));
}

#[test]
fn lines_with_their_threads() {
    insta::assert_snapshot!(text(&["--by", "line", "--sharing"]));
}

#[test]
fn places_of_allocation() {
    insta::assert_snapshot!(text(&["--by", "site", "--nursery", "100"]));
}

/// The second object stands for the 500,000 bytes that were allocated meanwhile.
#[test]
fn ages_of_drawn_objects_are_estimated_and_told() {
    let temp = TempDir::new().unwrap();
    let how = Allocations { processes: 1, sampled_bytes: 500_000, ..Allocations::default() };
    let folder = trace_of(&temp, Some(how));
    let young = |nursery: &str| {
        let text = run(&folder, &["--json", "--by", "site", "--nursery", nursery]).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let remarks = json["remarks"].to_string();
        assert!(remarks.contains("most objects are not known, and ages are estimated"), "{remarks}");
        json["entries"][0]["sums"][0]["young"].as_u64().unwrap_or(0)
    };
    assert_eq!([young("490000"), young("510000")], [0, 6]);
    assert!(
        run(&folder, &[]).unwrap().contains("one allocation in 500,000 bytes was recorded: most objects")
    );
    let how = Allocations { uneven: true, ..how };
    let uneven = run(&trace_of(&TempDir::new().unwrap(), Some(how)), &[]).unwrap();
    assert!(uneven.contains("but not of all programs"), "{uneven}");
}

#[test]
fn what_a_table_has_no_place_for_is_told_beside_it() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, true);
    let beside = |options: &[&str]| {
        let words = ["locality"].into_iter().chain(options.iter().copied());
        let words = words.chain([folder.to_str().unwrap()]);
        output(&Cli::try_parse_from(words).unwrap().locality).unwrap().1
    };
    std::fs::write(folder.join("meta.json"), {
        let meta = std::fs::read_to_string(folder.join("meta.json")).unwrap();
        meta.replace("\"records_lost\": 0", "\"records_lost\": 5")
    })
    .unwrap();
    assert!(beside(&[]).is_empty());
    assert_eq!(beside(&["--csv"]), ["5 samples could not be written or were held back"]);
}

#[test]
fn objects_as_comma_separated_values() {
    insta::assert_snapshot!(text(&["--by", "object", "--csv"]));
}

#[test]
fn reasons_for_unknown_addresses() {
    insta::assert_snapshot!(text(&["--by", "reason"]));
}

#[test]
fn json_has_the_same_groups_and_filters_choose() {
    let json: serde_json::Value = serde_json::from_str(&text(&["--json", "--data", "heap"])).unwrap();
    assert_eq!(json["entries"][0]["space"], "heap");
    assert_eq!(json["entries"][0]["sums"][0]["samples"], 6);
    assert_eq!(json["groups"], 1);
    assert_eq!(json["addresses"]["hardware"], 8);
}

#[test]
fn what_is_not_there_is_said() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, false);
    let error = |options: &[&str]| run(&folder, options).unwrap_err().to_string();
    assert!(error(&["--by", "object"]).contains("record with --allocations"));
    assert!(error(&["--sharing"]).contains("--by line"));
    assert!(error(&["--data", "0x1-0x2"]).contains("no sample that was asked for"));
    assert!(error(&["-e", "none"]).contains("no event `none`"));
}

/// By perf_event only the kernel's own events have addresses.
#[test]
fn addresses_that_the_kernel_gave_are_not_hardware_s() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, true);
    let file = folder.join("meta.json");
    let json = std::fs::read_to_string(&file).unwrap();
    let mut meta: serde_json::Value = serde_json::from_str(&json).unwrap();
    meta["source"] = "perf_event".into();
    std::fs::write(&file, meta.to_string()).unwrap();
    let text = run(&folder, &[]).unwrap();
    assert!(text.contains("addresses 10 by the kernel, 0 computed"), "{text}");
}
