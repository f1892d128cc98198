//! Opening a source that measures: whom, by what, and with which events.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use libhpm::event::Event;
use libhpm::refusal::Reason;
use libhpm::session::{Options, Target};
use libhpm::source::Source;
use libhpm::source::choice::{
    Chosen, PerfFacts, Wish, choose, companion, events_at_hand, first_at_hand, open_session, parse_events,
    process_of, refused_for, sideband,
};
use libhpm::source::driver::{DriverSource, Stacks};
use libhpm::source::perf::{self, PerfName, PerfOptions, PerfStacks, PerfStream};
use libhpm::sys::child::Child;
use libhpm::sys::pidfd::pidfd;
use nix::unistd::{dup, dup2_stderr, dup2_stdin, dup2_stdout};

/// What the module counts when nothing is asked for; the last ones go first where there are too few counters.
const COUNTED: [&str; 5] = ["cycles", "instructions", "l1d-load-miss", "branch-misses", "branches"];
/// What the module samples then: the first of these that is precise.
const SAMPLED: [&str; 3] = ["cycles", "instructions", "load"];
/// The period with which that begins.
const PERIOD: u64 = 1_000_003;
/// What perf_event measures where it has hardware counters.
const PERF_HARDWARE: [&str; 5] = ["cycles", "instructions", "cache-misses", "branch-misses", "page-faults"];
/// What it measures in any case.
const PERF_SOFTWARE: [&str; 3] = ["cpu-clock", "page-faults", "major-faults"];

/// What somebody wants to see measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) wish: Wish,
    pub(crate) pid: Option<i32>,
    pub(crate) cgroup: Option<std::path::PathBuf>,
    pub(crate) command: Vec<OsString>,
    pub(crate) events: Vec<String>,
    /// Samples per second of each CPU.
    pub(crate) frequency: u64,
    /// Quanta are cut at the latest after this long; after the driver's usual 10 ms without it.
    pub(crate) longest_quantum: Option<Duration>,
}

impl Wanted {
    /// Whom it measures, in words.
    pub(crate) fn words(&self) -> String {
        match (&self.pid, &self.cgroup, &self.command[..]) {
            (Some(pid), ..) => format!("PID {pid}"),
            (None, Some(cgroup), _) => format!("the control group {}", cgroup.display()),
            (None, None, []) => "the whole system".to_owned(),
            (None, None, words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                format!("`{}`", words.join(" "))
            }
        }
    }
}

/// What is measured, and what tells its end.
pub(crate) enum Subject {
    Program(Child),
    Process(i32, OwnedFd),
    Endless(Target),
}

impl Subject {
    /// Finds the process, or forks the program without running it; its output goes to a file, because the screen is taken.
    ///
    /// # Errors
    /// There is no such process, or the program cannot be forked.
    pub(crate) fn prepare(wanted: &Wanted, output: &File) -> Result<Self> {
        match (&wanted.pid, &wanted.cgroup, &wanted.command[..]) {
            (Some(pid), ..) => Ok(Self::Process(*pid, pidfd(*pid)?)),
            (None, Some(path), _) if !path.is_dir() => bail!(
                "there is no control group {}: name its directory, which is somewhere below /sys/fs/cgroup",
                path.display()
            ),
            (None, Some(path), _) => Ok(Self::Endless(Target::Cgroup(path.clone()))),
            (None, None, []) => Ok(Self::Endless(Target::System)),
            (None, None, command) => Ok(Self::Program(apart(command, output)?)),
        }
    }

    pub(crate) fn target(&self) -> Target {
        match self {
            Self::Program(child) => Target::Process(child.pid()),
            Self::Process(pid, _) => Target::Process(*pid),
            Self::Endless(target) => target.clone(),
        }
    }

    fn is_program(&self) -> bool {
        matches!(self, Self::Program(_))
    }

    /// Why it is over, if it is.
    ///
    /// # Errors
    /// The system does not tell.
    pub(crate) fn ended(&mut self) -> Result<Option<String>> {
        match self {
            Self::Program(child) => {
                let status = child.try_wait()?;
                Ok(status.map(|status| format!("the program has ended with status {status}")))
            }
            Self::Process(pid, fd) => {
                use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
                let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::ZERO).context("cannot watch the process")?;
                let gone = fds[0].any().unwrap_or(false);
                Ok(gone.then(|| format!("process {pid} has ended")))
            }
            Self::Endless(_) => Ok(None),
        }
    }
}

/// Forks the program with its output and its input apart from the terminal's.
fn apart(command: &[OsString], output: &File) -> Result<Child> {
    let null = File::open("/dev/null").context("cannot open /dev/null")?;
    let saved = (
        dup(std::io::stdin()).context("cannot keep the input")?,
        dup(std::io::stdout()).context("cannot keep the output")?,
        dup(std::io::stderr()).context("cannot keep the output for errors")?,
    );
    let redirect = || {
        dup2_stdin(&null)?;
        dup2_stdout(output)?;
        dup2_stderr(output)
    };
    let child = redirect().context("cannot redirect the program's output").and_then(|()| {
        // Inherited by the fork.
        Ok(Child::prepare(command)?)
    });
    let restore = || {
        dup2_stdin(&saved.0)?;
        dup2_stdout(&saved.1)?;
        dup2_stderr(&saved.2)
    };
    restore().context("cannot give the output back")?;
    child
}

/// A source that is open, and which it is.
pub(crate) struct Open {
    pub(crate) source: Box<dyn Source>,
    pub(crate) line: String,
}

/// Opens the best source for the subject.
///
/// # Errors
/// Nothing can measure it, or not these events.
pub(crate) fn open(wanted: &Wanted, subject: &Subject) -> Result<Open> {
    match choose(wanted.wish)? {
        Chosen::Driver { line } => Ok(Open { source: driver(wanted, subject)?, line }),
        Chosen::Perf(facts) => {
            Ok(Open { source: by_perf(wanted, subject, &facts)?, line: facts.line.clone() })
        }
    }
}

/// Events for the module: what is sampled, and what is only counted.
fn events(wanted: &Wanted) -> Result<(Vec<Event>, Vec<Event>)> {
    if !wanted.events.is_empty() {
        let all = parse_events(&wanted.events)?;
        return Ok(all.into_iter().partition(Event::sampled_precisely));
    }
    let sampled = first_at_hand(&SAMPLED, Event::sampled_precisely)?;
    let is_sampled = |event: &Event| sampled.iter().any(|sampled| sampled.name == event.name);
    let counted = events_at_hand(&COUNTED)?.into_iter().filter(|event| !is_sampled(event)).collect();
    Ok((sampled, counted))
}

fn driver(wanted: &Wanted, subject: &Subject) -> Result<Box<dyn Source>> {
    let (sampled, mut counted) = events(wanted)?;
    loop {
        let mut all = [&sampled[..], &counted].concat();
        all.extend(companion(&all)?);
        let options = Options::new(subject.target())
            .start_on_exec(subject.is_program())
            .quanta(true)
            .randomise(true)
            .share(true)
            .rate(wanted.frequency)
            .longest_quantum(wanted.longest_quantum);
        let (first, rest) = all.split_at(sampled.len());
        let options = first.iter().cloned().fold(options, |options, event| options.sample(event, PERIOD));
        match open_session(rest.iter().cloned().fold(options, Options::count)) {
            Err(error)
                if wanted.events.is_empty()
                    && !counted.is_empty()
                    && refused_for(&error, Reason::NoCounter) =>
            {
                counted.pop();
            }
            Err(error) => return Err(error.into()),
            Ok(session) => {
                let process = process_of(&subject.target())?;
                let (reports, present) = sideband(&session, process, subject.is_program())?;
                let command = &wanted.command;
                let source = DriverSource::new(session, Some(reports), present, Stacks::AsFound, command);
                return Ok(Box::new(source));
            }
        }
    }
}

fn by_perf(wanted: &Wanted, subject: &Subject, facts: &PerfFacts) -> Result<Box<dyn Source>> {
    let usual = if facts.hardware { &PERF_HARDWARE[..] } else { &PERF_SOFTWARE };
    let mut events = if wanted.events.is_empty() {
        perf::parse(&usual.iter().map(ToString::to_string).collect::<Vec<_>>())?
    } else {
        facts.parse(&wanted.events)?
    };
    let clocks = events.iter_mut().filter(|event| event.id.is_clock());
    clocks.for_each(|event| event.period = 1_000_000_000 / wanted.frequency.max(1));
    let options = |events: Vec<PerfName>| PerfOptions {
        target: subject.target(),
        on_exec: subject.is_program(),
        inherit: true,
        events,
        stream: PerfStream::Samples { period: 0, rate: 0 },
        stacks: PerfStacks::None,
        multiplex: true,
        pausable: false,
        note: facts.line.clone(),
        command: wanted.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    Ok(Box::new(facts.open(&events, options)?))
}
