//! Writing a trace.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::error::TraceError;
use super::meta::{Allocations, ClockPair, Meta, PhaseGuided};
use super::row::{
    AllocationRow, KernelSymbolRow, MapRow, MarkerRow, QuantumRow, Row, SampleRow, StackRow, ThreadRow,
};
use super::span::SampleSpan;
use super::table::Table;
use super::totals::Totals;
use super::{BATCH_BYTES, BATCH_TIME, DEFERRED_FILE, FORMAT_VERSION, META_FILE};

/// Frames that the writer remembers to recognise stacks it has written; when there are more, it begins anew.
const KNOWN_FRAMES_MAX: usize = 4 << 20;

/// A trace being written.
///
/// Rows are kept until [`BATCH_BYTES`] wait, or a call of [`TraceWriter::tick`] finds them, and then written for all
/// tables together, what is referred to before what refers to it. Dropping the writer writes the rows it holds, but
/// leaves the trace marked as incomplete; [`TraceWriter::finish`] marks it complete.
pub struct TraceWriter {
    folder: PathBuf,
    meta: Meta,
    quanta: Table<QuantumRow>,
    samples: Table<SampleRow>,
    stacks: Table<StackRow>,
    maps: Table<MapRow>,
    threads: Table<ThreadRow>,
    kernel_symbols: Table<KernelSymbolRow>,
    markers: Table<MarkerRow>,
    /// Made for the first row: most traces have none.
    allocations: Option<Table<AllocationRow>>,
    known_stacks: HashMap<(Vec<u64>, bool), u32>,
    known_frames: usize,
    next_stack: u32,
    /// When rows were last written.
    written: Instant,
    /// Rows wait.
    waiting: bool,
    /// A write failed: a further batch would follow half a batch, where no reader finds it.
    failed: bool,
}

impl TraceWriter {
    /// Creates the folder, its tables and `meta.json`. `format`, `complete`, `totals` and `rows` of `meta` are set here.
    ///
    /// # Errors
    /// [`TraceError::Exists`] when there is such a file or folder, [`TraceError::Create`] or [`TraceError::Write`] when the system
    /// refuses.
    pub fn create(folder: impl Into<PathBuf>, meta: Meta) -> Result<Self, TraceError> {
        let folder = folder.into();
        fs::create_dir(&folder).map_err(|reason| match reason.kind() {
            io::ErrorKind::AlreadyExists => TraceError::Exists(folder.clone()),
            _ => TraceError::Create { path: folder.clone(), reason },
        })?;
        Self::begin(&folder, meta).inspect_err(|_| {
            // Nothing that can be read, and in the way of the next try; what cannot be removed is said to be there by that.
            let _ = fs::remove_dir_all(&folder);
        })
    }

    /// Creates a trace that is of use as a whole only, and writes it: nothing of it is left where `write` fails.
    pub(crate) fn whole<T, E: From<TraceError>>(
        folder: &Path,
        meta: Meta,
        write: impl FnOnce(Self) -> Result<T, E>,
    ) -> Result<T, E> {
        write(Self::create(folder, meta)?).inspect_err(|_| {
            // A part of it would be in the way of another try; what cannot be removed is said to be there by that.
            let _ = fs::remove_dir_all(folder);
        })
    }

    /// The first files in a folder that is empty. The last one is what makes it a trace: whoever finds that finds the locked tables, too, by
    /// which a recording that goes on is known.
    fn begin(folder: &Path, meta: Meta) -> Result<Self, TraceError> {
        let meta = Meta { format: FORMAT_VERSION, complete: false, totals: None, rows: [].into(), ..meta };
        let writer = Self {
            quanta: Table::create(folder)?,
            samples: Table::create(folder)?,
            stacks: Table::create(folder)?,
            maps: Table::create(folder)?,
            threads: Table::create(folder)?,
            kernel_symbols: Table::create(folder)?,
            markers: Table::create(folder)?,
            allocations: None,
            known_stacks: HashMap::new(),
            known_frames: 0,
            next_stack: 0,
            written: Instant::now(),
            waiting: false,
            failed: false,
            folder: folder.to_owned(),
            meta,
        };
        write_meta(folder, &writer.meta)?;
        Ok(writer)
    }

    /// The folder being written.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of the trace for what becomes rows at its end only ([`crate::source::Source::defer`]). Readers look for rows there as long
    /// as the trace is not complete; [`TraceWriter::finish`] removes it.
    #[must_use]
    pub fn deferred_file(&self) -> PathBuf {
        self.folder.join(DEFERRED_FILE)
    }

    /// Bytes of the tables' files, without the rows that wait.
    ///
    /// # Errors
    /// [`TraceError::Read`] when a file has gone.
    pub fn bytes_written(&self) -> Result<u64, TraceError> {
        let files = fs::read_dir(&self.folder).and_then(|entries| {
            entries.map(|entry| entry.and_then(|entry| entry.metadata()).map(|file| file.len())).sum()
        });
        files.map_err(|reason| TraceError::Read { path: self.folder.clone(), reason })
    }

    /// Adds a quantum.
    ///
    /// # Errors
    /// [`TraceError::Write`], as for every method that adds a row: the rows that waited could not be written.
    pub fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        self.add(row, |writer| &mut writer.quanta)
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        self.add(row, |writer| &mut writer.samples)
    }

    /// Adds samples of one quantum.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn samples(&mut self, span: &SampleSpan<'_>) -> Result<(), TraceError> {
        self.samples.extend(span.len(), span.bytes(), |columns| span.push_to(columns));
        self.added(|writer| &mut writer.samples)
    }

    /// Adds a mapping.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        self.add(row, |writer| &mut writer.maps)
    }

    /// Adds a change in a thread's life.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        self.add(row, |writer| &mut writer.threads)
    }

    /// Adds a kernel function (see [`crate::symbol::kernel_symbols`]).
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn kernel_symbol(&mut self, row: &KernelSymbolRow) -> Result<(), TraceError> {
        self.add(row, |writer| &mut writer.kernel_symbols)
    }

    /// Adds a marker.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn marker(&mut self, row: &MarkerRow) -> Result<(), TraceError> {
        self.add(row, |writer| &mut writer.markers)
    }

    /// Adds an allocated object; its stack must have been added before.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn allocation(&mut self, row: &AllocationRow) -> Result<(), TraceError> {
        let table = match &mut self.allocations {
            Some(table) => table,
            None => self.allocations.insert(Table::create(&self.folder)?),
        };
        table.append(row);
        let full = table.pending_bytes() >= BATCH_BYTES;
        self.waiting = true;
        if full { self.flush() } else { Ok(()) }
    }

    /// How the allocations were recorded, for `meta.json`, where [`TraceWriter::finish`] writes it. Makes their table also when it
    /// has no row.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn allocations_recorded(&mut self, how: Allocations) -> Result<(), TraceError> {
        self.meta.allocations = Some(how);
        if self.allocations.is_none() {
            self.allocations = Some(Table::create(&self.folder)?);
        }
        Ok(())
    }

    /// How samples were paused, for `meta.json`, where [`TraceWriter::finish`] writes it.
    pub fn phase_guided(&mut self, how: PhaseGuided) {
        self.meta.phase_guided = Some(how);
    }

    /// The number of a stack for [`SampleRow::stack`]. `frames` are addresses, innermost first; `truncated` says that
    /// outer ones are missing. Equal stacks get equal numbers as long as the writer remembers them.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn stack(&mut self, frames: &[u64], truncated: bool) -> Result<u32, TraceError> {
        let key = (frames.to_vec(), truncated);
        if let Some(&id) = self.known_stacks.get(&key) {
            return Ok(id);
        }
        let id = self.next_stack;
        let row = StackRow { id, frames: frames.to_vec(), truncated };
        self.add(&row, |writer| &mut writer.stacks)?;
        self.next_stack += 1;
        if self.known_frames + frames.len() > KNOWN_FRAMES_MAX {
            self.known_stacks.clear();
            self.known_frames = 0;
        }
        self.known_frames += frames.len();
        self.known_stacks.insert(key, id);
        Ok(id)
    }

    /// Adds a moment on three clocks to `meta.json`.
    ///
    /// # Errors
    /// [`TraceError::Write`] when `meta.json` could not be replaced; the old one stays.
    pub fn clock_pair(&mut self, pair: ClockPair) -> Result<(), TraceError> {
        self.meta.clock.pairs.push(pair);
        write_meta(&self.folder, &self.meta)
    }

    /// Adds what has to be known of the source to `meta.json`, where [`TraceWriter::finish`] writes it.
    pub fn remark(&mut self, remarks: &[String]) {
        remarks.iter().for_each(|remark| self.meta.remark(remark));
    }

    /// Adds what the traces lacked from which this one is made to `meta.json`, where [`TraceWriter::finish`] writes it; each
    /// sentence once.
    pub fn missing(&mut self, sentences: &[String]) {
        for sentence in sentences {
            if !self.meta.missing.contains(sentence) {
                self.meta.missing.push(sentence.clone());
            }
        }
    }

    /// Writes what waits, unless something was written less than half of [`BATCH_TIME`] ago. To be called at least once in
    /// [`BATCH_TIME`], as soon as rows were added, if none is to wait for longer: also when it is called no more often than that.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn tick(&mut self) -> Result<(), TraceError> {
        if self.waiting && self.written.elapsed() >= BATCH_TIME / 2 { self.flush() } else { Ok(()) }
    }

    /// Writes what waits in every table, samples last, because they name rows of the others.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn flush(&mut self) -> Result<(), TraceError> {
        (self.waiting, self.written) = (false, Instant::now());
        self.failed = true;
        self.stacks.write_batch()?;
        self.maps.write_batch()?;
        self.threads.write_batch()?;
        self.kernel_symbols.write_batch()?;
        self.markers.write_batch()?;
        if let Some(allocations) = &mut self.allocations {
            allocations.write_batch()?;
        }
        self.quanta.write_batch()?;
        self.samples.write_batch()?;
        self.failed = false;
        Ok(())
    }

    /// Writes what waits, ends every stream, and marks the trace as complete.
    ///
    /// # Errors
    /// As [`TraceWriter::quantum`].
    pub fn finish(mut self, totals: Totals) -> Result<(), TraceError> {
        self.flush()?;
        let rows = [
            (StackRow::TABLE, self.stacks.finish()?),
            (MapRow::TABLE, self.maps.finish()?),
            (ThreadRow::TABLE, self.threads.finish()?),
            (KernelSymbolRow::TABLE, self.kernel_symbols.finish()?),
            (MarkerRow::TABLE, self.markers.finish()?),
            (QuantumRow::TABLE, self.quanta.finish()?),
            (SampleRow::TABLE, self.samples.finish()?),
        ];
        self.meta.rows = rows.into_iter().map(|(table, rows)| (table.to_owned(), rows)).collect();
        if let Some(allocations) = &mut self.allocations {
            self.meta.rows.insert(AllocationRow::TABLE.to_owned(), allocations.finish()?);
        }
        self.meta.totals = Some(totals);
        self.meta.complete = true;
        write_meta(&self.folder, &self.meta)?;
        match fs::remove_file(self.deferred_file()) {
            Err(reason) if reason.kind() != io::ErrorKind::NotFound => {
                Err(TraceError::Write { path: self.deferred_file(), reason })
            }
            _ => Ok(()),
        }
    }

    fn add<R: Row>(&mut self, row: &R, table: impl Fn(&mut Self) -> &mut Table<R>) -> Result<(), TraceError> {
        table(self).append(row);
        self.added(table)
    }

    /// Rows were added to this table.
    fn added<R: Row>(&mut self, table: impl Fn(&mut Self) -> &mut Table<R>) -> Result<(), TraceError> {
        // A look at the clock costs as much as a column: `tick` has it.
        self.waiting = true;
        if table(self).pending_bytes() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        if !self.failed {
            // Whoever drops an unfinished writer already has an error to report; this one would hide it.
            let _ = self.flush();
        }
    }
}

/// Replaces `meta.json` in one step, so that a reader or a crash sees the old one or the new one.
fn write_meta(folder: &Path, meta: &Meta) -> Result<(), TraceError> {
    let new = folder.join("meta.json.new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        serde_json::to_writer_pretty(&mut file, meta)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, folder.join(META_FILE))
    };
    write().map_err(|reason| TraceError::Write { path: folder.join(META_FILE), reason })
}
