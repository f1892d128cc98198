//! The commands and their options.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::error::ErrorKind;
use clap::{ArgGroup, Args, Parser, Subcommand};
use libhpm::session::Target;
use libhpm::source::replay::Speed;

use crate::annotate::AnnotateArgs;
use crate::coalloc::CoallocArgs;
use crate::control::ControlArgs;
use crate::diff::DiffArgs;
use crate::doctor::DoctorArgs;
use crate::explore::ExploreArgs;
use crate::export::ExportArgs;
use crate::list::ListArgs;
use crate::locality::LocalityArgs;
use crate::mark::MarkArgs;
use crate::methods::MethodsArgs;
use crate::module::ModuleArgs;
use crate::opened::ImportArgs;
use crate::phases::PhasesArgs;
use crate::record::RecordArgs;
use crate::report::ReportArgs;
use crate::shell::{CompletionsArgs, ManArgs};
use crate::stat::StatArgs;
use crate::traces::{InfoArgs, MergeArgs, VerifyArgs};
use crate::workload::program_file;

/// Count and precisely sample hardware events.
#[derive(Parser)]
#[command(name = "hpmctl", version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Stat(StatArgs),
    Record(RecordArgs),
    Control(ControlArgs),
    Report(ReportArgs),
    Annotate(AnnotateArgs),
    Diff(DiffArgs),
    Explore(ExploreArgs),
    Export(ExportArgs),
    Import(ImportArgs),
    List(ListArgs),
    Locality(LocalityArgs),
    Coalloc(CoallocArgs),
    Phases(PhasesArgs),
    Methods(MethodsArgs),
    Mark(MarkArgs),
    Doctor(DoctorArgs),
    Module(ModuleArgs),
    Info(InfoArgs),
    Verify(VerifyArgs),
    Merge(MergeArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Whom to measure: one of them, or a program, or one of them while a program runs.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("measured").required(true).multiple(true)
    .args(["pid", "tid", "cgroup", "cpu", "all", "trace", "command"])))]
#[command(group(ArgGroup::new("target").args(["pid", "tid", "cgroup", "cpu", "all", "trace"])))]
pub(crate) struct TargetArgs {
    /// Measure this running process and all its threads, until it ends, COMMAND does, or Ctrl-C
    #[arg(short, long, value_name = "PID", value_parser = one_process)]
    pub(crate) pid: Option<i32>,
    /// Measure this one running thread, until it ends, COMMAND does, or Ctrl-C
    #[arg(short, long, value_name = "TID", value_parser = one_process)]
    pub(crate) tid: Option<i32>,
    /// Measure the control group with this directory, and those below it, until COMMAND ends or Ctrl-C
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Measure every process on this CPU, until COMMAND ends or Ctrl-C
    #[arg(short = 'C', long, value_name = "CPU", value_parser = one_cpu)]
    pub(crate) cpu: Option<u32>,
    /// Measure every process on every CPU, until COMMAND ends or Ctrl-C
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Instead of measuring, replay this trace that `hpmctl record` wrote
    #[arg(long, value_name = "NAME.hpm", conflicts_with = "command")]
    pub(crate) trace: Option<PathBuf>,
    /// Replay so many times as fast as it was recorded [default: as fast as it can be read]
    #[arg(long, value_name = "TIMES", value_parser = times,
        conflicts_with_all = ["pid", "tid", "cgroup", "cpu", "all", "command"])]
    pub(crate) speed: Option<f64>,
    /// End after so many seconds, or so long, such as 500ms, 10s, 5m; a program is then no longer measured, and waited for
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Let other hpm sessions measure the same threads: wait while one does that does not share, take turns with those that do, and tell
    /// in how much of the time this one measured
    #[arg(long, conflicts_with = "trace")]
    pub(crate) share: bool,
    /// Leave out processes that the measured ones fork
    #[arg(long)]
    pub(crate) no_inherit: bool,
    /// Run this program, with what follows as its arguments, and measure it from its first instruction to its end, or, beside --pid,
    /// --tid, --cgroup, --cpu or --all, what these name until it ends; `--` may stand before it
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Cli {
    /// What was asked for. Ends the program where it cannot be understood, or only help was wanted.
    pub(crate) fn parsed() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            if error.kind() != ErrorKind::ValueValidation {
                error.exit();
            }
            let _ = write!(io::stderr(), "{}", about_numbers(&error.render().to_string()));
            std::process::exit(error.exit_code());
        })
    }
}

/// A message in which what the standard library and clap say of a number is said for those who typed it.
fn about_numbers(message: &str) -> String {
    let message = message
        .replace("invalid digit found in string", "not a whole number")
        .replace("cannot parse integer from empty string", "not a whole number")
        .replace("number too large to fit in target type", "too large a number")
        .replace("invalid float literal", "not a number");
    let Some((before, range)) = message.split_once(" is not in ") else { return message };
    let (range, rest) = range.split_at(range.find('\n').unwrap_or(range.len()));
    let Some((least, most)) = range.split_once("..") else { return message };
    // A range that has no end of its own ends with its type's numbers.
    let endless = [u64::MAX, u32::MAX.into(), u16::MAX.into(), u8::MAX.into()];
    match most.trim_start_matches('=').parse::<u64>() {
        Ok(most) if endless.contains(&most) => {
            let number = before.rsplit(' ').next().and_then(|number| number.parse::<u128>().ok());
            if number > Some(u128::from(most)) {
                format!("{before} is too large a number{rest}")
            } else {
                format!("{before} is less than {least}{rest}")
            }
        }
        Ok(most) => format!("{before} is not from {least} to {most}{rest}"),
        Err(_) => message,
    }
}

/// A folder that is there.
pub(crate) fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() { Ok(path) } else { Err("there is no such folder".into()) }
}

/// The number of a process or thread. Lists, which perf takes, are refused with what to do instead.
fn one_process(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ if is_list(text) => {
            Err("one at a time: to measure several at once, put them into a control group and name it \
                                   with --cgroup"
                .into())
        }
        _ => Err("not the number of a process or thread".into()),
    }
}

/// The number of a CPU; lists as for [`one_process`].
fn one_cpu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) => Ok(number),
        _ if is_list(text) => Err("one at a time: --all measures every CPU, and its rows say which".into()),
        _ => Err("not the number of a CPU".into()),
    }
}

/// Numbers and ranges of them, separated by commas.
fn is_list(text: &str) -> bool {
    text.contains([',', '-'])
        && text
            .split([',', '-'])
            .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn times(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if times > 0.0 && f64::is_finite(times) => Ok(times),
        _ => Err("not a number above 0".into()),
    }
}

/// A time above 0: in seconds, or with a unit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let with_unit = units.iter().find_map(|(unit, length)| Some((text.strip_suffix(unit)?, *length)));
    let (number, length) = with_unit.unwrap_or((text, 1.0));
    let seconds: Option<f64> = number.parse().ok().filter(|number| *number > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds * length).ok());
    duration.ok_or_else(|| "not a time above 0: a number of seconds, or such as 500ms, 10s, 5m, 1h".into())
}

impl TargetArgs {
    /// How fast a trace is replayed.
    pub(crate) fn speed(&self) -> Speed {
        self.speed.map_or(Speed::Unlimited, Speed::Times)
    }

    /// Refuses a command whose first word was meant for an option that takes its value behind a `=` only. `alone`: the option was given
    /// without one; `is_value`: whether a word can be one.
    ///
    /// # Errors
    /// The first word can be one, and is no program.
    pub(crate) fn check_value(
        &self,
        option: &str,
        alone: bool,
        is_value: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        let word = self.command.first().and_then(|word| word.to_str()).filter(|word| alone && is_value(word));
        if let Some(word) = word
            && program_file(&self.command).is_err()
        {
            bail!("there is no program `{word}`: if it is meant for {option}, write {option}={word}");
        }
        Ok(())
    }

    /// Whom to measure, unless it is a program or a trace.
    pub(crate) fn target(&self) -> Option<Target> {
        match self {
            Self { pid: Some(pid), .. } => Some(Target::Process(*pid)),
            Self { tid: Some(tid), .. } => Some(Target::Thread(*tid)),
            Self { cgroup: Some(path), .. } => Some(Target::Cgroup(path.clone())),
            Self { cpu: Some(cpu), .. } => Some(Target::Cpu(*cpu)),
            Self { all: true, .. } => Some(Target::System),
            _ => None,
        }
    }

    /// Whether CPUs are measured, whoever runs there.
    pub(crate) fn is_of_cpus(&self) -> bool {
        matches!(self.target(), Some(Target::System | Target::Cpu(_)))
    }

    /// The command line, as a trace keeps it; empty when no program is run.
    pub(crate) fn words(&self) -> Vec<String> {
        self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn one_target_is_asked_for_or_a_command_or_both() {
        let parse = |words: &[&str]| Cli::try_parse_from(words.iter().copied()).is_ok();
        assert!(parse(&["hpmctl", "stat", "--", "ls", "-l"]));
        assert!(parse(&["hpmctl", "stat", "-p", "1"]));
        assert!(parse(&["hpmctl", "stat", "-a"]));
        assert!(parse(&["hpmctl", "stat", "-t", "12"]) && parse(&["hpmctl", "stat", "-C", "0"]));
        assert!(parse(&["hpmctl", "stat", "--cgroup", "/sys/fs/cgroup"]));
        assert!(!parse(&["hpmctl", "stat", "-a", "-C", "1"]));
        assert!(!parse(&["hpmctl", "stat"]));
        assert!(!parse(&["hpmctl", "stat", "-a", "-p", "1"]));
        assert!(
            parse(&["hpmctl", "stat", "-a", "--", "ls"])
                && parse(&["hpmctl", "stat", "-p", "1", "sleep", "5"])
        );
        assert!(!parse(&["hpmctl", "stat", "--trace", "a.hpm", "ls"]));
        assert!(!parse(&["hpmctl", "stat", "--speed", "2", "ls"]));
    }

    #[test]
    fn lists_of_processes_and_cpus_are_refused_with_what_to_do_instead() {
        let refused = |option: &str, value: &str| {
            let words = ["hpmctl", "stat", option, value];
            Cli::try_parse_from(words).map_or_else(|error| error.to_string(), |_| String::new())
        };
        assert!(refused("-p", "1,2").contains("--cgroup"), "{}", refused("-p", "1,2"));
        for cpus in ["0-3", "0,2-5"] {
            assert!(refused("-C", cpus).contains("--all measures every CPU"), "{}", refused("-C", cpus));
        }
        assert!(refused("-p", "bash").contains("not the number of a process"), "{}", refused("-p", "bash"));
        assert!(refused("-t", "0").contains("not the number of a process"));
        assert!(refused("-C", "1,").contains("not the number of a CPU"));
        assert_eq!(refused("-C", "1"), "");
    }

    #[test]
    fn times_may_have_a_unit() {
        let ms = |text: &str| seconds(text).map(|time| time.as_millis());
        let told = [
            ("10", 10_000),
            ("0.5", 500),
            ("250ms", 250),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ];
        for (text, wanted) in told {
            assert_eq!(ms(text), Ok(wanted), "{text}");
        }
        for text in ["", "0", "-1", "s", "10 s", "1d", "nan", "inf", "1e400"] {
            assert!(ms(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_command_begins_with_the_first_word_that_is_no_option() {
        let command = |words: &str| {
            let words = ["hpmctl"].into_iter().chain(words.split(' '));
            let matches = Cli::command().try_get_matches_from(words).ok()?;
            let (_, of_command) = matches.subcommand()?;
            Some(of_command.get_many::<OsString>("command")?.cloned().collect::<Vec<_>>())
        };
        let words = |text: &str| Some(text.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(command("stat ./w -x --json"), words("./w -x --json"));
        assert_eq!(command("stat -e cycles --json -- ./w -x"), words("./w -x"));
        assert_eq!(command("stat -e cycles ./w -- -x"), words("./w -- -x"));
        assert_eq!(command("record --stacks ./w -o x"), words("./w -o x"));
        assert_eq!(command("record -o x --branches ./w -p 1"), words("./w -p 1"));
        assert_eq!(command("stat --no-such-option ./w"), None);
    }

    #[test]
    fn of_numbers_it_is_said_what_is_wrong_with_them() {
        let said = |words: &str| {
            let error = Cli::try_parse_from(words.split(' ')).err().expect(words);
            let message = about_numbers(&error.render().to_string());
            let line = message.lines().next().unwrap_or_default();
            line.rsplit_once(": ").map_or(String::new(), |(_, reason)| reason.to_owned())
        };
        assert_eq!(said("hpmctl stat -I 0 true"), "0 is less than 10");
        assert_eq!(said("hpmctl stat -r 1 true"), "1 is less than 2");
        assert_eq!(said("hpmctl stat --topdown=3 true"), "3 is not from 1 to 2");
        assert_eq!(said("hpmctl stat -I x true"), "not a whole number");
        assert_eq!(said("hpmctl report --limit 99999999999999999999 a.hpm"), "too large a number");
        assert_eq!(said("hpmctl stat -p 1x"), "not the number of a process or thread");
    }

    #[test]
    fn durations_are_above_0() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(["0", "-1", "nan", "inf", "x"].into_iter().all(|text| seconds(text).is_err()));
    }
}
