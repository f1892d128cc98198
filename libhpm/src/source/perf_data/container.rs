//! The outside of a perf.data file: what of it can be read is found before linux-perf-data reads it.
//!
//! That crate (0.13.0) takes sizes and numbers of the header on trust: it asks for as much memory as they say, divides by
//! them, and gives up on a file that is cut off together with the records that it has read and not yet sorted. Here the
//! header is checked against the file, and corrected in what the crate gets to see: the data ends behind its last whole
//! record, sections that are not there are not mentioned. The format is that of Linux,
//! `tools/perf/Documentation/perf.data-file-format.txt`.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

use super::bytes::{u16_at, u32_at, u64_at};
use super::mended::Mended;

/// What a file begins with, on a machine of x86's byte order.
pub(super) const MAGIC: &[u8; 8] = b"PERFILE2";
/// The same on one of the other order.
const MAGIC_SWAPPED: &[u8; 8] = b"2ELIFREP";
/// Bytes of the header of a file, and of a stream.
const FILE_HEADER: u64 = 104;
const PIPE_HEADER: u64 = 16;
/// Places in a file's header.
const ATTR_SIZE: u64 = 16;
const ATTRS: u64 = 24;
const DATA: u64 = 40;
const EVENT_TYPES: u64 = 56;
const FEATURES: u64 = 72;
/// An (offset, size) pair.
const SECTION: u64 = 16;
/// Bits of features (`HEADER_*`).
const FEATURE_BITS: u32 = 256;
const EVENT_DESC: u32 = 12;
/// A number of which no version of perf knows a feature.
const NO_FEATURE: u64 = 255;
/// The smallest `perf_event_attr`, and more than the biggest.
const ATTR: std::ops::RangeInclusive<u64> = 64..=4096;
/// The sizes that it has had (`PERF_ATTR_SIZE_VER0` to `VER7`). Whatever is larger than the last is newer, and passed over.
const ATTR_SIZES: [u64; 8] = [64, 72, 80, 96, 104, 112, 120, 128];
/// Place of its own size in it.
const OWN_SIZE: u64 = 4;
/// More events, and more copies of one (threads times CPUs), than anybody opens.
const EVENTS_MAX: u64 = 4096;
const IDS_MAX: u64 = 1 << 20;
/// Records of the user's side (`PERF_RECORD_*` of `tools/perf/util/event.h`).
const HEADER_FEATURE: u32 = 80;
const AUXTRACE: u32 = 71;
const HEADER_ATTR: u32 = 64;
/// Place of `read_format` in a `perf_event_attr`.
const READ_FORMAT: u64 = 32;
const RECORD_HEADER: u64 = 8;

/// Whatever holds a file.
pub(super) trait Input: Read + Seek + Send {}
impl<T: Read + Seek + Send> Input for T {}

/// Which of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// With sections, as `perf record -o FILE` writes it.
    File,
    /// One stream of records, as `perf record -o -` writes it.
    Pipe,
}

/// A file that linux-perf-data can be given.
pub(super) struct Container {
    pub(super) shape: Shape,
    pub(super) input: BufReader<Mended>,
    /// What is missing or wrong, one sentence each.
    pub(super) damage: Vec<String>,
    /// `read_format` of each event, with bits that linux-perf-event-reader does not know.
    pub(super) read_formats: Vec<u64>,
}

impl Container {
    /// Looks a file over.
    ///
    /// # Errors
    /// A sentence's end: why it cannot be read at all.
    pub(super) fn open(mut input: Box<dyn Input>) -> Result<Self, String> {
        let length = input.seek(SeekFrom::End(0)).map_err(|error| error.to_string())?;
        let head = read_at(&mut input, 0, FILE_HEADER.min(length)).map_err(|error| error.to_string())?;
        match head.get(..8) {
            Some(magic) if magic == MAGIC => {}
            Some(magic) if magic == MAGIC_SWAPPED => {
                return Err(
                    "it was recorded on a machine of another byte order, and hpm reads those of x86".into()
                );
            }
            _ => return Err("it does not begin as a file of `perf record` does".into()),
        }
        let mut found = Found {
            input,
            length,
            patches: Vec::new(),
            damage: Vec::new(),
            read_formats: Vec::new(),
            end: length,
        };
        let shape = match u64_at(&head, 8) {
            Some(FILE_HEADER) => {
                found.file(&head)?;
                Shape::File
            }
            Some(PIPE_HEADER) => {
                found.pipe().map_err(|error| error.to_string())?;
                Shape::Pipe
            }
            _ => return Err("its header has an unknown size: it is damaged, or of a newer perf".into()),
        };
        let Found { input, patches, damage, read_formats, end, .. } = found;
        let input = BufReader::with_capacity(1 << 20, Mended::new(input, end, patches));
        Ok(Self { shape, input, damage, read_formats })
    }
}

/// What is known of a file while it is looked over.
struct Found {
    input: Box<dyn Input>,
    length: u64,
    patches: Vec<(u64, Vec<u8>)>,
    damage: Vec<String>,
    read_formats: Vec<u64>,
    /// What is behind this is not read.
    end: u64,
}

impl Found {
    fn file(&mut self, head: &[u8]) -> Result<(), String> {
        let cut = || "its header is cut off".to_owned();
        let section = |at: u64| Some((u64_at(head, at)?, u64_at(head, at + 8)?));
        let features = head.get(FEATURES as usize..FILE_HEADER as usize).ok_or_else(cut)?;
        let attr_size = u64_at(head, ATTR_SIZE).ok_or_else(cut)?;
        let attrs = section(ATTRS).ok_or_else(cut)?;
        let (data, size) = section(DATA).ok_or_else(cut)?;
        self.check_attrs(attr_size, attrs)?;
        if data < FILE_HEADER || data > self.length {
            return Err("its header names records that are not in the file".into());
        }
        let there = self.length - data;
        if size == 0 {
            self.damage.push(
                "`perf record` did not come to its end, so the file has no list of its machine and events"
                    .into(),
            );
        } else if size > there {
            self.damage.push(format!("the file is cut off: {} of {size} bytes of records are there", there));
        }
        let size = if size == 0 { there } else { size.min(there) };
        let whole = self.walk(data, data + size, |_, _, _| Ok(())).map_err(|error| error.to_string())?;
        let (kept, table) = self.features(features, data + size);
        let mut header = head.to_vec();
        header[DATA as usize + 8..][..8].copy_from_slice(&whole.to_le_bytes());
        header[FEATURES as usize..].copy_from_slice(&kept);
        if kept[EVENT_DESC as usize / 8] & 1 << (EVENT_DESC % 8) == 0 {
            // Without the events' names their attributes are read from where they were before there were names: the same
            // list, of which linux-perf-data counts the place of each one's numbers apart.
            header.copy_within(ATTRS as usize..DATA as usize, EVENT_TYPES as usize);
            header[ATTR_SIZE as usize..][..8].copy_from_slice(&(attr_size - SECTION).to_le_bytes());
        } else {
            header[EVENT_TYPES as usize..FEATURES as usize].fill(0);
        }
        self.patches = vec![(0, header), (data + whole, table)];
        Ok(())
    }

    /// The attributes of the events, each followed by where its numbers are.
    fn check_attrs(&mut self, attr_size: u64, (start, size): (u64, u64)) -> Result<(), String> {
        let wrong = || "the list of its events is damaged".to_owned();
        let sized = attr_size.checked_sub(SECTION).is_some_and(|size| ATTR.contains(&size));
        if !sized
            || size == 0
            || size % attr_size != 0
            || size / attr_size > EVENTS_MAX
            || !self.has(start, size)
        {
            return Err(wrong());
        }
        let attrs = read_at(&mut self.input, start, size).map_err(|_| wrong())?;
        let ids_there = |attr: &[u8]| {
            let (start, size) = (u64_at(attr, attr_size - SECTION)?, u64_at(attr, attr_size - 8)?);
            let fits = is_sized(attr, attr_size - SECTION) && self.has(start, size);
            (fits && size / 8 <= IDS_MAX).then_some(())
        };
        let each = || attrs.chunks_exact(attr_size as usize);
        each().try_for_each(ids_there).ok_or_else(wrong)?;
        self.read_formats = each().map(|attr| u64_at(attr, READ_FORMAT).unwrap_or(0)).collect();
        Ok(())
    }

    fn has(&self, start: u64, size: u64) -> bool {
        start.checked_add(size).is_some_and(|end| end <= self.length)
    }

    /// Bits and table of the features that are there.
    fn features(&mut self, bits: &[u8], table: u64) -> ([u8; 32], Vec<u8>) {
        let (mut kept, mut places, mut bytes) = ([0; 32], Vec::new(), 0_u64);
        let wanted = (0..FEATURE_BITS).filter(|bit| bits[*bit as usize / 8] & 1 << (bit % 8) != 0);
        let (mut damaged, mut number) = (0, 0);
        for bit in wanted {
            let place = table.saturating_add(number * SECTION);
            number += 1;
            let Some((start, size)) = self.section_at(place) else {
                damaged += 1;
                continue;
            };
            bytes = bytes.saturating_add(size);
            // Sections do not overlap, so that all of them have room in the file.
            let fits = self.has(start, size) && bytes <= self.length;
            if fits && (bit != EVENT_DESC || self.describes_events(start, size)) {
                kept[bit as usize / 8] |= 1 << (bit % 8);
                places.extend([start.to_le_bytes(), size.to_le_bytes()].concat());
            } else {
                damaged += 1;
            }
        }
        if damaged > 0 {
            self.damage
                .push(format!("{damaged} of its {number} lists of machine, events and files are missing"));
        }
        (kept, places)
    }

    fn section_at(&mut self, place: u64) -> Option<(u64, u64)> {
        if !self.has(place, SECTION) {
            return None;
        }
        let bytes = read_at(&mut self.input, place, SECTION).ok()?;
        Some((u64_at(&bytes, 0)?, u64_at(&bytes, 8)?))
    }

    fn describes_events(&mut self, start: u64, size: u64) -> bool {
        read_at(&mut self.input, start, size).is_ok_and(|bytes| describes_events(&bytes).is_some())
    }

    fn pipe(&mut self) -> io::Result<()> {
        let (mut patches, mut read_formats) = (Vec::new(), Vec::new());
        let whole = self.walk(PIPE_HEADER, self.length, |kind, place, body| {
            if kind == HEADER_ATTR {
                read_formats.push(u64_at(&body()?, READ_FORMAT).unwrap_or(0));
            }
            if kind == HEADER_FEATURE {
                let bytes = body()?;
                let event_desc = u64_at(&bytes, 0) == Some(EVENT_DESC.into());
                if event_desc && describes_events(&bytes[8..]).is_none() {
                    patches.push((place, NO_FEATURE.to_le_bytes().to_vec()));
                }
            }
            Ok(())
        })?;
        if !patches.is_empty() {
            self.damage.push("the names of its events are damaged".into());
        }
        self.patches = patches;
        self.read_formats = read_formats;
        self.end = PIPE_HEADER + whole;
        Ok(())
    }

    /// How many bytes from `start` are whole records; `look` gets each one's type, and its body's place and bytes.
    fn walk(
        &mut self,
        start: u64,
        end: u64,
        mut look: impl FnMut(u32, u64, &mut dyn FnMut() -> io::Result<Vec<u8>>) -> io::Result<()>,
    ) -> io::Result<u64> {
        self.input.seek(SeekFrom::Start(start))?;
        let mut input = BufReader::with_capacity(1 << 20, &mut self.input);
        let mut place = start;
        while place < end {
            let mut head = [0; RECORD_HEADER as usize];
            let size = if end - place < RECORD_HEADER {
                None
            } else {
                input.read_exact(&mut head)?;
                size_of_record(&head, end - place, &mut input)?
            };
            let Some((size, read)) = size else {
                let lost = end - place;
                self.damage.push(format!("the last {lost} bytes of records cannot be read"));
                break;
            };
            let mut left = (size - RECORD_HEADER - read) as i64;
            look(u32_at(&head, 0).unwrap_or(0), place + RECORD_HEADER, &mut || {
                let mut body = vec![0; left as usize];
                input.read_exact(&mut body)?;
                left = 0;
                Ok(body)
            })?;
            input.seek_relative(left)?;
            place += size;
        }
        Ok(place - start)
    }
}

/// The bytes of a record with what follows it, and how many of its body were read to know that; `None` when it is none.
fn size_of_record(head: &[u8], there: u64, input: &mut impl Read) -> io::Result<Option<(u64, u64)>> {
    let size = u64::from(u16_at(head, 6).unwrap_or(0));
    if size < RECORD_HEADER || size > there {
        return Ok(None);
    }
    if u32_at(head, 0) != Some(AUXTRACE) {
        return Ok(Some((size, 0)));
    }
    // The trace of another unit stands behind its record, which begins with its size.
    if size < RECORD_HEADER + 40 {
        return Ok(None);
    }
    let mut aux = [0; 8];
    input.read_exact(&mut aux)?;
    let whole = size.checked_add(u64::from_le_bytes(aux)).filter(|whole| *whole <= there);
    Ok(whole.map(|whole| (whole, 8)))
}

/// Whether an event's attributes have a size of their own that fits the room they have. With one that no version of perf knows linux-perf-data would
/// take something else for what follows.
fn is_sized(attr: &[u8], room: u64) -> bool {
    let size = u32_at(attr, OWN_SIZE).map_or(0, u64::from);
    size <= room && (ATTR_SIZES.contains(&size) || ATTR_SIZES.last().is_some_and(|last| size > *last))
}

/// Whether the section with the events' names is what it should be: numbers of things that are there.
fn describes_events(bytes: &[u8]) -> Option<()> {
    let (events, attr_size) = (u32_at(bytes, 0)?, u64::from(u32_at(bytes, 4)?));
    let mut place = 8;
    if events == 0 || !ATTR.contains(&attr_size) {
        return None;
    }
    for _ in 0..events {
        if !is_sized(bytes.get(place as usize..)?, attr_size) {
            return None;
        }
        place += attr_size;
        let (ids, text) = (u32_at(bytes, place)?, u32_at(bytes, place + 4)?);
        place += 8 + u64::from(text) + u64::from(ids) * 8;
        if place > bytes.len() as u64 {
            return None;
        }
    }
    Some(())
}

fn read_at(input: &mut (impl Read + Seek), place: u64, size: u64) -> io::Result<Vec<u8>> {
    input.seek(SeekFrom::Start(place))?;
    let mut bytes = Vec::new();
    input.take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
