//! What the driver and the kernel reported, kept as it was until there is time to make rows of it.
//!
//! Making rows of samples and mappings, and writing them, takes more instructions than everything else that a recording does while the
//! program runs. So [`Spool`] writes quanta, records and stacks from the driver's memory to a file, one system call for all that was
//! published on a CPU, and the side band's records as they are; [`Frames`] reads them when the program has ended, or when somebody reads the
//! trace before.
//!
//! # The file
//! Words of 8 bytes in the machine's order: a head of [`HEAD`], then frames, each with a head of [`FRAME_HEAD`]. The last one may be cut off.
//!
//! | frame | its head | then |
//! |---|---|---|
//! | [`QUANTA`] | quanta, bytes of all their records, bytes of all their stacks | the quanta as [`hpm_abi::Quantum`], the records and the stacks in the quanta's order |
//! | [`REPORTS`] | bytes, and the moment at which they were read, as TSC and as CLOCK_MONOTONIC_RAW | records of perf_event_open(2) |

use std::fs::File;
use std::io::{self, BufReader, IoSlice, Read as _, Write as _};
use std::path::{Path, PathBuf};

use hpm_abi::ABI_VERSION;
use zerocopy::IntoBytes as _;

use crate::session::{Batch, Quantum};
use crate::sideband::{Entry, Reports};
use crate::sys::clock::ClockPair;
use crate::sys::raw::{QUANTUM_WORDS, bytes_of, quanta_in};
use crate::sys::rings::Published;
use crate::trace::TraceError;
use crate::{Error, Result};

/// The first word of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"hpmspool");
/// The first words of frames.
const QUANTA: u64 = u64::from_le_bytes(*b"quanta..");
const REPORTS: u64 = u64::from_le_bytes(*b"reports.");
/// Words of the file's head: [`MAGIC`], the version of the driver's interface, and the members of [`Begun`].
const HEAD: usize = 5;
/// Words of a frame's head.
const FRAME_HEAD: usize = 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// What has to be known of a recording to make its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun {
    /// How many branch records of each sample are calls; `None`: they are none.
    pub(super) calls: Option<u32>,
    /// Rows of `maps` and `threads` that were made before, of what was there already.
    pub(crate) maps: u64,
    pub(crate) threads: u64,
}

/// The file being written.
pub(super) struct Spool {
    path: PathBuf,
    file: File,
}

impl Spool {
    /// Creates the file.
    pub(super) fn create(path: &Path) -> Result<Self, TraceError> {
        let refused = |reason| TraceError::Write { path: path.to_owned(), reason };
        Ok(Self { path: path.to_owned(), file: File::create_new(path).map_err(refused)? })
    }

    /// Writes the head, before anything else.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub(super) fn begin(&mut self, begun: Begun) -> Result<()> {
        let calls = begun.calls.map_or(u64::MAX, u64::from);
        let head = [MAGIC, ABI_VERSION.into(), calls, begun.maps, begun.threads];
        self.write(&mut [IoSlice::new(head.as_bytes())])
    }

    /// Writes what the kernel reported until this moment.
    ///
    /// # Errors
    /// [`TraceError::Write`]. Nothing may be written then.
    pub(super) fn reports(&mut self, reports: &Reports, now: ClockPair) -> Result<()> {
        let bytes = reports.bytes();
        let head = [REPORTS, bytes.len() as u64, now.tsc, now.monotonic_raw_ns];
        self.write(&mut [IoSlice::new(head.as_bytes()), IoSlice::new(bytes)])
    }

    /// Writes what was published, a frame for each CPU: on many of them it is too much to be read at once.
    ///
    /// # Errors
    /// [`TraceError::Write`], or [`Error::Corrupt`] as [`Batch::quanta`]. Nothing may be written then.
    pub(super) fn append(&mut self, batch: &Batch<'_>) -> Result<()> {
        let quanta = batch.quanta().collect::<Result<Vec<_>>>()?;
        quanta.chunk_by(|one, next| one.raw().cpu == next.raw().cpu).try_for_each(|of_cpu| self.frame(of_cpu))
    }

    fn frame(&mut self, quanta: &[Quantum<'_>]) -> Result<()> {
        let published = || quanta.iter().map(Quantum::published);
        let bytes = |part: for<'a> fn(Published<'a>) -> &'a [u8]| {
            published().map(part).map(<[u8]>::len).sum::<usize>()
        };
        let (records, stacks) = (bytes(|published| published.records), bytes(|published| published.stack));
        let head = [QUANTA, quanta.len() as u64, records as u64, stacks as u64];
        let parts: [for<'a> fn(Published<'a>) -> &'a [u8]; 3] = [
            |published| bytes_of(published.quantum),
            |published| published.records,
            |published| published.stack,
        ];
        let mut slices = vec![IoSlice::new(head.as_bytes())];
        for part in parts {
            slices.extend(published().map(part).filter(|bytes| !bytes.is_empty()).map(IoSlice::new));
        }
        self.write(&mut slices)
    }

    fn write(&mut self, slices: &mut [IoSlice<'_>]) -> Result<()> {
        let written = write_all(&mut self.file, slices);
        Ok(written.map_err(|reason| TraceError::Write { path: self.path.clone(), reason })?)
    }

    /// What was written.
    ///
    /// # Errors
    /// [`TraceError::Read`].
    pub(super) fn read(self) -> Result<Frames> {
        Frames::open(&self.path)
    }
}

/// [`io::Write::write_all`] of many slices.
fn write_all(file: &mut File, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A file system that writes past the page cache pins what it writes, which the driver's memory does not allow.
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {
                let rest: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                return file.write_all(&rest);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a frame holds.
pub(super) enum Part<'a> {
    /// One of its quanta.
    Quantum(&'a Quantum<'a>),
    /// All its reports, in the order of time, and when they were read.
    Reports(Vec<Entry>, ClockPair),
}

/// The file being read.
pub(crate) struct Frames {
    path: PathBuf,
    input: BufReader<File>,
    /// Bytes that are left of it.
    left: u64,
    begun: Begun,
    /// Of the frame that was read last.
    words: Vec<u64>,
}

impl Frames {
    /// Opens it.
    ///
    /// # Errors
    /// As [`Frames::of`].
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|reason| TraceError::Read { path: path.to_owned(), reason })?;
        Self::of(file, path)
    }

    /// Those of an open file, and its path.
    ///
    /// # Errors
    /// [`TraceError::Read`] when it cannot be read, or was not written by this version of hpm.
    pub(crate) fn of(file: File, path: &Path) -> Result<Self> {
        let begin = || {
            let left = file.metadata()?.len();
            let mut input = BufReader::with_capacity(READ_BYTES, file);
            let mut head = [0_u64; HEAD];
            let Some(left) = left.checked_sub((8 * HEAD) as u64) else {
                // The recording ended before it began.
                return Ok((input, 0, Begun::default()));
            };
            input.read_exact(head.as_mut_bytes())?;
            let [magic, version, calls, maps, threads] = head;
            if magic != MAGIC || version != u64::from(ABI_VERSION) {
                return Err(io::Error::other(
                    "another version of hpm wrote it: read it with the one that recorded it",
                ));
            }
            Ok((input, left, Begun { calls: u32::try_from(calls).ok(), maps, threads }))
        };
        let (input, left, begun) =
            begin().map_err(|reason| TraceError::Read { path: path.to_owned(), reason })?;
        Ok(Self { path: path.to_owned(), input, left, begun, words: Vec::new() })
    }

    /// What was known when the recording began.
    pub(crate) fn begun(&self) -> Begun {
        self.begun
    }

    /// Hands what the next frame holds to `each`; whether there was one, whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the file contradicts itself, and what `each` says.
    pub(super) fn next(&mut self, mut each: impl FnMut(Part<'_>) -> Result<()>) -> Result<bool> {
        match self.read_frame()? {
            None => return Ok(false),
            Some([REPORTS, _, tsc, monotonic_raw_ns]) => {
                let now = ClockPair { tsc, monotonic_raw_ns, realtime_ns: 0 };
                each(Part::Reports(Reports::of(self.words.as_bytes()).entries(), now))?;
            }
            Some([_, count, ..]) => self.quanta(count as usize, each)?,
        }
        Ok(true)
    }

    fn quanta(&self, count: usize, mut each: impl FnMut(Part<'_>) -> Result<()>) -> Result<()> {
        let (quanta, rest) = self.words.split_at(count * QUANTUM_WORDS);
        let quanta = quanta_in(quanta);
        let mut bytes = rest.as_bytes();
        let mut take = |wanted: u32| {
            let (taken, left) =
                bytes.split_at_checked(wanted as usize).filter(|_| wanted.is_multiple_of(8))?;
            bytes = left;
            Some(taken)
        };
        let corrupt = || Error::corrupt("a frame of quanta with other records than they name");
        let records: Option<Vec<&[u8]>> = quanta.iter().map(|quantum| take(quantum.span_bytes)).collect();
        for (quantum, records) in quanta.iter().zip(records.ok_or_else(corrupt)?) {
            let stack = take(quantum.stack_bytes).ok_or_else(corrupt)?;
            each(Part::Quantum(&Quantum::new(Published { quantum, records, stack })))?;
        }
        Ok(())
    }

    /// Reads a frame's words; its head, or `None` where none is whole any more.
    fn read_frame(&mut self) -> Result<Option<[u64; FRAME_HEAD]>> {
        let Some(left) = self.left.checked_sub((8 * FRAME_HEAD) as u64) else { return Ok(None) };
        let mut head = [0_u64; FRAME_HEAD];
        self.read(|input| input.read_exact(head.as_mut_bytes()))?;
        let bytes = match head {
            [QUANTA, count, records, stacks] => count
                .checked_mul(8 * QUANTUM_WORDS as u64)
                .and_then(|bytes| bytes.checked_add(records)?.checked_add(stacks)),
            [REPORTS, bytes, ..] => Some(bytes),
            _ => None,
        };
        let bytes = bytes.filter(|bytes| bytes.is_multiple_of(8));
        let bytes = bytes.ok_or_else(|| Error::corrupt("something else where a frame should begin"))?;
        // Before memory is asked for, which a damaged head alone would not justify.
        let Some(left) = left.checked_sub(bytes) else { return Ok(None) };
        let mut words = std::mem::take(&mut self.words);
        words.resize((bytes / 8) as usize, 0);
        self.read(|input| input.read_exact(words.as_mut_bytes()))?;
        (self.left, self.words) = (left, words);
        Ok(Some(head))
    }

    fn read(&mut self, read: impl FnOnce(&mut BufReader<File>) -> io::Result<()>) -> Result<()> {
        let read = read(&mut self.input);
        Ok(read.map_err(|reason| TraceError::Read { path: self.path.clone(), reason })?)
    }
}

#[cfg(test)]
mod tests;
