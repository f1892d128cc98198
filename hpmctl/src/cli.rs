//! The commands and their options.

use std::ffi::OsString;
use std::path::PathBuf;

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
use crate::module::ModuleArgs;
use crate::opened::ImportArgs;
use crate::phases::PhasesArgs;
use crate::record::RecordArgs;
use crate::report::ReportArgs;
use crate::shell::{CompletionsArgs, ManArgs};
use crate::stat::StatArgs;
use crate::traces::{InfoArgs, MergeArgs, VerifyArgs};

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
    Mark(MarkArgs),
    Doctor(DoctorArgs),
    Module(ModuleArgs),
    Info(InfoArgs),
    Verify(VerifyArgs),
    Merge(MergeArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Whom to measure: exactly one of them.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("target").required(true).args(["pid", "tid", "cgroup", "cpu", "all", "trace", "command"])))]
pub(crate) struct TargetArgs {
    /// Measure this running process and all its threads, until it ends or Ctrl-C
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<i32>,
    /// Measure this one running thread, until it ends or Ctrl-C
    #[arg(short, long, value_name = "TID")]
    pub(crate) tid: Option<i32>,
    /// Measure the control group with this directory, and those below it, until Ctrl-C
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Measure every process on this CPU, until Ctrl-C
    #[arg(short = 'C', long, value_name = "CPU")]
    pub(crate) cpu: Option<u32>,
    /// Measure every process on every CPU, until Ctrl-C
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Instead of measuring, replay this trace that `hpmctl record` wrote
    #[arg(long, value_name = "NAME.hpm")]
    pub(crate) trace: Option<PathBuf>,
    /// Replay so many times as fast as it was recorded [default: as fast as it can be read]
    #[arg(long, value_name = "TIMES", requires = "trace", value_parser = times)]
    pub(crate) speed: Option<f64>,
    /// Leave out processes that the measured ones fork
    #[arg(long)]
    pub(crate) no_inherit: bool,
    /// Run this program and measure it from its first instruction to its end
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// A folder that is there.
pub(crate) fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() { Ok(path) } else { Err("there is no such folder".into()) }
}

fn times(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if times > 0.0 && f64::is_finite(times) => Ok(times),
        _ => Err("not a number above 0".into()),
    }
}

impl TargetArgs {
    /// How fast a trace is replayed.
    pub(crate) fn speed(&self) -> Speed {
        self.speed.map_or(Speed::Unlimited, Speed::Times)
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
    fn exactly_one_target_is_asked_for() {
        let parse = |words: &[&str]| Cli::try_parse_from(words.iter().copied()).is_ok();
        assert!(parse(&["hpmctl", "stat", "--", "ls", "-l"]));
        assert!(parse(&["hpmctl", "stat", "-p", "1"]));
        assert!(parse(&["hpmctl", "stat", "-a"]));
        assert!(parse(&["hpmctl", "stat", "-t", "12"]) && parse(&["hpmctl", "stat", "-C", "0"]));
        assert!(parse(&["hpmctl", "stat", "--cgroup", "/sys/fs/cgroup"]));
        assert!(!parse(&["hpmctl", "stat", "-a", "-C", "1"]));
        assert!(!parse(&["hpmctl", "stat"]));
        assert!(!parse(&["hpmctl", "stat", "-a", "-p", "1"]));
        assert!(!parse(&["hpmctl", "stat", "-a", "--", "ls"]));
    }
}
