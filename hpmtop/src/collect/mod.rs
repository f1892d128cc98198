//! The collector: a thread that takes rows from a source, digests them into batches, and does what the screen asks for.

mod digest;
mod facts;
mod live;
mod phases;
mod player;
mod present;
mod recorder;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use libhpm::session::Target;
use libhpm::source::Source;
use libhpm::source::opened::Opened;
use libhpm::symbol::FileFinder;
use libhpm::trace::{Meta, QuantumRow, Totals};

use self::digest::{Digest, FULL};
pub(crate) use self::live::{Subject, Wanted};
use self::phases::{Tracker, Watch};
use self::player::Player;
pub(crate) use self::present::{MAPS_MAX, Present};
use self::recorder::Recorder;
use crate::event::Event;
use crate::model::{Batch, SourceFacts};
use crate::symbols::{Look, Naming, Origin, Stop};

/// Longest time between two batches.
const BEAT: Duration = Duration::from_millis(100);
/// How often sums and costs are asked for, at most.
const SUMS_EACH: Duration = Duration::from_secs(2);
/// Of perf_event every event of every thread is read for the sums: that may take one part in so many of the time.
const SUMS_SHARE: u32 = 4000;

/// What the screen asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Looks at a process, or at none.
    Look(Option<Look>),
    /// Forgets the samples so far.
    Zero,
    /// The layout of the objects behind a field of a process was changed just now.
    Applied(u32, String),
    /// Name the functions in which quanta ended.
    Name(Vec<Stop>),
    /// Begins a recording.
    Record(PathBuf),
    /// Ends it.
    StopRecording,
    /// Of a replay: stops or goes on.
    Pause(bool),
    /// Of a replay: pauses, and goes by so many ns.
    Step(i64),
    /// Of a replay: so many times as fast as it was recorded.
    Speed(f64),
    /// Of a replay: to this time in ns.
    Seek(u64),
    /// Of a replay: to the next marker (or the one before).
    Marker(bool),
    /// Of a replay: until a pattern of this process is complete, or of any.
    NextPhase(Option<u32>),
    /// Have it told that everything until now has been told.
    Sync(u64),
    /// Ends everything.
    End,
}

/// How to watch for phases.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseOptions {
    pub(crate) event: Option<String>,
    pub(crate) per: Option<String>,
    pub(crate) interval_ms: Option<f64>,
}

/// What to collect from.
pub(crate) enum Origins {
    Live(Box<Wanted>, Subject),
    Replay { trace: Box<Opened>, speed: f64, paused: bool },
}

/// Options of the collector.
pub(crate) struct Setup {
    pub(crate) origin: Origins,
    /// Length of a slot; a replay chooses by its own length without one.
    pub(crate) slot_ns: Option<u64>,
    pub(crate) phases: PhaseOptions,
    /// Of a source that measures: the trace to be recorded from the beginning.
    pub(crate) record: Option<PathBuf>,
    /// Where binaries and their debug information are.
    pub(crate) finder: FileFinder,
}

/// The collector's other end.
pub(crate) struct Collector {
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Starts the thread, in which the source is opened: perf_event's rings stay in the thread that mapped them. Returns once it
    /// measures, or can be replayed.
    ///
    /// # Errors
    /// The source cannot be opened, or the program not be run.
    pub(crate) fn start(setup: Setup, events: SyncSender<Event>) -> Result<(Self, SourceFacts)> {
        let (commands, orders) = channel();
        let (opened, waits) = channel();
        let run = move || {
            let told = opened.clone();
            if let Err(error) = collect(setup, &orders, &events, |facts| drop(opened.send(Ok(facts))))
                && let Err(unheard) = told.send(Err(error))
                && let Err(error) = unheard.0
            {
                let _ = events.send(Event::Lost(format!("{error:#}")));
            }
        };
        let thread = thread::Builder::new().name("hpmtop-collect".into()).spawn(run);
        let thread = thread.context("cannot start a thread")?;
        let facts = waits.recv().map_err(|_| anyhow!("the source was not opened"))??;
        Ok((Self { commands, thread: Some(thread) }, facts))
    }

    /// Asks for something. A collector that has ended does nothing any more.
    pub(crate) fn ask(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.ask(Command::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn collect(
    setup: Setup,
    orders: &Receiver<Command>,
    events: &SyncSender<Event>,
    opened: impl FnOnce(SourceFacts),
) -> Result<()> {
    let Setup { origin, slot_ns, phases, record, finder } = setup;
    match origin {
        Origins::Live(wanted, subject) => {
            let open = live::open(&wanted, &subject)?;
            let meta = open.source.meta().clone();
            let facts = SourceFacts {
                line: open.line,
                target: wanted.words(),
                slot_ns: slot_ns.unwrap_or(1_000_000_000),
                ..facts(&meta, &phases)?
            };
            let slot_ticks = facts.slot_ticks();
            let origin = Origin::Live(Box::new(meta.clone()));
            let naming = Naming::start(origin, finder, slot_ticks, events.clone())?;
            let mut digest = digest(&meta, &phases, naming)?;
            if let Target::Cgroup(path) = subject.target() {
                digest = digest.only(facts::members(&path));
            }
            if let Some(folder) = record {
                // Nothing was measured before.
                digest.recorder.begin(folder, Totals::default())?;
            }
            let began = facts::Since::now();
            let mut live = Live { source: open.source, subject, digest, events: events.clone(), began };
            // A program that cannot be run is told before a screen is opened for it.
            live.start()?;
            opened(facts);
            live.run(orders)
        }
        Origins::Replay { trace, speed, paused } => {
            let meta = trace.meta().clone();
            let name = trace.name().file_name().unwrap_or(trace.name().as_os_str());
            let has_quanta = trace.rows::<QuantumRow>().next().is_some();
            let facts = SourceFacts {
                line: replay_line(&meta),
                target: format!("the trace {}", name.display()),
                replay: true,
                lacks_quanta: (!has_quanta).then(|| trace.lacks_quanta("by which threads are shown")),
                slot_ns: slot_ns.unwrap_or(player::slot_ns(&trace)),
                ..facts(&meta, &phases)?
            };
            let origin = Origin::Trace(trace.folder().to_owned());
            let naming = Naming::start(origin, finder, facts.slot_ticks(), events.clone())?;
            let digest = digest(&meta, &phases, naming)?;
            let player = Player::new(trace, digest, events.clone(), facts.slot_ns, (speed, paused));
            opened(facts);
            player.run(orders)
        }
    }
}

fn replay_line(meta: &Meta) -> String {
    let note = if meta.source_note.is_empty() { String::new() } else { format!(": {}", meta.source_note) };
    let source = if meta.source == "driver" {
        format!("the hpm module, on the {} PMU", meta.machine.pmu)
    } else {
        meta.source.clone()
    };
    format!("recorded by {source}{note}")
}

/// The usual interval is the driver's quantum for phases, or what perf_event cuts quanta to.
fn interval_ms(meta: &Meta, phases: &PhaseOptions) -> f64 {
    let usual = if meta.source == "perf_event" { 10.0 } else { 1.0 };
    phases.interval_ms.unwrap_or(usual)
}

fn watch(meta: &Meta, phases: &PhaseOptions) -> Result<Option<Watch>> {
    let interval = interval_ms(meta, phases);
    Watch::new(meta, phases.event.as_deref(), phases.per.as_deref(), interval).map_err(|error| anyhow!(error))
}

fn facts(meta: &Meta, phases: &PhaseOptions) -> Result<SourceFacts> {
    Ok(SourceFacts {
        meta: meta.clone(),
        phase_signal: watch(meta, phases)?.map(|watch| watch.words),
        phase_interval_ms: interval_ms(meta, phases),
        ..SourceFacts::default()
    })
}

fn digest(meta: &Meta, phases: &PhaseOptions, naming: Naming) -> Result<Digest> {
    let tracker = Tracker::new(watch(meta, phases)?);
    Ok(Digest::new(meta.clock.tsc_khz, tracker, naming, Recorder::new(meta.clone())))
}

/// What both kinds of collectors do with a command that is not about time; whether it was one.
fn common(command: &Command, digest: &mut Digest, source: &dyn Source) -> Result<Option<String>, String> {
    let said = match command {
        Command::Look(look) => {
            digest.naming.look(look.clone());
            None
        }
        Command::Zero => {
            digest.naming.zero();
            None
        }
        Command::Applied(pid, field) => {
            digest.naming.applied(*pid, field.clone());
            None
        }
        Command::Name(ends) => {
            let at = |&(pid, address, ns): &Stop| (pid, digest.tsc(ns), address);
            let ends = ends.iter().map(at).collect();
            digest.naming.name(ends);
            None
        }
        Command::Record(folder) => {
            let now = source.totals().map_err(|error| error.to_string())?;
            Some(digest.recorder.begin(folder.clone(), now).map_err(|error| error.to_string())?)
        }
        Command::StopRecording => {
            digest.recorder.end(|| source.totals()).map_err(|error| error.to_string())?
        }
        _ => None,
    };
    Ok(said)
}

/// Tells what came of a command.
fn tell(events: &SyncSender<Event>, said: Result<Option<String>, String>) {
    if let Some(said) = said.unwrap_or_else(Some) {
        let _ = events.send(Event::Said(said));
    }
}

/// A source that measures.
struct Live {
    source: Box<dyn Source>,
    subject: Subject,
    digest: Digest,
    events: SyncSender<Event>,
    began: facts::Since,
}

impl Live {
    /// Begins to measure.
    fn start(&mut self) -> Result<()> {
        // What was there before the beginning is at the beginning.
        if let Some(now) = self.source.now() {
            self.digest.begin(now);
        }
        self.source.start(&mut self.digest)?;
        if let Subject::Program(child) = &mut self.subject {
            child.execute()?;
        }
        Ok(())
    }

    fn run(mut self, orders: &Receiver<Command>) -> Result<()> {
        let mut summed: Option<Instant> = None;
        let mut sums_each = SUMS_EACH;
        let mut over = None;
        self.digest.batch.holders = Some(facts::holders());
        let mut due = Instant::now() + BEAT;
        loop {
            if over.is_none() {
                self.source.wait(&[], due.saturating_duration_since(Instant::now()))?;
                self.source.take(&mut self.digest)?;
            } else {
                thread::sleep(BEAT);
            }
            if !self.obey(orders) {
                return self.end(over.is_none());
            }
            if over.is_none() {
                over = self.ended()?;
                if over.is_some() {
                    self.source.stop()?;
                    self.source.take(&mut self.digest)?;
                    summed = None;
                }
                self.digest.batch.over.clone_from(&over);
            }
            let now = Instant::now();
            // A source that fills up before has to be emptied, but nobody has to be woken for it.
            if now < due && over.is_none() && !self.digest.is_full() {
                continue;
            }
            due = now.max(due + BEAT);
            if summed.is_none_or(|summed| summed.elapsed() >= sums_each) {
                summed = Some(now);
                self.digest.batch.cost = facts::cost(&self.began);
                self.digest.batch.totals = self.source.totals().ok();
                sums_each = SUMS_EACH.max(now.elapsed() * SUMS_SHARE);
            }
            if let Some(said) = self.digest.recorder.tick() {
                tell(&self.events, Ok(Some(said)));
            }
            if !self.hand_on(over.is_some()) {
                return self.end(over.is_none());
            }
        }
    }

    /// Whether to go on.
    fn obey(&mut self, orders: &Receiver<Command>) -> bool {
        loop {
            match orders.try_recv() {
                Ok(Command::End) | Err(TryRecvError::Disconnected) => return false,
                Ok(Command::Sync(number)) => {
                    if !self.hand_on(false) {
                        return false;
                    }
                    self.digest.naming.sync(number);
                }
                Ok(command) => tell(&self.events, common(&command, &mut self.digest, self.source.as_ref())),
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn ended(&mut self) -> Result<Option<String>> {
        if let Some(why) = self.subject.ended()? {
            return Ok(Some(why));
        }
        Ok(self.source.is_over().then(|| "nothing is left to be measured".to_owned()))
    }

    /// Sends the batch, if the screen has room for it; whether there still is a screen.
    fn hand_on(&mut self, over: bool) -> bool {
        let digest = &mut self.digest;
        digest.naming.flush_if_seen();
        for pid in std::mem::take(&mut digest.unknown) {
            digest.batch.processes.extend(facts::process(pid));
        }
        if let (false, Some(now)) = (over, self.source.now()) {
            digest.batch.now_ns = digest.ns(now);
        }
        digest.batch.recording = digest.recorder.folder();
        let batch = Event::Batch(Box::new(digest.take_batch()));
        match self.events.try_send(batch) {
            Ok(()) => true,
            Err(TrySendError::Full(Event::Batch(batch))) if batch.quanta.len() < 10 * FULL => {
                digest.batch = Batch { totals: batch.totals, ..*batch };
                true
            }
            Err(TrySendError::Full(event)) => self.events.send(event).is_ok(),
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Ends measuring, and a recording.
    fn end(mut self, running: bool) -> Result<()> {
        if running {
            self.source.stop()?;
            self.source.take(&mut self.digest)?;
        }
        self.digest.recorder.end(|| self.source.totals())?;
        Ok(())
    }
}
