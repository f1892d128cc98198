//! `meta.json`: what a trace needs to be understood away from the machine that recorded it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::Attribution;

/// The contents of `meta.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// [`super::FORMAT_VERSION`]; [`super::TraceWriter`] sets it.
    pub format: u32,
    /// Version of hpm that recorded the trace.
    pub hpm_version: String,
    /// Where the data comes from: "driver".
    pub source: String,
    /// The machine.
    pub machine: Machine,
    /// What was measured, in the order of `quanta.counts`.
    pub events: Vec<Event>,
    /// How to turn TSC values into time.
    pub clock: Clock,
    /// The command line that was measured; empty for a running process or the whole system.
    pub command: Vec<String>,
    /// Recording came to its proper end: `totals` and `rows` are final.
    pub complete: bool,
    /// Sums over the whole session, by the driver.
    pub totals: Option<Totals>,
    /// Rows of each table, by its name.
    pub rows: BTreeMap<String, u64>,
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

/// Sums over a session: what [`hpm_abi::Totals`] gives, and what user space lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// What each event counted, lost quanta included.
    pub counts: Vec<u64>,
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
    /// Performance-monitoring interrupts handled.
    pub pmis: u64,
    /// Threads that found no place in the driver's thread table.
    pub threads_overflowed: u64,
    /// Markers that were set and found no room.
    pub markers_lost: u64,
    /// Reports of mappings, names, forks and exits that the kernel had no room for.
    pub sideband_lost: u64,
}
