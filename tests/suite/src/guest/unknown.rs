//! A processor with a PMU that hpm does not know.

use anyhow::{Context, Result, ensure};

use super::GuestReport;
use super::bad_input::refused;
use super::lifecycle::MODULE;
use super::programs::{hpmctl, succeed};
use super::truth::Sums;

/// Family and model of the profile `perfmon1`, as CPUID shows them.
const FOUND: &str = "family 6, model 0xe";

/// The module loads and touches no register of the PMU; every command says which processor it found.
pub(super) fn run(report: &mut GuestReport) {
    report.check("unloading and loading the module accesses no PMU register", || {
        let before = Sums::now()?;
        succeed(&mut hpmctl(&["module", "unload"])?)?;
        succeed(&mut hpmctl(&["module", "load", "--path", MODULE])?)?;
        let accesses = (Sums::now()? - before).accesses;
        ensure!(accesses == 0, "there were {accesses} accesses");
        Ok(String::new())
    });
    // Left to itself hpmctl would go on by perf_event, which may know this PMU.
    for (command, event) in [("stat", "instructions"), ("record", "r00c0")] {
        report.check(&format!("{command} says which processor it found"), || {
            refused(hpmctl(&[command, "--source", "driver", "-e", event, "--", "true"])?, FOUND)
        });
    }
    report.check("doctor says which processor it found, what still works, and exits with 1", doctor);
    report.check("what doctor says works does", || {
        succeed(&mut hpmctl(&["list", "--pmu", "skylake", "l1d"])?)?;
        succeed(&mut hpmctl(&["list", "--equivalents"])?)?;
        Ok(String::new())
    });
}

fn doctor() -> Result<String> {
    let output = hpmctl(&["doctor", "--json"])?.output()?;
    ensure!(output.status.code() == Some(1), "it ended with {}", output.status);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).context("its JSON")?;
    let findings = report["findings"].as_array().context("it has no findings")?;
    let driver =
        findings.iter().find(|finding| finding["topic"] == "driver").context("nothing on the driver")?;
    let text = |key: &str| driver[key].as_str().unwrap_or_default().to_owned();
    let (what, advice) = (text("what"), text("advice"));
    ensure!(what.contains(FOUND), "it says: {what}");
    ensure!(advice.contains("hpmctl report") && advice.contains("skylake"), "it advises: {advice}");
    Ok(what)
}
