//! `hpmctl record --phase-guided`: samples pause where the program does what it has done before.
//!
//! Counts tell what it does ([`BehaviourControl`]); what was sampled of a behaviour stands for all of it ([`Shares`]). A sample is held back
//! until its interval is over, because only then is known for how many it stands: its period is multiplied by that.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use libhpm::analysis::phase::{Base, BehaviourControl, Interval, MAX_EVENTS, Shares, Signal, usual_event};
use libhpm::source::{Sink, Source};
use libhpm::trace::{
    ClockPair, Event, KernelSymbolRow, MapRow, MarkerRow, Meta, PhaseGuided, QuantumFlags, QuantumRow,
    RotatingWriter, SampleRow, ThreadRow, TraceError,
};

use crate::output::say;

/// Longest time between two looks at the source.
pub(super) const LOOK: Duration = Duration::from_millis(5);
/// Least time on a CPU of an interval.
const INTERVAL_MS: u64 = 10;
/// Intervals whose samples may still come: sources hold samples back until their quantum has ended.
const REMEMBERED: usize = 64;

/// Decides when samples are taken.
pub(super) struct Guide {
    control: BehaviourControl,
    shares: Shares,
    how: PhaseGuided,
    /// Ticks on a CPU that make an interval.
    length: u64,
    /// Sums at the end of the last interval.
    before: (u64, Vec<u64>),
    /// When that was.
    since: u64,
    paused: bool,
    /// Intervals that are over: their ends, and for how many each stands.
    over: VecDeque<(u64, f64)>,
    /// Stretches without samples that a quantum may still fall into.
    pauses: VecDeque<(u64, u64)>,
    /// Samples whose interval is not over.
    held: Vec<SampleRow>,
}

impl Guide {
    /// For a recording as described, by the density of the event of this name; of the first suitable one if it is empty.
    pub(super) fn new(meta: &Meta, event: &str) -> Result<Self> {
        let (index, event) = chosen(&meta.events, event)?;
        let how =
            PhaseGuided { event: event.name.clone(), interval_ms: INTERVAL_MS, ..PhaseGuided::default() };
        let mut control = BehaviourControl::new(Signal::new(&[index], Base::Time));
        // Of the first interval nothing is known: it is sampled in any case.
        control.decide();
        Ok(Self {
            control,
            shares: Shares::default(),
            how,
            length: INTERVAL_MS * meta.clock.tsc_khz,
            before: (0, vec![0; meta.events.len()]),
            since: 0,
            paused: false,
            over: VecDeque::new(),
            pauses: VecDeque::new(),
            held: Vec::new(),
        })
    }

    /// What is known of the whole so far.
    pub(super) fn so_far(&self) -> PhaseGuided {
        PhaseGuided { behaviours: self.control.behaviours() as u64, ..self.how.clone() }
    }

    /// Writes what the source has, and decides about the next interval when one is over.
    pub(super) fn take(&mut self, source: &mut dyn Source, writer: &mut RotatingWriter) -> Result<()> {
        source.take(&mut Guided { guide: self, writer })?;
        let totals = source.totals()?;
        let on_cpu = totals.on_cpu_tsc.saturating_sub(self.before.0);
        if on_cpu < self.length {
            return Ok(());
        }
        let now = source.now().context("this source has no clock to pause by")?;
        let behaviour = self.end_interval(on_cpu, &totals.counts, now);
        self.before = (totals.on_cpu_tsc, totals.counts);
        let pause = !self.control.decide();
        if pause != self.paused {
            if !source.pause_samples(pause)? {
                bail!("this source cannot pause samples: leave --phase-guided out");
            }
            self.paused = pause;
            self.note_pause(pause, now);
            let text = if pause { MarkerRow::PAUSED } else { MarkerRow::RESUMED }.to_owned();
            let value = behaviour.map(|behaviour| behaviour as u64);
            writer.marker(&MarkerRow { tsc: now, pid: None, tid: None, text, value })?;
        }
        // Only now: writing takes time, in which the next interval would be neither sampled nor paused as a whole.
        self.release(writer)
    }

    /// Writes the rest, once the source has stopped.
    pub(super) fn finish(&mut self, source: &mut dyn Source, writer: &mut RotatingWriter) -> Result<()> {
        source.take(&mut Guided { guide: self, writer })?;
        // Too short to say what it was: its samples stand for themselves.
        self.over.push_back((u64::MAX, 1.0));
        self.release(writer)?;
        let how = self.so_far();
        say(format_args!("{}", how.sentence()));
        writer.current().phase_guided(how);
        Ok(())
    }

    /// The behaviour of the interval that ends now.
    fn end_interval(&mut self, on_cpu: u64, sums: &[u64], now: u64) -> Option<usize> {
        let mut counts = [0; MAX_EVENTS];
        for ((count, sum), before) in counts.iter_mut().zip(sums).zip(&self.before.1) {
            *count = sum.saturating_sub(*before);
        }
        let interval = Interval { start: self.since, end: now, on_cpu, counts, after_gap: false };
        let behaviour = self.control.learn(&interval);
        let weight = self.shares.take(behaviour, !self.paused);
        self.how.intervals += 1;
        self.how.recorded += u64::from(!self.paused);
        // What comes in a pause was sampled before it, and stands for itself.
        self.over.push_back((now, if self.paused { 1.0 } else { weight }));
        if self.over.len() > REMEMBERED {
            self.over.pop_front();
        }
        self.since = now;
        behaviour
    }

    /// Writes the samples whose intervals are over.
    fn release(&mut self, writer: &mut RotatingWriter) -> Result<()> {
        let Some(&(last, _)) = self.over.back() else { return Ok(()) };
        for mut row in std::mem::take(&mut self.held) {
            if row.tsc > last {
                self.held.push(row);
                continue;
            }
            let weight = self.over.iter().find(|(end, _)| row.tsc <= *end).map_or(1.0, |(_, weight)| *weight);
            row.period = (row.period as f64 * weight).round() as u64;
            Sink::sample(writer, &row)?;
        }
        Ok(())
    }

    fn note_pause(&mut self, pause: bool, now: u64) {
        if pause {
            self.pauses.push_back((now, u64::MAX));
        } else if let Some(last) = self.pauses.back_mut() {
            last.1 = now;
        }
        if self.pauses.len() > REMEMBERED {
            self.pauses.pop_front();
        }
    }

    fn was_paused(&self, row: &QuantumRow) -> bool {
        self.pauses.iter().any(|&(from, to)| row.start_tsc < to && row.end_tsc > from)
    }
}

/// The event by whose density behaviours are told apart, and its place.
fn chosen<'a>(events: &'a [Event], name: &str) -> Result<(usize, &'a Event)> {
    let base = |event: &Event| event.name.split(':').next().unwrap_or_default().to_owned();
    let place = match name {
        "" => usual_event(events.iter().map(|event| &*event.name), Base::Time),
        name => events.iter().take(MAX_EVENTS).position(|event| event.name == name || base(event) == name),
    };
    place.map(|place| (place, &events[place])).with_context(|| {
        if name.is_empty() {
            "--phase-guided tells phases by the density of an event, and only clocks are recorded: name another one with -e too"
                .to_owned()
        } else {
            format!("--phase-guided={name}: this event is not recorded; name it with -e or --count too")
        }
    })
}

/// What the source hands over, on its way to the trace.
struct Guided<'a> {
    guide: &'a mut Guide,
    writer: &'a mut RotatingWriter,
}

impl Sink for Guided<'_> {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        if row.flags & QuantumFlags::PAUSED == 0 && self.guide.was_paused(row) {
            let flags = row.flags | QuantumFlags::PAUSED;
            return Sink::quantum(self.writer, &QuantumRow { flags, ..row.clone() });
        }
        Sink::quantum(self.writer, row)
    }
    fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        self.guide.held.push(row.clone());
        Ok(())
    }
    fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        Sink::map(self.writer, row)
    }
    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        Sink::thread(self.writer, row)
    }
    fn kernel_symbol(&mut self, row: &KernelSymbolRow) -> Result<(), TraceError> {
        Sink::kernel_symbol(self.writer, row)
    }
    fn marker(&mut self, row: &MarkerRow) -> Result<(), TraceError> {
        Sink::marker(self.writer, row)
    }
    fn stack(&mut self, frames: &[u64], truncated: bool) -> Result<u32, TraceError> {
        Sink::stack(self.writer, frames, truncated)
    }
    fn clock_pair(&mut self, pair: ClockPair) -> Result<(), TraceError> {
        Sink::clock_pair(self.writer, pair)
    }
}

#[cfg(test)]
mod tests {
    use libhpm::trace::{Clock, Limits, TraceReader};

    use super::*;

    const MS: u64 = 1_000_000;

    fn meta(names: &[&str]) -> Meta {
        let events = names.iter().map(|name| Event { name: (*name).into(), ..Event::default() }).collect();
        Meta { events, clock: Clock { tsc_khz: MS, pairs: vec![] }, ..Meta::default() }
    }

    #[test]
    fn the_event_is_named_or_the_first_that_is_no_clock() {
        let named = |names: &[&str], event: &str| {
            Guide::new(&meta(names), event).map(|guide| guide.how.event).map_err(|error| error.to_string())
        };
        assert_eq!(named(&["cpu-clock:u", "page-faults:u"], ""), Ok("page-faults:u".to_owned()));
        assert_eq!(named(&["cycles", "branch-miss:u"], "branch-miss"), Ok("branch-miss:u".to_owned()));
        assert!(named(&["cpu-clock:u"], "").unwrap_err().contains("only clocks are recorded"));
        assert!(named(&["cycles"], "load").unwrap_err().contains("not recorded; name it with -e"));
    }

    /// Two behaviours in turn, 100 events in each interval of the one and 10 in those of the other, of which each tenth is sampled when
    /// samples are not paused.
    struct Alternating {
        meta: Meta,
        interval: u64,
        paused: bool,
        counts: u64,
    }

    impl Source for Alternating {
        fn meta(&self) -> &Meta {
            &self.meta
        }
        fn start(&mut self, _: &mut dyn Sink) -> libhpm::Result<()> {
            Ok(())
        }
        fn wait(&mut self, _: &[std::os::fd::BorrowedFd<'_>], _: Duration) -> libhpm::Result<Vec<bool>> {
            Ok(vec![])
        }
        fn take(&mut self, sink: &mut dyn Sink) -> libhpm::Result<()> {
            let (start_tsc, events) = (self.interval * 10 * MS, if self.interval % 4 < 2 { 100 } else { 10 });
            self.interval += 1;
            self.counts += events;
            let end_tsc = self.interval * 10 * MS;
            sink.quantum(&QuantumRow { start_tsc, end_tsc, counts: vec![events], ..QuantumRow::default() })?;
            let samples = if self.paused { 0 } else { events / 10 };
            for sample in 0..samples {
                let tsc = start_tsc + sample * 1000 + 1;
                sink.sample(&SampleRow { tsc, period: 10, ip: events, ..SampleRow::default() })?;
            }
            Ok(())
        }
        fn stop(&mut self) -> libhpm::Result<()> {
            Ok(())
        }
        fn totals(&self) -> libhpm::Result<libhpm::trace::Totals> {
            let on_cpu_tsc = self.interval * 10 * MS;
            Ok(libhpm::trace::Totals {
                counts: vec![self.counts],
                on_cpu_tsc,
                ..libhpm::trace::Totals::default()
            })
        }
        fn pause_samples(&mut self, paused: bool) -> libhpm::Result<bool> {
            self.paused = paused;
            Ok(true)
        }
        fn is_over(&self) -> bool {
            false
        }
        fn now(&self) -> Option<u64> {
            Some(self.interval * 10 * MS)
        }
    }

    #[test]
    fn what_is_sampled_stands_for_what_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("t.hpm");
        let mut source = Alternating { meta: meta(&["page-faults"]), interval: 0, paused: false, counts: 0 };
        let mut writer = RotatingWriter::create(&folder, source.meta.clone(), Limits::default()).unwrap();
        let mut guide = Guide::new(&source.meta, "").unwrap();
        for _ in 0..1000 {
            guide.take(&mut source, &mut writer).unwrap();
        }
        guide.finish(&mut source, &mut writer).unwrap();
        writer.finish(source.totals().unwrap()).unwrap();
        let reader = TraceReader::open(&folder).unwrap();
        let how = reader.meta().phase_guided.clone().unwrap();
        assert_eq!((how.intervals, how.behaviours), (1000, 2));
        assert!((340..=380).contains(&how.recorded), "{how:?}");
        let events = |of: u64| -> u64 {
            reader.rows::<SampleRow>().filter(|row| row.ip == of).map(|row| row.period).sum()
        };
        // 500 intervals of each, and the last one.
        for (of, expected) in [(100, 50_000_u64), (10, 5_000)] {
            assert!(events(of).abs_diff(expected) < expected / 20, "{} of {expected}", events(of));
        }
        let flagged = reader.rows::<QuantumRow>().filter(|row| row.flags & QuantumFlags::PAUSED != 0).count();
        assert_eq!(flagged as u64, how.intervals - how.recorded + u64::from(source.paused));
        let marks: Vec<String> = reader.rows::<MarkerRow>().map(|row| row.text).collect();
        assert!(marks.len() > 100 && marks.chunks(2).all(|pair| pair[0] == MarkerRow::PAUSED), "{marks:?}");
    }
}
