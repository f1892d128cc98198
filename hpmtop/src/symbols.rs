//! Names for samples: a thread of its own, because a binary's symbols can take seconds to read, and neither the screen nor the
//! source may wait for that.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use libhpm::report::{Annotated, By, Entry, Hotspots, Order, Resolver, Sources, Sum, Table};
use libhpm::source::Sink as _;
use libhpm::symbol::FileFinder;
use libhpm::trace::{KernelSymbolRow, MapRow, Meta, SampleRow, ThreadRow, TraceReader};

use crate::collect::Present;
use crate::event::Event;

/// Samples of all processes that are kept, for a process that is looked at later.
const RECENT: usize = 1 << 14;
/// Samples that may wait to be named; further ones are left out, and counted.
const WAITING: u64 = 1 << 16;
/// How often what is looked at is told anew.
const PUBLISH_EACH: Duration = Duration::from_millis(500);
/// Functions or lines that are told.
const ENTRIES_MAX: usize = 500;

/// Which process is looked at, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) pid: u32,
    /// Index of the event.
    pub(crate) event: usize,
    /// By source lines, and not by functions.
    pub(crate) lines: bool,
    /// File and name of the function whose code is wanted.
    pub(crate) function: Option<(Arc<str>, Arc<str>)>,
}

/// What the samples of a process say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profile {
    pub(crate) look: Look,
    /// All its samples of the event, also of what is not told.
    pub(crate) all: Sum,
    pub(crate) entries: Vec<Entry>,
    /// The code that was asked for.
    pub(crate) code: Option<Annotated>,
    /// Why there is no code, or no names.
    pub(crate) note: Option<String>,
    /// TSC ticks from the first to the last of these samples.
    pub(crate) ticks: u64,
    /// Samples that could not be named in time, of all processes.
    pub(crate) left_out: u64,
}

/// What the thread is told.
enum Work {
    Map(MapRow),
    Thread(ThreadRow),
    Kernel(Vec<KernelSymbolRow>),
    Sample(Box<SampleRow>),
    Look(Option<Look>),
    /// Count from zero.
    Zero,
    /// Tell what is looked at now, and that it was told.
    Sync(u64),
}

/// The thread's other end.
pub(crate) struct Naming {
    work: Sender<Vec<Work>>,
    /// What waits for the next flush: a message for each sample would wake the thread thousands of times a second.
    pending: Vec<Work>,
    /// The process that is looked at; of others only the first event's samples are kept.
    pid: Option<u32>,
    waiting: Arc<AtomicU64>,
    left_out: Arc<AtomicU64>,
    kernel: Vec<KernelSymbolRow>,
    /// Mappings are read from the trace.
    replay: bool,
}

/// What the thread reads mappings and names from.
pub(crate) enum Origin {
    Live(Box<Meta>),
    Trace(PathBuf),
}

impl Naming {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for it.
    pub(crate) fn start(origin: Origin, events: SyncSender<Event>) -> Result<Self> {
        let (work, works) = channel();
        let waiting = Arc::new(AtomicU64::new(0));
        let left_out = Arc::new(AtomicU64::new(0));
        let replay = matches!(origin, Origin::Trace(_));
        let shared = (Arc::clone(&waiting), Arc::clone(&left_out));
        let run = move || {
            if let Ok(namer) = Namer::new(&origin, shared) {
                namer.run(&works, &events);
            }
        };
        thread::Builder::new().name("hpmtop-symbols".into()).spawn(run).context("cannot start a thread")?;
        Ok(Self { work, pending: Vec::new(), pid: None, waiting, left_out, kernel: Vec::new(), replay })
    }

    /// Hands on what has come.
    pub(crate) fn flush(&mut self) {
        if !self.pending.is_empty() {
            // It ends only with this program.
            let _ = self.work.send(std::mem::take(&mut self.pending));
        }
    }

    pub(crate) fn sample(&mut self, row: &SampleRow) {
        if row.event != 0 && self.pid != Some(row.pid) {
            return;
        }
        if !self.kernel.is_empty() {
            let kernel = std::mem::take(&mut self.kernel);
            self.pending.push(Work::Kernel(kernel));
        }
        if self.waiting.load(Ordering::Relaxed) >= WAITING {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.pending.push(Work::Sample(Box::new(SampleRow { stack: None, ..row.clone() })));
    }

    pub(crate) fn map(&mut self, row: &MapRow) {
        if !self.replay {
            self.pending.push(Work::Map(row.clone()));
        }
    }

    pub(crate) fn thread(&mut self, row: &ThreadRow) {
        if !self.replay {
            self.pending.push(Work::Thread(row.clone()));
        }
    }

    pub(crate) fn kernel_symbol(&mut self, row: &KernelSymbolRow) {
        if !self.replay {
            self.kernel.push(row.clone());
        }
    }

    /// Looks at a process, or at none.
    pub(crate) fn look(&mut self, look: Option<Look>) {
        self.pid = look.as_ref().map(|look| look.pid);
        self.pending.push(Work::Look(look));
        self.flush();
    }

    /// Has it told that everything until now has been told.
    pub(crate) fn sync(&mut self, number: u64) {
        self.pending.push(Work::Sync(number));
        self.flush();
    }

    /// Forgets the samples so far.
    pub(crate) fn zero(&mut self) {
        self.pending.push(Work::Zero);
        self.flush();
    }
}

/// The thread.
struct Namer {
    resolver: Resolver,
    /// Of a source that measures: what a resolver is made of when another process is looked at. What ended processes had mapped
    /// is forgotten, so that memory does not grow with them.
    live: Option<Living>,
    events: usize,
    recent: VecDeque<SampleRow>,
    look: Option<Look>,
    table: Table,
    hotspots: Hotspots,
    /// TSC of the first and the last sample of the table.
    span: Option<(u64, u64)>,
    waiting: Arc<AtomicU64>,
    left_out: Arc<AtomicU64>,
    stale: bool,
}

/// The recorded system as it is now.
struct Living {
    meta: Box<Meta>,
    present: Present,
    kernel: Vec<KernelSymbolRow>,
}

impl Living {
    /// A resolver for a process.
    fn resolver(&self, pid: u32) -> Resolver {
        let mut resolver = Resolver::of_source(&self.meta, FileFinder::default());
        resolver.know_kernel(self.kernel.iter().cloned());
        // It writes nothing, so that it cannot fail.
        self.present.maps_of(pid).for_each(|row| resolver.map(row).unwrap_or_default());
        resolver
    }
}

impl Namer {
    fn new(origin: &Origin, (waiting, left_out): (Arc<AtomicU64>, Arc<AtomicU64>)) -> libhpm::Result<Self> {
        let finder = FileFinder::default();
        let (resolver, events, live) = match origin {
            Origin::Live(meta) => {
                let living = Living { meta: meta.clone(), present: Present::default(), kernel: Vec::new() };
                (Resolver::of_source(meta, finder), meta.events.len(), Some(living))
            }
            Origin::Trace(folder) => {
                let reader = TraceReader::open(folder)?;
                (Resolver::new(&reader, finder), reader.meta().events.len(), None)
            }
        };
        Ok(Self {
            resolver,
            live,
            events,
            recent: VecDeque::new(),
            look: None,
            table: Table::new(By::Function),
            hotspots: Hotspots::default(),
            span: None,
            waiting,
            left_out,
            stale: false,
        })
    }

    fn run(mut self, works: &Receiver<Vec<Work>>, events: &SyncSender<Event>) {
        let mut published = Instant::now();
        loop {
            match works.recv_timeout(PUBLISH_EACH) {
                Ok(works) => {
                    for work in works {
                        let Work::Sync(number) = work else {
                            self.take(work);
                            continue;
                        };
                        let profile = self.profile().map(|profile| Event::Profile(Box::new(profile)));
                        for event in profile.into_iter().chain([Event::Synced(number)]) {
                            if events.send(event).is_err() {
                                return;
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.stale && published.elapsed() >= PUBLISH_EACH {
                published = Instant::now();
                self.stale = false;
                if let Some(profile) = self.profile()
                    && events.send(Event::Profile(Box::new(profile))).is_err()
                {
                    return;
                }
            }
        }
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Map(row) => {
                if let Some(live) = &mut self.live {
                    live.present.map(&row);
                }
                if self.looks_at(row.pid) {
                    self.resolver.map(&row).unwrap_or_default();
                }
            }
            Work::Thread(row) => {
                if let Some(live) = &mut self.live {
                    live.present.thread(&row);
                }
                if self.looks_at(row.pid) {
                    self.resolver.thread(&row).unwrap_or_default();
                }
            }
            Work::Kernel(rows) => {
                self.resolver.know_kernel(rows.iter().cloned());
                if let Some(live) = &mut self.live {
                    live.kernel = rows;
                }
            }
            Work::Sample(row) => {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                self.add(&row);
                if self.recent.len() >= RECENT {
                    self.recent.pop_front();
                }
                self.recent.push_back(*row);
            }
            Work::Look(look) => self.look_at(look),
            // It is the loop's.
            Work::Sync(_) => {}
            Work::Zero => {
                self.recent.clear();
                self.look_at(self.look.clone());
            }
        }
    }

    fn looks_at(&self, pid: u32) -> bool {
        self.look.as_ref().is_some_and(|look| look.pid == pid)
    }

    fn look_at(&mut self, look: Option<Look>) {
        let pid = look.as_ref().map(|look| look.pid);
        if let (Some(live), Some(pid)) = (&self.live, pid)
            && !self.looks_at(pid)
        {
            self.resolver = live.resolver(pid);
        }
        let same = |a: &Look, b: &Look| (a.pid, a.event, a.lines) == (b.pid, b.event, b.lines);
        let kept = matches!((&self.look, &look), (Some(old), Some(new)) if same(old, new));
        self.look = look;
        self.stale = true;
        if kept && !self.recent.is_empty() {
            return;
        }
        let lines = self.look.as_ref().is_some_and(|look| look.lines);
        self.table = Table::new(if lines { By::Line } else { By::Function });
        self.hotspots = Hotspots::default();
        self.span = None;
        let recent = std::mem::take(&mut self.recent);
        recent.iter().for_each(|row| self.add(row));
        self.recent = recent;
    }

    fn add(&mut self, row: &SampleRow) {
        let Some(look) = self.look.as_ref().filter(|look| look.pid == row.pid) else { return };
        if usize::from(row.event) != look.event {
            return;
        }
        let sample = self.resolver.resolve(row);
        let latency = row.latency_cycles;
        let (timed, latency_cycles) = (latency.is_some().into(), latency.unwrap_or(0).into());
        self.table.add(&sample, Sum { samples: 1, events: row.period, timed, latency_cycles });
        self.hotspots.add(row, &sample, self.events);
        let (first, last) = self.span.unwrap_or((row.tsc, row.tsc));
        self.span = Some((first.min(row.tsc), last.max(row.tsc)));
        self.stale = true;
    }

    fn profile(&mut self) -> Option<Profile> {
        let look = self.look.clone()?;
        let mut note = None;
        let mut code = None;
        if let Some((module, function)) = &look.function {
            let key = (Arc::clone(module), Some(Arc::clone(function)));
            match self.hotspots.annotate(&key, &mut self.resolver, &Sources::default()) {
                Ok(Some(annotated)) => code = Some(annotated),
                Ok(None) => note = Some(format!("{function} of {module} has no code in a file here")),
                Err(error) => {
                    note = Some(format!("the code of {function} cannot be read from {module} ({error})"));
                }
            }
            note = note.or_else(|| self.resolver.note(module).map(str::to_owned));
        }
        let mut entries = self.table.entries(Order::Events);
        entries.truncate(ENTRIES_MAX);
        let (first, last) = self.span.unwrap_or_default();
        Some(Profile {
            look,
            all: self.table.all(),
            entries,
            code,
            note,
            ticks: last - first,
            left_out: self.left_out.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, tsc: u64, event: u8) -> SampleRow {
        SampleRow { pid, tsc, event, period: 10, ip: 0x1000, ..SampleRow::default() }
    }

    #[test]
    fn a_process_that_is_looked_at_later_has_its_recent_samples() {
        let zero = || Arc::new(AtomicU64::new(9));
        let meta = Meta { events: vec![libhpm::trace::Event::default(); 2], ..Meta::default() };
        let mut namer = Namer::new(&Origin::Live(Box::new(meta)), (zero(), zero())).unwrap();
        for row in [sample(1, 100, 0), sample(1, 150, 1), sample(2, 160, 0), sample(1, 300, 0)] {
            namer.take(Work::Sample(Box::new(row)));
        }
        assert!(namer.profile().is_none(), "nothing is looked at");
        namer.take(Work::Look(Some(Look { pid: 1, ..Look::default() })));
        let profile = namer.profile().unwrap();
        assert_eq!((profile.all.samples, profile.all.events, profile.ticks), (2, 20, 200));
        assert_eq!(profile.entries.len(), 1);
        namer.take(Work::Sample(Box::new(sample(1, 400, 0))));
        assert_eq!(namer.profile().unwrap().all.samples, 3);
        namer.take(Work::Zero);
        assert_eq!(namer.profile().unwrap().all.samples, 0);
    }
}
