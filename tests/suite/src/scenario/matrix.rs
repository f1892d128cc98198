//! Which scenarios are run on which machines, in which tier.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use vpmu::profile::{self, ICE_LAKE, NEHALEM, Profile, SKYLAKE};

use super::{Scenario, run};
use crate::check::Tally;
use crate::machine::Machine;

/// What is run on every machine: counts, samples, the outside judge, and that nothing is left behind.
const EVERYWHERE: [&str; 4] = ["counting", "sampling", "judge", "lifecycle"];

/// What of that is run on this processor: records are compared with the truth by their time, which they have from format 3
/// on (IA32_PERF_CAPABILITIES bits 11:8; SDM Vol. 3B 18.13.1).
fn everywhere(profile: &Profile) -> impl Iterator<Item = &'static str> {
    let timed = profile.perfmon().is_some_and(|pmu| pmu.pebs_format() >= 3);
    EVERYWHERE.into_iter().filter(move |name| timed || *name != "sampling")
}

/// What is run on the debug kernel: all that exercises the driver.
const ON_DEBUG_KERNEL: [&str; 11] = [
    "counting",
    "sampling",
    "stacks",
    "markers",
    "ownership",
    "scopes",
    "privacy",
    "robust",
    "torture",
    "lifecycle",
    "bad_input",
];

/// What the fast tier leaves to the full one.
const LONG_ONLY: [&str; 2] = ["cachegrind", "torture.million"];

/// One boot.
struct Job {
    scenario: &'static Scenario,
    machine: Machine,
}

/// Runs every scenario on the plain machine, and some on an old and a newer processor.
pub(super) fn fast(root: &Path, tally: &mut Tally) {
    boot_all(root, fast_jobs(), tally);
}

/// Runs what the fast tier does not: every processor with one and two CPUs, more CPUs, no isolation of page tables, the
/// kernel before the newest, and a kernel that checks itself.
pub(super) fn long(root: &Path, tally: &mut Tally) {
    let debug_kernel = build_debug_kernel(root);
    boot_all(root, long_jobs(), tally);
    let mut built = false;
    tally.run("the debug kernel is built", || {
        let output = debug_kernel?.wait_with_output().context("waiting for the lab")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        built = true;
        Ok(String::new())
    });
    if built {
        boot_all(root, debug_jobs(), tally);
    }
}

/// Compiles the debug kernel while machines run, with what they leave of the processor.
fn build_debug_kernel(root: &Path) -> Result<Child> {
    Command::new("nice")
        .args(["-n", "19"])
        .arg(root.join("target/release/lab"))
        .args(["build", "--kernel", "debug", "--no-plugin"])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("target/release/lab cannot be started; `make tools` builds it")
}

fn jobs<'a>(names: impl IntoIterator<Item = &'a str>, machine: &Machine) -> Vec<Job> {
    let scenarios = names.into_iter().filter_map(super::find);
    scenarios.map(|scenario| Job { scenario, machine: machine.clone() }).collect()
}

fn fast_jobs() -> Vec<Job> {
    let names = super::ALL.iter().map(|scenario| scenario.name);
    let mut all = jobs(names.filter(|name| !LONG_ONLY.contains(name)), &Machine::plain());
    for profile in [&ICE_LAKE, &NEHALEM] {
        all.extend(jobs(everywhere(profile), &Machine::of(profile)));
    }
    all
}

fn long_jobs() -> Vec<Job> {
    let mut all = jobs(LONG_ONLY, &Machine::plain());
    let fast = [SKYLAKE.name, ICE_LAKE.name, NEHALEM.name];
    for profile in profile::ALL {
        all.extend(jobs(everywhere(profile), &Machine { cpus: 1, ..Machine::of(profile) }));
        if !fast.contains(&profile.name) {
            all.extend(jobs(everywhere(profile), &Machine::of(profile)));
        }
    }
    all.extend(jobs(EVERYWHERE, &Machine { isolated: false, ..Machine::plain() }));
    all.extend(jobs(["counting"], &Machine { cpus: 4, ..Machine::plain() }));
    all.extend(jobs(EVERYWHERE, &Machine { kernel: "previous".to_owned(), ..Machine::plain() }));
    all
}

fn debug_jobs() -> Vec<Job> {
    let on = |isolated| {
        jobs(ON_DEBUG_KERNEL, &Machine { isolated, kernel: "debug".to_owned(), ..Machine::plain() })
    };
    [on(true), on(false)].into_iter().flatten().collect()
}

/// Runs jobs in order, one at a time: two machines of two CPUs each starve one another on a host of two, whose readers then
/// lose quanta and whose kernels complain of stalls.
fn boot_all(root: &Path, jobs: Vec<Job>, tally: &mut Tally) {
    for job in jobs {
        tally.add(&run(root, job.scenario, &job.machine));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_profile_is_tested_on_one_and_on_two_cpus_and_nothing_twice() {
        let all: Vec<Job> = fast_jobs().into_iter().chain(long_jobs()).chain(debug_jobs()).collect();
        let names: BTreeSet<(&str, String)> =
            all.iter().map(|job| (job.scenario.name, job.machine.label())).collect();
        assert_eq!(names.len(), all.len());
        for profile in profile::ALL {
            for cpus in [1, 2] {
                for scenario in everywhere(profile) {
                    let label = Machine { cpus, ..Machine::of(profile) }.label();
                    assert!(names.contains(&(scenario, label.clone())), "{scenario} on {label}");
                }
            }
        }
    }
}
