//! Source lines in a jitdump, also as V8 writes them.
//!
//! V8 (Node, Chromium) departs from the format in two ways. It adds 0x40 to each address, the size of the ELF header that perf puts
//! before the code. And its file names are memory that it has given back: the first 16 bytes are the allocator's by then, and any
//! of them may be the zero that ends a name. Read by the letter such entries are noise, so that what is read has to be lines of the
//! function; where it is not, its entries are taken to be of one size and the file to be the one that is part of V8's name.

use std::ops::Range;
use std::sync::Arc;

use super::Bytes;

/// What V8 adds to each address.
const ELF_HEADER: u64 = 0x40;
/// What is before an entry's file name: address, line, discriminator.
const ENTRY: usize = 16;
/// Records end at multiples of eight bytes.
const PADDING: usize = 7;
/// Bytes of a freed block that glibc's allocator writes.
const FREED: usize = 16;
/// What V8's names of functions with lines begin with, in its several versions.
const V8: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];

/// Address, source file and line.
pub(super) type Line = (u64, Arc<str>, u32);

/// The lines of a function, in the order of addresses; none where what is told cannot be of that function.
pub(super) fn of(count: u64, entries: &[u8], function: &Range<u64>, name: &str) -> Vec<Line> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let Some(mut lines) = by_the_letter(count, entries, function).or_else(|| {
        let file = |length: usize| file_in_name(name, length);
        of_one_size(count, entries, function, file)
    }) else {
        return Vec::new();
    };
    let is_shifted = V8.iter().any(|tag| name.starts_with(tag))
        && lines.iter().all(|(address, ..)| *address >= function.start + ELF_HEADER);
    if is_shifted {
        for (address, ..) in &mut lines {
            *address -= ELF_HEADER;
        }
    }
    lines.sort_by_key(|(address, ..)| *address);
    lines
}

/// Whether an address can be one of the function, as it is or as V8 writes it.
fn is_in(function: &Range<u64>, address: u64) -> bool {
    (function.start..=function.end.saturating_add(ELF_HEADER)).contains(&address)
}

/// As the format says. A record that is cut off keeps its whole entries.
fn by_the_letter(count: usize, entries: &[u8], function: &Range<u64>) -> Option<Vec<Line>> {
    let mut rest = Bytes(entries);
    let mut lines: Vec<Line> = Vec::new();
    for _ in 0..count {
        let (Some(address), Some(line), Some(_discriminator)) = (rest.u64(), rest.u32(), rest.u32()) else {
            break;
        };
        let is_same = rest.0.first() == Some(&0xff);
        let Some(name) = rest.text() else { break };
        let file = if is_same {
            lines.last().map_or_else(|| "".into(), |(_, file, _)| Arc::clone(file))
        } else {
            name
        };
        if !is_in(function, address)
            || file.contains(|letter: char| letter.is_control() || letter == '\u{fffd}')
        {
            return None;
        }
        lines.push((address, file, line));
    }
    let is_whole = rest.0.len() <= PADDING || lines.len() < count;
    is_whole.then_some(lines)
}

/// Entries whose names are one, of unknown bytes: their number gives their size.
fn of_one_size(
    count: usize,
    entries: &[u8],
    function: &Range<u64>,
    file: impl Fn(usize) -> Option<(Arc<str>, Vec<u8>)>,
) -> Option<Vec<Line>> {
    let sizes = (entries.len().saturating_sub(PADDING)..=entries.len()).rev();
    sizes.filter(|size| count > 0 && size % count == 0).map(|size| size / count).find_map(|size| {
        let (file, kept) = file(size.checked_sub(ENTRY + 1)?)?;
        let entry = |bytes: &[u8]| {
            let mut bytes = Bytes(bytes);
            let (address, line, _discriminator) = (bytes.u64()?, bytes.u32()?, bytes.u32()?);
            let is_name = bytes.0.ends_with(&[0]) && bytes.0[..bytes.0.len() - 1].ends_with(&kept);
            (is_in(function, address) && is_name).then(|| (address, Arc::clone(&file), line))
        };
        entries.chunks_exact(size).take(count).map(entry).collect()
    })
}

/// The file in V8's name of a function, `JS:*next /home/a/parse.js:4:14`, if it is of a length; and those of its bytes that are
/// not overwritten.
fn file_in_name(name: &str, length: usize) -> Option<(Arc<str>, Vec<u8>)> {
    let mut parts = name.rsplitn(3, ':');
    let (_column, _line, before) = (parts.next()?, parts.next()?, parts.next()?);
    let file = before.get(before.len().checked_sub(length)?..)?;
    let is_whole = length > 0 && before[..before.len() - length].ends_with(' ');
    is_whole.then(|| (file.into(), file.as_bytes()[FREED.min(length)..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTION: Range<u64> = 0x1000..0x1100;

    fn entry(address: u64, line: u32, name: &[u8]) -> Vec<u8> {
        [&address.to_le_bytes()[..], &line.to_le_bytes(), &[0; 4], name, &[0]].concat()
    }

    /// What V8 of Node 20 writes: two pointers of the allocator, and what is left of the name.
    fn freed(name: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x7c\x8f\xce\x34\0\0\0\0\xf3\x9d\xcc\xa7\x73\x36\x3b\x61".to_vec();
        bytes.extend_from_slice(name.get(bytes.len()..).unwrap_or_default());
        bytes
    }

    fn shown(lines: &[Line]) -> Vec<(u64, &str, u32)> {
        lines.iter().map(|(address, file, line)| (*address, &**file, *line)).collect()
    }

    #[test]
    fn v8_adds_the_size_of_an_elf_header() {
        let entries = [entry(0x1040, 4, b"a.js"), entry(0x1130, 5, b"a.js"), vec![0; 5]].concat();
        let lines = of(2, &entries, &FUNCTION, "JS:*next a.js:4:14");
        assert_eq!(shown(&lines), [(0x1000, "a.js", 4), (0x10f0, "a.js", 5)]);
        // Another compiler's first line may well be there.
        let lines = of(2, &entries, &FUNCTION, "next");
        assert_eq!(shown(&lines), [(0x1040, "a.js", 4), (0x1130, "a.js", 5)]);
    }

    #[test]
    fn names_that_v8_gave_back_are_found_in_the_function_s_name() {
        for file in ["/tmp/v8/parse.js", "/home/somebody/a program/parse.js"] {
            for count in [1, 2, 9] {
                let entries: Vec<u8> = (0..count)
                    .flat_map(|number| entry(0x1040 + number, 4, &freed(file.as_bytes())))
                    .collect();
                for padding in 0..=PADDING {
                    let padded = [&entries[..], &vec![0; padding]].concat();
                    let lines = of(count, &padded, &FUNCTION, &format!("JS:^next {file}:4:14"));
                    assert_eq!(lines.len() as u64, count, "{file} {count} {padding}");
                    assert!(lines.iter().all(|(address, of, _)| FUNCTION.contains(address) && **of == *file));
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_lines_of_the_function_is_none() {
        let name = freed(b"/tmp/v8/parse.js");
        let entries = [entry(0x1040, 4, &name), entry(0x1050, 5, &name)].concat();
        assert_eq!(of(2, &entries, &FUNCTION, "JS:*next /tmp/v8/other.name.js:4:14"), []);
        assert_eq!(of(2, &entries, &FUNCTION, "next"), []);
        assert_eq!(of(1, &entry(0x5000, 4, b"a.js"), &FUNCTION, "JS:*next a.js:4:14"), []);
        assert_eq!(of(u64::MAX, &[], &FUNCTION, "JS:*next a.js:4:14"), []);
    }
}
