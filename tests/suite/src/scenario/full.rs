//! The full tier: every step of the suite, those first that have never run or ran longest ago.

use std::cmp::Reverse;
use std::path::Path;
use std::process::{Child, ExitCode};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::matrix::{self, Job};
use super::{bench, demo, equivalents, run};
use crate::check::Tally;
use crate::machine::DEBUG_KERNEL;
use crate::results::{Results, Standing};
use crate::{consumers, fuzz, host, lab, libgc, symbols};

/// What is asked of a run.
#[derive(Debug)]
pub(crate) struct Wish {
    /// After so long no further step begins.
    pub(crate) limit: Option<Duration>,
    /// Only steps with this in `NAME on MACHINE`.
    pub(crate) only: Option<String>,
}

type HostCheck = fn(&Path, &mut Tally);

/// Steps that need no machine of the scenarios', or have one of their own.
const ON_HOST: [(&str, HostCheck); 12] = [
    ("host", host::run),
    ("stack", crate::stack::check),
    ("demo", demo::check),
    ("properties", host::run_properties),
    ("long tests", host::run_long_tests),
    ("booting tests", host::run_booting_tests),
    ("consumers", consumers::run),
    ("libpfm4", consumers::libpfm4::run),
    ("symbols", symbols::run),
    ("libgc", libgc::check),
    ("bench", bench::run),
    ("fuzz", |root, tally| fuzz::run(root, fuzz::SECONDS, tally)),
];

/// One step.
enum Step {
    OnHost(&'static str, HostCheck),
    Boot(Job),
    Equivalents,
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::OnHost(name, _) => name,
            Self::Boot(job) => job.scenario.name,
            Self::Equivalents => equivalents::NAME,
        }
    }

    fn machine(&self) -> String {
        match self {
            Self::OnHost(..) => "host".to_owned(),
            Self::Boot(job) => job.machine.label(),
            Self::Equivalents => "several".to_owned(),
        }
    }

    fn on_debug_kernel(&self) -> bool {
        matches!(self, Self::Boot(job) if job.machine.kernel == DEBUG_KERNEL)
    }
}

/// All steps; of those that stand alike the first comes first.
fn steps() -> Vec<Step> {
    let boots = |jobs: Vec<Job>| jobs.into_iter().map(Step::Boot);
    let on_host = ON_HOST.into_iter().map(|(name, check)| Step::OnHost(name, check));
    on_host
        .chain(boots(matrix::fast_jobs()))
        .chain(boots(matrix::long_jobs()))
        .chain([Step::Equivalents])
        .chain(boots(matrix::debug_jobs()))
        .collect()
}

/// Runs what does not stand at this commit, and writes docs/test-report.md after each step, so that nothing is lost when the run
/// is broken off.
///
/// # Errors
/// Results or report cannot be read or written, or no step has such a name.
pub(crate) fn full(root: &Path, wish: &Wish) -> Result<ExitCode> {
    let mut results = Results::of_full_tier(root)?;
    let all = steps();
    let names: Vec<(String, String)> =
        all.iter().map(|step| (step.name().to_owned(), step.machine())).collect();
    let mut chosen = chosen(all, wish.only.as_deref(), &results)?;
    // The next is the last one.
    chosen.sort_by_key(|(standing, _)| Reverse(*standing));
    let wanted = |step: &(Standing, Step)| step.1.on_debug_kernel();
    let mut debug_kernel = chosen.iter().any(wanted).then(|| lab::begin_to_build(root, DEBUG_KERNEL));
    while let Some((_, step)) = chosen.pop() {
        if wish.limit.is_some_and(|limit| results.elapsed() >= limit) {
            println!("---- the time is over; {} steps are left", chosen.len() + 1);
            break;
        }
        println!("---- {} on {}, {} are left after it", step.name(), step.machine(), chosen.len());
        results.run(step.name(), &step.machine(), |tally| take(root, &step, &mut debug_kernel, tally));
        results.publish(root, &names)?;
    }
    Ok(results.total().close())
}

/// The steps that have not passed at this commit, in reverse order of the list: with `only`, the one that is called so, or those with
/// this in their name.
fn chosen(all: Vec<Step>, only: Option<&str>, results: &Results) -> Result<Vec<(Standing, Step)>> {
    let label = |step: &Step| format!("{} on {}", step.name(), step.machine());
    let whole = only.is_some_and(|only| all.iter().any(|step| label(step) == only));
    let is_meant =
        |label: &str| only.is_none_or(|only| if whole { label == only } else { label.contains(only) });
    let mut chosen: Vec<Step> = all.into_iter().filter(|step| is_meant(&label(step))).collect();
    ensure!(!chosen.is_empty(), "no step has {:?} in its name", only.unwrap_or_default());
    chosen.reverse();
    let standing = |step: Step| (results.standing(step.name(), &step.machine()), step);
    Ok(chosen.into_iter().map(standing).filter(|(standing, _)| *standing != Standing::Done).collect())
}

/// One boot at a time: two machines of two CPUs each starve one another on a host of two, whose readers then lose quanta and whose
/// kernels complain of stalls.
fn take(root: &Path, step: &Step, debug_kernel: &mut Option<Result<Child>>, tally: &mut Tally) {
    match step {
        Step::OnHost(_, check) => check(root, tally),
        Step::Equivalents => equivalents::run(root, tally, &equivalents::PROFILES),
        Step::Boot(job) => {
            if let Some(building) = debug_kernel.take_if(|_| step.on_debug_kernel()) {
                tally.run("the debug kernel is built", || lab::wait_until_built(building));
            }
            run(root, job.scenario, &job.machine, tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_step_has_a_name_of_its_own_and_can_be_chosen_by_it() {
        let names: BTreeSet<(&str, String)> =
            steps().iter().map(|step| (step.name(), step.machine())).collect();
        assert_eq!(names.len(), steps().len());
        let results = Results::begin(Path::new("/"));
        let of = |only: &str| chosen(steps(), Some(only), &results).map(|steps| steps.len());
        assert_eq!(of("torture.million").unwrap(), 3);
        assert_eq!(of("torture on").unwrap(), vpmu::profile::ALL.len() + 2, "and twice on the debug kernel");
        assert_eq!(of("-debug").unwrap(), matrix::debug_jobs().len());
        assert_eq!(of("scopes on skylake-2").unwrap(), 1, "and none of the machines whose names go on");
        assert!(of("no such step").unwrap_err().to_string().contains("no step has"));
    }
}
