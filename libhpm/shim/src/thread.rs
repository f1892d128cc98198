//! What a thread logs with.

use std::sync::Arc;

use libhpm::analysis::method::{CallKind, MAX_COUNTS};
use libhpm::call_log::{Header, Record, VERSION, WORDS};

use crate::ffi;
use crate::log::Log;
use crate::process::{Costs, Process};
use crate::readings::Readings;

/// A thread with its log, or one that could not get any.
pub(crate) struct Thread {
    /// [`ffi::forks`] when it began.
    pub(crate) forks: u32,
    /// `None` for a thread without a log.
    pub(crate) process: Option<Arc<Process>>,
    log: Option<(Log, Header)>,
    readings: Readings,
    /// The record before, as it was read.
    words: [u64; WORDS + MAX_COUNTS],
    /// How many of the words are used.
    used: usize,
    /// What mapping windows has cost so far, in the words' units: subtracted from what is written.
    stolen: [u64; WORDS + MAX_COUNTS],
}

impl Thread {
    /// Begins the calling thread's log; `None` when there can be none.
    pub(crate) fn begin(process: Arc<Process>) -> Option<Self> {
        let readings = Readings::begin(&process.sources)?;
        let events = process.events.len();
        let header = Header {
            version: VERSION,
            pid: std::process::id(),
            tid: nix::unistd::gettid().as_raw() as u32,
            forked: ffi::forks() > 0,
            clock: process.clock_words.clone(),
            ticks_per_ms: process.ticks_per_ms,
            counting: process.source_words.clone(),
            events: process.events.clone(),
            tsc_per_ms: process.config.tsc_per_ms,
            costs: vec![0.0; 1 + events],
            skip_costs: vec![0.0; 1 + events],
            priced_cost: None,
        };
        let mut log = Log::create(process.next_log(), header.words(), process.config.limit).ok()?;
        log.put_name();
        let used = header.words();
        let mut thread = Self {
            forks: ffi::forks(),
            process: Some(Arc::clone(&process)),
            log: Some((log, header)),
            readings,
            words: [0; WORDS + MAX_COUNTS],
            used,
            stolen: [0; WORDS + MAX_COUNTS],
        };
        thread.put_costs(&process.costs());
        thread.mark();
        Some(thread)
    }

    /// A thread whose events go nowhere.
    pub(crate) fn without_log() -> Self {
        Self {
            forks: ffi::forks(),
            process: None,
            log: None,
            readings: Readings::None,
            words: [0; WORDS + MAX_COUNTS],
            used: WORDS,
            stolen: [0; WORDS + MAX_COUNTS],
        }
    }

    /// Whether there is a log.
    pub(crate) fn logs(&self) -> bool {
        self.log.is_some()
    }

    /// Says in the log what the shim costs.
    pub(crate) fn put_costs(&mut self, costs: &Costs) {
        if let Some((log, header)) = &mut self.log {
            if !costs.logged.is_empty() {
                header.costs.clone_from(&costs.logged);
                header.skip_costs.clone_from(&costs.skipped);
                header.priced_cost = costs.priced.first().copied();
            }
            log.put_header(header);
        }
    }

    /// Writes an event with its time and counts. The skipped events that do not fit go into marks before it.
    #[inline]
    pub(crate) fn record(&mut self, mut record: Record) {
        while record.skipped > Record::SKIPPED_MAX {
            record.skipped -= Record::SKIPPED_MAX;
            self.put(Record { kind: CallKind::Mark, skipped: Record::SKIPPED_MAX, ..record });
        }
        self.put(record);
    }

    #[inline]
    fn put(&mut self, record: Record) {
        if self.log.is_none() {
            return;
        }
        let [first, second] = record.pack();
        self.read();
        (self.words[0], self.words[1]) = (first, second);
        if let Some((log, _)) = &mut self.log
            && log.push(&self.words[..self.used], &self.stolen)
        {
            self.steal();
        }
    }

    #[inline]
    fn read(&mut self) {
        self.readings.read(&mut self.words[WORDS - 1..self.used]);
    }

    /// What went by since the last reading is nobody's.
    #[cold]
    fn steal(&mut self) {
        let before = self.words;
        self.read();
        // The TSC, after the time, tells when it was.
        for place in (WORDS - 1..self.used).filter(|place| *place != WORDS) {
            self.stolen[place] += self.words[place].wrapping_sub(before[place]);
        }
    }

    /// A moment that is neither entry nor exit: the thread's begin or end.
    pub(crate) fn mark(&mut self) {
        self.put(Record { kind: CallKind::Mark, function: 1, site: 0, frame: 0, skipped: 0 });
    }

    /// Time and counts now, as far as there are any.
    pub(crate) fn columns(&mut self) -> Vec<f64> {
        self.mark();
        let words =
            self.words.iter().zip(&self.stolen).map(|(word, stolen)| word.wrapping_sub(*stolen) as f64);
        words.take(self.used).skip(WORDS - 1).collect()
    }

    /// Reads so many counts from now on, and says how many it were before. Records of another size than the log's are to be
    /// forgotten.
    pub(crate) fn count(&mut self, counts: usize) -> usize {
        std::mem::replace(&mut self.used, WORDS + counts) - WORDS
    }

    /// Forgets what has been logged so far.
    pub(crate) fn rewind(&mut self) {
        if let Some((log, _)) = &mut self.log {
            log.rewind();
        }
        self.mark();
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // A child that has not begun a log of its own must leave its parent's alone.
        if self.forks == ffi::forks() && self.logs() {
            self.mark();
            // They were not known yet when a thread began beside the one that measured them.
            if let Some(process) = self.process.clone() {
                self.put_costs(&process.costs());
            }
            if let Some((log, _)) = &mut self.log {
                log.lose(crate::lost());
                log.finish();
            }
        }
    }
}
