//! Whether a trace is whole and does not contradict itself.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::reader::TraceReader;
use super::row::{
    AllocationRow, KernelSymbolRow, MapRow, MarkerRow, QuantumRow, Row, SampleRow, StackRow, ThreadRow,
};
use super::{Cut, Meta, Totals};

/// What was found in a trace.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Rows of each table that could be read.
    pub tables: Vec<(&'static str, u64)>,
    /// Tables that end before their end.
    pub cuts: Vec<Cut>,
    /// Contradictions.
    pub problems: Vec<Problem>,
    /// Sums of the quanta that could be read.
    pub sums: Totals,
    /// First and last time of a quantum, in TSC ticks.
    pub span: Option<(u64, u64)>,
    /// CPUs that have quanta.
    pub cpus: usize,
    /// Threads that have quanta.
    pub threads: usize,
}

/// A contradiction, and how often there is one of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, and where it was seen first.
    pub what: String,
    /// How often.
    pub times: u64,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.times {
            1 => f.write_str(&self.what),
            times => write!(f, "{} ({times} times)", self.what),
        }
    }
}

impl Verdict {
    /// Whether nothing is missing and nothing is wrong. A trace that was not finished is neither.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.cuts.is_empty() && self.problems.is_empty()
    }
}

/// Reads all of a trace.
#[must_use]
pub fn verify(reader: &TraceReader) -> Verdict {
    let meta = reader.meta();
    let one_at_a_time = meta.source != "perf.data" && meta.merged.is_empty();
    let mut check = Check { events: meta.events.len(), one_at_a_time, ..Check::default() };
    let mut verdict = Verdict::default();
    let stacks = &mut HashSet::new();
    each::<StackRow>(reader, &mut verdict, |row| {
        stacks.insert(row.id);
    });
    each::<QuantumRow>(reader, &mut verdict, |row| check.quantum(&row));
    each::<SampleRow>(reader, &mut verdict, |row| check.sample(&row, stacks));
    each::<MapRow>(reader, &mut verdict, |row| {
        if row.start > row.end {
            check.note("map", || format!("the mapping of {} ends before it starts", row.path));
        }
    });
    each::<ThreadRow>(reader, &mut verdict, |_| {});
    each::<KernelSymbolRow>(reader, &mut verdict, |_| {});
    each::<MarkerRow>(reader, &mut verdict, |_| {});
    if reader.has::<AllocationRow>() {
        each::<AllocationRow>(reader, &mut verdict, |row| check.allocation(&row, stacks));
    }
    check.totals(reader.meta());
    // Each for itself: they are different tables.
    let lacked = meta.missing.iter().map(|what| Problem { what: what.clone(), times: 1 });
    verdict.cpus = check.cpus.len();
    verdict.threads = check.threads.len();
    verdict.span = check.span;
    verdict.sums = check.sums;
    verdict.problems = lacked.chain(check.problems.into_iter().map(|(_, problem)| problem)).collect();
    verdict
}

fn each<R: Row>(reader: &TraceReader, verdict: &mut Verdict, mut look: impl FnMut(R)) {
    let mut rows = reader.rows::<R>();
    let mut count = 0;
    for row in rows.by_ref() {
        count += 1;
        look(row);
    }
    verdict.tables.push((R::TABLE, count));
    verdict.cuts.extend(rows.cut());
}

/// What has been seen so far.
#[derive(Default)]
struct Check {
    events: usize,
    /// A CPU had one quantum at a time: a perf.data file need not tell the CPUs, and traces that were merged may have been recorded side
    /// by side.
    one_at_a_time: bool,
    /// By kind.
    problems: Vec<(&'static str, Problem)>,
    /// Number and end of the last quantum of each CPU.
    last_of_cpu: HashMap<u32, (u64, u64)>,
    threads: HashSet<u32>,
    cpus: HashSet<u32>,
    /// Each quantum's thread, by CPU and number.
    quanta: HashMap<(u32, u64), u32>,
    span: Option<(u64, u64)>,
    sums: Totals,
}

impl Check {
    fn allocation(&mut self, row: &AllocationRow, stacks: &HashSet<u32>) {
        if row.freed_tsc.is_some_and(|freed| freed < row.tsc) {
            self.note("freed", || {
                format!("the object at {:#x} was freed before it was allocated", row.address)
            });
        }
        if row.stack.is_some_and(|stack| !stacks.contains(&stack)) {
            self.note("allocation's stack", || {
                format!("the object at {:#x} names a stack that is not there", row.address)
            });
        }
    }

    fn note(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        match self.problems.iter_mut().find(|(of, _)| *of == kind) {
            Some((_, problem)) => problem.times += 1,
            None => self.problems.push((kind, Problem { what: what(), times: 1 })),
        }
    }

    fn quantum(&mut self, row: &QuantumRow) {
        let QuantumRow { cpu, sequence, start_tsc, end_tsc, .. } = *row;
        if start_tsc > end_tsc {
            self.note("backwards", || format!("quantum {sequence} of CPU {cpu} ends before it starts"));
        }
        if row.counts.len() != self.events {
            let (counts, events) = (row.counts.len(), self.events);
            self.note("counts", || {
                format!("quantum {sequence} of CPU {cpu} has {counts} counts for {events} events")
            });
        }
        if let Some(&(last, last_end)) = self.last_of_cpu.get(&cpu) {
            if sequence <= last {
                self.note("order", || format!("quantum {sequence} of CPU {cpu} comes after quantum {last}"));
            }
            if start_tsc < last_end && self.one_at_a_time {
                self.note("overlap", || {
                    format!("quantum {sequence} of CPU {cpu} starts before quantum {last} has ended")
                });
            }
        }
        self.last_of_cpu.insert(cpu, (sequence, end_tsc));
        self.cpus.insert(cpu);
        self.threads.insert(row.tid);
        self.quanta.insert((cpu, sequence), row.tid);
        let (first, end) = self.span.unwrap_or((start_tsc, end_tsc));
        self.span = Some((first.min(start_tsc), end.max(end_tsc)));
        self.sums.add_quantum(row);
    }

    fn sample(&mut self, row: &SampleRow, stacks: &HashSet<u32>) {
        let SampleRow { cpu, quantum, tid, .. } = *row;
        match self.quanta.get(&(cpu, quantum)) {
            // Without any quanta their table is missing, which is told.
            None if self.quanta.is_empty() => {
                self.threads.insert(tid);
                self.cpus.insert(cpu);
                let (first, end) = self.span.unwrap_or((row.tsc, row.tsc));
                self.span = Some((first.min(row.tsc), end.max(row.tsc)));
            }
            None => self.note("no quantum", || {
                format!("a sample of thread {tid} names quantum {quantum} of CPU {cpu}, which is not there")
            }),
            Some(&of) if of != tid => self.note("thread", || {
                format!(
                    "a sample of thread {tid} names quantum {quantum} of CPU {cpu}, which is thread {of}'s"
                )
            }),
            Some(_) => {}
        }
        if usize::from(row.event) >= self.events {
            self.note("event", || {
                format!("a sample of thread {tid} is of event {}, which there is not", row.event)
            });
        }
        if let Some(stack) = row.stack.filter(|stack| !stacks.contains(stack)) {
            self.note("stack", || {
                format!("a sample of thread {tid} names stack {stack}, which is not there")
            });
        }
    }

    /// The driver's sums and those of the quanta are the same, unless quanta were lost.
    fn totals(&mut self, meta: &Meta) {
        let Some(totals) = meta.totals.as_ref().filter(|totals| totals.quanta_lost == 0) else { return };
        // perf_event counts what its samples only estimate.
        if meta.source != "driver" || !meta.merged.is_empty() {
            return;
        }
        let counts = self.sums.counts.clone();
        for ((event, total), sum) in meta.events.iter().zip(&totals.counts).zip(counts) {
            if *total != sum {
                self.note("sums", || {
                    format!("the quanta have counted {sum} {}, and the session {total}", event.name)
                });
            }
        }
    }
}
