//! Where quanta and samples come from: the driver, the kernel's perf_event, a file of `perf record`, or a recorded trace.
//!
//! A [`Source`] hands rows of a trace ([`crate::trace`]) to a [`Sink`], whoever wrote them: so recording, counting and
//! looking on are the same code on a machine with the module, without it, and without the machine.

pub mod choice;
pub mod driver;
pub mod opened;
pub mod perf;
pub mod perf_data;
pub mod replay;
mod rows;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use crate::Result;
use crate::trace::{
    ClockPair, KernelSymbolRow, MapRow, MarkerRow, Meta, QuantumRow, SampleRow, SampleSpan, ThreadRow,
    Totals, TraceError, TraceWriter,
};

/// A stream of quanta, samples and what else happened in the measured threads.
pub trait Source {
    /// What `meta.json` says of a recording from it: machine, events, clock.
    fn meta(&self) -> &Meta;

    /// Begins to measure, and hands over what was there before: mappings, threads, kernel functions.
    ///
    /// # Errors
    /// When the source refuses, or the sink fails.
    fn start(&mut self, sink: &mut dyn Sink) -> Result<()>;

    /// Waits until there is something to take, one of `others` becomes readable, the time has passed or a signal arrives;
    /// says which of `others` are readable.
    ///
    /// # Errors
    /// [`crate::Error::Io`] when the system refuses to wait.
    fn wait(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<Vec<bool>>;

    /// Hands over everything that was reported since the last call. What a row refers to comes before the row.
    ///
    /// # Errors
    /// When the sink fails, or the source contradicts itself.
    fn take(&mut self, sink: &mut dyn Sink) -> Result<()>;

    /// Has quanta, samples and what was reported of mappings and threads handed over by the first [`Source::take`] after [`Source::stop`], because to make rows of them disturbs what is
    /// measured; until then they are kept as they are in this new file. Whether the source can do that.
    ///
    /// # Errors
    /// The file cannot be written.
    fn defer(&mut self, _file: &Path) -> Result<bool> {
        Ok(false)
    }

    /// Ends measuring. [`Source::take`] then hands over the rest.
    ///
    /// # Errors
    /// When the source refuses.
    fn stop(&mut self) -> Result<()>;

    /// Sums since the start; final once stopped, and what making rows finds ([`Totals::records_unattributed`], [`Totals::sideband_lost`])
    /// once that has been taken, too.
    ///
    /// # Errors
    /// When the source refuses.
    fn totals(&self) -> Result<Totals>;

    /// Takes no samples, or takes them again, while counting goes on. Whether the source can do that.
    ///
    /// # Errors
    /// When the source refuses.
    fn pause_samples(&mut self, _paused: bool) -> Result<bool> {
        Ok(false)
    }

    /// Wishes for so many samples a second of each event whose period adapts. Whether the source can do that, and has such an event.
    fn wish_rate(&mut self, _per_second: u64) -> bool {
        false
    }

    /// Whether nothing will be measured any more.
    fn is_over(&self) -> bool;

    /// How much of a recording's time was handed over; `None` for a source that measures, whose time is everybody's.
    fn elapsed(&self) -> Option<Duration> {
        None
    }

    /// This moment on the clock of the rows, for a row of somebody else's; `None` where the rows are of another time.
    fn now(&self) -> Option<u64> {
        None
    }

    /// What the rows and sums that were handed over lack, as sentences; final once it is over. A source that measures counts its losses
    /// in [`Source::totals`] instead.
    fn missing(&self) -> Vec<String> {
        vec![]
    }

    /// Whether the source stands by what it measured.
    ///
    /// # Errors
    /// The reason why it does not.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Which events were on in a quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTurn {
    /// A bit for each of which nothing was missed: all of them, unless they take turns.
    pub active: u16,
    /// Of these a bit for each that could not occur, because only cores of another type have it.
    pub absent: u16,
}

/// Takes the rows of a source. What is not overridden is dropped.
pub trait Sink {
    /// A stay of a thread on a CPU.
    ///
    /// # Errors
    /// As for every method: when the row cannot be kept.
    fn quantum(&mut self, _row: &QuantumRow) -> Result<(), TraceError> {
        Ok(())
    }
    /// The same from a source that tells which events were on in it. Who does not scale counts takes it as any other.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn quantum_in_turns(&mut self, row: &QuantumRow, _turn: InTurn) -> Result<(), TraceError> {
        self.quantum(row)
    }
    /// A stay of a thread on a CPU while the PMU was another session's: nothing was counted. No row of a trace.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn waited(&mut self, _row: &QuantumRow, _turn: InTurn) -> Result<(), TraceError> {
        Ok(())
    }
    /// A sample.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn sample(&mut self, _row: &SampleRow) -> Result<(), TraceError> {
        Ok(())
    }
    /// Samples of one quantum, all at once. Who does not keep them in columns has them one by one.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn samples(&mut self, span: &SampleSpan<'_>) -> Result<(), TraceError> {
        span.rows().try_for_each(|row| self.sample(&row))
    }
    /// A mapping.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn map(&mut self, _row: &MapRow) -> Result<(), TraceError> {
        Ok(())
    }
    /// A change in a thread's life.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn thread(&mut self, _row: &ThreadRow) -> Result<(), TraceError> {
        Ok(())
    }
    /// Whether a source that measures should begin with the kernel's functions; a sink that names them itself, once it has to, saves
    /// the time that it takes to read them.
    fn wants_kernel_symbols(&self) -> bool {
        true
    }
    /// A kernel function.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn kernel_symbol(&mut self, _row: &KernelSymbolRow) -> Result<(), TraceError> {
        Ok(())
    }
    /// A marker.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn marker(&mut self, _row: &MarkerRow) -> Result<(), TraceError> {
        Ok(())
    }
    /// A call stack, innermost address first; its number for the [`SampleRow::stack`] of samples that are handed over next, before the
    /// source has let the sink's owner act: a sink that begins another trace numbers anew.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn stack(&mut self, _frames: &[u64], _truncated: bool) -> Result<u32, TraceError> {
        Ok(0)
    }
    /// A moment on three clocks.
    ///
    /// # Errors
    /// As [`Sink::quantum`].
    fn clock_pair(&mut self, _pair: ClockPair) -> Result<(), TraceError> {
        Ok(())
    }
}

/// Drops everything: for who wants only [`Source::totals`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Sink for Nowhere {}

impl Sink for TraceWriter {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        Self::quantum(self, row)
    }
    fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        Self::sample(self, row)
    }
    fn samples(&mut self, span: &SampleSpan<'_>) -> Result<(), TraceError> {
        Self::samples(self, span)
    }
    fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        Self::map(self, row)
    }
    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        Self::thread(self, row)
    }
    fn kernel_symbol(&mut self, row: &KernelSymbolRow) -> Result<(), TraceError> {
        Self::kernel_symbol(self, row)
    }
    fn marker(&mut self, row: &MarkerRow) -> Result<(), TraceError> {
        Self::marker(self, row)
    }
    fn stack(&mut self, frames: &[u64], truncated: bool) -> Result<u32, TraceError> {
        Self::stack(self, frames, truncated)
    }
    fn clock_pair(&mut self, pair: ClockPair) -> Result<(), TraceError> {
        Self::clock_pair(self, pair)
    }
}
