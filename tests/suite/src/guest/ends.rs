//! How quanta end: whether the driver tells one reason from another, and where the thread was.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use hpm_abi::QuantumEnd;
use libhpm::trace::{MapRow, QuantumRow, TraceReader};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::GuestReport;
use super::programs::{hpmctl, succeed};

const SLEEPS: usize = 50;
/// Some hundred million instructions, which are many of the longest quanta.
const WORK: &str = "$i = 0; $i++ while $i < 3_000_000";
/// Loads between two samples: several segments are filled.
const PERIOD: &str = "20011";

/// Three programs of one thread whose stays end for another reason each.
pub(super) fn run(report: &mut GuestReport) {
    report.check("stays of a thread that sleeps end yielded", sleeper);
    report.check("stays of a thread that has a competitor end pre-empted", competitor);
    report.check("stays of a thread that is alone end by the timer and by full segments", alone);
}

fn sleeper() -> Result<String> {
    let ends = Ends::of("sleeper.hpm", &format!("select undef, undef, undef, 0.01 for 1..{SLEEPS}"))?;
    ensure!(ends.count(QuantumEnd::Yielded) >= SLEEPS, "it slept {SLEEPS} times: {ends:?}");
    ensure!(ends.count(QuantumEnd::Preempted) < SLEEPS, "hardly anybody else ran: {ends:?}");
    ends.told()
}

fn competitor() -> Result<String> {
    let mut other =
        Command::new("taskset").args(["-c", "0", "perl", "-e", "1 while 1"]).stdin(Stdio::null()).spawn()?;
    let ends = Ends::of("competitor.hpm", WORK);
    kill(Pid::from_raw(i32::try_from(other.id())?), Signal::SIGKILL)?;
    other.wait()?;
    let ends = ends?;
    let (preempted, yielded) = (ends.count(QuantumEnd::Preempted), ends.count(QuantumEnd::Yielded));
    ensure!(preempted >= 10 && yielded * 4 < preempted, "it shared its CPU all the time: {ends:?}");
    ends.told()
}

fn alone() -> Result<String> {
    let ends = Ends::of("alone.hpm", WORK)?;
    let (timer, pmi) = (ends.count(QuantumEnd::Timer), ends.count(QuantumEnd::Pmi));
    ensure!(timer >= 10 && ends.count(QuantumEnd::Yielded) < timer, "it ran without a pause: {ends:?}");
    ensure!(pmi >= 3, "it filled segments: {ends:?}");
    ends.told()
}

/// How often the quanta of a program ended for which reason.
#[derive(Debug)]
struct Ends(BTreeMap<u16, usize>);

impl Ends {
    /// Of what this Perl does on CPU 0, in a trace of this name. The last quantum is the exit's.
    fn of(name: &str, script: &str) -> Result<Self> {
        let options = ["record", "-e", "load:u", "-c", PERIOD, "--no-randomise", "-f", "-o", name, "--"];
        succeed(hpmctl(&options)?.args(["taskset", "-c", "0", "perl", "-e", script]))?;
        let reader = TraceReader::open(name)?;
        let quanta: Vec<QuantumRow> = reader.rows().collect();
        let last = quanta.iter().max_by_key(|quantum| quantum.end_tsc).context("there are no quanta")?;
        ensure!(last.end == QuantumEnd::Exit as u8, "the last quantum did not end by the exit: {last:?}");
        check_places(&reader, &quanta)?;
        let mut ends = BTreeMap::new();
        quanta.iter().for_each(|quantum| *ends.entry(u16::from(quantum.end)).or_default() += 1);
        ensure!(ends.get(&(QuantumEnd::Exit as u16)) == Some(&1), "one thread exits once: {ends:?}");
        Ok(Self(ends))
    }

    fn count(&self, end: QuantumEnd) -> usize {
        self.0.get(&(end as u16)).copied().unwrap_or(0)
    }

    fn told(&self) -> Result<String> {
        let told = |(&end, count): (&u16, &usize)| {
            let end = QuantumEnd::from_number(end).with_context(|| format!("no quantum can end by {end}"))?;
            Ok(format!("{count} {end:?}"))
        };
        Ok(self.0.iter().map(told).collect::<Result<Vec<_>>>()?.join(", "))
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
