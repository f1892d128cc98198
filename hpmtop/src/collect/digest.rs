//! From rows of a source to batches for the model.

use libhpm::analysis::explore::QuantumEnd;
use libhpm::numbers::NumberSet;
use libhpm::source::{InTurn, Sink};
use libhpm::trace::{MapRow, MarkerRow, QuantumRow, SampleRow, ThreadChange, ThreadRow, TraceError};

use super::phases::Tracker;
use super::recorder::Recorder;
use crate::model::{Batch, EVENTS, Marker, Quantum, ThreadNews};
use crate::symbols::Naming;

/// A batch this long is handed on before it grows further.
pub(crate) const FULL: usize = 20_000;

/// Takes rows of a source, and gives each to whoever wants it: the next batch, the thread that names functions, the phase
/// detectors, a recording.
pub(crate) struct Digest {
    pub(crate) batch: Batch,
    /// TSC of time 0, once something was seen.
    first_tsc: Option<u64>,
    tsc_khz: u64,
    /// Processes that `/proc` has yet to be asked about.
    pub(crate) unknown: Vec<u32>,
    seen: NumberSet,
    pub(crate) phases: Tracker,
    pub(crate) naming: Naming,
    pub(crate) recorder: Recorder,
    /// Of a control group: the processes in it. Nothing is told of the others, though the kernel reports them.
    members: Option<NumberSet>,
}

impl Digest {
    pub(crate) fn new(tsc_khz: u64, phases: Tracker, naming: Naming, recorder: Recorder) -> Self {
        Self {
            batch: Batch::default(),
            first_tsc: None,
            tsc_khz: tsc_khz.max(1),
            unknown: Vec::new(),
            seen: NumberSet::default(),
            phases,
            naming,
            recorder,
            members: None,
        }
    }

    /// Tells of these processes only, of those that they fork, and of those that are measured.
    pub(crate) fn only(self, members: NumberSet) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Lets time 0 be this.
    pub(crate) fn begin(&mut self, tsc: u64) {
        self.first_tsc = Some(tsc);
    }

    /// Begins anew, for a replay that goes back.
    pub(crate) fn reset(&mut self) {
        self.batch = Batch { reset: true, ..Batch::default() };
        self.phases.reset();
    }

    /// A time in ns since the beginning; what happened before that was at its beginning.
    pub(crate) fn ns(&self, tsc: u64) -> u64 {
        let ticks = tsc.saturating_sub(self.first_tsc.unwrap_or(tsc));
        match ticks.checked_mul(1_000_000) {
            // Of an hour and more at some GHz: a division of 128 bits is slow.
            None => (u128::from(ticks) * 1_000_000 / u128::from(self.tsc_khz)) as u64,
            Some(product) => product / self.tsc_khz,
        }
    }

    /// The TSC at so many ns since the beginning.
    pub(crate) fn tsc(&self, ns: u64) -> u64 {
        let ticks = u128::from(ns) * u128::from(self.tsc_khz) / 1_000_000;
        self.first_tsc.unwrap_or(0).saturating_add(ticks as u64)
    }

    /// What has come since the last time; the next batch has room for as much, so that it is not moved while it grows.
    pub(crate) fn take_batch(&mut self) -> Batch {
        let quanta = Vec::with_capacity(self.batch.quanta.len());
        std::mem::replace(&mut self.batch, Batch { quanta, ..Batch::default() })
    }

    /// Whether it should be handed on.
    pub(crate) fn is_full(&self) -> bool {
        self.batch.quanta.len() + self.batch.threads.len() >= FULL
    }

    /// Whether a change in a thread's life is to be told.
    fn is_told(&mut self, row: &ThreadRow) -> bool {
        let Some(members) = &mut self.members else { return true };
        members.contains(&row.pid)
            || row.parent_pid.is_some_and(|parent| members.contains(&parent) && members.insert(row.pid))
    }

    /// A process was measured; one that has joined the control group is told of with its threads.
    fn measured(&mut self, pid: u32) {
        self.process(pid);
        if self.members.as_mut().is_some_and(|members| members.insert(pid)) {
            let threads = self.recorder.present().threads().filter(|row| row.pid == pid);
            let news = threads.map(|row| ThreadNews {
                ns: 0,
                pid,
                tid: row.tid,
                parent: None,
                name: row.name.clone(),
                ended: false,
            });
            self.batch.threads.extend(news);
        }
    }

    /// A thread was on a CPU.
    fn stay(&mut self, row: &QuantumRow) {
        self.measured(row.pid);
        let mut counts = [0; EVENTS];
        for (kept, count) in counts.iter_mut().zip(&row.counts) {
            *kept = *count;
        }
        let (start_ns, end_ns) = (self.ns(row.start_tsc), self.ns(row.end_tsc));
        self.batch.now_ns = self.batch.now_ns.max(end_ns);
        self.batch.quanta.push(Quantum {
            start_ns: start_ns.min(end_ns),
            end_ns,
            cpu: row.cpu,
            pid: row.pid,
            tid: row.tid,
            end: QuantumEnd::from_number(row.end.into()),
            samples: row.records,
            last_ip: row.last_ip,
            lost: row.records_lost,
            counts,
        });
    }

    /// Tells of a change in a thread's life.
    fn tell(&mut self, row: &ThreadRow) {
        let what = ThreadChange::from_number(row.what);
        match what {
            // Another program: its command line is another one.
            Some(ThreadChange::Exec) => self.unknown.push(row.pid),
            _ => self.process(row.pid),
        }
        let ended = what == Some(ThreadChange::Exit);
        if ended && row.pid == row.tid {
            self.seen.remove(&row.pid);
        }
        let (ns, parent, name) = (self.ns(row.tsc), row.parent_pid, row.name.clone());
        self.batch.threads.push(ThreadNews { ns, pid: row.pid, tid: row.tid, parent, name, ended });
    }

    fn process(&mut self, pid: u32) {
        if self.seen.insert(pid) {
            self.unknown.push(pid);
        }
    }
}

impl Sink for Digest {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        self.stay(row);
        match self.phases.push(row) {
            Ok(Some(mut news)) => {
                (news.start_ns, news.end_ns) = (self.ns(news.interval.start), self.ns(news.interval.end));
                self.batch.phases.push(news);
            }
            Ok(None) => {}
            Err(_) => self.batch.disordered.push(row.pid),
        }
        self.recorder.quantum(row)
    }

    /// It was on the CPU all the same.
    fn waited(&mut self, row: &QuantumRow, _turn: InTurn) -> Result<(), TraceError> {
        self.stay(row);
        Ok(())
    }

    fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        if let Some(sum) = self.batch.samples.get_mut(usize::from(row.event)) {
            *sum += 1;
        }
        self.naming.sample(row);
        self.recorder.sample(row)
    }

    fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        self.naming.map(row);
        self.recorder.map(row)
    }

    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        if self.is_told(row) {
            self.tell(row);
        }
        self.naming.thread(row);
        self.recorder.thread(row)
    }

    /// The thread that names reads them once it meets one.
    fn wants_kernel_symbols(&self) -> bool {
        false
    }

    fn marker(&mut self, row: &MarkerRow) -> Result<(), TraceError> {
        let (ns, tid, text, value) = (self.ns(row.tsc), row.tid, row.text.clone(), row.value);
        self.batch.markers.push(Marker { ns, tid, text, value });
        self.naming.marker(row);
        self.recorder.marker(row)
    }

    fn stack(&mut self, frames: &[u64], truncated: bool) -> Result<u32, TraceError> {
        self.recorder.stack(frames, truncated)
    }
}
