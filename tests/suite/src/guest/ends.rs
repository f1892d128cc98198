//! How quanta end: whether the driver tells one reason from another, and where the thread was.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use hpm_abi::QuantumEnd;
use libhpm::trace::{MapRow, QuantumRow, SampleRow, TraceReader};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::GuestReport;
use super::processor::profile;
use super::programs::{hpmctl, succeed};

const SLEEPS: usize = 50;
/// Some hundred million instructions, which are many of the longest quanta.
const WORK: &str = "$i = 0; $i++ while $i < 1_500_000";
/// Loads between two samples.
const PERIOD: &str = "20011";
/// With which several segments are filled.
const SHORT_PERIOD: &str = "1427";
/// Records that one PMI is for at least: a large segment holds some 4000, a small one 300. Of architectural PEBS it is as large as a power of
/// two can be (IA32_PEBS_BASE.SIZE), and its records are larger: some 1800.
fn records_per_pmi() -> Result<usize> {
    let architectural = profile()?.perfmon().is_some_and(|pmu| pmu.extended.architectural_pebs().is_some());
    Ok(if architectural { 1500 } else { 3000 })
}

/// Three programs of one thread whose stays end for another reason each.
pub(super) fn run(report: &mut GuestReport) {
    report.check("stays of a thread that sleeps end yielded", sleeper);
    report.check("stays of a thread that has a competitor end pre-empted", competitor);
    report.check("stays of a thread that is alone end by the timer and by full segments", alone);
}

fn sleeper() -> Result<String> {
    let ends = Ends::of("sleeper.hpm", PERIOD, &format!("select undef, undef, undef, 0.01 for 1..{SLEEPS}"))?;
    ensure!(ends.count(QuantumEnd::Yielded) >= SLEEPS, "it slept {SLEEPS} times: {ends:?}");
    ends.as_the_kernel_counts()?;
    ends.told()
}

fn competitor() -> Result<String> {
    let mut other =
        Command::new("taskset").args(["-c", "0", "perl", "-e", "1 while 1"]).stdin(Stdio::null()).spawn()?;
    let ends = Ends::of("competitor.hpm", PERIOD, WORK);
    kill(Pid::from_raw(i32::try_from(other.id())?), Signal::SIGKILL)?;
    other.wait()?;
    let ends = ends?;
    let preempted = ends.count(QuantumEnd::Preempted);
    // Perl waits for its files before the script's work.
    let yielded = ends.count(QuantumEnd::Yielded).saturating_sub(ends.before[0]);
    ensure!(preempted >= 10 && yielded * 4 < preempted, "it shared its CPU all the time: {ends:?}");
    ends.as_the_kernel_counts()?;
    ends.told()
}

fn alone() -> Result<String> {
    let ends = Ends::of("alone.hpm", SHORT_PERIOD, WORK)?;
    let (timer, pmi) = (ends.count(QuantumEnd::Timer), ends.count(QuantumEnd::Pmi));
    ensure!(timer >= 10 && ends.count(QuantumEnd::Yielded) < timer, "it ran without a pause: {ends:?}");
    ensure!(pmi >= 2, "it filled segments: {ends:?}");
    ensure!(ends.samples / pmi >= records_per_pmi()?, "its segments were small: {ends:?}");
    ends.told()
}

/// What a program's quanta were like.
#[derive(Debug)]
struct Ends {
    /// How often they ended for which reason.
    reasons: BTreeMap<u16, usize>,
    /// How many samples they have.
    samples: usize,
    /// The kernel's own count of the switches at which the thread gave up its CPU, and of those at which it was taken from it, before the
    /// script's work.
    before: [usize; 2],
    /// The same after it.
    after: [usize; 2],
}

/// Ends a script at once (exit_group(2)): Perl tidies up before it exits, in which a slow machine takes the CPU from it dozens of times.
const END: &str = "syscall 231, 0";

/// With what a script tells the kernel's counts of its switches (proc_pid_status(5)).
const TELL: &str =
    r#"open STATUS, "/proc/self/status"; print map { /ctxt_switches:\s*(\d+)/ ? "$1 " : "" } <STATUS>"#;

impl Ends {
    /// Of what this Perl does on CPU 0, sampled in this period, in a trace of this name. The last quantum is the exit's.
    fn of(name: &str, period: &str, script: &str) -> Result<Self> {
        let options = ["record", "-e", "load:u", "-c", period, "--no-randomise", "-f", "-o", name, "--"];
        let script = format!("$| = 1; {TELL}; {script}; {TELL}; {END}");
        let program = ["taskset", "-c", "0", "perl", "-e", &script];
        let output = succeed(hpmctl(&options)?.args(program))?;
        let told = String::from_utf8(output.stdout)?;
        let switches = told.split_whitespace().map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let &[yields, preemptions, all_yields, all_preemptions] = &switches[..] else {
            bail!("the script told {told:?}")
        };
        let reader = TraceReader::open(name)?;
        let quanta: Vec<QuantumRow> = reader.rows().collect();
        let last = quanta.iter().max_by_key(|quantum| quantum.end_tsc).context("there are no quanta")?;
        ensure!(last.end == QuantumEnd::Exit as u8, "the last quantum did not end by the exit: {last:?}");
        check_places(&reader, &quanta)?;
        let mut reasons = BTreeMap::new();
        quanta.iter().for_each(|quantum| *reasons.entry(u16::from(quantum.end)).or_default() += 1);
        ensure!(reasons.get(&(QuantumEnd::Exit as u16)) == Some(&1), "one thread exits once: {reasons:?}");
        let samples = reader.rows::<SampleRow>().count();
        Ok(Self { reasons, samples, before: [yields, preemptions], after: [all_yields, all_preemptions] })
    }

    fn count(&self, end: QuantumEnd) -> usize {
        self.reasons.get(&(end as u16)).copied().unwrap_or(0)
    }

    /// As many stays ended for each reason as the kernel says: at least those of the script's work, and at most all, for some are missing in
    /// the trace that were before the program was executed, and in the kernel's answer the few between it and the exit.
    fn as_the_kernel_counts(&self) -> Result<()> {
        for (place, end) in [QuantumEnd::Yielded, QuantumEnd::Preempted].into_iter().enumerate() {
            let (own, before, after) = (self.count(end), self.before[place], self.after[place]);
            let right = after - before..=after + 10 + after / 20;
            ensure!(right.contains(&own), "{own} stays ended so, by the kernel {right:?}: {self:?}");
        }
        Ok(())
    }

    fn told(&self) -> Result<String> {
        let told = |(&end, count): (&u16, &usize)| {
            let end = QuantumEnd::from_number(end).with_context(|| format!("no quantum can end by {end}"))?;
            Ok(format!("{count} {end:?}"))
        };
        let reasons = self.reasons.iter().map(told).collect::<Result<Vec<_>>>()?.join(", ");
        Ok(format!("{} samples; {reasons}", self.samples))
    }
}

/// Quanta know their last instruction, which is in code that their process had mapped. The side band does not tell of the one page that
/// the kernel maps itself, in which hardly a quantum ends.
fn check_places(reader: &TraceReader, quanta: &[QuantumRow]) -> Result<()> {
    let maps: Vec<MapRow> = reader.rows().collect();
    let (mut known, mut elsewhere) = (0, Vec::new());
    for quantum in quanta.iter().filter(|quantum| quantum.end != QuantumEnd::Flush as u8) {
        let Some(ip) = quantum.last_ip else { continue };
        let is_code =
            |map: &MapRow| map.pid == quantum.pid && map.executable && (map.start..map.end).contains(&ip);
        known += 1;
        if !maps.iter().any(is_code) {
            elsewhere.push(format!("{ip:#x}"));
        }
    }
    ensure!(known * 2 > quanta.len(), "only {known} of {} quanta know their last instruction", quanta.len());
    ensure!(
        elsewhere.len() * 50 < known,
        "of {known} quanta some ended where no code is: {}",
        elsewhere.join(", ")
    );
    Ok(())
}
