//! Opening what was recorded, whoever did: a trace folder, or a file of `perf record`, which becomes one.

use std::ops::Deref;
use std::path::Path;

use super::perf_data;
use crate::for_now::ForNow;
use crate::trace::TraceReader;
use crate::{Error, Result};

/// A trace that can be read, and the folder that it is in, if that is only for now.
pub struct Opened {
    reader: TraceReader,
    folder: Option<ForNow>,
    remarks: Vec<String>,
}

impl Opened {
    /// What is missing or inexact in a trace that was made of a file, one sentence each.
    #[must_use]
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What to say to who wants to see quanta, of a trace that has none (`which`).
    #[must_use]
    pub fn lacks_quanta(&self, which: &str) -> String {
        let cure = match self.folder {
            Some(_) => "`perf record --switch-events` writes down what they are made of",
            None => "record again",
        };
        format!("{} holds no quantum {which}; {cure}", self.name().display())
    }
}

impl Deref for Opened {
    type Target = TraceReader;

    fn deref(&self) -> &TraceReader {
        &self.reader
    }
}

/// Opens a trace folder, or a file of `perf record`, of which a trace is made in the folder for temporary files (TMPDIR): that is
/// removed when this is dropped, and when a signal ends the program ([`crate::for_now`]).
///
/// # Errors
/// [`Error::Trace`] or [`Error::PerfData`]: it is neither, or cannot be read; [`Error::Io`]: there is no room for the trace.
pub fn open_trace(path: &Path) -> Result<Opened> {
    if !perf_data::is_perf_data(path) {
        return Ok(Opened { reader: TraceReader::open(path)?, folder: None, remarks: Vec::new() });
    }
    let doing = || Error::io(format!("make a folder for what {} holds", path.display()));
    let folder = ForNow::new().map_err(doing())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let trace = folder.path().join(format!("{name}.hpm"));
    let remarks = perf_data::import(path, &trace)?;
    Ok(Opened { reader: TraceReader::open(trace)?.called(path), folder: Some(folder), remarks })
}
