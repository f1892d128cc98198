//! The scenarios: each boots the lab, lets the guest part run, and compares what it saw with the truth.

mod cachegrind;
mod counting;
pub(crate) mod demo;
mod judge;
mod kernel;
mod markers;
mod privacy;
mod robust;
mod sampling;
mod scopes;
mod stacks;
mod torture;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::check::Tally;
use crate::lab::{self, Boot};

/// What follows the guest part, on the host.
type Compare = fn(&Boot, &mut Tally);

/// One boot of the lab and what is asked of it.
struct Scenario {
    /// Its name: the guest part's, and after a dot what is special about the boot.
    name: &'static str,
    /// Options of `lab run`.
    options: &'static [&'static str],
    /// Checks that need the truth or the kernel's log.
    compare: Compare,
}

/// The fast tier.
const FAST: &[Scenario] = &[
    Scenario {
        name: "counting",
        options: &["--plugin-arg", "truth-level=basic"],
        compare: counting::compare,
    },
    Scenario { name: "sampling", options: &["--plugin-arg", "pebs-log=on"], compare: sampling::compare },
    Scenario { name: "markers", options: &[], compare: markers::compare },
    Scenario { name: "stacks", options: &[], compare: stacks::compare },
    Scenario {
        name: "judge",
        options: &["--no-module", "--plugin-arg", "truth-level=basic"],
        compare: judge::compare,
    },
    Scenario { name: "ownership", options: &[], compare: kernel::names_hpm },
    Scenario { name: "scopes", options: &["--plugin-arg", "truth-level=basic"], compare: scopes::compare },
    Scenario {
        name: "privacy",
        options: &["--plugin-arg", "pebs-log=on", "--plugin-arg", "pebs-skid=30"],
        compare: privacy::compare,
    },
    Scenario { name: "robust", options: &["--plugin-arg", "truth-level=basic"], compare: robust::compare },
    Scenario { name: "torture", options: &["--plugin-arg", "truth-level=basic"], compare: torture::compare },
    Scenario { name: "lifecycle", options: &[], compare: kernel::isolates_page_tables },
    Scenario { name: "no_pmu", options: &["--no-plugin"], compare: kernel::isolates_page_tables },
    Scenario { name: "bad_input", options: &[], compare: kernel::isolates_page_tables },
];

/// What only the full tier runs.
const LONG: &[Scenario] = &[
    Scenario {
        name: "torture.million",
        options: &["--plugin-arg", "truth-level=basic", "--append", "hpm.torture=long"],
        compare: torture::compare,
    },
    Scenario { name: "cachegrind", options: cachegrind::OPTIONS, compare: cachegrind::compare },
    Scenario {
        name: "sampling.pti-off",
        options: &["--append", "pti=off", "--plugin-arg", "pti=off", "--plugin-arg", "pebs-log=on"],
        compare: sampling::compare,
    },
    Scenario {
        name: "counting.four-cpus",
        options: &["--cpus", "4", "--plugin-arg", "truth-level=basic"],
        compare: counting::compare,
    },
    Scenario {
        name: "lifecycle.pti-off",
        options: &["--append", "pti=off", "--plugin-arg", "pti=off"],
        compare: kernel::runs_unisolated,
    },
];

/// Runs the fast tier's scenarios.
pub(crate) fn run_all(root: &Path, tally: &mut Tally) {
    for scenario in FAST {
        run(root, scenario, tally);
    }
    demo::check(root, tally);
}

/// Runs one scenario, or lists them.
///
/// # Errors
/// There is no scenario of that name.
pub(crate) fn run_named(root: &Path, name: Option<&str>, tally: &mut Tally) -> Result<()> {
    let all = || FAST.iter().chain(LONG);
    let Some(found) = all().find(|scenario| Some(scenario.name) == name) else {
        let names: Vec<&str> = all().map(|scenario| scenario.name).collect();
        bail!("name one of the scenarios: {}", names.join(", "));
    };
    run(root, found, tally);
    Ok(())
}

/// Runs both tiers and writes the summary that docs/test-report.md holds.
///
/// # Errors
/// The report cannot be written.
pub(crate) fn full(root: &Path) -> Result<ExitCode> {
    let start = std::time::Instant::now();
    let mut tally = Tally::default();
    crate::host::run(root, &mut tally);
    run_all(root, &mut tally);
    for scenario in LONG {
        run(root, scenario, &mut tally);
    }
    crate::host::run_booting_tests(root, &mut tally);
    write_report(root, tally, start.elapsed())?;
    Ok(tally.close())
}

fn run(root: &Path, scenario: &Scenario, tally: &mut Tally) {
    let mut boot = None;
    tally.run(&format!("{}: the lab runs it", scenario.name), || {
        boot = Some(lab::boot(root, scenario.name, scenario.options)?);
        Ok(String::new())
    });
    let Some(boot) = boot else { return };
    for (name, verdict) in &boot.report.checks {
        tally.run(&format!("{}: {name}", scenario.name), || verdict.clone().map_err(anyhow::Error::msg));
    }
    (scenario.compare)(&boot, tally);
}

fn write_report(root: &Path, tally: Tally, elapsed: std::time::Duration) -> Result<()> {
    let commit = std::process::Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root).output()?;
    let text = format!(
        "# Test report\n\nLast run of `make test-full`.\n\n| commit | duration | passed | failed |\n|---|---|---|---|\n\
         | {} | {} min | {} | {} |\n",
        String::from_utf8_lossy(&commit.stdout).trim(),
        elapsed.as_secs().div_ceil(60),
        tally.passed,
        tally.failed
    );
    std::fs::write(root.join("docs/test-report.md"), text)?;
    Ok(())
}
