//! Which scenarios are run on which machines, in which tier.

use vpmu::profile::{
    self, ALDER_LAKE, CLEARWATER_FOREST, ICE_LAKE, NEHALEM, Profile, SAPPHIRE_RAPIDS, SKYLAKE, amd,
};

use super::{
    Scenario, advice, guests, heap, methods, multiplex, overhead, siblings, tracking, unknown, windows,
};
use crate::machine::{DEBUG_KERNEL, Machine, PREVIOUS_KERNEL};

/// What is run on every machine: counts, samples, the outside judge, and that nothing is left behind.
const EVERYWHERE: [&str; 4] = ["counting", "sampling", "judge", "lifecycle.short"];

/// What is run on the debug kernel: all that exercises the driver.
const ON_DEBUG_KERNEL: [&str; 16] = [
    "counting",
    "sampling",
    "stacks",
    "lbr",
    "markers",
    "ownership",
    "scopes",
    "sharing",
    "privacy",
    "robust",
    "torture",
    "lifecycle.short",
    "bad_input",
    "interrupt",
    multiplex::DETERMINISTIC,
    "selfread",
];

/// What is run there on processors whose segments the driver allocates and programs otherwise: architectural PEBS, and two kinds of cores.
const ON_DEBUG_KERNEL_ELSEWHERE: [&str; 2] = ["sampling", "lifecycle.short"];

/// What is run on the stock kernel before the newest: what Rust for Linux offers drivers changes from one to the next. The
/// fast tier loads and unloads, the full one does the rest.
const ON_PREVIOUS_KERNEL: [&str; 5] = ["counting", "sampling", "scopes", "stacks", "markers"];

/// What the fast tier leaves to the full one.
const LONG_ONLY: [&str; 15] = [
    "adaptive",
    advice::NAME,
    "cachegrind",
    "guided",
    heap::NAME,
    "lifecycle",
    "locality",
    methods::NAME,
    // Counts are scaled by a time that passes on, too, while the machine below the lab does something else.
    "multiplex",
    "overhead",
    overhead::BILLION,
    "screens",
    "torture.million",
    tracking::NAME,
    "lbr",
];

/// What is run on one machine only each, which is not the plain one.
const ELSEWHERE: [&str; 4] = [unknown::NAME, siblings::NAME, guests::NAME, windows::NAME];

/// What is run on AMD's processors: as everywhere, but that without IBS samples come by interrupts.
fn on_amd(profile: &Profile) -> [&'static str; 4] {
    let ibs = profile.amd().is_some_and(|facts| facts.ibs != 0);
    ["counting", if ibs { "sampling" } else { "interrupt" }, "judge", "lifecycle.short"]
}

/// What exercises the driver beyond [`EVERYWHERE`]: run on every processor with several CPUs.
const BEYOND: [&str; 12] = [
    "lbr",
    "interrupt",
    "adaptive",
    "markers",
    "stacks",
    "ownership",
    "scopes",
    "sharing",
    "privacy",
    "robust",
    "selfread",
    "multiplex",
];

/// The processor with the oldest records, and one with adaptive ones.
const OLD: &Profile = &NEHALEM;
const ADAPTIVE: &Profile = &ICE_LAKE;

/// One boot.
pub(super) struct Job {
    pub(super) scenario: &'static Scenario,
    pub(super) machine: Machine,
}

fn jobs<'a>(names: impl IntoIterator<Item = &'a str>, machine: &Machine) -> Vec<Job> {
    let scenarios = names.into_iter().filter_map(super::find);
    scenarios.map(|scenario| Job { scenario, machine: scenario.on(machine) }).collect()
}

/// The fast tier: every scenario on the plain machine, and some on an old and a newer processor and on an older kernel.
pub(super) fn fast_jobs() -> Vec<Job> {
    let names = super::ALL.iter().map(|scenario| scenario.name);
    let plain = names.filter(|name| !LONG_ONLY.contains(name) && !ELSEWHERE.contains(name));
    let mut all = jobs(plain, &Machine::plain());
    for (name, profile) in [
        (unknown::NAME, unknown::PROFILE),
        (siblings::NAME, siblings::PROFILE),
        (guests::NAME, guests::PROFILE),
        (windows::NAME, windows::PROFILES[0]),
    ] {
        all.extend(jobs([name], &Machine::of(profile)));
    }
    for profile in [ADAPTIVE, OLD] {
        all.extend(jobs(EVERYWHERE, &Machine::of(profile)));
    }
    all.extend(jobs(["lifecycle.short"], &previous_kernel()));
    all
}

fn previous_kernel() -> Machine {
    Machine { kernel: PREVIOUS_KERNEL.to_owned(), ..Machine::plain() }
}

/// What the fast tier does not: every processor with one and several CPUs, more CPUs, no isolation of page tables, and the kernel before the
/// newest.
pub(super) fn long_jobs() -> Vec<Job> {
    let mut all = jobs(LONG_ONLY, &Machine::plain());
    let fast = [SKYLAKE.name, ADAPTIVE.name, OLD.name];
    for profile in profile::ALL {
        all.extend(jobs(EVERYWHERE, &Machine { cpus: 1, ..Machine::of(profile) }));
        if !fast.contains(&profile.name) {
            all.extend(jobs(EVERYWHERE, &Machine::of(profile)));
        }
        // The plain machine has it already.
        if profile.name != SKYLAKE.name {
            all.extend(jobs(BEYOND.into_iter().chain(["torture"]), &Machine::of(profile)));
        }
    }
    for profile in [ADAPTIVE, OLD] {
        all.extend(jobs(["torture.million"], &Machine::of(profile)));
    }
    for profile in amd::ALL {
        for cpus in [1, 2] {
            all.extend(jobs(on_amd(profile), &Machine { cpus, ..Machine::of(profile) }));
        }
    }
    // Branch records that hardware writes into its records, of model-specific and of architectural registers.
    for profile in [ADAPTIVE, &SAPPHIRE_RAPIDS] {
        all.extend(jobs(["locality"], &Machine::of(profile)));
    }
    for profile in &windows::PROFILES[1..] {
        all.extend(jobs([windows::NAME], &Machine::of(profile)));
    }
    let flat = Machine { isolated: false, ..Machine::plain() };
    all.extend(jobs(EVERYWHERE.into_iter().chain(BEYOND), &flat));
    all.extend(jobs(["counting"], &Machine { cpus: 4, ..Machine::plain() }));
    all.extend(jobs(ON_PREVIOUS_KERNEL, &previous_kernel()));
    all
}

/// What is run on a kernel that checks itself.
pub(super) fn debug_jobs() -> Vec<Job> {
    let on = |isolated| {
        jobs(ON_DEBUG_KERNEL, &Machine { isolated, kernel: DEBUG_KERNEL.to_owned(), ..Machine::plain() })
    };
    let others = [&CLEARWATER_FOREST, &ALDER_LAKE].into_iter().flat_map(|profile| {
        jobs(ON_DEBUG_KERNEL_ELSEWHERE, &Machine { kernel: DEBUG_KERNEL.to_owned(), ..Machine::of(profile) })
    });
    let [windows, ..] = windows::PROFILES;
    let windows = Machine { kernel: DEBUG_KERNEL.to_owned(), ..Machine::of(windows) };
    let windows = jobs([windows::NAME], &windows);
    [on(true), on(false), windows].into_iter().flatten().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_profile_is_tested_on_one_and_on_several_cpus_and_nothing_twice() {
        let all: Vec<Job> = fast_jobs().into_iter().chain(long_jobs()).chain(debug_jobs()).collect();
        let names: BTreeSet<(&str, String)> =
            all.iter().map(|job| (job.scenario.name, job.machine.label())).collect();
        assert_eq!(names.len(), all.len());
        for profile in profile::ALL {
            for cpus in [1, Machine::of(profile).cpus] {
                let beyond = BEYOND.into_iter().filter(|_| cpus > 1);
                for scenario in EVERYWHERE.into_iter().chain(beyond) {
                    // Some take one CPU whatever they are given.
                    let machine = Machine { cpus, ..Machine::of(profile) };
                    let label =
                        super::super::find(scenario).map(|it| it.on(&machine).label()).expect(scenario);
                    assert!(names.contains(&(scenario, label.clone())), "{scenario} on {label}");
                }
            }
        }
        for profile in amd::ALL {
            for (cpus, scenario) in
                [1, 2].into_iter().flat_map(|cpus| on_amd(profile).map(|name| (cpus, name)))
            {
                let label = Machine { cpus, ..Machine::of(profile) }.label();
                assert!(names.contains(&(scenario, label.clone())), "{scenario} on {label}");
            }
        }
    }
}
