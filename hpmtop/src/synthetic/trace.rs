//! A made-up trace: three processes on two CPUs for 2.4 s, with phases, markers and samples, the same each time.

use std::path::Path;

use libhpm::record::Attribution;
use libhpm::trace::{
    Clock, Event, EventUse, KernelSymbolRow, Machine, MarkerRow, Meta, QuantumRow, SampleRow, ThreadChange,
    ThreadRow, Totals, TraceError, TraceWriter,
};

use super::memory;

/// A TSC of 1 MHz: its ticks are microseconds.
const TSC_KHZ: u64 = 1000;
/// Events between two samples.
pub(super) const PERIOD: u64 = 2003;
/// When it begins and how long it is, in ticks.
pub(super) const BEGIN: u64 = 1_000_000;
const LENGTH: u64 = 2_400_000;
/// Functions, by the first bytes of their addresses, which are the kernel's: no file has to be there for their names.
const FUNCTIONS: [&str; 4] = ["hash_lookup", "parse_line", "sort_pairs", "write_out"];
const FIRST_FUNCTION: u64 = 0xffff_8000_0001_0000;

/// A thread: process, number, name.
pub(super) type Thread = (u32, u32, &'static str);

pub(super) const SERVER: [Thread; 3] = [(100, 100, "server"), (100, 101, "worker-1"), (100, 102, "worker-2")];
const BATCH: Thread = (200, 200, "batch");
const CRON: Thread = (300, 300, "cron");

/// Instructions per 100 cycles, misses per 1000 instructions and function of each of the batch's phases.
const PHASES: [(u64, u64, usize); 3] = [(210, 2, 1), (55, 40, 0), (130, 9, 2)];
/// How long a phase is, in ticks.
const PHASE: u64 = 40_000;

/// Writes it.
///
/// # Errors
/// The folder exists already or cannot be written.
pub fn write_trace(folder: &Path) -> Result<(), TraceError> {
    let mut writer = TraceWriter::create(folder, meta())?;
    for (nth, name) in FUNCTIONS.iter().enumerate() {
        let address = FIRST_FUNCTION + 0x1000 * nth as u64;
        writer.kernel_symbol(&KernelSymbolRow { address, name: (*name).into(), module: None })?;
    }
    memory::write(&mut writer, folder)?;
    let mut made = Made { writer, sequences: [0; 2], totals: Totals::default(), loads: 0 };
    made.lives()?;
    // Replays take the rows of a table in the order in which they were written.
    let mut stays: Vec<Stay> = batch().chain(server()).collect();
    stays.sort_by_key(|stay| stay.start + stay.ticks);
    stays.iter().try_for_each(|stay| made.stay(stay))?;
    let (pid, tid, _) = SERVER[0];
    let text = memory::MARKER.to_owned();
    let tsc = BEGIN + memory::CHANGED;
    made.writer.marker(&MarkerRow { tsc, pid: Some(pid), tid: Some(tid), text, value: None })?;
    for nth in 0..5 {
        let (tsc, text) = (BEGIN + 300_000 + nth * 400_000, "request".to_owned());
        made.writer.marker(&MarkerRow { tsc, pid: Some(100), tid: Some(101), text, value: Some(nth + 1) })?;
    }
    let Made { writer, totals, .. } = made;
    writer.finish(totals)
}

fn meta() -> Meta {
    let event = |name: &str, mode, period| Event {
        name: name.into(),
        mode,
        period,
        attribution: Attribution::Cause,
        user: true,
        ..Event::default()
    };
    Meta {
        hpm_version: "0.1.0".into(),
        source: "driver".into(),
        machine: Machine {
            pmu: "skylake".into(),
            vendor: "GenuineIntel".into(),
            family: 6,
            model: 94,
            stepping: 3,
            cpus: 2,
            kernel_release: "6.1.0".into(),
            host_name: "made-up".into(),
            boot_id: String::new(),
        },
        events: vec![
            event("l1d-load-miss", EventUse::Precise, PERIOD),
            event("cycles", EventUse::Count, 0),
            event("instructions", EventUse::Count, 0),
        ],
        clock: Clock { tsc_khz: TSC_KHZ, ..Clock::default() },
        ..Meta::default()
    }
}

/// The trace while it is being written.
struct Made {
    writer: TraceWriter,
    sequences: [u64; 2],
    totals: Totals,
    /// Loads of the server that were sampled, or would have been.
    loads: u64,
}

/// What a thread does in a stay.
struct Stay {
    thread: Thread,
    cpu: u32,
    start: u64,
    ticks: u64,
    /// Number of a `QuantumEnd`.
    end: u8,
    ipc_percent: u64,
    misses_per_mille: u64,
    function: usize,
}

/// Numbers of `QuantumEnd`.
const YIELDED: u8 = 1;
const PREEMPTED: u8 = 2;
const TIMER: u8 = 3;
const EXIT: u8 = 6;

impl Made {
    fn lives(&mut self) -> Result<(), TraceError> {
        for (pid, tid, name) in SERVER.into_iter().chain([BATCH, CRON]) {
            let what = if pid == 300 { ThreadChange::Fork } else { ThreadChange::Start };
            let parent_pid = (pid == 300).then_some(100);
            let tsc = if pid == 300 { BEGIN + 900_000 } else { BEGIN };
            self.writer.thread(&ThreadRow {
                tsc,
                pid,
                tid,
                parent_pid,
                name: name.into(),
                what: what as u8,
            })?;
        }
        let (pid, tid, name) = CRON;
        let what = ThreadChange::Exit as u8;
        self.writer.thread(&ThreadRow {
            tsc: BEGIN + 1_200_000,
            pid,
            tid,
            name: name.into(),
            what,
            ..ThreadRow::default()
        })
    }

    fn stay(&mut self, stay: &Stay) -> Result<(), TraceError> {
        let (pid, tid, _) = stay.thread;
        // 3 GHz.
        let cycles = stay.ticks * 3000;
        let instructions = cycles * stay.ipc_percent / 100;
        let misses = instructions * stay.misses_per_mille / 1000;
        let records = misses / PERIOD / 8;
        let sequence = self.sequences[stay.cpu as usize];
        self.sequences[stay.cpu as usize] += 1;
        let start_tsc = BEGIN + stay.start;
        let row = QuantumRow {
            sequence,
            cpu: stay.cpu,
            pid,
            tid,
            start_tsc,
            end_tsc: start_tsc + stay.ticks,
            end: stay.end,
            counts: vec![misses, cycles, instructions],
            periods: vec![PERIOD, 0, 0],
            records: records as u32,
            last_ip: Some(if pid == SERVER[0].0 { memory::walk() } else { address(stay.function, 0) }),
            ..QuantumRow::default()
        };
        self.totals.add_quantum(&row);
        self.writer.quantum(&row)?;
        for nth in 0..records {
            let function = if nth % 4 == 3 { 3 } else { stay.function };
            let sample = SampleRow {
                tsc: row.end_tsc,
                cpu: stay.cpu,
                pid,
                tid,
                quantum: sequence,
                event: 0,
                period: PERIOD,
                ip: address(function, nth),
                ..SampleRow::default()
            };
            let load = match (pid == SERVER[0].0, function) {
                (true, 0) => {
                    self.loads += 1;
                    memory::sample(self.loads, sample.clone())
                }
                _ => None,
            };
            self.writer.sample(&load.unwrap_or(sample))?;
        }
        Ok(())
    }
}

/// An instruction of one of the kernel's functions.
fn address(function: usize, nth: u64) -> u64 {
    FIRST_FUNCTION + 0x1000 * function as u64 + 0x10 * (nth % 16)
}

/// One thread on CPU 1 that goes through three phases again and again, cut each millisecond.
fn batch() -> impl Iterator<Item = Stay> {
    (0..LENGTH / 1000).map(|nth| {
        let (ipc_percent, misses_per_mille, function) = PHASES[(nth * 1000 / PHASE) as usize % PHASES.len()];
        Stay {
            thread: BATCH,
            cpu: 1,
            start: nth * 1000,
            ticks: 990,
            end: if nth % 50 == 49 { PREEMPTED } else { TIMER },
            // No two quanta are quite the same.
            ipc_percent: ipc_percent + nth * 7919 % 5,
            misses_per_mille,
            function,
        }
    })
}

/// Threads that take turns on CPU 0, and wait in between; one comes and goes.
fn server() -> impl Iterator<Item = Stay> {
    (0..LENGTH / 4000).map(|nth| {
        let start = nth * 4000;
        let cron = (900_000..1_200_000).contains(&start) && nth % 5 == 0;
        let last = cron && start + 20_000 >= 1_200_000;
        // Now and then one is on the other CPU, between two quanta of the batch.
        let away = nth % 40 == 39;
        Stay {
            thread: if cron { CRON } else { SERVER[(nth % 7 % 3) as usize] },
            cpu: u32::from(away),
            start: if away { start + 991 } else { start },
            ticks: if away { 8 } else { 800 + nth * 131 % 2400 },
            end: match nth % 9 {
                _ if last => EXIT,
                0 => PREEMPTED,
                _ => YIELDED,
            },
            ipc_percent: 90 + nth % 30,
            misses_per_mille: 12,
            function: if nth % 3 == 0 { 3 } else { 0 },
        }
    })
}
