//! What else happened in the measured processes: mappings, names, forks, execs and exits, from the kernel's perf_event or, where
//! that is refused, the driver; and from a look at what was there before.

mod parse;
mod reports;
mod snapshot;

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

pub(crate) use self::snapshot::mounted_device;
pub use self::snapshot::{processes, snapshot};

pub(crate) use self::parse::{Parser, build_id_fits};
pub(crate) use self::reports::Reports;
use crate::session::Session;
use crate::sys::device::ReportStream;
use crate::sys::perf::{
    Attach, Attributes, EventId, Inherit, PerfEvent, RING_BYTES_ANY_USER, Ring, SAMPLE_TIME_AND_THREAD,
    Sampling,
};
use crate::{Error, Result};

/// Something that happened to a thread or its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// CLOCK_MONOTONIC_RAW in ns.
    pub monotonic_raw_ns: u64,
    /// Thread-group ID: in the root PID namespace where the driver tells, in this process's where perf_event does.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// What happened.
    pub change: Change,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A mapping was made, or was there.
    Map(Mapping),
    /// The thread got this name; by an execve of its process when `exec`.
    Name {
        /// `comm`.
        name: String,
        /// The process runs another program from now on.
        exec: bool,
    },
    /// The thread is new.
    Fork {
        /// Thread-group ID of the creator: the same as the thread's own, or the process is new as well.
        parent_pid: u32,
        /// Thread ID of the creator.
        parent_tid: u32,
    },
    /// The thread ended.
    Exit,
    /// The kernel had no room for this many entries.
    Lost(u64),
}

/// A mapping of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Byte of the file at `start`.
    pub file_offset: u64,
    /// The file, or `[vdso]`, `[heap]`, `//anon`, ….
    pub path: String,
    /// Code can be run from it.
    pub executable: bool,
    /// Which file it is.
    pub file: FileId,
}

/// What tells the file of a mapping from others that had or get its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum FileId {
    /// Nothing, or there is no file.
    #[default]
    Untold,
    /// Device and inode, as stat(2) has them.
    Inode(u64, u64),
    /// The GNU build ID, which the kernel read from the mapped file itself (Linux 5.12).
    BuildId(Vec<u8>),
}

/// The kernel's reports about the measured processes.
#[derive(Debug)]
pub struct Sideband(Reporter);

/// Who reports.
#[derive(Debug)]
enum Reporter {
    /// The kernel's perf_event.
    Perf {
        /// One for each CPU.
        rings: Vec<(u32, Ring)>,
        /// Events of further threads, whose records arrive in `rings`.
        attached: Vec<PerfEvent>,
    },
    /// The driver, in the same words.
    Driver(ReportStream),
}

/// How often the driver is read at a time: twice the memory that it keeps for reports.
const READS: u32 = 16;

/// An event that counts nothing and reports mappings, names, forks and exits.
const REPORTS: Attributes = Attributes {
    event: EventId::DUMMY,
    sampling: Sampling::Never,
    sample_type: SAMPLE_TIME_AND_THREAD,
    stack_bytes: 0,
    user_chain: false,
    user: true,
    // Nothing is counted or sampled, so nothing of the kernel is asked for.
    kernel: false,
    inherit: Inherit::All,
    disabled: false,
    sideband: true,
    switches: false,
};

impl Sideband {
    /// Follows a process that has not yet executed its program, from its next execve on.
    ///
    /// # Errors
    /// [`Error::Sideband`] when the kernel refuses.
    pub fn of_child(pid: i32) -> Result<Self> {
        Self::open(Attach::ThreadOnExec(pid))
    }

    /// Follows a running process, all its threads and what they create.
    ///
    /// # Errors
    /// [`Error::NoProcess`], or [`Error::Sideband`] when the kernel refuses.
    pub fn of_process(pid: i32) -> Result<Self> {
        let mut sideband = Self::open(Attach::Thread(pid))?;
        let mut known = HashSet::from([pid]);
        // A thread that appears between two looks was created by one that was followed already, or not: attaching to it
        // as well may report something twice, which does no harm.
        loop {
            let new: Vec<i32> = threads(pid).into_iter().filter(|tid| known.insert(*tid)).collect();
            if new.is_empty() {
                return Ok(sideband);
            }
            for tid in new {
                sideband.attach(tid)?;
            }
        }
    }

    /// Follows every process.
    ///
    /// # Errors
    /// [`Error::Sideband`] when the kernel refuses.
    pub fn of_system() -> Result<Self> {
        Self::open(Attach::Everything)
    }

    fn open(attach: Attach) -> Result<Self> {
        let mut rings = Vec::new();
        for cpu in possible_cpus() {
            let ring = PerfEvent::open(&REPORTS, attach, Some(cpu), None)
                .and_then(|event| Ring::map(event, RING_BYTES_ANY_USER));
            match ring {
                Ok(ring) => rings.push((cpu, ring)),
                Err(reason) => match (reason.raw_os_error(), attach) {
                    // The CPU is offline.
                    (Some(libc::ENODEV), _) => {}
                    (Some(libc::ESRCH), Attach::Thread(pid) | Attach::ThreadOnExec(pid)) => {
                        return Err(Error::NoProcess { pid });
                    }
                    _ => return Err(refused(reason)),
                },
            }
        }
        Ok(Self(Reporter::Perf { rings, attached: Vec::new() }))
    }

    /// Follows one more thread, unless it has ended.
    fn attach(&mut self, tid: i32) -> Result<()> {
        let Reporter::Perf { rings, attached } = &mut self.0 else { return Ok(()) };
        for (cpu, ring) in rings {
            let event = PerfEvent::open(&REPORTS, Attach::Thread(tid), Some(*cpu), None);
            match event.and_then(|event| event.send_to(ring).map(|()| event)) {
                Ok(event) => attached.push(event),
                Err(reason) if reason.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                Err(reason) => return Err(refused(reason)),
            }
        }
        Ok(())
    }

    /// Follows the process of a configured session, from its next execve on if the session waits for that; by the driver, which asks for no
    /// more rights than the session did.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn of_session(session: &Session) -> Result<Self> {
        session.follow().map(|stream| Self(Reporter::Driver(stream)))
    }

    /// Become readable when much waits to be taken. Where the driver reports, the session's own descriptor does.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let rings = match &self.0 {
            Reporter::Perf { rings, .. } => &rings[..],
            Reporter::Driver(_) => &[],
        };
        rings.iter().map(|(_, ring)| ring.as_fd())
    }

    /// Everything reported since the last call, in the order of time.
    ///
    /// # Errors
    /// [`Error::Io`] when the driver cannot be read.
    pub fn drain(&mut self) -> Result<Vec<Entry>> {
        Ok(self.reports()?.entries())
    }

    /// Everything reported since the last call, as it is.
    pub(crate) fn reports(&mut self) -> Result<Reports> {
        let mut reports = Reports::default();
        match &mut self.0 {
            Reporter::Perf { rings, .. } => {
                for (_, ring) in rings {
                    ring.drain(|kind, misc, body| reports.push(kind, misc, body));
                }
            }
            // Who makes reports as fast as they are read does not keep the reader for ever.
            Reporter::Driver(stream) => {
                for _ in 0..READS {
                    let read =
                        stream.read().map_err(Error::io("read the driver's reports of the processes"))?;
                    if read.is_empty() {
                        break;
                    }
                    reports.append(read);
                }
            }
        }
        Ok(reports)
    }
}

/// A want of rights has a remedy of its own.
fn refused(reason: io::Error) -> Error {
    match reason.kind() {
        io::ErrorKind::PermissionDenied => Error::Sideband { reason },
        _ => Error::io("follow the mappings of the measured processes")(reason),
    }
}

/// The thread IDs of a process; empty when it has ended.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// CPU numbers that can come online.
pub(crate) fn possible_cpus() -> impl Iterator<Item = u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = text.trim().rsplit(['-', ',']).next().and_then(|cpu| cpu.parse::<u32>().ok());
    0..=last.unwrap_or(0)
}

/// CLOCK_MONOTONIC_RAW, the clock of every entry.
pub(crate) fn now_ns() -> u64 {
    crate::sys::clock::ClockPair::now().monotonic_raw_ns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::child::Child;

    /// Skips where the kernel does not allow side-band events at all, as in some containers.
    fn of_child(child: &Child) -> Option<Sideband> {
        match Sideband::of_child(child.pid()) {
            Err(Error::Sideband { .. }) => None,
            result => Some(result.unwrap()),
        }
    }

    #[test]
    fn a_program_is_followed_from_its_execve_through_its_children() {
        let mut child = Child::prepare(&["sh", "-c", "/bin/true; exit 0"]).unwrap();
        let Some(mut sideband) = of_child(&child) else { return };
        child.execute().unwrap();
        child.wait().unwrap();
        let entries = sideband.drain().unwrap();
        let pid = child.pid() as u32;
        let execs: Vec<_> = entries
            .iter()
            .filter_map(|entry| match &entry.change {
                Change::Name { name, exec: true } => Some((entry.pid == pid, name.as_str())),
                _ => None,
            })
            .collect();
        assert_eq!(execs, [(true, "sh"), (false, "true")]);
        let has = |test: fn(&Change) -> bool| entries.iter().any(|entry| test(&entry.change));
        let library = entries.iter().find_map(|entry| match &entry.change {
            Change::Map(map) if map.executable && map.path.contains("libc") => Some(map),
            _ => None,
        });
        // The kernel does not wait for a page of the file, and tells its inode then.
        match library.expect("the C library is mapped") {
            Mapping { file: FileId::BuildId(id), path, .. } => {
                assert_eq!(crate::build_id(path.as_ref()).as_ref(), Some(id));
            }
            mapping => assert!(matches!(mapping.file, FileId::Inode(..)), "{mapping:?}"),
        }
        assert!(has(|change| matches!(change, Change::Fork { .. })) && has(|change| *change == Change::Exit));
        assert!(entries.is_sorted_by_key(|entry| entry.monotonic_raw_ns));
    }

    #[test]
    fn a_process_that_has_ended_is_named() {
        let mut child = Child::prepare(&["true"]).unwrap();
        child.execute().unwrap();
        child.wait().unwrap();
        match Sideband::of_process(child.pid()) {
            Err(Error::NoProcess { pid }) => assert_eq!(pid, child.pid()),
            Err(Error::Sideband { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
