//! Probes in programs (uprobes): events that happen where a program comes by a place in a file.
//!
//! They are defined in the kernel's tracing file system (Documentation/trace/uprobetracer.rst). perf_event can make probes without a
//! definition, too, but each event then has a probe of its own: with one for each CPU, a thread that changes CPUs between two of them is seen
//! twice or not at all; and a fork that inherits such a probe fails.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::EventId;

/// Where probes are defined, in the tracing file system.
const DEFINITIONS: &str = "uprobe_events";
/// How the group of a process begins; its PID follows.
const GROUP: &str = "hpm_";

/// Places in a file with probes, as long as this is there. Events of them must be closed before.
#[derive(Debug)]
pub struct Probes {
    tracing: OwnedFd,
    program: File,
    group: String,
    defined: u32,
}

impl Probes {
    /// For the functions of a program.
    ///
    /// # Errors
    /// The program cannot be read; EPERM for who is not root; ENODEV when the kernel has no tracing, ENOENT when it has no probes.
    pub fn new(program: &Path) -> io::Result<Self> {
        static GROUPS: AtomicU32 = AtomicU32::new(0);
        let program = File::open(program)?;
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        let group = format!("{GROUP}{}_{number}", std::process::id());
        let probes = Self { tracing: tracing()?, program, group, defined: 0 };
        probes.remove_left_over()?;
        Ok(probes)
    }

    /// The event that the program comes to a byte of its file, or returns from the function that begins there.
    ///
    /// # Errors
    /// EINVAL for a place where there is no instruction.
    pub fn define(&mut self, offset: u64, at_return: bool) -> io::Result<EventId> {
        let Self { group, defined: number, .. } = self;
        let kind = if at_return { 'r' } else { 'p' };
        // By its descriptor: a path may have blanks, and may be another file by now.
        let file = self.program.as_raw_fd();
        let definition = format!("{kind}:{group}/probe{number} /proc/self/fd/{file}:{offset:#x}");
        self.command(&definition)?;
        let id = self.open(&format!("events/{}/probe{}/id", self.group, self.defined), OFlags::RDONLY);
        self.defined += 1;
        let id = io::read_to_string(id?)?;
        Ok(EventId::tracepoint(id.trim().parse().map_err(io::Error::other)?))
    }

    /// Defines a probe, or removes one.
    fn command(&self, text: &str) -> io::Result<()> {
        // With O_TRUNC the kernel would remove everybody's.
        self.open(DEFINITIONS, OFlags::WRONLY | OFlags::APPEND)?.write_all(text.as_bytes())
    }

    fn open(&self, path: &str, flags: OFlags) -> io::Result<File> {
        Ok(openat(&self.tracing, path, flags | OFlags::CLOEXEC, Mode::empty())?.into())
    }

    /// Removes what processes left that were killed. Of one that lives in another PID namespace, the kernel keeps what is in use.
    fn remove_left_over(&self) -> io::Result<()> {
        for line in io::read_to_string(self.open(DEFINITIONS, OFlags::RDONLY)?)?.lines() {
            let name = line.split([':', ' ']).nth(1).unwrap_or_default();
            let pid = name.strip_prefix(GROUP).and_then(|rest| rest.split('_').next());
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _in_use = self.command(&format!("-:{name}"));
            }
        }
        Ok(())
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        for number in 0..self.defined {
            let removal = format!("-:{}/probe{number}", self.group);
            // In use for a moment longer where a thread that has an event of it just ends. What stays is removed by the next one who uses probes.
            for _ in 0..10 {
                match self.command(&removal) {
                    Err(reason) if reason.raw_os_error() == Some(libc::EBUSY) => {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// The kernel's tracing file system, mounted where nobody else sees it: it need not be mounted anywhere.
fn tracing() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
