//! Counting loops of known length: pinned, migrating, and with others competing.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};
use vpmu::Profile;

use super::GuestReport;
use super::processor::{counted_events, cpus, profile};
use super::programs::{built, hpmctl, left_in, pid_of, stat, stat_command, succeed, wait_at_most};

/// Runs every case; each leaves a fact named by the label of its program. With one CPU nothing can migrate. User mode only is counted,
/// since only there is the program's length its own.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let events = counted_events()?;
    let cpus: Vec<usize> = (0..cpus()?).collect();
    pin(Pid::this(), &[0])?;
    report.fact("loops1", stat(events, "one-cpu.json", &["loops"])?);
    pin(Pid::this(), &cpus)?;
    report.fact("loops2", stat(events, "every-cpu.json", &["loops", "x"])?);
    if cpus.len() > 1 {
        let (migrated, counts) = migrating(events, cpus.len())?;
        report.fact("loops9", counts);
        report.fact("migrations", json!(migrated));
    }
    let competitors = competitors()?;
    report.fact("loops3", stat(events, "competing.json", &["loops", "x", "x"])?);
    stop(competitors)?;
    let (first, second) = side_by_side(events)?;
    for (label, counts) in BESIDE.into_iter().zip([first, second]) {
        report.fact(label, counts);
    }
    report.fact(SYSCALLS, stat("instructions:u,instructions:k", "syscalls.json", &[SYSCALLS])?);
    let profile = profile()?;
    if profile.hybrid.is_none() && profile.fixed_events.iter().any(|spec| spec.name == "TOPDOWN.SLOTS") {
        report.check("issue slots are counted by a general counter and by the fixed one", || {
            slots(profile.microarchitecture.retire_width.into())
        });
    }
    let extension = profile.perfmon().and_then(|pmu| pmu.extended.perfmon_extension);
    if extension.is_some_and(|extension| extension.equal) {
        report.check("cycles are counted by how many instructions retired in them", || exact_cycles(profile));
    }
    for name in GROUPS {
        report.check(&format!("what answers a question together is counted: {name}"), || group(name));
    }
    Ok(())
}

/// Windows of the programs of two sessions: the character behind the name is so many behind the digit 0.
pub(crate) const BESIDE: [&str; 2] = ["loopsO", "loopsP"];
/// A program that is in the kernel most of its time; also its window.
pub(crate) const SYSCALLS: &str = "syscalls";
/// Of `hpmctl stat --group`.
const GROUPS: [&str; 5] = ["branches", "loads", "stores", "tlb", "code"];

/// Each cycle has as many issue slots as the pipeline is wide, for the event that general counters have (`slots`), and for TOPDOWN.SLOTS,
/// which only fixed counter 3 has (SDM Vol. 3B, table 20-2).
fn slots(width: u64) -> Result<String> {
    let counted = stat("cycles:u,slots:u,cpu/event=0x00,umask=0x04/u", "slots.json", &["loops"])?;
    let count = |place: usize| counted["events"][place]["count"].as_u64().context("no count");
    let (cycles, general, fixed) = (count(0)?, count(1)?, count(2)?);
    ensure!(cycles > 1_000_000 && general == cycles * width, "{general} slots of {cycles} cycles");
    ensure!(fixed == general, "{fixed} slots by the fixed counter, {general} by the general one");
    Ok(format!("{general} slots of {cycles} cycles"))
}

/// Version 6 compares the counter mask for equality, too (EQ): each cycle has some number of instructions, and is counted by that alone.
/// Of a hybrid part on the first CPU, a performance core.
fn exact_cycles(profile: &Profile) -> Result<String> {
    let cores = if profile.hybrid.is_some() { "cpu_core" } else { "cpu" };
    let with = |more: &str| format!("{cores}/event=0xc0,{more}/u");
    let terms = ["cmask=1,inv".to_owned(), "cmask=7".to_owned()];
    let terms = terms.into_iter().chain((1..7).map(|number| format!("cmask={number},eq")));
    let events: Vec<String> = terms.map(|more| with(&more)).collect();
    pin(Pid::this(), &[0])?;
    let counted = stat(&format!("cycles:u,instructions:u,{}", events.join(",")), "exactly.json", &["loops"]);
    pin(Pid::this(), &(0..cpus()?).collect::<Vec<_>>())?;
    let counted = counted?;
    let count = |place: usize| counted["events"][place]["count"].as_u64().context("no count");
    let (cycles, instructions) = (count(0)?, count(1)?);
    let idle_or_full = count(2)? + count(3)?;
    let (mut seen, mut retired) = (idle_or_full, 7 * count(3)?);
    for number in 1..7 {
        let exactly = count(3 + number)?;
        seen += exactly;
        retired += number as u64 * exactly;
    }
    ensure!(cycles > 1_000_000 && seen.abs_diff(cycles) <= 1000, "{seen} of {cycles} cycles: {counted}");
    ensure!(
        retired <= instructions && instructions - retired <= count(3)?,
        "{retired} of {instructions}: {counted}"
    );
    Ok(format!("{seen} of {cycles} cycles with at least {retired} of {instructions} instructions"))
}

/// As many of the group's events as there are counters for are counted, and each of the others is told.
fn group(name: &str) -> Result<String> {
    let file = "group.json";
    let words = ["stat", "--json", "-o", file, "--group", name, "--"];
    // A short program without libraries: the model follows its caches for these events, in the kernel too.
    succeed(hpmctl(&words)?.arg(built("registers")?))?;
    let counted = left_in(file)?;
    let events = counted["events"].as_array().context("no events")?;
    let instructions = events.iter().find(|event| event["name"] == "instructions");
    let instructions = instructions.and_then(|event| event["count"].as_u64()).unwrap_or(0);
    ensure!(instructions > 10_000, "{instructions} instructions: {counted}");
    // With the least that any of them has, and a name that stands for an event on each of several types of core.
    let told = counted["warnings"].to_string();
    ensure!(events.len() >= 4 || told.contains("not counted") || told.contains("has no event"), "{counted}");
    let names: Vec<&str> = events.iter().filter_map(|event| event["name"].as_str()).collect();
    Ok(format!("{}; {told}", names.join(", ")))
}

/// Lets a process run on these CPUs only.
pub(super) fn pin(pid: Pid, cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)?;
    }
    sched_setaffinity(pid, &set).with_context(|| format!("moving process {pid} to CPUs {cpus:?}"))
}

/// Counts a loop that is moved to the next CPU all the time; also how often it was.
fn migrating(events: &str, cpus: usize) -> Result<(usize, Value)> {
    let file = "migrating.json";
    let command = stat_command(events, file, &["loops", "x", "x", "x", "x", "x", "x", "x", "x"])?;
    let places: Vec<usize> = (0..cpus).collect();
    let moves = moved(command, "loops", &places, Duration::from_millis(2))?;
    Ok((moves, left_in(file)?))
}

/// Runs hpmctl, while the program of this name that it starts is moved from one of these CPUs to the next, in turn; says how often it was.
pub(super) fn moved(mut hpmctl: Command, name: &str, places: &[usize], stay: Duration) -> Result<usize> {
    let mut hpmctl = hpmctl.stdin(Stdio::null()).spawn()?;
    let program = Pid::from_raw(pid_of(name)?);
    let mut moves = 0;
    // Ends when the process has gone.
    while pin(program, &[places[moves % places.len()]]).is_ok() {
        moves += 1;
        std::thread::sleep(stay);
    }
    let status = wait_at_most(&mut hpmctl, Duration::from_secs(600))?;
    ensure!(status.success(), "hpmctl stat ended with {status}");
    Ok(moves)
}

/// Starts two busy programs on each CPU that nobody measures.
fn competitors() -> Result<Vec<Child>> {
    let mut children = Vec::new();
    for _ in 0..2 {
        children.push(Command::new(built("threads")?).args(["2", "1000000"]).stdout(Stdio::null()).spawn()?);
    }
    Ok(children)
}

/// Ends programs.
pub(super) fn stop(children: Vec<Child>) -> Result<()> {
    for mut child in children {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Two sessions at the same time, whose programs take one CPU from each other.
fn side_by_side(events: &str) -> Result<(Value, Value)> {
    let command = |file, arguments| {
        let mut command = stat_command(events, file, &["loops"])?;
        command.args(std::iter::repeat_n("x", arguments));
        Ok::<_, anyhow::Error>(command)
    };
    pin(Pid::this(), &[0])?;
    let (mut first, mut second) = (command("first.json", 30)?.spawn()?, command("second.json", 31)?.spawn()?);
    pin(Pid::this(), &(0..cpus()?).collect::<Vec<_>>())?;
    for child in [&mut first, &mut second] {
        let status = wait_at_most(child, Duration::from_secs(600))?;
        ensure!(status.success(), "hpmctl stat ended with {status}");
    }
    Ok((left_in("first.json")?, left_in("second.json")?))
}
