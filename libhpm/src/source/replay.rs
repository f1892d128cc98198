//! A recorded trace as a source: its rows come again as fast as they did then, faster or slower, or all at once.

mod ahead;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::ahead::Ahead;
use super::{Sink, Source};
use crate::trace::{
    Cut, KernelSymbolRow, MapRow, MarkerRow, Meta, QuantumRow, Row, SampleRow, StackRow, ThreadRow, Totals,
    TraceReader,
};
use crate::{Error, Result};

/// How fast a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// As fast as it can be read.
    Unlimited,
    /// So many times as fast as it was recorded; more than 0.
    Times(f64),
    /// As fast as it can be read, but at each [`Source::take`] only what happened in the next so long of the recording.
    Steps(Duration),
}

/// A trace being replayed.
pub struct Replay {
    meta: Meta,
    speed: Speed,
    clock: Option<ReplayClock>,
    /// What it lacked when it was opened, as sentences.
    lacking: Vec<String>,
    quanta: Ahead<QuantumRow>,
    samples: Ahead<SampleRow>,
    maps: Ahead<MapRow>,
    threads: Ahead<ThreadRow>,
    markers: Ahead<MarkerRow>,
    stacks: Ahead<StackRow>,
    kernel_symbols: Ahead<KernelSymbolRow>,
    /// Stacks that were read, by their numbers in the trace.
    known_stacks: HashMap<u32, StackRow>,
    totals: Totals,
    /// When the recording began: TSC.
    first_tsc: u64,
    /// Until when it was replayed: TSC.
    last_tsc: u64,
    /// Latest end of a quantum, or time of a sample.
    reached_tsc: u64,
    over: bool,
}

/// Which time of the trace it is now.
#[derive(Clone, Copy, Debug)]
struct ReplayClock {
    began: Instant,
    first_tsc: u64,
    ticks_per_second: f64,
}

impl ReplayClock {
    fn now_tsc(&self) -> u64 {
        // Beyond the range of u64 the conversion saturates, which is the end of time.
        self.first_tsc.saturating_add((self.began.elapsed().as_secs_f64() * self.ticks_per_second) as u64)
    }
}

impl Replay {
    /// Replays a trace from its first row.
    #[must_use]
    pub fn new(reader: &TraceReader, speed: Speed) -> Self {
        Self {
            meta: reader.meta().clone(),
            speed,
            clock: None,
            lacking: reader.lacking(),
            quanta: Ahead::new(reader.rows()),
            samples: Ahead::new(reader.rows()),
            maps: Ahead::new(reader.rows()),
            threads: Ahead::new(reader.rows()),
            markers: Ahead::new(reader.rows()),
            stacks: Ahead::new(reader.rows()),
            kernel_symbols: Ahead::new(reader.rows()),
            known_stacks: HashMap::new(),
            totals: Totals::default(),
            first_tsc: 0,
            last_tsc: 0,
            reached_tsc: 0,
            over: false,
        }
    }

    /// The time of the earliest row that is next in its table.
    fn next_tsc(&mut self) -> Option<u64> {
        let next = [
            self.quanta.peek().map(|row| row.end_tsc),
            self.samples.peek().map(|row| row.tsc),
            self.maps.peek().map(|row| row.tsc),
            self.threads.peek().map(|row| row.tsc),
            self.markers.peek().map(|row| row.tsc),
        ];
        next.into_iter().flatten().min()
    }

    /// When measuring began, as far as the trace tells. What was there before may have any time, or none (0), as in a file of
    /// `perf record`.
    fn begin_tsc(&mut self) -> Option<u64> {
        let measured = [
            // The first quantum began before it ended.
            self.quanta.peek().map(|row| row.start_tsc),
            self.samples.peek().map(|row| row.tsc),
            self.markers.peek().map(|row| row.tsc),
        ];
        measured.into_iter().flatten().min().or_else(|| self.next_tsc())
    }

    /// Hands over everything that happened until so long after the recording began, whatever the speed; what was handed over
    /// already does not come again. For who has a clock of his own, such as one that can be stopped. [`Source::start`] comes
    /// first.
    ///
    /// # Errors
    /// As [`Source::take`].
    pub fn take_until(&mut self, elapsed: Duration, sink: &mut dyn Sink) -> Result<()> {
        let ticks = (elapsed.as_secs_f64() * self.meta.clock.tsc_khz as f64 * 1e3) as u64;
        self.take_until_tsc(self.first_tsc.saturating_add(ticks), sink)
    }

    /// The time of the recording's first row: a TSC value, 0 before [`Source::start`].
    #[must_use]
    pub fn first_tsc(&self) -> u64 {
        self.first_tsc
    }

    fn take_until_tsc(&mut self, now: u64, sink: &mut dyn Sink) -> Result<()> {
        for row in until(&mut self.maps, now, |row| row.tsc) {
            sink.map(&row)?;
        }
        for row in until(&mut self.threads, now, |row| row.tsc) {
            sink.thread(&row)?;
        }
        while let Some(row) = self.quanta.next_if(|row| row.end_tsc <= now) {
            self.quantum(sink, &row)?;
        }
        // A sample may come before its quantum has ended.
        while let Some(row) = self.samples.next_if(|row| row.tsc <= now) {
            self.sample(sink, row)?;
        }
        for row in until(&mut self.markers, now, |row| row.tsc) {
            sink.marker(&row)?;
        }
        self.over = self.next_tsc().is_none();
        self.last_tsc = if self.over { self.reached_tsc.min(now) } else { now.max(self.last_tsc) };
        Ok(())
    }

    /// At least one, so that a step leads on.
    fn ticks(&self, time: Duration) -> u64 {
        ((time.as_secs_f64() * self.meta.clock.tsc_khz as f64 * 1e3) as u64).max(1)
    }

    /// The sink's number of a stack, which stands before the first sample that names it. A sink that has begun another trace
    /// has other numbers, so it is asked for each sample.
    fn stack(&mut self, sink: &mut dyn Sink, id: u32) -> Result<Option<u32>> {
        while !self.known_stacks.contains_key(&id) {
            let Some(row) = self.stacks.next_if(|_| true) else { return Ok(None) };
            self.known_stacks.insert(row.id, row);
        }
        let row = &self.known_stacks[&id];
        Ok(Some(sink.stack(&row.frames, row.truncated)?))
    }

    fn sample(&mut self, sink: &mut dyn Sink, mut row: SampleRow) -> Result<()> {
        row.stack = match row.stack {
            Some(id) => self.stack(sink, id)?,
            None => None,
        };
        self.reached_tsc = self.reached_tsc.max(row.tsc);
        Ok(sink.sample(&row)?)
    }

    fn quantum(&mut self, sink: &mut dyn Sink, row: &QuantumRow) -> Result<()> {
        self.totals.add_quantum(row);
        self.reached_tsc = self.reached_tsc.max(row.end_tsc);
        Ok(sink.quantum(row)?)
    }
}

/// Rows of a table up to a time, in the order in which they were written.
fn until<R: Row>(rows: &mut Ahead<R>, tsc: u64, time: fn(&R) -> u64) -> impl Iterator<Item = R> {
    std::iter::from_fn(move || rows.next_if(|row| time(row) <= tsc))
}

impl Source for Replay {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn start(&mut self, sink: &mut dyn Sink) -> Result<()> {
        while let Some(symbol) = self.kernel_symbols.next_if(|_| true) {
            sink.kernel_symbol(&symbol)?;
        }
        let first = self.begin_tsc();
        (self.first_tsc, self.last_tsc) = (first.unwrap_or(0), first.unwrap_or(0));
        if let (Speed::Times(times), Some(first_tsc)) = (self.speed, first) {
            let ticks_per_second = self.meta.clock.tsc_khz as f64 * 1e3 * times;
            self.clock = Some(ReplayClock { began: Instant::now(), first_tsc, ticks_per_second });
        }
        Ok(())
    }

    fn wait(&mut self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<Vec<bool>> {
        // What is next is due at once, or a look at the clock later.
        let timeout =
            if self.clock.is_none() { Duration::ZERO } else { timeout.min(Duration::from_millis(10)) };
        let mut fds: Vec<PollFd<'_>> = others.iter().map(|&fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO)) {
            Ok(_) | Err(Errno::EINTR) => Ok(fds.iter().map(|fd| fd.any().unwrap_or(false)).collect()),
            Err(errno) => Err(Error::io("wait for the trace")(std::io::Error::from(errno))),
        }
    }

    fn take(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let now = match (&self.clock, self.speed) {
            (Some(clock), _) => clock.now_tsc(),
            (None, Speed::Steps(step)) => self.last_tsc.saturating_add(self.ticks(step)),
            (None, _) => u64::MAX,
        };
        self.take_until_tsc(now, sink)
    }

    fn stop(&mut self) -> Result<()> {
        Ok(())
    }

    /// Those of the recording, once all of it was replayed and if it came to its end; else sums of what was handed over, as are the
    /// counts of a recording that kept none.
    fn totals(&self) -> Result<Totals> {
        match &self.meta.totals {
            Some(totals) if self.over && totals.counts.is_empty() => {
                Ok(Totals { counts: self.totals.counts.clone(), ..totals.clone() })
            }
            Some(totals) if self.over => Ok(totals.clone()),
            _ => Ok(self.totals.clone()),
        }
    }

    /// What the trace lacked before, and what is missing in the tables whose ends were reached.
    fn missing(&self) -> Vec<String> {
        let cuts = [
            self.quanta.cut(),
            self.samples.cut(),
            self.maps.cut(),
            self.threads.cut(),
            self.markers.cut(),
            self.stacks.cut(),
            self.kernel_symbols.cut(),
        ];
        let cuts = cuts.into_iter().flatten().map(|cut: Cut| cut.to_string());
        self.lacking.iter().cloned().chain(cuts).collect()
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn elapsed(&self) -> Option<Duration> {
        let ticks = self.last_tsc.saturating_sub(self.first_tsc) as f64;
        let seconds = ticks / (self.meta.clock.tsc_khz as f64 * 1e3);
        // Without a rate of the clock it is not known.
        Some(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Nowhere;
    use crate::trace::{Limits, RotatingWriter, TraceWriter};

    /// Samples of two stacks in turn, 100 ms apart by a clock of 1 MHz.
    fn recorded(folder: &std::path::Path) -> TraceReader {
        let mut meta = Meta::default();
        meta.clock.tsc_khz = 1000;
        let mut writer = TraceWriter::create(folder, meta).unwrap();
        for tsc in 0..6 {
            let stack = writer.stack(&[tsc % 2, 7], tsc % 2 == 0).unwrap();
            writer
                .sample(&SampleRow { tsc: tsc * 100_000, stack: Some(stack), ..SampleRow::default() })
                .unwrap();
        }
        writer.finish(Totals::default()).unwrap();
        TraceReader::open(folder).unwrap()
    }

    #[test]
    fn stacks_are_right_in_each_trace_of_a_rotating_recording() {
        let temp = tempfile::tempdir().unwrap();
        let reader = recorded(&temp.path().join("a.hpm"));
        let limits = Limits { on_request: true, ..Limits::default() };
        let mut writer = RotatingWriter::create(temp.path().join("b.hpm"), Meta::default(), limits).unwrap();
        let mut replay = Replay::new(&reader, Speed::Times(1.0));
        replay.start(&mut writer).unwrap();
        while !replay.is_over() {
            replay.wait(&[], Duration::from_millis(10)).unwrap();
            replay.take(&mut writer).unwrap();
            writer.dump(replay.totals().unwrap()).unwrap();
        }
        let written = writer.finish(replay.totals().unwrap()).unwrap();
        let mut seen = Vec::new();
        let mut traces = 0;
        for folder in &written.folders {
            let reader = TraceReader::open(folder).unwrap();
            let stacks: HashMap<u32, StackRow> =
                reader.rows::<StackRow>().map(|stack| (stack.id, stack)).collect();
            let samples: Vec<SampleRow> = reader.rows().collect();
            traces += usize::from(!samples.is_empty());
            for sample in samples {
                let stack = &stacks[&sample.stack.unwrap()];
                let turn = sample.tsc / 100_000 % 2;
                assert_eq!((&stack.frames[..], stack.truncated), (&[turn, 7][..], turn == 0));
                seen.push(sample.tsc);
            }
        }
        assert_eq!(seen, [0, 100_000, 200_000, 300_000, 400_000, 500_000]);
        assert!(traces > 1, "all samples came at once, so that nothing was shown");
    }

    #[test]
    fn what_a_damaged_trace_lacks_is_told() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("a.hpm");
        let whole = |reader: &TraceReader| {
            let mut replay = Replay::new(reader, Speed::Unlimited);
            replay.start(&mut Nowhere).unwrap();
            replay.take(&mut Nowhere).unwrap();
            replay.missing()
        };
        let reader = recorded(&folder);
        assert_eq!(whole(&reader), [""; 0]);
        let mut begun = Replay::new(&reader, Speed::Unlimited);
        begun.start(&mut Nowhere).unwrap();
        assert_eq!(begun.missing(), [""; 0], "what was not read yet is not missing");
        let table = folder.join("samples.arrows");
        let bytes = std::fs::read(&table).unwrap();
        std::fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
        let missing = whole(&reader);
        assert!(missing.len() == 1 && missing[0].contains("`samples` is cut off or damaged"), "{missing:?}");
        let meta = std::fs::read_to_string(folder.join("meta.json")).unwrap();
        let killed = meta.replace("\"complete\": true", "\"complete\": false");
        std::fs::write(folder.join("meta.json"), killed).unwrap();
        let replay = Replay::new(&TraceReader::open(&folder).unwrap(), Speed::Unlimited);
        assert!(replay.missing()[0].contains("did not come to its proper end"), "{:?}", replay.missing());
    }

    /// As a file of `perf record` is imported.
    #[test]
    fn what_was_there_before_is_no_beginning_and_counts_that_were_not_kept_are_summed() {
        let temp = tempfile::tempdir().unwrap();
        let mut meta = Meta::default();
        meta.clock.tsc_khz = 1000;
        let mut writer = TraceWriter::create(temp.path().join("a.hpm"), meta).unwrap();
        writer.thread(&ThreadRow::default()).unwrap();
        for start_tsc in [5_000_000, 5_010_000] {
            let row =
                QuantumRow { start_tsc, end_tsc: start_tsc + 4000, counts: vec![7], ..QuantumRow::default() };
            writer.quantum(&row).unwrap();
        }
        writer.sample(&SampleRow { tsc: 5_015_000, ..SampleRow::default() }).unwrap();
        writer.finish(Totals { on_cpu_tsc: 8000, records: 1, ..Totals::default() }).unwrap();
        let mut replay =
            Replay::new(&TraceReader::open(temp.path().join("a.hpm")).unwrap(), Speed::Unlimited);
        replay.start(&mut Nowhere).unwrap();
        assert_eq!(replay.first_tsc(), 5_000_000);
        replay.take(&mut Nowhere).unwrap();
        assert_eq!(replay.elapsed().unwrap(), Duration::from_millis(15));
        let totals = replay.totals().unwrap();
        assert_eq!((totals.counts, totals.on_cpu_tsc, totals.records), (vec![14], 8000, 1));
    }

    #[test]
    fn steps_and_elapsed_time_are_those_of_the_recording() {
        let temp = tempfile::tempdir().unwrap();
        let mut meta = Meta::default();
        meta.clock.tsc_khz = 1000;
        let mut writer = TraceWriter::create(temp.path().join("a.hpm"), meta).unwrap();
        for start_tsc in [5_000, 15_000, 42_000] {
            writer
                .quantum(&QuantumRow { start_tsc, end_tsc: start_tsc + 2000, ..QuantumRow::default() })
                .unwrap();
        }
        writer.finish(Totals::default()).unwrap();
        let reader = TraceReader::open(temp.path().join("a.hpm")).unwrap();
        let mut replay = Replay::new(&reader, Speed::Steps(Duration::from_millis(10)));
        replay.start(&mut Nowhere).unwrap();
        let mut seen = Vec::new();
        while !replay.is_over() {
            replay.take(&mut Nowhere).unwrap();
            seen.push((replay.elapsed().unwrap().as_millis(), replay.totals.quanta));
        }
        assert_eq!(seen, [(10, 1), (20, 2), (30, 2), (39, 3)]);
        let mut stopped = Replay::new(&reader, Speed::Unlimited);
        stopped.start(&mut Nowhere).unwrap();
        let mut at = |ms| {
            stopped.take_until(Duration::from_millis(ms), &mut Nowhere).unwrap();
            (stopped.elapsed().unwrap().as_millis(), stopped.totals.quanta, stopped.is_over())
        };
        assert_eq!(
            [at(10), at(5), at(20), at(50)],
            [(10, 1, false), (10, 1, false), (20, 2, false), (39, 3, true)]
        );
        let mut at_once = Replay::new(&reader, Speed::Unlimited);
        at_once.start(&mut Nowhere).unwrap();
        at_once.take(&mut Nowhere).unwrap();
        assert!(at_once.is_over() && at_once.elapsed() == Some(Duration::from_millis(39)));
    }
}
