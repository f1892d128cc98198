//! The events and rings of a measurement by perf_event.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::cores::Cores;
use super::record::{self, Timed, What};
use super::{PerfName, PerfStacks};
use crate::session::Target;
use crate::sideband::{Parser, possible_cpus, processes, threads};
use crate::sys::perf::{
    Attach, Attributes, EventId, Inherit, PerfEvent, Reading, Ring, SAMPLE_CALLCHAIN, SAMPLE_EVENT,
    SAMPLE_PERIOD, SAMPLE_TIME_AND_THREAD, SAMPLE_USER_STACK, Sampling, USER_REGISTERS,
};
use crate::{Error, Result};

/// What to measure, on whom.
#[derive(Clone, Debug)]
pub struct PerfOptions {
    /// Whom to measure.
    pub target: Target,
    /// Begin with the target's next execve.
    pub on_exec: bool,
    /// Include processes that the target forks.
    pub inherit: bool,
    /// What to measure.
    pub events: Vec<PerfName>,
    /// What to hand over besides totals.
    pub stream: PerfStream,
    /// How call stacks are found.
    pub stacks: PerfStacks,
    /// Events that do not fit the counters together take turns.
    pub multiplex: bool,
    /// Samples can be paused while counting goes on: each sampled event is opened a second time, to be counted only.
    pub pausable: bool,
    /// Why this source, for `meta.json`.
    pub note: String,
    /// The command line, for `meta.json`.
    pub command: Vec<String>,
}

/// What to hand over besides totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfStream {
    /// Nothing.
    Totals,
    /// Quanta and what happened to threads. Events that software counts are exact in them; a hardware event is refused.
    Quanta,
    /// Samples too.
    Samples {
        /// Events per sample; 0 for what each event's name suggests.
        period: u64,
        /// Samples per second instead; 0 for a fixed period.
        rate: u64,
    },
}

impl PerfOptions {
    /// The period of an event and its rate, one of which is 0 or only a beginning.
    pub(super) fn period_and_rate(&self, event: &PerfName) -> (u64, u64) {
        match self.stream {
            PerfStream::Totals => (0, 0),
            // Each single event is a record, and so counted where it happens.
            PerfStream::Quanta => (1, 0),
            PerfStream::Samples { period, rate } => (if period == 0 { event.period } else { period }, rate),
        }
    }

    /// The same of what happens in user mode alone, as the events' names then say.
    pub(in crate::source) fn user_only(mut self) -> Self {
        let sampled = self.samples();
        self.events = self.events.into_iter().map(|event| event.user_only(sampled)).collect();
        self
    }

    pub(super) fn samples(&self) -> bool {
        matches!(self.stream, PerfStream::Samples { .. })
    }

    pub(super) fn everything(&self) -> bool {
        !matches!(self.target, Target::Process(_) | Target::Thread(_))
    }

    /// The process whose execve is waited for.
    pub(super) fn awaited(&self) -> Option<u32> {
        match self.target {
            Target::Process(pid) if self.on_exec => Some(pid as u32),
            _ => None,
        }
    }

    /// The processes whose threads and mappings were there before.
    pub(super) fn present(&self) -> Vec<u32> {
        match self.target {
            Target::Process(_) if self.on_exec => vec![],
            Target::Process(id) | Target::Thread(id) => vec![id as u32],
            Target::Cgroup(_) | Target::System | Target::Cpu(_) => processes(),
        }
    }
}

/// Everything that was opened.
pub(super) struct Opened {
    /// Those of the options, and others that report switches and mappings, and tell the time on CPUs.
    events: Vec<Part>,
    /// The same events again, which go on counting while samples are paused.
    counting: Vec<Part>,
    cores: Cores,
    /// The ring of each CPU.
    rings: Vec<(u32, Ring)>,
    /// Rings that wake nobody any more.
    asleep: HashSet<usize>,
    by_id: HashMap<u64, usize>,
    parser: Parser,
    /// Periods of the events whose samples do not tell them, by the events' numbers, and what reads those samples.
    untold: HashMap<u64, u64>,
    untold_parser: Parser,
    /// The records are samples to hand over, and not only single events to count.
    pub(super) samples: bool,
    pub(super) stopped: bool,
    on_exec: bool,
}

/// One opened event.
struct Part {
    /// Its place in the options; those without one are not among them.
    index: Option<usize>,
    /// Of a thread that may be on any CPU: the same as another, for cores of another type, and enabled as long as that one.
    again: bool,
    event: PerfEvent,
}

impl Part {
    /// One that only reports, and tells the time.
    fn reporting(event: PerfEvent) -> Self {
        Self { index: None, again: false, event }
    }
}

/// How long an event was enabled, so many parts of which are for cores of other types. The parts are switched on, off and read one after the
/// other: what their times differ by for that is no time in which the event waited for a counter.
fn enabled(sum: &Reading, again: u64) -> u64 {
    const APART_NS: u64 = 100_000;
    let apart = sum.enabled_ns.abs_diff(sum.running_ns);
    let is_same = apart <= again * APART_NS && apart <= sum.enabled_ns / 100;
    if is_same { sum.running_ns } else { sum.enabled_ns.max(sum.running_ns) }
}

/// What the events have counted.
pub(super) struct Readings {
    pub(super) events: Vec<Reading>,
    pub(super) on_cpu_ns: u64,
}

impl Opened {
    pub(super) fn new(options: &PerfOptions) -> Result<Self> {
        let (sample_type, registers) = options.format();
        let mut opened = Self {
            events: Vec::new(),
            counting: Vec::new(),
            cores: Cores::find(),
            rings: Vec::new(),
            asleep: HashSet::new(),
            by_id: HashMap::new(),
            parser: Parser::new(sample_type, registers),
            untold: HashMap::new(),
            untold_parser: Parser::new(sample_type & !SAMPLE_PERIOD, registers),
            samples: options.samples(),
            stopped: false,
            on_exec: options.awaited().is_some(),
        };
        match &options.target {
            Target::Process(pid) if !options.on_exec => opened.attach_process(options, *pid)?,
            Target::Process(pid) => opened.attach(options, Attach::ThreadOnExec(*pid))?,
            Target::Thread(tid) => opened.attach(options, Attach::Thread(*tid))?,
            Target::Cgroup(path) => {
                let folder = File::open(path).map_err(Error::io("open the control group's directory"))?;
                opened.attach(options, Attach::Cgroup(folder.as_raw_fd()))?;
            }
            Target::System | Target::Cpu(_) => opened.attach(options, Attach::Everything)?,
        }
        Ok(opened)
    }

    /// Attaches to every thread of a process. What an attached thread creates is measured with it; to look again for new ones would
    /// measure those twice. Missed is, as by perf, what a thread creates that comes later in this list.
    fn attach_process(&mut self, options: &PerfOptions, pid: i32) -> Result<()> {
        for tid in threads(pid) {
            match self.attach(options, Attach::Thread(tid)) {
                // It has ended since.
                Ok(()) | Err(Error::NoProcess { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if self.events.is_empty() && self.rings.is_empty() { Err(Error::NoProcess { pid }) } else { Ok(()) }
    }

    /// Opens all events for one thread or all, on every CPU where there are rings.
    fn attach(&mut self, options: &PerfOptions, attach: Attach) -> Result<()> {
        let per_cpu = options.everything() || options.stream != PerfStream::Totals;
        let cpus: Vec<Option<u32>> = match options.target {
            _ if !per_cpu => vec![None],
            Target::Cpu(cpu) => vec![Some(cpu)],
            _ => possible_cpus().map(Some).collect(),
        };
        cpus.into_iter().try_for_each(|cpu| self.attach_on(options, attach, cpu))
    }

    fn attach_on(&mut self, options: &PerfOptions, attach: Attach, cpu: Option<u32>) -> Result<()> {
        let reports = options.reports();
        let dummy = match PerfEvent::open(&reports, attach, cpu, None) {
            // The CPU is offline, unless it was asked for by its number.
            Err(reason) if is(&reason, libc::ENODEV) && !matches!(options.target, Target::Cpu(_)) => {
                return Ok(());
            }
            Err(reason) if is(&reason, libc::ESRCH) => return Err(gone(attach)),
            // Every kernel has the dummy event: it is the group that is not there.
            Err(reason) if is(&reason, libc::ENOENT) || is(&reason, libc::EBADF) => {
                return Err(match &options.target {
                    Target::Cgroup(path) => Error::NotMeasuredGroup { path: path.clone() },
                    _ => refused("dummy")(reason),
                });
            }
            // What it stands for is what was asked for.
            result => result.map_err(refused(options.events.first().map_or("dummy", |event| &event.name)))?,
        };
        let ring = match cpu.filter(|_| reports.switches) {
            Some(cpu) => Some(self.ring_of(cpu, dummy, options.ring_bytes())?),
            None => {
                self.events.push(Part::reporting(dummy));
                None
            }
        };
        // One for each type of cores: counters are then on at the same times, or the events do not fit and are refused.
        let mut leaders: Vec<usize> = Vec::new();
        for (index, event) in options.events.iter().enumerate() {
            let of_options = options.attributes(event, &reports)?;
            for (place, event_id) in self.cores.each(event.id, cpu).into_iter().enumerate() {
                // Software's would be measured only where the leader's cores are.
                let group = leaders.get(place).filter(|_| event.id.is_hardware());
                let group = group.map(|&leader| &self.events[leader].event);
                // Only the leader of a group is switched on and off.
                let attributes = Attributes { event: event_id, disabled: group.is_none(), ..of_options };
                let opened =
                    PerfEvent::open(&attributes, attach, cpu, group).map_err(refused(&event.name))?;
                if let Some(ring) = ring {
                    self.send(ring, &opened, index, &attributes).map_err(refused(&event.name))?;
                }
                let part = |event| Part { index: Some(index), again: place > 0, event };
                self.events.push(part(opened));
                if options.pausable {
                    let attributes = Attributes { sampling: Sampling::Never, disabled: true, ..attributes };
                    let counting = PerfEvent::open(&attributes, attach, cpu, None);
                    self.counting.push(part(counting.map_err(refused(&event.name))?));
                }
                if event.id.is_hardware() && !options.multiplex && leaders.len() == place {
                    leaders.push(self.events.len() - 1);
                }
            }
        }
        Ok(())
    }

    /// Has an event's records written into a ring.
    fn send(
        &mut self,
        ring: usize,
        event: &PerfEvent,
        index: usize,
        attributes: &Attributes,
    ) -> io::Result<()> {
        event.send_to(&self.rings[ring].1)?;
        let id = event.id()?;
        self.by_id.insert(id, index);
        self.untold.extend(attributes.untold_period().map(|period| (id, period)));
        Ok(())
    }

    /// The place of a CPU's ring, to which the event's records go; it is made with the first event.
    fn ring_of(&mut self, cpu: u32, event: PerfEvent, bytes: usize) -> Result<usize> {
        if let Some(place) = self.rings.iter().position(|(of, _)| *of == cpu) {
            event.send_to(&self.rings[place].1).map_err(refused("dummy"))?;
            self.events.push(Part::reporting(event));
            return Ok(place);
        }
        self.rings.push((cpu, Ring::map(event, bytes).map_err(Error::io("map perf_event's ring"))?));
        Ok(self.rings.len() - 1)
    }

    /// Every event.
    fn all(&self) -> impl Iterator<Item = &PerfEvent> {
        let of_rings = self.rings.iter().map(|(_, ring)| ring.event());
        of_rings.chain(self.events.iter().chain(&self.counting).map(|part| &part.event))
    }

    /// Switches what samples off or on; what only counts goes on.
    pub(super) fn pause_samples(&self, paused: bool) -> Result<()> {
        let sampling = self.events.iter().filter(|part| part.index.is_some()).map(|part| &part.event);
        let switch = |event: &PerfEvent| if paused { event.disable() } else { event.enable() };
        sampling.map(switch).try_for_each(|done| done.map_err(Error::io("pause perf_event's samples")))
    }

    /// The events of the options whose counts are the measurement's.
    fn counted(&self) -> impl Iterator<Item = (usize, &Part)> {
        let parts = if self.counting.is_empty() { &self.events } else { &self.counting };
        parts.iter().filter_map(|part| Some((part.index?, part)))
    }

    /// What counts nothing is always on, as long as the thread is.
    fn reporting(&self) -> impl Iterator<Item = &PerfEvent> {
        let others = self.events.iter().filter(|part| part.index.is_none()).map(|part| &part.event);
        self.rings.iter().map(|(_, ring)| ring.event()).chain(others)
    }

    /// Starts counting, unless an execve does that.
    pub(super) fn enable(&self) -> Result<()> {
        if self.on_exec {
            return Ok(());
        }
        self.all().try_for_each(|event| event.enable().map_err(Error::io("start perf_event")))
    }

    /// Stops counting.
    pub(super) fn disable(&mut self) -> Result<()> {
        self.stopped = true;
        self.all().try_for_each(|event| event.disable().map_err(Error::io("stop perf_event")))
    }

    /// Sums over threads and CPUs.
    pub(super) fn read(&self, events: usize) -> Result<Readings> {
        let mut readings = Readings { events: vec![Reading::default(); events], on_cpu_ns: 0 };
        let mut again = vec![0; events];
        let read = |event: &PerfEvent| event.read().map_err(Error::io("read perf_event"));
        for event in self.reporting() {
            readings.on_cpu_ns += read(event)?.running_ns;
        }
        for (index, part) in self.counted() {
            let reading = read(&part.event)?;
            let sum = &mut readings.events[index];
            sum.count += reading.count;
            sum.enabled_ns += if part.again { 0 } else { reading.enabled_ns };
            sum.running_ns += reading.running_ns;
            again[index] += u64::from(part.again);
        }
        for (sum, again) in readings.events.iter_mut().zip(again) {
            sum.enabled_ns = enabled(sum, again);
        }
        Ok(readings)
    }

    pub(super) fn has_rings(&self) -> bool {
        !self.rings.is_empty()
    }

    /// The rings that can still wake a reader.
    pub(super) fn awake(&self) -> Vec<usize> {
        (0..self.rings.len()).filter(|ring| !self.asleep.contains(ring)).collect()
    }

    pub(super) fn ring(&self, place: usize) -> &Ring {
        &self.rings[place].1
    }

    pub(super) fn let_sleep(&mut self, rings: &[usize]) {
        self.asleep.extend(rings);
    }

    /// The place in the options of the event with this number.
    pub(super) fn index_of(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// Hands over every record in every ring.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Timed)) {
        let Self { rings, parser, untold, untold_parser, .. } = self;
        for (_, ring) in rings {
            ring.drain(|kind, misc, body| {
                let period = record::sampled_id(kind, body).and_then(|id| untold.get(&id));
                let parser = if period.is_some() { &*untold_parser } else { &*parser };
                if let Some(mut record) = record::parse(parser, kind, misc, body) {
                    if let (Some(&period), What::Sample(taken)) = (period, &mut record.what) {
                        taken.period = period;
                    }
                    each(record);
                }
            });
        }
    }
}

impl PerfOptions {
    /// `PERF_SAMPLE_*` bits of every record, and the user registers in them.
    fn format(&self) -> (u64, u64) {
        match self.stacks {
            PerfStacks::FramePointers if self.samples() => (SAMPLE_EVENT | SAMPLE_CALLCHAIN, 0),
            // The chain is the kernel's own part.
            PerfStacks::Copied(_) if self.samples() => {
                (SAMPLE_EVENT | SAMPLE_CALLCHAIN | SAMPLE_USER_STACK, USER_REGISTERS)
            }
            _ => (SAMPLE_EVENT, 0),
        }
    }

    /// The event that reports switches and mappings where quanta are wanted, and in any case tells the time on CPUs.
    fn reports(&self) -> Attributes {
        let streamed = self.stream != PerfStream::Totals;
        Attributes {
            event: EventId::DUMMY,
            sampling: Sampling::Never,
            sample_type: if streamed { self.format().0 } else { SAMPLE_TIME_AND_THREAD },
            stack_bytes: match self.stacks {
                PerfStacks::Copied(bytes) if self.samples() => bytes,
                _ => 0,
            },
            // Those of a copied stack are unwound from the copy.
            user_chain: self.stacks == PerfStacks::FramePointers,
            user: true,
            kernel: false,
            inherit: match self.target {
                Target::Process(_) if self.inherit => Inherit::All,
                Target::Process(_) => Inherit::Threads,
                _ => Inherit::Nothing,
            },
            disabled: true,
            sideband: streamed,
            switches: streamed,
        }
    }

    fn attributes(&self, event: &PerfName, reports: &Attributes) -> Result<Attributes> {
        if self.stream == PerfStream::Quanta && event.id.is_hardware() {
            let reason = "it has no hardware counts per thread, CPU and time; the hpm module has them";
            return Err(Error::PerfEvent { event: event.name.clone(), reason: io::Error::other(reason) });
        }
        event.check(self.samples())?;
        let sampling = self.sampling(event);
        // Else a software event would take a sample of each single event.
        let untold = matches!(sampling, Sampling::Period(2..)) && event.id.is_counted_singly();
        Ok(Attributes {
            event: event.id,
            sampling,
            sample_type: if untold { reports.sample_type & !SAMPLE_PERIOD } else { reports.sample_type },
            user: event.user,
            kernel: event.opens_kernel(self.samples()),
            sideband: false,
            switches: false,
            ..*reports
        })
    }

    fn sampling(&self, event: &PerfName) -> Sampling {
        match (self.stream, self.period_and_rate(event)) {
            (PerfStream::Totals, _) => Sampling::Never,
            // Its count is the quantum's length.
            (PerfStream::Quanta, _) if event.id.is_clock() => Sampling::Never,
            (_, (period, 0)) => Sampling::Period(period),
            (_, (_, rate)) if event.id.is_clock() => Sampling::Period((1_000_000_000 / rate).max(1)),
            (_, (_, rate)) => Sampling::Frequency(rate),
        }
    }

    /// Copied stacks want room: 8 MiB are half a second of them at 1000 samples per second.
    fn ring_bytes(&self) -> usize {
        match self.stacks {
            PerfStacks::Copied(_) => 8 << 20,
            PerfStacks::None | PerfStacks::FramePointers => 1 << 20,
        }
    }
}

fn is(reason: &io::Error, errno: i32) -> bool {
    reason.raw_os_error() == Some(errno)
}

fn gone(attach: Attach) -> Error {
    match attach {
        Attach::Thread(pid) | Attach::ThreadOnExec(pid) => Error::NoProcess { pid },
        Attach::Cgroup(_) | Attach::Everything => refused("dummy")(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

fn refused(event: &str) -> impl FnOnce(io::Error) -> Error {
    |reason| Error::PerfEvent { event: event.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_parts_that_are_read_one_after_the_other_are_one_time() {
        let of =
            |enabled_ns, running_ns, again| enabled(&Reading { count: 1, enabled_ns, running_ns }, again);
        assert_eq!([of(50_000_000, 49_990_000, 1), of(50_000_000, 50_020_000, 2)], [49_990_000, 50_020_000]);
        // It waited for a counter, on a processor whose cores are alike and on another.
        assert_eq!([of(50_000_000, 49_990_000, 0), of(50_000_000, 25_000_000, 2)], [50_000_000; 2]);
        assert_eq!(of(90_000, 60_000, 2), 90_000, "a third of the time is none of reading");
    }
}
