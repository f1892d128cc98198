//! `--topdown`: what to count on this machine.

use anyhow::{Error, Result};
use libhpm::analysis::topdown::{self, Plan, Share};
use libhpm::source::choice::usable_pmu;

use super::{EventCount, StatArgs};

/// The plan for the driver's PMU, if slots are asked for.
///
/// # Errors
/// When the PMU counts nothing of the kind.
pub(super) fn plan(args: &StatArgs) -> Result<Option<Plan>> {
    let Some(level) = args.topdown else { return Ok(None) };
    topdown::plan(&usable_pmu()?, level, smt_is_active()).map(Some).map_err(Error::msg)
}

/// The shares that counts come to.
pub(super) fn shares(plan: Option<&Plan>, events: &[EventCount]) -> Vec<Share> {
    let counts: Vec<Option<u64>> = events.iter().map(|event| event.scaled).collect();
    plan.map_or_else(Vec::new, |plan| plan.shares(&counts))
}

/// Whether cores run two threads at a time (Documentation/ABI/testing/sysfs-devices-system-cpu); a kernel that does not tell
/// has none.
fn smt_is_active() -> bool {
    std::fs::read_to_string("/sys/devices/system/cpu/smt/active").is_ok_and(|text| text.trim() == "1")
}
