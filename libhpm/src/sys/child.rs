//! A program that is forked but not executed before it is told to, so that it can be measured from its first instruction.

use std::ffi::{CString, NulError, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::{Error, Result};

/// How long a child that is no longer wanted has to obey SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time on CPUs of a program and of what it started and waited for, as the kernel accounts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In kernel mode.
    pub system: Duration,
}

/// A forked child. Dropping it ends it, unless it has ended and was waited for.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    program: String,
    /// Closed or written to: the child gives up, or executes.
    gate: Option<File>,
    /// Carries the errno of a failed execve; closed by a successful one.
    failure: File,
    ended: bool,
    killed_by: Option<i32>,
    cpu_time: Option<CpuTime>,
}

impl Child {
    /// Forks a child that waits to execute `command`, a program (looked up in PATH) and its arguments.
    ///
    /// Blocked signals are inherited, so this must come before any is blocked.
    ///
    /// # Errors
    /// [`Error::Exec`] for an argument with a NUL byte, [`Error::Io`] when the system refuses.
    ///
    /// # Panics
    /// When `command` is empty.
    pub fn prepare<S: AsRef<OsStr>>(command: &[S]) -> Result<Self> {
        Self::prepare_with(command, &[])
    }

    /// The same with variables that are added to this process's environment, or replace its own.
    ///
    /// # Errors
    /// As [`Child::prepare`].
    ///
    /// # Panics
    /// As [`Child::prepare`].
    pub fn prepare_with<S: AsRef<OsStr>>(command: &[S], variables: &[(&str, OsString)]) -> Result<Self> {
        let program = command[0].as_ref().to_string_lossy().into_owned();
        let arguments: Vec<CString> = command
            .iter()
            .map(|argument| CString::new(argument.as_ref().as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|nul| Error::Exec { program: program.clone(), reason: nul.into() })?;
        let environment = environment(variables)
            .map_err(|nul| Error::Exec { program: program.clone(), reason: nul.into() })?;
        let fail = |errno: Errno| Error::io("start a process")(io::Error::from(errno));
        let (wait_gate, gate) = pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let (failure, report) = pipe2(OFlag::O_CLOEXEC).map_err(fail)?;
        let mut pointers: Vec<*const libc::c_char> =
            arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let mut variables: Vec<*const libc::c_char> = environment.iter().map(|one| one.as_ptr()).collect();
        variables.push(std::ptr::null());
        // SAFETY: in the child only `execute` runs, which calls nothing but async-signal-safe functions and never returns,
        // so that locks held by other threads at the fork do not matter.
        match unsafe { fork() }.map_err(fail)? {
            ForkResult::Child => execute(&pointers, &variables, &wait_gate, &gate, &report),
            ForkResult::Parent { child } => Ok(Self {
                pid: child,
                program,
                gate: Some(gate.into()),
                failure: failure.into(),
                ended: false,
                killed_by: None,
                cpu_time: None,
            }),
        }
    }

    /// The child's PID.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Lets the child execute its program; returns once it has.
    ///
    /// # Errors
    /// [`Error::Exec`] when the program cannot be executed; the child has ended then.
    pub fn execute(&mut self) -> Result<()> {
        let mut errno = [0; 4];
        let mut gate = self.gate.take().expect("executed once");
        let reported = gate.write_all(&[1]).and_then(|()| self.failure.read(&mut errno));
        match reported.map_err(Error::io("start the program"))? {
            0 => Ok(()),
            _ => {
                self.wait()?;
                let reason = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(Error::Exec { program: self.program.clone(), reason })
            }
        }
    }

    /// Passes a signal on to the child.
    pub fn signal(&self, signal: Signal) {
        if !self.ended {
            // ESRCH, the only possible failure, means that it has ended, which a wait will tell.
            let _ = kill(self.pid, signal);
        }
    }

    /// Waits for the child's end; its exit status as a shell shows it: the code, or 128 and the signal.
    ///
    /// # Errors
    /// [`Error::Io`] when it was waited for already.
    pub fn wait(&mut self) -> Result<i32> {
        loop {
            if let Some(status) = self.poll(0)? {
                return Ok(status);
            }
        }
    }

    /// As [`Child::wait`], but `None` when it still runs.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn try_wait(&mut self) -> Result<Option<i32>> {
        self.poll(libc::WNOHANG)
    }

    /// The number of the signal that ended it, if one did; by its exit status it could as well be a program that exits with more
    /// than 128.
    #[must_use]
    pub fn killed_by(&self) -> Option<i32> {
        self.killed_by
    }

    /// What its life took of CPUs; `None` before it has ended and was waited for.
    #[must_use]
    pub fn cpu_time(&self) -> Option<CpuTime> {
        self.cpu_time
    }

    fn poll(&mut self, flags: i32) -> Result<Option<i32>> {
        let mut status = 0;
        // nix has no name for real-time signals, so that its waitpid fails of a program that one of them ended, and no wait4.
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: it writes to local variables.
        let waited = unsafe { libc::wait4(self.pid.as_raw(), &raw mut status, flags, usage.as_mut_ptr()) };
        match Errno::result(waited) {
            Ok(0) | Err(Errno::EINTR) => return Ok(None),
            Ok(_) => {}
            Err(errno) => return Err(Error::io("wait for the program")(io::Error::from(errno))),
        }
        // SAFETY: of a child that has ended the kernel writes it whole, and numbers may be zero in any case.
        let usage = unsafe { usage.assume_init() };
        self.cpu_time = Some(CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) });
        self.killed_by = libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status));
        self.ended = true;
        Ok(Some(self.killed_by.map_or(libc::WEXITSTATUS(status), |signal| 128 + signal)))
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

impl Drop for Child {
    fn drop(&mut self) {
        // A child at the gate sees it close, and ends.
        drop(self.gate.take());
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + PATIENCE;
        while !self.ended {
            if !matches!(self.try_wait(), Ok(None)) {
                return;
            }
            if Instant::now() > deadline {
                self.signal(Signal::SIGKILL);
            }
            sleep(Duration::from_millis(5));
        }
    }
}

/// This process's environment with some variables added or replaced, as `NAME=VALUE`.
fn environment(variables: &[(&str, OsString)]) -> std::result::Result<Vec<CString>, NulError> {
    let own = std::env::vars_os().filter(|(name, _)| !variables.iter().any(|(other, _)| name == other));
    let added = variables.iter().map(|(name, value)| ((*name).into(), value.clone()));
    let joined = own.chain(added).map(|(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        CString::new(name.as_bytes())
    });
    joined.collect()
}

/// The child's side: waits at the gate, then executes. Runs between fork and exec.
fn execute(
    arguments: &[*const libc::c_char],
    variables: &[*const libc::c_char],
    gate: &OwnedFd,
    gate_writer: &OwnedFd,
    report: &OwnedFd,
) -> ! {
    // SAFETY: close, read, write, signal, sigprocmask and its kin, execvpe and _exit are async-signal-safe (glibc's execvpe uses
    // only its stack since 2.24). The buffers are local, a set of signals may be all zeroes, `arguments` and `variables` end in a
    // null pointer and point to strings of the parent's copy.
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "one sequence under one argument")]
    unsafe {
        // Or the end of the parent would not close the gate.
        libc::close(gate_writer.as_raw_fd());
        let mut byte = 0_u8;
        if libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1) == 1 {
            // Rust's runtime ignores SIGPIPE; the program shall find the default.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            // hpmctl blocks it, and the program shall find it as it usually is.
            let mut of_file_size = std::mem::zeroed();
            libc::sigemptyset(&raw mut of_file_size);
            libc::sigaddset(&raw mut of_file_size, libc::SIGXFSZ);
            libc::sigprocmask(libc::SIG_UNBLOCK, &raw const of_file_size, std::ptr::null_mut());
            libc::execvpe(arguments[0], arguments.as_ptr(), variables.as_ptr());
            let errno = *libc::__errno_location();
            libc::write(report.as_raw_fd(), (&raw const errno).cast(), size_of_val(&errno));
        }
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str]) -> Result<i32> {
        let mut child = Child::prepare(command)?;
        child.execute()?;
        child.wait()
    }

    #[test]
    fn the_exit_status_is_a_shells() {
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap(), 7);
        assert_eq!(run(&["sh", "-c", "kill -9 $$"]).unwrap(), 137);
        assert_eq!(run(&["sh", "-c", "kill -40 $$"]).unwrap(), 168, "a real-time signal");
    }

    #[test]
    fn a_signal_that_ended_it_is_told() {
        let killed_by = |script: &str| {
            let mut child = Child::prepare(&["sh", "-c", script]).unwrap();
            child.execute().unwrap();
            child.wait().unwrap();
            child.killed_by()
        };
        assert_eq!(killed_by("kill -SEGV $$"), Some(Signal::SIGSEGV as i32));
        assert_eq!(killed_by("exit 139"), None);
    }

    #[test]
    fn its_time_on_cpus_is_known_once_it_has_ended() {
        let work = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let mut child = Child::prepare(&["sh", "-c", work]).unwrap();
        assert_eq!(child.cpu_time(), None);
        child.execute().unwrap();
        child.wait().unwrap();
        let time = child.cpu_time().unwrap();
        assert!(time.user > Duration::ZERO && time.user + time.system < Duration::from_mins(1), "{time:?}");
    }

    #[test]
    fn variables_are_added_and_replaced() {
        let variables = [("HOME", "/elsewhere".into()), ("HPM_NEW", "a b".into())];
        let script = "test \"$HOME\" = /elsewhere && test \"$HPM_NEW\" = 'a b' && test -n \"$PATH\"";
        let mut child = Child::prepare_with(&["sh", "-c", script], &variables).unwrap();
        child.execute().unwrap();
        assert_eq!(child.wait().unwrap(), 0);
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = run(&["no-such-program-anywhere"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot run `no-such-program-anywhere`: no such program; check the spelling and PATH"
        );
    }

    #[test]
    fn nothing_runs_before_it_is_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made");
        let child = Child::prepare(&["touch", file.to_str().unwrap()]).unwrap();
        let pid = child.pid;
        drop(child);
        assert!(!file.exists());
        assert_eq!(kill(pid, None), Err(Errno::ESRCH), "the child was left behind");
    }

    #[test]
    fn a_child_that_runs_is_ended_by_dropping_it() {
        let mut child = Child::prepare(&["sleep", "1000"]).unwrap();
        child.execute().unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        let pid = child.pid;
        drop(child);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }
}
