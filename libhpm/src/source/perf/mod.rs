//! The kernel's perf_event as a source, for machines on which the module cannot be loaded: the PMU's counters where the
//! kernel has a driver for them, else what software counts.
//!
//! Times are CLOCK_MONOTONIC_RAW in ns, which `meta.json` presents as a TSC of 1 GHz. Quanta are built from the kernel's
//! reports of switches. In each, a clock counts its length, and any other event the periods of its samples: exactly so when
//! each single event is a sample, as the names of software events suggest.

mod cores;
mod event;
mod open;
pub(super) mod quanta;
pub(crate) mod record;
pub(super) mod stream;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use self::event::{NAMES, Name, PerfName, counts_ns, hardware, parse, software};
pub use self::open::{PerfOptions, PerfStream};

use self::open::Opened;
use self::quanta::Counted;
use self::record::{Timed, What};
use self::stream::{Stream, TSC_KHZ};
use super::rows::{SidebandRows, boot_id, host_name, kernel_release};
use super::{Sink, Source};
use crate::machine::Facts;
use crate::record::Attribution;
use crate::sideband::{self, now_ns};
use crate::symbol::kernel_symbols;
use crate::sys::clock::ClockPair;
use crate::sys::perf::Reading;
use crate::trace::{self, Clock, EventUse, Machine, Meta, Totals, share};
use crate::{Error, Result};

/// A record becomes visible up to this long after its time, so that younger ones wait for those of other CPUs.
const SETTLED_NS: u64 = 1_000_000;

/// The kernel's name for a thread that is on its way out and has no number any more (`perf_event_pid_type`, Linux,
/// kernel/events/core.c). It is no thread: taken for one, it would have been on a CPU since the beginning.
const REAPED: u32 = u32::MAX;

/// How call stacks are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerfStacks {
    /// Not at all.
    #[default]
    None,
    /// The kernel follows frame pointers.
    FramePointers,
    /// The kernel copies this many bytes of user stack, which are unwound by the files' unwind tables.
    Copied(u32),
}

/// Events opened on perf_event.
pub struct PerfSource {
    opened: Opened,
    options: PerfOptions,
    meta: Meta,
    /// Absent when only counts are wanted.
    stream: Option<Stream>,
    /// Records that are too young to be sure that none before them is missing.
    young: Vec<Timed>,
}

impl PerfSource {
    /// Opens the events.
    ///
    /// # Errors
    /// [`Error::PerfEvent`], or [`Error::NoProcess`].
    pub fn open(options: PerfOptions) -> Result<Self> {
        let opened = Opened::new(&options)?;
        let meta = meta(&options);
        Ok(Self { opened, options, meta, stream: None, young: Vec::new() })
    }

    fn process(sink: &mut dyn Sink, stream: &mut Stream, opened: &Opened, record: Timed) -> Result<()> {
        let ns = record.ns;
        match record.what {
            What::Report(entry) => stream.report(sink, ns, *entry),
            // Its exit was reported, and has ended its last quantum.
            What::Switch(switch) if switch.tid == REAPED => Ok(()),
            What::Switch(switch) => stream.switch(sink, ns, &switch),
            // The idle thread is nobody's.
            What::Sample(taken) if taken.tid == 0 || taken.tid == REAPED => Ok(()),
            What::Sample(taken) => match opened.index_of(taken.id) {
                Some(event) => stream.sample(sink, ns, event, &taken, opened.samples),
                None => Ok(()),
            },
            What::Throttled => {
                stream.throttled += 1;
                Ok(())
            }
        }
    }
}

impl Source for PerfSource {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn start(&mut self, sink: &mut dyn Sink) -> Result<()> {
        if self.opened.has_rings() {
            let clocks = self.options.events.iter().map(|event| event.id.is_clock());
            let events = self
                .meta
                .events
                .iter()
                .zip(clocks)
                .map(|(event, clock)| Counted::new(event, clock))
                .collect();
            let rows = SidebandRows::of_living_processes();
            let stream = Stream::with_quanta(events, 0, rows).with_this_kernels_chains();
            let mut stream = stream.awaiting(self.options.awaited());
            if matches!(self.options.stacks, PerfStacks::Copied(_)) {
                stream = stream.unwinding();
            }
            for entry in self.options.present().into_iter().flat_map(sideband::snapshot) {
                stream.note(sink, entry)?;
            }
            if sink.wants_kernel_symbols() && self.meta.events.iter().any(|event| event.kernel) {
                // Without the right the addresses are hidden; samples of the kernel then have no names.
                let symbols = kernel_symbols().unwrap_or_default();
                symbols.iter().try_for_each(|symbol| sink.kernel_symbol(symbol))?;
            }
            // Whoever is on a CPU now was there before; what came until here took its time, and was not measured.
            stream.started_at(now_ns());
            self.stream = Some(stream);
        }
        self.opened.enable()
    }

    fn wait(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<Vec<bool>> {
        let rings = self.opened.awake();
        let count = rings.len();
        let mut fds: Vec<PollFd<'_>> = rings
            .iter()
            .map(|&ring| self.opened.ring(ring).as_fd())
            .chain(others.iter().copied())
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let timeout =
            PollTimeout::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::io("wait for perf_event")(io::Error::from(errno))),
        }
        let hung = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        let asleep: Vec<usize> =
            rings.iter().zip(&fds).filter_map(|(&ring, fd)| hung(fd).then_some(ring)).collect();
        let readable = fds[count..].iter().map(|fd| fd.any().unwrap_or(false)).collect();
        drop(fds);
        // The ring of a thread that has ended would wake at once, again and again.
        self.opened.let_sleep(&asleep);
        Ok(readable)
    }

    fn take(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let settled = if self.opened.stopped { u64::MAX } else { now_ns().saturating_sub(SETTLED_NS) };
        let mut records = std::mem::take(&mut self.young);
        self.opened.drain(|record| records.push(record));
        records.sort_by_key(|record| record.ns);
        let young = records.partition_point(|record| record.ns <= settled);
        self.young = records.split_off(young);
        for record in records {
            Self::process(sink, stream, &self.opened, record)?;
        }
        if self.opened.stopped { stream.stop(sink, now_ns()) } else { stream.flush(sink, settled) }
    }

    fn stop(&mut self) -> Result<()> {
        self.opened.disable()
    }

    fn totals(&self) -> Result<Totals> {
        let readings = self.opened.read(self.options.events.len())?;
        let everything = self.options.everything();
        let on_cpu_ns = match &self.stream {
            // The events are on all the time, idle or not.
            Some(stream) if everything => stream.ended().1,
            _ => readings.on_cpu_ns,
        };
        let by_thread = self.stream.is_some() && !everything;
        let running = |(event, reading): (&PerfName, &Reading)| {
            // Only hardware counters can be too few.
            if event.id.is_hardware() { running_ns(reading, on_cpu_ns, by_thread) } else { on_cpu_ns }
        };
        let mut totals = Totals {
            counts: readings.events.iter().map(|reading| reading.count).collect(),
            running_tsc: self.options.events.iter().zip(&readings.events).map(running).collect(),
            on_cpu_tsc: on_cpu_ns,
            ..Totals::default()
        };
        if let Some(stream) = &self.stream {
            totals.quanta = stream.ended().0;
            totals.records = stream.samples;
            // The kernel does not say whether a lost record was a sample.
            totals.records_lost = stream.rows.lost;
            totals.throttled = stream.throttled;
        }
        Ok(totals)
    }

    fn pause_samples(&mut self, paused: bool) -> Result<bool> {
        if self.options.pausable {
            self.opened.pause_samples(paused)?;
        }
        Ok(self.options.pausable)
    }

    /// Perf_event does not tell when the last of a process's threads has gone; who started or chose it knows.
    fn is_over(&self) -> bool {
        false
    }

    fn now(&self) -> Option<u64> {
        Some(now_ns())
    }
}

/// How much of the time on CPUs a hardware event was counted; `by_thread` when it was opened for each thread on each CPU.
fn running_ns(reading: &Reading, on_cpu_ns: u64, by_thread: bool) -> u64 {
    let Reading { enabled_ns, running_ns, .. } = *reading;
    match by_thread {
        _ if running_ns == enabled_ns => on_cpu_ns,
        // On each CPU it is enabled also while the thread is on another.
        true => running_ns.min(on_cpu_ns),
        false => share(on_cpu_ns, running_ns, enabled_ns),
    }
}

/// The recording as the trace describes it.
fn meta(options: &PerfOptions) -> Meta {
    let facts = Facts::gather();
    let event = |event: &PerfName| {
        let (period, rate) = options.period_and_rate(event);
        let sampled = options.samples();
        trace::Event {
            name: event.name.clone(),
            encoding: event.id.config,
            mode: match (event.id.is_hardware(), sampled) {
                (_, false) => EventUse::Count,
                (true, true) => EventUse::Interrupt,
                (false, true) => EventUse::Software,
            },
            attribution: if event.id.is_hardware() || event.id.is_clock() {
                Attribution::Skid
            } else {
                Attribution::Cause
            },
            period: if sampled { period } else { 0 },
            rate: if sampled { rate } else { 0 },
            user: event.user,
            kernel: event.kernel,
            ..trace::Event::default()
        }
    };
    let processor = &facts.processor;
    Meta {
        hpm_version: env!("CARGO_PKG_VERSION").into(),
        source: "perf_event".into(),
        source_note: options.note.clone(),
        frame_pointers: options.samples() && options.stacks == PerfStacks::FramePointers,
        machine: Machine {
            pmu: "perf_event".into(),
            vendor: processor.vendor.clone(),
            family: processor.family.into(),
            model: processor.model.into(),
            stepping: processor.stepping.into(),
            cpus: sideband::possible_cpus().count() as u32,
            kernel_release: kernel_release(),
            host_name: host_name(),
            boot_id: boot_id(),
        },
        events: options.events.iter().map(event).collect(),
        clock: Clock { tsc_khz: TSC_KHZ.into(), pairs: vec![pair()] },
        command: options.command.clone(),
        ..Meta::default()
    }
}

/// The moment; the clock of records stands for the TSC.
fn pair() -> trace::ClockPair {
    let now = ClockPair::now();
    trace::ClockPair { tsc: now.monotonic_raw_ns, ..now.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_took_turns_is_told_also_when_everything_is_measured() {
        let reading = |running_ns| Reading { count: 1, enabled_ns: 8000, running_ns };
        assert_eq!(running_ns(&reading(8000), 100, false), 100);
        assert_eq!(running_ns(&reading(2000), 100, false), 25, "of CPUs that were idle most of the time");
        assert_eq!(running_ns(&reading(0), 100, false), 0);
        assert_eq!(running_ns(&reading(60), 100, true), 60);
        assert_eq!(running_ns(&Reading::default(), 100, false), 100, "nothing was on a CPU");
    }
}
