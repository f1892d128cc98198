//! The source that a measurement was asked for.

use std::time::Duration;

use anyhow::{Result, bail};
use libhpm::Error;
use libhpm::analysis::topdown::Plan;
use libhpm::event::Event;
use libhpm::refusal::Reason;
use libhpm::session::{Options, Session};
use libhpm::source::Source;
use libhpm::source::choice::{
    Chosen, PerfFacts, choose, events_at_hand, open_session, parse_events, refused_for, sideband, usable_pmu,
};
use libhpm::source::driver::{DriverSource, Stacks};
use libhpm::source::opened::Opened;
use libhpm::source::perf::{self, PerfName, PerfOptions, PerfSource, PerfStacks, PerfStream};
use libhpm::source::replay::{Replay, Speed};
use libhpm::trace::{Meta, QuantumRow};

use super::{StatArgs, topdown};
use crate::opened::open_trace;
use crate::workload::Workload;

/// What is counted by the module when nothing is asked for; the last ones go first when there are too few counters.
const DEFAULT_EVENTS: [&str; 5] = ["cycles", "instructions", "branches", "branch-misses", "l1d-load-miss"];
/// What is counted by perf_event then, where it has hardware counters.
const PERF_HARDWARE: [&str; 4] = ["cycles", "instructions", "branches", "branch-misses"];
/// What is counted by perf_event in any case then.
const PERF_SOFTWARE: [&str; 4] = ["task-clock", "context-switches", "cpu-migrations", "page-faults"];

/// What can be known before the program is forked.
pub(super) enum Prepared {
    Driver { line: String, events: Vec<Event>, topdown: Option<Plan> },
    Perf(PerfFacts, Vec<PerfName>),
    Trace(Box<Opened>),
}

/// Chooses the source and understands the events.
///
/// # Errors
/// When there is no source, or it has not these events.
pub(super) fn prepare(args: &StatArgs) -> Result<Prepared> {
    if let Some(trace) = &args.target.trace {
        let opened = open_trace(trace)?;
        // Without counts of its own, those of its quanta are shown.
        if opened.meta().source == "perf.data" && opened.rows::<QuantumRow>().next().is_none() {
            bail!(opened.lacks_quanta("whose counts could be shown"));
        }
        return Ok(Prepared::Trace(Box::new(opened)));
    }
    match choose(args.source)? {
        Chosen::Driver { line } => {
            let topdown = topdown::plan(args)?;
            let events = match &topdown {
                Some(plan) => parse_events(&plan.events)?,
                None => match args.group {
                    Some(group) => group.on(&usable_pmu()?).0,
                    None if args.events.is_empty() => events_at_hand(&DEFAULT_EVENTS)?,
                    None => parse_events(&args.events)?,
                },
            };
            Ok(Prepared::Driver { line, events, topdown })
        }
        Chosen::Perf(facts) if args.topdown.is_some() => {
            bail!("issue slots are not counted through perf_event; they need the hpm module: {}", facts.why)
        }
        Chosen::Perf(facts) if args.group.is_some() => {
            bail!("groups are of the hpm module's events: {}", facts.why)
        }
        Chosen::Perf(facts) => {
            // It has no hardware counts of single threads and CPUs.
            let hardware = if facts.hardware && args.per().is_none() { &PERF_HARDWARE[..] } else { &[] };
            let events = if args.events.is_empty() {
                perf::parse(
                    &[hardware, &PERF_SOFTWARE].concat().iter().map(ToString::to_string).collect::<Vec<_>>(),
                )?
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
            Self::Trace(reader) => format!("the trace {}", reader.name().display()),
        }
    }

    /// How the counts become shares of issue slots.
    pub(super) fn topdown(&self) -> Option<&Plan> {
        match self {
            Self::Driver { topdown, .. } => topdown.as_ref(),
            Self::Perf(..) | Self::Trace(_) => None,
        }
    }

    /// Opens the source for the workload.
    ///
    /// # Errors
    /// When the source refuses.
    pub(super) fn open(&self, args: &StatArgs, workload: &Workload) -> Result<Box<dyn Source>> {
        match self {
            Self::Driver { events, .. } => {
                let session = open_fitting(args, workload, events.clone())?;
                // Threads have names only in the side band.
                let (reports, present) = match args.per() {
                    Some(_) => sideband(&session, workload.process()?, workload.is_program())
                        .map(|(reports, present)| (Some(reports), present))?,
                    None => (None, vec![]),
                };
                Ok(Box::new(DriverSource::new(session, reports, present, Stacks::AsFound, &[])))
            }
            Self::Perf(facts, events) => Ok(Box::new(by_perf(args, workload, facts, events)?)),
            Self::Trace(reader) => {
                let speed = match (args.target.speed(), args.interval) {
                    // Each interval is one look.
                    (Speed::Unlimited, Some(ms)) => Speed::Steps(Duration::from_millis(ms)),
                    (speed, _) => speed,
                };
                Ok(Box::new(Replay::new(reader, speed)))
            }
        }
    }
}

/// A session with all events; of the default ones, with as many as there are counters for.
fn open_fitting(args: &StatArgs, workload: &Workload, mut events: Vec<Event>) -> Result<Session> {
    let options = |events: &[Event]| {
        let options = Options::new(workload.target())
            .start_on_exec(workload.is_program())
            .inherit(!args.target.no_inherit)
            .quanta(args.per().is_some())
            .multiplex(args.takes_turns())
            .share(args.target.share);
        events.iter().cloned().fold(options, Options::count)
    };
    loop {
        match open_session(options(&events)) {
            Err(error)
                if !args.names_events() && events.len() > 1 && refused_for(&error, Reason::NoCounter) =>
            {
                events.pop();
            }
            result => return Ok(result?),
        }
    }
}

fn by_perf(
    args: &StatArgs,
    workload: &Workload,
    facts: &PerfFacts,
    events: &[PerfName],
) -> Result<PerfSource> {
    let options = |events| PerfOptions {
        target: workload.target(),
        on_exec: workload.is_program(),
        inherit: !args.target.no_inherit,
        events,
        stream: if args.per().is_some() { PerfStream::Quanta } else { PerfStream::Totals },
        stacks: PerfStacks::None,
        multiplex: args.multiplex,
        pausable: false,
        note: facts.line.clone(),
        command: args.target.words(),
    };
    match facts.open(events, options) {
        // Nobody asked for these, and every user may count the others.
        Err(Error::WithoutModule { .. }) if args.events.is_empty() => {
            let others: Vec<PerfName> =
                events.iter().filter(|event| !event.id.is_of_scheduler()).cloned().collect();
            Ok(facts.open(&others, options)?)
        }
        opened => Ok(opened?),
    }
}

/// What of a group is not counted, and what is not among the default events because this user may not count it; sentences.
pub(super) fn left_out(args: &StatArgs, meta: &Meta) -> Vec<String> {
    if let Some(group) = args.group {
        let (events, mut sentences) = group.on(&meta.machine.pmu);
        let is_counted = |event: &Event| meta.events.iter().any(|counted| counted.name == event.name);
        let without: Vec<&str> =
            events.iter().filter(|event| !is_counted(event)).map(|event| event.name.as_str()).collect();
        if !without.is_empty() {
            sentences.push(format!(
                "not counted, because there is no counter left (--multiplex has events take turns): {}",
                without.join(", ")
            ));
        }
        return sentences;
    }
    let by_perf = args.events.is_empty() && args.target.trace.is_none() && meta.source == "perf_event";
    let left_out: Vec<&str> = PERF_SOFTWARE
        .into_iter()
        .filter(|name| by_perf && meta.events.iter().all(|event| event.name.trim_end_matches(":u") != *name))
        .collect();
    if left_out.is_empty() {
        return vec![];
    }
    vec![format!(
        "{} are not counted: they happen in kernel mode, which this user may not measure",
        left_out.join(" and ")
    )]
}
