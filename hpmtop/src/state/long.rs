//! An hour's trace at speed: memory grows in its first part, while histories fill, and no more after that.

use std::path::Path;

use clap::Parser as _;
use libhpm::trace::{
    Clock, Event, EventUse, MapRow, MarkerRow, Meta, QuantumRow, SampleRow, ThreadChange, ThreadRow, Totals,
    TraceWriter,
};
use tempfile::TempDir;

use crate::app::Headless;
use crate::cli::Cli;

/// Seconds of the trace, in ticks of its TSC of 1 MHz.
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3600;
/// A process that is looked at, and the first of those that come and go, ten a second.
const STAYS: u32 = 100;
const COMES: u32 = 1000;
/// What memory may differ by between two parts of the hour: allocators give back what they want.
const SLACK_KIB: u64 = 4096;

fn meta() -> Meta {
    let event =
        |name: &str, mode, period| Event { name: name.into(), mode, period, user: true, ..Event::default() };
    Meta {
        source: "driver".into(),
        events: vec![
            event("l1d-load-miss", EventUse::Precise, 1009),
            event("cycles", EventUse::Count, 0),
            event("instructions", EventUse::Count, 0),
        ],
        clock: Clock { tsc_khz: 1000, ..Clock::default() },
        ..Meta::default()
    }
}

/// Quanta, samples, and new processes, an hour of them.
fn write(folder: &Path) {
    let mut writer = TraceWriter::create(folder, meta()).unwrap();
    let mut totals = Totals::default();
    writer.thread(&thread(0, STAYS, ThreadChange::Start)).unwrap();
    for second in 0..HOUR {
        let begin = second * SECOND;
        for nth in 0..10 {
            let (tid, tsc) = (COMES + (second * 10 + nth) as u32, begin + nth * 1000);
            writer.thread(&thread(tsc, tid, ThreadChange::Start)).unwrap();
            let (start, end) = (0x1000, 0x2000);
            let map = MapRow { tsc, pid: tid, start, end, path: "/bin/x".into(), ..MapRow::default() };
            writer.map(&map).unwrap();
            writer.thread(&thread(tsc + 900_000, tid, ThreadChange::Exit)).unwrap();
        }
        write_second(&mut writer, &mut totals, second);
        let text = "a second".to_owned();
        writer.marker(&MarkerRow { tsc: begin, text, ..MarkerRow::default() }).unwrap();
    }
    writer.finish(totals).unwrap();
}

fn thread(tsc: u64, tid: u32, what: ThreadChange) -> ThreadRow {
    let name = format!("p{tid}");
    ThreadRow { tsc, pid: tid, tid, name, what: what as u8, ..ThreadRow::default() }
}

/// 300 quanta, and 150 samples at addresses that never come again.
fn write_second(writer: &mut TraceWriter, totals: &mut Totals, second: u64) {
    for nth in 0..300_u64 {
        let tid = if nth % 4 == 3 { COMES + (second * 10 + nth / 4 % 10) as u32 } else { STAYS };
        let start_tsc = second * SECOND + nth * 3000;
        let cycles = 10_000_000 + (start_tsc / 40_000 % 3) * 5_000_000;
        let row = QuantumRow {
            sequence: second * 300 + nth,
            pid: tid,
            tid,
            start_tsc,
            end_tsc: start_tsc + 2500,
            end: 1,
            counts: vec![1009, cycles, 12_000_000],
            periods: vec![1009, 0, 0],
            records: (nth % 2) as u32,
            ..QuantumRow::default()
        };
        totals.add_quantum(&row);
        writer.quantum(&row).unwrap();
        if nth % 2 == 1 {
            let sample = SampleRow {
                tsc: row.end_tsc,
                pid: tid,
                tid,
                period: 1009,
                ip: 0x1000 + nth,
                data_address: Some(0x10_0000 + row.sequence * 4096),
                ..SampleRow::default()
            };
            writer.sample(&sample).unwrap();
        }
    }
}

/// Resident memory of this process.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "takes minutes, and has to be alone in its process"]
fn memory_stays_as_it_is_in_an_hour_at_speed() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("hour.hpm");
    write(&folder);
    let config = temp.path().join("config.toml");
    std::fs::write(&config, "").unwrap();
    let words = ["hpmtop", "--replay", folder.to_str().unwrap(), "--config", config.to_str().unwrap()];
    let words = words.into_iter().chain(["--screenshot", "x", "--at", "1s"]);
    let mut headless = Headless::start(&Cli::try_parse_from(words).unwrap()).unwrap();
    let mut seen = Vec::new();
    // Each screen for a while, locality with samples that are counted: all of them in both parts that are compared.
    for (minute, screen) in (3..=60).step_by(3).zip([1, 2, 3, 4, 5, 6].into_iter().cycle()) {
        headless.press_all(&format!("1 g Enter {screen} J {}s Enter", minute * 60)).unwrap();
        assert!(headless.state().model().now_ns >= (minute * 60 - 1) * 1_000_000_000, "minute {minute}");
        let area = ratatui::layout::Rect::new(0, 0, 200, 60);
        let mut buffer = ratatui::buffer::Buffer::empty(area);
        crate::view::draw(headless.state(), area, &mut buffer);
        seen.push(memory_kib());
        println!("minute {minute}, screen {screen}: {} KiB", seen[seen.len() - 1]);
    }
    // The first 24 minutes fill what is kept. The least of each part is compared: what waits in queues comes and goes.
    let least = |part: &[u64]| part.iter().copied().min().unwrap();
    let (middle, end) = (least(&seen[8..14]), least(&seen[14..]));
    assert!(end <= middle + SLACK_KIB, "memory grew from {middle} to {end} KiB: {seen:?}");
}
