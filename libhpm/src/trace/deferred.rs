//! The rows of a recording that has not come to its end and has not made rows yet.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use super::reader::TraceReader;
use super::row::{MapRow, QuantumRow, Row as _, SampleRow, StackRow, ThreadRow};
use super::writer::TraceWriter;
use crate::source::driver::Frames;

/// Tables of what is deferred; a recording writes everything else at once.
pub(super) const DEFERRED: [&str; 5] =
    [StackRow::TABLE, MapRow::TABLE, ThreadRow::TABLE, QuantumRow::TABLE, SampleRow::TABLE];

/// Tables made of what was deferred. Their files have no name any more, so that nothing is left of them, however the reader ends.
pub(super) struct Deferred {
    tables: HashMap<&'static str, File>,
    /// Why not all of it could be read.
    pub(super) failure: Option<String>,
}

impl Deferred {
    /// Makes rows of a trace's file, in the folder for temporary files; without any where that cannot be written.
    pub(super) fn of(trace: &TraceReader, file: File) -> Self {
        let mut made = Self { tables: HashMap::new(), failure: None };
        made.failure = made.make(trace, file).err().map(|error| error.to_string());
        made
    }

    fn make(&mut self, trace: &TraceReader, file: File) -> crate::Result<()> {
        let aside =
            |reason: io::Error| crate::Error::io("make rows in the folder for temporary files")(reason);
        let temp = tempfile::tempdir().map_err(aside)?;
        let folder = temp.path().join("rows.hpm");
        let mut writer = TraceWriter::create(&folder, trace.meta().clone())?;
        let there = (trace.stored::<MapRow>(), trace.stored::<ThreadRow>());
        let whole = Frames::of(file, &trace.deferred_file())
            .and_then(|mut frames| frames.hand_over_all(trace.meta(), there, &mut writer));
        // Writes what waits, unless it was writing that failed.
        drop(writer);
        for table in DEFERRED {
            self.tables.insert(table, File::open(folder.join(super::table_file(table))).map_err(aside)?);
        }
        whole
    }

    /// Where a table is; `None` for what was not deferred.
    pub(super) fn table(&self, table: &str) -> Option<PathBuf> {
        let file = self.tables.get(table)?;
        Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }
}
