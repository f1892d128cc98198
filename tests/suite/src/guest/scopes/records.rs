//! Recordings of each scope: the samples of a program are as many as its loads make.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Result, ensure};
use libhpm::trace::{QuantumRow, SampleRow, ThreadRow, TraceReader};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{LIMIT, ends_well, groups, settled, signal, stopped_loops};
use crate::guest::GuestReport;
use crate::guest::counting::moved;
use crate::guest::processor::{LOADS, every_cpu};
use crate::guest::programs::{built, hpmctl, wait_at_most};
use crate::guest::torture::totals;

/// Loads per sample: a prime, so that no loop length divides it.
pub(crate) const PERIOD: u64 = 1009;
/// The windows of the programs that are recorded, and by what.
pub(crate) const RECORDED: [(&str, &str); 3] =
    [("loops6", "a process"), ("loops7", "a control group"), ("loopsF", "the whole system")];

/// Leaves the samples of each scope's program, and what was lost of it.
pub(super) fn run(report: &mut GuestReport) {
    let cases: [fn(&str) -> Result<()>; 3] = [process, group, system];
    for ((window, scope), record) in RECORDED.into_iter().zip(cases) {
        let trace = format!("{window}.hpm");
        let mut seen = Value::Null;
        report.check(&format!("{scope} is recorded"), || {
            record(&trace)?;
            seen = samples(&trace)?;
            Ok(seen.to_string())
        });
        report.fact(&format!("recorded.{window}"), seen);
    }
}

/// `hpmctl record` of loads into this trace, of the scope that these words name.
pub(in crate::guest) fn record(trace: &str, words: &[&str]) -> Result<Command> {
    let period = PERIOD.to_string();
    hpmctl(&[&["record", "-e", LOADS, "-c", &period, "--no-randomise", "-o", trace], words].concat())
}

fn process(trace: &str) -> Result<()> {
    let target = stopped_loops(5, 0)?;
    let recorder = record(trace, &["-p", &target.id().to_string()])?.spawn()?;
    continued(target, recorder, false)
}

fn group(trace: &str) -> Result<()> {
    groups::mount_cgroups()?;
    let group = "/sys/fs/cgroup/recorded";
    fs::create_dir_all(group)?;
    let target = stopped_loops(6, 0)?;
    groups::enter(&target, group)?;
    let recorder = record(trace, &["--cgroup", group])?.spawn()?;
    continued(target, recorder, true)
}

/// Lets the target run to its end while it is recorded; the recorder is told to end, or ends with it.
fn continued(mut target: Child, mut recorder: Child, tell: bool) -> Result<()> {
    settled(&recorder)?;
    signal(&target, Signal::SIGCONT)?;
    wait_at_most(&mut target, LIMIT)?;
    if tell {
        signal(&recorder, Signal::SIGINT)?;
    }
    ends_well(&mut recorder)
}

/// On every CPU, while the program is moved between them.
fn system(trace: &str) -> Result<()> {
    let mut command = record(trace, &["-a", "--"])?;
    command.arg(built("loops")?).args(["x"; 21]);
    let moves = moved(command, "loops", &every_cpu()?, Duration::from_millis(20))?;
    ensure!(moves > 3, "the program was moved {moves} times");
    Ok(())
}

/// How many samples are of the program, and what was lost of it. In a session of the whole system what hpmctl itself does is sampled, too.
pub(in crate::guest) fn samples(trace: &str) -> Result<Value> {
    let reader = TraceReader::open(trace)?;
    let named = reader.rows::<ThreadRow>().filter(|row| row.name == "loops");
    let tids: BTreeSet<u32> = named.map(|row| row.tid).collect();
    ensure!(tids.len() == 1, "the trace has {} programs of that name", tids.len());
    let samples = reader.rows::<SampleRow>().filter(|row| tids.contains(&row.tid)).count();
    let quanta = reader.rows::<QuantumRow>().filter(|row| tids.contains(&row.tid));
    let lost: u64 = quanta.map(|row| row.records_lost).sum();
    Ok(json!({ "samples": samples, "lost": lost, "quanta_lost": totals(trace)?["quanta_lost"] }))
}
