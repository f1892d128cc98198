//! The thread that names.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use libhpm::analysis::objects::Objects;
use libhpm::report::{By, Hotspots, Order, Resolver, Sources, Sum, Table, objects};
use libhpm::source::Sink as _;
use libhpm::symbol::{FileFinder, KernelFunctions};
use libhpm::trace::{Meta, SampleRow, TraceReader};

use super::memory::Gathered;
use super::standing::Layouts;
use super::{Look, Origin, Profile, Sight, Work};
use crate::collect::{MAPS_MAX, Present};
use crate::event::Event;

/// Samples of all processes that are kept, for a process that is looked at later.
const RECENT: usize = 1 << 14;
/// How often what is looked at is told anew.
const PUBLISH_EACH: Duration = Duration::from_millis(500);
/// Functions or lines that are told.
const ENTRIES_MAX: usize = 500;
/// Processes besides the one that is looked at whose functions can be named at once.
const OTHERS_MAX: usize = 8;

/// The thread.
pub(super) struct Namer {
    finder: FileFinder,
    resolver: Resolver,
    /// Of a source that measures: resolvers of other processes, of which the ends of quanta are named.
    others: HashMap<u32, Resolver>,
    /// Of a source that measures: what a resolver is made of when another process is looked at. What ended processes had mapped
    /// is forgotten, so that memory does not grow with them.
    live: Option<Living>,
    meta: Meta,
    /// The trace, if it is one, and its objects once they are asked for.
    folder: Option<PathBuf>,
    objects: Option<Rc<Objects>>,
    slot_ticks: u64,
    /// Mappings of the process that is looked at, since its resolver knows only what is mapped.
    mapped: usize,
    recent: VecDeque<SampleRow>,
    look: Option<Look>,
    /// What is known of where in memory samples are, while that is looked at.
    memory: Option<Box<Gathered>>,
    layouts: Layouts,
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
    kernel: KernelFunctions,
}

impl Living {
    /// A resolver for a process.
    fn resolver(&self, pid: u32, finder: &FileFinder) -> Resolver {
        let mut resolver = Resolver::of_source(&self.meta, finder.clone());
        resolver.know_kernel(self.kernel.clone());
        // It writes nothing, so that it cannot fail.
        self.present.maps_of(pid).for_each(|row| resolver.map(row).unwrap_or_default());
        resolver
    }
}

impl Namer {
    pub(super) fn new(
        origin: &Origin,
        finder: FileFinder,
        slot_ticks: u64,
        (waiting, left_out): (Arc<AtomicU64>, Arc<AtomicU64>),
    ) -> libhpm::Result<Self> {
        let (resolver, meta, live, folder) = match origin {
            Origin::Live(meta) => {
                let kernel = KernelFunctions::of_this_kernel();
                let living = Living { meta: meta.clone(), present: Present::default(), kernel };
                // It is replaced when a process is looked at.
                (Resolver::of_source(meta, finder.clone()), (**meta).clone(), Some(living), None)
            }
            Origin::Trace(folder) => {
                let reader = TraceReader::open(folder)?;
                (Resolver::new(&reader, finder.clone()), reader.meta().clone(), None, Some(folder.clone()))
            }
        };
        Ok(Self {
            finder,
            resolver,
            others: HashMap::new(),
            live,
            meta,
            folder,
            objects: None,
            slot_ticks,
            mapped: 0,
            recent: VecDeque::new(),
            look: None,
            memory: None,
            layouts: Layouts::default(),
            table: Table::new(By::Function),
            hotspots: Hotspots::default(),
            span: None,
            waiting,
            left_out,
            stale: false,
        })
    }

    pub(super) fn run(mut self, works: &Receiver<Vec<Work>>, events: &SyncSender<Event>) {
        let mut published = Instant::now();
        loop {
            match works.recv_timeout(PUBLISH_EACH) {
                Ok(works) => {
                    for work in works {
                        let told = match work {
                            Work::Sync(number) => {
                                let profile = self.profile().map(|profile| Event::Profile(Box::new(profile)));
                                profile.into_iter().chain([Event::Synced(number)]).collect()
                            }
                            Work::Name(ends) => vec![Event::Names(self.names(ends))],
                            other => {
                                self.take(other);
                                Vec::new()
                            }
                        };
                        if told.into_iter().any(|event| events.send(event).is_err()) {
                            return;
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
                    self.mapped += 1;
                    self.resolver.map(&row).unwrap_or_default();
                    self.forget_mappings(row.pid);
                }
                // Of these only functions are named.
                if let Some(other) = self.others.get_mut(&row.pid).filter(|_| row.executable) {
                    other.map(&row).unwrap_or_default();
                }
            }
            Work::Thread(row) => {
                if let Some(live) = &mut self.live {
                    live.present.thread(&row);
                }
                if self.looks_at(row.pid) {
                    self.resolver.thread(&row).unwrap_or_default();
                }
                if let Some(other) = self.others.get_mut(&row.pid) {
                    other.thread(&row).unwrap_or_default();
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
            Work::Layout(pid, tsc, field) => {
                let now = || self.recent.back().map_or(0, |row| row.tsc);
                self.layouts.add(pid, tsc.unwrap_or_else(now), field);
                self.stale = true;
            }
            // They are the loop's.
            Work::Sync(_) | Work::Name(_) => {}
            Work::Zero => {
                self.recent.clear();
                self.look_at(self.look.clone());
            }
        }
    }

    /// Of a process that maps memory all the time, only what is mapped now is kept.
    fn forget_mappings(&mut self, pid: u32) {
        if let Some(live) = self.live.as_ref().filter(|_| self.mapped > 2 * MAPS_MAX) {
            self.mapped = 0;
            self.resolver.forget_mappings();
            live.present.maps_of(pid).for_each(|row| self.resolver.map(row).unwrap_or_default());
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
            self.resolver = live.resolver(pid, &self.finder);
        }
        let same = |a: &Look, b: &Look| (a.pid, a.event, a.by) == (b.pid, b.event, b.by);
        let kept = matches!((&self.look, &look), (Some(old), Some(new)) if same(old, new));
        self.look = look;
        self.stale = true;
        if kept && !self.recent.is_empty() {
            return;
        }
        let by = self.look.as_ref().map(|look| look.by);
        self.table = Table::new(if by == Some(Sight::Lines) { By::Line } else { By::Function });
        self.hotspots = Hotspots::default();
        self.span = None;
        self.memory = None;
        if let Some(look) = self.look.clone().filter(|look| look.by == Sight::Memory) {
            let objects = self.objects();
            self.memory = Some(Box::new(Gathered::new(
                &self.meta,
                &look,
                objects,
                self.slot_ticks,
                self.finder.clone(),
            )));
        }
        self.add_recent();
    }

    /// What is looked at is made of what is recent.
    fn add_recent(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        if let (Some(memory), Some(look)) = (&mut self.memory, &self.look) {
            // What one sample shows of stacks and of ways through code helps to understand the others.
            recent.iter().filter(|row| row.pid == look.pid).for_each(|row| memory.note(&self.resolver, row));
        }
        recent.iter().for_each(|row| self.add(row));
        self.recent = recent;
    }

    /// The trace's objects, which are read when they are first asked for; none of a source that measures.
    fn objects(&mut self) -> Rc<Objects> {
        if let Some(objects) = &self.objects {
            return Rc::clone(objects);
        }
        let reader = self.folder.as_ref().and_then(|folder| TraceReader::open(folder).ok());
        let found = reader.map(|reader| objects(&reader, &mut self.resolver).0).unwrap_or_default();
        Rc::clone(self.objects.insert(Rc::new(found)))
    }

    /// The functions at the ends of quanta, where they are known.
    fn names(&mut self, ends: Vec<(u32, u64, u64)>) -> Vec<(u32, u64, Option<Arc<str>>)> {
        let name = |(pid, tsc, address): (u32, u64, u64)| {
            let resolver = match &self.live {
                Some(live) if self.look.as_ref().is_none_or(|look| look.pid != pid) => {
                    if self.others.len() >= OTHERS_MAX && !self.others.contains_key(&pid) {
                        self.others.clear();
                    }
                    self.others.entry(pid).or_insert_with(|| live.resolver(pid, &self.finder))
                }
                _ => &mut self.resolver,
            };
            (pid, address, resolver.function(pid, tsc, address))
        };
        ends.into_iter().map(name).collect()
    }

    fn add(&mut self, row: &SampleRow) {
        let Some(look) = self.look.as_ref().filter(|look| look.pid == row.pid) else { return };
        if let Some(memory) = &mut self.memory {
            self.stale = true;
            memory.add(&self.resolver, row, self.layouts.of(row.pid));
            if memory.is_full() {
                memory.begin_anew();
                let recent = self.recent.iter().filter(|row| row.pid == look.pid);
                recent.clone().for_each(|row| memory.note(&self.resolver, row));
                recent.for_each(|row| memory.add_again(&self.resolver, row));
            }
        }
        if usize::from(row.event) != look.event {
            return;
        }
        let (first, last) = self.span.unwrap_or((row.tsc, row.tsc));
        self.span = Some((first.min(row.tsc), last.max(row.tsc)));
        self.stale = true;
        if self.memory.is_some() {
            return;
        }
        let sample = self.resolver.resolve(row);
        self.table.add(&sample, Sum::sample(row.period, row.latency_cycles));
        self.hotspots.add(row, &sample, self.meta.events.len());
    }

    fn profile(&mut self) -> Option<Profile> {
        let look = self.look.clone()?;
        let mut note = None;
        let mut code = None;
        if let Some((module, function)) = &look.function {
            let key = (Arc::clone(module), Some(Arc::clone(function)));
            let sources = Sources { finder: self.finder.clone(), ..Sources::default() };
            match self.hotspots.annotate(&key, &mut self.resolver, &sources) {
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
        let pid = look.pid;
        Some(Profile {
            look,
            all: self.table.all(),
            entries,
            code,
            note,
            ticks: last - first,
            left_out: self.left_out.load(Ordering::Relaxed),
            memory: self.memory.as_mut().map(|memory| memory.told(self.layouts.of(pid))),
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
        let mut namer =
            Namer::new(&Origin::Live(Box::new(meta)), FileFinder::default(), 1000, (zero(), zero())).unwrap();
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
