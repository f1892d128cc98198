//! `hpmctl stat`: count events of a program, a process or the system.

mod breakdown;
mod csv;
mod group;
mod measurement;
mod metric;
mod out;
mod repeat;

mod sources;
mod text;
mod topdown;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use libhpm::analysis::topdown::Share;
use libhpm::source::choice::Wish;
use libhpm::trace::{Event, Totals};
use serde::Serialize;

use self::breakdown::{Per, Who};
use self::group::Group;
use self::metric::Metric;
use crate::cli::{TargetArgs, seconds};
use crate::measure::sources;
use crate::output::{grouped, note, time, unit, warn};

/// Count events of a program, a process or the system.
///
/// The counts are exact: nothing is sampled or scaled, and events that do not fit the counters together are refused, unless
/// --multiplex asks for turns. The result goes to standard error, so that the
/// program's own output stays as it is (that of --trace to standard output, as there is no program); the exit status is the program's.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// Events to count, separated by commas (see `hpmctl list`) [default: cycles, instructions, branches,
    /// branch-misses and l1d-load-miss, as far as there are counters; by perf_event those it has, and task-clock,
    /// context-switches, cpu-migrations and page-faults, as far as this user may]
    #[arg(short, long = "event", value_name = "EVENTS", conflicts_with = "trace")]
    events: Vec<String>,
    /// Count what answers a question together, as far as the PMU has events and counters for it; what is left out is told
    #[arg(short, long, value_name = "GROUP", conflicts_with_all = ["events", "trace"])]
    group: Option<Group>,
    /// Where the data comes from
    #[arg(long, default_value_t, value_parser = sources(), conflicts_with = "trace")]
    source: Wish,
    /// Measure events that do not fit the counters together in turns, and scale their counts by the share of the time in
    /// which they were on
    #[arg(long, conflicts_with = "trace")]
    multiplex: bool,
    /// Also show what was counted in each interval of MS milliseconds, as soon as it has passed
    #[arg(short = 'I', long, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..))]
    interval: Option<u64>,
    /// Show the counts of each thread
    #[arg(long, conflicts_with = "per_cpu")]
    per_thread: bool,
    /// Show the counts on each CPU
    #[arg(long)]
    per_cpu: bool,
    /// Leave out the first so many seconds, or so long, such as 500ms: a program's beginning, to within 10 ms on each CPU. --interval and
    /// --duration count from then on
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "trace")]
    delay: Option<Duration>,
    /// Run the command N times, and show the means with their 95 % intervals
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..),
        conflicts_with_all = ["interval", "per_thread", "per_cpu"])]
    repeat: Option<u32>,
    /// Show where issue slots went, by the top-down method: LEVEL 1, or 2, whose events take turns; on a PMU without them, in how
    /// many cycles what stalled
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = clap::value_parser!(u8).range(1..=2), conflicts_with_all = ["events", "group", "trace"])]
    topdown: Option<u8>,
    /// Print JSON for other programs; with --interval one line for each interval, and one for the whole
    #[arg(long)]
    json: bool,
    /// Print comma-separated values, one line for each count
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write the result to this file instead; what the file holds is replaced once there is one
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
    /// The program with its arguments, `PID n`, `thread n`, `CPU n`, `the control group PATH` or `the whole system`; one of these `while` a
    /// program `ran`, if it was measured only so long.
    target: String,
    events: Vec<EventCount>,
    /// Wall-clock time from the start to the end of the measurement.
    elapsed_ns: u64,
    /// Time during which measured threads were on a CPU, summed over CPUs.
    on_cpu_ns: u64,
    /// Of the program's whole life, from its fork on, by the kernel's own account, which divides it by samples: its time on CPUs in user
    /// mode. Absent where no program was started, or has not ended, or where it is not all that is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    user_ns: Option<u64>,
    /// The same in kernel mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    system_ns: Option<u64>,
    /// `on_cpu_ns` includes the time in which CPUs were idle, because the source cannot tell.
    idle_included: bool,
    /// The driver counted single threads, from switch to switch.
    #[serde(skip)]
    of_threads: bool,
    /// Performance-monitoring interrupts handled.
    pmis: u64,
    /// RDMSR and RDPMC executed for the measurement.
    msr_reads: u64,
    /// WRMSR executed for the measurement.
    msr_writes: u64,
    /// Quanta whose counts are in the sums, but in no thread's or CPU's, because there was no room for them.
    quanta_lost: u64,
    /// Processes that a measured one forked and that are missing in the counts, because the driver's table was full.
    processes_left_out: u64,
    /// It ended before its delay was over.
    #[serde(skip)]
    missed: bool,
    /// How long after the start counting began.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ns: Option<u64>,
    /// The program's exit status as a shell shows it; null when it went on.
    exit_status: Option<i32>,
    /// Where issue slots went.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topdown: Vec<Share>,
    /// What that rests on; empty when nothing has to be said.
    #[serde(skip_serializing_if = "str::is_empty")]
    topdown_remark: String,
    /// What a replayed trace lacks, and what else has to be known of the counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// What each thread or CPU counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Slice>,
}

/// A part of a measurement.
#[derive(Clone, Serialize)]
struct Slice {
    /// Whose; absent when it is everybody's.
    #[serde(flatten)]
    who: Option<Who>,
    /// When the interval ended, since counting began; absent when it is all of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ns: Option<u64>,
    /// Time during which measured threads were on a CPU.
    on_cpu_ns: u64,
    events: Vec<EventCount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topdown: Vec<Share>,
}

#[derive(Clone, Serialize)]
struct EventCount {
    name: String,
    encoding: u64,
    user: bool,
    kernel: bool,
    /// What was counted.
    count: u64,
    /// The count's unit, if it has one: that of the kernel's clocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    /// `count`, scaled to the whole time when the event had to take turns; null when it never had its turn.
    scaled: Option<u64>,
    /// Time during which measured threads were on a CPU.
    enabled_ns: u64,
    /// Of this, the time during which the event was counted.
    running_ns: u64,
    /// What the count means beside another one of its slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<Metric>,
}

impl EventCount {
    /// Whether the count was made in turns, so that only its scaled value speaks for the whole time.
    fn took_turns(&self) -> bool {
        self.running_ns < self.enabled_ns
    }

    /// The scaled count, for people.
    fn shown(&self) -> String {
        let write = if self.unit.is_some() { time } else { grouped };
        self.scaled.map_or_else(|| "not counted".to_owned(), write)
    }
}

impl StatArgs {
    /// Whose counts are shown apart.
    fn per(&self) -> Option<Per> {
        match (self.per_thread, self.per_cpu) {
            (true, _) => Some(Per::Thread),
            (_, true) => Some(Per::Cpu),
            _ => None,
        }
    }

    /// Whether events were asked for, one by one: what nobody named may be left out.
    fn names_events(&self) -> bool {
        !self.events.is_empty() || self.topdown.is_some()
    }

    /// Whether the result goes to standard error: standard output is the program's, but a trace has none.
    fn on_standard_error(&self) -> bool {
        self.output.is_none() && self.target.trace.is_none()
    }

    /// Whether events that do not fit the counters together take turns.
    fn takes_turns(&self) -> bool {
        self.multiplex || self.topdown == Some(2)
    }
}

pub(crate) fn run(args: &StatArgs) -> Result<ExitCode> {
    let is_level = |word: &str| matches!(word, "1" | "2");
    args.target.check_value("--topdown", args.topdown == Some(1), is_level)?;
    if args.repeat.is_some() {
        if args.target.command.is_empty() {
            bail!("--repeat runs a command again and again: name one");
        }
        return repeat::run(args);
    }
    let mut out = out::Out::new(args)?;
    let (counted, mut workload, end) = measurement::measured(args, &mut out)?;
    let written = out.whole(&counted);
    if args.csv {
        beside_csv(args, &counted.source, &counted.topdown_remark);
        let missing =
            text::lost_in_parts(&counted).into_iter().chain(text::left_out(counted.processes_left_out));
        warn(&counted.warnings.iter().cloned().chain(missing).collect::<Vec<_>>());
    }
    let end = workload.outlived(end)?;
    end.tell();
    status(written, end.status())
}

/// Says what has no place in comma-separated values: who counted, and what shares of slots rest on.
fn beside_csv(args: &StatArgs, source: &str, topdown_remark: &str) {
    if args.on_standard_error() {
        // The note would stand among the values: only what has to be known of them does.
        note(&lines(topdown_remark));
    } else {
        note(&[vec![format!("source: {source}")], lines(topdown_remark)].concat());
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// The program's status, also when its result could not be written, as that is not the program's failure; unless it would say that all
/// is well.
fn status(written: Result<()>, of_program: u8) -> Result<ExitCode> {
    match written {
        Err(error) if of_program != 0 => warn(&[format!("{error:#}")]),
        written => written?,
    }
    Ok(ExitCode::from(of_program))
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
        unit: unit(&event.name),
        scaled: scaled(count, enabled, running),
        enabled_ns: ns(enabled),
        running_ns: ns(running),
        metric: None,
    }
}

/// The counts of events beside each other.
fn event_counts(events: &[Event], totals: &Totals, ns: impl Fn(u64) -> u64) -> Vec<EventCount> {
    let mut counts: Vec<EventCount> =
        events.iter().enumerate().map(|(index, event)| event_count(index, event, totals, &ns)).collect();
    metric::relate(&mut counts, ns(totals.on_cpu_tsc));
    counts
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
