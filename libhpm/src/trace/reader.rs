//! Reading a trace.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, Read as _, Take};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use serde::Deserialize;

use super::deferred::{DEFERRED, Deferred};
use super::error::TraceError;
use super::meta::Meta;
use super::row::{Row, SampleRow};
use super::stream::BatchStream;
use super::{DEFERRED_FILE, FORMAT_VERSION, META_FILE};

/// A trace being read. It may still be growing.
pub struct TraceReader {
    folder: PathBuf,
    /// What the user calls it.
    name: PathBuf,
    meta: Meta,
    /// Bytes of the samples' table when a trace was opened that still grows: samples are written after their quanta, so that those that
    /// are read have theirs, whichever table is read first.
    samples_bytes: Option<u64>,
    /// Once somebody asks for it.
    deferred: OnceLock<Option<Deferred>>,
}

/// What every version of `meta.json` says.
#[derive(Deserialize)]
struct Head {
    format: u32,
    hpm_version: Option<String>,
}

impl TraceReader {
    /// Opens a trace folder and reads its `meta.json`.
    ///
    /// # Errors
    /// [`TraceError::NotATrace`], [`TraceError::Version`], [`TraceError::Meta`] or [`TraceError::Read`].
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, TraceError> {
        let folder = folder.into();
        let path = folder.join(META_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(reason) => {
                return Err(match reason.kind() {
                    io::ErrorKind::NotFound if folder.exists() => TraceError::NotATrace(folder),
                    io::ErrorKind::NotFound => TraceError::Read { path: folder, reason },
                    io::ErrorKind::NotADirectory => TraceError::NotATrace(folder),
                    _ => TraceError::Read { path, reason },
                });
            }
        };
        let damaged = |reason| TraceError::Meta { path: path.clone(), reason };
        let head: Head = serde_json::from_str(&text).map_err(damaged)?;
        if head.format != FORMAT_VERSION {
            let recorded_by = head.hpm_version.unwrap_or_else(|| "unknown".to_owned());
            return Err(TraceError::Version { path: folder, found: head.format, recorded_by });
        }
        let meta: Meta = serde_json::from_str(&text).map_err(damaged)?;
        let samples = || fs::metadata(folder.join(super::table_file(SampleRow::TABLE)));
        let samples_bytes = if meta.complete { None } else { samples().ok().map(|file| file.len()) };
        Ok(Self { name: folder.clone(), folder, meta, samples_bytes, deferred: OnceLock::new() })
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same, called by the path of what its folder was made from for now.
    #[must_use]
    pub fn called(self, name: impl Into<PathBuf>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// The path by which the user knows it: its folder, unless it is called otherwise.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// What `meta.json` says.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether the trace is still being recorded, by a process that lives.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        let table = self.folder.join(super::table_file(SampleRow::TABLE));
        let locked = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        !self.meta.complete && File::open(table).is_ok_and(locked)
    }

    /// What is known to be missing before a table is read: what comes after the end of a recording that has none, and what
    /// [`Meta::missing`] says. Sentences.
    #[must_use]
    pub fn lacking(&self) -> Vec<String> {
        let unfinished = match (self.meta.complete, self.is_growing()) {
            (true, _) => None,
            (false, true) => Some("the recording goes on: what comes later is missing"),
            (false, false) => Some(super::meta::NO_PROPER_END),
        };
        unfinished.map(str::to_owned).into_iter().chain(self.meta.missing.iter().cloned()).collect()
    }

    /// The rows of one table in the order in which they were written, up to the last whole batch:
    /// `reader.rows::<SampleRow>()`. Ask [`Rows::cut`] afterwards whether that was all of them.
    #[must_use]
    pub fn rows<R: Row>(&self) -> Rows<R> {
        Rows { batches: self.batches(), batch: None, index: 0 }
    }

    /// Whether the trace has a table at all, or had one when it was complete: of allocations it need not have one.
    #[must_use]
    pub fn has<R: Row>(&self) -> bool {
        self.was_written::<R>() || self.folder.join(super::table_file(R::TABLE)).exists()
    }

    /// Whether the complete trace had this table, with or without rows.
    fn was_written<R: Row>(&self) -> bool {
        self.meta.complete && self.meta.rows.contains_key(R::TABLE)
    }

    /// The same rows as they are stored, in Arrow's record batches.
    #[must_use]
    pub fn batches<R: Row>(&self) -> Batches<R> {
        let deferred = if DEFERRED.contains(&R::TABLE) { self.deferred() } else { None };
        let failure = deferred.and_then(|deferred| deferred.failure.clone());
        match deferred.and_then(|deferred| deferred.table(R::TABLE)) {
            Some(path) => self.batches_at(&path, None, failure),
            None => self.stored_batches(failure),
        }
    }

    /// The rows that are in the table, and not those that have yet to be made ([`DEFERRED`]).
    pub(super) fn stored<R: Row>(&self) -> Rows<R> {
        Rows { batches: self.stored_batches(None), batch: None, index: 0 }
    }

    fn stored_batches<R: Row>(&self, failure: Option<String>) -> Batches<R> {
        let limit = self.samples_bytes.filter(|_| R::TABLE == SampleRow::TABLE);
        self.batches_at(&self.folder.join(super::table_file(R::TABLE)), limit, failure)
    }

    /// The batches in the first bytes of a table's file, which has not all of them for the reason of `failure`.
    fn batches_at<R: Row>(&self, path: &Path, limit: Option<u64>, failure: Option<String>) -> Batches<R> {
        let expected = self.meta.complete.then(|| self.meta.rows.get(R::TABLE).copied().unwrap_or(0));
        let mut batches = Batches { stream: None, read: 0, expected, failure, row: PhantomData };
        let limit = limit.unwrap_or(u64::MAX);
        match File::open(path) {
            Ok(file) => match BatchStream::open(BufReader::new(file).take(limit), R::schema()) {
                Ok(stream) => batches.stream = Some(stream),
                Err(error) => batches.failure = Some(reason(error)),
            },
            Err(_) if self.meta.complete && !self.was_written::<R>() => {}
            Err(error) => batches.failure = Some(error.to_string()),
        }
        batches
    }

    pub(super) fn deferred_file(&self) -> PathBuf {
        self.folder.join(DEFERRED_FILE)
    }

    /// What the recording has not made rows of, where there is such.
    fn deferred(&self) -> Option<&Deferred> {
        let file = self.deferred_file();
        // Where everything is in the tables the file may be there still, if its removal failed; it goes when the recording has ended, so
        // that nobody knows what to open twice.
        let deferred = self.deferred.get_or_init(|| {
            let found = File::open(file).ok().filter(|_| !self.meta.complete)?;
            Some(Deferred::of(self, found))
        });
        deferred.as_ref()
    }
}

/// Iterator over the rows of one table.
pub struct Rows<R: Row> {
    batches: Batches<R>,
    batch: Option<(R::Arrays, usize)>,
    index: usize,
}

/// Iterator over the record batches of one table, whose columns are [`Row::schema`]'s.
pub struct Batches<R: Row> {
    stream: Option<BatchStream<Take<BufReader<File>>>>,
    read: u64,
    expected: Option<u64>,
    failure: Option<String>,
    row: PhantomData<R>,
}

/// A table that ends before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The table.
    pub table: &'static str,
    /// Rows that could be read.
    pub rows: u64,
    /// Rows that were written, where `meta.json` knows.
    pub written: Option<u64>,
    /// What stopped the reader; `None` when the file ends cleanly behind a batch.
    pub failure: Option<String>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, rows, .. } = self;
        match self.written {
            Some(0) => write!(f, "the table `{table}` is missing or damaged; it had no rows")?,
            Some(written) => write!(
                f,
                "the table `{table}` is cut off or damaged; its first {rows} rows were read of {written}"
            )?,
            None => write!(f, "the table `{table}` is cut off or damaged; its first {rows} rows were read")?,
        }
        match &self.failure {
            Some(failure) => write!(f, " ({failure})"),
            None => Ok(()),
        }
    }
}

impl<R: Row> Rows<R> {
    /// Whether rows are missing at the end of the table: see [`Batches::cut`].
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        self.batches.cut()
    }
}

impl<R: Row> Batches<R> {
    /// Whether rows are missing at the end of the table, or its file is damaged; meaningful once the iterator has ended. A trace that is not
    /// [`Meta::complete`] may also lack whole batches, which leaves no mark in the file.
    #[must_use]
    pub fn cut(&self) -> Option<Cut> {
        let missing = match self.expected {
            // That the file is gone or emptied shows in nothing else.
            Some(0) => self.read != 0 || self.failure.is_some(),
            // With all rows there, only the mark of the end can be damaged.
            Some(expected) => expected != self.read,
            None => self.failure.is_some(),
        };
        missing.then(|| Cut {
            table: R::TABLE,
            rows: self.read,
            written: self.expected,
            failure: self.failure.clone(),
        })
    }

    /// The next batch with its columns.
    fn next_arrays(&mut self) -> Option<(RecordBatch, R::Arrays)> {
        match self.stream.as_mut()?.next_batch() {
            Ok(Some(batch)) => {
                let arrays = R::arrays(&batch);
                if arrays.is_none() {
                    self.stream = None;
                    self.failure = Some("it has an empty cell where none may be".to_owned());
                }
                let arrays = arrays?;
                self.read += batch.num_rows() as u64;
                return Some((batch, arrays));
            }
            Ok(None) => {}
            Err(error) => self.failure = Some(reason(error)),
        }
        self.stream = None;
        None
    }
}

impl<R: Row> Iterator for Batches<R> {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        self.next_arrays().map(|(batch, _)| batch)
    }
}

fn reason(error: ArrowError) -> String {
    match error {
        // Without the name of the error's kind, which says nothing to people.
        ArrowError::IpcError(reason) | ArrowError::InvalidArgumentError(reason) => reason,
        other => other.to_string(),
    }
}

impl<R: Row> Iterator for Rows<R> {
    type Item = R;

    fn next(&mut self) -> Option<R> {
        loop {
            if let Some((arrays, rows)) = &self.batch
                && self.index < *rows
            {
                let row = R::row(arrays, self.index);
                self.index += 1;
                return Some(row);
            }
            let (batch, arrays) = self.batches.next_arrays()?;
            (self.batch, self.index) = (Some((arrays, batch.num_rows())), 0);
        }
    }
}
