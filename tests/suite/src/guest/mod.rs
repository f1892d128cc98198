//! What runs inside the lab machine.

pub(crate) mod adaptive;
pub(crate) mod advice;
mod bad_input;
pub(crate) mod bench;
mod cachegrind;
pub(crate) mod counting;
mod ends;
pub(crate) mod equivalents;
mod glimpse;
pub(crate) mod guests;
mod guided;
pub(crate) mod heap;
mod identity;
pub(crate) mod interrupt;
pub(crate) mod judge;
pub(crate) mod lbr;
mod lifecycle;
pub(crate) mod locality;
pub(crate) mod markers;
pub(crate) mod methods;
mod module;
pub(crate) mod multiplex;
mod mutation;
mod no_pmu;
mod others;
pub(crate) mod overhead;
mod ownership;
mod privacy;
pub(crate) mod processor;
pub(crate) mod programs;
mod proof;
mod reports;
mod rights;
pub(crate) mod robust;
pub(crate) mod sampling;
pub(crate) mod scopes;
pub(crate) mod screens;
mod selfread;
pub(crate) mod sharing;
mod siblings;
pub(crate) mod skid;
pub(crate) mod stacks;
pub(crate) mod torture;
pub(crate) mod tracking;
pub(crate) mod truth;
mod unknown;
pub(crate) mod windows;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// File in the working folder that the guest part leaves for the host part.
pub(crate) const REPORT: &str = "report.json";

/// Guest parts that measure by hpm from the start.
const NEED_A_PMU: [&str; 3] = ["counting", "sampling", "lifecycle"];

/// Profiles whose PMU hpm does not take yet.
const REFUSED: &[&str] = &[];

/// One check made inside the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GuestCheck {
    /// Its name.
    pub(crate) name: String,
    /// What was seen, or why it failed.
    pub(crate) verdict: Result<String, String>,
    /// How long it took, by the guest's clock.
    pub(crate) seconds: f64,
}

/// What a guest part has to tell.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct GuestReport {
    /// Checks made inside the guest.
    pub(crate) checks: Vec<GuestCheck>,
    /// hpm does not take this processor's PMU, and said so.
    pub(crate) refused: bool,
    /// Facts for the host part to compare with the truth.
    pub(crate) facts: BTreeMap<String, Value>,
}

impl GuestReport {
    /// Makes one check and keeps its verdict.
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<String>) {
        let begun = Instant::now();
        let verdict = check().map_err(|error| format!("{error:#}"));
        self.checks.push(GuestCheck {
            name: name.to_owned(),
            verdict,
            seconds: begun.elapsed().as_secs_f64(),
        });
    }

    /// Keeps a fact.
    fn fact(&mut self, name: &str, value: Value) {
        self.facts.insert(name.to_owned(), value);
    }
}

/// Runs the guest part `name` and leaves its report.
///
/// # Errors
/// The part is not known, could not run to its end, or its report cannot be written.
pub(crate) fn run(name: &str) -> Result<ExitCode> {
    let mut report = GuestReport::default();
    if NEED_A_PMU.contains(&name) && !accepted(&mut report)? {
        return leave(&report);
    }
    match name {
        "counting" => counting::run(&mut report)?,
        "sampling" => sampling::run(&mut report)?,
        "interrupt" => interrupt::run(&mut report)?,
        "skid" => skid::run(&mut report)?,
        "windows" => windows::run(&mut report)?,
        "equivalents" => equivalents::run(&mut report)?,
        "adaptive" => adaptive::run(&mut report)?,
        "stacks" => stacks::run()?,
        "lbr" => lbr::run(&mut report)?,
        "locality" => locality::run(&mut report)?,
        "advice" => advice::run(&mut report)?,
        "tracking" => tracking::run(&mut report)?,
        "markers" => markers::run()?,
        "judge" => judge::run(&mut report)?,
        "ownership" => ownership::run(&mut report),
        "lifecycle" => lifecycle::run(&mut report)?,
        "cachegrind" => cachegrind::run(&mut report)?,
        "no_pmu" => no_pmu::run(&mut report),
        "unknown" => unknown::run(&mut report),
        "privacy" => privacy::run(&mut report)?,
        "privacy_reader" => privacy::read(&mut report),
        "robust" => robust::run(&mut report)?,
        "torture" => torture::run(&mut report)?,
        "torture_sender" => mutation::run(&mut report)?,
        "torture_threads" => torture::be_a_thousand_threads()?,
        "siblings" => siblings::run(&mut report)?,
        "guests" => guests::run(&mut report)?,
        "scopes" => scopes::run(&mut report)?,
        "sharing" => sharing::run(&mut report)?,
        "screens" => screens::run(&mut report)?,
        "stale_proof" => proof::goes_stale()?,
        "stale_proofs" => proof::stays_stale()?,
        "renumbered" => identity::be_renumbered()?,
        "secure_reports" => reports::of_secure_program()?,
        "forged_proof" => proof::is_forged()?,
        "selfread" => selfread::run(&mut report),
        "multiplex" => multiplex::run(&mut report)?,
        "bench" => bench::run(&mut report)?,
        "overhead" => overhead::run(&mut report)?,
        "heap" => heap::run(&mut report)?,
        "overhead_one" => overhead::one()?,
        "methods" => methods::run(&mut report)?,
        "guided" => guided::run(&mut report)?,
        methods::PROFILE => methods::profile_all()?,
        "methods_one" => methods::one()?,
        "bad_input" => bad_input::run(&mut report),
        _ => bail!("there is no guest part {name}"),
    }
    leave(&report)
}

/// Whether the scenario's options put this word on the kernel's command line.
fn is_asked_for(word: &str) -> Result<bool> {
    Ok(std::fs::read_to_string("/proc/cmdline")?.split_whitespace().any(|found| found == word))
}

/// Whether hpm takes this processor's PMU; only those of [`REFUSED`] it may refuse.
fn accepted(report: &mut GuestReport) -> Result<bool> {
    let name = processor::profile()?.name;
    let refusal = processor::refusal();
    report.refused = !matches!(refusal, Ok(None));
    if REFUSED.contains(&name) {
        report.check("hpm refuses this processor in one sentence", || {
            refusal?.ok_or_else(|| anyhow::anyhow!("it takes {name}: take that off the list of refused ones"))
        });
    } else if report.refused {
        report.check("hpm takes this processor", || bail!("it refuses: {}", refusal?.unwrap_or_default()));
    }
    Ok(!report.refused)
}

fn leave(report: &GuestReport) -> Result<ExitCode> {
    let json = serde_json::to_vec_pretty(report)?;
    std::fs::write(REPORT, json).context("writing the report")?;
    Ok(ExitCode::SUCCESS)
}
