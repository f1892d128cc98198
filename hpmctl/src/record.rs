//! `hpmctl record`: sample events precisely, and write what hardware recorded to a trace folder.

mod meta;
mod recorder;
mod sample;
mod sideband;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use libhpm::event::Event;
use libhpm::machine::pmu_name;
use libhpm::session::BranchFilter;
use libhpm::session::{Branches, Options, Stack};
use libhpm::sideband::Sideband;
use libhpm::trace::TraceWriter;

use crate::cli::TargetArgs;
use crate::measure::{companion, open, parse_events};
use crate::workload::{End, Workload};
use recorder::{Finished, Recorder};
use sample::SampleRows;

/// Sample events precisely (PEBS) and write a trace for `hpmctl report`.
///
/// Each sample is a record that hardware wrote: the instruction, the registers and the data address. With --imprecise it is
/// what an interrupt met some instructions later. The exit status is the program's.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Events to sample, separated by commas (see `hpmctl list`)
    #[arg(short, long = "event", value_name = "EVENTS", required = true)]
    events: Vec<String>,
    /// Take a sample each PERIOD events
    #[arg(short = 'c', long, value_name = "PERIOD", default_value_t = 10_007)]
    period: u64,
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

/// Most frames followed; perf's default.
const FRAMES: u32 = 127;

/// Longest time between two looks at the rings.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    let mut events = parse_events(&args.events)?;
    check_precise(args, &events)?;
    if args.branches.is_some() && args.stacks == Some(StackMethod::Lbr) {
        bail!(
            "--stacks=lbr uses the branch records for calls: leave --branches out, or take stacks by another method"
        );
    }
    let sampled = events.len();
    events.extend(companion(&events)?);
    let folder = output(args);
    if folder.exists() {
        bail!("{} exists already: remove it, or name another folder with -o", folder.display());
    }
    let mut workload = Workload::new(&args.target)?;
    let (session, events) = open(events, |events| options(args, &workload, events.split_at(sampled)))?;
    let sideband = match workload.process()? {
        None => Sideband::of_system(),
        Some(pid) if workload.is_program() => Sideband::of_child(pid),
        Some(pid) => Sideband::of_process(pid),
    }?;
    let writer = TraceWriter::create(&folder, meta::meta(&session, &events, &args.target.command))?;
    let samples = SampleRows::new(&events, &pmu_name(session.info()));
    let mut recorder = Recorder::new(session, sideband, writer, samples, args.stacks);
    recorder.note_what_was_there(&workload, events.iter().any(|event| event.kernel))?;
    recorder.session().start()?;
    let end = match begin_and_record(&mut workload, &mut recorder) {
        Ok(end) => end,
        Err(error) => {
            // A program that never ran leaves nothing worth keeping.
            if matches!(error.downcast_ref(), Some(libhpm::Error::Exec { .. })) {
                drop(recorder);
                std::fs::remove_dir_all(&folder)
                    .with_context(|| format!("cannot remove {}", folder.display()))?;
            }
            return Err(error);
        }
    };
    let whole = recorder.session().check();
    let finished = recorder.finish()?;
    eprintln!("{}", summary(&finished, &events[..sampled], args.imprecise, &folder));
    whole?;
    Ok(ExitCode::from(end.status()))
}

fn begin_and_record(workload: &mut Workload, recorder: &mut Recorder) -> Result<End> {
    workload.begin()?;
    loop {
        if let Some(end) = workload.ended()? {
            return Ok(end);
        }
        // The driver's descriptor stays readable once the target has gone; the program's own end is waited for without it.
        let gone = recorder.session().is_over();
        if gone && !workload.is_program() {
            return Ok(End::Stopped);
        }
        if gone {
            if let Some(end) = workload.wait(Some(LOOK))? {
                return Ok(end);
            }
        } else {
            recorder.session().wait(&workload.descriptors(), LOOK)?;
        }
        recorder.take()?;
    }
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
    let options = sampled.iter().cloned().fold(options, |options, event| options.sample(event, args.period));
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

fn summary(finished: &Finished, events: &[Event], imprecise: bool, folder: &Path) -> String {
    let Finished { totals, samples, unattributed } = finished;
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    let kind = if imprecise { "imprecise samples (with skid)" } else { "samples" };
    let mut text = format!("hpmctl: {samples} {kind} of {}", names.join(", "));
    let lost = [
        (totals.records_lost, "samples lost"),
        (totals.quanta_lost, "quanta lost with theirs"),
        (totals.records_withheld, "samples withheld that show the kernel"),
        (totals.processes_left_out, "processes left out"),
        (*unattributed, "records that name no sampled counter left out"),
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
    format!("{text}; see `hpmctl report {}`", folder.display())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use libhpm::trace::Totals;

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
    fn losses_are_told() {
        let events = [libhpm::event::parse("l1d-load-miss", "skylake").unwrap()];
        let line = |records_lost, quanta_lost| {
            let totals = Totals { records_lost, quanta_lost, ..Totals::default() };
            summary(&Finished { totals, samples: 5, unattributed: 0 }, &events, false, Path::new("a.hpm"))
        };
        assert_eq!(line(0, 0), "hpmctl: 5 samples of l1d-load-miss, none lost; see `hpmctl report a.hpm`");
        assert_eq!(
            line(7, 2),
            "hpmctl: 5 samples of l1d-load-miss, 7 samples lost, 2 quanta lost with theirs; see `hpmctl report a.hpm`"
        );
    }
}
