//! Counts of a program on the logical processors of one core against the truth, exactly.

use anyhow::{Context, Result, ensure};
use vpmu::Profile;
use vpmu::profile::PRESCOTT;

use super::counting::true_counts;
use crate::check::Tally;
use crate::lab::Boot;

pub(super) const NAME: &str = "siblings";
/// The processor: two CPUs of the lab are one core of it.
pub(super) const PROFILE: &Profile = &PRESCOTT;
/// Options of `lab run`.
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", "truth-level=basic"];

pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let cases = [
        ("loops1", "on logical processor 0, the other one busy"),
        ("loops2", "on logical processor 1, the other one busy"),
        ("loops3", "free to run on both, both busy"),
    ];
    for (label, how) in cases {
        tally.run(&format!("{NAME}: exact {how}"), || exact(boot, label));
    }
}

fn exact(boot: &Boot, label: &str) -> Result<String> {
    let stat = boot.report.facts.get(label).with_context(|| format!("the guest left no {label}"))?;
    let events = stat["events"].as_array().with_context(|| format!("no events in {stat}"))?;
    let counted: Vec<u64> = events.iter().filter_map(|event| event["count"].as_u64()).collect();
    let [instructions, branches, ..] = true_counts(&boot.truth, label)?;
    ensure!(
        counted == [instructions, branches],
        "hpmctl counted {counted:?}, the truth is {:?}",
        [instructions, branches]
    );
    Ok(format!("{counted:?}"))
}
