//! Moves what the driver and the kernel report into the trace.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libhpm::address_space::AddressSpaces;
use libhpm::session::{Marker, Quantum, Sample, Session};
use libhpm::sideband::{self, Entry, Sideband};
use libhpm::symbol::kernel_symbols;
use libhpm::sys::clock::ClockPair;
use libhpm::trace::{MarkerRow, QuantumRow, SampleRow, Totals, TraceWriter};
use libhpm::unwind::{Snapshot, StackUnwinder};

use super::StackMethod;
use super::meta::clock_pair;
use super::sample::{SampleRows, common};
use super::sideband::{SidebandRow, SidebandRows};
use crate::workload::Workload;

/// How often the three clocks are paired in `meta.json`.
const PAIR_EACH: Duration = Duration::from_secs(10);

/// A recording under way.
pub(super) struct Recorder {
    session: Session,
    sideband: Sideband,
    output: Output,
    paired: Instant,
}

/// The trace, and what rows need from earlier ones.
struct Output {
    writer: TraceWriter,
    samples_of: SampleRows,
    rows: SidebandRows,
    spaces: AddressSpaces,
    /// Absent when no stacks are to be unwound.
    unwinder: Option<StackUnwinder>,
    /// Branch records kept with each sample, when they are its calls.
    calls: Option<u32>,
    samples: u64,
    unattributed: u64,
}

/// What a recording came to.
#[derive(Debug, Default)]
pub(super) struct Finished {
    /// The driver's sums, and what the kernel lost of its reports.
    pub(super) totals: Totals,
    /// Rows of `samples`.
    pub(super) samples: u64,
    /// Records that named no counter of a sampled event, and are not among the samples.
    pub(super) unattributed: u64,
}

impl Recorder {
    pub(super) fn new(
        session: Session,
        sideband: Sideband,
        writer: TraceWriter,
        samples_of: SampleRows,
        stacks: Option<StackMethod>,
    ) -> Self {
        let calls = (stacks == Some(StackMethod::Lbr)).then_some(session.config().branches);
        let output = Output {
            writer,
            samples_of,
            rows: SidebandRows::default(),
            spaces: AddressSpaces::default(),
            unwinder: (stacks == Some(StackMethod::Dwarf)).then(StackUnwinder::default),
            calls,
            samples: 0,
            unattributed: 0,
        };
        Self { session, sideband, output, paired: Instant::now() }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Writes the mappings and threads that the target had before, and the kernel's functions when it is measured too.
    ///
    /// # Errors
    /// When the trace cannot be written.
    pub(super) fn note_what_was_there(&mut self, workload: &Workload, kernel: bool) -> Result<()> {
        let pids = match workload.process()? {
            Some(_) if workload.is_program() => vec![],
            Some(pid) => vec![pid as u32],
            None => sideband::processes(),
        };
        let entries = pids.into_iter().flat_map(sideband::snapshot).collect();
        self.output.entries(entries, ClockPair::now(), self.session.info().tsc_khz)?;
        if kernel {
            for symbol in kernel_symbols().context("cannot read the kernel's symbols")? {
                self.output.writer.kernel_symbol(&symbol)?;
            }
        }
        Ok(())
    }

    /// Takes everything that was reported meanwhile: mappings first, because stacks are unwound with them.
    ///
    /// # Errors
    /// When the trace cannot be written, or the driver contradicts the interface.
    pub(super) fn take(&mut self) -> Result<()> {
        let tsc_khz = self.session.info().tsc_khz;
        // The batch is fixed before the side band is read, so that the mappings in which it executed have been reported.
        let batch = self.session.batch()?;
        let now = ClockPair::now();
        self.output.entries(self.sideband.drain(), now, tsc_khz)?;
        for quantum in batch.quanta() {
            self.output.quantum(&quantum?)?;
        }
        drop(batch);
        for marker in self.session.markers()? {
            self.output.writer.marker(&marker_row(&marker))?;
        }
        if self.paired.elapsed() >= PAIR_EACH {
            self.output.writer.clock_pair(clock_pair(now))?;
            self.paired = Instant::now();
        }
        Ok(self.output.writer.tick()?)
    }

    /// Stops the session, takes the rest and completes the trace.
    ///
    /// # Errors
    /// As [`Recorder::take`].
    pub(super) fn finish(mut self) -> Result<Finished> {
        self.session.stop()?;
        self.take()?;
        let sums = self.session.totals()?;
        let totals = Totals {
            counts: sums.counts[..self.session.config().event_count as usize].to_vec(),
            on_cpu_tsc: sums.on_cpu_tsc,
            quanta: sums.quanta,
            quanta_lost: sums.quanta_lost,
            records: sums.records,
            records_lost: sums.records_lost,
            throttled: sums.throttled,
            pmis: sums.pmis,
            threads_overflowed: sums.threads_overflowed,
            markers_lost: sums.markers_lost,
            records_withheld: sums.records_withheld,
            processes_left_out: sums.processes_left_out,
            sideband_lost: self.output.rows.lost,
        };
        self.output.writer.finish(totals.clone())?;
        Ok(Finished { totals, samples: self.output.samples, unattributed: self.output.unattributed })
    }
}

impl Output {
    fn entries(&mut self, entries: Vec<Entry>, now: ClockPair, tsc_khz: u32) -> Result<()> {
        for entry in entries {
            match self.rows.row(entry, now, tsc_khz) {
                Some(SidebandRow::Map(row)) => {
                    self.spaces.map(&row);
                    self.writer.map(&row)?;
                }
                Some(SidebandRow::Thread(row)) => {
                    self.spaces.thread(&row);
                    self.writer.thread(&row)?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn quantum(&mut self, quantum: &Quantum<'_>) -> Result<()> {
        let mut records = 0;
        for sample in quantum.samples()? {
            self.sample(quantum, &sample?)?;
            records += 1;
        }
        Ok(self.writer.quantum(&quantum_row(quantum, records))?)
    }

    /// One row for each event that the record is for.
    fn sample(&mut self, quantum: &Quantum<'_>, sample: &Sample<'_>) -> Result<()> {
        let mut row = common(quantum, sample);
        if self.calls.is_some() {
            // They are calls that have not returned, and have become the stack.
            row.branches = None;
        }
        row.stack = self.stack(&row, quantum, sample)?;
        let mut rows = self.samples_of.rows(row, sample).peekable();
        self.unattributed += u64::from(rows.peek().is_none());
        for row in rows {
            self.samples += 1;
            self.writer.sample(&row)?;
        }
        Ok(())
    }

    /// The sample's call stack, unwound if the driver has not followed its frames; `None` when it has none.
    fn stack(&mut self, row: &SampleRow, quantum: &Quantum<'_>, sample: &Sample<'_>) -> Result<Option<u32>> {
        if let Some(kept) = self.calls {
            let stack = sample.calls(kept);
            return Ok(Some(self.writer.stack(&stack.frames, stack.truncated)?));
        }
        if let Some(callers) = sample.return_addresses() {
            let frames: Vec<u64> = std::iter::once(row.ip).chain(callers).collect();
            return Ok(Some(self.writer.stack(&frames, quantum.stack_incomplete())?));
        }
        let stack = sample.stack;
        let (Some(unwinder), Some(registers), [_, ..]) = (&mut self.unwinder, &row.registers, stack) else {
            return Ok(None);
        };
        let snapshot = Snapshot { pid: row.pid, tsc: row.tsc, ip: row.ip, registers, stack };
        let call_stack = unwinder.unwind(&self.spaces, &snapshot);
        Ok(Some(self.writer.stack(&call_stack.frames, call_stack.truncated)?))
    }
}

fn marker_row(marker: &Marker) -> MarkerRow {
    MarkerRow {
        tsc: marker.tsc,
        pid: Some(marker.pid),
        tid: Some(marker.tid),
        text: libhpm::mark::name(&marker.name),
        value: Some(marker.value),
    }
}

fn quantum_row(quantum: &Quantum<'_>, records: usize) -> QuantumRow {
    let raw = quantum.raw();
    let counts = quantum.counts().to_vec();
    let mut periods = vec![0; counts.len()];
    for (event, period) in raw.counter_event.iter().zip(raw.periods) {
        if let Some(place) = periods.get_mut(usize::from(*event)) {
            *place = period;
        }
    }
    QuantumRow {
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
    }
}
