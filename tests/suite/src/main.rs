//! The judge: runs every check of hpm and prints `N passed, N failed`.
//!
//! Most checks need a PMU, so they run in the virtual lab machine: this program boots it and runs itself inside
//! (`suite guest NAME`); what the guest saw is then compared with the truth that the PMU model wrote.

mod check;
mod consumers;
mod fuzz;
mod guest;
mod host;
mod install;
mod lab;
mod libgc;
mod machine;
mod phases;
mod results;
mod scenario;
mod screen;
mod sources;
mod stack;
mod symbols;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::check::Tally;
use crate::machine::Machine;
use crate::results::Results;

/// Checks hpm, on the host and in the virtual lab machine.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// The fast tier: host checks, each scenario once, and some on an old and a newer processor.
    Fast,
    /// The fast tier and the long checks, on every processor, each step that has not passed at this commit: first what has never
    /// run, or failed, then what ran longest ago. Writes docs/test-report.md.
    Full {
        /// After so many minutes no further step begins.
        #[arg(long, value_name = "N")]
        minutes: Option<u64>,
        /// Only the step of this name, which is `SCENARIO on MACHINE`, or those with it in theirs.
        #[arg(long, value_name = "TEXT")]
        only: Option<String>,
    },
    /// One scenario on one machine.
    Scenario {
        /// Its name; without one, the names are listed.
        name: Option<String>,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Record a real program in the lab and report on it.
    Demo,
    /// One generic event on processors of every kind: the same hot instructions, and exact counts.
    Equivalents {
        /// Profiles of the PMU model; all that are compared unless given.
        profiles: Vec<String>,
    },
    /// Record real programs in the lab, and keep their intervals as the streams on which phases are judged.
    RecordPhases {
        /// Names of programs; all unless given.
        programs: Vec<String>,
    },
    /// Exports opened by the programs that they are for, and the explorer's page in a browser; fetches these.
    Consumers,
    /// The tables of events against those of libpfm4; fetches it.
    Libpfm4,
    /// Symbols of samples of a C++ program, a Rust program and a just-in-time compiler against addr2line and perf.
    Symbols,
    /// The example heap on libgc, which it is compared with; fetches it.
    Libgc,
    /// hpmtop in a real terminal: every documented key on a replay; fetches tmux where it is missing.
    Screen,
    /// Pictures of every screen of hpmtop while it measures, in the lab, for docs/images.
    Pictures {
        /// On this machine instead, into target/suite/pictures.
        #[arg(long)]
        host: bool,
    },
    /// What hpmtop and other live screens cost for the same program, on this machine; writes docs/measurements.md.
    BenchScreen,
    /// Files of perf record read by hpm and by perf, in samples per second, on the host.
    BenchSymbols,
    /// The library's parsers under a coverage-guided fuzzer.
    Fuzz {
        /// Seconds for each.
        #[arg(long, default_value_t = fuzz::SECONDS, value_name = "N")]
        seconds: u32,
    },
    /// Compare what hpm costs with what the kernel's perf costs, in the lab; writes docs/measurements.md.
    Bench,
    /// The part of a scenario that runs inside the lab machine.
    #[command(hide = true)]
    Guest {
        /// Its name.
        name: String,
    },
}

/// The machine that a scenario is run on.
#[derive(Debug, Args)]
struct MachineArgs {
    /// Profile of the PMU model.
    #[arg(long, default_value = "skylake", value_name = "NAME")]
    profile: String,
    /// Number of CPUs.
    #[arg(long, default_value_t = 2, value_name = "N")]
    cpus: u32,
    /// Boot without page-table isolation.
    #[arg(long)]
    no_pti: bool,
    /// The kernel.
    #[arg(long, default_value = machine::KERNEL, value_name = "NAME", value_parser = machine::KERNELS)]
    kernel: String,
}

impl MachineArgs {
    fn machine(self) -> anyhow::Result<Machine> {
        let profile = machine::profile(&self.profile)?;
        Ok(Machine { profile, cpus: self.cpus, isolated: !self.no_pti, kernel: self.kernel })
    }
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
    match action {
        Action::Fast => {
            let mut results = Results::begin(&root);
            results.run("host", "host", |tally| host::run(&root, tally));
            scenario::run_all(&root, &mut results);
            Ok(results.total().close())
        }
        Action::Full { minutes, only } => {
            let limit = minutes.map(|minutes| Duration::from_secs(minutes * 60));
            scenario::full::full(&root, &scenario::full::Wish { limit, only })
        }
        Action::Scenario { name, machine } => {
            Ok(scenario::run_named(&root, name.as_deref(), &machine.machine()?)?.close())
        }
        Action::Demo => scenario::demo::run(&root),
        Action::Equivalents { profiles } => {
            let mut tally = Tally::default();
            let profiles = scenario::equivalents::chosen(&profiles)?;
            scenario::equivalents::run(&root, &mut tally, &profiles);
            Ok(tally.close())
        }
        Action::RecordPhases { programs } => tallied(|tally| phases::run(&root, &programs, tally)),
        Action::Libpfm4 => tallied(|tally| consumers::libpfm4::run(&root, tally)),
        Action::Fuzz { seconds } => tallied(|tally| fuzz::run(&root, seconds, tally)),
        Action::Consumers => tallied(|tally| consumers::run(&root, tally)),
        Action::Symbols => tallied(|tally| symbols::run(&root, tally)),
        Action::Libgc => tallied(|tally| libgc::check(&root, tally)),
        Action::Screen => tallied(|tally| screen::check(&root, tally)),
        Action::Pictures { host } => tallied(|tally| screen::pictures::run(&root, host, tally)),
        Action::BenchScreen => screen::bench::run(&root),
        Action::BenchSymbols => symbols::bench::run(&root),
        Action::Bench => tallied(|tally| scenario::bench::run(&root, tally)),
        Action::Guest { name } => guest::run(&name),
    }
}

/// Runs checks, and says what came of them.
fn tallied(checks: impl FnOnce(&mut Tally)) -> anyhow::Result<ExitCode> {
    let mut tally = Tally::default();
    checks(&mut tally);
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
