//! The judge: runs every check of hpm and prints `N passed, N failed`.
//!
//! Most checks need a PMU, so they run in the virtual lab machine: this program boots it and runs itself inside
//! (`suite guest NAME`); what the guest saw is then compared with the truth that the PMU model wrote.

mod check;
mod guest;
mod host;
mod lab;
mod scenario;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::check::Tally;

/// Checks hpm, on the host and in the virtual lab machine.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The fast tier: host checks, and each scenario once.
    Fast,
    /// The fast tier and the long checks; writes docs/test-report.md.
    Full,
    /// One scenario, by its name.
    Scenario {
        /// Its name; without one, the names are listed.
        name: Option<String>,
    },
    /// Record a real program in the lab and report on it.
    Demo,
    /// The part of a scenario that runs inside the lab machine.
    #[command(hide = true)]
    Guest {
        /// Its name.
        name: String,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().action) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("suite: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(action: Action) -> anyhow::Result<ExitCode> {
    if let Action::Guest { name } = &action {
        return guest::run(name);
    }
    let root = workspace_root()?;
    let mut tally = Tally::default();
    match action {
        Action::Fast => {
            host::run(&root, &mut tally);
            scenario::run_all(&root, &mut tally);
        }
        Action::Full => return scenario::full(&root),
        Action::Scenario { name } => scenario::run_named(&root, name.as_deref(), &mut tally)?,
        Action::Demo => return scenario::demo::run(&root),
        Action::Guest { .. } => {}
    }
    Ok(tally.close())
}

/// The workspace is where the program was built; it is started by the Makefile, which stands there.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir()?;
    if !here.join("kmod").is_dir() || !here.join("Cargo.toml").is_file() {
        anyhow::bail!("run this from the project's top folder (it needs kmod/ and Cargo.toml)");
    }
    Ok(here)
}
