//! `hpmctl stat`: count events of a program, a process or the system.

mod text;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use libhpm::event::Event;
use libhpm::refusal::Reason;
use libhpm::session::{Options, Session, Totals};
use serde::Serialize;

use crate::cli::TargetArgs;
use crate::measure::{events_at_hand, open, parse_events, refused_for, tsc_to_ns};
use crate::workload::{End, Workload, heading};

/// Count events of a program, a process or the system.
///
/// The counts are exact: nothing is sampled or scaled, and events that do not fit the counters together are refused, unless
/// --multiplex asks for turns. The result goes to standard error, so that the
/// program's own output stays as it is; the exit status is the program's.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Events to count, separated by commas (see `hpmctl list`) [default: cycles, instructions, branches,
    /// branch-misses and l1d-load-miss, as far as there are counters]
    #[arg(short, long = "event", value_name = "EVENTS")]
    events: Vec<String>,
    /// Measure events that do not fit the counters together in turns, and scale their counts by the share of the time in
    /// which they were on
    #[arg(long)]
    multiplex: bool,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    /// Write the result to this file instead
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
}

/// What is counted when nothing is asked for; the last ones go first when there are too few counters.
const DEFAULT_EVENTS: [&str; 5] = ["cycles", "instructions", "branches", "branch-misses", "l1d-load-miss"];

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Counted {
    /// The program with its arguments, `PID n`, `thread n`, `CPU n`, `the control group PATH` or `the whole system`.
    target: String,
    events: Vec<EventCount>,
    /// Wall-clock time from the start to the end of the measurement.
    elapsed_ns: u64,
    /// Time during which measured threads were on a CPU, summed over CPUs.
    on_cpu_ns: u64,
    /// Performance-monitoring interrupts handled.
    pmis: u64,
    /// RDMSR and RDPMC executed for the measurement.
    msr_reads: u64,
    /// WRMSR executed for the measurement.
    msr_writes: u64,
    /// Processes that a measured one forked and that are missing in the counts, because the driver's table was full.
    processes_left_out: u64,
    /// The program's exit status as a shell shows it.
    exit_status: Option<i32>,
}

#[derive(Serialize)]
struct EventCount {
    name: String,
    encoding: u64,
    user: bool,
    kernel: bool,
    /// What was counted.
    count: u64,
    /// `count`, scaled to the whole time when the event had to take turns; null when it never had its turn.
    scaled: Option<u64>,
    /// Time during which measured threads were on a CPU.
    enabled_ns: u64,
    /// Of this, the time during which the event was counted.
    running_ns: u64,
}

impl EventCount {
    /// Whether the count was made in turns, so that only its scaled value speaks for the whole time.
    fn took_turns(&self) -> bool {
        self.running_ns < self.enabled_ns
    }
}

pub(crate) fn run(args: &StatArgs) -> Result<ExitCode> {
    let events =
        if args.events.is_empty() { events_at_hand(&DEFAULT_EVENTS)? } else { parse_events(&args.events)? };
    let mut workload = Workload::new(&args.target)?;
    let (session, events) = open_fitting(args, &workload, events)?;
    let begun = Instant::now();
    session.start()?;
    workload.begin()?;
    let end = wait(&mut workload, &session)?;
    let elapsed = begun.elapsed();
    session.stop()?;
    let counted = counted(args, &session, &events, session.totals()?, elapsed, end);
    let mut text = if args.json {
        serde_json::to_string_pretty(&counted).context("cannot write JSON")?
    } else {
        text::text(&counted)
    };
    text.push('\n');
    match &args.output {
        Some(file) => fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?,
        None => eprint!("{text}"),
    }
    session.check()?;
    Ok(ExitCode::from(end.status()))
}

/// A session with all events; of the default ones, with as many as there are counters for.
fn open_fitting(
    args: &StatArgs,
    workload: &Workload,
    mut events: Vec<Event>,
) -> Result<(Session, Vec<Event>)> {
    let options = |events: &[Event]| {
        let options = Options::new(workload.target())
            .start_on_exec(workload.is_program())
            .inherit(!args.target.no_inherit)
            .multiplex(args.multiplex);
        events.iter().cloned().fold(options, Options::count)
    };
    loop {
        match open(events.clone(), options) {
            Err(error)
                if args.events.is_empty() && events.len() > 1 && refused_for(&error, Reason::NoCounter) =>
            {
                events.pop();
            }
            result => return Ok(result?),
        }
    }
}

/// Waits for the end. A process may also leave the session by becoming what the session may not see.
fn wait(workload: &mut Workload, session: &Session) -> Result<End> {
    const LOOK: Duration = Duration::from_millis(100);
    loop {
        let gone = !workload.is_program() && session.is_over();
        match workload.wait(Some(LOOK))? {
            Some(end) => return Ok(end),
            None if gone => return Ok(End::Stopped),
            None => {}
        }
    }
}

fn counted(
    args: &StatArgs,
    session: &Session,
    events: &[Event],
    totals: Totals,
    elapsed: Duration,
    end: End,
) -> Counted {
    let ns = |ticks| tsc_to_ns(ticks, session.info().tsc_khz);
    let count = |(index, event): (usize, &Event)| {
        let (count, running) = (totals.counts[index], totals.running_tsc[index]);
        EventCount {
            name: event.name.clone(),
            encoding: session.config().events[index].encoding,
            user: event.user,
            kernel: event.kernel,
            count,
            scaled: scaled(count, totals.on_cpu_tsc, running),
            enabled_ns: ns(totals.on_cpu_tsc),
            running_ns: ns(running),
        }
    };
    Counted {
        target: heading(&args.target),
        events: events.iter().enumerate().map(count).collect(),
        elapsed_ns: elapsed.as_nanos() as u64,
        on_cpu_ns: ns(totals.on_cpu_tsc),
        pmis: totals.pmis,
        msr_reads: totals.msr_reads,
        msr_writes: totals.msr_writes,
        processes_left_out: totals.processes_left_out,
        exit_status: match end {
            End::Exit(status) => Some(status),
            End::Stopped => None,
        },
    }
}

/// A count made during `running` of `enabled` ticks, scaled to all of them.
fn scaled(count: u64, enabled: u64, running: u64) -> Option<u64> {
    if running == enabled {
        return Some(count);
    }
    let scaled = (u128::from(count) * u128::from(enabled)).checked_div(u128::from(running))?;
    u64::try_from(scaled).ok()
}

#[cfg(test)]
mod tests {
    use super::scaled;

    #[test]
    fn counts_are_scaled_to_the_whole_time() {
        assert_eq!(scaled(300, 4000, 1000), Some(1200));
        assert_eq!(scaled(u64::MAX / 2, u64::MAX, u64::MAX / 2), Some(u64::MAX));
        assert_eq!(scaled(0, 0, 0), Some(0), "nothing ran");
        assert_eq!(scaled(0, 1000, 0), None, "it never had its turn");
    }
}
