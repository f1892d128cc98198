//! The command line.

use crate::kernels::Which;
use anyhow::{Result, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// The virtual lab machine: a stock Debian kernel in a stock QEMU, with a PMU and hpm.ko.
///
/// Exit status: the command's own (128 + number if a signal killed it); 124 after a time-out; 125 when the
/// lab itself failed, or the guest's kernel complained.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a command of this machine in the lab machine.
    ///
    /// It sees this machine's files. What it writes below the working folder (and --out folders) is written
    /// to this machine; all else it writes is gone at the end.
    Run {
        #[command(flatten)]
        options: Options,
        /// The command and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Open an interactive shell in the lab machine.
    Shell {
        #[command(flatten)]
        options: Options,
    },
    /// Fetch, prepare and build everything a run needs.
    Build {
        #[command(flatten)]
        options: Options,
    },
    /// Build an installed source of the module by dkms(8), as a machine does that gets a new kernel.
    Dkms {
        /// A folder with dkms.conf, named as dkms names it: MODULE-VERSION.
        source: PathBuf,
    },
    /// Show what the PMU model itself counted during a run.
    Truth {
        /// Name of the run (see `run --name`); the last one if left out.
        name: Option<String>,
        /// Print the JSON as the plugin wrote it.
        #[arg(long)]
        json: bool,
    },
    /// Show the guest's kernel log of a run.
    Dmesg {
        /// Name of the run (see `run --name`); the last one if left out.
        name: Option<String>,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Profile of the PMU model, and with it the processor.
    #[arg(long, default_value = "skylake", value_name = "NAME")]
    pub(crate) profile: String,
    /// Kernel: `newest` or `previous` (of the stock ones), `debug` (compiled on first use, with lockdep, KASAN and
    /// kmemleak), or a stock kernel's release.
    #[arg(long, default_value = "newest", value_name = "NAME")]
    pub(crate) kernel: Which,
    /// Number of CPUs; 2, or 1 with `--deterministic`, if left out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
    /// Memory in MiB.
    #[arg(long, default_value_t = 2048, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) memory: u32,
    /// Attach an empty disk of so many MiB, `/dev/vda` once virtio_blk is loaded; it is gone at the end.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..))]
    pub(crate) disk: Option<u32>,
    /// Let time pass with executed instructions instead of with this machine's clock (one CPU only).
    #[arg(long)]
    pub(crate) deterministic: bool,
    /// With --deterministic: ns that an instruction takes, a power of two.
    #[arg(long, value_name = "NS", default_value = "2", value_parser = PossibleValuesParser::new(["1", "2", "4"]).try_map(|ns| ns.parse::<u32>()))]
    instruction_ns: u32,
    /// Do not build or load hpm.ko.
    #[arg(long)]
    pub(crate) no_module: bool,
    /// Start QEMU without the PMU model.
    #[arg(long)]
    pub(crate) no_plugin: bool,
    /// Add to the kernel command line, for instance `pti=off` or `nmi_watchdog=1`.
    #[arg(long, value_name = "WORDS")]
    pub(crate) append: Vec<String>,
    /// Parameter for hpm.ko.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) module_param: Vec<String>,
    /// Argument for the PMU model.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) plugin_arg: Vec<String>,
    /// Build hpm.ko in this folder instead of kmod/.
    #[arg(long, value_name = "DIR")]
    pub(crate) kmod: Option<PathBuf>,
    /// Load this plugin instead of building tests/vpmu/qemu.
    #[arg(long, value_name = "FILE")]
    pub(crate) plugin: Option<PathBuf>,
    /// Another folder (besides the working folder) the command may write to.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Vec<PathBuf>,
    /// Seconds after which the machine is killed (`run` only).
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Also write the PMU model's own counts to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "no_plugin")]
    pub(crate) truth: Option<PathBuf>,
    /// Copy the guest's kernel log to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) keep_log: Option<PathBuf>,
    /// Name this run, for `lab truth NAME` and `lab dmesg NAME`.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Do not fail when the guest's kernel reports a bug or warning.
    #[arg(long)]
    pub(crate) allow_kernel_warnings: bool,
}

impl Options {
    /// ns that an instruction takes; `None` where time is this machine's.
    pub(crate) fn instruction_ns(&self) -> Option<u32> {
        self.deterministic.then_some(self.instruction_ns)
    }

    /// Number of CPUs.
    ///
    /// # Errors
    /// More than one in a machine whose time is the number of executed instructions: QEMU hands that number from one CPU to the
    /// next, and aborts (`icount_prepare_for_run`) when a plugin's PMU interrupts between them.
    pub(crate) fn cpus(&self) -> Result<u32> {
        let cpus = self.cpus.unwrap_or(if self.deterministic { 1 } else { 2 });
        ensure!(cpus == 1 || !self.deterministic, "--deterministic runs one CPU: leave --cpus out");
        Ok(cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_of_the_command_stay_with_it() {
        let cli = Cli::parse_from(["lab", "run", "--cpus", "1", "--", "ls", "--cpus"]);
        let Action::Run { options, command } = cli.action else { panic!("not a run") };
        assert_eq!((options.cpus, command), (Some(1), vec!["ls".to_owned(), "--cpus".to_owned()]));
    }
    #[test]
    fn executed_instructions_are_the_time_of_one_cpu_only() {
        let cpus = |words: &[&str]| {
            let cli = Cli::parse_from([&["lab", "run"], words, &["--", "ls"]].concat());
            let Action::Run { options, .. } = cli.action else { panic!("not a run") };
            options.cpus().ok()
        };
        assert_eq!(cpus(&[]), Some(2));
        assert_eq!(cpus(&["--deterministic"]), Some(1));
        assert_eq!(cpus(&["--deterministic", "--cpus", "2"]), None);
    }
}
