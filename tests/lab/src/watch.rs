//! Running QEMU: its output, its end, and making sure that it does end.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Write, pipe};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How QEMU ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself: the guest reset the machine.
    Exited,
    /// With an error.
    Failed(ExitStatus),
    /// Killed after the time-out.
    TimedOut,
    /// Killed because the lab got this signal, or (SIGPIPE) nobody reads its output any more.
    Interrupted(i32),
}

/// How often the end of QEMU is looked for.
const POLL: Duration = Duration::from_millis(5);

/// How long QEMU may take to write its plugin's results after it was asked to end.
const GRACE: Duration = Duration::from_secs(3);

/// Runs QEMU; passes the guest's output on.
///
/// # Errors
/// When QEMU cannot be started.
pub(crate) fn watch(command: &mut Command, terminal: bool, log: &Path, timeout_s: u64) -> Result<Ended> {
    let caught = catch_signals()?;
    command.stderr(File::create(log).with_context(|| format!("creating {}", log.display()))?);
    let mut pumps = Vec::new();
    if !terminal {
        let (stderr, to_stderr) = pipe().context("creating a pipe")?;
        let (stdout, to_stdout) = pipe().context("creating a pipe")?;
        command.stdin(Stdio::from(to_stderr)).stdout(to_stdout);
        pumps = vec![
            pump(stdout, std::io::stdout(), Arc::clone(&caught)),
            pump(stderr, std::io::stderr(), Arc::clone(&caught)),
        ];
    }
    let mut child = command.spawn().context("starting QEMU")?;
    // The pipes' writing ends in `command` would keep them open after QEMU's end.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let deadline = (!terminal).then(|| Instant::now() + Duration::from_secs(timeout_s));
    let ended = wait(&mut child, deadline, &caught);
    for pump in pumps {
        // A panic in a pump has been printed already.
        drop(pump.join());
    }
    ended
}

/// Sets the number of the last signal that asks the lab to end.
fn catch_signals() -> Result<Arc<AtomicUsize>> {
    let caught = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let number = usize::try_from(signal).context("signal numbers are positive")?;
        signal_hook::flag::register_usize(signal, Arc::clone(&caught), number).context("catching signals")?;
    }
    Ok(caught)
}

fn wait(child: &mut Child, deadline: Option<Instant>, caught: &AtomicUsize) -> Result<Ended> {
    loop {
        let status = child.try_wait().context("waiting for QEMU")?;
        // Looked at first: a Ctrl-C reaches QEMU as well, which then ends by itself.
        let signal = i32::try_from(caught.load(Ordering::Relaxed)).context("signal numbers are small")?;
        if signal != 0 {
            end(child)?;
            return Ok(Ended::Interrupted(signal));
        }
        if let Some(status) = status {
            return Ok(if status.success() { Ended::Exited } else { Ended::Failed(status) });
        }
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            end(child)?;
            return Ok(Ended::TimedOut);
        }
        thread::sleep(POLL);
    }
}

/// SIGTERM first, on which QEMU lets the plugin write the truth.
fn end(child: &mut Child) -> Result<()> {
    if child.try_wait().context("waiting for QEMU")?.is_some() {
        return Ok(());
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).context("the process id does not fit")?);
    kill(pid, Signal::SIGTERM).context("ending QEMU")?;
    let patience = Instant::now() + GRACE;
    while Instant::now() < patience {
        if child.try_wait().context("waiting for QEMU")?.is_some() {
            return Ok(());
        }
        thread::sleep(POLL);
    }
    child.kill().context("killing QEMU")?;
    child.wait().context("waiting for QEMU")?;
    Ok(())
}

/// Passes output on as it comes. When nobody takes it any more, the run ends as by SIGPIPE.
fn pump(
    mut from: PipeReader,
    mut to: impl Write + Send + 'static,
    caught: Arc<AtomicUsize>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        if let Err(error) = copy(&mut from, &mut to) {
            if error.kind() != ErrorKind::BrokenPipe {
                eprintln!("lab: the guest's output is lost: {error}");
            }
            caught.store(SIGPIPE as usize, Ordering::Relaxed);
        }
    })
}

/// Unlike `std::io::copy`, writes incomplete lines out at once.
fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut buffer = vec![0; 65536];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length]).and_then(|()| to.flush())?,
        }
    }
}
