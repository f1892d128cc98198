//! Running programs in the guest.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::processor::{Sampled, sampled};

/// A program that was built beside this one.
pub(super) fn built(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe().context("asking where this program is")?;
    let folder = here.parent().context("this program is in no folder")?;
    Ok(folder.join(name))
}

/// A C program that was compiled into the working folder ([`crate::lab::compile`]).
pub(super) fn c_program(name: &str) -> Result<PathBuf> {
    fs::canonicalize(name).with_context(|| format!("{name}: nobody has compiled it"))
}

/// `hpmctl` with arguments.
pub(super) fn hpmctl(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(built("hpmctl")?);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// Period of every recording of misses: a prime, so that no loop length divides it.
pub(crate) const PERIOD: u64 = 1009;
/// Period where each sample is an interrupt, a prime too: more often, the programs that read them would starve.
pub(crate) const INTERRUPT_PERIOD: u64 = 5003;

/// `hpmctl record` of what the processor samples ([`sampled`]) into `trace`, for a program to be added.
pub(super) fn record(trace: &str) -> Result<Command> {
    record_with(trace, &[])
}

/// As [`record`], with more options.
pub(super) fn record_with(trace: &str, options: &[&str]) -> Result<Command> {
    let Sampled { events, period, options: needed } = sampled()?;
    record_each(&events, period, trace, &[needed, options].concat())
}

/// As [`record_with`], of other events.
pub(super) fn record_of(events: &str, trace: &str, options: &[&str]) -> Result<Command> {
    record_each(events, PERIOD, trace, options)
}

/// As [`record_of`], with another period.
pub(super) fn record_each(events: &str, period: u64, trace: &str, options: &[&str]) -> Result<Command> {
    let mut command =
        hpmctl(&["record", "-e", events, "-c", &period.to_string(), "--no-randomise", "-o", trace])?;
    command.args(options).arg("--");
    Ok(command)
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
/// It cannot be started, or fails: the message holds what it printed on standard error.
pub(super) fn succeed(command: &mut Command) -> Result<Output> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("starting {shown}"))?;
    if !output.status.success() {
        bail!("{shown} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}

/// `hpmctl stat --json -o FILE` of a program, as the JSON it wrote.
///
/// # Errors
/// hpmctl failed, or wrote no JSON.
pub(super) fn stat(events: &str, file: &str, program: &[&str]) -> Result<Value> {
    succeed(&mut stat_command(events, file, program)?)?;
    left_in(file)
}

/// What a program left in this file as JSON.
///
/// # Errors
/// There is no such file, or it is no JSON.
pub(super) fn left_in(file: &str) -> Result<Value> {
    let text = std::fs::read(file).with_context(|| format!("nobody left {file}"))?;
    serde_json::from_slice(&text).with_context(|| format!("{file} is no JSON"))
}

/// The command of [`stat`].
pub(super) fn stat_command(events: &str, file: &str, program: &[&str]) -> Result<Command> {
    let mut command = hpmctl(&["stat", "--json", "-o", file, "-e", events, "--"])?;
    command.arg(built(program[0])?).args(&program[1..]);
    Ok(command)
}

/// Waits for a child for at most `limit`, then kills it and fails.
pub(super) fn wait_at_most(child: &mut Child, limit: Duration) -> Result<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("a program did not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The PID of a running process with this `comm`, waiting up to a minute for it to appear. Only what is younger than this process is looked
/// at: on a debug kernel the names of all threads of the kernel take longer to read than some programs live.
pub(super) fn pid_of(comm: &str) -> Result<i32> {
    let (own, start) = (std::process::id() as i32, Instant::now());
    while start.elapsed() < Duration::from_secs(60) {
        let processes = std::fs::read_dir("/proc")?.flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids.filter(|pid| *pid > own) {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.trim_end() == comm {
                return Ok(pid);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("no process named {comm} appeared within a minute")
}
