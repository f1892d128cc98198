//! Whose phases: the quanta of a trace, sorted into threads or processes and cut into intervals.

use std::collections::BTreeMap;

use hpm_abi::QuantumFlags;

use super::interval::{Disorder, Interval, Slicer, Stay};
use crate::trace::QuantumRow;

/// What a subject is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// Each thread for itself.
    Thread,
    /// Each process with all its threads.
    Process,
}

/// A thread or a process, and its intervals.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Thread-group ID.
    pub pid: u32,
    /// Thread ID; `None` for a process.
    pub tid: Option<u32>,
    /// TSC ticks on a CPU.
    pub on_cpu: u64,
    /// The intervals, or why no order of the quanta makes sense.
    pub intervals: Result<Vec<Interval>, Disorder>,
}

/// Sorts quanta by subject, puts them into order of time (a thread that moves to another CPU may be written out of order), and
/// cuts them into intervals of `length` TSC ticks on a CPU. The subject that was longest on a CPU comes first.
pub fn subjects(rows: impl IntoIterator<Item = QuantumRow>, kind: SubjectKind, length: u64) -> Vec<Subject> {
    let mut by_subject: BTreeMap<(u32, Option<u32>), Vec<QuantumRow>> = BTreeMap::new();
    for row in rows {
        let tid = (kind == SubjectKind::Thread).then_some(row.tid);
        by_subject.entry((row.pid, tid)).or_default().push(row);
    }
    let subject = |((pid, tid), mut rows): ((u32, Option<u32>), Vec<QuantumRow>)| {
        rows.sort_by_key(|row| (row.start_tsc, row.end_tsc));
        let on_cpu = rows.iter().map(|row| row.end_tsc.saturating_sub(row.start_tsc)).sum();
        let slicer = if tid.is_some() { Slicer::for_thread(length) } else { Slicer::for_process(length) };
        Subject { pid, tid, on_cpu, intervals: slice(slicer, &rows) }
    };
    let mut subjects: Vec<Subject> = by_subject.into_iter().map(subject).collect();
    subjects.sort_by_key(|subject| std::cmp::Reverse(subject.on_cpu));
    subjects
}

fn slice(mut slicer: Slicer, rows: &[QuantumRow]) -> Result<Vec<Interval>, Disorder> {
    let stay = |row: &QuantumRow| {
        let lost_before = row.flags & QuantumFlags::QUANTA_LOST_BEFORE != 0;
        slicer.push(&Stay { start: row.start_tsc, end: row.end_tsc, counts: &row.counts, lost_before })
    };
    rows.iter().map(stay).filter_map(Result::transpose).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(tid: u32, start_tsc: u64, end_tsc: u64, count: u64) -> QuantumRow {
        QuantumRow { pid: 7, tid, start_tsc, end_tsc, counts: vec![count], ..QuantumRow::default() }
    }

    #[test]
    fn threads_and_processes() {
        // Thread 7 moved to another CPU, whose quanta were written first.
        let rows = [row(7, 100, 200, 2), row(8, 0, 50, 9), row(7, 0, 100, 1), row(8, 50, 100, 9)];
        let threads = subjects(rows.clone(), SubjectKind::Thread, 100);
        assert_eq!(threads.iter().map(|thread| thread.tid).collect::<Vec<_>>(), [Some(7), Some(8)]);
        let counts = |subject: &Subject| -> Vec<u64> {
            subject.intervals.as_ref().unwrap().iter().map(|interval| interval.counts[0]).collect()
        };
        assert_eq!(threads.iter().map(counts).collect::<Vec<_>>(), [vec![1, 2], vec![18]]);
        let processes = subjects(rows, SubjectKind::Process, 100);
        assert_eq!((processes.len(), processes[0].tid, processes[0].on_cpu), (1, None, 300));
        assert_eq!(counts(&processes[0]).iter().sum::<u64>(), 21);
    }

    #[test]
    fn quanta_of_one_thread_that_overlap_are_told() {
        let rows = [row(7, 0, 100, 1), row(7, 60, 160, 1)];
        let threads = subjects(rows, SubjectKind::Thread, 100);
        assert_eq!(threads[0].intervals, Err(Disorder::Overlap { start: 60, before: 100 }));
    }
}
