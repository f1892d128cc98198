//! The driver as a source: its quanta and samples, and the kernel's reports of mappings and threads beside them.

mod blocks;
mod compact;
mod meta;
mod pressure;
mod rows;
mod sample;
mod spool;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use self::rows::Rows;
pub(crate) use self::spool::Frames;
use self::spool::{Part, Spool};
use super::rows::SidebandRows;
use super::{Sink, Source};
use crate::Result;
use crate::event::{self, CoreType, Event, Sampling, core_pmus, sampling};
use crate::machine::pmu_name;
use crate::session::{Marker, Session};
use crate::sideband::{self, Sideband};
use crate::symbol::kernel_symbols;
use crate::sys::clock::{ClockPair, tsc};
use crate::trace::{self, MapRow, MarkerRow, Meta, ThreadRow, Totals, running_tsc};

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
    /// Where quanta and samples wait for the end, if they do.
    spool: Option<Spool>,
    stopped: bool,
}

impl DriverSource {
    /// A configured session. With a `sideband` mappings and threads are handed over too, beginning with those
    /// of the processes `present`; the sampled program's `command` goes to `meta.json`.
    #[must_use]
    pub fn new(
        session: Session,
        sideband: Option<Sideband>,
        present: Vec<u32>,
        stacks: Stacks,
        command: &[std::ffi::OsString],
    ) -> Self {
        let meta = meta::meta(&session, command);
        let calls = (stacks == Stacks::Calls).then_some(session.config().branches);
        let rows = Rows::new(session.events(), &pmu_name(session.info()), stacks == Stacks::Unwind, calls);
        let paired = Instant::now();
        Self { session, sideband, present, meta, rows, paired, spool: None, stopped: false }
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
            if let Some(spool) = &mut self.spool {
                spool.begin(self.rows.begun())?;
            }
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
        let reports = self.sideband.as_mut().map(Sideband::reports).transpose()?.unwrap_or_default();
        let now = (!reports.is_empty()).then(ClockPair::now);
        match &mut self.spool {
            Some(spool) => {
                if let Some(now) = now {
                    self.rows.look_up(&reports);
                    spool.reports(&reports, now)?;
                }
                spool.append(&batch)?;
            }
            None => {
                if let Some(now) = now {
                    self.rows.entries(sink, reports.entries(), now, tsc_khz)?;
                }
                batch.quanta().try_for_each(|quantum| self.rows.quantum(sink, &quantum?))?;
            }
        }
        drop(batch);
        for marker in self.session.markers()? {
            sink.marker(&marker_row(&marker))?;
        }
        if self.paired.elapsed() >= PAIR_EACH {
            sink.clock_pair(ClockPair::now().into())?;
            self.paired = Instant::now();
        }
        match self.spool.take_if(|_| self.stopped) {
            Some(spool) => {
                self.rows.sideband.look_no_more();
                spool.read()?.hand_over(&mut self.rows, sink, tsc_khz)
            }
            None => Ok(()),
        }
    }

    fn defer(&mut self, file: &Path) -> Result<bool> {
        // Stacks are unwound while the files are there that the processes have mapped.
        if !self.rows.unwinds() && self.sideband.is_some() {
            self.spool = Some(Spool::create(file, self.session.config())?);
        }
        Ok(self.spool.is_some())
    }

    fn stop(&mut self) -> Result<()> {
        self.session.stop()?;
        self.stopped = true;
        Ok(())
    }

    fn totals(&self) -> Result<Totals> {
        let sums = self.session.totals()?;
        let events = self.session.config().event_count as usize;
        Ok(Totals {
            counts: sums.counts[..events].to_vec(),
            running_tsc: (0..events)
                .map(|event| running_tsc(sums.on_cpu_tsc, sums.running_tsc[event], sums.absent_tsc[event]))
                .collect(),
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
            stacks_lost: self.rows.stacks_lost,
            processes_left_out: sums.processes_left_out,
            sideband_lost: self.rows.sideband.lost,
        })
    }

    fn pause_samples(&mut self, paused: bool) -> Result<bool> {
        self.session.pause_samples(paused);
        Ok(true)
    }

    fn wish_rate(&mut self, per_second: u64) -> bool {
        let adapts = self.meta.events.iter().any(|event| event.rate > 0);
        if adapts {
            self.session.wish_rate(per_second);
        }
        adapts
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

impl Frames {
    /// Hands over the rows of a recording that made none ([`Source::defer`]) and of which `meta` tells, up to where it was cut off or goes
    /// on; before them those of what was there already, which are the first of `maps` and `threads`.
    ///
    /// # Errors
    /// The file is damaged, or the sink fails; what comes before has been handed over.
    pub(crate) fn hand_over_all(
        &mut self,
        meta: &Meta,
        (maps, threads): (impl Iterator<Item = MapRow>, impl Iterator<Item = ThreadRow>),
        sink: &mut dyn Sink,
    ) -> Result<()> {
        let pmu = &meta.machine.pmu;
        let events: Vec<Event> = meta.events.iter().map(|used| as_used(used, pmu)).collect();
        let begun = self.begun();
        let mut rows = Rows::new(&events, pmu, false, begun.calls);
        // Its processes may have been another machine's.
        rows.sideband = SidebandRows::default();
        // Not more of the tables' rows: a recording that was killed at its end may have begun to make them.
        for row in maps.take(begun.maps as usize) {
            row.build_id.iter().for_each(|id| rows.sideband.set_build_id(&row.path, id));
            sink.map(&row)?;
        }
        for row in threads.take(begun.threads as usize) {
            rows.sideband.set_name(&row);
            sink.thread(&row)?;
        }
        self.hand_over(&mut rows, sink, u32::try_from(meta.clock.tsc_khz).unwrap_or(u32::MAX))
    }

    fn hand_over(&mut self, rows: &mut Rows, sink: &mut dyn Sink, tsc_khz: u32) -> Result<()> {
        while self.next(|part| match part {
            Part::Quantum(quantum) => rows.quantum(sink, quantum),
            Part::Reports(entries, now) => rows.entries(sink, entries, now, tsc_khz),
        })? {}
        Ok(())
    }
}

/// An event of a recording; where its name was not typed, but made, it may mean nothing.
fn as_used(used: &trace::Event, pmu: &str) -> Event {
    event::parse(&used.name, pmu).unwrap_or_else(|_| Event {
        name: used.name.clone(),
        encoding: used.encoding,
        precise_encoding: used.encoding,
        extra: used.extra,
        core_type: CoreType::Any,
        sampling: core_pmus(pmu).next().map_or(Sampling::Imprecise, |(_, pmu)| sampling(used.encoding, pmu)),
        must_be_precise: false,
        user: used.user,
        kernel: used.kernel,
        description: "",
    })
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
