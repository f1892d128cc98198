//! The source that a recording was asked for.

use anyhow::{Result, bail};
use libhpm::event::{Event, Sampling};
use libhpm::session::{Branches, Options, Stack, Windows};
use libhpm::source::Source;
use libhpm::source::choice::{
    Chosen, PerfFacts, choose, companion, first_at_hand, open_session, parse_events, sideband,
};
use libhpm::source::driver::{DriverSource, Stacks};
use libhpm::source::opened::Opened;
use libhpm::source::perf::{self, PerfName, PerfOptions, PerfSource, PerfStacks, PerfStream};
use libhpm::source::replay::Replay;
use libhpm::trace::AllocationRow;

use super::LATEST;
use super::args::{RecordArgs, StackMethod};
use crate::opened::open_trace;
use crate::output::{note, say};
use crate::workload::Workload;

/// Most frames followed; perf's default.
const FRAMES: u32 = 127;
/// Events per sample when nothing else was said.
const PERIOD: u64 = 10_007;
/// What is sampled by the module when nothing is asked for: the first of these that is precise.
const USUAL: [&str; 3] = ["cycles", "instructions", "load"];
/// Samples of it per second.
const USUAL_RATE: u64 = 4000;
/// The period with which that begins: some thousand a second at a usual pace.
const USUAL_PERIOD: u64 = 1_000_003;

/// What can be known before the program is forked.
pub(super) enum Prepared {
    Driver {
        line: String,
        events: Vec<Event>,
        /// How many of them are sampled; the others are counted, because some sampled ones need that.
        sampled: usize,
        /// Windows within which they are sampled.
        windows: Option<Windows>,
    },
    Perf(PerfFacts, Vec<PerfName>),
    Trace(Box<Opened>),
}

/// Chooses the source and understands the events.
///
/// # Errors
/// When there is no source, or it has not these events.
pub(super) fn prepare(args: &RecordArgs) -> Result<Prepared> {
    if let Some(trace) = &args.target.trace {
        let opened = open_trace(trace)?;
        if opened.has::<AllocationRow>() {
            note(&[format!("the allocations of {} are not taken over", trace.display())]);
        }
        return Ok(Prepared::Trace(Box::new(opened)));
    }
    match choose(args.source)? {
        Chosen::Driver { line } => {
            let mut events =
                if args.events.is_empty() { usual_event(args)? } else { parse_events(&args.events)? };
            let windows =
                args.window.as_ref().map(|window| window.windows(&events, period(args))).transpose()?;
            check_precise(args, &events)?;
            if !args.imprecise {
                tell_stand_ins(&events);
            }
            let sampled = events.len();
            if !args.counted.is_empty() {
                events.extend(parse_events(&args.counted)?);
            }
            events.extend(companion(&events)?);
            Ok(Prepared::Driver { line, events, sampled, windows })
        }
        Chosen::Perf(facts) => {
            if args.branches.is_some() || args.stacks == Some(StackMethod::Lbr) {
                bail!(
                    "branch records are not read through perf_event; they need the hpm module: {}",
                    facts.why
                );
            }
            if args.quantum.is_some() || !args.counted.is_empty() {
                bail!(
                    "--quantum and --count need the hpm module, which reads the counters of each quantum: {}",
                    facts.why
                );
            }
            if args.window.is_some() {
                bail!("--window needs the hpm module, which has hardware set counters back: {}", facts.why);
            }
            let default = if facts.hardware { &["cycles"][..] } else { &["cpu-clock", "page-faults"] };
            let events = if args.events.is_empty() {
                perf::parse(&default.iter().map(ToString::to_string).collect::<Vec<_>>())?
            } else {
                facts.parse(&args.events)?
            };
            check_clock(args, &events)?;
            Ok(Prepared::Perf(facts, events))
        }
    }
}

impl Prepared {
    /// Which source it is, and why.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Driver { line, .. } => line.clone(),
            Self::Perf(facts, _) => facts.line.clone(),
            Self::Trace(reader) => format!("the trace {}", reader.name().display()),
        }
    }

    /// Opens the source for the workload.
    ///
    /// # Errors
    /// When the source refuses.
    pub(super) fn open(self, args: &RecordArgs, workload: &Workload) -> Result<Box<dyn Source>> {
        match self {
            Self::Driver { events, sampled, windows, .. } => {
                let options = options(args, workload, events.split_at(sampled)).windows(windows);
                driver(args, workload, options)
            }
            Self::Perf(facts, events) => Ok(Box::new(by_perf(args, workload, &facts, &events)?)),
            Self::Trace(reader) => Ok(Box::new(Replay::new(&reader, args.target.speed()))),
        }
    }
}

fn driver(args: &RecordArgs, workload: &Workload, options: Options) -> Result<Box<dyn Source>> {
    let session = open_session(options)?;
    let (reports, present) = sideband(&session, workload.process()?, workload.is_program())?;
    let stacks = match args.stacks {
        Some(StackMethod::Dwarf) => Stacks::Unwind,
        Some(StackMethod::Lbr) => Stacks::Calls,
        Some(StackMethod::Fp) | None => Stacks::AsFound,
    };
    let command = workload.command(&args.target);
    Ok(Box::new(DriverSource::new(session, Some(reports), present, stacks, &command)))
}

fn by_perf(
    args: &RecordArgs,
    workload: &Workload,
    facts: &PerfFacts,
    events: &[PerfName],
) -> Result<PerfSource> {
    let options = |events| PerfOptions {
        target: workload.target(),
        on_exec: workload.is_program(),
        inherit: !args.target.no_inherit,
        events,
        stream: PerfStream::Samples { period: args.period.unwrap_or(0), rate: args.frequency.unwrap_or(0) },
        stacks: match args.stacks {
            Some(StackMethod::Dwarf) => PerfStacks::Copied(args.stack_bytes()),
            Some(StackMethod::Fp) => PerfStacks::FramePointers,
            Some(StackMethod::Lbr) | None => PerfStacks::None,
        },
        multiplex: true,
        pausable: args.phase_guided.is_some(),
        note: facts.line.clone(),
        command: workload
            .command(&args.target)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
    };
    Ok(facts.open(events, options)?)
}

/// For events to sample, and others to count beside them.
fn options(args: &RecordArgs, workload: &Workload, (sampled, counted): (&[Event], &[Event])) -> Options {
    let options = Options::new(workload.target())
        .start_on_exec(workload.is_program())
        .inherit(!args.target.no_inherit)
        .share(args.target.share)
        .imprecise(args.imprecise)
        .randomise(!args.no_randomise)
        .rate(rate(args))
        .longest_quantum(args.quantum)
        // Phases are looked for while they last.
        .wake_within((args.phase_guided.is_none()).then_some(LATEST))
        .stack(match args.stacks {
            None => Stack::None,
            Some(StackMethod::Dwarf) => Stack::Copied(args.stack_bytes()),
            Some(StackMethod::Fp) => Stack::FramePointers(FRAMES),
            Some(StackMethod::Lbr) => Stack::BranchCalls,
        })
        .branches(args.branches.map(|count| Branches {
            count,
            filter: args.branch_types.iter().fold(0, |filter, kind| filter | kind.bit()),
        }));
    let period = period(args);
    let options = sampled.iter().cloned().fold(options, |options, event| options.sample(event, period));
    counted.iter().cloned().fold(options, Options::count)
}

/// Events per sample, with which an adapted period begins.
fn period(args: &RecordArgs) -> u64 {
    args.period.unwrap_or(if args.events.is_empty() { USUAL_PERIOD } else { PERIOD })
}

/// What is sampled when nothing is asked for.
fn usual_event(args: &RecordArgs) -> Result<Vec<Event>> {
    let events = first_at_hand(&USUAL, |event| args.imprecise || event.sampled_precisely())?;
    if events.is_empty() {
        bail!(
            "none of {} is sampled precisely on this processor: name events with -e (`hpmctl list` lists them), or add \
             --imprecise",
            USUAL.join(", ")
        );
    }
    Ok(events)
}

/// Samples per second that are wished for: of what was not asked for some thousand, which costs less than 1 % (Schneider's
/// thesis, 3.4), whatever the event's pace.
fn rate(args: &RecordArgs) -> u64 {
    let usual = if args.events.is_empty() && args.period.is_none() { USUAL_RATE } else { 0 };
    args.frequency.unwrap_or(usual)
}

/// Says what is sampled in place of an event that IBS does not sample itself.
fn tell_stand_ins(events: &[Event]) {
    let stands_in =
        |event: &&Event| event.sampling == Sampling::Op && event.encoding != event.precise_encoding;
    for event in events.iter().filter(stands_in) {
        say(format_args!(
            "{} are sampled by IBS as the micro-operations that they consist of, and so counted",
            event.name
        ));
    }
}

/// The kernel samples its clocks no faster, whatever is asked for (`perf_swevent_start_hrtimer`), so that samples would stand for less time
/// than they do.
fn check_clock(args: &RecordArgs, events: &[PerfName]) -> Result<()> {
    const LEAST_NS: u64 = 10_000;
    const MOST_HZ: u64 = 1_000_000_000 / LEAST_NS;
    let Some(clock) = events.iter().find(|event| event.id.is_clock()) else { return Ok(()) };
    let asked = match (args.period, args.frequency) {
        (_, Some(rate)) if rate > MOST_HZ => format!("-F {MOST_HZ}"),
        (Some(period), None) if period < LEAST_NS => format!("-c {LEAST_NS}"),
        _ => return Ok(()),
    };
    bail!("the kernel samples {} each {LEAST_NS} ns at the most, which is {asked}", clock.name)
}

/// Imprecise samples come only when they are asked for.
fn check_precise(args: &RecordArgs, events: &[Event]) -> Result<()> {
    match events.iter().find(|event| !event.sampled_precisely()) {
        Some(event) if !args.imprecise => bail!(
            "{} cannot be sampled precisely on this processor: `hpmctl list` marks what can, and --imprecise samples \
             by interrupts, some instructions too late (skid)",
            event.name
        ),
        _ => Ok(()),
    }
}
