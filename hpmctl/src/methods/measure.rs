//! Step 3: events in the selected functions alone, by repeated runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use libhpm::call_log::{Config, Counting, Filter, encode, encode_clock, logs};
use libhpm::event;
use libhpm::source::choice::{Chosen, Wish, choose, events_at_hand, parse_events};
use libhpm::source::perf;
use libhpm::sys::clock::tsc_per_ms;

use super::begun::BegunRuns;
use super::folder::{RunFile, begin_run, read_profile, read_selection, write_run};
use super::{ClockArg, CountingArg, launch};
use crate::output::{print, warn};

/// What is counted by the module when nothing is asked for, as far as the PMU has it.
const BY_DRIVER: [&str; 7] =
    ["instructions", "cycles", "l1d-load-miss", "l1i-miss", "l2-miss", "branch-misses", "dtlb-load-miss"];
/// What is counted by perf_event then, with hardware counters and without.
const BY_PERF: [&str; 5] = ["instructions", "cycles", "cache-misses", "branch-misses", "page-faults"];
const BY_SOFTWARE: [&str; 2] = ["page-faults", "context-switches"];

/// Events of one run.
const COUNTERS: u8 = 4;

/// Count events in the selected functions, in repeated runs of the program (step 3).
#[derive(Args, Debug)]
pub(super) struct MeasureArgs {
    /// Events, as of `hpmctl stat` [default: cycles, instructions, cache, branch and TLB misses, as far as there are counters]
    #[arg(short, long = "event", value_name = "NAME")]
    events: Vec<String>,
    /// Who counts
    #[arg(long, value_enum, default_value_t)]
    source: CountingArg,
    /// Events of one run; further ones get runs of their own
    #[arg(long, default_value_t = COUNTERS, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=7))]
    counters: u8,
    /// Runs for each group of events, which are averaged
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    repeat: u8,
    /// Also run the program as often without the shim, and compare how long it takes
    #[arg(long)]
    baseline: bool,
    /// What times are of
    #[arg(long, value_enum, default_value_t)]
    clock: ClockArg,
    /// The shared library that logs entries and exits [default: the one that came with hpmctl]
    #[arg(long, value_name = "FILE")]
    shim: Option<PathBuf>,
    /// The folder with a profile and a selection
    #[arg(value_name = "NAME.methods")]
    folder: PathBuf,
    /// The program, and its arguments [default: as profiled]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the step.
///
/// # Errors
/// Nothing was selected, or the program cannot be run.
pub(super) fn run(args: &MeasureArgs) -> Result<ExitCode> {
    let profile = read_profile(&args.folder)?;
    profile.check_modules()?;
    let selection = read_selection(&args.folder)?.with_context(|| {
        format!("nothing is selected: run `hpmctl methods select {} --overhead 1%`", args.folder.display())
    })?;
    let (events, source) = events(args)?;
    let shim = launch::shim(args.shim.as_deref())?;
    let command = if args.command.is_empty() {
        profile.command.iter().map(OsString::from).collect()
    } else {
        args.command.clone()
    };
    let groups = groups(&events, usize::from(args.counters));
    let begun = BegunRuns::new(&args.folder)?;
    let mut runs = Runs { shim: &shim, command: &command, folder: begun.work(), number: 0, status: 0 };
    let mut config = Config {
        filter: Filter::Only(profile.places(&selection.functions)),
        clock: args.clock.into(),
        events: vec![],
        priced: vec![],
        encoded: encode(&[]),
        cycles: encode_clock(),
        counting: args.source.into(),
        limit: 4 << 30,
        tsc_per_ms: tsc_per_ms(),
    };
    // Rounds, so that what changes slowly meets every group alike.
    for _ in 0..args.repeat {
        for group in &groups {
            (config.events, config.encoded) = (group.clone(), encode(group));
            if let Some(end) = runs.run(Some(&config))? {
                return Ok(end);
            }
        }
        if args.baseline
            && let Some(end) = runs.run(None)?
        {
            return Ok(end);
        }
    }
    let status = runs.status;
    begun.finish()?;
    print(&format!(
        "{} functions measured in {} runs ({} groups of events, {} times each), {source}\n`hpmctl methods report {}` shows \
         what came of it",
        selection.functions.len(),
        groups.len() * usize::from(args.repeat),
        groups.len(),
        args.repeat,
        args.folder.display()
    ))?;
    Ok(ExitCode::from(status as u8))
}

/// Runs of the program, one after the other.
struct Runs<'a> {
    shim: &'a Path,
    command: &'a [OsString],
    /// Where they are written.
    folder: &'a Path,
    /// How many have come to their end.
    number: usize,
    /// The first exit status that tells of a failure.
    status: i32,
}

impl Runs<'_> {
    /// Runs the program with the shim, or without it for comparison. What hpmctl ends with when a signal ended the run.
    ///
    /// # Errors
    /// It cannot be run, or nothing was logged.
    fn run(&mut self, config: Option<&Config>) -> Result<Option<ExitCode>> {
        let folder = begin_run(self.folder, self.number)?;
        let ran = launch::run(self.command, config.map(|config| (self.shim, &*folder, config)))?;
        if ran.interrupted {
            warn(&[format!(
                "a signal ended run {}: these runs are dropped, and those of an earlier measurement stay",
                self.number + 1
            )]);
            // A program may end well when it is told to end, but nothing was measured.
            return Ok(Some(ExitCode::from((ran.status as u8).max(1))));
        }
        if self.number == 0 {
            check_logged(&folder)?;
        }
        let events = config.map_or_else(Vec::new, |config| config.events.clone());
        let (baseline, wall_ms, status) = (config.is_none(), ran.wall_ms, ran.status);
        write_run(&folder, &RunFile { baseline, wall_ms, status, events })?;
        self.number += 1;
        if self.status == 0 {
            self.status = status;
        }
        Ok(None)
    }
}

fn check_logged(folder: &Path) -> Result<()> {
    if logs(folder)?.is_empty() {
        bail!("none of the program's functions were called: is it the program that was profiled?");
    }
    Ok(())
}

/// What is counted, and by whom in words. Where nothing can count, only time is measured, unless events were named.
///
/// # Errors
/// Who counts does not have an event that was named.
fn events(args: &MeasureArgs) -> Result<(Vec<String>, String)> {
    if args.events.is_empty() {
        return Ok(by_default(args.source.into()));
    }
    let counting = args.source.into();
    Ok((known(&choose(wish(counting))?, counting, &args.events)?, "events as asked for".to_owned()))
}

/// The source that is wished for when the program's counters are taken so.
fn wish(counting: Counting) -> Wish {
    match counting {
        Counting::Auto => Wish::Best,
        Counting::Driver => Wish::Driver,
        Counting::Perf => Wish::Perf,
    }
}

/// The names of these events, after a look whether who counts has them: before runs are made in which nothing is counted.
///
/// # Errors
/// It has not.
fn known(chosen: &Chosen, counting: Counting, lists: &[String]) -> Result<Vec<String>> {
    match chosen {
        Chosen::Driver { .. } => match parse_events(lists) {
            // Then perf_event counts them.
            Err(_) if counting == Counting::Auto && perf::parse(lists).is_ok() => {}
            known => return Ok(known?.into_iter().map(|event| event.name).collect()),
        },
        Chosen::Perf(facts) => {
            let names = facts.parse(lists)?;
            if let Some(name) = names.iter().find(|name| name.id.is_hardware() && !facts.hardware) {
                bail!("`{}` is counted by hardware, but who counts here is {}", name.name, facts.line);
            }
        }
    }
    Ok(lists.iter().flat_map(|list| event::split_list(list)).map(str::to_owned).collect())
}

/// What is counted when no events were named.
fn by_default(counting: Counting) -> (Vec<String>, String) {
    let named = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    match choose(wish(counting)) {
        Ok(Chosen::Driver { line }) => {
            let events = events_at_hand(&BY_DRIVER).unwrap_or_default();
            (events.into_iter().map(|event| event.name).collect(), format!("by {line}"))
        }
        Ok(Chosen::Perf(facts)) if facts.hardware => (named(&BY_PERF), format!("by {}", facts.line)),
        Ok(Chosen::Perf(facts)) => (named(&BY_SOFTWARE), format!("by {}", facts.line)),
        Err(error) => (vec![], format!("in time only: {error:#}")),
    }
}

/// What a run counts when nothing is asked for.
pub(super) fn first_group() -> Vec<String> {
    let (events, _) = by_default(Counting::Auto);
    groups(&events, COUNTERS.into()).into_iter().next().unwrap_or_default()
}

/// Events in groups of so many. Instructions are in each, because everything is related to them, and cycles beside them.
pub(super) fn groups(events: &[String], counters: usize) -> Vec<Vec<String>> {
    let base: Vec<String> = events.iter().find(|name| is_instructions(name)).cloned().into_iter().collect();
    let others: Vec<String> = events.iter().filter(|name| !base.contains(name)).cloned().collect();
    let room = counters.saturating_sub(base.len()).max(1);
    if others.is_empty() {
        return vec![base];
    }
    others.chunks(room).map(|chunk| [base.as_slice(), chunk].concat()).collect()
}

/// Whether an event is that of retired instructions, with any privilege.
fn is_instructions(name: &str) -> bool {
    event::privilege(name).0 == "instructions"
}

#[cfg(test)]
mod tests {
    use libhpm::source::choice::PerfFacts;

    use super::*;

    #[test]
    fn events_that_nobody_counts_are_refused_before_the_runs() {
        let said = |hardware, name: &str| {
            let facts = PerfFacts { line: "the kernel".into(), why: "there is no module".into(), hardware };
            let names = known(&Chosen::Perf(facts), Counting::Auto, &[name.to_owned()]);
            names.map(|names| names.join(" ")).map_err(|error| error.to_string())
        };
        assert_eq!(said(true, "instructions,page-faults:u"), Ok("instructions page-faults:u".to_owned()));
        assert_eq!(said(false, "page-faults"), Ok("page-faults".to_owned()));
        assert!(said(true, "nosuch").unwrap_err().contains("nosuch"));
        assert_eq!(
            said(false, "page-faults,cycles:u"),
            Err("`cycles:u` is counted by hardware, but who counts here is the kernel".to_owned())
        );
    }
}
