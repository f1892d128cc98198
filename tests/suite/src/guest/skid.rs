//! One program with one missing load, sampled by interrupts and by PEBS, and the histograms that hpmctl draws of both.

use anyhow::Result;

use super::GuestReport;
use super::programs::{built, hpmctl, record_of, succeed};

/// The traces: by interrupts, and by PEBS.
pub(crate) const IMPRECISE: &str = "imprecise.hpm";
pub(crate) const PRECISE: &str = "precise.hpm";
/// What hpmctl drew: as a picture, and as text.
pub(crate) const PICTURE: &str = "skid.svg";
pub(crate) const TEXT: &str = "skid.txt";
/// The fact that has the histograms' numbers.
pub(crate) const HISTOGRAMS: &str = "histograms";

/// Records both and leaves the histograms.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let event = "l1d-load-miss:u";
    succeed(record_of(event, IMPRECISE, &["--imprecise"])?.arg(built("skid")?))?;
    succeed(record_of(event, PRECISE, &[])?.arg(built("skid")?))?;
    let histograms = |options: &[&str]| -> Result<Vec<u8>> {
        let around = ["report", "--by", "offset", "--around", "missing_load"];
        Ok(succeed(hpmctl(&around)?.args(options).args([IMPRECISE, PRECISE]))?.stdout)
    };
    std::fs::write(TEXT, histograms(&["--picture", PICTURE])?)?;
    report.fact(HISTOGRAMS, serde_json::from_slice(&histograms(&["--json"])?)?);
    Ok(())
}
