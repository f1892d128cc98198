//! A file of `perf record` as a source: its records as the rows that a recording of hpm would have.
//!
//! linux-perf-data reads the file's outside, brings its records into the order of time and unpacks compressed ones;
//! linux-perf-event-reader reads each record. What they take on trust is checked before (`container`, `record`). Times are
//! those of the file's clock in ns, which `meta.json` presents as a TSC of 1 GHz.
//!
//! Not taken over are branch stacks, data sources, weights, the text of tracepoints and what Intel PT traced.

mod bytes;
mod container;
mod kernel;
mod mended;
mod meta;
mod record;

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use linux_perf_data::{DsoKey, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter};

use self::container::{Container, Input, Shape};
use self::kernel::RecordedKernel;
use self::mended::Mended;
use self::meta::{EVENTS_MAX, Events};
use self::record::{Told, What, told};
use super::perf::stream::Stream;
use super::rows::SidebandRows;
use super::{Sink, Source};
use crate::Result;
use crate::error::Error;
use crate::sideband::Change;
use crate::symbol::KERNEL_START;
use crate::trace::{EventUse, Meta, Totals, TraceWriter};

/// Records that are handed over by one call of [`Source::take`].
const RECORDS: usize = 100_000;

/// A perf.data file.
pub struct PerfData {
    file: PerfFile,
    records: PerfRecordIter<BufReader<Mended>>,
    meta: Meta,
    events: Events,
    stream: Option<Stream>,
    kernel: RecordedKernel,
    /// Some address is the kernel's.
    kernel_seen: bool,
    /// Time of the last record.
    ns: u64,
    seen: Seen,
    damage: Vec<String>,
    /// Why functions of the kernel have no names.
    unnamed: Option<String>,
    over: bool,
}

/// What has to be said of a file's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    damaged: u64,
    guests: u64,
    throttled: u64,
    /// Samples of precise events of which hardware does not say that their addresses are exact.
    inexact: u64,
}

/// Whether a path is a file that begins as those of `perf record` do.
#[must_use]
pub fn is_perf_data(path: &Path) -> bool {
    let mut magic = [0; container::MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *container::MAGIC
}

/// Writes all of a file of `perf record` to a trace. Returned is what is missing or inexact, one sentence each; the trace's
/// `source_note` says that, and what else has to be known. What the file itself lacks the trace has in [`Meta::missing`].
///
/// # Errors
/// [`Error::PerfData`] when the file cannot be read, [`Error::Trace`] when the trace cannot be written; nothing of it is left then.
pub fn import(path: &Path, folder: &Path) -> Result<Vec<String>> {
    let source = PerfData::open(path)?;
    let meta = source.meta().clone();
    TraceWriter::whole(folder, meta, |writer| write(source, writer))
}

/// Writes all of a source that has not been started; returns what it lacks.
fn write(mut source: PerfData, mut writer: TraceWriter) -> Result<Vec<String>> {
    source.start(&mut writer)?;
    while !source.is_over() {
        source.take(&mut writer)?;
    }
    source.take(&mut writer)?;
    let (losses, remarks) = (source.losses(), source.remarks());
    writer.remark(&[&losses[..], &remarks].concat());
    writer.missing(&source.missing());
    writer.finish(source.totals()?)?;
    Ok(losses)
}

impl PerfData {
    /// Opens a file.
    ///
    /// # Errors
    /// [`Error::PerfData`].
    pub fn open(path: &Path) -> Result<Self> {
        let refused = |problem: String| Error::PerfData { path: path.to_owned(), problem };
        let file = File::open(path).map_err(|error| refused(error.to_string()))?;
        if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
            return Err(refused(
                "it is a folder, as `perf record --threads` makes it; record without that".into(),
            ));
        }
        Self::read(Box::new(file)).map_err(refused)
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// [`Error::PerfData`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let refused = |problem: String| Error::PerfData { path: "(memory)".into(), problem };
        Self::read(Box::new(std::io::Cursor::new(bytes))).map_err(refused)
    }

    fn read(input: Box<dyn Input>) -> Result<Self, String> {
        let Container { shape, input, damage, read_formats } = Container::open(input)?;
        let reader = match shape {
            Shape::File => PerfFileReader::parse_file(input),
            Shape::Pipe => PerfFileReader::parse_pipe(input),
        };
        let PerfFileReader { perf_file: file, record_iter: records } =
            reader.map_err(|error| error.to_string())?;
        if let Some(arch) =
            file.arch().ok().flatten().filter(|arch| !["x86_64", "i686", "i386"].contains(arch))
        {
            return Err(format!("it was recorded on {arch}, and hpm reads those of x86"));
        }
        let mut meta = meta::meta(&file);
        let events = Events::new(file.event_attributes(), &read_formats, &meta.machine.vendor);
        if events.events.len() > EVENTS_MAX {
            return Err(format!("it has {} events, and a trace at most {EVENTS_MAX}", events.events.len()));
        }
        meta.events.clone_from(&events.events);
        let build_id = file.build_ids().ok().and_then(|ids| Some(ids.get(&DsoKey::Kernel)?.build_id.clone()));
        let kernel =
            RecordedKernel { release: meta.machine.kernel_release.clone(), build_id, reference: None };
        Ok(Self {
            file,
            records,
            meta,
            events,
            stream: None,
            kernel,
            kernel_seen: false,
            ns: 0,
            seen: Seen::default(),
            damage,
            unnamed: None,
            over: false,
        })
    }

    /// What the file does not tell at all, one sentence each.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.events.cpus {
            remarks.push("it does not say on which CPU a sample was taken, so all are shown on CPU 0 (`perf record --sample-cpu` tells)".into());
        }
        if !self.events.switches {
            remarks.push("it has no switches, and so no quanta (`perf record --switch-events` tells)".into());
        }
        remarks
    }

    /// What is missing, damaged or inexact, one sentence each; complete once all was taken.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        let Seen { guests, throttled, inexact, .. } = self.seen;
        let counted = [
            (guests, "samples of a guest are left out"),
            (throttled, "times the kernel held samples back, because they came too fast"),
            (inexact, "samples of precise events have no exact address, as hardware says"),
        ];
        let counted =
            counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        let mut losses = self.missing();
        losses.extend(self.unnamed.clone());
        losses.extend(counted);
        losses
    }

    /// The stream, with the build IDs that the file lists.
    fn stream(&mut self) -> &mut Stream {
        let (events, file) = (&self.events, &self.file);
        self.stream.get_or_insert_with(|| {
            let mut rows = SidebandRows::default();
            for (key, dso) in file.build_ids().unwrap_or_default() {
                if matches!(key, DsoKey::User { .. }) {
                    rows.set_build_id(&String::from_utf8_lossy(&dso.path), &dso.build_id);
                }
            }
            let stream = match events.switches {
                true => Stream::with_quanta(events.counted.clone(), 0, rows),
                false => Stream::without_quanta(rows),
            };
            if events.stacks { stream.unwinding() } else { stream }
        })
    }

    /// Takes the next record; `false` at the end.
    fn next(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let (found, event) = match self.records.next_record(&mut self.file) {
            Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => {
                let layout = self.events.layouts.get(attr_index).copied().unwrap_or_default();
                (told(&record, layout), self.events.places.get(attr_index).copied().flatten())
            }
            Ok(Some(PerfFileRecord::UserRecord(_))) => return Ok(true),
            Ok(None) => return Ok(false),
            Err(error) => {
                self.damage.push(format!("what comes after a damaged record is not read ({error})"));
                return Ok(false);
            }
        };
        let Some(told) = found else {
            self.seen.damaged += 1;
            return Ok(true);
        };
        // What was there before has no time.
        let ns = told.ns.unwrap_or(0);
        if self.ns == 0 && ns > 0 {
            self.stream().started_at(ns);
        }
        self.ns = self.ns.max(ns);
        self.hand_over(sink, ns, told, event)?;
        Ok(true)
    }

    fn hand_over(
        &mut self,
        sink: &mut dyn Sink,
        ns: u64,
        mut told: Told,
        event: Option<usize>,
    ) -> Result<()> {
        match std::mem::replace(&mut told.what, What::Nothing) {
            What::Report(change) => self.report(sink, &told, ns, change),
            What::Kernel(mapping) => {
                self.kernel.note(&mapping);
                Ok(())
            }
            What::Switch(kind) => self.stream().switch(sink, ns, &told.switch(kind)),
            What::Sample(taken, exact) => {
                let Some(event) = event else { return Ok(()) };
                let precise = self.events.events[event].mode == EventUse::Precise;
                self.seen.inexact += u64::from(precise && !exact);
                self.kernel_seen |=
                    taken.ip >= KERNEL_START || taken.chain.iter().any(|&ip| ip >= KERNEL_START);
                self.stream().sample(sink, ns, event, &taken, true)
            }
            What::Guest => {
                self.seen.guests += 1;
                Ok(())
            }
            What::Throttled => {
                self.seen.throttled += 1;
                Ok(())
            }
            What::Nothing => Ok(()),
        }
    }

    fn report(&mut self, sink: &mut dyn Sink, told: &Told, ns: u64, change: Change) -> Result<()> {
        // The program begins with its execution, before which nothing of it was measured.
        let begins = self.events.on_exec && matches!(change, Change::Name { exec: true, .. });
        self.events.on_exec &= !begins;
        let stream = self.stream();
        if begins {
            stream.started_at(ns);
        }
        stream.report(sink, ns, told.entry(ns, change))
    }

    /// The kernel's functions, if they are needed.
    fn kernel_symbols(&mut self, sink: &mut dyn Sink) -> Result<()> {
        if !self.kernel_seen {
            return Ok(());
        }
        match self.kernel.symbols() {
            Ok(symbols) => symbols.iter().try_for_each(|symbol| Ok(sink.kernel_symbol(symbol)?)),
            Err(reason) => {
                self.unnamed = Some(format!("functions of the kernel have no names: {reason}"));
                Ok(())
            }
        }
    }
}

impl Source for PerfData {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn start(&mut self, _sink: &mut dyn Sink) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, others: &[BorrowedFd<'_>], _timeout: Duration) -> Result<Vec<bool>> {
        Ok(vec![false; others.len()])
    }

    fn take(&mut self, sink: &mut dyn Sink) -> Result<()> {
        if self.over {
            return Ok(());
        }
        for _ in 0..RECORDS {
            if !self.next(sink)? {
                let ns = self.ns;
                self.stream().stop(sink, ns)?;
                self.kernel_symbols(sink)?;
                self.over = true;
                break;
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        Ok(())
    }

    /// A file of `perf record` has no counts: those of the trace are what its samples stand for, and are left empty.
    fn totals(&self) -> Result<Totals> {
        let Some(stream) = &self.stream else { return Ok(Totals::default()) };
        let (quanta, on_cpu_tsc) = stream.ended();
        Ok(Totals {
            quanta,
            on_cpu_tsc,
            records: stream.samples,
            records_lost: stream.rows.lost,
            ..Totals::default()
        })
    }

    /// What the file should hold, and what of it is cut off or damaged.
    fn missing(&self) -> Vec<String> {
        let damaged = self.seen.damaged;
        let damaged = (damaged > 0).then(|| format!("{damaged} records are damaged and left out"));
        self.damage.iter().cloned().chain(damaged).collect()
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
