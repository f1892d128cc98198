//! The hpm command line: one module for each command (see [`cli`]).
#![deny(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "they panic where nobody reads, which ends the measured program: output::say, print"
)]

mod annotate;
mod cli;
mod coalloc;
mod control;
mod diff;
mod doctor;
mod explore;
mod export;
mod files;
mod filters;
mod follow;
mod late_file;
mod list;
mod locality;
mod mark;
mod measure;
mod methods;
mod module;
mod opened;
mod output;
mod phases;
mod picture;
mod record;
mod report;
mod shell;
mod stat;
mod svg;
mod traces;
mod workload;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use nix::sys::signal::{SigSet, Signal};

use cli::{Cli, Command};

/// The shell's status for a program that was not found.
const STATUS_NOT_FOUND: u8 = 127;
/// The shell's status for a program that could not be executed.
const STATUS_NOT_EXECUTABLE: u8 = 126;

fn main() -> ExitCode {
    // A file that grows beyond a limit (`ulimit -f`) is then an error that can be told, and what was written is kept or removed as with a
    // full disk.
    let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
    match run(&Cli::parsed().command) {
        Ok(status) => status,
        Err(error) => {
            // Where standard error is closed or full, the status is all that can be told.
            let _ = writeln!(io::stderr(), "hpmctl: {error:#}");
            ExitCode::from(status_of(&error))
        }
    }
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Stat(args) => stat::run(args),
        Command::Record(args) => record::run(args),
        Command::Report(args) => report::run(args).map(|()| ExitCode::SUCCESS),
        Command::Annotate(args) => annotate::run(args).map(|()| ExitCode::SUCCESS),
        Command::Diff(args) => diff::run(args).map(|()| ExitCode::SUCCESS),
        Command::Control(args) => control::run(args).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => shell::completions(args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => shell::man(args).map(|()| ExitCode::SUCCESS),
        Command::Explore(args) => explore::run(args).map(|()| ExitCode::SUCCESS),
        Command::Export(args) => export::run(args).map(|()| ExitCode::SUCCESS),
        Command::Import(args) => opened::import(args).map(|()| ExitCode::SUCCESS),
        Command::List(args) => list::run(args),
        Command::Locality(args) => locality::run(args).map(|()| ExitCode::SUCCESS),
        Command::Coalloc(args) => coalloc::run(args).map(|()| ExitCode::SUCCESS),
        Command::Phases(args) => phases::run(args).map(|()| ExitCode::SUCCESS),
        Command::Methods(args) => methods::run(args),
        Command::Mark(args) => mark::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Module(args) => module::run(args),
        Command::Info(args) => traces::info(args).map(|()| ExitCode::SUCCESS),
        Command::Verify(args) => traces::verify(args),
        Command::Merge(args) => traces::merge(args).map(|()| ExitCode::SUCCESS),
    }
}

/// 127 or 126 when the measured program could not be run, as from a shell; else 1.
fn status_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(libhpm::Error::Exec { reason, .. }) if reason.kind() == std::io::ErrorKind::NotFound => {
            STATUS_NOT_FOUND
        }
        Some(libhpm::Error::Exec { .. }) => STATUS_NOT_EXECUTABLE,
        _ => 1,
    }
}
