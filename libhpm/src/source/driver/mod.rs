//! The driver as a source: its quanta and samples, and the kernel's reports of mappings and threads beside them.

mod meta;
mod sample;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use self::sample::{SampleRows, of_quantum};
use super::rows::SidebandRows;
use super::{Sink, Source};
use crate::Result;
use crate::address_space::AddressSpaces;
use crate::event::Event;
use crate::machine::pmu_name;
use crate::session::{Marker, Quantum, Sample, Session};
use crate::sideband::{self, Entry, Sideband};
use crate::symbol::kernel_symbols;
use crate::sys::clock::{ClockPair, tsc};
use crate::trace::{MarkerRow, Meta, QuantumRow, SampleRow, Totals};
use crate::unwind::{Snapshot, StackUnwinder};

/// How often the three clocks are paired in `meta.json`.
const PAIR_EACH: Duration = Duration::from_secs(10);

/// What becomes of what the driver collected of each sample's stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// Return addresses are taken as the driver found them; without any there is no stack.
    #[default]
    AsFound,
    /// Copies of user stacks are unwound.
    Unwind,
    /// The branch records are calls that have not returned ([`crate::session::Stack::BranchCalls`]).
    Calls,
}

/// A session and the side band.
pub struct DriverSource {
    session: Session,
    /// Absent when only counts are wanted.
    sideband: Option<Sideband>,
    /// Processes whose threads and mappings were there before.
    present: Vec<u32>,
    meta: Meta,
    rows: Rows,
    paired: Instant,
}

/// What rows need from earlier ones.
struct Rows {
    samples_of: SampleRows,
    sideband: SidebandRows,
    /// For the unwinder.
    spaces: AddressSpaces,
    /// Absent when no stacks are to be unwound.
    unwinder: Option<StackUnwinder>,
    /// Branch records kept with each sample, when they are its calls.
    calls: Option<u32>,
    unattributed: u64,
    /// The last quantum's, whose lists are used again.
    quantum: QuantumRow,
}

impl DriverSource {
    /// A configured session of these events. With a `sideband` mappings and threads are handed over too, beginning with those
    /// of the processes `present`; the sampled program's `command` goes to `meta.json`.
    #[must_use]
    pub fn new(
        session: Session,
        events: &[Event],
        sideband: Option<Sideband>,
        present: Vec<u32>,
        stacks: Stacks,
        command: &[std::ffi::OsString],
    ) -> Self {
        let meta = meta::meta(&session, events, command);
        let rows = Rows {
            samples_of: SampleRows::new(events, &pmu_name(session.info())),
            sideband: SidebandRows::of_living_processes(),
            spaces: AddressSpaces::default(),
            unwinder: (stacks == Stacks::Unwind).then(StackUnwinder::default),
            calls: (stacks == Stacks::Calls).then_some(session.config().branches),
            unattributed: 0,
            quantum: QuantumRow::default(),
        };
        Self { session, sideband, present, meta, rows, paired: Instant::now() }
    }
}

impl Source for DriverSource {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn start(&mut self, sink: &mut dyn Sink) -> Result<()> {
        if self.sideband.is_some() {
            let entries = self.present.iter().copied().flat_map(sideband::snapshot).collect();
            self.rows.entries(sink, entries, ClockPair::now(), self.session.info().tsc_khz)?;
            if sink.wants_kernel_symbols() && self.meta.events.iter().any(|event| event.kernel) {
                let symbols = kernel_symbols().map_err(crate::Error::io("read the kernel's symbols"))?;
                symbols.iter().try_for_each(|symbol| sink.kernel_symbol(symbol))?;
            }
        }
        self.session.start()
    }

    fn wait(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<Vec<bool>> {
        let reports = self.sideband.iter().flat_map(Sideband::descriptors);
        let all: Vec<BorrowedFd<'_>> = others.iter().copied().chain(reports).collect();
        let mut readable = self.session.wait(&all, timeout)?;
        readable.truncate(others.len());
        Ok(readable)
    }

    /// Mappings come first, because stacks are unwound with them.
    fn take(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let tsc_khz = self.session.info().tsc_khz;
        // The batch is fixed before the side band is read, so that the mappings in which it executed have been reported.
        let batch = self.session.batch()?;
        let entries = self.sideband.as_mut().map_or_else(Vec::new, Sideband::drain);
        if !entries.is_empty() {
            self.rows.entries(sink, entries, ClockPair::now(), tsc_khz)?;
        }
        for quantum in batch.quanta() {
            self.rows.quantum(sink, &quantum?)?;
        }
        drop(batch);
        for marker in self.session.markers()? {
            sink.marker(&marker_row(&marker))?;
        }
        if self.paired.elapsed() >= PAIR_EACH {
            sink.clock_pair(ClockPair::now().into())?;
            self.paired = Instant::now();
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.session.stop()
    }

    fn totals(&self) -> Result<Totals> {
        let sums = self.session.totals()?;
        let events = self.session.config().event_count as usize;
        Ok(Totals {
            counts: sums.counts[..events].to_vec(),
            running_tsc: sums.running_tsc[..events].to_vec(),
            on_cpu_tsc: sums.on_cpu_tsc,
            quanta: sums.quanta,
            quanta_lost: sums.quanta_lost,
            records: sums.records,
            records_lost: sums.records_lost,
            throttled: sums.throttled,
            pmis: sums.pmis,
            msr_reads: sums.msr_reads,
            msr_writes: sums.msr_writes,
            threads_overflowed: sums.threads_overflowed,
            markers_lost: sums.markers_lost,
            records_withheld: sums.records_withheld,
            records_unattributed: self.rows.unattributed,
            processes_left_out: sums.processes_left_out,
            sideband_lost: self.rows.sideband.lost,
        })
    }

    fn pause_samples(&mut self, paused: bool) -> Result<bool> {
        self.session.pause_samples(paused);
        Ok(true)
    }

    fn is_over(&self) -> bool {
        self.session.is_over()
    }

    fn check(&self) -> Result<()> {
        self.session.check()
    }

    fn now(&self) -> Option<u64> {
        Some(tsc())
    }
}

impl Rows {
    fn entries(
        &mut self,
        sink: &mut dyn Sink,
        entries: Vec<Entry>,
        now: ClockPair,
        tsc_khz: u32,
    ) -> Result<()> {
        for entry in entries {
            if let Some(row) = self.sideband.row(entry, now, tsc_khz) {
                if self.unwinder.is_some() {
                    row.note_in(&mut self.spaces);
                }
                row.hand_to(sink)?;
            }
        }
        Ok(())
    }

    fn quantum(&mut self, sink: &mut dyn Sink, quantum: &Quantum<'_>) -> Result<()> {
        // The quantum comes first, so that no trace has a sample whose quantum is missing, wherever its recording was killed.
        let records = quantum.sample_count()?;
        set_quantum(&mut self.quantum, quantum, records);
        sink.quantum_in_turns(&self.quantum, quantum.raw().active)?;
        if records == 0 {
            return Ok(());
        }
        let mut row = of_quantum(quantum);
        if self.calls.is_none()
            && let Some(span) = self.samples_of.span(quantum, &mut row)
        {
            return Ok(sink.samples(&span)?);
        }
        for sample in quantum.samples()? {
            self.sample(sink, &mut row, quantum, &sample?)?;
        }
        Ok(())
    }

    /// One row for each event that the record is for. `row` is the quantum's, or an earlier sample's of it.
    fn sample(
        &mut self,
        sink: &mut dyn Sink,
        row: &mut SampleRow,
        quantum: &Quantum<'_>,
        sample: &Sample<'_>,
    ) -> Result<()> {
        self.samples_of.set_sample(row, quantum, sample);
        if self.calls.is_some() {
            // They are calls that have not returned, and have become the stack.
            row.branches = None;
        }
        row.stack = self.stack(sink, row, quantum, sample)?;
        let mut events = sample.events().peekable();
        self.unattributed += u64::from(events.peek().is_none());
        for (event, period) in events {
            (row.event, row.period) = (event as u8, period);
            self.samples_of.set_memory(row, sample, event);
            sink.sample(row)?;
        }
        Ok(())
    }

    /// The sample's call stack, unwound if the driver has not followed its frames; `None` when it has none.
    fn stack(
        &mut self,
        sink: &mut dyn Sink,
        row: &SampleRow,
        quantum: &Quantum<'_>,
        sample: &Sample<'_>,
    ) -> Result<Option<u32>> {
        if let Some(kept) = self.calls {
            let stack = sample.calls(kept);
            return Ok(Some(sink.stack(&stack.frames, stack.truncated)?));
        }
        if let Some(callers) = sample.return_addresses() {
            let frames: Vec<u64> = std::iter::once(row.ip).chain(callers).collect();
            return Ok(Some(sink.stack(&frames, quantum.stack_incomplete())?));
        }
        let stack = sample.stack;
        let (Some(unwinder), Some(registers), [_, ..]) = (&mut self.unwinder, &row.registers, stack) else {
            return Ok(None);
        };
        let snapshot = Snapshot { pid: row.pid, tsc: row.tsc, ip: row.ip, registers, stack };
        let call_stack = unwinder.unwind(&self.spaces, &snapshot);
        Ok(Some(sink.stack(&call_stack.frames, call_stack.truncated)?))
    }
}

fn marker_row(marker: &Marker) -> MarkerRow {
    MarkerRow {
        tsc: marker.tsc,
        pid: Some(marker.pid),
        tid: Some(marker.tid),
        text: crate::mark::name(&marker.name),
        value: Some(marker.value),
    }
}

fn set_quantum(row: &mut QuantumRow, quantum: &Quantum<'_>, records: usize) {
    let raw = quantum.raw();
    let (mut counts, mut periods) = (std::mem::take(&mut row.counts), std::mem::take(&mut row.periods));
    counts.clear();
    counts.extend_from_slice(quantum.counts());
    periods.clear();
    periods.resize(counts.len(), 0);
    for (event, period) in raw.counter_event.iter().zip(raw.periods) {
        if let Some(place) = periods.get_mut(usize::from(*event)) {
            *place = period;
        }
    }
    *row = QuantumRow {
        sequence: raw.sequence,
        cpu: raw.cpu,
        pid: raw.pid,
        tid: raw.tid,
        start_tsc: raw.start_tsc,
        end_tsc: raw.end_tsc,
        end: raw.end as u8,
        flags: raw.flags,
        last_ip: (raw.last_ip != 0).then_some(raw.last_ip),
        counts,
        periods,
        records: records as u32,
        records_lost: raw.records_lost,
    };
}
