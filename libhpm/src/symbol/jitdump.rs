//! Functions of just-in-time compilers with their source lines, from the files `jit-PID.dump` that some of them write for perf.
//!
//! The format is that of Linux, `tools/perf/Documentation/jitdump-specification.txt`. Its times are of another clock than the trace's, so
//! they are not used: of functions at one address the last one counts.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::code_map::{CodeMap, MadeCode};

mod lines;

/// "JiTD" as the writer's byte order has it; files of the other byte order come from other processors.
const MAGIC: u32 = 0x4A69_5444;
/// Bytes of the part of a record's header that all have.
const RECORD: usize = 16;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_DEBUG_INFO: u32 = 2;

/// The address of the function that is loaded next, how many lines are told of it, and these.
type Told<'a> = (u64, u64, &'a [u8]);

/// Reads a file; empty where there is none that can be read.
pub(super) fn read(path: &Path) -> CodeMap {
    fs::read(path).map_or_else(|_| CodeMap::default(), |bytes| parse(&bytes))
}

/// Everything up to what is cut off or damaged: a process can be killed while it writes.
pub(super) fn parse(bytes: &[u8]) -> CodeMap {
    let mut map = CodeMap::default();
    let mut header = Bytes(bytes);
    let (Some(MAGIC), Some(_version), Some(size)) = (header.u32(), header.u32(), header.u32()) else {
        return map;
    };
    let mut rest = bytes.get(size as usize..).unwrap_or_default();
    let mut told: Option<Told<'_>> = None;
    while let Some((kind, body, after)) = record(rest) {
        // What a record lacks of what it should have is its own loss.
        match kind {
            CODE_LOAD => {
                load(&mut map, Bytes(body), told.take());
            }
            CODE_MOVE => {
                relocate(&mut map, Bytes(body));
            }
            CODE_DEBUG_INFO => told = debug_info(Bytes(body)),
            _ => {}
        }
        rest = after;
    }
    map
}

/// Kind and body of the first record, and what follows it.
fn record(bytes: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let mut head = Bytes(bytes);
    let (kind, size) = (head.u32()?, head.u32()? as usize);
    if size < RECORD {
        return None;
    }
    let (whole, after) = bytes.split_at_checked(size)?;
    Some((kind, &whole[RECORD..], after))
}

fn load(map: &mut CodeMap, mut body: Bytes<'_>, told: Option<Told<'_>>) -> Option<()> {
    let (_pid, _tid, _vma) = (body.u32()?, body.u32()?, body.u64()?);
    let (start, size, _index) = (body.u64()?, body.u64()?, body.u64()?);
    let name = body.text()?;
    let end = start.checked_add(size)?;
    let lines = told
        .filter(|(of, ..)| *of == start)
        .map_or_else(Vec::new, |(_, count, entries)| lines::of(count, entries, &(start..end), &name));
    map.insert(start, MadeCode { end, name, lines: lines.into() });
    Some(())
}

fn relocate(map: &mut CodeMap, mut body: Bytes<'_>) -> Option<()> {
    let (_pid, _tid, _vma) = (body.u32()?, body.u32()?, body.u64()?);
    let (from, to) = (body.u64()?, body.u64()?);
    map.relocate(from, to);
    Some(())
}

fn debug_info(mut body: Bytes<'_>) -> Option<Told<'_>> {
    Some((body.u64()?, body.u64()?, body.0))
}

/// Bytes that are read from their beginning, in the order of x86.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Up to a zero byte.
    fn text(&mut self) -> Option<Arc<str>> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let text = String::from_utf8_lossy(&self.0[..end]).as_ref().into();
        self.0 = &self.0[end + 1..];
        Some(text)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record_bytes(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = (RECORD + body.len()) as u32;
        [&kind.to_le_bytes()[..], &size.to_le_bytes(), &77_u64.to_le_bytes(), body].concat()
    }

    fn words(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// A function at an address with a line for each of its two halves, moved, and another where it was.
    pub(in crate::symbol) fn dump() -> Vec<u8> {
        let header: Vec<u8> = [MAGIC, 1, 40, 62, 0, 7].iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = [header, words(&[5, 0])].concat();
        let entry = |address: u64, line: u32, name: &[u8]| {
            [&address.to_le_bytes()[..], &line.to_le_bytes(), &[0; 4], name, &[0]].concat()
        };
        let lines = [words(&[0x1000, 2]), entry(0x1000, 10, b"loop.js"), entry(0x1020, 11, b"\xff")].concat();
        let load = |start: u64, name: &[u8]| {
            [
                &7_u32.to_le_bytes()[..],
                &8_u32.to_le_bytes(),
                &words(&[start, start, 0x40, 1]),
                name,
                &[0, 0x90, 0xc3],
            ]
            .concat()
        };
        let moved =
            [&7_u32.to_le_bytes()[..], &8_u32.to_le_bytes(), &words(&[0x2000, 0x1000, 0x2000, 0x40, 1])]
                .concat();
        [
            header,
            record_bytes(CODE_DEBUG_INFO, &lines),
            record_bytes(CODE_LOAD, &load(0x1000, b"hot")),
            record_bytes(4, b"unwinding"),
            record_bytes(CODE_MOVE, &moved),
            record_bytes(CODE_LOAD, &load(0x1000, b"other")),
        ]
        .concat()
    }

    fn at(map: &CodeMap, address: u64) -> Option<(String, Option<(String, u32)>)> {
        let code = map.at(address)?;
        Some((code.name.to_string(), code.line_at(address).map(|(file, line)| (file.to_string(), line))))
    }

    #[test]
    fn functions_have_names_and_lines() {
        let map = parse(&dump());
        let line = |line| Some(("loop.js".to_owned(), line));
        assert_eq!(at(&map, 0x2000), Some(("hot".into(), line(10))));
        assert_eq!(at(&map, 0x203f), Some(("hot".into(), line(11))));
        assert_eq!(at(&map, 0x1000), Some(("other".into(), None)));
        assert_eq!(at(&map, 0x2040), None);
    }

    #[test]
    fn what_is_no_dump_is_empty() {
        let mut other = dump();
        other[0] ^= 1;
        for bytes in [&b""[..], b"DTiJ", &[0xff; 64], &other] {
            assert_eq!(parse(bytes).at(0x1000), None);
        }
    }

    proptest! {
        /// A file that is cut off keeps what was whole, and one with flipped bytes does no harm.
        #[test]
        fn damage_does_no_harm(cut in 0_usize..400, flips in prop::collection::vec((0_usize..400, any::<u8>()), 0..8)) {
            let whole = dump();
            let cut = cut.min(whole.len());
            let map = parse(&whole[..cut]);
            if at(&map, 0x1000).is_some_and(|(name, _)| name == "other") {
                prop_assert_eq!(cut, whole.len());
            }
            let mut flipped = whole;
            for (place, byte) in flips {
                let place = place % flipped.len();
                flipped[place] ^= byte;
            }
            parse(&flipped);
        }
    }
}
