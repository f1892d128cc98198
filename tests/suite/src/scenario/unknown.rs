//! A PMU that hpm does not know: version 1 of architectural performance monitoring, before Core 2.

use anyhow::ensure;
use vpmu::Profile;
use vpmu::profile::PERFMON1;
use vpmu::truth::Report;

use crate::check::Tally;
use crate::lab::Boot;

pub(super) const NAME: &str = "unknown";
/// The processor.
pub(super) const PROFILE: &Profile = &PERFMON1;
/// Options of `lab run`: the sums that the guest part asks for are kept.
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", "truth-level=basic"];

/// No access to a PMU register faulted on any CPU, the kernel's own included.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run("unknown: no access to a PMU register faulted", || {
        let truth: Report = serde_json::from_value(boot.truth.clone())?;
        let faults: u64 = truth.cpus.iter().map(|cpu| cpu.activity.general_protection).sum();
        ensure!(faults == 0, "{faults} did");
        ensure!(!truth.cpus.is_empty(), "the truth has no CPU");
        Ok(String::new())
    });
}
