//! What is being measured, and when it ends: a program of our own, a running process, or the system until a signal; or while a program
//! of our own runs.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use libhpm::for_now::{ENDING, hand_over_signals};
use libhpm::session::Target;
use libhpm::source::choice::process_of;
use libhpm::sys::child::{Child, CpuTime};
use libhpm::sys::pidfd::{pidfd, pidfd_of_thread};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::cli::TargetArgs;
use crate::output::say;

/// The measured program, or whatever else is measured, and the signals that can end it.
pub(crate) struct Workload {
    subject: Subject,
    /// The program that is run: measured itself, or the measurement lasts no longer.
    child: Option<Child>,
    /// How that program ended, once it has.
    over: Option<End>,
    signals: SignalFd,
    /// The mask before.
    unblocked: SigSet,
    /// A signal asked for the end.
    asked: bool,
}

enum Subject {
    /// The program that is run, by its PID.
    Program(i32),
    /// What is there already, and what tells the end of a process or thread; the system, a CPU and a control group have none.
    Other { target: Target, end: Option<OwnedFd> },
    /// A trace, which was measured before.
    Replay,
}

/// How a measurement ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The program ended with this exit status.
    Exit(i32),
    /// A signal of this number ended it that nobody sent by way of hpmctl: a failure of its own.
    Killed(i32),
    /// It ended with this exit status after a signal that asked for its end: it did not get to what it should do.
    Interrupted(i32),
    /// The process went, or the user had enough.
    Stopped,
}

impl End {
    /// The program's exit status as a shell shows it, if one ended.
    pub(crate) fn of_program(self) -> Option<i32> {
        match self {
            Self::Exit(status) | Self::Interrupted(status) => Some(status),
            Self::Killed(signal) => Some(128 + signal),
            Self::Stopped => None,
        }
    }

    /// The exit status to pass on.
    pub(crate) fn status(self) -> u8 {
        self.of_program().unwrap_or(0) as u8
    }

    /// Says which signal ended the program, as a shell does: its exit status alone says little. That nobody reads its output any more is
    /// how many a program usually ends (`yes | head`).
    pub(crate) fn tell(self) {
        if let Self::Killed(signal) = self
            && signal != Signal::SIGPIPE as i32
        {
            say(format_args!("the program was ended by {}", signal_name(signal)));
        }
    }
}

impl Workload {
    /// Prepares the program without running it, or finds the process; from here on signals end the measurement instead of
    /// this process.
    ///
    /// # Errors
    /// When the program cannot be forked or no process has the PID.
    pub(crate) fn new(args: &TargetArgs) -> Result<Self> {
        Self::with(args, &[])
    }

    /// The same, with variables added to the program's environment.
    ///
    /// # Errors
    /// As [`Workload::new`].
    pub(crate) fn with(args: &TargetArgs, variables: &[(&str, OsString)]) -> Result<Self> {
        let target = args.target();
        check(target.as_ref())?;
        let end = target.as_ref().map(end_of).transpose()?.flatten();
        // The child inherits the signal mask, so it is forked before signals are blocked.
        let prepare = || Child::prepare_with(&args.command, variables);
        let child = (!args.command.is_empty()).then(prepare).transpose()?;
        let subject = match (target, &child) {
            (Some(target), _) => Subject::Other { target, end },
            (None, Some(child)) => Subject::Program(child.pid()),
            (None, None) => Subject::Replay,
        };
        // What is replayed may lie in a folder for now.
        hand_over_signals();
        let mut mask = SigSet::from_iter(ENDING);
        mask.add(Signal::SIGCHLD);
        let unblocked = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).context("cannot receive signals")?;
        Ok(Self { subject, child, over: None, signals, unblocked, asked: false })
    }

    /// The session's target.
    pub(crate) fn target(&self) -> Target {
        match &self.subject {
            Subject::Program(pid) => Target::Process(*pid),
            Subject::Other { target, .. } => target.clone(),
            Subject::Replay => Target::System,
        }
    }

    /// The process that is measured, whole or in one of its threads; `None` when it is not one that is.
    ///
    /// # Errors
    /// When the thread has ended.
    pub(crate) fn process(&self) -> Result<Option<i32>> {
        Ok(process_of(&self.target())?)
    }

    /// The program that is measured and its arguments, also where it ran already; empty where it is not one, or has gone.
    pub(crate) fn command(&self, args: &TargetArgs) -> Vec<OsString> {
        match self.process() {
            _ if self.is_program() => args.command.clone(),
            Ok(Some(pid)) => command_line(pid).unwrap_or_default(),
            _ => vec![],
        }
    }

    /// What is measured where it is no process, as [`Meta::subject`](libhpm::trace::Meta::subject) keeps it.
    pub(crate) fn subject(&self, args: &TargetArgs) -> String {
        match &self.subject {
            Subject::Other { target: Target::System | Target::Cpu(_) | Target::Cgroup(_), .. } => {
                heading(args)
            }
            _ => String::new(),
        }
    }

    /// Whether a program is measured that has yet to be executed.
    pub(crate) fn is_program(&self) -> bool {
        matches!(self.subject, Subject::Program(_))
    }

    /// Whether a program is run, measured or not, and has not ended yet.
    pub(crate) fn runs_program(&self) -> bool {
        self.child.is_some() && self.over.is_none()
    }

    /// The time on CPUs of a measured program that has ended.
    pub(crate) fn cpu_time(&self) -> Option<CpuTime> {
        self.child.as_ref().filter(|_| self.is_program())?.cpu_time()
    }

    /// Whether nothing is measured, but a trace is replayed.
    pub(crate) fn is_replay(&self) -> bool {
        matches!(self.subject, Subject::Replay)
    }

    /// Runs the program, if it is one.
    ///
    /// # Errors
    /// [`libhpm::Error::Exec`].
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.child.as_mut().map_or(Ok(()), |child| Ok(child.execute()?))
    }

    /// Descriptors that become readable when [`Workload::ended`] should be asked.
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let of_process = match &self.subject {
            Subject::Other { end, .. } => end.as_ref(),
            Subject::Program(_) | Subject::Replay => None,
        };
        [self.signals.as_fd()].into_iter().chain(of_process.map(AsFd::as_fd)).collect()
    }

    /// Whether it has ended, or a signal asked for the end. What is run meanwhile decides how, if both have.
    ///
    /// # Errors
    /// When the system refuses to tell.
    pub(crate) fn ended(&mut self) -> Result<Option<End>> {
        if self.over.is_some() {
            return Ok(self.over);
        }
        // Before signals are read: a Ctrl-C reaches both, and is known by the time the program has ended of it.
        let gone = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
        while let Some(info) = self.signals.read_signal().context("cannot read a signal")? {
            let signal = Signal::try_from(info.ssi_signo as i32).ok();
            let Some(signal) = signal.filter(|signal| ENDING.contains(signal)) else { continue };
            let Some(child) = &self.child else { return Ok(Some(End::Stopped)) };
            // The terminal has sent its Ctrl-C to the program as well; what another process sends to hpmctl alone
            // is passed on. Either way the program decides.
            if info.ssi_code != SI_KERNEL {
                child.signal(signal);
            }
            self.asked = true;
        }
        if let (Some(status), Some(child)) = (gone, &self.child) {
            self.over = Some(program_end(status, child.killed_by(), self.asked));
            return Ok(self.over);
        }
        match &self.subject {
            Subject::Other { end: Some(fd), .. } => {
                Ok(readable(fd.as_fd(), PollTimeout::ZERO)?.then_some(End::Stopped))
            }
            Subject::Program(_) | Subject::Other { end: None, .. } | Subject::Replay => Ok(None),
        }
    }

    /// Waits for the end, or until the time has passed; of a program that has ended nothing more is waited for.
    ///
    /// # Errors
    /// As [`Workload::ended`].
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<End>> {
        if self.over.is_some() {
            return Ok(self.over);
        }
        let timeout =
            timeout.and_then(|timeout| PollTimeout::try_from(timeout).ok()).unwrap_or(PollTimeout::NONE);
        let mut fds: Vec<PollFd<'_>> =
            self.descriptors().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => self.ended(),
            Err(errno) => Err(errno).context("cannot wait for the end"),
        }
    }

    /// How it ended when its measurement ended like this: a program that runs on is waited for.
    ///
    /// # Errors
    /// As [`Workload::ended`].
    pub(crate) fn outlived(&mut self, measurement: End) -> Result<End> {
        if measurement != End::Stopped || self.child.is_none() {
            return Ok(measurement);
        }
        // That what was measured has gone is no news any more.
        if let Subject::Other { end, .. } = &mut self.subject {
            *end = None;
        }
        loop {
            if let Some(end) = self.wait(None)? {
                return Ok(end);
            }
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // A next one forks a child that must not have them blocked. A valid mask cannot be refused.
        let _ = self.unblocked.thread_set_mask();
    }
}

/// How a program ended; `asked`: after a signal to hpmctl that asks for the end.
fn program_end(status: i32, killed_by: Option<i32>, asked: bool) -> End {
    let is_asked = |signal: i32| ENDING.into_iter().any(|ending| ending as i32 == signal);
    match killed_by {
        Some(signal) if !(asked && is_asked(signal)) => End::Killed(signal),
        _ if asked => End::Interrupted(status),
        _ => End::Exit(status),
    }
}

/// A signal's name, and what it says where that is not in the name.
pub(crate) fn signal_name(number: i32) -> String {
    let Ok(signal) = Signal::try_from(number) else { return format!("signal {number}") };
    let means = match signal {
        Signal::SIGABRT => "it gave up by abort",
        Signal::SIGALRM => "a timer that it had set",
        Signal::SIGBUS => "bus error",
        Signal::SIGFPE => "arithmetic error",
        Signal::SIGILL => "illegal instruction",
        Signal::SIGSEGV => "segmentation fault",
        Signal::SIGSYS => "system call that is not allowed",
        Signal::SIGTRAP => "breakpoint",
        Signal::SIGXCPU => "limit of CPU time",
        Signal::SIGXFSZ => "limit of file size",
        _ => return signal.to_string(),
    };
    format!("{signal} ({means})")
}

/// `si_code` of a signal that the kernel itself sent, as for Ctrl-C in a terminal (sigaction(2)).
const SI_KERNEL: i32 = 0x80;

fn readable(fd: BorrowedFd<'_>, timeout: PollTimeout) -> Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut fds, timeout).context("cannot poll the process")?;
    Ok(fds[0].any().unwrap_or(false))
}

/// What becomes readable when a process or thread ends; the others have no end.
fn end_of(target: &Target) -> Result<Option<OwnedFd>> {
    match target {
        Target::Process(pid) => Ok(Some(pidfd(*pid)?)),
        Target::Thread(tid) => Ok(Some(pidfd_of_thread(*tid)?)),
        Target::System | Target::Cpu(_) | Target::Cgroup(_) => Ok(None),
    }
}

/// What is to be measured must be there.
fn check(target: Option<&Target>) -> Result<()> {
    match target {
        Some(Target::Cpu(cpu)) if !Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists() => {
            let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
            bail!("there is no CPU {cpu}; this machine has {}", online.trim())
        }
        Some(Target::Cgroup(path)) if !path.is_dir() => bail!(
            "there is no control group {}: name its directory, which is somewhere below /sys/fs/cgroup",
            path.display()
        ),
        _ => Ok(()),
    }
}

/// What is measured, as a heading says it.
pub(crate) fn heading(args: &TargetArgs) -> String {
    let program = format!("`{}`", args.words().join(" "));
    let what = match (args.target(), &args.trace) {
        (Some(Target::Process(pid)), _) => format!("PID {pid}"),
        (Some(Target::Thread(tid)), _) => format!("thread {tid}"),
        (Some(Target::Cgroup(path)), _) => format!("the control group {}", path.display()),
        (Some(Target::Cpu(cpu)), _) => format!("CPU {cpu}"),
        (Some(Target::System), _) => "the whole system".into(),
        (None, Some(trace)) => format!("the trace {}", trace.display()),
        (None, None) => return program,
    };
    if args.command.is_empty() { what } else { format!("{what} while {program} ran") }
}

/// The file of a program, by its name or path.
///
/// # Errors
/// There is none that can be executed.
pub(crate) fn program_file(command: &[OsString]) -> Result<PathBuf> {
    let name = command.first().context("no command is given")?;
    let executable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let named = Path::new(name);
    let found = if named.components().count() > 1 {
        Some(named.to_owned()).filter(executable)
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|folder| folder.join(named)).find(executable)
    };
    let missing = || libhpm::Error::Exec {
        program: name.to_string_lossy().into_owned(),
        reason: std::io::ErrorKind::NotFound.into(),
    };
    Ok(fs::canonicalize(found.ok_or_else(missing)?)?)
}
/// The command line of a process; of one that has none, as the kernel's threads, its name in brackets, as ps has it.
fn command_line(pid: i32) -> Option<Vec<OsString>> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    // Programs that write their state there leave what was longer as zeros.
    let words = &words[..words.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)];
    if !words.is_empty() {
        return Some(words.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).into()).collect());
    }
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(vec![OsString::from_vec([b"[", name.trim_ascii_end(), b"]"].concat())])
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        target: TargetArgs,
    }

    #[test]
    fn a_program_that_has_ended_is_not_waited_for_again() {
        let args = Cli::try_parse_from(["hpmctl", "sh", "-c", "exit 3"]).unwrap().target;
        let mut workload = Workload::new(&args).unwrap();
        assert!(workload.runs_program());
        workload.begin().unwrap();
        let end = loop {
            if let Some(end) = workload.wait(Some(Duration::from_secs(1))).unwrap() {
                break end;
            }
        };
        assert_eq!((end, workload.runs_program()), (End::Exit(3), false));
        assert_eq!(workload.outlived(End::Stopped).unwrap(), End::Exit(3));
        assert_eq!((workload.ended().unwrap(), workload.wait(None).unwrap()), (Some(end), Some(end)));
    }
}
