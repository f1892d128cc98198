//! Two logical processors of one core, which share its PMU: a program is measured on each beside another one that is not, and one
//! session runs at a time.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::GuestReport;
use super::bad_input::refused;
use super::counting::{pin, stop};
use super::processor::cpus;
use super::programs::{built, hpmctl, pid_of, stat, stat_command, wait_at_most};

/// In user mode, where the program's length is its own.
const EVENTS: &str = "instructions:u,branch:u";

/// Leaves the counts of `loops` with one argument on logical processor 0, with two on 1, with three on both, while a program that is
/// not measured runs on the other one, or on both.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    ensure!(cpus()? == 2, "this needs the two logical processors of one core, and there are {}", cpus()?);
    for cpu in [0, 1] {
        let neighbour = busy(&[1 - cpu])?;
        pin(Pid::this(), &[cpu])?;
        let arguments = vec!["x"; cpu];
        let counts = stat(EVENTS, "one.json", &[&["loops"][..], &arguments].concat())?;
        report.fact(&format!("loops{}", 1 + cpu), counts);
        stop(vec![neighbour])?;
    }
    pin(Pid::this(), &[0, 1])?;
    let neighbour = busy(&[0, 1])?;
    report.fact("loops3", stat(EVENTS, "both.json", &["loops", "x", "x"])?);
    stop(vec![neighbour])?;
    report.check("a second session is refused in one sentence, and the first goes on", second_session);
    report.check("the next session runs when the first has ended", || {
        stat(EVENTS, "next.json", &["loops"])?;
        Ok(String::new())
    });
    Ok(())
}

/// A program that runs until it is stopped, on these logical processors, with two threads.
fn busy(cpus: &[usize]) -> Result<Child> {
    let child = Command::new(built("threads")?).args(["2", "1000000"]).stdout(Stdio::null()).spawn()?;
    pin(Pid::from_raw(child.id() as i32), cpus)?;
    Ok(child)
}

fn second_session() -> Result<String> {
    let program = ["threads", "2", "1000000"];
    let mut first = stat_command(EVENTS, "first.json", &program)?.stdout(Stdio::null()).spawn()?;
    let target = Pid::from_raw(pid_of(program[0])?);
    let said = refused(hpmctl(&["stat", "--source", "driver", "-e", EVENTS, "--", "true"])?, "session")?;
    let still = first.try_wait()?.is_none();
    kill(target, Signal::SIGKILL)?;
    wait_at_most(&mut first, Duration::from_secs(300))?;
    ensure!(still, "the first session had ended before the second was asked for");
    let counts: Value = serde_json::from_slice(&std::fs::read("first.json")?)?;
    let counted = counts["events"][0]["count"].as_u64();
    ensure!(
        counted.is_some_and(|count| count > 0),
        "the first session was disturbed: it counted {counted:?}"
    );
    Ok(said)
}
