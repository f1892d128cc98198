//! One table being written: rows collect in memory and become batches of an Arrow IPC stream.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};

use super::error::TraceError;
use super::row::{Columns as _, Row};

/// Bytes that are handed to the operating system at once. A batch of a second at a usual rate is less: one system call.
const WRITE_BYTES: usize = 256 << 10;

/// A table being written.
pub(super) struct Table<R: Row> {
    path: PathBuf,
    schema: SchemaRef,
    stream: StreamWriter<BufWriter<File>>,
    pending: R::Columns,
    pending_rows: usize,
    pending_bytes: usize,
    rows: u64,
}

impl<R: Row> Table<R> {
    /// Creates the file in `folder` and writes the schema.
    pub(super) fn create(folder: &Path) -> Result<Self, TraceError> {
        let path = folder.join(super::table_file(R::TABLE));
        let schema = R::schema();
        let create = || -> Result<_, ArrowError> {
            let file = File::create_new(&path)?;
            // Whoever reads the table sees by it that somebody writes; where locks are not known nobody sees it.
            let _ = file.try_lock();
            let mut stream = StreamWriter::try_new(BufWriter::with_capacity(WRITE_BYTES, file), &schema)?;
            stream.flush()?;
            Ok(stream)
        };
        let stream = create().map_err(|error| refused(&path, error))?;
        Ok(Self {
            path,
            schema,
            stream,
            pending: R::Columns::default(),
            pending_rows: 0,
            pending_bytes: 0,
            rows: 0,
        })
    }

    /// Keeps a row for the next batch.
    pub(super) fn append(&mut self, row: &R) {
        self.pending.push(row);
        self.pending_rows += 1;
        self.pending_bytes += row.bytes();
    }

    /// Keeps many rows for the next batch, of about so many bytes together, which `push` adds to the columns.
    pub(super) fn extend(&mut self, rows: usize, bytes: usize, push: impl FnOnce(&mut R::Columns)) {
        push(&mut self.pending);
        self.pending_rows += rows;
        self.pending_bytes += bytes;
    }

    /// About how many bytes wait for the next batch.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Writes what waits as one batch, and hands it to the operating system.
    pub(super) fn write_batch(&mut self) -> Result<(), TraceError> {
        if self.pending_rows == 0 {
            return Ok(());
        }
        let columns = self.pending.take();
        self.rows += std::mem::take(&mut self.pending_rows) as u64;
        self.pending_bytes = 0;
        RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)
            .and_then(|batch| self.stream.write(&batch))
            .and_then(|()| self.stream.flush())
            .map_err(|error| refused(&self.path, error))
    }

    /// Writes the last batch and the end of the stream, and waits until the disk has them. Returns the rows of the table.
    pub(super) fn finish(&mut self) -> Result<u64, TraceError> {
        self.write_batch()?;
        self.stream
            .finish()
            .and_then(|()| Ok(self.stream.get_mut().flush()?))
            .and_then(|()| Ok(self.stream.get_mut().get_ref().sync_all()?))
            .map_err(|error| refused(&self.path, error))?;
        Ok(self.rows)
    }
}

fn refused(path: &Path, error: ArrowError) -> TraceError {
    let reason = match error {
        ArrowError::IoError(_, reason) => reason,
        other => io::Error::other(other),
    };
    TraceError::Write { path: path.to_owned(), reason }
}
