//! The commands and their options.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};

use crate::doctor::DoctorArgs;
use crate::list::ListArgs;
use crate::mark::MarkArgs;
use crate::module::ModuleArgs;
use crate::phases::PhasesArgs;
use crate::record::RecordArgs;
use crate::report::ReportArgs;
use crate::stat::StatArgs;

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
    Report(ReportArgs),
    List(ListArgs),
    Phases(PhasesArgs),
    Mark(MarkArgs),
    Doctor(DoctorArgs),
    Module(ModuleArgs),
}

/// Whom to measure: exactly one of them.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("target").required(true).args(["pid", "tid", "cgroup", "cpu", "all", "command"])))]
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
    /// Leave out processes that the measured ones fork
    #[arg(long)]
    pub(crate) no_inherit: bool,
    /// Run this program and measure it from its first instruction to its end
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
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
