//! What `hpmctl record` is told.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum as _};
use libhpm::record::BranchType;
use libhpm::source::choice::Wish;

use super::window::{Window, window};
use crate::cli::{TargetArgs, seconds};
use crate::measure::sources;

/// A longer one perf_event refuses without saying why.
const PERIOD_MAX: u64 = i64::MAX as u64;

/// Sample events precisely (PEBS, IBS) and write a trace for `hpmctl report`.
///
/// Each sample is a record that hardware wrote: the instruction, the registers and the data address. With --imprecise it is
/// what an interrupt met some instructions later. The exit status is the program's.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Events to sample, separated by commas (see `hpmctl list`) [default: cycles, instructions or loads, the first of them that is
    /// sampled precisely here, 4000 times a second; by perf_event cycles, or without a PMU cpu-clock and page-faults]
    #[arg(short, long = "event", value_name = "EVENTS", conflicts_with = "trace")]
    pub(super) events: Vec<String>,
    /// Where the data comes from
    #[arg(long, default_value_t, value_parser = sources(), conflicts_with = "trace")]
    pub(super) source: Wish,
    /// Take a sample each PERIOD events [default: 10007; by perf_event as each event suggests]
    #[arg(short = 'c', long, value_name = "PERIOD", value_parser = clap::value_parser!(u64).range(1..=PERIOD_MAX), conflicts_with = "trace")]
    pub(super) period: Option<u64>,
    /// Adapt the period, beginning with PERIOD, to HZ samples per second of time on a CPU
    #[arg(short = 'F', long, value_name = "HZ", value_parser = clap::value_parser!(u64).range(1..=1_000_000), conflicts_with = "trace")]
    pub(super) frequency: Option<u64>,
    /// Keep the period's low bits. Without this they are drawn anew every few samples, so that a loop is not sampled always
    /// at the same place; the mean stays PERIOD
    #[arg(long, conflicts_with = "trace")]
    pub(super) no_randomise: bool,
    /// Sample only where PERIOD of the event come within N of another one: `-e branch-miss:u -c 50 --window instructions:u=1000` shows where
    /// more than 5 % of the instructions mispredict; on a hybrid processor `-e cpu_atom/branch-miss/u`. Such samples are no share of all
    /// mispredictions. Needs counters that set each other back: those of Intel's efficient cores from Skymont on, and later ones
    #[arg(long, value_name = "EVENT=N", value_parser = window, conflicts_with = "trace")]
    pub(super) window: Option<Window>,
    /// Sample by interrupts: any event, without data addresses, and some instructions too late (skid)
    #[arg(long, conflicts_with = "trace")]
    pub(super) imprecise: bool,
    /// Count these events beside the sampled ones, separated by commas: exactly, for each quantum
    #[arg(long = "count", value_name = "EVENTS", conflicts_with = "trace")]
    pub(super) counted: Vec<String>,
    /// Publish what a thread counted after so many ms on a CPU at the latest, 0.1 to 1000 [default: 10]; 1 shows phases
    #[arg(long, value_name = "MS", value_parser = quantum, conflicts_with = "trace")]
    pub(super) quantum: Option<Duration>,
    /// Folder to write; it must not exist yet, unless --force is given [default: the program's name, or `trace`, with .hpm]
    #[arg(short, long, value_name = "NAME.hpm")]
    pub(super) output: Option<PathBuf>,
    /// Replace an earlier trace in that folder, once the recording has begun
    #[arg(short, long)]
    pub(super) force: bool,
    /// Record call stacks, by unwind tables (dwarf), frame pointers (fp) or last branch records (lbr); each sample then costs
    /// an interrupt, but for lbr from Ice Lake on
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "dwarf",
        overrides_with = "no_stacks", conflicts_with = "trace")]
    pub(super) stacks: Option<StackMethod>,
    /// Record no call stacks (the default)
    #[arg(long, overrides_with = "stacks", conflicts_with = "trace")]
    pub(super) no_stacks: bool,
    /// Bytes of stack to unwind for each sample by tables (--stacks=dwarf): a multiple of 1024 up to 64512 [default: 16384]
    #[arg(long, value_name = "N", value_parser = stack_bytes, conflicts_with = "trace")]
    pub(super) stack_bytes: Option<u32>,
    /// Record the last N branches before each sample [default: as many as the processor keeps]; each sample then costs an
    /// interrupt, but from Ice Lake on
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        value_parser = clap::value_parser!(u32).range(0..=32), conflicts_with = "trace")]
    pub(super) branches: Option<u32>,
    /// Types of branches to record, separated by commas [default: all]; `hpmctl coalloc` makes use of branch records only with all
    #[arg(long, value_parser = branch_type(), value_name = "TYPES", value_delimiter = ',', requires = "branches")]
    pub(super) branch_types: Vec<BranchType>,
    /// End the trace at this size, and go on in another beside it (NAME-2.hpm, …; a number that is taken is left out)
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) max_size: Option<u64>,
    /// Of the traces of --max-size keep the N newest
    #[arg(long, value_name = "N", requires = "max_size", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) keep: Option<u32>,
    /// Let `hpmctl control` start, stop and dump the recording
    #[arg(long)]
    pub(super) control: bool,
    /// Write nothing until `hpmctl control start`
    #[arg(long, requires = "control")]
    pub(super) paused: bool,
    /// Write nothing of the first so many seconds, or so long, such as 500ms: of a program's beginning. The quantum that runs then is
    /// written whole. --duration counts from then on
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["trace", "paused", "phase_guided", "allocations"])]
    pub(super) delay: Option<Duration>,
    /// Take markers from this named pipe, or from the pipe that is open as the descriptor with this number: each line `NAME [VALUE]`
    /// is a marker of the moment at which it is read
    #[arg(long, value_name = "PIPE", conflicts_with = "trace")]
    pub(super) marks: Option<String>,
    /// Pause samples where the program does what it has done before, which is told by the density of EVENT [default: the first event that
    /// is not a clock]: about a third of the time is sampled, and stands for what its behaviour did meanwhile. Counting goes on
    #[arg(
        long,
        value_name = "EVENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = ["trace", "max_size", "control"])]
    pub(super) phase_guided: Option<String>,
    /// Also record what the program allocates, so that `hpmctl locality` and `hpmctl coalloc` know its objects: every allocation, or
    /// one in so many BYTES, from which ages are then estimated. A library is preloaded for that; in a program that is linked statically the kernel is asked to report each call
    /// of its malloc and free instead, which costs microseconds each
    #[arg(
        long,
        value_name = "BYTES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        conflicts_with_all = ["trace", "max_size", "control"])]
    pub(super) allocations: Option<u64>,
    #[command(flatten)]
    pub(super) target: TargetArgs,
}

impl RecordArgs {
    /// Options that do not go together; clap knows the others.
    ///
    /// # Errors
    /// Two that do not, in one sentence.
    pub(super) fn check(&self) -> Result<()> {
        let target = &self.target;
        let is_method = |word: &str| StackMethod::from_str(word, false).is_ok();
        let is_number = |word: &str| word.parse::<u64>().is_ok();
        target.check_value("--stacks", self.stacks == Some(StackMethod::Dwarf), is_method)?;
        target.check_value("--branches", self.branches == Some(0), is_number)?;
        target.check_value("--allocations", self.allocations == Some(0), is_number)?;
        let is_name = |word: &str| !word.contains('/');
        target.check_value("--phase-guided", self.phase_guided.as_deref() == Some(""), is_name)?;
        if self.target.share && (self.branches.is_some() || self.stacks == Some(StackMethod::Lbr)) {
            bail!(
                "--share leaves gaps, and branch records tell of a thread without: leave one of the two out"
            );
        }
        if self.branches.is_some() && self.stacks == Some(StackMethod::Lbr) {
            bail!(
                "--stacks=lbr uses the branch records for calls: leave --branches out, or take stacks by another method"
            );
        }
        if self.stack_bytes.is_some() && self.stacks != Some(StackMethod::Dwarf) {
            bail!("--stack-bytes is for --stacks=dwarf");
        }
        if let Some(window) = &self.window {
            window.check(self)?;
        }
        if self.allocations.is_some() && (target.command.is_empty() || target.target().is_some()) {
            bail!(
                "--allocations is for a program that hpmctl starts, because nothing can be preloaded into one that runs: name a command, and nothing else to measure"
            );
        }
        Ok(())
    }

    /// Whether rows of quanta and samples may be made when the program has ended, which disturbs it least: nobody looks at them before.
    pub(super) fn rows_can_wait(&self) -> bool {
        self.max_size.is_none() && !self.control && self.phase_guided.is_none() && self.delay.is_none()
    }

    /// Bytes of stack that are unwound for each sample.
    pub(super) fn stack_bytes(&self) -> u32 {
        self.stack_bytes.unwrap_or(16 * 1024)
    }

    /// The folder that was asked for, or one named after the program that is measured.
    pub(super) fn folder(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let program = self.target.command.first().filter(|_| self.target.target().is_none());
            let program = program.and_then(|program| PathBuf::from(program).file_name().map(PathBuf::from));
            let mut name = program.unwrap_or_else(|| "trace".into()).into_os_string();
            name.push(".hpm");
            name.into()
        })
    }
}

/// How call stacks are found.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackMethod {
    /// Copy the stack and unwind it by the programs' unwind tables: works with any compiler's output
    Dwarf,
    /// Let the driver follow frame pointers: cheap, but programs must be built to keep them
    Fp,
    /// Let hardware follow calls in its last branch records (Haswell and later): any code, 16 or 32 calls deep
    Lbr,
}

/// Takes a type of branches by its name.
fn branch_type() -> impl TypedValueParser<Value = BranchType> {
    let names = BranchType::ALL.map(|kind| PossibleValue::new(kind.name()).help(kind.describe()));
    PossibleValuesParser::new(names).try_map(|name| {
        let named = BranchType::ALL.into_iter().find(|kind| kind.name() == name);
        named.ok_or("no type of branches")
    })
}

/// What the driver takes.
fn quantum(text: &str) -> Result<Duration, String> {
    let ms: Option<f64> = text.parse().ok().filter(|ms| (0.1..=1000.0).contains(ms));
    ms.map(|ms| Duration::from_secs_f64(ms / 1000.0)).ok_or_else(|| "not from 0.1 to 1000 ms".into())
}

fn stack_bytes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes @ 1024..=64512) if bytes % 1024 == 0 => Ok(bytes),
        _ => Err("not a multiple of 1024 from 1024 to 64512".into()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    pub(in crate::record) fn parsed(words: &str) -> RecordArgs {
        let words = ["hpmctl", "record", "-e", "load"].into_iter().chain(words.split(' '));
        match Cli::try_parse_from(words).map(|cli| cli.command) {
            Ok(Command::Record(args)) => args,
            _ => panic!("not understood"),
        }
    }

    #[test]
    fn the_folder_is_named_after_the_program() {
        assert_eq!(parsed("-- /usr/bin/ls -l").folder(), PathBuf::from("ls.hpm"));
        assert_eq!(parsed("-p 1").folder(), PathBuf::from("trace.hpm"));
        assert_eq!(
            parsed("-a -- sleep 1").folder(),
            PathBuf::from("trace.hpm"),
            "it is not the system's name"
        );
        assert_eq!(parsed("-o x -- ls").folder(), PathBuf::from("x"));
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
    fn a_quantum_is_a_time_that_the_driver_takes() {
        assert_eq!(parsed("--quantum 0.5 -a").quantum, Some(Duration::from_micros(500)));
        for bad in ["0", "0.05", "1001", "-1", "NaN", "x"] {
            assert!(quantum(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn branches_are_as_many_as_there_are_and_of_all_types_unless_said() {
        assert_eq!(parsed("-a").branches, None);
        assert_eq!(parsed("--branches -a").branches, Some(0));
        for kind in BranchType::ALL {
            let args = parsed(&format!("--branches --branch-types {} -a", kind.name()));
            assert_eq!(args.branch_types, [kind], "as meta.json has it");
        }
        let args = parsed("--branches=8 --branch-types call,return -a");
        assert_eq!((args.branches, args.branch_types), (Some(8), vec![BranchType::Call, BranchType::Return]));
    }

    #[test]
    fn stacks_come_in_whole_kibibytes() {
        assert_eq!(stack_bytes("64512"), Ok(64512));
        assert!(["0", "1000", "65536", "x"].into_iter().all(|text| stack_bytes(text).is_err()));
    }
}
