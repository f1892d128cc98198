//! What a program allocates: the library that is preloaded into it, or probes in it where it is linked statically, and what they
//! recorded as a table of the trace.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libhpm::allocation::log::{self, LIBRARY, VARIABLES};
use libhpm::allocation::probes::{Probes, is_static};
use libhpm::allocation::{Allocated, TraceClock};
use libhpm::session::Target;
use libhpm::sys::clock::ClockPair;
use libhpm::trace::{AllocationRow, RotatingWriter, TraceWriter};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tempfile::TempDir;

use crate::output::{counted, grouped};
use crate::workload::{Workload, program_file};

/// The library, and the folder for its logs while the program runs.
pub(super) struct Tracker {
    library: PathBuf,
    folder: TempDir,
    sampled_bytes: u64,
    /// In a program that is linked statically; what it starts may have the library all the same.
    probes: Option<Probes>,
}

impl Tracker {
    /// Records one allocation in so many bytes; with 0 all.
    ///
    /// # Errors
    /// The library is not there, or there is no room for logs.
    pub(super) fn new(sampled_bytes: u64) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("hpmctl-allocations-").tempdir();
        let folder = folder.context("cannot make a folder for what the program allocates (TMPDIR)")?;
        Ok(Self { library: library()?, folder, sampled_bytes, probes: None })
    }

    /// What the program's environment needs. What is preloaded already comes after the library.
    pub(super) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let mut preload = self.library.clone().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let [folder, bytes, _] = VARIABLES;
        vec![
            ("LD_PRELOAD", preload),
            (folder, self.folder.path().into()),
            (bytes, self.sampled_bytes.to_string().into()),
        ]
    }

    /// Takes probes in a program that the library cannot be loaded into. What is no program is left to the execve to refuse.
    ///
    /// # Errors
    /// It defines no allocator, or the kernel allows no probes.
    pub(super) fn attach(&mut self, command: &[OsString], workload: &Workload) -> Result<()> {
        let Ok(program) = program_file(command) else { return Ok(()) };
        if let (Target::Process(pid), true) = (workload.target(), is_static(&program)) {
            // Some twenty descriptors a CPU; the program was forked before, and keeps the limit that it had.
            let (_, most) =
                getrlimit(Resource::RLIMIT_NOFILE).context("cannot ask how many files may be open")?;
            setrlimit(Resource::RLIMIT_NOFILE, most, most).context("cannot open more files")?;
            self.probes = Some(Probes::of_program(pid, &program)?);
        }
        Ok(())
    }

    /// Descriptors that become readable when there is much to take.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.probes.iter().flat_map(Probes::descriptors)
    }

    /// Takes what probes have seen.
    pub(super) fn take(&mut self) {
        self.probes.iter_mut().for_each(Probes::take);
    }

    /// Writes the objects into the trace; what is to be said of them.
    ///
    /// # Errors
    /// The logs cannot be read, or the trace not be written.
    pub(super) fn write(self, writer: &mut RotatingWriter, source: &str) -> Result<String> {
        let clock = if source == "driver" { TraceClock::Tsc } else { TraceClock::MonotonicRaw };
        let (mut objects, mut how) = log::read(self.folder.path(), clock, ClockPair::now())
            .context("cannot read what the program allocated")?;
        let probed = self.probes.map(|probes| probes.finish(clock));
        let by_probes = probed.is_some();
        if let Some((more, of_probes)) = probed {
            objects.extend(more);
            how = how.with(of_probes);
        }
        let trace = writer.current();
        objects.iter().try_for_each(|object| write(trace, object))?;
        trace.allocations_recorded(how)?;
        if how.processes == 0 {
            return Ok("warning: no allocation was recorded: the program that allocates is linked statically and started by \
                       another one, or runs with other rights"
                .to_owned());
        }
        let mut text = format!(
            "{} of {}",
            counted(objects.len() as u64, "allocation"),
            counted(how.processes, "program")
        );
        if how.sampled_bytes > 0 {
            text += &format!(", one in {} bytes", grouped(how.sampled_bytes));
        }
        if by_probes {
            text += ", all of the program that is linked statically, by probes that stop it at each call";
        }
        let lost = if by_probes { "may be missing" } else { "found no room" };
        for (count, what) in [(how.lost, lost), (how.damaged, "logs were damaged")] {
            if count > 0 {
                text += &format!(", {} {what}", grouped(count));
            }
        }
        Ok(text)
    }
}

fn write(trace: &mut TraceWriter, object: &Allocated) -> Result<()> {
    // Frame pointers need not lead to the outermost call.
    let stack = trace.stack(&object.frames, true)?;
    Ok(trace.allocation(&AllocationRow {
        tsc: object.tsc,
        freed_tsc: object.freed_tsc,
        pid: object.pid,
        tid: object.tid,
        address: object.address,
        bytes: object.bytes,
        stack: Some(stack),
    })?)
}

/// The library beside this program, as it is built, or where it is installed.
fn library() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where hpmctl is")?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places =
        [beside.join(LIBRARY), beside.join("../lib/hpm").join(LIBRARY), beside.join("../lib").join(LIBRARY)];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.canonicalize().unwrap_or_else(|_| place.clone())),
        None => bail!(
            "{LIBRARY} is not beside {} nor in ../lib/hpm; build it (cargo build --release -p hpm-allocations), or install it there",
            own.display()
        ),
    }
}
