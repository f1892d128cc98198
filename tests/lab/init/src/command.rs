//! Running the one command, and being the init process meanwhile.

use crate::ports;
use anyhow::{Context, Result};
use lab_init::{Outcome, PORT_STDERR, PORT_STDOUT, RunSpec};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

/// Runs the command of `spec` to its end.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn run(spec: &RunSpec) -> Result<Outcome> {
    match spec.terminal {
        Some((rows, columns)) => run_on_terminal(spec, rows, columns),
        None => run_on_ports(spec),
    }
}

fn command(spec: &RunSpec, argv: &[String]) -> Command {
    let mut command = Command::new(&argv[0]);
    command.args(&argv[1..]).env_clear().envs(spec.env.iter().cloned()).current_dir(&spec.cwd);
    command
}

/// Output goes through pipes, not straight to the ports: a port can be opened once only, and programs do
/// reopen /dev/stderr.
fn run_on_ports(spec: &RunSpec) -> Result<Outcome> {
    let stdout = ports::open(PORT_STDOUT)?;
    let stderr = ports::open(PORT_STDERR)?;
    let mut child = command(spec, &spec.argv)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", spec.argv[0]))?;
    let pumps = [
        child.stdout.take().map(|from| pump(from, stdout)),
        child.stderr.take().map(|from| pump(from, stderr)),
    ];
    let outcome = wait_for(&child)?;
    // Whoever is left would keep the pipes open for ever.
    end_the_rest();
    for pump in pumps.into_iter().flatten() {
        // A panic in a pump was printed to the console by the panic itself.
        drop(pump.join());
    }
    Ok(outcome)
}

fn pump(from: impl Read + Send + 'static, to: File) -> JoinHandle<()> {
    thread::spawn(move || {
        if let Err(error) = copy(from, to) {
            eprintln!("lab-init: output lost: {error}");
        }
    })
}

/// Not `std::io::copy`: that would splice, which fails on virtio ports.
fn copy(mut from: impl Read, mut to: File) -> std::io::Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length])?,
        }
    }
}

/// setsid makes hvc0 the controlling terminal (job control needs one) and stty tells it the size of the
/// host's window; both are programs every Debian has.
fn run_on_terminal(spec: &RunSpec, rows: u16, columns: u16) -> Result<Outcome> {
    let open = || OpenOptions::new().read(true).write(true).open("/dev/hvc0").context("opening /dev/hvc0");
    let size = [
        String::from("stty"),
        String::from("rows"),
        rows.to_string(),
        String::from("columns"),
        columns.to_string(),
    ];
    let mut stty = command(spec, &size).stdin(open()?).spawn().context("starting stty")?;
    stty.wait().context("waiting for stty")?;
    let argv: Vec<String> =
        ["setsid", "--ctty"].into_iter().map(String::from).chain(spec.argv.iter().cloned()).collect();
    let child = command(spec, &argv)
        .stdin(open()?)
        .stdout(open()?)
        .stderr(open()?)
        .spawn()
        .with_context(|| format!("starting {} under setsid", spec.argv[0]))?;
    let outcome = wait_for(&child)?;
    end_the_rest();
    Ok(outcome)
}

/// Waits for `child` while reaping the orphans that PID 1 inherits.
fn wait_for(child: &Child) -> Result<Outcome> {
    let child = Pid::from_raw(i32::try_from(child.id()).context("the process id does not fit")?);
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, status)) if pid == child => return Ok(Outcome::Exited(status)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                return Ok(Outcome::Signalled(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for the command"),
        }
    }
}

fn end_the_rest() {
    // -1 is every process except PID 1 itself (kill(2)); ESRCH says that there is none.
    match kill(Pid::from_raw(-1), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => eprintln!("lab-init: killing what is left: {error}"),
    }
    while wait().is_ok() {}
}
