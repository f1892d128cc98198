//! What a thread logs with.

use std::sync::Arc;

use libhpm::analysis::method::{CallKind, MAX_COUNTS};
use libhpm::call_log::{CpuCosts, Header, Record, VERSION, WORDS};

use crate::clock::cpu_ns;
use crate::ffi;
use crate::log::Log;
use crate::process::{Costs, Process};
use crate::readings::Readings;

/// The word of a record that has the time; the TSC and the counts follow.
const TIME: usize = WORDS - 1;

/// [`Thread::put_words`] by the number of counts.
const PUT: [fn(&mut Thread, Record); MAX_COUNTS + 1] = [
    Thread::put_words::<WORDS>,
    Thread::put_words::<{ WORDS + 1 }>,
    Thread::put_words::<{ WORDS + 2 }>,
    Thread::put_words::<{ WORDS + 3 }>,
    Thread::put_words::<{ WORDS + 4 }>,
    Thread::put_words::<{ WORDS + 5 }>,
    Thread::put_words::<{ WORDS + 6 }>,
    Thread::put_words::<{ WORDS + 7 }>,
    Thread::put_words::<{ WORDS + 8 }>,
];

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
    /// [`Thread::put_words`] for as many.
    put: fn(&mut Self, Record),
    /// What mapping windows has cost so far, in the words' units: subtracted from what is written.
    stolen: [u64; WORDS + MAX_COUNTS],
    /// [`cpu_ns`] when its log began.
    began: u64,
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
            cpu: CpuCosts::default(),
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
            put: *PUT.get(events)?,
            stolen: [0; WORDS + MAX_COUNTS],
            began: cpu_ns(),
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
            put: PUT[0],
            stolen: [0; WORDS + MAX_COUNTS],
            began: 0,
        }
    }

    /// Whether there is a log.
    pub(crate) fn logs(&self) -> bool {
        self.log.is_some()
    }

    /// Says in the log what the shim costs.
    pub(crate) fn put_costs(&mut self, costs: &Costs) {
        if let Some((log, header)) = &mut self.log {
            // While the shim measures itself, nothing waits.
            let per_ms = header.tsc_per_ms;
            let page = |counts: usize| (WORDS + counts) as f64 * 8.0 * log.byte_ns();
            let ns = |ticks: f64| ticks / per_ms * 1e6;
            if let ([logged, costs_logged @ ..], [skipped, costs_skipped @ ..]) =
                (&*costs.logged, &*costs.skipped)
            {
                (header.costs, header.skip_costs) = (costs_logged.to_vec(), costs_skipped.to_vec());
                header.cpu.logged = ns(*logged) + page(header.events.len());
                header.cpu.skipped = ns(*skipped);
            }
            if let [priced, in_time, ..] = &*costs.priced {
                let counts = self.process.as_ref().map_or(0, |process| process.priced);
                (header.cpu.priced, header.priced_cost) = (ns(*priced) + page(counts), Some(*in_time));
            }
            log.put_header(header);
        }
    }

    /// Says in the log how many ns the process took to begin, and begins the log anew.
    pub(crate) fn put_set_up(&mut self, costs: &Costs, ns: u64) {
        if let Some((_, header)) = &mut self.log {
            header.cpu.set_up = ns as f64;
        }
        self.put_costs(costs);
        self.rewind();
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
        (self.put)(self, record);
    }

    /// For records of so many words: with their number known, there are no loops and hardly any checks.
    fn put_words<const WORDS: usize>(&mut self, record: Record) {
        let Some((log, _)) = &mut self.log else { return };
        let (Some(words), Some(stolen)) = (self.words.first_chunk_mut::<WORDS>(), self.stolen.first_chunk())
        else {
            return;
        };
        self.readings.read(&mut words[TIME..]);
        (words[0], words[1]) = record.pack().into();
        if log.push(words, stolen) {
            self.steal();
        }
    }

    /// What went by since the last reading is nobody's.
    #[cold]
    fn steal(&mut self) {
        let before = self.words;
        self.readings.read(&mut self.words[TIME..self.used]);
        // The TSC, after the time, tells when it was.
        for place in (TIME..self.used).filter(|place| *place != TIME + 1) {
            self.stolen[place] += self.words[place].wrapping_sub(before[place]);
        }
    }

    /// A moment that is neither entry nor exit: the thread's begin or end.
    pub(crate) fn mark(&mut self) {
        self.put(Record { kind: CallKind::Mark, function: 1, site: 0, frame: 0, skipped: 0 });
    }

    /// Time and counts of the last event, as far as there are any.
    pub(crate) fn columns(&self) -> Vec<f64> {
        let words =
            self.words.iter().zip(&self.stolen).map(|(word, stolen)| word.wrapping_sub(*stolen) as f64);
        words.take(self.used).skip(TIME).collect()
    }

    /// Reads so many counts from now on, and says how many it were before. Records of another size than the log's are to be
    /// forgotten.
    pub(crate) fn count(&mut self, counts: usize) -> usize {
        let counts = counts.min(MAX_COUNTS);
        self.put = PUT[counts];
        std::mem::replace(&mut self.used, WORDS + counts) - WORDS
    }

    /// Forgets what has been logged so far.
    pub(crate) fn rewind(&mut self) {
        if let Some((log, _)) = &mut self.log {
            log.rewind();
        }
        self.began = cpu_ns();
        self.mark();
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // A child that has not begun a log of its own must leave its parent's alone.
        if self.forks == ffi::forks() && self.logs() {
            self.mark();
            if let Some((_, header)) = &mut self.log {
                header.cpu.lasted = cpu_ns().saturating_sub(self.began) as f64;
            }
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
