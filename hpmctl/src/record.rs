//! `hpmctl record`: sample events, and write what was recorded to a trace folder.

mod sources;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use libhpm::session::BranchFilter;
use libhpm::source::Source;
use libhpm::trace::{Event, EventUse, Limits, RotatingWriter, Totals, Written};

use crate::cli::TargetArgs;
use crate::control::{Controlled, Request};
use crate::measure::SourceArg;
use crate::workload::{End, Workload};

/// Sample events precisely (PEBS, IBS) and write a trace for `hpmctl report`.
///
/// Each sample is a record that hardware wrote: the instruction, the registers and the data address. With --imprecise it is
/// what an interrupt met some instructions later. The exit status is the program's.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Events to sample, separated by commas (see `hpmctl list`) [default: cycles, instructions or loads, the first of them that is
    /// sampled precisely here, 4000 times a second; by perf_event cycles, or without a PMU cpu-clock and page-faults]
    #[arg(short, long = "event", value_name = "EVENTS")]
    events: Vec<String>,
    /// Where the data comes from
    #[arg(long, value_enum, default_value_t)]
    source: SourceArg,
    /// Take a sample each PERIOD events [default: 10007; by perf_event as each event suggests]
    #[arg(short = 'c', long, value_name = "PERIOD", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Adapt the period, beginning with PERIOD, to HZ samples per second of time on a CPU
    #[arg(short = 'F', long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    frequency: Option<u64>,
    /// Keep the period's low bits. Without this they are drawn anew for each quantum, so that a loop is not sampled always
    /// at the same place; the mean stays PERIOD
    #[arg(long)]
    no_randomise: bool,
    /// Sample by interrupts: any event, without data addresses, and some instructions too late (skid)
    #[arg(long)]
    imprecise: bool,
    /// Folder to write; it must not exist yet [default: the program's name, or `trace`, with .hpm]
    #[arg(short, long, value_name = "NAME.hpm")]
    output: Option<PathBuf>,
    /// Record call stacks, by unwind tables (dwarf), frame pointers (fp) or last branch records (lbr); each sample then costs
    /// an interrupt, but for lbr from Ice Lake on
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "dwarf",
        overrides_with = "no_stacks"
    )]
    stacks: Option<StackMethod>,
    /// Record no call stacks (the default)
    #[arg(long, overrides_with = "stacks")]
    no_stacks: bool,
    /// Bytes of stack to unwind for each sample by tables: a multiple of 1024 up to 64512
    #[arg(long, value_name = "N", default_value_t = 16 * 1024, value_parser = stack_bytes)]
    stack_bytes: u32,
    /// Record the last N branches before each sample [default: as many as the processor keeps]; each sample then costs an
    /// interrupt, but from Ice Lake on
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        value_parser = clap::value_parser!(u32).range(0..=32)
    )]
    branches: Option<u32>,
    /// Types of branches to record, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "TYPES", value_delimiter = ',', requires = "branches")]
    branch_types: Vec<BranchType>,
    /// End the trace at this size, and go on in another beside it (NAME-2.hpm, …)
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    max_size: Option<u64>,
    /// Of the traces of --max-size keep the N newest
    #[arg(long, value_name = "N", requires = "max_size", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// End after so many seconds; a program is then no longer measured, and waited for
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Let `hpmctl control` start, stop and dump the recording
    #[arg(long)]
    control: bool,
    /// Write nothing until `hpmctl control start`
    #[arg(long, requires = "control")]
    paused: bool,
    #[command(flatten)]
    target: TargetArgs,
}

/// How call stacks are found.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum StackMethod {
    /// Copy the stack and unwind it by the programs' unwind tables: works with any compiler's output
    Dwarf,
    /// Let the driver follow frame pointers: cheap, but programs must be built to keep them
    Fp,
    /// Let hardware follow calls in its last branch records (Haswell and later): any code, 16 or 32 calls deep
    Lbr,
}

/// Types of branches.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum BranchType {
    /// Conditional jumps
    Conditional,
    /// Direct jumps
    Jump,
    /// Indirect jumps
    IndirectJump,
    /// Direct calls
    Call,
    /// Indirect calls
    IndirectCall,
    /// Returns
    Return,
    /// System calls, interrupts and the ways back, where kernel mode is measured
    Far,
}

impl BranchType {
    fn bit(self) -> u32 {
        match self {
            Self::Conditional => BranchFilter::CONDITIONAL,
            Self::Jump => BranchFilter::JUMP,
            Self::IndirectJump => BranchFilter::INDIRECT_JUMP,
            Self::Call => BranchFilter::CALL,
            Self::IndirectCall => BranchFilter::INDIRECT_CALL,
            Self::Return => BranchFilter::RETURN,
            Self::Far => BranchFilter::FAR,
        }
    }
}

/// Longest time between two looks at the source.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    if args.branches.is_some() && args.stacks == Some(StackMethod::Lbr) {
        bail!(
            "--stacks=lbr uses the branch records for calls: leave --branches out, or take stacks by another method"
        );
    }
    let folder = output(args);
    if folder.exists() {
        bail!("{} exists already: remove it, or name another folder with -o", folder.display());
    }
    let prepared = sources::prepare(args)?;
    let line = prepared.line();
    let mut workload = Workload::new(&args.target)?;
    let mut source = prepared.open(args, &workload)?;
    let limits = Limits {
        bytes: args.max_size.map(|mib| mib.saturating_mul(1 << 20)),
        keep: args.keep.map(|keep| keep as usize),
        on_request: args.control,
    };
    let controlled = args.control.then(Controlled::new).transpose()?;
    let mut writer = RotatingWriter::create(&folder, source.meta().clone(), limits)?;
    writer.pause(args.paused);
    let mut recording = Recording { writer: &mut writer, controlled, duration: args.duration, ended: false };
    let end = match recording.run(&mut workload, source.as_mut(), &line) {
        Ok(end) => end,
        Err(error) => {
            // A program that never ran leaves nothing worth keeping.
            if matches!(error.downcast_ref(), Some(libhpm::Error::Exec { .. })) {
                drop(writer);
                std::fs::remove_dir_all(&folder)
                    .with_context(|| format!("cannot remove {}", folder.display()))?;
            }
            return Err(error);
        }
    };
    let whole = source.check();
    source.stop()?;
    source.take(&mut writer)?;
    let totals = source.totals()?;
    let written = writer.finish(totals.clone())?;
    eprintln!("{}", summary(&totals, &written, &source.meta().events));
    whole?;
    drop(source);
    // Its exit status is passed on, also when it was measured for a part of its time only.
    let end = if end == End::Stopped && workload.is_program() { outlived(&mut workload)? } else { end };
    Ok(ExitCode::from(end.status()))
}

/// Waits for a program that is no longer measured.
fn outlived(workload: &mut Workload) -> Result<End> {
    loop {
        if let Some(end) = workload.wait(None)? {
            return Ok(end);
        }
    }
}

/// A recording while it runs.
struct Recording<'a> {
    writer: &'a mut RotatingWriter,
    controlled: Option<Controlled>,
    /// When it ends, if it does not end by itself.
    duration: Option<Duration>,
    /// Somebody asked for the end.
    ended: bool,
}

impl Recording<'_> {
    /// Runs the workload until its end, or until the recording's, and writes what is reported meanwhile.
    fn run(&mut self, workload: &mut Workload, source: &mut dyn Source, line: &str) -> Result<End> {
        source.start(self.writer)?;
        workload.begin()?;
        // Only now: what cannot be measured is refused in one sentence.
        eprintln!("hpmctl: source: {line}");
        if self.controlled.is_some() {
            eprintln!(
                "hpmctl: `hpmctl control start|stop|dump|end {}` controls this recording",
                std::process::id()
            );
        }
        let begun = Instant::now();
        loop {
            if let Some(end) = workload.ended()? {
                return Ok(end);
            }
            let left = self.duration.map(|duration| duration.saturating_sub(begun.elapsed()));
            // The driver's descriptor stays readable once the target has gone; the program's own end is waited for without it.
            let gone = source.is_over();
            if self.ended || left == Some(Duration::ZERO) || gone && !workload.is_program() {
                return Ok(End::Stopped);
            }
            let look = left.map_or(LOOK, |left| left.min(LOOK).max(Duration::from_millis(1)));
            if gone {
                if let Some(end) = workload.wait(Some(look))? {
                    return Ok(end);
                }
            } else {
                let controlled = self.controlled.as_ref().map(Controlled::descriptor);
                source.wait(&[workload.descriptors(), controlled.into_iter().collect()].concat(), look)?;
            }
            source.take(self.writer)?;
            self.serve()?;
            self.writer.tick()?;
        }
    }

    /// Carries out what `hpmctl control` asks for.
    fn serve(&mut self) -> Result<()> {
        let Self { writer, controlled: Some(controlled), ended, .. } = self else { return Ok(()) };
        controlled.serve(|request| {
            Ok(match request {
                Request::Start => {
                    writer.pause(false);
                    "written from now on".to_owned()
                }
                Request::Stop => {
                    writer.pause(true);
                    "left out from now on".to_owned()
                }
                Request::Dump => format!("{} is complete", writer.dump()?.display()),
                Request::End => {
                    *ended = true;
                    "the recording ends".to_owned()
                }
            })
        })
    }
}

/// A time above 0 in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "not a number of seconds above 0".into())
}

/// The folder that was asked for, or one named after the program.
fn output(args: &RecordArgs) -> PathBuf {
    args.output.clone().unwrap_or_else(|| {
        let program = args
            .target
            .command
            .first()
            .and_then(|program| PathBuf::from(program).file_name().map(PathBuf::from));
        let mut name = program.unwrap_or_else(|| "trace".into()).into_os_string();
        name.push(".hpm");
        name.into()
    })
}

fn stack_bytes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes @ 1024..=64512) if bytes % 1024 == 0 => Ok(bytes),
        _ => Err("not a multiple of 1024 from 1024 to 64512".into()),
    }
}

fn summary(totals: &Totals, written: &Written, events: &[Event]) -> String {
    let sampled = || events.iter().filter(|event| event.mode != EventUse::Count);
    let names: Vec<&str> = sampled().map(|event| event.name.as_str()).collect();
    let kind = match sampled().map(|event| event.mode).next() {
        Some(EventUse::Interrupt) => "imprecise samples (with skid)",
        Some(EventUse::Software) => "samples by software",
        _ => "samples",
    };
    let mut text = format!("hpmctl: {} {kind} of {}", written.samples, names.join(", "));
    let lost = [
        (totals.records_lost, "samples lost"),
        (totals.quanta_lost, "quanta lost with theirs"),
        (totals.records_withheld, "samples withheld that show the kernel"),
        (totals.processes_left_out, "processes left out"),
        (totals.records_unattributed, "records that name no sampled counter left out"),
        (totals.markers_lost, "markers lost"),
        (totals.sideband_lost, "reports of mappings and threads lost"),
    ];
    for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    if totals.records_lost + totals.quanta_lost == 0 {
        text += ", none lost";
    }
    if totals.throttled > 0 {
        text += &format!(
            " (samples came faster than the driver allows, and were held back in {} quanta)",
            totals.throttled
        );
    }
    if written.folders.len() + written.removed > 1 {
        let (all, removed) = (written.folders.len() + written.removed, written.removed);
        text += &format!(", in {all} traces of which the oldest {removed} were removed");
    }
    let newest = written.folders.last().map_or_else(String::new, |folder| folder.display().to_string());
    format!("{text}; see `hpmctl report {newest}`")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(words: &str) -> RecordArgs {
        let words = ["hpmctl", "record", "-e", "load"].into_iter().chain(words.split(' '));
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Record(args)) => args,
            _ => panic!("not understood"),
        }
    }

    #[test]
    fn the_folder_is_named_after_the_program() {
        assert_eq!(output(&parsed("-- /usr/bin/ls -l")), PathBuf::from("ls.hpm"));
        assert_eq!(output(&parsed("-p 1")), PathBuf::from("trace.hpm"));
        assert_eq!(output(&parsed("-o x -- ls")), PathBuf::from("x"));
    }

    #[test]
    fn the_last_word_on_stacks_counts() {
        assert_eq!(parsed("-a").stacks, None);
        assert_eq!(parsed("--no-stacks --stacks -a").stacks, Some(StackMethod::Dwarf));
        assert_eq!(parsed("--stacks=fp -a").stacks, Some(StackMethod::Fp));
        assert_eq!(parsed("--stacks --no-stacks -a").stacks, None);
        assert_eq!(parsed("--stacks=lbr -a").stacks, Some(StackMethod::Lbr));
    }

    #[test]
    fn branches_are_as_many_as_there_are_and_of_all_types_unless_said() {
        assert_eq!(parsed("-a").branches, None);
        assert_eq!(parsed("--branches -a").branches, Some(0));
        let args = parsed("--branches=8 --branch-types call,return -a");
        assert_eq!((args.branches, args.branch_types), (Some(8), vec![BranchType::Call, BranchType::Return]));
    }

    #[test]
    fn stacks_come_in_whole_kibibytes() {
        assert_eq!(stack_bytes("64512"), Ok(64512));
        assert!(["0", "1000", "65536", "x"].into_iter().all(|text| stack_bytes(text).is_err()));
    }

    #[test]
    fn durations_are_above_0() {
        assert_eq!(parsed("--duration 0.25 -a").duration, Some(Duration::from_millis(250)));
        assert!(["0", "-1", "nan", "inf", "x"].into_iter().all(|text| seconds(text).is_err()));
    }

    #[test]
    fn losses_are_told() {
        let event = |name: &str, mode| Event { name: name.into(), mode, ..Event::default() };
        let events = [event("l1d-load-miss", EventUse::Precise), event("instructions", EventUse::Count)];
        let line = |records_lost, quanta_lost| {
            let totals = Totals { records_lost, quanta_lost, ..Totals::default() };
            let written = Written { folders: vec!["a.hpm".into()], removed: 0, samples: 5 };
            summary(&totals, &written, &events)
        };
        assert_eq!(line(0, 0), "hpmctl: 5 samples of l1d-load-miss, none lost; see `hpmctl report a.hpm`");
        assert_eq!(
            line(7, 2),
            "hpmctl: 5 samples of l1d-load-miss, 7 samples lost, 2 quanta lost with theirs; see `hpmctl report a.hpm`"
        );
    }
}
