//! Where threads were while they were not on a CPU: the time between a thread's quanta, and what it waited for.

use std::collections::HashMap;
use std::ops::Range;

use hpm_abi::QuantumEnd;
use serde::Serialize;

use super::lost::{Losses, LostSpans};
use crate::trace::QuantumRow;

/// Why a thread was off its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitKind {
    /// It blocked or yielded: it waited for something.
    Blocked,
    /// It was pre-empted: it could have run, and waited for a CPU.
    Preempted,
    /// The trace does not tell: quanta were lost meanwhile, or the last one ended while the thread ran on.
    Unknown,
}

/// One stay of a thread off every CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Thread-group ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// CPU that it left.
    pub cpu: u32,
    /// `sequence` of the quantum that ended with it, on that CPU.
    pub quantum: u64,
    /// TSC at the start.
    pub start_tsc: u64,
    /// TSC at the end.
    pub end_tsc: u64,
    /// Why.
    pub kind: WaitKind,
    /// User instruction pointer at the start.
    pub last_ip: Option<u64>,
}

impl Wait {
    /// How long it was, in TSC ticks.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.end_tsc - self.start_tsc
    }
}

/// What became of a thread's time, in TSC ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// On a CPU: the sum of its quanta.
    pub on_cpu: u64,
    /// Blocked.
    pub blocked: u64,
    /// Pre-empted.
    pub preempted: u64,
    /// Not told.
    pub unknown: u64,
}

impl Times {
    /// From the thread's first quantum to its end, or to the trace's.
    #[must_use]
    pub fn wall_clock(self) -> u64 {
        self.on_cpu.saturating_add(self.blocked).saturating_add(self.preempted).saturating_add(self.unknown)
    }

    fn add(&mut self, kind: WaitKind, ticks: u64) {
        let sum = match kind {
            WaitKind::Blocked => &mut self.blocked,
            WaitKind::Preempted => &mut self.preempted,
            WaitKind::Unknown => &mut self.unknown,
        };
        *sum = sum.saturating_add(ticks);
    }
}

/// One thread through time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadTimes {
    /// Thread-group ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// When it exited; without end for one that did not. A later thread of the same IDs is another one.
    #[serde(skip)]
    pub until_tsc: u64,
    /// Stays on a CPU; those that were cut by a timer or a reader count as one.
    pub stays: u64,
    /// Stays that began on another CPU than the one before.
    pub migrations: u64,
    /// What became of its time.
    pub times: Times,
}

/// The waits of all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Those of each thread in the order of time.
    pub waits: Vec<Wait>,
    /// The threads, the one with the longest wall-clock time first.
    pub threads: Vec<ThreadTimes>,
}

impl Waits {
    /// From all quanta of a trace, in any order; of times outside `range` nothing is counted. A thread whose last quantum ends with
    /// a wait waits until the last quantum of the trace ends.
    #[must_use]
    pub fn new(quanta: impl IntoIterator<Item = QuantumRow>, range: Range<u64>) -> Self {
        Self::of(quanta, range, |_| true)
    }

    /// As [`Waits::new`], of chosen quanta and the waits after them. The others still tell when a wait ends, and what was lost.
    #[must_use]
    pub fn of(
        quanta: impl IntoIterator<Item = QuantumRow>,
        range: Range<u64>,
        chosen: impl Fn(&QuantumRow) -> bool,
    ) -> Self {
        let mut threads: HashMap<(u32, u32), Vec<QuantumRow>> = HashMap::new();
        let mut losses = Losses::default();
        let mut last_tsc = 0;
        for mut row in quanta {
            last_tsc = last_tsc.max(row.end_tsc);
            losses.see(&row);
            // They are of no use here, and many.
            (row.counts, row.periods) = (Vec::new(), Vec::new());
            threads.entry((row.pid, row.tid)).or_default().push(row);
        }
        let context = Context { lost: losses.spans(), last_tsc, range };
        let mut all = Self::default();
        for mut rows in threads.into_values() {
            rows.sort_unstable_by_key(|row| (row.start_tsc, row.sequence));
            // IDs are used again: what follows a thread's exit is another one.
            for rows in rows.split_inclusive(exits) {
                all.threads.extend(context.thread(rows, &chosen, &mut all.waits));
            }
        }
        all.threads.sort_unstable_by_key(|thread| {
            (std::cmp::Reverse(thread.times.wall_clock()), thread.tid, thread.until_tsc)
        });
        all.waits.sort_unstable_by_key(|wait| (wait.tid, wait.start_tsc));
        all
    }
}

/// What every thread's waits depend on.
struct Context {
    lost: LostSpans,
    last_tsc: u64,
    range: Range<u64>,
}

impl Context {
    /// A thread from its quanta in the order of time; `None` when all of it is outside the range, or not chosen.
    fn thread(
        &self,
        rows: &[QuantumRow],
        chosen: impl Fn(&QuantumRow) -> bool,
        waits: &mut Vec<Wait>,
    ) -> Option<ThreadTimes> {
        let QuantumRow { pid, tid, .. } = *rows.first()?;
        let until_tsc = rows.last().filter(|row| exits(row)).map_or(u64::MAX, |row| row.end_tsc);
        let mut thread =
            ThreadTimes { pid, tid, until_tsc, stays: 0, migrations: 0, times: Times::default() };
        let mut before: Option<&QuantumRow> = None;
        for row in rows {
            let is_chosen = chosen(row);
            let (start, end) = self.clip(row.start_tsc, row.end_tsc);
            if is_chosen {
                thread.times.on_cpu += end - start;
            }
            if let Some(before) = before.filter(|before| chosen(before)) {
                thread.add(self.wait(before, row.start_tsc), waits);
            }
            if is_chosen && self.range.contains(&row.start_tsc) && !before.is_some_and(ran_on) {
                thread.stays += 1;
                thread.migrations += u64::from(before.is_some_and(|before| before.cpu != row.cpu));
            }
            before = Some(row);
        }
        let last = rows.last().filter(|row| waits_after(row) && chosen(row));
        thread.add(last.and_then(|last| self.wait(last, self.last_tsc)), waits);
        (thread.times.wall_clock() > 0).then_some(thread)
    }

    fn clip(&self, start: u64, end: u64) -> (u64, u64) {
        let start = start.max(self.range.start);
        (start, end.min(self.range.end).max(start))
    }

    /// The wait from the end of a quantum to a later time.
    fn wait(&self, before: &QuantumRow, until: u64) -> Option<Wait> {
        let (start_tsc, end_tsc) = self.clip(before.end_tsc, until);
        let is_lost = self.lost.overlap(before.end_tsc, until);
        let kind = match QuantumEnd::from_number(before.end.into()) {
            _ if is_lost => WaitKind::Unknown,
            Some(QuantumEnd::Yielded) => WaitKind::Blocked,
            Some(QuantumEnd::Preempted) => WaitKind::Preempted,
            _ => WaitKind::Unknown,
        };
        (start_tsc < end_tsc).then_some(Wait {
            pid: before.pid,
            tid: before.tid,
            cpu: before.cpu,
            quantum: before.sequence,
            start_tsc,
            end_tsc,
            kind,
            last_ip: before.last_ip,
        })
    }
}

impl ThreadTimes {
    fn add(&mut self, wait: Option<Wait>, waits: &mut Vec<Wait>) {
        if let Some(wait) = wait {
            self.times.add(wait.kind, wait.ticks());
            waits.push(wait);
        }
    }
}

fn ran_on(row: &QuantumRow) -> bool {
    !waits_after(row) && !exits(row)
}

fn exits(row: &QuantumRow) -> bool {
    row.end == QuantumEnd::Exit as u8
}

fn waits_after(row: &QuantumRow) -> bool {
    matches!(QuantumEnd::from_number(row.end.into()), Some(QuantumEnd::Yielded | QuantumEnd::Preempted))
}

#[cfg(test)]
mod tests {
    use hpm_abi::QuantumFlags;
    use proptest::prelude::*;

    use super::*;

    fn quantum(
        cpu: u32,
        sequence: u64,
        tid: u32,
        (start_tsc, end_tsc): (u64, u64),
        end: QuantumEnd,
    ) -> QuantumRow {
        let (end, last_ip) = (end as u8, Some(start_tsc));
        QuantumRow { cpu, sequence, pid: 1, tid, start_tsc, end_tsc, end, last_ip, ..QuantumRow::default() }
    }

    /// Thread 2 blocks, migrates and is pre-empted until the end; thread 3 is cut by a timer and exits.
    fn rows() -> Vec<QuantumRow> {
        vec![
            quantum(0, 0, 2, (100, 200), QuantumEnd::Yielded),
            quantum(0, 1, 3, (200, 300), QuantumEnd::Timer),
            quantum(0, 2, 3, (300, 350), QuantumEnd::Exit),
            quantum(1, 0, 2, (450, 500), QuantumEnd::Preempted),
            quantum(1, 1, 4, (500, 700), QuantumEnd::Flush),
        ]
    }

    fn of(rows: Vec<QuantumRow>, range: Range<u64>, tid: u32) -> ThreadTimes {
        *Waits::new(rows, range).threads.iter().find(|thread| thread.tid == tid).unwrap()
    }

    #[test]
    fn every_tick_of_a_thread_is_accounted_for() {
        let two = of(rows(), 0..u64::MAX, 2);
        assert_eq!(two.times, Times { on_cpu: 150, blocked: 250, preempted: 200, unknown: 0 });
        assert_eq!((two.stays, two.migrations, two.times.wall_clock()), (2, 1, 600));
        let three = of(rows(), 0..u64::MAX, 3);
        assert_eq!((three.times, three.stays), (Times { on_cpu: 150, ..Times::default() }, 1));
        let waits = Waits::new(rows(), 0..u64::MAX).waits;
        let seen: Vec<_> =
            waits.iter().map(|wait| (wait.tid, wait.kind, wait.ticks(), wait.last_ip)).collect();
        assert_eq!(seen, [(2, WaitKind::Blocked, 250, Some(100)), (2, WaitKind::Preempted, 200, Some(450))]);
    }

    #[test]
    fn times_outside_the_range_do_not_count() {
        let two = of(rows(), 150..480, 2);
        assert_eq!(two.times, Times { on_cpu: 80, blocked: 250, preempted: 0, unknown: 0 });
        assert!(Waits::new(rows(), 0..50).threads.is_empty());
    }

    #[test]
    fn a_wait_is_of_the_quantum_before_it() {
        let on = |cpu| move |row: &QuantumRow| row.cpu == cpu;
        let first = Waits::of(rows(), 0..u64::MAX, on(0));
        let two = first.threads.iter().find(|thread| thread.tid == 2).unwrap();
        assert_eq!(two.times, Times { on_cpu: 100, blocked: 250, preempted: 0, unknown: 0 });
        assert_eq!((two.stays, two.migrations, first.threads.len()), (1, 0, 2));
        let second = Waits::of(rows(), 0..u64::MAX, on(1));
        let two = second.threads.iter().find(|thread| thread.tid == 2).unwrap();
        assert_eq!(two.times, Times { on_cpu: 50, blocked: 0, preempted: 200, unknown: 0 });
        assert_eq!((two.stays, two.migrations), (1, 1));
        assert_eq!(Waits::of(rows(), 0..u64::MAX, |_| false), Waits::default());
    }

    #[test]
    fn a_wait_during_which_quanta_were_lost_is_not_told() {
        let mut lossy = rows();
        // Between 350 and 800 CPU 0 lost a quantum, which may have been anybody's.
        lossy.push(quantum(0, 4, 5, (800, 900), QuantumEnd::Flush));
        let two = of(lossy, 0..u64::MAX, 2);
        assert_eq!(two.times, Times { on_cpu: 150, blocked: 0, preempted: 0, unknown: 650 });
        let mut flagged = rows();
        flagged[3].flags = QuantumFlags::QUANTA_LOST_BEFORE;
        assert_eq!(of(flagged, 0..u64::MAX, 2).times.unknown, 250, "lost before CPU 1's first quantum");
    }

    #[test]
    fn a_thread_that_ran_on_and_was_not_seen_again_is_not_said_to_have_waited() {
        let gap =
            vec![quantum(0, 0, 2, (0, 10), QuantumEnd::Pmi), quantum(0, 1, 2, (15, 20), QuantumEnd::Flush)];
        assert_eq!(of(gap, 0..u64::MAX, 2).times, Times { on_cpu: 15, unknown: 5, ..Times::default() });
    }

    /// IDs are used again.
    #[test]
    fn an_exit_ends_a_thread() {
        let rows = vec![
            quantum(0, 0, 2, (0, 10), QuantumEnd::Exit),
            quantum(1, 0, 2, (500, 520), QuantumEnd::Yielded),
            quantum(1, 1, 2, (530, 540), QuantumEnd::Exit),
        ];
        let found = Waits::new(rows, 0..u64::MAX);
        let seen: Vec<_> =
            found.threads.iter().map(|thread| (thread.until_tsc, thread.times, thread.migrations)).collect();
        let times = |on_cpu, blocked| Times { on_cpu, blocked, ..Times::default() };
        assert_eq!(seen, [(540, times(30, 10), 0), (10, times(10, 0), 0)]);
        assert_eq!(found.waits.len(), 1, "nobody waited from one thread to the next");
    }

    proptest! {
        /// Whatever the quanta, a thread's times add up to its wall-clock time, and its waits to what they say.
        #[test]
        fn times_add_up(lengths in prop::collection::vec((1_u64..100, 0_u64..50, 1_u8..6, 0_u32..2), 1..60)) {
            let (mut now, mut sequences, mut rows, mut nobody) = (0, [0, 0], Vec::new(), 0);
            for (length, gap, end, cpu) in lengths {
                let sequence = &mut sequences[cpu as usize];
                let mut row = quantum(cpu, *sequence, 2, (now, now + length), QuantumEnd::Yielded);
                row.end = end;
                *sequence += 1;
                now += length + gap;
                nobody += if exits(&row) { gap } else { 0 };
                rows.push(row);
            }
            let last = rows.last().unwrap();
            let all = last.end_tsc - nobody + if exits(last) { now - last.end_tsc } else { 0 };
            let found = Waits::new(rows, 0..u64::MAX);
            let sum = |of: fn(Times) -> u64| found.threads.iter().map(|thread| of(thread.times)).sum::<u64>();
            prop_assert_eq!(sum(Times::wall_clock), all);
            let waited: u64 = found.waits.iter().map(Wait::ticks).sum();
            prop_assert_eq!(waited + sum(|times| times.on_cpu), all);
        }
    }
}
