//! Counts against the truth, exactly.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use vpmu::Profile;
use vpmu::event::Event;
use vpmu::truth::Report;

use crate::check::Tally;
use crate::guest::counting::{BESIDE, SYSCALLS};
use crate::guest::processor::counts_accesses;
use crate::lab::Boot;

/// What `loops` does outside its window, so that the truth lacks it (tests/guest/src/bin/loops.rs): instructions,
/// branches, loads, stores.
const OUTSIDE_WINDOW: [u64; 4] = [12, 1, 1, 0];

/// What each argument adds: instructions, branches, loads, stores.
const PER_ARGUMENT: [u64; 4] = [11_500_000, 4_000_000, 1_000_000, 1_000_000];

/// The four counts of each case equal the truth, and the arithmetic of the source.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    let cases = [
        ("loops1", "pinned to one CPU"),
        ("loops2", "free to run on every CPU"),
        ("loops3", "with others competing"),
        (BESIDE[0], "beside another session"),
        (BESIDE[1], "beside another session, the other"),
    ];
    for (label, how) in cases {
        tally.run(&format!("counting: exact {how}"), || exact(boot, label));
    }
    tally.run("counting: each iteration counts what the source says", || arithmetic(boot, "loops2", 1));
    if boot.machine.cpus > 1 {
        migrating(boot, tally);
    }
    tally.run("counting: the kernel's instructions are told from the program's", || kernels(boot));
}

/// In user mode exactly the program's instructions are counted; in the kernel those that the truth has while the program's address space was
/// loaded, but for the program's beginning and end, and the driver's own at interrupts and switches, which are not counted.
fn kernels(boot: &Boot) -> Result<String> {
    /// 68 in each turn, and 19 around the loop.
    const USER: u64 = 68 * 100_000 + 19;
    let stat = boot.report.facts.get(SYSCALLS).context("the guest left no such counts")?;
    let count = |place: usize| stat["events"][place]["count"].as_u64().context("no count");
    let (user, kernel) = (count(0)?, count(1)?);
    ensure!(user == USER, "{user} instructions in user mode, not {USER}");
    let report: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let window = report.windows.iter().find(|window| window.tag == SYSCALLS);
    let truth = window.context("the truth has no such window")?.counts.of(Event::Instruction).kernel;
    ensure!(truth > USER && kernel.abs_diff(truth) * 50 <= truth, "{kernel} in the kernel, truly {truth}");
    Ok(format!("{user} in user mode, {kernel} in the kernel, of which {truth} in the loop's window"))
}

/// The same of a process that is moved from CPU to CPU.
fn migrating(boot: &Boot, tally: &mut Tally) {
    tally.run("counting: exact migrating", || exact(boot, "loops9"));
    tally.run("counting: each iteration counts what the source says, migrating", || {
        arithmetic(boot, "loops9", 8)
    });
    tally.run("counting: the process did migrate", || {
        let moves = boot.report.facts.get("migrations").and_then(Value::as_u64).unwrap_or(0);
        ensure!(moves >= 10, "it was moved only {moves} times");
        Ok(format!("{moves} times"))
    });
}

/// hpmctl's counts for this label equal the truth.
fn exact(boot: &Boot, label: &str) -> Result<String> {
    let counted = stat_counts(boot, label)?;
    let truth = as_counted(boot.machine.profile, true_counts(&boot.truth, label)?);
    ensure!(counted == truth, "hpmctl counted {counted:?}, the truth is {truth:?}");
    Ok(format!("{counted:?}"))
}

/// Instructions, branches, loads and stores as this processor has events for: with loads and stores in one place, or in two.
pub(super) fn as_counted(profile: &Profile, counts: [u64; 4]) -> [u64; 4] {
    match counts {
        [instructions, branches, loads, stores] if counts_accesses(profile) => {
            [instructions, branches, loads + stores, 0]
        }
        counts => counts,
    }
}

/// The counts of `hpmctl stat --json`, as [`as_counted`] has them. Loads and stores may come once for each type of core.
pub(crate) fn stat_counts(boot: &Boot, label: &str) -> Result<[u64; 4]> {
    let stat = boot.report.facts.get(label).with_context(|| format!("the guest left no {label}"))?;
    counts_of(stat)
}

/// The same of one that `hpmctl stat --json` wrote.
pub(crate) fn counts_of(stat: &Value) -> Result<[u64; 4]> {
    let events = stat["events"].as_array().with_context(|| format!("no events in {stat}"))?;
    let counts: Option<Vec<u64>> = events.iter().map(|event| event["count"].as_u64()).collect();
    match counts.as_deref() {
        Some(&[instructions, branches, accesses]) => Ok([instructions, branches, accesses, 0]),
        Some(&[instructions, branches, ref memory @ ..]) if [2, 4, 6].contains(&memory.len()) => {
            let (loads, stores) = memory.split_at(memory.len() / 2);
            Ok([instructions, branches, loads.iter().sum(), stores.iter().sum()])
        }
        _ => bail!("neither three counts, nor four, six or eight: {stat}"),
    }
}

/// Instructions, branches, loads and stores in user mode of the whole run of `loops` that had this window.
pub(crate) fn true_counts(truth: &Value, tag: &str) -> Result<[u64; 4]> {
    let report: Report = serde_json::from_value(truth.clone()).context("the truth")?;
    let window = report.windows.iter().find(|window| window.tag == tag);
    let counts = &window.with_context(|| format!("the truth has no window {tag}"))?.counts;
    let events = [Event::Instruction, Event::Branch, Event::Load, Event::Store];
    let mut all = events.map(|event| counts.of(event).user);
    all.iter_mut().zip(OUTSIDE_WINDOW).for_each(|(count, outside)| *count += outside);
    Ok(all)
}

/// The difference between a run with so many arguments and one without is what the source says, exactly.
fn arithmetic(boot: &Boot, label: &str, arguments: u64) -> Result<String> {
    let base = stat_counts(boot, "loops1")?;
    let longer = stat_counts(boot, label)?;
    let each = as_counted(boot.machine.profile, PER_ARGUMENT);
    for i in 0..4 {
        let expected = base[i] + arguments * each[i];
        ensure!(longer[i] == expected, "{label}: count {i} is {}, not {expected}", longer[i]);
    }
    Ok(String::new())
}
