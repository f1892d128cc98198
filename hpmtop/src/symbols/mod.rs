//! Names for samples: a thread of its own, because a binary's symbols can take seconds to read, and neither the screen nor the
//! source may wait for that. The same thread finds out where in memory samples are, which takes as long.

mod memory;
mod namer;
mod standing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::thread;

use anyhow::{Context as _, Result};
use libhpm::report::{Annotated, Entry, Sum};
use libhpm::symbol::FileFinder;
use libhpm::trace::{MapRow, MarkerRow, Meta, SampleRow, ThreadRow};

pub(crate) use self::memory::Memory;
use self::namer::Namer;
pub(crate) use self::standing::{LAYOUT, Standing};
use crate::event::Event;

/// Samples that may wait to be named; further ones are left out, and counted.
const WAITING: u64 = 1 << 16;

/// What may wait to be handed on while no process is looked at.
const UNSEEN_MAX: usize = 1 << 11;

/// What samples are looked at by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Functions.
    #[default]
    Functions,
    /// Source lines.
    Lines,
    /// Where in memory they are.
    Memory,
}

/// The end of a quantum: process, address of the instruction, and when, in ns since the beginning.
pub(crate) type Stop = (u32, u64, u64);

/// Which process is looked at, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) pid: u32,
    /// Index of the event.
    pub(crate) event: usize,
    pub(crate) by: Sight,
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
    /// Where in memory they are, if that was asked for.
    pub(crate) memory: Option<Memory>,
}

/// What the thread is told.
enum Work {
    Map(MapRow),
    Thread(ThreadRow),
    Sample(Box<SampleRow>),
    Look(Option<Look>),
    /// What a process's marker says of the layout of its objects: when, and which field's was changed.
    Layout(u32, Option<u64>, String),
    /// Name the functions in which quanta ended: process, time (TSC), and address.
    Name(Vec<(u32, u64, u64)>),
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
    /// Mappings are read from the trace.
    replay: bool,
}

/// What the thread reads mappings and names from.
pub(crate) enum Origin {
    Live(Box<Meta>),
    Trace(PathBuf),
}

impl Naming {
    /// Starts the thread. `slot_ticks` is the length of the periods over which misses are compared, in TSC ticks.
    ///
    /// # Errors
    /// The system has no room for it.
    pub(crate) fn start(
        origin: Origin,
        finder: FileFinder,
        slot_ticks: u64,
        events: SyncSender<Event>,
    ) -> Result<Self> {
        let (work, works) = channel();
        let waiting = Arc::new(AtomicU64::new(0));
        let left_out = Arc::new(AtomicU64::new(0));
        let replay = matches!(origin, Origin::Trace(_));
        let shared = (Arc::clone(&waiting), Arc::clone(&left_out));
        let run = move || {
            if let Ok(namer) = Namer::new(&origin, finder, slot_ticks, shared) {
                namer.run(&works, &events);
            }
        };
        thread::Builder::new().name("hpmtop-symbols".into()).spawn(run).context("cannot start a thread")?;
        Ok(Self { work, pending: Vec::new(), pid: None, waiting, left_out, replay })
    }

    /// Hands on what has come, if somebody looks or much waits: the thread need not be woken for what nobody sees.
    pub(crate) fn flush_if_seen(&mut self) {
        if self.pid.is_some() || self.pending.len() >= UNSEEN_MAX {
            self.flush();
        }
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

    /// Looks at a process, or at none.
    pub(crate) fn look(&mut self, look: Option<Look>) {
        self.pid = look.as_ref().map(|look| look.pid);
        self.pending.push(Work::Look(look));
        self.flush();
    }

    /// Takes note of a marker that tells of a changed layout.
    pub(crate) fn marker(&mut self, row: &MarkerRow) {
        if let (Some(pid), Some(field)) = (row.pid, row.text.strip_prefix(LAYOUT)) {
            self.pending.push(Work::Layout(pid, Some(row.tsc), field.trim().to_owned()));
        }
    }

    /// The layout of the objects behind a field of a process was changed just now.
    pub(crate) fn applied(&mut self, pid: u32, field: String) {
        self.pending.push(Work::Layout(pid, None, field));
        self.flush();
    }

    /// Has the functions named in which quanta ended.
    pub(crate) fn name(&mut self, ends: Vec<(u32, u64, u64)>) {
        self.pending.push(Work::Name(ends));
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
