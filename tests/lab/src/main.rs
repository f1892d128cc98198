//! The virtual lab machine: a stock Debian kernel in a stock QEMU, with a modelled PMU and the real hpm.ko.

mod apt;
mod bzimage;
mod cli;
mod clock;
mod console;
mod debug_kernel;
mod dkms;
mod host;
mod initramfs;
mod kernel;
mod kernels;
mod metadata;
mod module;
mod paths;
mod profile;
mod progress;
mod qemu;
mod ready;
mod run;
mod rundir;
mod sandbox;
mod source;
mod sources;
mod stock;
mod tree;
mod truth;
mod watch;

use anyhow::{Context, Result};
use clap::Parser;
use cli::{Action, Cli};
use kernels::Which;
use std::process::ExitCode;

/// Exit status when the lab itself failed; commands rarely use it (docker and git bisect have it too).
const STATUS_LAB: u8 = 125;

fn main() -> ExitCode {
    match act(&Cli::parse().action) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(STATUS_LAB)
        }
    }
}

fn act(action: &Action) -> Result<u8> {
    match action {
        Action::Run { options, command } => return run::run(options, Some(command)),
        Action::Shell { options } => return run::run(options, None),
        Action::Build { options } => {
            let ready = ready::ready(&paths::cache()?, options)?;
            println!("Linux {}", ready.kernel.kernel.release);
            for file in [Some(ready.init), ready.plugin, ready.hpm].into_iter().flatten() {
                println!("{}", file.display());
            }
        }
        Action::Dkms { source } => {
            let cache = paths::cache()?;
            let (tree, _tree_lock) = ready::tree(&cache)?;
            let _build_lock = ready::build_lock(&cache)?;
            println!(
                "{}",
                dkms::build(&tree, &kernels::ready(&tree, &cache, &Which::Newest)?, &cache, source)?
                    .display()
            );
        }
        Action::Truth { name, json } => {
            let file = rundir::find(&paths::cache()?, name.as_deref(), "truth.json")?;
            if *json {
                print!(
                    "{}",
                    std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?
                );
            } else {
                print!("{}", truth::readable(&file)?);
            }
        }
        Action::Dmesg { name } => {
            let file = rundir::find(&paths::cache()?, name.as_deref(), "console.log")?;
            let log = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
            print!("{}", String::from_utf8_lossy(&log));
        }
    }
    Ok(0)
}
