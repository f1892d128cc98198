//! The records of a trace: its quanta, with what names them.

use std::sync::Arc;

use hpm_abi::QuantumEnd;

/// One stay of a thread on a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Logical CPU.
    pub cpu: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The thread's name; empty when unknown.
    pub thread: Arc<str>,
    /// The function in which it ended; empty when unknown.
    pub function: Arc<str>,
    /// Start in ns since the trace's first record began.
    pub start_ns: u64,
    /// End in ns since then.
    pub end_ns: u64,
    /// How it ended, if that is known.
    pub end: Option<QuantumEnd>,
    /// Samples in it.
    pub samples: u32,
    /// Samples that could not be written.
    pub lost: u64,
    /// What each event counted.
    pub counts: Vec<u64>,
}

impl Record {
    /// How long it was.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// How it ended, in a word.
    #[must_use]
    pub fn end_name(&self) -> &'static str {
        match self.end {
            Some(QuantumEnd::Yielded) => "yielded",
            Some(QuantumEnd::Preempted) => "preempted",
            Some(QuantumEnd::Exit) => "exited",
            // The thread ran on.
            Some(QuantumEnd::Timer | QuantumEnd::Pmi | QuantumEnd::Flush) => "cut",
            None => "",
        }
    }
}

/// A moment that somebody named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// In ns since the trace's first record began.
    pub time_ns: i64,
    /// Its name.
    pub text: String,
}

/// All records of a trace, in the order of their starts, with its markers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    events: Vec<String>,
    records: Vec<Record>,
    markers: Vec<Marker>,
}

impl Records {
    /// From records in any order; each has a count for each of the events. One that ends before it starts is taken to be
    /// empty.
    #[must_use]
    pub fn new(events: Vec<String>, mut records: Vec<Record>, mut markers: Vec<Marker>) -> Self {
        for record in &mut records {
            record.end_ns = record.end_ns.max(record.start_ns);
            record.counts.resize(events.len(), 0);
        }
        records.sort_by_key(|record| (record.start_ns, record.cpu));
        markers.sort_by_key(|marker| marker.time_ns);
        Self { events, records, markers }
    }

    /// The names of the events that were counted.
    #[must_use]
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// All records.
    #[must_use]
    pub fn all(&self) -> &[Record] {
        &self.records
    }

    /// All markers in the order of time.
    #[must_use]
    pub fn markers(&self) -> &[Marker] {
        &self.markers
    }

    /// The last marker before a record's end, and the first one at it or later.
    #[must_use]
    pub fn markers_around(&self, record: &Record) -> (Option<&Marker>, Option<&Marker>) {
        let end = i64::try_from(record.end_ns).unwrap_or(i64::MAX);
        let next = self.markers.partition_point(|marker| marker.time_ns < end);
        (next.checked_sub(1).map(|last| &self.markers[last]), self.markers.get(next))
    }
}
