//! One workload and one generic event, counted and precisely sampled: the same on every processor.

use anyhow::Result;

use super::GuestReport;
use super::processor::profile;
use super::programs::{PERIOD, built, hpmctl, record_each, stat, succeed};

/// The generic event.
const EVENT: &str = "l1d-load-miss:u";
/// Of operations that do not load nobody knows a level.
const MISSED: &str = r#"level ~ "." and level != "L1""#;
/// What AMD's processors have in its place: loads that were given a buffer for their miss are counted (PPR 56713, PMCx041), ops of every
/// kind are sampled, and those reported that missed.
const AMD: (&str, &str, &[&str]) = ("cpu/event=0x41,umask=1/u", "ibs_op/cnt_ctl=1/u", &["--filter", MISSED]);
/// Ops from one sample to the next: each is an interrupt there, whose handler must not take most of the time.
const AMD_PERIOD: u64 = 4001;
/// The fact that has the count.
pub(crate) const COUNT: &str = "count";
/// The fact that has the histogram around the first load.
pub(crate) const HISTOGRAM: &str = "histogram";

/// Leaves both facts.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let amd = profile()?.amd().is_some();
    let (counted, sampled, only) = if amd { AMD } else { (EVENT, EVENT, &[][..]) };
    let period = if amd { AMD_PERIOD } else { PERIOD };
    report.fact(COUNT, stat(counted, "count.json", &["walks"])?);
    succeed(record_each(sampled, period, "walks.hpm", &[])?.arg(built("walks")?))?;
    let around = ["report", "--by", "offset", "--around", "first_load", "--json"];
    let histogram = succeed(hpmctl(&around)?.args(only).arg("walks.hpm"))?;
    report.fact(HISTOGRAM, serde_json::from_slice(&histogram.stdout)?);
    Ok(())
}
