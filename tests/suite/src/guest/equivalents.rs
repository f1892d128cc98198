//! One workload and one generic event, counted and precisely sampled: the same on every processor.

use anyhow::Result;

use super::GuestReport;
use super::programs::{built, hpmctl, record_of, stat, succeed};

/// The generic event.
const EVENT: &str = "l1d-load-miss:u";
/// The fact that has the count.
pub(crate) const COUNT: &str = "count";
/// The fact that has the histogram around the first load.
pub(crate) const HISTOGRAM: &str = "histogram";

/// Leaves both facts.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    report.fact(COUNT, stat(EVENT, "count.json", &["walks"])?);
    succeed(record_of(EVENT, "walks.hpm", &[])?.arg(built("walks")?))?;
    let histogram = succeed(&mut hpmctl(&[
        "report",
        "--by",
        "offset",
        "--around",
        "first_load",
        "--json",
        "walks.hpm",
    ])?)?;
    report.fact(HISTOGRAM, serde_json::from_slice(&histogram.stdout)?);
    Ok(())
}
