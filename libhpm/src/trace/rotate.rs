//! A recording in several traces, each of a limited size and complete in itself.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::TraceError;
use super::meta::{ClockPair, Meta};
use super::row::{KernelSymbolRow, MapRow, MarkerRow, QuantumRow, SampleRow, ThreadRow};
use super::span::SampleSpan;
use super::totals::{Part, Totals};
use super::writer::TraceWriter;
use crate::Result;
use crate::source::Sink;

/// When a trace is ended and the next one begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a trace at which it is ended, give or take the rows of a second; `None` for no limit. At least half of each is its own:
    /// where what every trace repeats (the kernel's functions alone take megabytes) is more than half of the limit, it is ended at
    /// twice that.
    pub bytes: Option<u64>,
    /// Traces that are kept: the oldest is removed for a new one. `None` keeps all.
    pub keep: Option<usize>,
    /// A trace can also be ended when somebody asks ([`RotatingWriter::dump`]).
    pub on_request: bool,
}

/// Writes a trace, and when it has reached its size another one beside it: `NAME.hpm`, `NAME-2.hpm`, ….
///
/// What later rows refer to (mappings, threads, kernel functions) is written again into each.
pub struct RotatingWriter {
    first: PathBuf,
    limits: Limits,
    meta: Meta,
    current: TraceWriter,
    /// Bytes of the current trace that the one before it has too.
    repeated: u64,
    /// Number of the current trace, from 1.
    number: usize,
    /// Traces that are complete, oldest first.
    ended: VecDeque<PathBuf>,
    removed: usize,
    maps: Vec<MapRow>,
    threads: Vec<ThreadRow>,
    kernel_symbols: Vec<KernelSymbolRow>,
    /// What the current trace holds of the session.
    part: Part,
    samples: u64,
    paused: bool,
    /// What ended before this moment of the rows' clock is left out.
    since: u64,
    /// The last quantum was left out, and with it what comes of its samples at once.
    skips: bool,
    /// Something was left out of the current trace while it paused, so that only its own sums hold.
    left_out: bool,
}

/// What a recording has become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The traces that are there, oldest first.
    pub folders: Vec<PathBuf>,
    /// How many were removed to stay within [`Limits::keep`].
    pub removed: usize,
    /// Samples that were written, also to traces that were removed.
    pub samples: u64,
}

impl RotatingWriter {
    /// Creates the first trace.
    ///
    /// # Errors
    /// As [`TraceWriter::create`].
    pub fn create(folder: impl Into<PathBuf>, meta: Meta, limits: Limits) -> Result<Self, TraceError> {
        let first = folder.into();
        Ok(Self {
            current: TraceWriter::create(&first, meta.clone())?,
            first,
            limits,
            meta,
            repeated: 0,
            number: 1,
            ended: VecDeque::new(),
            removed: 0,
            maps: Vec::new(),
            threads: Vec::new(),
            kernel_symbols: Vec::new(),
            part: Part::default(),
            samples: 0,
            paused: false,
            since: 0,
            skips: false,
            left_out: false,
        })
    }

    /// From now on, when the session has these sums, leaves quanta, samples and markers out, or takes them again. What they refer to is
    /// always written.
    pub fn pause(&mut self, paused: bool, now: Totals) {
        self.part.look(now, self.paused);
        self.paused = paused;
    }

    /// From now on, when the session has these sums, takes quanta, samples and markers again, but for those of before `since` on the rows'
    /// clock, which a source may have held back. The quantum that ran at that moment is taken whole.
    pub fn go_on(&mut self, since: u64, now: Totals) {
        self.since = since;
        self.pause(false, now);
    }

    /// Ends the current trace and begins another one, when the session has these sums; the folder that is complete now.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    ///
    /// # Panics
    /// When [`Limits::on_request`] was not set: the next trace would lack what it refers to.
    pub fn dump(&mut self, now: Totals) -> Result<PathBuf, TraceError> {
        assert!(self.limits.on_request, "what later traces refer to was not kept");
        let folder = self.current.folder().to_owned();
        self.rotate(now)?;
        Ok(folder)
    }

    /// Adds what has to be known of this trace and of those after it ([`TraceWriter::remark`]).
    pub fn remark(&mut self, remark: &str) {
        self.current.remark(&[remark.to_owned()]);
        self.meta.remark(remark);
    }

    /// The trace that is being written.
    pub fn current(&mut self) -> &mut TraceWriter {
        &mut self.current
    }

    /// Whether what later traces refer to has to be kept.
    fn rotates(&self) -> bool {
        self.limits.bytes.is_some() || self.limits.on_request
    }

    /// To be called several times a second: writes what has waited for long, and begins a new trace when it is time, for which it
    /// asks for the session's sums.
    ///
    /// # Errors
    /// [`TraceError::Write`], or that there are no sums.
    pub fn tick(&mut self, now: impl FnOnce() -> Result<Totals>) -> Result<()> {
        self.current.tick()?;
        match self.limits.bytes {
            Some(limit) if self.current.bytes_written()? >= limit.max(2 * self.repeated) => {
                Ok(self.rotate(now()?)?)
            }
            _ => Ok(()),
        }
    }

    /// Completes the last trace. In a recording that is one trace these are its totals; each of several has the sums of
    /// its own quanta, and what was lost in its time.
    ///
    /// # Errors
    /// As [`TraceWriter::finish`].
    pub fn finish(mut self, totals: Totals) -> Result<Written, TraceError> {
        let whole = self.number == 1 && !self.left_out;
        self.part.look(totals.clone(), self.paused);
        let totals = if whole { totals } else { self.part.end() };
        let folder = self.current.folder().to_owned();
        self.current.finish(totals)?;
        self.ended.push_back(folder);
        Ok(Written { folders: self.ended.into(), removed: self.removed, samples: self.samples })
    }

    fn rotate(&mut self, now: Totals) -> Result<(), TraceError> {
        let (number, mut next) = self.next()?;
        self.maps.iter().try_for_each(|row| next.map(row))?;
        self.threads.iter().try_for_each(|row| next.thread(row))?;
        self.kernel_symbols.iter().try_for_each(|row| next.kernel_symbol(row))?;
        next.flush()?;
        self.repeated = next.bytes_written()?;
        let full = std::mem::replace(&mut self.current, next);
        let done = full.folder().to_owned();
        (self.number, self.left_out) = (number, false);
        self.part.look(now, self.paused);
        full.finish(self.part.end())?;
        self.ended.push_back(done);
        // The current one counts too.
        while self.limits.keep.is_some_and(|keep| self.ended.len() + 1 > keep) {
            let Some(oldest) = self.ended.pop_front() else { break };
            fs::remove_dir_all(&oldest).map_err(|reason| TraceError::Write { path: oldest, reason })?;
            self.removed += 1;
        }
        Ok(())
    }

    /// Whether a row of this moment is.
    fn leaves_out(&self, tsc: u64) -> bool {
        self.paused || tsc < self.since
    }

    /// The next trace beside the first one, and its number: another recording's, whose number it would be, is not touched.
    fn next(&self) -> Result<(usize, TraceWriter), TraceError> {
        let mut number = self.number + 1;
        loop {
            match TraceWriter::create(numbered(&self.first, number), self.meta.clone()) {
                Err(TraceError::Exists(_)) => number += 1,
                created => return Ok((number, created?)),
            }
        }
    }
}

/// `NAME.hpm` with a number: `NAME-2.hpm`.
fn numbered(first: &Path, number: usize) -> PathBuf {
    let stem = first.file_stem().unwrap_or_default().to_string_lossy();
    let extension =
        first.extension().map_or(String::new(), |extension| format!(".{}", extension.to_string_lossy()));
    first.with_file_name(format!("{stem}-{number}{extension}"))
}

impl Sink for RotatingWriter {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        self.skips = self.leaves_out(row.end_tsc);
        if self.skips {
            self.left_out = true;
            return Ok(());
        }
        self.part.add_quantum(row);
        self.current.quantum(row)
    }
    fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        if self.leaves_out(row.tsc) {
            return Ok(());
        }
        self.samples += 1;
        self.current.sample(row)
    }
    fn samples(&mut self, span: &SampleSpan<'_>) -> Result<(), TraceError> {
        if self.paused || self.skips {
            return Ok(());
        }
        self.samples += span.len() as u64;
        self.current.samples(span)
    }
    fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        if self.rotates() {
            self.maps.push(row.clone());
        }
        self.current.map(row)
    }
    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        if self.rotates() {
            self.threads.push(row.clone());
        }
        self.current.thread(row)
    }
    fn kernel_symbol(&mut self, row: &KernelSymbolRow) -> Result<(), TraceError> {
        if self.rotates() {
            self.kernel_symbols.push(row.clone());
        }
        self.current.kernel_symbol(row)
    }
    fn marker(&mut self, row: &MarkerRow) -> Result<(), TraceError> {
        if self.leaves_out(row.tsc) {
            return Ok(());
        }
        self.current.marker(row)
    }
    fn stack(&mut self, frames: &[u64], truncated: bool) -> Result<u32, TraceError> {
        self.current.stack(frames, truncated)
    }
    fn clock_pair(&mut self, pair: ClockPair) -> Result<(), TraceError> {
        self.meta.clock.pairs.push(pair);
        self.current.clock_pair(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{TraceReader, TraceWriter};

    fn written(limits: Limits, rounds: u64) -> (tempfile::TempDir, Written) {
        let temp = tempfile::tempdir().unwrap();
        let event = crate::trace::Event { name: "instructions".into(), ..crate::trace::Event::default() };
        let meta = Meta { events: vec![event], ..Meta::default() };
        let mut writer = RotatingWriter::create(temp.path().join("a.hpm"), meta, limits).unwrap();
        writer.map(&MapRow { path: "/bin/true".into(), ..MapRow::default() }).unwrap();
        for round in 0..rounds {
            let stack = writer.stack(&[round], false).unwrap();
            writer.sample(&SampleRow { stack: Some(stack), tsc: round, ..SampleRow::default() }).unwrap();
            writer.quantum(&QuantumRow { counts: vec![2], end_tsc: 5, ..QuantumRow::default() }).unwrap();
            writer.current.flush().unwrap();
            writer.tick(|| Ok(Totals::default())).unwrap();
        }
        let written = writer.finish(Totals { counts: vec![99], ..Totals::default() }).unwrap();
        (temp, written)
    }

    #[test]
    fn without_a_limit_there_is_one_trace_with_its_totals() {
        let (_temp, written) = written(Limits::default(), 3);
        assert_eq!((written.folders.len(), written.samples), (1, 3));
        let reader = TraceReader::open(&written.folders[0]).unwrap();
        assert_eq!(reader.meta().totals.as_ref().unwrap().counts, [99]);
    }

    #[test]
    fn each_trace_is_complete_in_itself_and_none_is_missing() {
        let (_temp, written) = written(Limits { bytes: Some(20_000), ..Limits::default() }, 40);
        assert!(written.folders.len() > 2, "{written:?}");
        let mut times = Vec::new();
        for folder in &written.folders {
            let reader = TraceReader::open(folder).unwrap();
            assert!(reader.meta().complete);
            assert_eq!(reader.rows::<MapRow>().count(), 1);
            let samples: Vec<SampleRow> = reader.rows().collect();
            let stacks: Vec<crate::trace::StackRow> = reader.rows().collect();
            for sample in &samples {
                let stack = stacks.iter().find(|stack| Some(stack.id) == sample.stack).unwrap();
                assert_eq!(stack.frames, [sample.tsc]);
            }
            let counted = reader.meta().totals.as_ref().unwrap().counts.first().copied().unwrap_or(0);
            assert_eq!(counted, 2 * samples.len() as u64);
            times.extend(samples.iter().map(|sample| sample.tsc));
        }
        assert_eq!(times, (0..40).collect::<Vec<_>>());
    }

    #[test]
    fn a_limit_below_what_every_trace_repeats_does_not_end_one_at_every_tick() {
        let temp = tempfile::tempdir().unwrap();
        let limits = Limits { bytes: Some(20_000), ..Limits::default() };
        let mut writer = RotatingWriter::create(temp.path().join("a.hpm"), Meta::default(), limits).unwrap();
        for address in 0..20_000 {
            let name = format!("function_{:x}", address * 0x9e37_79b9_u64);
            writer.kernel_symbol(&KernelSymbolRow { address, name, ..KernelSymbolRow::default() }).unwrap();
        }
        for round in 0..60 {
            for sample in 0..1000_u64 {
                let address = sample.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
                writer.sample(&SampleRow { ip: address, tsc: address, ..SampleRow::default() }).unwrap();
            }
            writer.current.flush().unwrap();
            writer.tick(|| Ok(Totals::default())).unwrap();
        }
        let written = writer.finish(Totals::default()).unwrap();
        let own: Vec<usize> = written
            .folders
            .iter()
            .map(|folder| TraceReader::open(folder).unwrap().rows::<SampleRow>().count())
            .collect();
        assert_eq!(own.iter().sum::<usize>(), 60_000);
        // The first repeats nothing.
        assert!((3..20).contains(&own.len()) && own[1] > 3000, "{own:?}");
    }

    #[test]
    fn only_the_newest_are_kept() {
        let (temp, written) = written(Limits { bytes: Some(20_000), keep: Some(2), on_request: false }, 40);
        assert_eq!(written.folders.len(), 2);
        assert!(written.removed > 0);
        assert_eq!(temp.path().read_dir().unwrap().count(), 2);
        assert!(written.folders.iter().all(|folder| TraceReader::open(folder).is_ok()));
    }

    #[test]
    fn a_folder_that_is_there_already_is_not_touched() {
        let temp = tempfile::tempdir().unwrap();
        let folder = |name: &str| temp.path().join(name);
        let limits = Limits { bytes: Some(1), ..Limits::default() };
        let mut writer = RotatingWriter::create(folder("a.hpm"), Meta::default(), limits).unwrap();
        let other = Meta { command: vec!["another".into()], ..Meta::default() };
        drop(TraceWriter::create(folder("a-2.hpm"), other.clone()).unwrap());
        writer.tick(|| Ok(Totals::default())).unwrap();
        let written = writer.finish(Totals::default()).unwrap();
        assert_eq!(written.folders, ["a.hpm", "a-3.hpm"].map(folder));
        assert_eq!(TraceReader::open(folder("a-2.hpm")).unwrap().meta().command, other.command);
    }

    #[test]
    fn each_trace_tells_what_was_lost_in_its_time() {
        let temp = tempfile::tempdir().unwrap();
        let limits = Limits { on_request: true, ..Limits::default() };
        let mut writer = RotatingWriter::create(temp.path().join("a.hpm"), Meta::default(), limits).unwrap();
        let now = |lost, running| Totals {
            counts: vec![99],
            quanta_lost: lost,
            records_lost: 10 * lost,
            running_tsc: vec![running],
            on_cpu_tsc: 2 * running,
            ..Totals::default()
        };
        writer.dump(now(2, 50)).unwrap();
        writer.pause(true, now(3, 60));
        writer.pause(false, now(5, 80));
        let written = writer.finish(now(9, 90)).unwrap();
        let told = written
            .folders
            .iter()
            .map(|folder| TraceReader::open(folder).unwrap().meta().totals.clone().unwrap());
        let told: Vec<_> =
            told.map(|of| (of.quanta_lost, of.records_lost, of.running_tsc, of.on_cpu_tsc)).collect();
        assert_eq!(told, [(2, 20, vec![50], 100), (5, 50, vec![20], 40)]);
    }

    #[test]
    fn what_pauses_is_left_out_and_what_is_dumped_is_whole() {
        let temp = tempfile::tempdir().unwrap();
        let limits = Limits { on_request: true, ..Limits::default() };
        let mut writer = RotatingWriter::create(temp.path().join("a.hpm"), Meta::default(), limits).unwrap();
        let round = |writer: &mut RotatingWriter, tsc: u64| {
            writer.map(&MapRow { tsc, ..MapRow::default() }).unwrap();
            writer.quantum(&QuantumRow { counts: vec![2], end_tsc: tsc, ..QuantumRow::default() }).unwrap();
            writer.sample(&SampleRow { tsc, ..SampleRow::default() }).unwrap();
        };
        writer.pause(true, Totals::default());
        round(&mut writer, 1);
        writer.go_on(2, Totals::default());
        // Held back until now.
        round(&mut writer, 1);
        round(&mut writer, 2);
        let first = writer.dump(Totals::default()).unwrap();
        round(&mut writer, 3);
        let written = writer.finish(Totals { counts: vec![99], ..Totals::default() }).unwrap();
        assert_eq!((written.folders.len(), &written.folders[0], written.samples), (2, &first, 2));
        for (folder, tsc, maps) in [(0, 2, 3), (1, 3, 4)] {
            let reader = TraceReader::open(&written.folders[folder]).unwrap();
            let times: Vec<u64> = reader.rows::<SampleRow>().map(|row| row.tsc).collect();
            assert_eq!((times, reader.rows::<MapRow>().count()), (vec![tsc], maps));
            assert!(reader.meta().complete && reader.meta().totals.as_ref().unwrap().counts == [2]);
        }
    }

    #[test]
    fn totals_of_what_paused_are_those_of_its_quanta() {
        let temp = tempfile::tempdir().unwrap();
        let mut writer =
            RotatingWriter::create(temp.path().join("a.hpm"), Meta::default(), Limits::default()).unwrap();
        let quantum = QuantumRow { counts: vec![2], ..QuantumRow::default() };
        writer.quantum(&quantum).unwrap();
        writer.pause(true, Totals::default());
        writer.quantum(&quantum).unwrap();
        let written = writer.finish(Totals { counts: vec![4], ..Totals::default() }).unwrap();
        let reader = TraceReader::open(&written.folders[0]).unwrap();
        assert_eq!(reader.meta().totals.as_ref().unwrap().counts, [2]);
    }
}
