//! `hpmctl stat`: count events of a program, a process or the system.

mod sources;
mod text;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use libhpm::session::Target;
use libhpm::source::{Nowhere, Source};
use libhpm::trace::{Event, Totals};
use serde::Serialize;

use crate::cli::TargetArgs;
use crate::measure::{SourceArg, tsc_to_ns};
use crate::workload::{End, Workload, heading};

/// Count events of a program, a process or the system.
///
/// The counts are exact: nothing is sampled or scaled, and events that do not fit the counters together are refused, unless
/// --multiplex asks for turns. The result goes to standard error, so that the
/// program's own output stays as it is; the exit status is the program's.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Events to count, separated by commas (see `hpmctl list`) [default: cycles, instructions, branches,
    /// branch-misses and l1d-load-miss, as far as there are counters; by perf_event those it has, and task-clock,
    /// context-switches, cpu-migrations and page-faults]
    #[arg(short, long = "event", value_name = "EVENTS")]
    events: Vec<String>,
    /// Where the data comes from
    #[arg(long, value_enum, default_value_t)]
    source: SourceArg,
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

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Counted {
    /// Which source counted, and why that one.
    source: String,
    /// The program with its arguments, `PID n`, `thread n`, `CPU n`, `the control group PATH` or `the whole system`.
    target: String,
    events: Vec<EventCount>,
    /// Wall-clock time from the start to the end of the measurement.
    elapsed_ns: u64,
    /// Time during which measured threads were on a CPU, summed over CPUs.
    on_cpu_ns: u64,
    /// `on_cpu_ns` includes the time in which CPUs were idle, because the source cannot tell.
    idle_included: bool,
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
    let prepared = sources::prepare(args)?;
    let mut workload = Workload::new(&args.target)?;
    let mut source = prepared.open(args, &workload)?;
    let begun = Instant::now();
    source.start(&mut Nowhere)?;
    workload.begin()?;
    let end = wait(&mut workload, source.as_mut())?;
    let elapsed = begun.elapsed();
    source.stop()?;
    let counted = counted(args, &prepared.line(), source.as_ref(), elapsed, end)?;
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
    source.check()?;
    Ok(ExitCode::from(end.status()))
}

/// Waits for the end. A process may also leave the session by becoming what the session may not see.
fn wait(workload: &mut Workload, source: &mut dyn Source) -> Result<End> {
    const LOOK: Duration = Duration::from_millis(100);
    loop {
        let gone = !workload.is_program() && source.is_over();
        let look = if workload.is_replay() { Duration::from_millis(1) } else { LOOK };
        match workload.wait(Some(look))? {
            Some(end) => return Ok(end),
            None if gone => return Ok(End::Stopped),
            None => source.take(&mut Nowhere)?,
        }
    }
}

fn counted(args: &StatArgs, line: &str, source: &dyn Source, elapsed: Duration, end: End) -> Result<Counted> {
    let (meta, totals) = (source.meta(), source.totals()?);
    let ns = |ticks| tsc_to_ns(ticks, meta.clock.tsc_khz);
    let events = meta.events.iter().enumerate();
    Ok(Counted {
        source: line.to_owned(),
        target: heading(&args.target),
        events: events.map(|(index, event)| event_count(index, event, &totals, ns)).collect(),
        elapsed_ns: elapsed.as_nanos() as u64,
        on_cpu_ns: ns(totals.on_cpu_tsc),
        idle_included: meta.source == "perf_event"
            && matches!(args.target.target(), Some(Target::System | Target::Cpu(_))),
        pmis: totals.pmis,
        msr_reads: totals.msr_reads,
        msr_writes: totals.msr_writes,
        processes_left_out: totals.processes_left_out,
        exit_status: match end {
            End::Exit(status) => Some(status),
            End::Stopped => None,
        },
    })
}

fn event_count(index: usize, event: &Event, totals: &Totals, ns: impl Fn(u64) -> u64) -> EventCount {
    let enabled = totals.on_cpu_tsc;
    let count = totals.counts.get(index).copied().unwrap_or(0);
    // A source that does not tell has no turns.
    let running = totals.running_tsc.get(index).copied().unwrap_or(enabled);
    EventCount {
        name: event.name.clone(),
        encoding: event.encoding,
        user: event.user,
        kernel: event.kernel,
        count,
        scaled: scaled(count, enabled, running),
        enabled_ns: ns(enabled),
        running_ns: ns(running),
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
