//! What the driver published, kept as it was until there is time to make rows of it.
//!
//! Making rows of a sample, and writing them, takes more instructions than everything else that a recording does while the program
//! runs. So [`Spool`] writes quanta, records and stacks from the driver's memory to a file, one system call for all that was published,
//! and [`Frames`] reads them when the program has ended, or when somebody reads the trace before.
//!
//! # The file
//! Words of 8 bytes in the machine's order: a head of [`HEAD`], then frames. A frame is [`FRAME`], the number of its quanta, the bytes of
//! all their records and the bytes of all their stacks; then the quanta as [`hpm_abi::Quantum`], and the records and the stacks in the
//! quanta's order. The last frame may be cut off.

use std::fs::File;
use std::io::{self, BufReader, IoSlice, Read as _, Write as _};
use std::path::{Path, PathBuf};

use hpm_abi::ABI_VERSION;
use zerocopy::IntoBytes as _;

use crate::session::{Batch, Quantum};
use crate::sys::raw::{QUANTUM_WORDS, bytes_of, quanta_in};
use crate::sys::rings::Published;
use crate::trace::TraceError;
use crate::{Error, Result};

/// The first word of the file, and of each frame.
const MAGIC: u64 = u64::from_le_bytes(*b"hpmspool");
const FRAME: u64 = u64::from_le_bytes(*b"hpmframe");
/// Words of the file's head: [`MAGIC`], the version of the driver's interface, and how many branch records are kept of those that are calls.
const HEAD: usize = 3;
/// Words of a frame's head.
const FRAME_HEAD: usize = 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// The file being written.
pub(super) struct Spool {
    path: PathBuf,
    file: File,
}

impl Spool {
    /// Creates the file, for samples of which so many branch records are calls (`None`: they are none).
    pub(super) fn create(path: &Path, calls: Option<u32>) -> Result<Self, TraceError> {
        let create = || {
            let mut file = File::create_new(path)?;
            file.write_all([MAGIC, ABI_VERSION.into(), calls.map_or(u64::MAX, u64::from)].as_bytes())?;
            Ok(file)
        };
        let file = create().map_err(|reason| TraceError::Write { path: path.to_owned(), reason })?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes what was published.
    ///
    /// # Errors
    /// [`TraceError::Write`], or [`Error::Corrupt`] as [`Batch::quanta`]. Nothing may be appended then.
    pub(super) fn append(&mut self, batch: &Batch<'_>) -> Result<()> {
        let quanta = batch.quanta().collect::<Result<Vec<_>>>()?;
        if quanta.is_empty() {
            return Ok(());
        }
        let published = || quanta.iter().map(Quantum::published);
        let bytes = |part: for<'a> fn(Published<'a>) -> &'a [u8]| published().map(part).map(<[u8]>::len).sum();
        let head: [usize; 2] = [bytes(|published| published.records), bytes(|published| published.stack)];
        let head = [FRAME, quanta.len() as u64, head[0] as u64, head[1] as u64];
        let parts: [for<'a> fn(Published<'a>) -> &'a [u8]; 3] =
            [|published| bytes_of(published.quantum), |published| published.records, |published| published.stack];
        let mut slices = vec![IoSlice::new(head.as_bytes())];
        for part in parts {
            slices.extend(published().map(part).filter(|bytes| !bytes.is_empty()).map(IoSlice::new));
        }
        let written = write_all(&mut self.file, &mut slices);
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
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The file being read.
pub(super) struct Frames {
    path: PathBuf,
    input: BufReader<File>,
    /// Bytes that are left of it.
    left: u64,
    /// See [`Spool::create`].
    pub(super) calls: Option<u32>,
    /// Of the frame that was read last.
    words: Vec<u64>,
}

impl Frames {
    /// Opens it.
    ///
    /// # Errors
    /// [`TraceError::Read`] when it cannot be read, or was not written by this version of hpm.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let open = || {
            let file = File::open(path)?;
            let left = file.metadata()?.len();
            let mut input = BufReader::with_capacity(READ_BYTES, file);
            let mut head = [0_u64; HEAD];
            input.read_exact(head.as_mut_bytes())?;
            let [magic, version, calls] = head;
            if magic != MAGIC || version != u64::from(ABI_VERSION) {
                return Err(io::Error::other("another version of hpm wrote it"));
            }
            Ok(Self {
                path: path.to_owned(),
                input,
                left: left - (8 * HEAD) as u64,
                calls: u32::try_from(calls).ok(),
                words: Vec::new(),
            })
        };
        Ok(open().map_err(|reason| TraceError::Read { path: path.to_owned(), reason })?)
    }

    /// Hands each quantum of the next frame to `each`; whether there was one, whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the file contradicts itself, and what `each` says.
    pub(super) fn next(&mut self, mut each: impl FnMut(&Quantum<'_>) -> Result<()>) -> Result<bool> {
        let Some(count) = self.read_frame()? else { return Ok(false) };
        let (quanta, rest) = self.words.split_at(count * QUANTUM_WORDS);
        let quanta = quanta_in(quanta);
        let mut bytes = rest.as_bytes();
        let mut take = |wanted: u32| {
            let (taken, left) = bytes.split_at_checked(wanted as usize).filter(|_| wanted % 8 == 0)?;
            bytes = left;
            Some(taken)
        };
        let corrupt = || Error::corrupt("a frame of quanta with other records than they name");
        let records: Vec<&[u8]> =
            quanta.iter().map(|quantum| take(quantum.span_bytes)).collect::<Option<_>>().ok_or_else(corrupt)?;
        for (quantum, records) in quanta.iter().zip(records) {
            let stack = take(quantum.stack_bytes).ok_or_else(corrupt)?;
            each(&Quantum::new(Published { quantum, records, stack }))?;
        }
        Ok(true)
    }

    /// Reads a frame's words; the number of its quanta, or `None` where none is whole any more.
    fn read_frame(&mut self) -> Result<Option<usize>> {
        let refused = |path: &Path, reason| TraceError::Read { path: path.to_owned(), reason };
        let Some(left) = self.left.checked_sub((8 * FRAME_HEAD) as u64) else { return Ok(None) };
        let mut head = [0_u64; FRAME_HEAD];
        self.input.read_exact(head.as_mut_bytes()).map_err(|reason| refused(&self.path, reason))?;
        let [magic, count, records, stacks] = head;
        let words = count.checked_mul(QUANTUM_WORDS as u64).and_then(|words| {
            let bytes = words.checked_mul(8)?.checked_add(records)?.checked_add(stacks)?;
            (magic == FRAME && bytes.is_multiple_of(8)).then_some(bytes / 8)
        });
        let words = words.ok_or_else(|| Error::corrupt("something else where a frame of quanta should begin"))?;
        // What a damaged head alone would justify is not asked for.
        let Some(left) = left.checked_sub(8 * words) else { return Ok(None) };
        self.words.resize(words as usize, 0);
        self.input.read_exact(self.words.as_mut_bytes()).map_err(|reason| refused(&self.path, reason))?;
        self.left = left;
        Ok(Some(count as usize))
    }
}

#[cfg(test)]
mod tests;
