//! What the loops need from outside: what to collect from, who tells of keys and signals, and the terminal given back for a while.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use libhpm::for_now::hand_over_signals;
use libhpm::source::opened::open_trace;
use libhpm::symbol::FileFinder;
use libhpm::text;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use ratatui::crossterm::event as terminal_event;

use crate::cli::Cli;
use crate::collect::{Origins, PhaseOptions, Setup, Subject, Wanted};
use crate::config::Config;
use crate::event::Event;
use crate::keys::KeyMap;
use crate::terminal::{Taken, give_back};

/// A line for each binding.
pub(super) fn list_keys(keys: &KeyMap) -> String {
    let line = |entry: &crate::keys::Entry| {
        let place = entry.context.place();
        let keys: Vec<String> = entry.keys.iter().map(ToString::to_string).collect();
        format!("{place}\t{}\t{}\t{}\n", entry.binding.name, keys.join(" "), entry.binding.help)
    };
    keys.entries().iter().map(line).collect()
}

/// Says what is good to know beside what is shown, if anybody listens: before the screen is opened, which it would garble.
pub(super) fn note(notes: &[String]) {
    for note in notes {
        let _ = writeln!(io::stderr(), "hpmtop: note: {}", text::line(note));
    }
}

/// Prints a result; whether anybody goes on reading. A reader that has seen enough, as `head`, is no error.
pub(super) fn print(text: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    // What is left in the buffer would be written when nobody can tell of a failure.
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true).context("cannot print"),
    }
}

/// The configuration that holds.
///
/// # Errors
/// As [`Config::find`].
pub(super) fn configuration(cli: &Cli) -> Result<Config> {
    let (config, remark) = Config::find(cli.config.as_deref())?;
    note(remark.as_slice());
    Ok(config)
}

/// Prints what the measured program printed, now that there is room for it.
pub(super) fn pass_on(output: &mut File) -> Result<()> {
    let pass = |output: &mut File| {
        output.rewind()?;
        let mut out = io::stderr().lock();
        let mut part = [0; 1 << 16];
        loop {
            match output.read(&mut part)? {
                0 => return io::Result::Ok(()),
                read => out.write_all(&part[..read])?,
            }
        }
    };
    pass(output).context("cannot pass on what the program printed")
}

/// Where quanta are cut for intervals of phases of so many ms: as often as the driver's timer does it, at most.
fn quantum(interval_ms: f64) -> Duration {
    Duration::from_secs_f64((interval_ms / 1e3).clamp(0.000_1, 0.01))
}

/// What to collect from, as the command line and the configuration want it.
pub(super) fn setup(cli: &Cli, config: &Config, output: &File) -> Result<Setup> {
    let phases = PhaseOptions {
        event: cli.phase_event.clone().or_else(|| config.phase_event.clone()),
        per: cli.phase_per.clone().or_else(|| config.phase_per.clone()),
        interval_ms: cli.phase_interval.or(config.phase_interval_ms),
    };
    if phases.interval_ms.is_some_and(|ms| !(0.01..=1e6).contains(&ms)) {
        bail!("an interval of phases is between 0.01 and 1000000 ms");
    }
    let number =
        cli.command.first().and_then(|word| word.to_str()).filter(|word| word.parse::<u64>().is_ok());
    if let Some(number) = number.filter(|_| cli.batch == Some(0)) {
        bail!(
            "`{number}` would be the program: if it is meant for --batch, write --batch={number}, else ./{number}"
        );
    }
    let origin = match &cli.replay {
        Some(folder) => {
            let paused = cli.prints() || cli.at.is_some();
            let trace = open_trace(folder)?;
            // From here on they are heard of otherwise; until then they ended this process, and removed what it had made.
            hand_over_signals();
            let of_file = |remark: &String| format!("{}: {remark}", folder.display());
            note(&trace.remarks().iter().map(of_file).collect::<Vec<_>>());
            Origins::Replay { trace: Box::new(trace), speed: cli.speed, paused }
        }
        None => {
            let wanted = Wanted {
                wish: cli.source,
                pid: cli.pid,
                cgroup: cli.cgroup.clone(),
                command: cli.command.clone(),
                events: cli.events.clone(),
                frequency: cli.frequency,
                // An interval of phases is made of whole quanta: it cannot be shorter than one.
                longest_quantum: phases.interval_ms.map(quantum),
            };
            let subject = Subject::prepare(&wanted, output)?;
            Origins::Live(Box::new(wanted), subject)
        }
    };
    let slot_ns = cli.interval.or(config.interval_ms).map(|ms| ms.clamp(1, 60_000) * 1_000_000);
    let finder = FileFinder { symfs: cli.symfs.clone(), debug_dirs: cli.debug_dirs.clone() };
    Ok(Setup { origin, slot_ns, phases, record: cli.record.clone(), finder })
}

/// Starts the thread that hears of keys and the mouse.
pub(super) fn hear_keys(sender: &SyncSender<Event>) -> Result<()> {
    let keys = sender.clone();
    let hear = move || {
        while let Ok(event) = terminal_event::read() {
            let event = match event {
                terminal_event::Event::Key(key) => Event::Key(key),
                terminal_event::Event::Mouse(mouse) => Event::Mouse(mouse),
                terminal_event::Event::Resize(..) => Event::Resize,
                _ => continue,
            };
            if keys.send(event).is_err() {
                return;
            }
        }
        // Nobody types any more.
        let _ = keys.send(Event::Signal(Signal::SIGHUP));
    };
    thread::Builder::new().name("hpmtop-keys".into()).spawn(hear).context("cannot start a thread")?;
    Ok(())
}

/// Starts the thread that hears of signals, which every thread has to block.
pub(super) fn hear_signals(sender: &SyncSender<Event>, signals: SigSet) -> Result<()> {
    let sender = sender.clone();
    let hear = move || {
        while let Ok(signal) = signals.wait() {
            if sender.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("hpmtop-signals".into()).spawn(hear).context("cannot start a thread")?;
    Ok(())
}

/// Gives the terminal back and stops this process until somebody continues it.
pub(super) fn suspend(terminal: &mut Taken) -> Result<()> {
    give_back();
    kill(Pid::this(), Signal::SIGSTOP).context("cannot stop")?;
    terminal.again()
}
