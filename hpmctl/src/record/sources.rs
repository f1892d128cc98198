//! The source that a recording was asked for.

use anyhow::{Result, bail};
use libhpm::event::Event;
use libhpm::session::{Branches, Options, Stack};
use libhpm::sideband::{self, Sideband};
use libhpm::source::Source;
use libhpm::source::driver::{DriverSource, Stacks};
use libhpm::source::perf::{self, PerfName, PerfOptions, PerfSource, PerfStacks, PerfStream};
use libhpm::source::replay::Replay;
use libhpm::trace::TraceReader;

use super::{RecordArgs, StackMethod};
use crate::measure::{Chosen, PerfFacts, choose, companion, open, open_perf, parse_events};
use crate::workload::Workload;

/// Most frames followed; perf's default.
const FRAMES: u32 = 127;
/// Events per sample when nothing else was said.
const PERIOD: u64 = 10_007;

/// What can be known before the program is forked.
pub(super) enum Prepared {
    Driver {
        line: String,
        events: Vec<Event>,
        /// How many of them are sampled; the others are counted, because some sampled ones need that.
        sampled: usize,
    },
    Perf(PerfFacts, Vec<PerfName>),
    Trace(Box<TraceReader>),
}

/// Chooses the source and understands the events.
///
/// # Errors
/// When there is no source, or it has not these events.
pub(super) fn prepare(args: &RecordArgs) -> Result<Prepared> {
    if let Some(trace) = &args.target.trace {
        return Ok(Prepared::Trace(Box::new(TraceReader::open(trace)?)));
    }
    match choose(args.source)? {
        Chosen::Driver { line } => {
            if args.events.is_empty() {
                bail!("name the events to sample with -e; `hpmctl list` lists them");
            }
            let mut events = parse_events(&args.events)?;
            check_precise(args, &events)?;
            let sampled = events.len();
            events.extend(companion(&events)?);
            Ok(Prepared::Driver { line, events, sampled })
        }
        Chosen::Perf(facts) => {
            if args.branches.is_some() || args.stacks == Some(StackMethod::Lbr) {
                bail!(
                    "branch records are not read through perf_event; they need the hpm module: {}",
                    facts.why
                );
            }
            let default = if facts.hardware { &["cycles"][..] } else { &["cpu-clock", "page-faults"] };
            let events = if args.events.is_empty() {
                perf::parse(&default.iter().map(ToString::to_string).collect::<Vec<_>>())?
            } else {
                facts.parse(&args.events)?
            };
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
            Self::Trace(reader) => format!("the trace {}", reader.folder().display()),
        }
    }

    /// Opens the source for the workload.
    ///
    /// # Errors
    /// When the source refuses.
    pub(super) fn open(self, args: &RecordArgs, workload: &Workload) -> Result<Box<dyn Source>> {
        match self {
            Self::Driver { events, sampled, .. } => driver(args, workload, events, sampled),
            Self::Perf(facts, events) => Ok(Box::new(by_perf(args, workload, &facts, &events)?)),
            Self::Trace(reader) => Ok(Box::new(Replay::new(&reader, args.target.speed()))),
        }
    }
}

fn driver(
    args: &RecordArgs,
    workload: &Workload,
    events: Vec<Event>,
    sampled: usize,
) -> Result<Box<dyn Source>> {
    let (session, events) = open(events, |events| options(args, workload, events.split_at(sampled)))?;
    let (sideband, present) = match workload.process()? {
        None => (Sideband::of_system(), sideband::processes()),
        Some(pid) if workload.is_program() => (Sideband::of_child(pid), vec![]),
        Some(pid) => (Sideband::of_process(pid), vec![pid as u32]),
    };
    let stacks = match args.stacks {
        Some(StackMethod::Dwarf) => Stacks::Unwind,
        Some(StackMethod::Lbr) => Stacks::Calls,
        Some(StackMethod::Fp) | None => Stacks::AsFound,
    };
    let command = &args.target.command;
    Ok(Box::new(DriverSource::new(session, &events, Some(sideband?), present, stacks, command)))
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
            Some(StackMethod::Dwarf) => PerfStacks::Copied(args.stack_bytes),
            Some(StackMethod::Fp) => PerfStacks::FramePointers,
            Some(StackMethod::Lbr) | None => PerfStacks::None,
        },
        multiplex: true,
        note: facts.line.clone(),
        command: args.target.words(),
    };
    open_perf(facts, events, options)
}

/// For events to sample, and others to count beside them.
fn options(args: &RecordArgs, workload: &Workload, (sampled, counted): (&[Event], &[Event])) -> Options {
    let options = Options::new(workload.target())
        .start_on_exec(workload.is_program())
        .inherit(!args.target.no_inherit)
        .imprecise(args.imprecise)
        .randomise(!args.no_randomise)
        .rate(args.frequency.unwrap_or(0))
        .stack(match args.stacks {
            None => Stack::None,
            Some(StackMethod::Dwarf) => Stack::Copied(args.stack_bytes),
            Some(StackMethod::Fp) => Stack::FramePointers(FRAMES),
            Some(StackMethod::Lbr) => Stack::BranchCalls,
        })
        .branches(args.branches.map(|count| Branches {
            count,
            filter: args.branch_types.iter().fold(0, |filter, kind| filter | kind.bit()),
        }));
    let period = args.period.unwrap_or(PERIOD);
    let options = sampled.iter().cloned().fold(options, |options, event| options.sample(event, period));
    counted.iter().cloned().fold(options, Options::count)
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
