//! A phase detector for each process, fed by its quanta.

use libhpm::analysis::phase::{
    Base, Detector, Disorder, MAX_EVENTS, Rules, Signal, Slicer, Stay, usual_event,
};
use libhpm::numbers::NumberMap;
use libhpm::trace::{Meta, QuantumFlags, QuantumRow};

use crate::model::PhaseNews;

/// Processes that have a detector; further ones have none.
const PROCESSES_MAX: usize = 256;
/// Patterns that each detector knows, fewer than a command has time for: there are many detectors.
const PATTERNS: usize = 48;

/// What is watched, and how long an interval is.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) signal: Signal,
    /// In words.
    pub(crate) words: String,
    /// Length of an interval, in TSC ticks on a CPU.
    pub(crate) interval: u64,
}

impl Watch {
    /// What was asked for; else instructions per cycle, the first event that hardware or software counts one by one, or
    /// nothing where only clocks are there: those always tell the same.
    ///
    /// # Errors
    /// An event that is not measured.
    pub(crate) fn new(
        meta: &Meta,
        event: Option<&str>,
        per: Option<&str>,
        interval_ms: f64,
    ) -> Result<Option<Self>, String> {
        let names: Vec<&str> = meta.events.iter().take(MAX_EVENTS).map(|event| event.name.as_str()).collect();
        let base = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
        let place = |wanted: &str| names.iter().position(|name| *name == wanted || base(name) == wanted);
        let asked = |wanted: &str| {
            place(wanted).ok_or_else(|| {
                format!(
                    "phases cannot be watched by `{wanted}`, which is not measured; measured are {}",
                    names.join(", ")
                )
            })
        };
        let usual = || match (place("instructions"), place("cycles")) {
            (Some(instructions), Some(cycles)) => Some((instructions, Some(cycles))),
            _ => usual_event(names.iter().copied(), Base::Time).map(|event| (event, None)),
        };
        let chosen = match (event, per) {
            (None, None) => usual(),
            (None, Some(per)) => {
                usual().map(|(event, _)| Ok::<_, String>((event, Some(asked(per)?)))).transpose()?
            }
            (Some(event), per) => Some((asked(event)?, per.map(asked).transpose()?)),
        };
        Ok(chosen.map(|(event, per)| Self {
            signal: Signal::new(&[event], per.map_or(Base::Time, Base::Event)),
            words: format!("{} per {}", names[event], per.map_or("time on a CPU", |per| names[per])),
            interval: ((interval_ms * meta.clock.tsc_khz as f64) as u64).max(1),
        }))
    }
}

struct Watched {
    slicer: Slicer,
    detector: Detector,
    /// TSC of the last quantum.
    last: u64,
    /// [`Tracker::losses`] at that time.
    losses: u64,
}

/// The detectors.
pub(crate) struct Tracker {
    watch: Option<Watch>,
    processes: NumberMap<Watched>,
    /// How often quanta were lost on any CPU. They may have been any process's: each has a gap before its next quantum.
    losses: u64,
    /// Processes of which a pattern was completed, and when (TSC), since somebody asked.
    changed: Vec<(u32, u64)>,
}

impl Tracker {
    pub(crate) fn new(watch: Option<Watch>) -> Self {
        Self { watch, processes: NumberMap::default(), losses: 0, changed: Vec::new() }
    }

    pub(crate) fn reset(&mut self) {
        self.processes.clear();
        self.changed.clear();
    }

    /// When a pattern of this process (of any, without one) was first completed since the last call: TSC.
    pub(crate) fn change_of(&mut self, pid: Option<u32>) -> Option<u64> {
        let found = self.changed.iter().find(|(of, _)| pid.is_none_or(|pid| pid == *of)).map(|(_, tsc)| *tsc);
        self.changed.clear();
        found
    }

    /// Takes a quantum; what its process's detector says if that completed an interval. Its times in ns are not set.
    ///
    /// # Errors
    /// The quantum ends before it starts, so that it belongs to no interval.
    pub(crate) fn push(&mut self, row: &QuantumRow) -> Result<Option<PhaseNews>, Disorder> {
        let Some(watch) = &self.watch else { return Ok(None) };
        self.losses += u64::from(row.flags & QuantumFlags::QUANTA_LOST_BEFORE != 0);
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&row.pid) {
            let oldest = self.processes.iter().min_by_key(|(_, watched)| watched.last).map(|(pid, _)| *pid);
            oldest.and_then(|pid| self.processes.remove(&pid));
        }
        let watched = self.processes.entry(row.pid).or_insert_with(|| Watched {
            slicer: Slicer::for_process(watch.interval),
            detector: Detector::with_capacity(Rules::NoiseGated, watch.signal, PATTERNS),
            last: 0,
            losses: self.losses,
        });
        watched.last = row.end_tsc;
        let lost_before = std::mem::replace(&mut watched.losses, self.losses) != self.losses;
        let stay = Stay { start: row.start_tsc, end: row.end_tsc, counts: &row.counts, lost_before };
        let Some(interval) = watched.slicer.push(&stay)? else { return Ok(None) };
        let step = watched.detector.push(&interval);
        if step.occurrence.is_some() && self.changed.len() < 1024 {
            self.changed.push((row.pid, interval.end));
        }
        let prediction = watched.detector.prediction();
        Ok(Some(PhaseNews { pid: row.pid, start_ns: 0, end_ns: 0, interval, step, prediction }))
    }
}

#[cfg(test)]
mod tests {
    use libhpm::trace::{Clock, Event};

    use super::*;

    fn meta(names: &[&str]) -> Meta {
        let event = |name: &&str| Event { name: (*name).into(), ..Event::default() };
        let clock = Clock { tsc_khz: 1000, ..Clock::default() };
        Meta { events: names.iter().map(event).collect(), clock, ..Meta::default() }
    }

    fn words(names: &[&str], event: Option<&str>, per: Option<&str>) -> Result<Option<String>, String> {
        Ok(Watch::new(&meta(names), event, per, 1.0)?.map(|watch| watch.words))
    }

    #[test]
    fn what_is_watched_varies() {
        assert_eq!(words(&["cpu-clock"], None, None), Ok(None));
        let software = words(&["cpu-clock", "page-faults"], None, None);
        assert_eq!(software.unwrap().unwrap(), "page-faults per time on a CPU");
        let usual = words(&["cycles:u", "instructions:u", "x"], None, None);
        assert_eq!(usual.unwrap().unwrap(), "instructions:u per cycles:u");
        assert_eq!(words(&["x", "y"], Some("y"), Some("x")).unwrap().unwrap(), "y per x");
        assert!(words(&["x"], Some("z"), None).unwrap_err().contains("measured are x"));
    }

    /// What cannot be compared, or does not vary, has no pattern; what ends before it starts is no interval. The reason is told.
    #[test]
    fn bad_quanta_make_no_patterns() {
        use crate::model::Ribbon;
        let after = |row: &dyn Fn(u64) -> QuantumRow, number: u64| {
            let mut tracker = Tracker::new(Watch::new(&meta(&["x"]), None, None, 1.0).unwrap());
            let mut ribbon = Ribbon::default();
            for index in 0..number {
                match tracker.push(&row(index)) {
                    Ok(Some(news)) => {
                        assert_eq!(news.step.occurrence, None);
                        ribbon.push(&news);
                    }
                    Ok(None) => {}
                    Err(_) => ribbon.disordered += 1,
                }
            }
            (ribbon.intervals, ribbon.no_phases().unwrap_or_default().to_owned())
        };
        let row = |index: u64, count: u64| {
            let start_tsc = index * 2_000_000;
            let end_tsc = start_tsc + 1_500_000;
            QuantumRow { pid: 7, start_tsc, end_tsc, counts: vec![count], ..QuantumRow::default() }
        };
        let (intervals, why) = after(&|index| row(index, 500), 10);
        assert!(intervals == 10 && why.contains("too few"), "{why}");
        let (_, why) = after(&|index| row(index, 500), 100);
        assert!(why.contains("not varied"), "{why}");
        let flags = QuantumFlags::QUANTA_LOST_BEFORE;
        let (_, why) = after(&|index| QuantumRow { flags, ..row(index, 500 << (index % 3)) }, 100);
        assert!(why.contains("quanta were lost"), "{why}");
        let backwards = |index: u64| {
            let forwards = row(index, 500 << (index % 3));
            QuantumRow { start_tsc: forwards.end_tsc, end_tsc: forwards.start_tsc, ..forwards }
        };
        let (intervals, why) = after(&backwards, 100);
        assert!(intervals == 0 && why.contains("time goes backwards"), "{why}");
    }

    /// Whose quanta a CPU has lost is not known: every process has a gap, whoever's quantum tells of it.
    #[test]
    fn a_loss_is_a_gap_of_every_process() {
        let mut tracker = Tracker::new(Watch::new(&meta(&["x"]), None, None, 1.0).unwrap());
        let gaps: Vec<bool> = (0..8)
            .filter_map(|index| {
                let (pid, start_tsc) = (7 + index as u32 % 2, index * 10_000);
                let flags = if index == 4 { QuantumFlags::QUANTA_LOST_BEFORE } else { 0 };
                let end_tsc = start_tsc + 2000;
                let row =
                    QuantumRow { pid, flags, start_tsc, end_tsc, counts: vec![5], ..QuantumRow::default() };
                Some(tracker.push(&row).unwrap()?.interval.after_gap)
            })
            .collect();
        assert_eq!(gaps, [true, true, false, false, true, true, false, false]);
    }

    #[test]
    fn memory_is_bounded_by_processes() {
        let watch = Watch::new(&meta(&["x"]), None, None, 1.0).unwrap();
        let mut tracker = Tracker::new(watch);
        for pid in 0..1000 {
            let start_tsc = u64::from(pid) * 10_000;
            let end_tsc = start_tsc + 2000;
            let row = QuantumRow { pid, start_tsc, end_tsc, counts: vec![5], ..QuantumRow::default() };
            assert!(tracker.push(&row).unwrap().is_some());
        }
        assert_eq!(tracker.processes.len(), PROCESSES_MAX);
    }
}
