//! What is known of the measured system: bounded, fed by batches, and never asking anybody for anything.

mod batch;
mod container;
mod metric;
mod ribbon;
mod series;
mod task;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use libhpm::numbers::NumberMap;
use libhpm::trace::{EventUse, Meta, Totals};

pub(crate) use self::batch::{
    Batch, Cost, EVENTS, Marker, PhaseNews, Playback, ProcessFacts, Quantum, ThreadNews,
};
pub(crate) use self::container::container;
pub(crate) use self::metric::{Column, ColumnSpec, Condition, Format, Subject, default_columns};
pub(crate) use self::ribbon::{Ribbon, Stretch};
use self::series::ThreadSeries;
pub(crate) use self::series::{Series, Slot};
pub(crate) use self::task::{Process, Thread};

/// Quanta that are kept for the screen of time.
const QUANTA_MAX: usize = 1 << 17;
/// Markers that are kept.
const MARKERS_MAX: usize = 4096;
/// Threads that are kept; of more, those that ended longest ago go first.
const THREADS_MAX: usize = 4096;
/// Processes whose phases are kept.
const RIBBONS_MAX: usize = 256;
/// Slots for which an ended thread is still shown.
const ENDED_SLOTS: u64 = 5;

/// Where the numbers come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct SourceFacts {
    pub(crate) meta: Meta,
    /// Which source it is and why, in one line.
    pub(crate) line: String,
    /// Whom it measures, in words.
    pub(crate) target: String,
    /// A recorded trace.
    pub(crate) replay: bool,
    /// What to say of a trace that holds no quantum: it shows samples, and nothing of who ran when.
    pub(crate) lacks_quanta: Option<String>,
    /// Length of a slot in ns.
    pub(crate) slot_ns: u64,
    /// What is watched for phases, in words; absent when nothing can be.
    pub(crate) phase_signal: Option<String>,
    /// Length of an interval of phases, in ms on a CPU.
    pub(crate) phase_interval_ms: f64,
}

impl SourceFacts {
    /// TSC ticks as ns.
    pub(crate) fn ticks_to_ns(&self, ticks: u64) -> u64 {
        let khz = self.meta.clock.tsc_khz.max(1);
        (u128::from(ticks) * 1_000_000 / u128::from(khz)) as u64
    }

    /// Length of a slot in TSC ticks.
    pub(crate) fn slot_ticks(&self) -> u64 {
        let ticks = u128::from(self.slot_ns) * u128::from(self.meta.clock.tsc_khz.max(1)) / 1_000_000;
        ticks as u64
    }

    /// Only software counts.
    pub(crate) fn software_only(&self) -> bool {
        !self.meta.events.is_empty()
            && self.meta.source == "perf_event"
            && self.meta.events.iter().all(|event| event.encoding_is_software())
    }

    /// Counts of some events are their samples times their periods, and not what a counter said at each switch.
    pub(crate) fn estimated(&self) -> bool {
        self.meta.source == "perf_event" && self.meta.events.iter().any(|event| !event.encoding_is_software())
    }

    /// Samples that come some instructions too late.
    pub(crate) fn imprecise(&self) -> bool {
        self.meta.events.iter().any(|event| event.mode == EventUse::Interrupt)
    }
}

/// Whether an event of perf_event is one that software counts.
trait SoftwareEvent {
    fn encoding_is_software(&self) -> bool;
}

impl SoftwareEvent for libhpm::trace::Event {
    fn encoding_is_software(&self) -> bool {
        let name = self.name.split(':').next().unwrap_or_default();
        let known = libhpm::source::perf::NAMES.iter().find(|known| known.name == name);
        known.is_some_and(|known| !known.id.is_hardware())
    }
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) source: Arc<SourceFacts>,
    pub(crate) now_ns: u64,
    pub(crate) processes: BTreeMap<u32, Process>,
    pub(crate) threads: NumberMap<Thread>,
    thread_series: ThreadSeries,
    /// How many of them have ended: looking through all at each batch would be felt.
    ended: usize,
    pub(crate) cpus: BTreeMap<u32, Series>,
    pub(crate) machine: Series,
    /// Everything since the beginning.
    pub(crate) total: Slot,
    pub(crate) quanta: VecDeque<Quantum>,
    pub(crate) markers: VecDeque<Marker>,
    pub(crate) ribbons: BTreeMap<u32, Ribbon>,
    /// Samples of each event so far.
    pub(crate) samples: [u64; EVENTS],
    pub(crate) totals: Totals,
    pub(crate) playback: Option<Playback>,
    pub(crate) cost: Option<Cost>,
    pub(crate) recording: Option<Arc<PathBuf>>,
    /// Who else seems to use performance counters.
    pub(crate) holders: Vec<String>,
    /// What the trace of a replay lacks, as sentences.
    pub(crate) missing: Vec<String>,
    pub(crate) over: Option<String>,
}

impl Model {
    /// A model that knows nothing but its source.
    pub(crate) fn new(source: SourceFacts) -> Self {
        Self { source: Arc::new(source), ..Self::default() }
    }

    /// Takes what came.
    pub(crate) fn apply(&mut self, batch: Batch) {
        if batch.reset {
            *self = Self {
                source: Arc::clone(&self.source),
                recording: self.recording.clone(),
                cost: self.cost,
                holders: std::mem::take(&mut self.holders),
                missing: std::mem::take(&mut self.missing),
                ..Self::default()
            };
        }
        self.now_ns = self.now_ns.max(batch.now_ns);
        batch
            .processes
            .into_iter()
            .for_each(|facts| self.processes.entry(facts.pid).or_default().know(facts));
        batch.threads.into_iter().for_each(|news| self.thread(news));
        batch.quanta.iter().for_each(|quantum| self.quantum(quantum));
        self.markers.extend(batch.markers);
        while self.markers.len() > MARKERS_MAX {
            self.markers.pop_front();
        }
        for news in &batch.phases {
            if let Some(ribbon) = self.ribbon(news.pid) {
                ribbon.push(news);
            }
        }
        for pid in batch.disordered {
            if let Some(ribbon) = self.ribbon(pid) {
                ribbon.disordered += 1;
            }
        }
        for (sum, count) in self.samples.iter_mut().zip(batch.samples) {
            *sum += count;
        }
        self.totals = batch.totals.unwrap_or_else(|| std::mem::take(&mut self.totals));
        self.playback = batch.playback.or(self.playback);
        self.cost = batch.cost.or(self.cost);
        self.recording = batch.recording;
        self.holders = batch.holders.unwrap_or_else(|| std::mem::take(&mut self.holders));
        self.missing = batch.missing.unwrap_or_else(|| std::mem::take(&mut self.missing));
        self.over = batch.over.or_else(|| self.over.take());
        self.forget();
    }

    /// A process's phases; `None` where there are too many processes to keep those of one more.
    fn ribbon(&mut self, pid: u32) -> Option<&mut Ribbon> {
        let room = self.ribbons.len() < RIBBONS_MAX || self.ribbons.contains_key(&pid);
        room.then(|| self.ribbons.entry(pid).or_default())
    }

    fn thread(&mut self, news: ThreadNews) {
        let ThreadNews { ns, pid, tid, parent, name, ended } = news;
        let process = self.processes.entry(pid).or_default();
        process.pid = pid;
        process.parent = parent.or(process.parent);
        process.tids.insert(tid);
        if tid == pid {
            process.name.clone_from(&name);
        }
        let thread = self.threads.entry(tid).or_insert_with(|| Thread::new(pid, tid));
        let had_ended = thread.ended_ns.is_some();
        // The number of a thread that has ended may be given to another.
        if thread.pid != pid || (thread.ended_ns.is_some() && !ended) {
            let before = std::mem::replace(thread, Thread::new(pid, tid));
            before.place.into_iter().for_each(|place| self.thread_series.give_back(place));
        }
        if !name.is_empty() {
            thread.name = name;
        }
        if ended {
            thread.ended_ns = Some(ns);
        }
        self.ended = self.ended + usize::from(thread.ended_ns.is_some()) - usize::from(had_ended);
    }

    fn quantum(&mut self, quantum: &Quantum) {
        let slot_ns = self.source.slot_ns.max(1);
        let Quantum { pid, tid, .. } = *quantum;
        let mut is_new = false;
        let thread = self.threads.entry(tid).or_insert_with(|| {
            is_new = true;
            Thread::new(pid, tid)
        });
        let migrated = thread.quantum(quantum, &mut self.thread_series, slot_ns);
        let process = self.processes.entry(pid).or_default();
        if is_new || process.tids.is_empty() {
            process.pid = pid;
            process.tids.insert(tid);
        }
        process.series.add(quantum, migrated, slot_ns);
        self.machine.add(quantum, migrated, slot_ns);
        self.total.take(quantum, migrated);
        self.cpus.entry(quantum.cpu).or_default().add(quantum, migrated, slot_ns);
        // Quanta of different CPUs come a little out of order; the screen of time wants their ends in order.
        let place = self.quanta.iter().rev().take_while(|other| other.end_ns > quantum.end_ns).count();
        self.quanta.insert(self.quanta.len() - place, *quantum);
        if self.quanta.len() > QUANTA_MAX {
            self.quanta.pop_front();
        }
    }

    /// Lets go of threads that ended some time ago, and of processes without any.
    fn forget(&mut self) {
        let keep_ns = ENDED_SLOTS * self.source.slot_ns;
        if self.ended == 0 {
            return;
        }
        let too_many = self.threads.len() > THREADS_MAX;
        let now_ns = self.now_ns;
        let gone = |thread: &Thread| {
            thread.ended_ns.is_some_and(|ended| too_many || ended.saturating_add(keep_ns) < now_ns)
        };
        // In a trace everything may be of interest until the end.
        if self.source.replay && !too_many || !self.threads.values().any(gone) {
            return;
        }
        let series = &mut self.thread_series;
        for (_, thread) in self.threads.extract_if(|_, thread| gone(thread)) {
            thread.place.into_iter().for_each(|place| series.give_back(place));
        }
        self.ended = self.threads.values().filter(|thread| thread.ended_ns.is_some()).count();
        let threads = &self.threads;
        self.processes.retain(|pid, process| {
            process.tids.retain(|tid| threads.get(tid).is_some_and(|thread| thread.pid == *pid));
            !process.tids.is_empty()
        });
        let processes = &self.processes;
        self.ribbons.retain(|pid, _| processes.contains_key(pid));
    }

    /// What a thread did in a slot.
    pub(crate) fn thread_at(&self, thread: &Thread, slot: u64) -> Slot {
        thread.place.map_or_else(Slot::default, |place| self.thread_series.at(place, slot))
    }

    /// Threads that have not ended.
    pub(crate) fn living_threads(&self) -> usize {
        self.threads.len() - self.ended
    }

    /// The slot whose numbers are shown, and its length in ns: the last one that is over, or at the beginning the first one.
    pub(crate) fn shown_slot(&self) -> (u64, u64) {
        let slot_ns = self.source.slot_ns.max(1);
        match self.now_ns / slot_ns {
            0 => (0, self.now_ns.max(1)),
            open => (open - 1, slot_ns),
        }
    }

    /// The time that numbers for other programs are of, in ns: where it is live, the end of the interval that is shown, so that lines come
    /// at whole intervals; in a replay the time that it stands at.
    pub(crate) fn told_at_ns(&self) -> u64 {
        let (slot, length) = self.shown_slot();
        if self.source.replay { self.now_ns } else { slot * self.source.slot_ns + length }
    }

    /// The name of a thread; of one that has none, its process's.
    pub(crate) fn thread_name(&self, tid: u32) -> &str {
        let thread = self.threads.get(&tid);
        match thread.map(|thread| (thread.name.as_str(), thread.pid)) {
            Some(("", pid)) => self.process_name(pid),
            Some((name, _)) => name,
            None => "",
        }
    }

    /// The name of a process.
    pub(crate) fn process_name(&self, pid: u32) -> &str {
        self.processes.get(&pid).map_or("", |process| process.name.as_str())
    }

    /// The name of an event.
    pub(crate) fn event_names(&self) -> Vec<String> {
        self.source.meta.events.iter().take(EVENTS).map(|event| event.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(slot_ns: u64) -> Model {
        Model::new(SourceFacts { slot_ns, ..SourceFacts::default() })
    }

    fn news(ns: u64, tid: u32, ended: bool) -> ThreadNews {
        ThreadNews { ns, pid: 1, tid, parent: None, name: format!("t{tid}"), ended }
    }

    #[test]
    fn ended_threads_are_let_go_and_their_numbers_may_come_again() {
        let mut model = model(100);
        let quantum = Quantum { start_ns: 0, end_ns: 50, pid: 1, tid: 2, ..Quantum::default() };
        model.apply(Batch {
            now_ns: 60,
            threads: vec![news(0, 1, false), news(0, 2, false), news(60, 2, true)],
            quanta: vec![quantum],
            ..Batch::default()
        });
        assert_eq!((model.threads.len(), model.total.on_cpu_ns), (2, 50));
        model.apply(Batch { now_ns: 1000, ..Batch::default() });
        assert_eq!(model.threads.keys().copied().collect::<Vec<_>>(), [1]);
        model.apply(Batch { now_ns: 1001, threads: vec![news(1001, 1, true)], ..Batch::default() });
        model.apply(Batch { now_ns: 1002, threads: vec![news(1002, 1, false)], ..Batch::default() });
        assert_eq!(model.threads[&1].ended_ns, None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut model = model(1000);
        for round in 0..20_u64 {
            let at = round * 1_000_000;
            let quantum = |n: u64| Quantum {
                start_ns: at + n * 10,
                end_ns: at + n * 10 + 5,
                pid: 1,
                tid: (round * 1000 + n % 1000) as u32,
                ..Quantum::default()
            };
            let ends = (0..1000).map(|n| news(at + 900_000, (round * 1000 + n) as u32, true)).collect();
            model.apply(Batch { now_ns: at, quanta: (0..10_000).map(quantum).collect(), ..Batch::default() });
            model.apply(Batch { now_ns: at + 1_000_000, threads: ends, ..Batch::default() });
        }
        assert!(model.quanta.len() <= QUANTA_MAX && model.threads.len() <= THREADS_MAX);
    }

    #[test]
    fn a_replay_that_goes_back_begins_anew() {
        let mut model = model(100);
        model.apply(Batch { now_ns: 500, threads: vec![news(0, 1, false)], ..Batch::default() });
        model.apply(Batch { reset: true, now_ns: 100, ..Batch::default() });
        assert_eq!((model.now_ns, model.threads.len()), (100, 0));
        assert_eq!(model.source.slot_ns, 100);
    }
}
