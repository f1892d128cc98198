//! What a program allocates: the library that is preloaded into it, and its logs as a table of the trace.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use libhpm::allocation_log::{self, LIBRARY, TraceClock, VARIABLES};
use libhpm::sys::clock::ClockPair;
use libhpm::trace::{AllocationRow, RotatingWriter};
use tempfile::TempDir;

use crate::output::grouped;

/// The library, and the folder for its logs while the program runs.
pub(super) struct Tracker {
    library: PathBuf,
    folder: TempDir,
    sampled_bytes: u64,
}

impl Tracker {
    /// Records one allocation in so many bytes; with 0 all.
    ///
    /// # Errors
    /// The library is not there, or there is no room for logs.
    pub(super) fn new(sampled_bytes: u64) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("hpmctl-allocations-").tempdir();
        let folder = folder.context("cannot make a folder for what the program allocates (TMPDIR)")?;
        Ok(Self { library: library()?, folder, sampled_bytes })
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

    /// Writes the objects into the trace; what is to be said of them.
    ///
    /// # Errors
    /// The logs cannot be read, or the trace not be written.
    pub(super) fn write(self, writer: &mut RotatingWriter, source: &str) -> Result<String> {
        let clock = if source == "driver" { TraceClock::Tsc } else { TraceClock::MonotonicRaw };
        let (objects, how) = allocation_log::read(self.folder.path(), clock, ClockPair::now())
            .context("cannot read what the program allocated")?;
        let trace = writer.current();
        for object in &objects {
            // Frame pointers need not lead to the outermost call.
            let stack = trace.stack(&object.frames, true)?;
            trace.allocation(&AllocationRow {
                tsc: object.tsc,
                freed_tsc: object.freed_tsc,
                pid: object.pid,
                tid: object.tid,
                address: object.address,
                bytes: object.bytes,
                stack: Some(stack),
            })?;
        }
        trace.allocations_recorded(how)?;
        if how.processes == 0 {
            return Ok("warning: no allocation was recorded: the program is linked statically, or runs with other rights"
                .to_owned());
        }
        let mut text =
            format!("{} allocations of {} programs", grouped(objects.len() as u64), grouped(how.processes));
        if how.sampled_bytes > 0 {
            text += &format!(", one in {} bytes", grouped(how.sampled_bytes));
        }
        for (count, what) in [(how.lost, "found no room"), (how.damaged, "logs were damaged")] {
            if count > 0 {
                text += &format!(", {} {what}", grouped(count));
            }
        }
        Ok(text)
    }
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
