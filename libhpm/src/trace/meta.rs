//! `meta.json`: what a trace needs to be understood away from the machine that recorded it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::totals::Totals;
use crate::record::{Attribution, BranchType};

/// What is missing in a trace that is not [`Meta::complete`].
pub(crate) const NO_PROPER_END: &str =
    "the recording did not come to its proper end: what came last is missing";

/// The contents of `meta.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// [`super::FORMAT_VERSION`]; [`super::TraceWriter`] sets it.
    pub format: u32,
    /// Version of hpm that recorded the trace.
    pub hpm_version: String,
    /// Where the data comes from: "driver", "perf_event" or "perf.data".
    pub source: String,
    /// Why that source, and what it cannot tell; empty when there is nothing to be said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_note: String,
    /// The machine.
    pub machine: Machine,
    /// What was measured, in the order of `quanta.counts`.
    pub events: Vec<Event>,
    /// How to turn TSC values into time.
    pub clock: Clock,
    /// The command line that was measured; empty for a running process or the whole system.
    pub command: Vec<String>,
    /// What was measured where it was no process: "the whole system", "CPU 1", "the control group /sys/fs/cgroup/a", with the program during
    /// whose run it was; empty else, and in traces of hpm before it kept them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The folder was written to its end: `totals` and `rows` are final.
    pub complete: bool,
    /// Sums over the whole session, by the driver.
    pub totals: Option<Totals>,
    /// Rows of each table, by its name.
    pub rows: BTreeMap<String, u64>,
    /// The traces that this one was merged from; empty for a recording.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<Merged>,
    /// What the traces lacked that this one was made from, as sentences: `complete` and `rows` tell only of this one's own
    /// tables. Empty when nothing was missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// How allocations were recorded; absent when they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations: Option<Allocations>,
    /// Types of branches that the samples' branch records have; empty where there are no such records, absent where the recorder did
    /// not say which (hpm did not before this was told, and other sources have none).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<Vec<BranchType>>,
    /// Call stacks of some samples were found by frame pointers: a caller that keeps none is missing, and nothing shows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frame_pointers: bool,
    /// How samples were paused; absent when they were not, and each stands for its period alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_guided: Option<PhaseGuided>,
}

impl Meta {
    /// The programs that were measured with their arguments, each once: of a merged trace those of the traces that it was made of. Empty
    /// where none was, or none is known.
    #[must_use]
    pub fn commands(&self) -> Vec<Vec<String>> {
        let merged = self.merged.iter().flat_map(|merged| &merged.commands);
        each_once(merged.chain([&self.command]).filter(|command| !command.is_empty()))
    }

    /// What was measured beside programs, each once: of a merged trace that of the traces that it was made of.
    #[must_use]
    pub fn subjects(&self) -> Vec<String> {
        let merged = self.merged.iter().flat_map(|merged| &merged.subjects);
        each_once(merged.chain([&self.subject]).filter(|subject| !subject.is_empty()))
    }

    /// Adds what has to be known of the source.
    pub(super) fn remark(&mut self, remark: &str) {
        self.source_note.push_str(if self.source_note.is_empty() { "" } else { "; " });
        self.source_note.push_str(remark);
    }

    /// Whether branch records show each branch that was taken, so that between two of them there was none.
    fn has_every_branch(&self) -> bool {
        self.branches.as_ref().is_some_and(|types| BranchType::ALL.iter().all(|kind| types.contains(kind)))
    }

    /// Why branch records do not tell which way control came, in one sentence; `None` where they do.
    #[must_use]
    pub fn ways_left_out(&self) -> Option<String> {
        let without = "references are followed without branch records";
        match self.branches.as_deref() {
            _ if self.has_every_branch() => None,
            None | Some([]) => {
                Some(format!("the trace does not say whether branches of all types were recorded: {without}"))
            }
            Some(types) => {
                let names: Vec<&str> = types.iter().map(|kind| kind.name()).collect();
                Some(format!("only branches of some types were recorded ({}): {without}", names.join(", ")))
            }
        }
    }

    /// What an event is called that tells it from the others: its name, and where a merged trace has several of it `NAME#2` for the second.
    /// Empty without such an event.
    #[must_use]
    pub fn event_name(&self, event: usize) -> String {
        let Some(Event { name, .. }) = self.events.get(event) else { return String::new() };
        let called = |events: &[Event]| events.iter().filter(|other| other.name == *name).count();
        match called(&self.events) {
            1 => name.clone(),
            _ => format!("{name}#{}", called(&self.events[..=event])),
        }
    }

    /// Whether all records that were lost are counted as such. What windows would have had that could not be written
    /// ([`Event::within`]) nobody knows.
    #[must_use]
    pub fn losses_known(&self) -> bool {
        self.events.iter().all(|event| event.within.is_none())
    }

    /// How many records were lost, in words, which tell no more than is known; `number` is `lost` as it is written.
    #[must_use]
    pub fn lost(&self, lost: u64, number: &str) -> String {
        match lost {
            _ if self.losses_known() => format!("{number} lost"),
            0 => "none known to be lost".to_owned(),
            _ => format!("{number} known to be lost"),
        }
    }

    /// How often samples were held back, in words, and who does not allow more; `throttled` is the number in [`Totals::throttled`].
    #[must_use]
    pub fn held_back(&self, throttled: &str) -> (String, &'static str) {
        match self.source.as_str() {
            "perf_event" => (format!("{throttled} times"), "the kernel"),
            _ => (format!("in {throttled} quanta"), "the driver"),
        }
    }
}

/// How samples were paused where the program did what was known, and what stands for the rest: a sample's period is multiplied by
/// the number of intervals for which its own stands ([`crate::analysis::phase::Shares`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseGuided {
    /// The event by whose density behaviours were told apart.
    pub event: String,
    /// Least time on a CPU of an interval, in ms.
    pub interval_ms: u64,
    /// Intervals there were; 0 where the recording did not come to its proper end.
    pub intervals: u64,
    /// Intervals in which samples were taken.
    pub recorded: u64,
    /// Behaviours that were told apart.
    pub behaviours: u64,
}

impl PhaseGuided {
    /// What has to be known of the samples, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { event, interval_ms, intervals, recorded, behaviours } = self;
        if *intervals == 0 {
            return format!(
                "samples were paused by phases of {event}; how often is not known: their events are approximated by replay"
            );
        }
        let share = *recorded as f64 * 100.0 / *intervals as f64;
        format!(
            "samples were taken in {recorded} of {intervals} intervals of {interval_ms} ms ({share:.1} %) and paused in the others, by {behaviours} \
             behaviours of {event}: the events that they stand for are approximated by replay"
        )
    }
}

/// How allocations were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocations {
    /// Mean number of allocated bytes between two objects that were recorded; 0 when all were.
    pub sampled_bytes: u64,
    /// Processes that wrote a log.
    pub processes: u64,
    /// Objects that should have been recorded and found no room; with probes also calls that were seen without their return, and the other way
    /// round: no more objects than these are missing.
    pub lost: u64,
    /// Logs that ended in the middle of an entry.
    pub damaged: u64,
    /// Of some programs all objects were recorded, or by another mean distance than `sampled_bytes`: how many a recorded one stands for is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uneven: bool,
}

impl Allocations {
    /// Both in one trace.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let apart = self.processes > 0 && other.processes > 0 && self.sampled_bytes != other.sampled_bytes;
        Self {
            sampled_bytes: self.sampled_bytes.max(other.sampled_bytes),
            processes: self.processes + other.processes,
            lost: self.lost + other.lost,
            damaged: self.damaged + other.damaged,
            uneven: self.uneven || other.uneven || apart,
        }
    }

    /// Mean number of allocated bytes for which each object stands; 0 where each stands for itself, or nobody knows for how many.
    pub(crate) fn bytes_between(self) -> u64 {
        if self.uneven { 0 } else { self.sampled_bytes }
    }

    /// What has to be known of objects when not all were recorded, in one sentence; `bytes` is the number `sampled_bytes`.
    #[must_use]
    pub fn sentence(&self, bytes: &str) -> Option<String> {
        let recorded = format!("one allocation in {bytes} bytes was recorded");
        match (self.sampled_bytes, self.uneven) {
            (0, _) => None,
            (_, false) => Some(format!("{recorded}: most objects are not known, and ages are estimated")),
            (_, true) => Some(format!(
                "{recorded}, but not of all programs: most objects are not known, and they are older than they seem"
            )),
        }
    }
}

/// What there is, without what has been there before, in this order.
fn each_once<'a, T: Clone + PartialEq + 'a>(all: impl Iterator<Item = &'a T>) -> Vec<T> {
    let mut seen: Vec<T> = Vec::new();
    for one in all {
        if !seen.contains(one) {
            seen.push(one.clone());
        }
    }
    seen
}

/// A trace that went into another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// Its folder.
    pub folder: String,
    /// The programs that it measured with their arguments, several where it was merged itself; empty without one, and in traces of hpm
    /// before it kept them.
    #[serde(default)]
    pub commands: Vec<Vec<String>>,
    /// What it measured beside programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
    /// `uname -n` of its machine.
    pub host_name: String,
    /// What was added to its CPU numbers.
    pub cpu_offset: u32,
    /// What was added to its process and thread numbers.
    pub pid_offset: u32,
    /// What can be wrong with its times against those of the first trace, in ns: 0 when both have the same clock. Between
    /// hosts this is the scatter of each one's clock pairs; how well their CLOCK_REALTIME agreed is not known.
    pub uncertainty_ns: u64,
}

/// The machine that recorded a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the PMU in hpm's table: "skylake", ….
    pub pmu: String,
    /// CPUID vendor string.
    pub vendor: String,
    /// Display family (SDM Vol. 2A, CPUID leaf 01H).
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Logical CPUs.
    pub cpus: u32,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -n`.
    pub host_name: String,
    /// `kernel.random.boot_id`, which is another one after each boot; empty where it was not written down.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
}

impl Machine {
    /// Whether what is sampled precisely is so by AMD's instruction-based sampling, not by PEBS.
    #[must_use]
    pub fn samples_by_ibs(&self) -> bool {
        self.vendor == "AuthenticAMD"
    }
}

/// How an event was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventUse {
    /// Counted only.
    #[default]
    Count,
    /// Counted, and a precise (PEBS) record written each period.
    Precise,
    /// Counted, and a record written each period by the driver in an interrupt, whose instruction pointer comes after the
    /// instruction that caused the event (skid).
    Interrupt,
    /// Counted by the kernel's software and not by hardware, and a record written each period.
    Software,
}

/// One measured event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The name that was asked for.
    pub name: String,
    /// Event select, unit mask and modifiers at their places in IA32_PERFEVTSELx (SDM Vol. 3B 20.2.1.1).
    pub encoding: u64,
    /// Value of the register that the event needed beside its encoding; 0 for none.
    #[serde(default)]
    pub extra: u64,
    /// How it was used.
    pub mode: EventUse,
    /// Which instruction its samples name.
    #[serde(default)]
    pub attribution: Attribution,
    /// Period asked for, in events per record; 0 when only counted. The period used is in `quanta.periods`, or in the
    /// samples alone.
    pub period: u64,
    /// Samples per second of time on a CPU to which the driver, or the kernel, adapted the period; 0 when it kept it.
    #[serde(default)]
    pub rate: u64,
    /// The driver drew the period's low bits anew every few records.
    #[serde(default)]
    pub randomised: bool,
    /// The windows within which it was sampled: records come only where `period` of it happen within one, and are no share of its count.
    /// Absent where they come each period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
    /// Counted at CPL 3.
    pub user: bool,
    /// Counted at CPL 0.
    pub kernel: bool,
}

impl Event {
    /// What has to be known of samples that come only where the event is dense, in one sentence; `None` where they come each period. `name`
    /// is what it is called beside the others of its recording ([`Meta::event_name`]).
    #[must_use]
    pub fn dense_places(&self, name: &str) -> Option<String> {
        let Within { event, events } = self.within.as_ref()?;
        Some(format!(
            "samples of {name} come only where {} of it happen within {events} {event}: shares are of these dense places, not of the event's \
             count, which samples times the period do not estimate",
            self.period
        ))
    }

    /// How many events one of its samples stands for where all are shown together: its period, or of those that come only where the event
    /// is dense nobody knows, so that each counts as one.
    #[must_use]
    pub fn weight(&self, period: u64) -> u64 {
        if self.within.is_some() { 1 } else { period }
    }
}

/// The windows within which an event was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// Name of the event that measured them.
    pub event: String,
    /// How many of it each is long.
    pub events: u64,
}

/// How to turn TSC values into time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// TSC ticks per millisecond.
    pub tsc_khz: u64,
    /// The same moment on three clocks, at the start and every 10 s.
    pub pairs: Vec<ClockPair>,
}

/// One moment on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// TSC.
    pub tsc: u64,
    /// `CLOCK_MONOTONIC_RAW` in ns.
    pub monotonic_raw_ns: u64,
    /// `CLOCK_REALTIME` in ns since 1970.
    pub realtime_ns: u64,
}

impl From<crate::sys::clock::ClockPair> for ClockPair {
    fn from(pair: crate::sys::clock::ClockPair) -> Self {
        let crate::sys::clock::ClockPair { tsc, monotonic_raw_ns, realtime_ns } = pair;
        Self { tsc, monotonic_raw_ns, realtime_ns }
    }
}
