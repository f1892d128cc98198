//! `meta.json`: what a trace needs to be understood away from the machine that recorded it.

use std::collections::BTreeMap;

use hpm_abi::QuantumFlags;
use serde::{Deserialize, Serialize};

use super::row::QuantumRow;
use crate::record::Attribution;

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
    /// How samples were paused; absent when they were not, and each stands for its period alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_guided: Option<PhaseGuided>,
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
}

/// A trace that went into another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// Its folder.
    pub folder: String,
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
    /// Period asked for, in events per record; 0 when only counted. The period used is in `quanta.periods`.
    pub period: u64,
    /// Samples per second of time on a CPU to which the driver adapted the period; 0 when it kept it.
    #[serde(default)]
    pub rate: u64,
    /// The driver drew the period's low bits anew for each quantum.
    #[serde(default)]
    pub randomised: bool,
    /// Counted at CPL 3.
    pub user: bool,
    /// Counted at CPL 0.
    pub kernel: bool,
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

/// Sums over a session: what [`hpm_abi::Totals`] gives, and what user space lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// What each event counted, lost quanta included.
    pub counts: Vec<u64>,
    /// TSC ticks during which each event was counted; less than `on_cpu_tsc` for one that had to take turns. Empty where
    /// that is not known.
    #[serde(default)]
    pub running_tsc: Vec<u64>,
    /// TSC ticks during which some thread of the session was on a CPU, summed over CPUs.
    pub on_cpu_tsc: u64,
    /// Quanta published.
    pub quanta: u64,
    /// Quanta that found no room; `counts` has what they counted.
    pub quanta_lost: u64,
    /// Records that were written.
    pub records: u64,
    /// Records that could not be written, or were held back (events / period).
    pub records_lost: u64,
    /// Records that were written and are not shown, because the kernel showed in them and the user may not see it.
    #[serde(default)]
    pub records_withheld: u64,
    /// Processes forked by measured ones that are not measured, because the driver's table was full.
    #[serde(default)]
    pub processes_left_out: u64,
    /// Quanta in which the driver held samples back, because interrupts or records came faster than its ceilings.
    #[serde(default)]
    pub throttled: u64,
    /// Records that named no counter of a sampled event, and are not among the samples.
    #[serde(default)]
    pub records_unattributed: u64,
    /// Performance-monitoring interrupts handled.
    pub pmis: u64,
    /// RDMSR and RDPMC executed for the measurement.
    #[serde(default)]
    pub msr_reads: u64,
    /// WRMSR executed for the measurement.
    #[serde(default)]
    pub msr_writes: u64,
    /// Threads that found no place in the driver's thread table.
    pub threads_overflowed: u64,
    /// Markers that were set and found no room.
    pub markers_lost: u64,
    /// Reports of mappings, names, forks and exits that the kernel had no room for.
    pub sideband_lost: u64,
}

impl Totals {
    /// Takes a quantum into account, for sums of what a trace or a part of it holds.
    pub fn add_quantum(&mut self, row: &QuantumRow) {
        self.quanta += 1;
        self.records = self.records.saturating_add(row.records.into());
        self.records_lost = self.records_lost.saturating_add(row.records_lost);
        self.on_cpu_tsc = self.on_cpu_tsc.saturating_add(row.end_tsc.saturating_sub(row.start_tsc));
        self.throttled += u64::from(row.flags & QuantumFlags::THROTTLED != 0);
        self.counts.resize(self.counts.len().max(row.counts.len()), 0);
        for (sum, count) in self.counts.iter_mut().zip(&row.counts) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// The same of a quantum in which events took turns: `active` has a bit for each that was on. Either all quanta of a sum are
    /// added so, or none.
    pub fn add_quantum_in_turns(&mut self, row: &QuantumRow, active: u32) {
        self.add_quantum(row);
        self.running_tsc.resize(self.counts.len(), 0);
        let length = row.end_tsc.saturating_sub(row.start_tsc);
        for (event, running) in self.running_tsc.iter_mut().enumerate() {
            if active >> event & 1 != 0 {
                *running = running.saturating_add(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_run_in_the_quanta_in_which_it_was_on() {
        let row = |ticks: u64, counts: [u64; 2]| QuantumRow {
            start_tsc: 100,
            end_tsc: 100 + ticks,
            counts: counts.into(),
            ..QuantumRow::default()
        };
        let mut sums = Totals::default();
        sums.add_quantum_in_turns(&row(10, [4, 0]), 0b01);
        sums.add_quantum_in_turns(&row(30, [12, 6]), 0b11);
        assert_eq!((sums.counts, sums.on_cpu_tsc, sums.running_tsc), (vec![16, 6], 40, vec![40, 30]));
    }
}
