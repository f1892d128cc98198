//! What can go wrong, each as one sentence that says what is wrong and what to do.

use std::io;
use std::path::PathBuf;

use crate::refusal::Refusal;
use crate::report::did_you_mean;

/// Result of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, worded for the person at the terminal. Each sentence is complete: the system's own reason is part of it, and
/// not a source to be printed after it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver refused a request and said why.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The character device is not there.
    #[error(
        "{path} does not exist: the hpm module is not loaded; load it as root with `modprobe hpm` or `insmod hpm.ko`"
    )]
    NoModule {
        /// The device's path.
        path: PathBuf,
    },
    /// The character device may not be opened.
    #[error("{path} may not be opened by this user: run as root, or give the device's group to this user")]
    NoPermission {
        /// The device's path.
        path: PathBuf,
    },
    /// The driver and this library were built from different versions of the interface.
    #[error(
        "the loaded hpm module speaks version {driver} of the interface and this program version {library}: \
         install module and program from the same release"
    )]
    Version {
        /// Version of the driver.
        driver: u32,
        /// Version of this library.
        library: u32,
    },
    /// No event has this name on this PMU.
    #[error("{}", unknown_event(name, pmu, near))]
    UnknownEvent {
        /// What was asked for.
        name: String,
        /// PMU that was searched.
        pmu: String,
        /// The nearest names, best first.
        near: Vec<String>,
    },
    /// A generic name means nothing on this PMU.
    #[error("the {pmu} PMU has no event for `{name}`: {reason}")]
    EventAbsent {
        /// What was asked for.
        name: String,
        /// The PMU.
        pmu: String,
        /// Why, and what comes near.
        reason: &'static str,
    },
    /// An event's text cannot be read.
    #[error("the event `{text}` cannot be read: {problem}")]
    EventSyntax {
        /// What was asked for.
        text: String,
        /// What is wrong with it, and what to write instead.
        problem: String,
    },
    /// An event is one of the kernel's tracepoints, as perf names them.
    #[error(
        "`{0}` is a tracepoint, and hpm does not measure those; `hpmctl list` has the events that it does"
    )]
    Tracepoint(String),
    /// An event cannot be sampled within windows of another one ([`crate::session::Windows`]).
    #[error("{event} cannot be sampled within windows of another event: {problem}")]
    Windows {
        /// The event.
        event: String,
        /// Why not, and what to do instead.
        problem: &'static str,
    },
    /// The program to measure could not be executed.
    #[error("cannot run `{program}`: {}", describe_exec(reason))]
    Exec {
        /// The program's name as given.
        program: String,
        /// The failure of execve.
        reason: io::Error,
    },
    /// The directory is none of a control group by which perf_event measures.
    #[error(
        "{path} is no control group that perf_event knows: name a directory of its hierarchy, which is that of version 2 (cgroup2), or \
         where that of version 1 has a controller perf_event, its own"
    )]
    NotMeasuredGroup {
        /// The directory.
        path: PathBuf,
    },
    /// No process has this PID.
    #[error("no process has the PID {pid}; it may have ended already")]
    NoProcess {
        /// The PID.
        pid: i32,
    },
    /// No thread has this TID.
    #[error("no thread has the TID {tid}; it may have ended already")]
    NoThread {
        /// The TID.
        tid: i32,
    },
    /// What the driver published contradicts the interface.
    #[error("the driver published what cannot be true ({what}): this is a defect of hpm; please report it")]
    Corrupt {
        /// The contradiction.
        what: String,
    },
    /// PEBS records of a format that this version cannot read.
    #[error("PEBS records of format {format} cannot be read by this version of hpm; a newer one is needed")]
    RecordFormat {
        /// `IA32_PERF_CAPABILITIES[11:8]`.
        format: u16,
    },
    /// The kernel's perf_event refused the side-band event.
    #[error(
        "the kernel does not let this user follow the mappings of the measured processes ({reason}): run as root, give \
         the program CAP_PERFMON, or set /proc/sys/kernel/perf_event_paranoid to 1 or less"
    )]
    Sideband {
        /// The failure of perf_event_open or of its mmap.
        reason: io::Error,
    },
    /// The kernel's perf_event refused an event.
    #[error("perf_event cannot measure `{event}`: {}", describe_perf(reason))]
    PerfEvent {
        /// The event's name.
        event: String,
        /// The failure of perf_event_open.
        reason: io::Error,
    },
    /// A program that is linked statically has no allocator that is known.
    #[error(
        "{program} is linked statically, and its symbols name no malloc whose calls could be recorded (they are stripped, or its \
         allocator is another): leave --allocations out, or link it with its symbols"
    )]
    NoAllocator {
        /// The program's file.
        program: PathBuf,
    },
    /// The kernel's perf_event refused probes in a program.
    #[error(
        "the kernel does not let this user record the allocations of a program that is linked statically ({0}): run as root (it takes \
         probes, uprobes, in the program), or link it dynamically"
    )]
    Probes(io::Error),
    /// Neither the driver nor perf_event can be used.
    #[error("nothing can measure here: {driver}; and {perf}")]
    NothingMeasures {
        /// Why not the driver.
        driver: String,
        /// Why not perf_event.
        perf: String,
    },
    /// What was asked for needs the driver, which is not used.
    #[error("{problem}: {why}")]
    WithoutModule {
        /// What cannot be had without it.
        problem: String,
        /// Why it is not used.
        why: String,
    },
    /// A file of `perf record` cannot be read.
    #[error("{} cannot be read as a file of `perf record`: {problem}", path.display())]
    PerfData {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A trace could not be written or read.
    #[error(transparent)]
    Trace(#[from] crate::trace::TraceError),
    /// A system call failed.
    #[error("cannot {doing}: {reason}")]
    Io {
        /// What was being done, as a verb phrase.
        doing: String,
        /// The system's reason.
        reason: io::Error,
    },
}

impl Error {
    /// Wraps a system error with what was being done, for `map_err`.
    pub fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |reason| Self::Io { doing, reason }
    }

    /// A contradiction in what the driver published.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }
}

fn unknown_event(name: &str, pmu: &str, near: &[String]) -> String {
    if name.is_empty() {
        return "an event's name is missing: write names with one comma between them, as `hpmctl list` lists them".to_owned();
    }
    format!("no event is called `{name}` on the {pmu} PMU; {}", suggest(near))
}

fn suggest(near: &[String]) -> String {
    did_you_mean(near).unwrap_or_else(|| "`hpmctl list` lists them".to_owned())
}

/// The usual refusals of perf_event_open(2) in plain words, else the system's own.
fn describe_perf(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "this user may not: run as root, give the program CAP_PERFMON, or lower \
             /proc/sys/kernel/perf_event_paranoid"
            .to_owned(),
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENXIO) => "this machine has no PMU that counts it".to_owned(),
        Some(libc::EINVAL) => {
            "the kernel refuses it as it was asked for; if there are too many events for the counters together, \
             `hpmctl stat --multiplex` lets them take turns"
                .to_owned()
        }
        Some(libc::EMFILE) => "there are too many threads, CPUs and events for this process's open files \
             (raise `ulimit -n`)"
            .to_owned(),
        _ => error.to_string(),
    }
}

/// A shell's two usual cases in plain words, else the system's own.
fn describe_exec(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such program; check the spelling and PATH".to_owned(),
        io::ErrorKind::PermissionDenied => "it is not executable by this user".to_owned(),
        _ => error.to_string(),
    }
}
