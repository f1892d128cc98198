//! From what perf_event's records say to rows, wherever the records come from: a ring, or a file.

use std::collections::HashMap;

use super::quanta::{Counted, Placed, Quanta, Row};
use super::record::{Switch, Taken};
use crate::Result;
use crate::address_space::AddressSpaces;
use crate::sideband::{Change, Entry};
use crate::source::Sink;
use crate::source::rows::SidebandRows;
use crate::sys::clock::ClockPair;
use crate::trace::{Registers, SampleRow};
use crate::unwind::{CallStack, Snapshot, StackUnwinder};

/// A TSC of 1 GHz: its ticks are nanoseconds.
pub(in crate::source) const TSC_KHZ: u32 = 1_000_000;

/// Addresses of a call chain at which the kernel cuts it off, unless `kernel.perf_event_max_stack` says otherwise.
const CHAIN_MAX: usize = 127;

/// A sample without its stack's number, and the stack.
type Held = (SampleRow, Option<CallStack>);

/// What turns records into rows. They must come in the order of time.
pub(in crate::source) struct Stream {
    /// Absent where nothing tells of switches.
    quanta: Option<Quanta>,
    pub(in crate::source) rows: SidebandRows,
    /// For the unwinder.
    spaces: AddressSpaces,
    unwinder: Option<StackUnwinder>,
    /// A call chain of so many addresses was cut off.
    chain_max: usize,
    /// The program that is yet to be executed, and whose first instruction begins a quantum.
    awaited: Option<u32>,
    /// Samples of quanta that have not ended yet, by CPU and number, with their stacks: the sink's number of one may be another
    /// when the sample is handed over.
    held: HashMap<(u32, u64), Vec<Held>>,
    pub(in crate::source) samples: u64,
    /// How often the kernel held samples back.
    pub(in crate::source) throttled: u64,
}

impl Stream {
    /// One with quanta of these events; `started_ns` is when measuring began.
    pub(in crate::source) fn with_quanta(events: Vec<Counted>, started_ns: u64, rows: SidebandRows) -> Self {
        Self { quanta: Some(Quanta::new(events, started_ns)), ..Self::without_quanta(rows) }
    }

    /// One without any quanta: its samples belong to none.
    pub(in crate::source) fn without_quanta(rows: SidebandRows) -> Self {
        Self {
            quanta: None,
            rows,
            spaces: AddressSpaces::default(),
            unwinder: None,
            chain_max: CHAIN_MAX,
            awaited: None,
            held: HashMap::new(),
            samples: 0,
            throttled: 0,
        }
    }

    /// Unwinds the stacks that samples bring with them.
    pub(in crate::source) fn unwinding(mut self) -> Self {
        self.unwinder = Some(StackUnwinder::default());
        self
    }

    /// Call chains are cut off as the running kernel does it.
    pub(in crate::source) fn with_this_kernels_chains(mut self) -> Self {
        let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").ok();
        self.chain_max = limit.and_then(|limit| limit.trim().parse().ok()).unwrap_or(CHAIN_MAX);
        self
    }

    /// Lets measuring begin when this thread executes its program.
    pub(in crate::source) fn awaiting(mut self, tid: Option<u32>) -> Self {
        self.awaited = tid;
        self
    }

    /// Measuring began only now: a thread that is seen first in the middle of its stay has been there since then.
    pub(in crate::source) fn started_at(&mut self, ns: u64) {
        if let Some(quanta) = &mut self.quanta {
            quanta.started_at(ns);
        }
    }

    /// Quanta that have ended, and how long they were together.
    pub(in crate::source) fn ended(&self) -> (u64, u64) {
        self.quanta.as_ref().map_or((0, 0), |quanta| (quanta.ended, quanta.on_cpu_ns))
    }

    /// A mapping, name, fork, exit or loss.
    pub(in crate::source) fn report(&mut self, sink: &mut dyn Sink, ns: u64, entry: Entry) -> Result<()> {
        if let Some(quanta) = &mut self.quanta {
            match &entry.change {
                Change::Exit => {
                    let ended = quanta.exit(ns, entry.tid);
                    self.end(sink, ended)?;
                }
                Change::Fork { .. } => quanta.forked(entry.tid),
                // No switch brought the program to its CPU; the next record of it says which that is.
                Change::Name { exec: true, .. } if self.awaited == Some(entry.tid) => {
                    self.awaited = None;
                    quanta.started_at(ns);
                }
                Change::Name { exec: true, .. } => quanta.executed(entry.tid),
                _ => {}
            }
        }
        self.note(sink, entry)
    }

    /// The same of what was there before measuring began.
    pub(in crate::source) fn note(&mut self, sink: &mut dyn Sink, entry: Entry) -> Result<()> {
        // Both clocks are the same.
        let now = ClockPair {
            tsc: entry.monotonic_raw_ns,
            monotonic_raw_ns: entry.monotonic_raw_ns,
            realtime_ns: 0,
        };
        if let Some(row) = self.rows.row(entry, now, TSC_KHZ) {
            if self.unwinder.is_some() {
                row.note_in(&mut self.spaces);
            }
            row.hand_to(sink)?;
        }
        Ok(())
    }

    /// A thread was switched to or away from.
    pub(in crate::source) fn switch(&mut self, sink: &mut dyn Sink, ns: u64, switch: &Switch) -> Result<()> {
        let ended = self.quanta.as_mut().and_then(|quanta| quanta.switch(ns, switch));
        self.end(sink, ended)
    }

    /// A sample of the event with this index, which is only counted where samples are not wanted.
    pub(in crate::source) fn sample(
        &mut self,
        sink: &mut dyn Sink,
        ns: u64,
        event: usize,
        taken: &Taken,
        sampled: bool,
    ) -> Result<()> {
        let Placed { sequence: quantum, open, ended } = match &mut self.quanta {
            Some(quanta) => quanta.sample(ns, event, taken),
            None => Placed { sequence: 0, open: false, ended: None },
        };
        if sampled {
            self.samples += 1;
            let row = SampleRow {
                tsc: ns,
                cpu: taken.cpu,
                pid: taken.pid,
                tid: taken.tid,
                quantum,
                event: event as u8,
                period: taken.period,
                ip: taken.ip,
                data_address: (taken.address != 0).then_some(taken.address),
                registers: taken.registers,
                ..SampleRow::default()
            };
            let stack = self.stack(ns, taken);
            if open {
                self.held.entry((row.cpu, quantum)).or_default().push((row, stack));
            } else {
                hand_over(sink, row, stack)?;
            }
        }
        self.end(sink, ended)
    }

    /// Ends and goes on with quanta that have lasted for long.
    pub(in crate::source) fn flush(&mut self, sink: &mut dyn Sink, ns: u64) -> Result<()> {
        let cut = self.quanta.as_mut().map_or_else(Vec::new, |quanta| quanta.flush(ns));
        cut.into_iter().try_for_each(|row| self.end(sink, Some(row)))
    }

    /// Ends every quantum.
    pub(in crate::source) fn stop(&mut self, sink: &mut dyn Sink, ns: u64) -> Result<()> {
        let ended = self.quanta.as_mut().map_or_else(Vec::new, |quanta| quanta.stop(ns));
        ended.into_iter().try_for_each(|row| self.end(sink, Some(row)))
    }

    /// Hands over a quantum that has ended, and then its samples: no trace has one whose quantum is missing.
    fn end(&mut self, sink: &mut dyn Sink, ended: Option<Row>) -> Result<()> {
        let Some(quantum) = ended else { return Ok(()) };
        sink.quantum(&quantum)?;
        // Most have none.
        let samples =
            if quantum.records > 0 { self.held.remove(&(quantum.cpu, quantum.sequence)) } else { None };
        if let Some(quanta) = &mut self.quanta {
            quanta.give_back(quantum);
        }
        samples.into_iter().flatten().try_for_each(|(row, stack)| hand_over(sink, row, stack))
    }

    fn stack(&mut self, ns: u64, taken: &Taken) -> Option<CallStack> {
        let (Some(unwinder), Some(registers), [_, ..]) =
            (&mut self.unwinder, &taken.registers, &taken.stack[..])
        else {
            let frames = taken.chain.clone();
            let truncated = frames.len() >= self.chain_max;
            return (!frames.is_empty()).then_some(CallStack { frames, truncated });
        };
        // A sample of the kernel has the registers with which the thread entered it.
        let ip = registers.at(Registers::RIP);
        let snapshot = Snapshot { pid: taken.pid, tsc: ns, ip, registers, stack: &taken.stack };
        let mut stack = unwinder.unwind(&self.spaces, &snapshot);
        if taken.ip != ip {
            // The caller of the kernel is no call instruction's return address, but one is looked for before it.
            stack.frames[0] = ip.wrapping_add(1);
            // What the kernel found of its own calls, or at least where it was.
            let own = if taken.chain.is_empty() { &[taken.ip][..] } else { &taken.chain };
            stack.frames.splice(0..0, own.iter().copied());
        }
        Some(stack)
    }
}

fn hand_over(sink: &mut dyn Sink, mut row: SampleRow, stack: Option<CallStack>) -> Result<()> {
    row.stack = stack.map(|stack| sink.stack(&stack.frames, stack.truncated)).transpose()?;
    Ok(sink.sample(&row)?)
}
