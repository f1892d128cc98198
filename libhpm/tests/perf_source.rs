//! The kernel's perf_event as a source, on the machine at hand. Where the kernel lets nobody measure there is nothing to test.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use libhpm::Error;
use libhpm::session::Target;
use libhpm::source::perf::{PerfOptions, PerfSource, PerfStacks, PerfStream, parse, software};
use libhpm::source::{Sink, Source};
use libhpm::symbol::KERNEL_START;
use libhpm::sys::child::Child;
use libhpm::trace::{QuantumRow, SampleRow, ThreadRow, Totals, TraceError};

#[derive(Default)]
struct Rows {
    quanta: Vec<QuantumRow>,
    samples: Vec<SampleRow>,
    threads: Vec<ThreadRow>,
    stacks: Vec<Vec<u64>>,
    /// Stacks when rows were last asked for: a sink that has begun another trace since has none of them.
    old_stacks: usize,
    /// Samples that name one of them.
    stale: usize,
}

impl Rows {
    fn take(&mut self, source: &mut PerfSource) {
        self.old_stacks = self.stacks.len();
        source.take(self).unwrap();
    }
}

impl Sink for Rows {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        self.quanta.push(row.clone());
        Ok(())
    }
    fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        self.stale += usize::from(row.stack.is_some_and(|stack| (stack as usize) < self.old_stacks));
        self.samples.push(row.clone());
        Ok(())
    }
    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        self.threads.push(row.clone());
        Ok(())
    }
    fn stack(&mut self, frames: &[u64], _truncated: bool) -> Result<u32, TraceError> {
        self.stacks.push(frames.to_vec());
        Ok(self.stacks.len() as u32 - 1)
    }
}

/// Of a program that has yet to be executed.
fn options(target: Target, events: &str, stream: PerfStream, stacks: PerfStacks) -> PerfOptions {
    PerfOptions {
        target,
        on_exec: true,
        inherit: true,
        events: parse(&[events.into()]).unwrap(),
        stream,
        stacks,
        multiplex: false,
        pausable: false,
        note: String::new(),
        command: vec![],
    }
}

/// Runs a shell script to its end under these events. `None` where perf_event may not be used.
fn measure(script: &str, events: &str, stream: PerfStream, stacks: PerfStacks) -> Option<(Rows, Totals)> {
    software().ok()?;
    let mut child = Child::prepare(&["sh", "-c", script]).unwrap();
    let options = options(Target::Process(child.pid()), events, stream, stacks);
    let mut source = match PerfSource::open(options) {
        // Kernel mode may be forbidden to this user.
        Err(Error::PerfEvent { .. }) => return None,
        result => result.unwrap(),
    };
    let mut rows = Rows::default();
    source.start(&mut rows).unwrap();
    child.execute().unwrap();
    while child.try_wait().unwrap().is_none() {
        source.wait(&[], Duration::from_millis(20)).unwrap();
        rows.take(&mut source);
    }
    source.stop().unwrap();
    rows.take(&mut source);
    let totals = source.totals().unwrap();
    Some((rows, totals))
}

/// Computes for some time, also in two children, which touch memory of their own.
const SCRIPT: &str = "f() { i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; }; f & f & f; wait";

#[test]
fn the_quanta_add_up_to_what_was_counted() {
    let events = "task-clock,page-faults,context-switches";
    let Some((rows, totals)) = measure(SCRIPT, events, PerfStream::Quanta, PerfStacks::None) else { return };
    let sum = |event: usize| rows.quanta.iter().map(|row| row.counts[event]).sum::<u64>();
    assert_eq!(totals.records_lost, 0);
    assert_eq!(sum(1), totals.counts[1], "page faults");
    assert_eq!(sum(2), totals.counts[2], "switches");
    let (time, clock) = (sum(0) as f64, totals.counts[0] as f64);
    assert!((time - clock).abs() < 0.05 * clock + 1e6, "{time} ns in quanta, {clock} by the clock");
    let pids: HashSet<u32> = rows.quanta.iter().map(|row| row.pid).collect();
    assert_eq!(pids.len(), 3, "the shell and two children");
    let numbers: HashSet<_> = rows.quanta.iter().map(|row| (row.cpu, row.sequence)).collect();
    assert_eq!(numbers.len(), rows.quanta.len());
    assert!(rows.samples.is_empty());
}

#[test]
fn no_thread_is_at_two_places_at_once() {
    let Some((mut rows, _)) = measure(SCRIPT, "task-clock", PerfStream::Quanta, PerfStacks::None) else {
        return;
    };
    let of_thread = |row: &QuantumRow| (row.tid, row.start_tsc, row.end_tsc);
    rows.quanta.sort_by_key(of_thread);
    for pair in rows.quanta.windows(2).filter(|pair| pair[0].tid == pair[1].tid) {
        assert!(pair[0].end_tsc <= pair[1].start_tsc, "{pair:?}");
    }
    rows.quanta.sort_by_key(|row| (row.cpu, row.start_tsc));
    for pair in rows.quanta.windows(2).filter(|pair| pair[0].cpu == pair[1].cpu) {
        // A thread's exit is reported before the switch away from it, which may be later than its last quantum's end.
        assert!(pair[0].end_tsc <= pair[1].start_tsc, "{pair:?}");
    }
}

/// Writes slowly what was there before measuring began.
#[derive(Default)]
struct Slow {
    rows: Rows,
    written: Option<Instant>,
}

impl Sink for Slow {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        self.rows.quantum(row)
    }
    fn thread(&mut self, _row: &ThreadRow) -> Result<(), TraceError> {
        if self.written.is_none() {
            std::thread::sleep(Duration::from_millis(300));
        }
        self.written.get_or_insert_with(Instant::now);
        Ok(())
    }
}

#[test]
fn time_before_measuring_began_is_nobodys() {
    let Ok(()) = software() else { return };
    let options = PerfOptions {
        on_exec: false,
        ..options(Target::System, "task-clock", PerfStream::Quanta, PerfStacks::None)
    };
    let mut source = match PerfSource::open(options) {
        Err(Error::PerfEvent { .. }) => return,
        result => result.unwrap(),
    };
    let mut slow = Slow::default();
    source.start(&mut slow).unwrap();
    let busy = Instant::now();
    while busy.elapsed() < Duration::from_millis(50) {}
    // Who runs is known by switches alone, of which a quiet machine has none otherwise.
    std::thread::sleep(Duration::from_millis(5));
    source.stop().unwrap();
    source.take(&mut slow).unwrap();
    let measured = slow.written.unwrap().elapsed().as_nanos() as u64;
    let last = slow.rows.quanta.iter().map(|row| row.end_tsc).max().unwrap();
    for row in &slow.rows.quanta {
        assert!(last - row.start_tsc <= measured, "{row:?} begins before its measurement did");
    }
}

#[test]
fn samples_belong_to_quanta_and_faults_have_addresses() {
    let stream = PerfStream::Samples { period: 0, rate: 0 };
    let events = "cpu-clock:u,page-faults:u";
    let Some((rows, totals)) = measure(SCRIPT, events, stream, PerfStacks::Copied(8192)) else { return };
    let numbers: HashSet<_> = rows.quanta.iter().map(|row| (row.cpu, row.sequence, row.tid)).collect();
    assert!(!rows.samples.is_empty());
    for sample in &rows.samples {
        assert!(numbers.contains(&(sample.cpu, sample.quantum, sample.tid)), "{sample:?}");
    }
    let faults: Vec<_> = rows.samples.iter().filter(|sample| sample.event == 1).collect();
    assert_eq!(faults.len() as u64, totals.counts[1], "each fault is a sample");
    assert!(faults.iter().all(|fault| fault.data_address.is_some() && fault.period == 1));
    assert!(rows.samples.iter().any(|sample| sample.event == 0));
    let deep = rows.samples.iter().filter_map(|sample| rows.stacks.get(sample.stack? as usize));
    assert!(deep.filter(|frames| frames.len() >= 3).count() > 0, "stacks are unwound");
    assert_eq!(rows.stale, 0, "a sample is handed over with its stack");
    assert!(rows.threads.iter().any(|row| row.name == "sh"));
}

/// A thread that goes to sleep does so deep in the kernel, where a program called it.
#[test]
fn stacks_of_switches_have_the_kernels_calls_and_the_users() {
    let stream = PerfStream::Samples { period: 0, rate: 0 };
    let script = "sleep 0.01; sleep 0.01";
    let Some((rows, _)) = measure(script, "context-switches", stream, PerfStacks::Copied(8192)) else {
        return;
    };
    let in_kernel = |frames: &&Vec<u64>| frames.iter().filter(|&&frame| frame >= KERNEL_START).count();
    let stacks = rows.samples.iter().filter_map(|sample| rows.stacks.get(sample.stack? as usize));
    let both = stacks.filter(|frames| in_kernel(frames) >= 3 && frames.len() >= in_kernel(frames) + 2);
    assert!(both.count() > 0, "{:x?}", rows.stacks);
}

#[test]
fn counts_alone_need_no_stream() {
    let Some((rows, totals)) =
        measure(SCRIPT, "task-clock,page-faults", PerfStream::Totals, PerfStacks::None)
    else {
        return;
    };
    assert!(rows.quanta.is_empty());
    assert!(totals.counts.iter().all(|&count| count > 0), "{totals:?}");
    assert_eq!(totals.running_tsc, [totals.on_cpu_tsc; 2], "software takes no turns");
}

#[test]
fn hardware_counts_that_are_not_there_are_refused() {
    if software().is_err() || libhpm::source::perf::hardware().is_ok() {
        return;
    }
    let error = libhpm::source::perf::hardware().unwrap_err().to_string();
    assert!(error.contains("this machine has no PMU that counts it"), "{error}");
}

#[test]
fn a_directory_of_no_control_group_is_named_as_such() {
    let Ok(_) = software() else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = PerfOptions {
        on_exec: false,
        ..options(
            Target::Cgroup(folder.path().to_owned()),
            "task-clock",
            PerfStream::Totals,
            PerfStacks::None,
        )
    };
    match PerfSource::open(options) {
        // A user without rights is told so first.
        Err(Error::PerfEvent { .. }) => {}
        other => {
            let error = other.err().unwrap().to_string();
            assert!(error.contains("is no control group that perf_event knows"), "{error}");
        }
    }
}
