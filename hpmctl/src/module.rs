//! `hpmctl module`: loads and unloads the kernel module, and tells what it is doing.

mod load;
mod status;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use libhpm::machine::{Holder, driver_users};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, delete_module};

/// Load or unload the kernel module, or tell what it is doing.
#[derive(Args, Debug)]
pub(crate) struct ModuleArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Load hpm.ko, as root: the one beside this program or built in the project, else the installed one
    Load {
        /// Load this file
        #[arg(long, value_name = "FILE")]
        path: Option<PathBuf>,
        /// Parameters of the module, `name=value`
        parameters: Vec<String>,
    },
    /// Unload the module, as root
    Unload,
    /// Tell whether the module is loaded, for which PMU, with which parameters, and who uses it
    ///
    /// Exits with 0 when it is loaded, else with 1.
    Status {
        /// Print JSON for other programs
        #[arg(long)]
        json: bool,
    },
}

/// The module's folder in sysfs, which is there while it is loaded.
const SYSFS: &str = "/sys/module/hpm";

pub(crate) fn run(args: &ModuleArgs) -> Result<ExitCode> {
    match &args.action {
        Action::Load { path, parameters } => load::run(path.as_deref(), parameters)?,
        Action::Unload => unload()?,
        Action::Status { json } => return status::run(*json),
    }
    Ok(ExitCode::SUCCESS)
}

fn is_loaded() -> bool {
    Path::new(SYSFS).exists()
}

/// `name (PID n), …`
fn names(holders: &[Holder]) -> String {
    let names: Vec<String> =
        holders.iter().map(|holder| format!("{} (PID {})", holder.name, holder.pid)).collect();
    names.join(", ")
}

fn unload() -> Result<()> {
    // Without O_NONBLOCK the kernel would wait for the last user, unseen.
    match delete_module(c"hpm", DeleteModuleFlags::O_NONBLOCK) {
        Ok(()) => Ok(()),
        Err(Errno::ENOENT) => bail!("hpm is not loaded"),
        Err(Errno::EPERM) if !may_load() => bail!("only root may unload a module (CAP_SYS_MODULE)"),
        Err(Errno::EAGAIN | Errno::EBUSY) => {
            let users = match driver_users().as_slice() {
                [] => "by a process that this user may not see".to_owned(),
                found => format!("by {}", names(found)),
            };
            bail!("hpm is in use {users}; it can be unloaded once /dev/hpm is closed")
        }
        Err(errno) => bail!("the kernel does not unload hpm: {}", errno.desc()),
    }
}

/// Whether this process has CAP_SYS_MODULE (16) in effect.
fn may_load() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0) & 1 << 16 != 0
}
