//! `hpmctl record`: sample events, and write what was recorded to a trace folder.

mod allocations;
mod args;
mod earlier;
mod guided;
mod marks;
mod sources;
mod summary;
mod window;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libhpm::source::Source;
use libhpm::trace::{BATCH_TIME, Limits, Meta, RotatingWriter, Totals};

use self::allocations::Tracker;
pub(crate) use self::args::RecordArgs;
use self::earlier::Earlier;
use self::guided::Guide;
use self::marks::MarkPipe;
use self::summary::summary;
use crate::control::{Answer, Asked, Controlled, Request};
use crate::output::{say, warn};
use crate::workload::{End, Workload};

/// How often the source is looked at, which wakes the recording sooner when a quarter of its room is taken: as often as rows have to be
/// written, because each look takes the CPU from the program.
const LOOK: Duration = BATCH_TIME;
/// The same where rows are made at the end: what a recording loses that is killed.
const LOOK_DEFERRED: Duration = BATCH_TIME.saturating_mul(4);
/// When the driver wakes the recording though there is room left: much later than it looks by itself, as these are two looks.
const LATEST: Duration = LOOK.saturating_mul(10);

pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    args.check()?;
    let folder = args.folder();
    let replaces = replaces(args, &folder)?;
    libhpm::sys::memory::keep_freed();
    let marks = args.marks.as_deref().map(MarkPipe::open).transpose()?;
    let prepared = sources::prepare(args)?;
    let line = prepared.line();
    let mut tracker = args.allocations.map(Tracker::new).transpose()?;
    let mut workload =
        Workload::with(&args.target, &tracker.as_ref().map_or_else(Vec::new, Tracker::variables))?;
    if let Some(tracker) = &mut tracker {
        tracker.attach(&args.target.command, &workload)?;
    }
    // The program, which has been started already, does not inherit it.
    libhpm::sys::priority::prefer_reader();
    let mut source = prepared.open(args, &workload)?;
    let controlled = args.control.then(Controlled::new).transpose()?;
    let guide = args.phase_guided.as_deref().map(|event| Guide::new(source.meta(), event)).transpose()?;
    let earlier = replaces.then(|| Earlier::put_aside(&folder)).transpose()?;
    // A replay hands over no allocations.
    let meta = Meta { allocations: None, ..source.meta().clone() };
    let meta =
        if workload.is_replay() { meta } else { Meta { subject: workload.subject(&args.target), ..meta } };
    let mut writer = RotatingWriter::create(&folder, meta, limits(args))?;
    if let Some(guide) = &guide {
        writer.current().phase_guided(guide.so_far());
    }
    writer.pause(args.paused || args.delay.is_some(), Totals::default());
    let file = writer.current().deferred_file();
    let deferred = match args.rows_can_wait().then(|| source.defer(&file)).transpose() {
        Ok(deferred) => deferred == Some(true),
        Err(error) => return Err(without_leftovers(error.into(), writer, &folder)),
    };
    let mut recording = Recording {
        writer,
        guide,
        controlled,
        marks,
        tracker,
        earlier,
        delay: args.delay,
        duration: args.target.duration,
        look: look(args, deferred),
        since: Instant::now(),
        begun: false,
        ended: false,
    };
    let ended = recording.run(&mut workload, source.as_mut(), &line);
    if !recording.begun
        && let Err(error) = ended
    {
        return Err(without_leftovers(error, recording.writer, &folder));
    }
    let ended = ended.and_then(|end| Ok((end, recording.complete(source.as_mut())?)));
    drop(source);
    match ended {
        Ok((end, gave_up)) => passed_on(end, gave_up, &mut workload, &folder),
        Err(error) => Err(outlived(error, &mut workload, &folder)),
    }
}

/// The program's exit status, also when it was measured for a part of its time only; that the driver gave up is an error.
fn passed_on(
    end: End,
    gave_up: Option<libhpm::Error>,
    workload: &mut Workload,
    folder: &Path,
) -> Result<ExitCode> {
    let end = workload.outlived(end)?;
    end.tell();
    match gave_up {
        None => Ok(ExitCode::from(end.status())),
        Some(why) => {
            Err(why).with_context(|| format!("{} has what was measured until then", folder.display()))
        }
    }
}

/// Whether an earlier trace stands in this folder, which may be replaced.
fn replaces(args: &RecordArgs, folder: &Path) -> Result<bool> {
    if !folder.exists() {
        return Ok(false);
    }
    if !args.force {
        bail!("{} exists already: replace it with --force, or name another folder with -o", folder.display());
    }
    Earlier::check(folder, args.target.trace.as_deref())?;
    Ok(true)
}

/// Says why it takes a while, where rows are made of much.
fn tell_size(deferred: &Path) {
    const MUCH: u64 = 256 << 20;
    match deferred.metadata() {
        Ok(file) if file.len() >= MUCH => say(format_args!("making rows of {} MiB", file.len() >> 20)),
        _ => {}
    }
}

/// How often the source is looked at.
fn look(args: &RecordArgs, deferred: bool) -> Duration {
    match args.phase_guided {
        Some(_) => guided::LOOK,
        None if deferred => LOOK_DEFERRED,
        None => LOOK,
    }
}

fn limits(args: &RecordArgs) -> Limits {
    Limits {
        bytes: args.max_size.map(|mib| mib.saturating_mul(1 << 20)),
        keep: args.keep.map(|keep| keep as usize),
        on_request: args.control,
    }
}

/// Removes the trace of a recording that never began, which leaves nothing worth keeping; why.
fn without_leftovers(error: anyhow::Error, writer: RotatingWriter, folder: &Path) -> anyhow::Error {
    drop(writer);
    match std::fs::remove_dir_all(folder) {
        Ok(()) => error,
        Err(reason) => error.context(format!("cannot remove {}: {reason}", folder.display())),
    }
}

/// Lets the program of a recording that failed run on to its end: what it does must not depend on whether there is room for its trace. Why
/// it failed.
fn outlived(error: anyhow::Error, workload: &mut Workload, folder: &Path) -> anyhow::Error {
    if workload.runs_program() {
        warn(&[format!("{error:#}: the program runs on without being recorded")]);
        // How it ended is not asked for: that it was not recorded is what the status says.
        let _ = workload.outlived(End::Stopped);
    }
    let folder = folder.display();
    error.context(format!("{folder} is not complete (`hpmctl info {folder}` says what can be read of it)"))
}

/// A recording while it runs.
struct Recording {
    writer: RotatingWriter,
    /// Pauses samples.
    guide: Option<Guide>,
    controlled: Option<Controlled>,
    marks: Option<MarkPipe>,
    tracker: Option<Tracker>,
    /// The trace that is replaced.
    earlier: Option<Earlier>,
    /// How long nothing is written in the beginning.
    delay: Option<Duration>,
    /// When it ends, if it does not end by itself: after the delay.
    duration: Option<Duration>,
    /// How often it looks at the source.
    look: Duration,
    /// What the delay counts from, and after it the duration.
    since: Instant,
    /// The target is being measured, and its program runs.
    begun: bool,
    /// Somebody asked for the end.
    ended: bool,
}

impl Recording {
    /// Runs the workload until its end, or until the recording's, and writes what is reported meanwhile.
    fn run(&mut self, workload: &mut Workload, source: &mut dyn Source, line: &str) -> Result<End> {
        source.start(&mut self.writer)?;
        // What was there before: later rows may be read before the next look.
        self.writer.current().flush()?;
        workload.begin()?;
        self.begun = true;
        self.earlier.take().into_iter().for_each(Earlier::remove);
        // Only now: what cannot be measured is refused in one sentence.
        say(format_args!("source: {line}"));
        if self.controlled.is_some() {
            say(format_args!(
                "`hpmctl control start|stop|dump|end|rate {}` controls this recording",
                std::process::id()
            ));
        }
        self.since = Instant::now();
        loop {
            if let Some(end) = workload.ended()? {
                return Ok(end);
            }
            if self.delay.is_some_and(|delay| self.since.elapsed() >= delay) {
                (self.delay, self.since) = (None, Instant::now());
                self.writer.go_on(source.now().unwrap_or(0), source.totals()?);
            }
            let left = self.delay.or(self.duration).map(|time| time.saturating_sub(self.since.elapsed()));
            // The driver's descriptor stays readable once the target has gone; the program's own end is waited for without it.
            let gone = source.is_over();
            let over = left == Some(Duration::ZERO) && self.delay.is_none();
            if self.ended || over || gone && !workload.is_program() {
                return Ok(End::Stopped);
            }
            let look = left.map_or(self.look, |left| left.min(self.look).max(Duration::from_millis(1)));
            if gone {
                if let Some(end) = workload.wait(Some(look))? {
                    return Ok(end);
                }
            } else {
                source.wait(&[workload.descriptors(), self.descriptors()].concat(), look)?;
            }
            if let Some(marks) = &mut self.marks {
                // Before the source is taken, which may last: a marker's time is that of its reading.
                marks.take(|| source.now().unwrap_or_default(), &mut self.writer)?;
            }
            if let Some(tracker) = &mut self.tracker {
                tracker.take();
            }
            self.take(source)?;
            self.serve(source)?;
            self.writer.tick(|| source.totals())?;
        }
    }

    /// Writes what the source has.
    fn take(&mut self, source: &mut dyn Source) -> Result<()> {
        match &mut self.guide {
            Some(guide) => guide.take(source, &mut self.writer),
            None => Ok(source.take(&mut self.writer)?),
        }
    }

    /// What else wakes it.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let controlled = self.controlled.as_ref().map(Controlled::descriptor);
        let marks = self.marks.as_ref().map(MarkPipe::descriptor);
        let probes = self.tracker.iter().flat_map(|tracker| tracker.descriptors());
        controlled.into_iter().chain(marks).chain(probes).collect()
    }

    /// Stops the source, makes the trace complete, and says what has become of it; why the source has given up, if it has.
    fn complete(mut self, source: &mut dyn Source) -> Result<Option<libhpm::Error>> {
        if let Some(delay) = self.delay {
            say(format_args!(
                "nothing was written: the recording ended before its delay of {delay:?} was over"
            ));
        }
        tell_size(&self.writer.current().deferred_file());
        let marked = self.end(source)?;
        // Stopping may have shown that somebody else uses the PMU.
        let gave_up = source.check().err();
        let Self { mut writer, tracker, .. } = self;
        let tracked = tracker.map(|tracker| tracker.write(&mut writer, &source.meta().source)).transpose()?;
        let (mut totals, missing) = (source.totals()?, source.missing());
        let rest =
            gave_up.as_ref().map(|why| format!("what came last is missing, as the driver gave up: {why}"));
        if source.meta().source == "perf.data" {
            // They are only what its samples stand for.
            totals.counts.clear();
        }
        writer.current().missing(&missing.iter().cloned().chain(rest).collect::<Vec<_>>());
        let written = writer.finish(totals.clone())?;
        marked.iter().for_each(say);
        tracked.iter().for_each(say);
        warn(&missing);
        say(summary(&totals, &written, source.meta(), &missing, gave_up.is_some()));
        Ok(gave_up)
    }

    /// Stops the source and writes what is left; what came through the pipe of markers.
    fn end(&mut self, source: &mut dyn Source) -> Result<Option<String>> {
        source.stop()?;
        let ended = source.now().unwrap_or_default();
        if let Some(marks) = &mut self.marks {
            // Before rows are made, which may last.
            marks.take(|| ended, &mut self.writer)?;
        }
        match &mut self.guide {
            Some(guide) => guide.finish(source, &mut self.writer)?,
            None => source.take(&mut self.writer)?,
        }
        self.marks.take().map(|marks| marks.finish(|| ended, &mut self.writer)).transpose()
    }

    /// Carries out what `hpmctl control` asks for.
    fn serve(&mut self, source: &mut dyn Source) -> Result<()> {
        let Self { writer, controlled: Some(controlled), ended, delay, since, .. } = self else {
            return Ok(());
        };
        // Whoever asks decides instead of the delay, which does not begin to write later either.
        let mut decided = || {
            if delay.take().is_some() {
                *since = Instant::now();
            }
        };
        controlled.serve(|Asked { request, rate }| {
            Ok(Ok(match request {
                Request::Start => {
                    decided();
                    writer.go_on(source.now().unwrap_or(0), source.totals()?);
                    "written from now on".to_owned()
                }
                Request::Stop => {
                    decided();
                    writer.pause(true, source.totals()?);
                    "left out from now on".to_owned()
                }
                Request::Dump => format!("{} is complete", writer.dump(source.totals()?)?.display()),
                Request::End => {
                    *ended = true;
                    "the recording ends".to_owned()
                }
                Request::Rate => return Ok(set_rate(rate.unwrap_or(0), source, writer)),
            }))
        })
    }
}

/// Wishes for another rate, and has the trace say so: its events have the one that the recording began with.
fn set_rate(rate: u64, source: &mut dyn Source, writer: &mut RotatingWriter) -> Answer {
    if source.meta().events.iter().any(|event| event.within.is_some()) {
        return Err("windows keep the period of what is sampled within them (record --window)".to_owned());
    }
    if !source.wish_rate(rate) {
        return Err(
            "only the module can take another rate while it records, and only of an event that has one (record -F)".to_owned()
        );
    }
    writer.remark(&format!("while it was recorded {rate} samples/s became the wish (hpmctl control)"));
    Ok(format!("{rate} samples/s from now on"))
}
