//! What to measure, on whom, and with how much memory.

#[cfg(test)]
mod tests;
mod windows;

use std::path::PathBuf;
use std::time::Duration;

use hpm_abi::{
    BranchFilter, Envelope, EventMode, EventSpec, Info, InfoFlags, Scope, SessionConfig, SessionFlags,
};

use crate::event::{CORE_TYPES, CoreType, Event};
use crate::record::adaptive::groups;

pub use self::windows::Windows;

/// Whom to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All threads of the process with this PID.
    Process(i32),
    /// The one thread with this ID.
    Thread(i32),
    /// The threads of the control group (version 2) with this directory, and of those below it.
    Cgroup(PathBuf),
    /// Every thread on every CPU.
    System,
    /// Every thread on this CPU.
    Cpu(u32),
}

/// What a session measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    target: Target,
    events: Vec<(Event, Option<u64>)>,
    start_on_exec: bool,
    inherit: bool,
    multiplex: bool,
    share: bool,
    counter_pages: bool,
    quanta: bool,
    stack: Stack,
    branches: Option<Branches>,
    imprecise: bool,
    randomise: bool,
    rate: u64,
    windows: Option<Windows>,
    xmm: bool,
    longest_quantum: Option<Duration>,
    wake_within: Option<Duration>,
}

/// The groups that the driver has in a record by default, and the XMM registers.
const WITH_XMM: u32 = (groups::MEMORY | groups::GPRS | groups::XMMS) as u32;

/// Last branch records to keep with each sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    /// How many; 0 for as many as the processor keeps.
    pub count: u32,
    /// [`BranchFilter`] bits of the types to record; 0 for all. Branches of user mode, when the events are of user mode only.
    pub filter: u32,
}

/// How the call stack of each sample is found. Each way but [`Stack::None`], and [`Stack::BranchCalls`] where hardware
/// writes branch records into its samples, costs a PMI per sample: nothing is batched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// Not at all.
    #[default]
    None,
    /// The driver copies this many bytes of user stack (a multiple of 1024 up to 64512), to be unwound by the files'
    /// unwind tables ([`crate::unwind`]).
    Copied(u32),
    /// The driver follows the frame pointers, at most this many (up to 254). A function that keeps none is missed, and so
    /// is the caller of a sample in a function's first and last instructions.
    FramePointers(u32),
    /// Hardware follows calls and returns in its last branch records (Haswell and later), as deep as those go: works with
    /// any code that returns to where it was called from. A sample of a `ret` lacks the caller.
    BranchCalls,
}

/// Quanta per CPU when samples are read as they come: at a switch each 100 µs, room for 0.4 s; when only the timer cuts
/// them, for 40 s. Reading a large program's unwind tables can take seconds on a slow machine.
const QUANTA: u32 = 4096;
/// Quanta per CPU when only totals are read.
const QUANTA_UNREAD: u32 = 0;
/// Markers per CPU when samples are read as they come.
const MARKERS: u32 = 4096;
/// Memory for records per CPU, in the smallest segments: 2 MiB, or 10 000 records of Skylake.
const SEGMENTS: u32 = 32;
/// Memory where hardware may fill large segments without an interrupt: three of 896 KiB, of which two may wait to be read, as nearly all of
/// the small ones may.
const LARGE_SEGMENTS: u32 = 42;
/// Bytes of a CPU's stack ring: 1024 stacks of 16 KiB. Readers are woken when a quarter of it has filled.
const STACK_RING_BYTES: u32 = 16 << 20;
/// Bytes of a CPU's stack ring for branch records: 682 times 32 of them.
const BRANCH_RING_BYTES: u32 = 512 << 10;
/// Quanta per CPU beside such a ring. Readers are woken when a quarter of them has been published, which the ring must hold;
/// together they stay within what any user may lock on two CPUs.
const BRANCH_QUANTA: u32 = 2048;
const _: () = assert!(BRANCH_QUANTA / 4 * 32 * 24 < BRANCH_RING_BYTES);
/// Most threads whose calls are kept, for the same reason: 264 bytes for each of twice as many.
const THREADS_FOLLOWED: u32 = 1024;

impl Options {
    /// A session that measures nothing yet; processes forked by the target are included.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            events: vec![],
            start_on_exec: false,
            inherit: true,
            multiplex: false,
            share: false,
            counter_pages: false,
            quanta: false,
            stack: Stack::None,
            branches: None,
            imprecise: false,
            randomise: false,
            rate: 0,
            windows: None,
            xmm: false,
            longest_quantum: None,
            wake_within: None,
        }
    }

    /// Adds an event to count.
    #[must_use]
    pub fn count(mut self, event: Event) -> Self {
        self.events.push((event, None));
        self
    }

    /// Adds an event to count and to sample once in `period` events: precisely, or by interrupts with all others when one
    /// of them is not [`Event::sampled_precisely`].
    #[must_use]
    pub fn sample(mut self, event: Event, period: u64) -> Self {
        self.events.push((event, Some(period)));
        self
    }

    /// Waits after the start for the target's next execve.
    #[must_use]
    pub fn start_on_exec(mut self, yes: bool) -> Self {
        self.start_on_exec = yes;
        self
    }

    /// Whether processes forked by the target are measured too.
    #[must_use]
    pub fn inherit(mut self, yes: bool) -> Self {
        self.inherit = yes;
        self
    }

    /// Samples by interrupts, with skid, also what can be sampled precisely.
    #[must_use]
    pub fn imprecise(mut self, yes: bool) -> Self {
        self.imprecise = yes;
        self
    }

    /// Draws the low bits of each sampled event's period anew every few records, so that no loop is sampled always at the
    /// same place; the mean stays the period.
    #[must_use]
    pub fn randomise(mut self, yes: bool) -> Self {
        self.randomise = yes;
        self
    }

    /// Has each precise sample hold XMM0 to XMM15, too ([`crate::record::Record::xmm`]; traces do not keep them). Only adaptive and
    /// architectural PEBS can; elsewhere the session is refused.
    #[must_use]
    pub fn xmm(mut self, yes: bool) -> Self {
        self.xmm = yes;
        self
    }

    /// Adapts the period of each sampled event, from the one asked for on, to so many samples per second of the threads'
    /// time on each CPU (at most 1,000,000); 0 keeps the period.
    #[must_use]
    pub fn rate(mut self, rate: u64) -> Self {
        self.rate = rate;
        self
    }

    /// Cuts quanta by a timer after this time on a CPU, 100 µs to 1 s; `None` is the driver's default of 10 ms.
    #[must_use]
    pub fn longest_quantum(mut self, time: Option<Duration>) -> Self {
        self.longest_quantum = time;
        self
    }

    /// Wakes who waits for the session ([`super::Session::wait`]) so long after something was published, up to a quarter sooner or later, 10 ms to 10 s, and
    /// at once when a quarter of a ring has filled; `None` is the driver's default of 50 ms. Who need not show what is measured at
    /// once disturbs it less.
    #[must_use]
    pub fn wake_within(mut self, time: Option<Duration>) -> Self {
        self.wake_within = time;
        self
    }

    /// Whether events that do not fit the counters together are measured in turns, instead of being refused. Their counts
    /// are then what was counted in their turns; [`hpm_abi::Totals::running_tsc`] says how long those were.
    #[must_use]
    pub fn multiplex(mut self, yes: bool) -> Self {
        self.multiplex = yes;
        self
    }

    /// Whether other sessions may measure the same threads. This one then waits while one does that does not share, and takes turns with
    /// those that do, of 10 ms; [`hpm_abi::Totals::running_tsc`] says for how long it had the PMU. Without it, a session excludes others
    /// and is refused beside them, unless these share. Not together with branch records or counter pages.
    #[must_use]
    pub fn share(mut self, yes: bool) -> Self {
        self.share = yes;
        self
    }

    /// Whether threads can be read while they run ([`super::Session::own_counters`], [`super::Session::counters_of`]).
    #[must_use]
    pub fn counter_pages(mut self, yes: bool) -> Self {
        self.counter_pages = yes;
        self
    }

    /// Whether quanta are read although nothing is sampled: what each thread counted, on each CPU.
    #[must_use]
    pub fn quanta(mut self, yes: bool) -> Self {
        self.quanta = yes;
        self
    }

    /// How the call stack of each sample is found.
    #[must_use]
    pub fn stack(mut self, stack: Stack) -> Self {
        self.stack = stack;
        self
    }

    /// Last branch records to keep with each sample. [`Stack::BranchCalls`] takes their place.
    #[must_use]
    pub fn branches(mut self, branches: Option<Branches>) -> Self {
        self.branches = branches;
        self
    }

    /// All events of the session, in their order: those that are sampled or counted, as they were added, and behind them those that measure
    /// windows ([`Options::windows`]).
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.measured().iter().map(|(event, _)| event.clone()).collect()
    }

    /// Their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.measured().iter().map(|(event, _)| event.name.clone()).collect()
    }

    /// The same in user mode only, of events whose mode was left open; those are named so.
    #[must_use]
    pub fn user_only(mut self) -> Self {
        let windows = self.windows.iter_mut().flat_map(|windows| &mut windows.events);
        for event in self.events.iter_mut().map(|(event, _)| event).chain(windows) {
            if event.any_privilege() {
                *event = event.clone().user_only();
            }
        }
        self
    }

    /// A session's records are all of one kind.
    fn samples_by_interrupts(&self) -> bool {
        let mut sampled = self.events.iter().filter(|(_, period)| period.is_some());
        self.imprecise || sampled.any(|(event, _)| !event.sampled_precisely())
    }

    /// How many events are sampled.
    fn sampled(&self) -> usize {
        self.events.iter().filter(|(_, period)| period.is_some()).count()
    }

    /// Whether no type of core samples more than one event.
    fn samples_one_a_core(&self) -> bool {
        let sampled =
            || self.events.iter().filter(|(_, period)| period.is_some()).map(|(event, _)| event.core_type);
        let on = |core| sampled().filter(|&of| of == core || of == CoreType::Any).count();
        CORE_TYPES.into_iter().all(|core| on(core) <= 1)
    }

    /// Whom to measure.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The request to the driver, without the descriptors that show the target. More events than the interface holds are left for the driver to refuse, by their
    /// number.
    #[must_use]
    pub fn config(&self) -> SessionConfig {
        let (scope, pid, cpu) = match self.target {
            Target::Process(pid) => (Scope::Process, pid, 0),
            Target::Thread(tid) => (Scope::Thread, tid, 0),
            Target::Cgroup(_) => (Scope::Cgroup, 0, 0),
            Target::System => (Scope::System, 0, 0),
            Target::Cpu(cpu) => (Scope::System, 0, cpu),
        };
        let measured = self.measured();
        let mut config = SessionConfig {
            envelope: Envelope::new::<SessionConfig>(),
            scope: scope as u32,
            pid,
            cpu,
            event_count: measured.len() as u32,
            max_quantum_ns: self.longest_quantum.map_or(0, |time| time.as_nanos() as u64),
            wake_ms: self.wake_within.map_or(0, |time| time.as_millis() as u32),
            ..SessionConfig::default()
        };
        // Only a process executes and forks as a whole.
        let process = scope == Scope::Process;
        config.flags = [
            (process && self.start_on_exec, SessionFlags::START_ON_EXEC),
            (process && self.inherit, SessionFlags::INHERIT),
            (matches!(self.target, Target::Cpu(_)), SessionFlags::ONE_CPU),
            (self.multiplex, SessionFlags::MULTIPLEX),
            (self.share, SessionFlags::SHARED),
            (self.counter_pages, SessionFlags::COUNTER_PAGES),
        ]
        .into_iter()
        .filter_map(|(on, flag)| on.then_some(flag))
        .sum();
        let by_interrupts = self.samples_by_interrupts();
        for (slot, (event, period)) in config.events.iter_mut().zip(measured.iter()) {
            *slot = spec(event, *period, by_interrupts);
            if period.is_some() {
                (slot.rate, slot.flags) = match &self.windows {
                    Some(_) => (0, EventSpec::WINDOWED),
                    None => (self.rate, if self.randomise { EventSpec::RANDOMISE } else { 0 }),
                };
            }
        }
        if let Some(windows) = &self.windows {
            windows.measure(&measured, &mut config.events);
        }
        let sampled = self.sampled() > 0;
        config.quanta = if sampled || self.quanta { QUANTA } else { QUANTA_UNREAD };
        if sampled {
            self.ask_for_samples(&mut config);
        }
        config
    }

    /// Memory for samples, and what is taken with each.
    fn ask_for_samples(&self, config: &mut SessionConfig) {
        config.segments = SEGMENTS;
        if self.stack == Stack::None && self.samples_one_a_core() && !self.samples_by_interrupts() {
            (config.segments, config.segment_bytes) = (LARGE_SEGMENTS, u32::MAX);
        }
        config.markers = MARKERS;
        if self.xmm {
            config.record_groups = WITH_XMM;
        }
        match self.stack {
            Stack::None | Stack::BranchCalls => {}
            Stack::Copied(bytes) => config.stack_bytes = bytes,
            Stack::FramePointers(frames) => config.frames = frames,
        }
        if let Some(branches) = self.wanted_branches() {
            (config.branches, config.branch_filter) = (branches.count, branches.filter);
        }
        config.stack_ring_bytes = match self.stack {
            Stack::Copied(_) | Stack::FramePointers(_) => STACK_RING_BYTES,
            _ if self.wanted_branches().is_some() => BRANCH_RING_BYTES,
            _ => 0,
        };
        if config.stack_ring_bytes == BRANCH_RING_BYTES {
            config.quanta = BRANCH_QUANTA;
        }
        if self.stack == Stack::BranchCalls {
            config.max_threads = THREADS_FOLLOWED;
        }
    }

    fn wanted_branches(&self) -> Option<Branches> {
        match self.stack {
            Stack::BranchCalls => Some(Branches { count: 0, filter: BranchFilter::CALL_STACK }),
            _ => self.branches,
        }
    }

    /// The request for this machine: with as many branch records as there are, where that was asked for, and without a
    /// stack ring when hardware writes them into its samples.
    pub(super) fn config_for(&self, info: &Info) -> SessionConfig {
        let mut config = self.config();
        if config.segments == 0 || self.wanted_branches().is_none() {
            return config;
        }
        if config.branches == 0 {
            // One too many where there are none, so that the driver says so.
            config.branches = info.branch_records.max(1);
        }
        let in_records = info.flags & InfoFlags::RECORDS_BRANCHES != 0 && !self.samples_by_interrupts();
        if in_records && config.stack_bytes == 0 && config.frames == 0 {
            (config.stack_ring_bytes, config.quanta) = (0, QUANTA);
        }
        config
    }
}

/// The request with less memory on each CPU: in small segments first, then with half of all that was there; `None` when hardly anything would be
/// left. Readers then have less time before something is lost, which is counted.
#[must_use]
pub(super) fn with_less_memory(config: &SessionConfig) -> Option<SessionConfig> {
    /// Room for four of the largest copied stacks.
    const LEAST_STACK_RING_BYTES: u32 = 256 << 10;
    const LEAST_ENTRIES: u32 = 256;
    const LEAST_SEGMENTS: u32 = 4;
    let small = SessionConfig { segments: config.segments.min(SEGMENTS), segment_bytes: 0, ..*config };
    if small != *config {
        return Some(small);
    }
    let half = |value: u32, least: u32| if value / 2 < least { value } else { value / 2 };
    let less = SessionConfig {
        segments: half(config.segments, LEAST_SEGMENTS),
        quanta: half(config.quanta, LEAST_ENTRIES),
        markers: half(config.markers, LEAST_ENTRIES),
        stack_ring_bytes: half(config.stack_ring_bytes, LEAST_STACK_RING_BYTES),
        ..*config
    };
    (less != *config).then_some(less)
}

fn spec(event: &Event, period: Option<u64>, by_interrupts: bool) -> EventSpec {
    let privilege = |on, bit| if on { bit } else { 0 };
    let mode = match period {
        None => EventMode::Count,
        Some(_) if by_interrupts => EventMode::Interrupt,
        Some(_) => EventMode::Precise,
    };
    EventSpec {
        encoding: if mode == EventMode::Precise { event.precise_encoding } else { event.encoding },
        period: period.unwrap_or(0),
        extra: event.extra,
        mode: mode as u8,
        privilege: privilege(event.user, EventSpec::USER) | privilege(event.kernel, EventSpec::KERNEL),
        core_type: event.core_type as u8,
        ..EventSpec::default()
    }
}
