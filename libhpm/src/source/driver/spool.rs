//! What the driver and the kernel reported, kept until there is time to make rows of it.
//!
//! Making rows of samples and mappings, and writing them, takes more instructions than everything else that a recording does while the
//! program runs. So [`Spool`] writes quanta, records and stacks to a file, all that was published at once, and the side band's
//! records as they are; [`Frames`] reads them when the program has ended, or when somebody reads the trace before.
//!
//! Pages of a file cost thousands of the kernel's instructions each, unless the page cache is left out ([`Blocks`]), and what is done for
//! each quantum costs. So quanta are written without what is not needed of them ([`compact`]). Records and stacks go to the file as they
//! are, as many neighbours at once as there are: the rows have all registers of a record, and to leave out what else a record may not
//! need, its data source's latency and the like, would take more instructions than it saves.
//!
//! # The file
//! Words of 8 bytes in the machine's order: a head of [`HEAD`], then frames, each with a head of [`FRAME_HEAD`], and zeros to the end of
//! the block. The last frame may be cut off.
//!
//! | frame | its head | then |
//! |---|---|---|
//! | [`QUANTA`] | bytes of the quanta, of all their records, and of all their stacks | quanta of one CPU as [`compact`] has them, the records and the stacks in the quanta's order |
//! | [`REPORTS`] | bytes, and the moment at which they were read, as TSC and as CLOCK_MONOTONIC_RAW | records of perf_event_open(2) |

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use hpm_abi::{ABI_VERSION, SessionConfig};
use zerocopy::IntoBytes as _;

use super::blocks::{BLOCK, Blocks};
use super::compact;
use super::pressure::Pressure;
use crate::session::{Batch, Quantum};
use crate::sideband::{Entry, Reports};
use crate::sys::clock::ClockPair;
use crate::sys::rings::Published;
use crate::trace::TraceError;
use crate::{Error, Result};

/// The first word of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"hpmspool");
/// The first words of frames.
const QUANTA: u64 = u64::from_le_bytes(*b"quanta..");
const REPORTS: u64 = u64::from_le_bytes(*b"reports.");
/// Which file this is: the number of its own layout, which was 0 before quanta were compact, above the version of the driver's interface.
const VERSION: u64 = 2 << 32 | ABI_VERSION as u64;
/// Words of the file's head: [`MAGIC`], [`VERSION`], and the members of [`Begun`].
const HEAD: usize = 5;
/// Words of a frame's head.
const FRAME_HEAD: usize = 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Words of quanta that are kept before they are written.
const WORDS_KEPT: usize = 16 << 10;

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
    file: Blocks,
    pressure: Pressure,
    /// Heads and quanta that are being written.
    words: Vec<u64>,
}

/// What is written next.
enum Piece<'a> {
    /// Of [`Spool::words`] those to here.
    Words(usize),
    /// Of the driver's memory.
    Bytes(&'a [u8]),
}

impl Spool {
    /// Creates the file of a session.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub(super) fn create(path: &Path, config: &SessionConfig) -> Result<Self, TraceError> {
        let refused = |reason| TraceError::Write { path: path.to_owned(), reason };
        let file = Blocks::create(path).map_err(refused)?;
        Ok(Self { path: path.to_owned(), file, pressure: Pressure::new(config), words: Vec::new() })
    }

    /// Writes the head, before anything else.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub(super) fn begin(&mut self, begun: Begun) -> Result<()> {
        let calls = begun.calls.map_or(u64::MAX, u64::from);
        let head = [MAGIC, VERSION, calls, begun.maps, begun.threads];
        self.write(|file| file.push(head.as_bytes()).and_then(|()| file.flush()))
    }

    /// Adds what the kernel reported until this moment; [`Spool::append`] writes it.
    ///
    /// # Errors
    /// [`TraceError::Write`]. Nothing may be written then.
    pub(super) fn reports(&mut self, reports: &Reports, now: ClockPair) -> Result<()> {
        let bytes = reports.bytes();
        let head = [REPORTS, bytes.len() as u64, now.tsc, now.monotonic_raw_ns];
        self.write(|file| file.push(head.as_bytes()).and_then(|()| file.push(bytes)))
    }

    /// Writes what was published: a frame for each CPU, or several where quanta differ in what a frame's have in common.
    ///
    /// # Errors
    /// [`TraceError::Write`], or [`Error::Corrupt`] as [`Batch::quanta`]. Nothing may be written then.
    pub(super) fn append(&mut self, batch: &Batch<'_>) -> Result<()> {
        // Nothing is left of a look that failed.
        self.words.clear();
        let wait = self.pressure.allows_waiting(batch);
        self.write(|file| file.wait_for_disk(wait))?;
        let begun = Instant::now();
        let mut pieces = Vec::new();
        for cpu in 0..batch.cpus() {
            for quanta in batch.of_cpu(cpu) {
                for alike in quanta.chunk_by(compact::goes_on) {
                    self.add_frame(batch, cpu, alike, &mut pieces)?;
                }
            }
            if self.words.len() >= WORDS_KEPT {
                self.write_pieces(&mut pieces)?;
            }
        }
        self.write_pieces(&mut pieces)?;
        self.write(Blocks::flush)?;
        if wait {
            self.pressure.waited(begun.elapsed());
        }
        Ok(())
    }

    /// Adds a frame of quanta to what is written next.
    fn add_frame<'a>(
        &mut self,
        batch: &'a Batch<'_>,
        cpu: usize,
        quanta: &'a [hpm_abi::Quantum],
        pieces: &mut Vec<Piece<'a>>,
    ) -> Result<()> {
        let head = self.words.len();
        self.words.extend([QUANTA, 0, 0, 0]);
        compact::pack(quanta, &mut self.words);
        pieces.push(Piece::Words(self.words.len()));
        let mut total = [0_u64; 2];
        let records = |quantum: &hpm_abi::Quantum| {
            (quantum.segment, u64::from(quantum.span_offset), u64::from(quantum.span_bytes))
        };
        runs(quanta.iter().map(records), |segment, start, len| {
            total[0] += len;
            pieces.push(Piece::Bytes(batch.records(cpu, segment, start, len)?));
            Ok(())
        })?;
        // Where there is no ring, one that names a stack all the same is refused.
        let ring = batch.stack_ring(cpu).max(1);
        let stack = |quantum: &hpm_abi::Quantum| {
            // Neighbours of two laps through the ring are not neighbours in memory.
            (quantum.stack_offset / ring, quantum.stack_offset, u64::from(quantum.stack_bytes))
        };
        let with_stack = quanta.iter().filter(|quantum| quantum.stack_bytes != 0);
        runs(with_stack.map(stack), |_, offset, len| {
            total[1] += len;
            pieces.push(Piece::Bytes(batch.stack(cpu, offset, len)?));
            Ok(())
        })?;
        let packed = 8 * (self.words.len() - head - FRAME_HEAD) as u64;
        self.words[head + 1..head + FRAME_HEAD].copy_from_slice(&[packed, total[0], total[1]]);
        Ok(())
    }

    /// Adds them to the file, and empties them and the words.
    fn write_pieces(&mut self, pieces: &mut Vec<Piece<'_>>) -> Result<()> {
        let words = std::mem::take(&mut self.words);
        let mut from = 0;
        let written = pieces.drain(..).try_for_each(|piece| {
            self.write(|file| match piece {
                Piece::Bytes(bytes) => file.push(bytes),
                Piece::Words(to) => file.push(words[std::mem::replace(&mut from, to)..to].as_bytes()),
            })
        });
        self.words = words;
        self.words.clear();
        written
    }

    fn write(&mut self, how: impl FnOnce(&mut Blocks) -> io::Result<()>) -> Result<()> {
        let written = how(&mut self.file);
        Ok(written.map_err(|reason| TraceError::Write { path: self.path.clone(), reason })?)
    }

    /// What was written.
    ///
    /// # Errors
    /// [`TraceError::Write`], [`TraceError::Read`].
    pub(super) fn read(mut self) -> Result<Frames> {
        self.write(Blocks::flush)?;
        Frames::open(&self.path)
    }
}

/// Joins what lies one behind the other: of spans, each of an area, from a place of it on, so many bytes, hands those that are left to `each`.
fn runs(
    spans: impl Iterator<Item = (u64, u64, u64)>,
    mut each: impl FnMut(u64, u64, u64) -> Result<()>,
) -> Result<()> {
    let (mut area, mut start, mut len) = (0, 0_u64, 0_u64);
    for (next_area, next_start, next_len) in spans {
        if next_len == 0 {
            continue;
        }
        if len != 0 && next_area == area && start.checked_add(len) == Some(next_start) {
            // No sum of quanta's lengths, of 32 bits each, comes near its end.
            len += next_len;
            continue;
        }
        if len != 0 {
            each(area, start, len)?;
        }
        (area, start, len) = (next_area, next_start, next_len);
    }
    if len != 0 { each(area, start, len) } else { Ok(()) }
}

/// Takes so many bytes off the beginning; `None` where they are too few, or would leave what follows unaligned.
fn take<'a>(bytes: &mut &'a [u8], wanted: u32) -> Option<&'a [u8]> {
    let (taken, left) = bytes.split_at_checked(wanted as usize).filter(|_| wanted.is_multiple_of(8))?;
    *bytes = left;
    Some(taken)
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
            if magic != MAGIC || version != VERSION {
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
            Some([_, packed, records, _]) => self.quanta(packed as usize / 8, records as usize, each)?,
        }
        Ok(true)
    }

    fn quanta(
        &self,
        packed: usize,
        records: usize,
        mut each: impl FnMut(Part<'_>) -> Result<()>,
    ) -> Result<()> {
        let corrupt = || Error::corrupt("a frame of quanta with other records than they name");
        let (packed, rest) = self.words.split_at(packed);
        let (mut records, mut stacks) = rest.as_bytes().split_at(records);
        for quantum in compact::unpack(packed).ok_or_else(corrupt)? {
            let records = take(&mut records, quantum.span_bytes).ok_or_else(corrupt)?;
            let stack = take(&mut stacks, quantum.stack_bytes).ok_or_else(corrupt)?;
            each(Part::Quantum(&Quantum::new(Published { quantum: &quantum, records, stack })))?;
        }
        if records.is_empty() && stacks.is_empty() { Ok(()) } else { Err(corrupt()) }
    }

    /// Reads a frame's words; its head, or `None` where none is whole any more.
    fn read_frame(&mut self) -> Result<Option<[u64; FRAME_HEAD]>> {
        let Some(left) = self.left.checked_sub((8 * FRAME_HEAD) as u64) else { return Ok(None) };
        let mut head = [0_u64; FRAME_HEAD];
        self.read(|input| input.read_exact(head.as_mut_bytes()))?;
        if head == [0; FRAME_HEAD] && left < BLOCK as u64 {
            return Ok(None);
        }
        let bytes = match head {
            [QUANTA, parts @ ..] => {
                let add = |sum: u64, part| sum.checked_add(part).filter(|sum| sum.is_multiple_of(8));
                parts.into_iter().try_fold(0, add)
            }
            [REPORTS, bytes, ..] => Some(bytes).filter(|bytes| bytes.is_multiple_of(8)),
            _ => None,
        };
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
