//! What the collector tells the model: everything that came since the last time.

use std::path::PathBuf;
use std::sync::Arc;

use libhpm::analysis::explore::QuantumEnd;
use libhpm::analysis::phase::{Interval, MAX_EVENTS, Prediction, Step};
use libhpm::trace::Totals;

/// Events that are kept of each quantum; further ones of a trace are left out, and the machine screen says so.
pub(crate) const EVENTS: usize = MAX_EVENTS;

/// A stay of a thread on a CPU, in ns since the measurement began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quantum {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) cpu: u32,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) end: Option<QuantumEnd>,
    pub(crate) samples: u32,
    pub(crate) lost: u64,
    /// User instruction pointer at the end, where that is known.
    pub(crate) last_ip: Option<u64>,
    pub(crate) counts: [u64; EVENTS],
}

impl Quantum {
    /// How long it was.
    pub(crate) fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// A change in a thread's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNews {
    pub(crate) ns: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) parent: Option<u32>,
    pub(crate) name: String,
    pub(crate) ended: bool,
}

/// What `/proc` says of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessFacts {
    pub(crate) pid: u32,
    pub(crate) parent: Option<u32>,
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) cgroup: String,
    /// A thread of the kernel: it has no command line of its own.
    pub(crate) kernel: bool,
}

/// A moment that somebody named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) ns: u64,
    pub(crate) tid: Option<u32>,
    pub(crate) text: String,
    pub(crate) value: Option<u64>,
}

/// What the detector said of an interval of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhaseNews {
    pub(crate) pid: u32,
    /// In ns since the measurement began.
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) interval: Interval,
    pub(crate) step: Step,
    pub(crate) prediction: Option<Prediction>,
}

/// How a replay stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Playback {
    pub(crate) paused: bool,
    pub(crate) speed: f64,
    /// How long the recording is, once that is known.
    pub(crate) duration_ns: Option<u64>,
}

/// What the collector itself costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// CPU time of this program, all its threads, in ns.
    pub(crate) cpu_ns: u64,
    /// Wall-clock time since it began, in ns.
    pub(crate) wall_ns: u64,
    /// Resident memory in bytes.
    pub(crate) memory: u64,
}

/// Everything since the last batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    /// Begin anew: a replay went back.
    pub(crate) reset: bool,
    pub(crate) now_ns: u64,
    pub(crate) quanta: Vec<Quantum>,
    pub(crate) threads: Vec<ThreadNews>,
    pub(crate) processes: Vec<ProcessFacts>,
    pub(crate) markers: Vec<Marker>,
    pub(crate) phases: Vec<PhaseNews>,
    /// The process of each quantum that ends before it starts, so that it belongs to no interval.
    pub(crate) disordered: Vec<u32>,
    /// Samples of each event.
    pub(crate) samples: [u64; EVENTS],
    /// Sums since the start, when they were asked for.
    pub(crate) totals: Option<Totals>,
    pub(crate) playback: Option<Playback>,
    pub(crate) cost: Option<Cost>,
    /// The folder that is being recorded to.
    pub(crate) recording: Option<Arc<PathBuf>>,
    /// Who else seems to use performance counters, when somebody has looked.
    pub(crate) holders: Option<Vec<String>>,
    /// Of a replay: what its trace lacks, as sentences, as far as is known.
    pub(crate) missing: Option<Vec<String>>,
    /// The measurement has ended, and why.
    pub(crate) over: Option<String>,
}
