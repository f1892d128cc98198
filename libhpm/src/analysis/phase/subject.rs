//! Whose phases: the quanta of a trace, sorted into threads or processes and cut into intervals.

use std::collections::BTreeMap;

use super::interval::{Disorder, Interval, Slicer, Stay};
use crate::report::{Losses, LostSpans};
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
/// cuts them into intervals of `length` TSC ticks on a CPU. The subject that was longest on a CPU comes first. Quanta that a CPU has
/// lost may have been anybody's who could have run there meanwhile: each of these has a gap.
pub fn subjects(rows: impl IntoIterator<Item = QuantumRow>, kind: SubjectKind, length: u64) -> Vec<Subject> {
    let mut by_subject: BTreeMap<(u32, Option<u32>), Vec<QuantumRow>> = BTreeMap::new();
    let mut losses = Losses::default();
    for row in rows {
        losses.see(&row);
        let tid = (kind == SubjectKind::Thread).then_some(row.tid);
        by_subject.entry((row.pid, tid)).or_default().push(row);
    }
    let lost = losses.spans();
    let subject = |((pid, tid), mut rows): ((u32, Option<u32>), Vec<QuantumRow>)| {
        rows.sort_by_key(|row| (row.start_tsc, row.end_tsc));
        let on_cpu = rows.iter().map(|row| row.end_tsc.saturating_sub(row.start_tsc)).sum();
        let slicer = if tid.is_some() { Slicer::for_thread(length) } else { Slicer::for_process(length) };
        Subject { pid, tid, on_cpu, intervals: slice(slicer, &rows, &lost, kind) }
    };
    let mut subjects: Vec<Subject> = by_subject.into_iter().map(subject).collect();
    subjects.sort_by_key(|subject| std::cmp::Reverse(subject.on_cpu));
    subjects
}

fn slice(
    mut slicer: Slicer,
    rows: &[QuantumRow],
    lost: &LostSpans,
    kind: SubjectKind,
) -> Result<Vec<Interval>, Disorder> {
    let mut before: Option<&QuantumRow> = None;
    let stay = |row| {
        let lost_before = before.replace(row).is_some_and(|before| match kind {
            // It is on one CPU at a time.
            SubjectKind::Thread => lost.overlap(before.end_tsc, row.start_tsc),
            // Other threads may have run while these did.
            SubjectKind::Process => lost.overlap(before.start_tsc, row.end_tsc),
        });
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

    /// CPU 1 loses quanta between 200 and 300; nobody knows whose.
    #[test]
    fn lost_quanta_are_a_gap_of_whoever_could_have_run() {
        let on = |cpu, sequence, row: QuantumRow| QuantumRow { cpu, sequence, ..row };
        let mut rows: Vec<QuantumRow> = (0..5).map(|n| on(0, n, row(7, n * 100, n * 100 + 100, 1))).collect();
        rows.extend([on(1, 0, row(8, 0, 100, 1)), on(1, 1, row(9, 100, 200, 1))]);
        let flags = hpm_abi::QuantumFlags::QUANTA_LOST_BEFORE;
        rows.extend([QuantumRow { flags, ..on(1, 4, row(9, 300, 400, 1)) }, on(1, 5, row(8, 400, 500, 1))]);
        let gaps = |subject: &Subject| -> Vec<bool> {
            subject.intervals.as_ref().unwrap().iter().map(|interval| interval.after_gap).collect()
        };
        let mut threads = subjects(rows.clone(), SubjectKind::Thread, 100);
        threads.sort_by_key(|thread| thread.tid);
        // Thread 7 ran on CPU 0 all the time; thread 8 may have run on CPU 1, although the loss is told by a quantum of thread 9.
        assert_eq!(gaps(&threads[0]), [true, false, false, false, false]);
        assert_eq!((gaps(&threads[1]), gaps(&threads[2])), (vec![true, true], vec![true, true]));
        // Of the process something is missing beside thread 7's third quantum.
        let process = &subjects(rows, SubjectKind::Process, 100)[0];
        let intervals = process.intervals.as_ref().unwrap();
        let places: Vec<u64> =
            intervals.iter().filter(|interval| interval.after_gap).map(|interval| interval.start).collect();
        assert_eq!(places, [0, 200, 300]);
    }

    #[test]
    fn quanta_of_one_thread_that_overlap_are_told() {
        let rows = [row(7, 0, 100, 1), row(7, 60, 160, 1)];
        let threads = subjects(rows, SubjectKind::Thread, 100);
        assert_eq!(threads[0].intervals, Err(Disorder::Overlap { start: 60, before: 100 }));
    }
}
