//! The machines that scenarios are run on.

use anyhow::{Result, bail};
use vpmu::Profile;
use vpmu::profile::{self, SKYLAKE};

/// One virtual machine: what the lab is asked to boot.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The processor that the PMU model describes.
    pub(crate) profile: &'static Profile,
    /// Number of CPUs.
    pub(crate) cpus: u32,
    /// Whether page tables are isolated, as kernels boot by themselves on these processors.
    pub(crate) isolated: bool,
    /// The kernel, as `lab run --kernel` names it.
    pub(crate) kernel: String,
}

/// The kernel that is booted unless another one is asked for.
pub(crate) const KERNEL: &str = "newest";
/// The stock kernel before it.
pub(crate) const PREVIOUS_KERNEL: &str = "previous";
/// The kernel that checks itself.
pub(crate) const DEBUG_KERNEL: &str = "debug";
/// All of them.
pub(crate) const KERNELS: [&str; 3] = [KERNEL, PREVIOUS_KERNEL, DEBUG_KERNEL];

impl Machine {
    /// The plain machine, from which the others differ, with this processor: two CPUs, or one of each of its cores' three types.
    pub(crate) fn of(profile: &'static Profile) -> Self {
        let others = profile.hybrid.map_or(0, |hybrid| hybrid.others().count() as u32);
        Self { profile, cpus: 2.max(1 + others), isolated: true, kernel: KERNEL.to_owned() }
    }

    /// The plain machine.
    pub(crate) fn plain() -> Self {
        Self::of(&SKYLAKE)
    }

    /// How many types of cores it has.
    pub(crate) fn types_of_core(&self) -> u64 {
        let mut names: Vec<_> = (0..self.cpus).map(|cpu| self.profile.of_cpu(cpu, self.cpus).name).collect();
        names.dedup();
        names.len() as u64
    }

    /// A name for people and folders: `skylake-2` with what else is special after it.
    pub(crate) fn label(&self) -> String {
        let mut label = format!("{}-{}", self.profile.name, self.cpus);
        if !self.isolated {
            label += "-pti-off";
        }
        if self.kernel != KERNEL {
            label += "-";
            label += &self.kernel;
        }
        label
    }

    /// Options of `lab run`; with `has_pmu` false the lab boots without the model.
    pub(crate) fn options(&self, has_pmu: bool) -> Vec<String> {
        let mut options = vec!["--profile".to_owned(), self.profile.name.to_owned()];
        options.extend(["--cpus".to_owned(), self.cpus.to_string()]);
        options.extend(["--kernel".to_owned(), self.kernel.clone()]);
        if !self.isolated {
            options.extend(["--append", "pti=off"].map(str::to_owned));
            if has_pmu {
                options.extend(["--plugin-arg", "pti=off"].map(str::to_owned));
            }
        }
        options
    }
}

/// The profile of this name.
///
/// # Errors
/// There is none; the message lists those there are.
pub(crate) fn profile(name: &str) -> Result<&'static Profile> {
    let Some(profile) = profile::by_name(name) else {
        let names: Vec<&str> = profile::every().map(|profile| profile.name).collect();
        bail!("there is no profile {name}; there are {}", names.join(", "));
    };
    Ok(profile)
}
