//! Counts of each thread, or on each CPU: the sums of their quanta.

use std::collections::{BTreeMap, HashMap};

use libhpm::analysis::explore::QuantumEnd;
use libhpm::source::{InTurn, Sink};
use libhpm::trace::{QuantumRow, ThreadRow, Totals, TraceError, running_tsc};
use serde::Serialize;

/// Whose counts are shown apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Per {
    Thread,
    Cpu,
}

/// Whose counts they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Who {
    Thread {
        pid: u32,
        tid: u32,
        thread: String,
        /// How many threads of the same IDs have exited before it.
        #[serde(skip)]
        earlier: usize,
    },
    Cpu {
        cpu: u32,
    },
}

impl Who {
    /// Names of the columns that [`Who::cells`] fills.
    pub(super) fn columns(&self) -> Vec<String> {
        match self {
            Self::Thread { .. } => ["pid", "tid", "thread"].map(str::to_owned).into(),
            Self::Cpu { .. } => vec!["CPU".to_owned()],
        }
    }

    pub(super) fn cells(&self) -> Vec<String> {
        match self {
            Self::Thread { pid, tid, thread, .. } => vec![pid.to_string(), tid.to_string(), thread.clone()],
            Self::Cpu { cpu } => vec![cpu.to_string()],
        }
    }
}

/// Sums quanta by thread or CPU.
pub(super) struct Breakdown {
    per: Option<Per>,
    /// By PID, TID and how many threads have had these before; or by CPU, 0 and 0.
    sums: BTreeMap<(u32, u32, usize), Sums>,
    /// Names by TID, and since when.
    names: HashMap<u32, Vec<(u64, String)>>,
    /// When threads of a PID and TID exited: IDs are used again.
    exits: HashMap<(u32, u32), Vec<u64>>,
}

impl Breakdown {
    pub(super) fn new(per: Option<Per>) -> Self {
        Self { per, sums: BTreeMap::new(), names: HashMap::new(), exits: HashMap::new() }
    }

    /// The sums since the last call, in the order of IDs or CPUs.
    pub(super) fn take(&mut self) -> Vec<(Who, Totals)> {
        let sums = std::mem::take(&mut self.sums);
        let name = |pid, tid, earlier| {
            let exit = self.exits.get(&(pid, tid)).and_then(|exits| exits.get(earlier)).copied();
            let names = self.names.get(&tid).map_or(&[][..], Vec::as_slice);
            let last = names.iter().rfind(|(since, _)| *since < exit.unwrap_or(u64::MAX));
            last.or(names.first()).map_or_else(String::new, |(_, name)| name.clone())
        };
        let who = |(first, second, earlier): (u32, u32, usize)| match self.per {
            Some(Per::Cpu) => Who::Cpu { cpu: first },
            _ => Who::Thread { pid: first, tid: second, thread: name(first, second, earlier), earlier },
        };
        sums.into_iter().map(|(key, sum)| (who(key), sum.finish())).collect()
    }

    /// How many threads of the same IDs have exited before this quantum's; its own exit is noted.
    fn earlier(&mut self, row: &QuantumRow) -> usize {
        let exits = self.exits.entry((row.pid, row.tid)).or_default();
        let earlier = exits.iter().filter(|exit| **exit <= row.start_tsc).count();
        if row.end == QuantumEnd::Exit as u8 {
            exits.push(row.end_tsc);
        }
        earlier
    }

    /// The sums that a quantum goes to.
    fn sums_of(&mut self, row: &QuantumRow) -> Option<&mut Sums> {
        let key = match self.per? {
            Per::Thread => (row.pid, row.tid, self.earlier(row)),
            Per::Cpu => (row.cpu, 0, 0),
        };
        Some(self.sums.entry(key).or_default())
    }
}

/// The sums of one thread's quanta, or of those on one CPU. Either all of them are added with their turns, or none.
#[derive(Default)]
struct Sums {
    totals: Totals,
    /// For each event the TSC ticks in which nothing of it was missed, and of these the ones in which it could not occur.
    times: Vec<(u64, u64)>,
}

impl Sums {
    fn add_in_turn(&mut self, row: &QuantumRow, turn: InTurn) {
        self.totals.add_quantum(row);
        self.times.resize(self.totals.counts.len(), (0, 0));
        let length = row.end_tsc.saturating_sub(row.start_tsc);
        for (event, (complete, absent)) in self.times.iter_mut().enumerate() {
            *complete += if turn.active >> event & 1 == 1 { length } else { 0 };
            *absent += if turn.absent >> event & 1 == 1 { length } else { 0 };
        }
    }

    fn finish(mut self) -> Totals {
        let times = self.times.iter();
        self.totals.running_tsc =
            times.map(|&(complete, absent)| running_tsc(self.totals.on_cpu_tsc, complete, absent)).collect();
        self.totals
    }
}

impl Sink for Breakdown {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        if let Some(sums) = self.sums_of(row) {
            sums.totals.add_quantum(row);
        }
        Ok(())
    }

    fn quantum_in_turns(&mut self, row: &QuantumRow, turn: InTurn) -> Result<(), TraceError> {
        if let Some(sums) = self.sums_of(row) {
            sums.add_in_turn(row, turn);
        }
        Ok(())
    }

    fn waited(&mut self, row: &QuantumRow, turn: InTurn) -> Result<(), TraceError> {
        self.quantum_in_turns(row, turn)
    }

    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        if !row.name.is_empty() && self.per == Some(Per::Thread) {
            self.names.entry(row.tid).or_default().push((row.tsc, row.name.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use libhpm::trace::Event;

    use super::*;
    use crate::stat::event_counts;

    /// As the driver tells them: in one quantum of two, which is as long, the second event waited. The third one's cores are others than
    /// those of a third quantum, and it was on in one of the two on its own.
    #[test]
    fn a_part_tells_how_long_each_event_was_on() {
        let mut breakdown = Breakdown::new(Some(Per::Cpu));
        let mut quantum = |counts: [u64; 3], active, absent| {
            let counts = counts.into();
            let row = QuantumRow { start_tsc: 100, end_tsc: 110, counts, ..QuantumRow::default() };
            breakdown.quantum_in_turns(&row, InTurn { active, absent }).unwrap();
        };
        quantum([8, 4, 0], 0b011, 0);
        quantum([8, 0, 5], 0b101, 0);
        quantum([8, 4, 0], 0b111, 0b100);
        let (_, sums) = breakdown.take().remove(0);
        let events = [Event::default(), Event::default(), Event::default()];
        let counts = event_counts(&events, &sums, |ticks| ticks);
        let told = counts.iter().map(|event| (event.count, event.scaled, event.running_ns));
        assert_eq!(told.collect::<Vec<_>>(), [(24, Some(24), 30), (8, Some(12), 20), (5, Some(10), 15)]);
    }

    #[test]
    fn quanta_are_summed_by_thread_or_by_cpu() {
        let quantum = |cpu, tid, count| QuantumRow {
            cpu,
            pid: 7,
            tid,
            start_tsc: 100,
            end_tsc: 110,
            counts: vec![count, 1],
            ..QuantumRow::default()
        };
        let rows = [quantum(0, 7, 5), quantum(1, 8, 50), quantum(1, 7, 500)];
        let sums = |per| {
            let mut breakdown = Breakdown::new(Some(per));
            let name = ThreadRow { tid: 8, name: "worker".into(), ..ThreadRow::default() };
            breakdown.thread(&name).unwrap();
            rows.iter().for_each(|row| breakdown.quantum(row).unwrap());
            let sums: Vec<_> = breakdown
                .take()
                .into_iter()
                .map(|(who, sum)| (who.cells().join(" "), sum.counts, sum.on_cpu_tsc))
                .collect();
            assert!(breakdown.take().is_empty(), "an interval begins anew");
            sums
        };
        assert_eq!(
            sums(Per::Thread),
            [("7 7 ".to_owned(), vec![505, 2], 20), ("7 8 worker".to_owned(), vec![50, 1], 10)]
        );
        assert_eq!(sums(Per::Cpu), [("0".to_owned(), vec![5, 1], 10), ("1".to_owned(), vec![550, 2], 20)]);
    }

    /// IDs are used again: what comes after an exit is another thread.
    #[test]
    fn an_exit_ends_a_thread() {
        let mut breakdown = Breakdown::new(Some(Per::Thread));
        let mut lived = |name: &str, start_tsc, count| {
            let row = ThreadRow { tid: 7, tsc: start_tsc, name: name.into(), ..ThreadRow::default() };
            breakdown.thread(&row).unwrap();
            let (end_tsc, end, counts) = (start_tsc + 10, QuantumEnd::Exit as u8, vec![count]);
            let row = QuantumRow { pid: 7, tid: 7, start_tsc, end_tsc, end, counts, ..QuantumRow::default() };
            breakdown.quantum(&row).unwrap();
        };
        lived("old", 100, 3);
        lived("new", 110, 5);
        let parts = breakdown.take();
        let told: Vec<_> = parts.iter().map(|(who, sums)| (who.cells()[2].clone(), sums.counts[0])).collect();
        assert_eq!(told, [("old".to_owned(), 3), ("new".to_owned(), 5)]);
        assert_ne!(parts[0].0, parts[1].0);
    }
}
