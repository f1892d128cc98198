//! The scenarios: each boots the lab, lets the guest part run, and compares what it saw with the truth.

mod adaptive;
mod advice;
pub(crate) mod bench;
mod cachegrind;
mod counting;
pub(crate) mod demo;
pub(crate) mod document;
pub(crate) mod equivalents;
pub(crate) mod full;
mod guests;
mod heap;
mod ibs;
mod interrupt;
mod judge;
mod kernel;
mod lbr;
mod locality;
mod markers;
mod matrix;
mod methods;
mod multiplex;
mod overhead;
mod privacy;
mod records;
mod robust;
mod sampling;
mod scopes;
pub(crate) mod screens;
mod several;
mod sharing;
mod siblings;
mod skid;
mod stacks;
mod torture;
mod tracking;
mod unknown;
mod windows;

use std::path::Path;

use anyhow::{Result, bail};

use self::matrix::Job;
use crate::check::Tally;
use crate::guest::markers::C_PROGRAM;
use crate::lab::{self, Boot};
use crate::machine::Machine;
use crate::results::Results;

/// What follows the guest part, on the host.
type Compare = fn(&Boot, &mut Tally);

/// What is asked of a machine.
struct Scenario {
    /// Its name: the guest part's, and after a dot what is special about the boot.
    name: &'static str,
    /// Options of `lab run`.
    options: &'static [&'static str],
    /// Checks that need the truth or the kernel's log.
    compare: Compare,
}

impl Scenario {
    /// This machine as the scenario needs it: where time passes with instructions, one CPU executes them.
    fn on(&self, machine: &Machine) -> Machine {
        let cpus = if self.options.contains(&"--deterministic") { 1 } else { machine.cpus };
        Machine { cpus, ..machine.clone() }
    }
}

/// Every scenario.
const ALL: &[Scenario] = &[
    Scenario {
        name: "counting",
        options: &["--plugin-arg", "truth-level=basic"],
        compare: counting::compare,
    },
    Scenario { name: "sampling", options: &["--plugin-arg", "pebs-log=on"], compare: sampling::compare },
    Scenario { name: "interrupt", options: interrupt::OPTIONS, compare: interrupt::compare },
    Scenario { name: "skid", options: skid::OPTIONS, compare: skid::compare },
    Scenario { name: windows::NAME, options: windows::OPTIONS, compare: windows::compare },
    Scenario { name: "adaptive", options: adaptive::OPTIONS, compare: adaptive::compare },
    Scenario { name: "markers", options: &[], compare: markers::compare },
    Scenario { name: "stacks", options: &[], compare: stacks::compare },
    Scenario { name: "lbr", options: &["--plugin-arg", "pebs-log=branches"], compare: lbr::compare },
    Scenario { name: "locality", options: locality::OPTIONS, compare: locality::compare },
    Scenario {
        name: "judge",
        options: &["--no-module", "--plugin-arg", "truth-level=basic", "--plugin-arg", "pebs-log=on"],
        compare: judge::compare,
    },
    Scenario { name: "ownership", options: &[], compare: kernel::names_hpm },
    Scenario { name: "scopes", options: &["--plugin-arg", "truth-level=basic"], compare: scopes::compare },
    Scenario { name: "sharing", options: &["--plugin-arg", "truth-level=basic"], compare: sharing::compare },
    Scenario {
        name: "privacy",
        options: &["--plugin-arg", "pebs-log=on", "--plugin-arg", "pebs-skid=30", "--plugin-arg", "skid=30"],
        compare: privacy::compare,
    },
    Scenario {
        name: "robust",
        options: &["--plugin-arg", "truth-level=basic", "--plugin-arg", "processor-trace=on"],
        compare: robust::compare,
    },
    Scenario { name: "torture", options: torture::OPTIONS, compare: torture::compare },
    Scenario {
        name: "selfread",
        // Of a processor with CPUID leaf 23H; others have no such flag.
        options: &["--plugin-arg", "rdpmc-user-disable=on"],
        compare: |_, _| {},
    },
    Scenario {
        name: "multiplex",
        // The model is as slow in every turn, whatever is counted; else the time would not run alike in all of them.
        options: &["--plugin-arg", crate::lab::TRUTH_OF_ALL],
        compare: multiplex::compare,
    },
    Scenario {
        name: multiplex::DETERMINISTIC,
        options: multiplex::OPTIONS_DETERMINISTIC,
        compare: multiplex::compare,
    },
    Scenario { name: "torture.million", options: torture::OPTIONS_LONG, compare: torture::compare },
    Scenario { name: "lifecycle", options: &[], compare: |_, _| {} },
    Scenario { name: "lifecycle.short", options: &["--append", "hpm.lifecycle=short"], compare: |_, _| {} },
    Scenario { name: "no_pmu", options: &["--no-plugin"], compare: |_, _| {} },
    Scenario { name: unknown::NAME, options: unknown::OPTIONS, compare: unknown::compare },
    Scenario { name: siblings::NAME, options: siblings::OPTIONS, compare: siblings::compare },
    Scenario { name: guests::NAME, options: guests::OPTIONS, compare: guests::compare },
    Scenario { name: "bad_input", options: &[], compare: |_, _| {} },
    Scenario { name: "cachegrind", options: cachegrind::OPTIONS, compare: cachegrind::compare },
    Scenario { name: "screens", options: crate::guest::screens::OPTIONS, compare: screens::compare },
    Scenario { name: "overhead", options: overhead::OPTIONS, compare: overhead::compare },
    Scenario {
        name: overhead::BILLION,
        options: overhead::OPTIONS_BILLION,
        compare: overhead::compare_billion,
    },
    Scenario { name: heap::NAME, options: heap::OPTIONS, compare: heap::compare },
    // Time passes with instructions, so that an interval is as many of them, whatever the host does.
    Scenario { name: "guided", options: &["--deterministic"], compare: |_, _| {} },
    Scenario { name: methods::NAME, options: methods::OPTIONS, compare: methods::compare },
    Scenario { name: advice::NAME, options: advice::OPTIONS, compare: advice::compare },
    Scenario { name: tracking::NAME, options: tracking::OPTIONS, compare: tracking::compare },
];

fn find(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// Runs the fast tier's scenarios.
pub(crate) fn run_all(root: &Path, results: &mut Results) {
    boot_all(root, matrix::fast_jobs(), results);
    results.run("stack", "host", |tally| crate::stack::check(root, tally));
    results.run("demo", "host", |tally| demo::check(root, tally));
}

/// Runs one scenario on a machine, or lists them.
///
/// # Errors
/// There is no scenario of that name.
pub(crate) fn run_named(root: &Path, name: Option<&str>, machine: &Machine) -> Result<Tally> {
    let Some(found) = name.and_then(find) else {
        let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        bail!("name one of the scenarios: {}", names.join(", "));
    };
    let machine = found.on(machine);
    let mut tally = Tally::of(&machine.label());
    run(root, found, &machine, &mut tally);
    Ok(tally)
}

/// Runs jobs in order, one at a time: two machines of two CPUs each starve one another on a host of two ([`full`]).
fn boot_all(root: &Path, jobs: Vec<Job>, results: &mut Results) {
    let all = jobs.len();
    for (number, Job { scenario, machine }) in (1..).zip(jobs) {
        println!("---- {number} of {all}: {} on {}", scenario.name, machine.label());
        results.run(scenario.name, &machine.label(), |tally| run(root, scenario, &machine, tally));
    }
}

fn run(root: &Path, scenario: &Scenario, machine: &Machine, tally: &mut Tally) {
    let mut boot = None;
    tally.run(&format!("{}: the lab runs it", scenario.name), || {
        boot = Some(lab::boot_prepared(
            root,
            scenario.name,
            machine,
            scenario.options,
            |folder| match scenario.name {
                "markers" => lab::compile(root, folder, C_PROGRAM),
                guests::NAME => guests::prepare(root, folder),
                heap::NAME => heap::prepare(root, folder),
                "locality" => locality::prepare(root, folder),
                methods::NAME => methods::prepare(root, machine, folder),
                advice::NAME => advice::prepare(root, folder),
                tracking::NAME => tracking::prepare(root, folder),
                "overhead" | overhead::BILLION => overhead::prepare(root),
                "screens" => screens::prepare(root, folder),
                _ => Ok(()),
            },
        )?);
        Ok(String::new())
    });
    let Some(boot) = boot else { return };
    tally.take_in(scenario.name, &boot.report.checks);
    kernel::isolation(&boot, tally);
    if !boot.report.refused {
        (scenario.compare)(&boot, tally);
    }
}
