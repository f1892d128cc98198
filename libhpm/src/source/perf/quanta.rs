//! Quanta from switches and samples: pure, so that it can be tested without a kernel.

use hpm_abi::QuantumEnd;

use super::record::{Switch, SwitchKind, Taken};
use crate::numbers::NumberMap;
use crate::trace::{Event, QuantumRow};

/// A quantum that samples or a reader can cut is cut after this long (10 ms, the quantum of Sweeney et al., section 3).
const MAX_QUANTUM_NS: u64 = 10_000_000;

/// Rows that are kept for quanta to come: about as many as are open at a time on a large machine.
const SPARE_MAX: usize = 256;

/// A quantum, which is large and moved about: as a pointer.
pub(in crate::source) type Row = Box<QuantumRow>;

/// What each event of the recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) struct Counted {
    /// It counts nanoseconds, which every quantum has as its length. Others are counted by their samples.
    pub(in crate::source) clock: bool,
    /// Its period; 0 where the kernel adapts it, and each sample has its own.
    pub(in crate::source) period: u64,
}

impl Counted {
    pub(in crate::source) fn new(event: &Event, clock: bool) -> Self {
        Self { clock, period: if event.rate == 0 { event.period } else { 0 } }
    }
}

/// The quantum of a sample.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::source) struct Placed {
    /// Its number on its CPU.
    pub(in crate::source) sequence: u64,
    /// It had not ended before the sample.
    pub(in crate::source) open: bool,
    /// It ends with the sample.
    pub(in crate::source) ended: Option<Row>,
}

/// What is known of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    OnCpu,
    OffCpu,
    /// Its exit was reported. Being pre-empted, it may be switched to after that; and it is switched away from at last, by which
    /// time it may have lost its number.
    Gone,
}

/// Builds quanta. Records must come in the order of time.
#[derive(Debug)]
pub(in crate::source) struct Quanta {
    events: Vec<Counted>,
    /// When measuring began: a thread that is seen first in the middle of its stay has been there since then.
    started_ns: u64,
    /// By thread.
    open: NumberMap<Row>,
    /// Threads of which a record was seen.
    seen: NumberMap<Seen>,
    /// CPU and number of each thread's last quantum that has ended.
    last: NumberMap<(u32, u64)>,
    /// Next number on each CPU.
    sequences: NumberMap<u64>,
    /// Rows that were handed over, for quanta to come: thousands are made each second.
    spare: Vec<Row>,
    /// Sum of the quanta that have ended.
    pub(in crate::source) on_cpu_ns: u64,
    /// How many have ended.
    pub(in crate::source) ended: u64,
}

impl Quanta {
    pub(in crate::source) fn new(events: Vec<Counted>, started_ns: u64) -> Self {
        Self {
            events,
            started_ns,
            open: NumberMap::default(),
            seen: NumberMap::default(),
            last: NumberMap::default(),
            sequences: NumberMap::default(),
            spare: Vec::new(),
            on_cpu_ns: 0,
            ended: 0,
        }
    }

    /// A thread began to run: it was switched to, or its program's first instruction comes now.
    pub(in crate::source) fn begin(&mut self, ns: u64, (cpu, pid, tid): (u32, u32, u32)) {
        if !self.open.contains_key(&tid) && tid != 0 {
            let row = self.opened(ns, cpu, pid, tid);
            self.open.insert(tid, row);
        }
        self.seen.insert(tid, Seen::OnCpu);
    }

    /// A switch; the quantum that it ends.
    pub(in crate::source) fn switch(&mut self, ns: u64, switch: &Switch) -> Option<Row> {
        let Switch { cpu, pid, tid, kind } = *switch;
        if self.seen.get(&tid) == Some(&Seen::Gone) {
            return None;
        }
        let end = match kind {
            SwitchKind::In => {
                // A quantum that is open still is one whose end the kernel had no room for: it ends here at the latest.
                let lost = self.end(ns, tid, QuantumEnd::Yielded);
                self.begin(ns, (cpu, pid, tid));
                return lost;
            }
            SwitchKind::Yielded => QuantumEnd::Yielded,
            SwitchKind::Preempted => QuantumEnd::Preempted,
        };
        self.begin_unseen((cpu, pid, tid));
        self.seen.insert(tid, Seen::OffCpu);
        self.end(ns, tid, end)
    }

    /// The thread's last quantum, when it ends with it.
    pub(in crate::source) fn exit(&mut self, ns: u64, tid: u32) -> Option<Row> {
        self.seen.insert(tid, Seen::Gone);
        self.end(ns, tid, QuantumEnd::Exit)
    }

    /// Measuring began only now: the program was executed.
    pub(in crate::source) fn started_at(&mut self, ns: u64) {
        self.started_ns = ns;
    }

    /// A new thread has not run since measuring began, whoever had its number before.
    pub(in crate::source) fn forked(&mut self, tid: u32) {
        self.seen.insert(tid, Seen::OffCpu);
        self.last.remove(&tid);
    }

    /// A thread that executes takes its process's number, whose first thread has exited for that.
    pub(in crate::source) fn executed(&mut self, tid: u32) {
        if let Some(seen @ Seen::Gone) = self.seen.get_mut(&tid) {
            *seen = Seen::OffCpu;
        }
    }

    /// Counts a sample of the event with this index.
    pub(in crate::source) fn sample(&mut self, ns: u64, event: usize, sample: &Taken) -> Placed {
        let place = (sample.cpu, sample.pid, sample.tid);
        self.begin_unseen(place);
        if !self.open.contains_key(&sample.tid) {
            return self.of_absent(ns, event, sample);
        }
        let sequence = self.count(event, sample);
        Placed { sequence, open: true, ended: self.cut_at(ns, sample.tid, QuantumEnd::Timer) }
    }

    /// A sample of a thread that is off was taken on its way out, such as one of the switch itself: it is of the thread's last
    /// quantum there. Others may have run since, and where it had none the sample gets one without length.
    fn of_absent(&mut self, ns: u64, event: usize, sample: &Taken) -> Placed {
        let Taken { cpu, pid, tid, .. } = *sample;
        match self.last.get(&tid) {
            Some(&(last_cpu, sequence)) if last_cpu == cpu => Placed { sequence, open: false, ended: None },
            _ => {
                let row = self.opened(ns, cpu, pid, tid);
                self.open.insert(tid, row);
                let sequence = self.count(event, sample);
                Placed { sequence, open: false, ended: self.end(ns, tid, QuantumEnd::Yielded) }
            }
        }
    }

    /// Counts a sample in its thread's quantum, which is open; the quantum's number.
    fn count(&mut self, event: usize, sample: &Taken) -> u64 {
        let Some(row) = self.open.get_mut(&sample.tid) else { return 0 };
        row.records += 1;
        row.last_ip = Some(sample.ip);
        if !self.events[event].clock {
            // A damaged file can have any period and any time.
            row.counts[event] = row.counts[event].saturating_add(sample.period);
        }
        row.sequence
    }

    /// Ends and goes on with every quantum that has lasted for long, for a reader.
    pub(in crate::source) fn flush(&mut self, ns: u64) -> Vec<Row> {
        let tids: Vec<u32> = self.open.keys().copied().collect();
        tids.into_iter().filter_map(|tid| self.cut_at(ns, tid, QuantumEnd::Flush)).collect()
    }

    /// Ends every quantum, when measuring has.
    pub(in crate::source) fn stop(&mut self, ns: u64) -> Vec<Row> {
        let tids: Vec<u32> = self.open.keys().copied().collect();
        tids.into_iter().filter_map(|tid| self.end(ns, tid, QuantumEnd::Flush)).collect()
    }

    /// A thread that no record was seen of was switched to before measuring began.
    fn begin_unseen(&mut self, (cpu, pid, tid): (u32, u32, u32)) {
        if !self.seen.contains_key(&tid) {
            self.begin(self.started_ns, (cpu, pid, tid));
        }
    }

    fn opened(&mut self, ns: u64, cpu: u32, pid: u32, tid: u32) -> Row {
        let next = self.sequences.entry(cpu).or_default();
        let sequence = *next;
        *next += 1;
        let mut row = self.spare.pop().unwrap_or_default();
        let (mut counts, mut periods) = (std::mem::take(&mut row.counts), std::mem::take(&mut row.periods));
        counts.clear();
        counts.resize(self.events.len(), 0);
        periods.clear();
        periods.extend(self.events.iter().map(|event| event.period));
        *row =
            QuantumRow { sequence, cpu, pid, tid, start_tsc: ns, counts, periods, ..QuantumRow::default() };
        row
    }

    /// Takes a row back that was handed over.
    pub(in crate::source) fn give_back(&mut self, row: Row) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(row);
        }
    }

    /// Ends a quantum that has lasted for long; the thread runs on in a new one.
    fn cut_at(&mut self, ns: u64, tid: u32, end: QuantumEnd) -> Option<Row> {
        let row = self.open.get(&tid)?;
        if ns.saturating_sub(row.start_tsc) < MAX_QUANTUM_NS {
            return None;
        }
        let (cpu, pid) = (row.cpu, row.pid);
        let ended = self.end(ns, tid, end);
        self.begin(ns, (cpu, pid, tid));
        ended
    }

    fn end(&mut self, ns: u64, tid: u32, end: QuantumEnd) -> Option<Row> {
        let mut row = self.open.remove(&tid)?;
        row.end_tsc = ns.max(row.start_tsc);
        row.end = end as u8;
        self.last.insert(tid, (row.cpu, row.sequence));
        let length = row.end_tsc - row.start_tsc;
        for (count, event) in row.counts.iter_mut().zip(&self.events) {
            if event.clock {
                *count = length;
            }
        }
        self.on_cpu_ns = self.on_cpu_ns.saturating_add(length);
        self.ended += 1;
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const OPEN: Placed = Placed { sequence: 0, open: true, ended: None };

    fn quanta() -> Quanta {
        Quanta::new(vec![Counted { clock: true, period: MS }, Counted { clock: false, period: 1 }], 100)
    }

    fn switch(tid: u32, kind: SwitchKind) -> Switch {
        Switch { cpu: 1, pid: 5, tid, kind }
    }

    fn fault(tid: u32) -> Taken {
        Taken { cpu: 1, pid: 5, tid, ip: 0x10, period: 1, ..Taken::default() }
    }

    #[test]
    fn a_stay_has_its_length_and_its_samples() {
        let mut quanta = quanta();
        assert_eq!(quanta.switch(200, &switch(6, SwitchKind::In)), None);
        assert_eq!(quanta.sample(300, 1, &fault(6)), OPEN);
        assert_eq!(quanta.sample(400, 1, &fault(6)), OPEN);
        let row = quanta.switch(700, &switch(6, SwitchKind::Preempted)).unwrap();
        assert_eq!((row.start_tsc, row.end_tsc, row.end), (200, 700, QuantumEnd::Preempted as u8));
        assert_eq!(
            (row.counts, row.periods, row.records, row.last_ip),
            (vec![500, 2], vec![MS, 1], 2, Some(0x10))
        );
        assert_eq!((row.cpu, row.pid, row.tid, row.sequence), (1, 5, 6, 0));
        quanta.switch(900, &switch(6, SwitchKind::In));
        assert_eq!(quanta.exit(950, 6).unwrap().sequence, 1);
        assert_eq!((quanta.on_cpu_ns, quanta.ended), (550, 2));
    }

    #[test]
    fn a_thread_that_ran_before_has_run_since_the_start() {
        let mut quanta = quanta();
        assert_eq!(quanta.switch(700, &switch(6, SwitchKind::Yielded)).unwrap().start_tsc, 100);
        // It is off: the sample of its own switch opens nothing.
        assert_eq!(quanta.sample(701, 1, &fault(6)), Placed { open: false, ..OPEN });
        assert!(quanta.stop(800).is_empty());
    }

    #[test]
    fn a_sample_of_a_thread_that_is_off_is_of_its_own_last_quantum() {
        let mut quanta = quanta();
        quanta.switch(200, &switch(6, SwitchKind::In));
        assert_eq!(quanta.exit(300, 6).unwrap().sequence, 0);
        // It runs on in the kernel, and is pre-empted there.
        quanta.switch(310, &switch(7, SwitchKind::In));
        assert_eq!(quanta.switch(320, &switch(7, SwitchKind::Yielded)).unwrap().sequence, 1);
        assert_eq!(quanta.sample(330, 0, &fault(6)), Placed { sequence: 0, open: false, ended: None });
        // On another CPU it had none.
        let elsewhere = quanta.sample(340, 1, &Taken { cpu: 2, ..fault(6) });
        let row = elsewhere.ended.unwrap();
        assert!(!elsewhere.open && elsewhere.sequence == row.sequence);
        assert_eq!((row.cpu, row.tid, row.start_tsc, row.end_tsc, row.counts[1]), (2, 6, 340, 340, 1));
        assert!(quanta.stop(400).is_empty());
    }

    #[test]
    fn long_stays_are_cut_by_samples_and_by_readers() {
        let mut quanta = quanta();
        quanta.begin(0, (0, 5, 6));
        let cut = quanta.sample(12 * MS, 0, &Taken { cpu: 0, ..fault(6) }).ended;
        assert_eq!(cut.map(|row| (row.end_tsc, row.end)), Some((12 * MS, QuantumEnd::Timer as u8)));
        assert!(quanta.flush(13 * MS).is_empty(), "it is too short yet");
        let cut = quanta.flush(30 * MS);
        assert_eq!(
            cut.iter().map(|row| (row.start_tsc, row.counts[0])).collect::<Vec<_>>(),
            [(12 * MS, 18 * MS)]
        );
        assert_eq!(quanta.stop(31 * MS)[0].start_tsc, 30 * MS);
        assert_eq!(quanta.on_cpu_ns, 31 * MS);
    }

    #[test]
    fn a_lost_switch_away_ends_where_the_thread_is_seen_again() {
        let mut quanta = quanta();
        quanta.switch(200, &switch(6, SwitchKind::In));
        let ended = quanta.switch(500, &switch(6, SwitchKind::In)).unwrap();
        assert_eq!((ended.start_tsc, ended.end_tsc), (200, 500));
    }

    #[test]
    fn a_thread_that_has_exited_runs_no_more_until_its_number_is_given_again() {
        let mut quanta = quanta();
        quanta.switch(200, &switch(6, SwitchKind::In));
        assert_eq!(quanta.exit(300, 6).unwrap().end, QuantumEnd::Exit as u8);
        assert_eq!(quanta.switch(310, &switch(6, SwitchKind::Preempted)), None);
        assert_eq!(quanta.switch(320, &switch(6, SwitchKind::In)), None);
        assert!(!quanta.sample(330, 1, &fault(6)).open && quanta.flush(90 * MS).is_empty());
        quanta.forked(6);
        quanta.switch(100 * MS, &switch(6, SwitchKind::In));
        assert_eq!(quanta.switch(101 * MS, &switch(6, SwitchKind::Yielded)).unwrap().counts[0], MS);
    }

    #[test]
    fn times_and_periods_that_no_machine_has_are_no_overflow() {
        let mut quanta = quanta();
        for tid in [6, 7] {
            quanta.begin(0, (0, 5, tid));
            quanta.sample(1, 1, &Taken { period: u64::MAX, ..fault(tid) });
            quanta.sample(1, 1, &Taken { period: u64::MAX, ..fault(tid) });
        }
        let rows = quanta.stop(u64::MAX);
        assert_eq!(rows.iter().map(|row| row.counts[1]).collect::<Vec<_>>(), [u64::MAX; 2]);
        assert_eq!(quanta.on_cpu_ns, u64::MAX);
    }

    #[test]
    fn the_idle_thread_has_no_quanta() {
        let mut quanta = quanta();
        assert_eq!(quanta.switch(200, &switch(0, SwitchKind::In)), None);
        assert_eq!(quanta.switch(300, &switch(0, SwitchKind::Yielded)), None);
    }
}
