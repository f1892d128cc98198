//! Quanta, their samples and the kernel's reports as rows of the trace.

use hpm_abi::QuantumFlags;

use super::sample::{SampleRows, of_quantum};
use super::spool::Begun;
use crate::Result;
use crate::address_space::AddressSpaces;
use crate::event::Event;
use crate::session::{Quantum, Sample};
use crate::sideband::{Entry, Reports};
use crate::source::rows::{SidebandRow, SidebandRows};
use crate::source::{InTurn, Sink};
use crate::sys::clock::ClockPair;
use crate::trace::{QuantumRow, SampleRow};
use crate::unwind::{Snapshot, StackUnwinder};

/// What rows need from earlier ones.
pub(super) struct Rows {
    samples_of: SampleRows,
    pub(super) sideband: SidebandRows,
    /// For the unwinder.
    spaces: AddressSpaces,
    /// Absent when no stacks are to be unwound.
    unwinder: Option<StackUnwinder>,
    /// Branch records kept with each sample, when they are its calls.
    calls: Option<u32>,
    /// Rows of `maps` and of `threads`.
    reported: [u64; 2],
    /// Records of no event.
    pub(super) unattributed: u64,
    /// Stacks that found no room, one for each quantum that says so.
    pub(super) stacks_lost: u64,
    /// The last quantum's, whose lists are used again.
    quantum: QuantumRow,
}

impl Rows {
    /// For samples of these events on a PMU. Of their branch records `calls` are kept as call stacks, where they are calls.
    pub(super) fn new(events: &[Event], pmu: &str, unwind: bool, calls: Option<u32>) -> Self {
        Self {
            samples_of: SampleRows::new(events, pmu),
            sideband: SidebandRows::of_living_processes(),
            spaces: AddressSpaces::default(),
            unwinder: unwind.then(StackUnwinder::default),
            calls,
            reported: [0; 2],
            unattributed: 0,
            stacks_lost: 0,
            quantum: QuantumRow::default(),
        }
    }

    /// Whether copies of stacks are unwound.
    pub(super) fn unwinds(&self) -> bool {
        self.unwinder.is_some()
    }

    /// What later rows rest on, before there is any but those of what was there already.
    pub(super) fn begun(&self) -> Begun {
        let [maps, threads] = self.reported;
        Begun { calls: self.calls, maps, threads }
    }

    /// Reads what will be asked of files by reports that become rows later: only now the processes are there that have mapped them.
    pub(super) fn look_up(&mut self, reports: &Reports) {
        if reports.need_files() {
            self.sideband.look_up(reports.entries());
        }
    }

    /// Hands over what the kernel reported.
    pub(super) fn entries(
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
                self.reported[usize::from(matches!(row, SidebandRow::Thread(_)))] += 1;
            }
        }
        Ok(())
    }

    /// Hands over a quantum and its samples.
    pub(super) fn quantum(&mut self, sink: &mut dyn Sink, quantum: &Quantum<'_>) -> Result<()> {
        // The quantum comes first, so that no trace has a sample whose quantum is missing, wherever its recording was killed.
        let records = quantum.sample_count()?;
        self.stacks_lost += u64::from(quantum.stack_lost());
        set_quantum(&mut self.quantum, quantum, records);
        let raw = quantum.raw();
        let turn = InTurn { active: raw.active, absent: raw.absent };
        if raw.flags & QuantumFlags::LENT != 0 {
            return Ok(sink.waited(&self.quantum, turn)?);
        }
        sink.quantum_in_turns(&self.quantum, turn)?;
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
