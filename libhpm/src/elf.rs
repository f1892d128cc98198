//! What hpm reads of an ELF file: where its segments are, and sections by name.
//!
//! Files are read, not mapped: a mapped file that somebody truncates meanwhile would end the profiler with SIGBUS, and
//! only the sections asked for are read.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use object::read::elf::{FileHeader, ProgramHeader as _};
use object::{Endianness, FileKind, Object, ObjectSection, ObjectSegment, ReadCache, elf};

/// An ELF file that is open for the time of a closure.
pub(crate) type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

/// Opens an ELF file and reads what the closure wants of it.
///
/// # Errors
/// What the system says, or [`io::ErrorKind::InvalidData`] when it is not an ELF file or is damaged.
pub(crate) fn read<T>(path: &Path, wanted: impl FnOnce(&Elf<'_>) -> object::Result<T>) -> io::Result<T> {
    let cache = open(path)?;
    object::File::parse(&cache)
        .and_then(|elf| wanted(&elf))
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn open(path: &Path) -> io::Result<ReadCache<File>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    Ok(ReadCache::new(file))
}

/// The GNU build ID of a file; `None` when it has none or cannot be read. It is asked for while programs are measured: where the notes of
/// the file's segments have it, as those of nearly every program do, nothing else is read.
#[must_use]
pub fn build_id(path: &Path) -> Option<Vec<u8>> {
    let cache = open(path).ok()?;
    let noted = match FileKind::parse(&cache).ok()? {
        FileKind::Elf64 => noted_id::<elf::FileHeader64<Endianness>>(&cache),
        FileKind::Elf32 => noted_id::<elf::FileHeader32<Endianness>>(&cache),
        _ => Ok(None),
    };
    let by_sections = || object::File::parse(&cache).ok()?.build_id().ok()?.map(<[u8]>::to_vec);
    noted.ok().flatten().or_else(by_sections)
}

/// The build ID in the notes of a file's segments.
fn noted_id<H: FileHeader>(cache: &ReadCache<File>) -> object::Result<Option<Vec<u8>>> {
    let header = H::parse(cache)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, cache)? {
        let Some(mut notes) = segment.notes(endian, cache)? else { continue };
        while let Some(note) = notes.next()? {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Ok(Some(note.desc().to_vec()));
            }
        }
    }
    Ok(None)
}

/// Whether this is another file than the one that was recorded with this build ID; of files without one nobody knows.
pub(crate) fn is_another(elf: &Elf<'_>, recorded: Option<&[u8]>) -> object::Result<bool> {
    Ok(matches!((recorded, elf.build_id()?), (Some(recorded), Some(found)) if recorded != found))
}

/// A section's bytes and the addresses the linker gave them.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) addresses: Range<u64>,
    pub(crate) bytes: Arc<[u8]>,
}

/// A section by its name, decompressed; `None` when the file has none of that name.
pub(crate) fn section(elf: &Elf<'_>, name: &str) -> object::Result<Option<Section>> {
    let Some(section) = elf.section_by_name(name) else { return Ok(None) };
    let addresses = section.address()..section.address().saturating_add(section.size());
    Ok(Some(Section { addresses, bytes: section.uncompressed_data()?.into() }))
}

/// Where the loadable segments are in the file and in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segments(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    in_file: Range<u64>,
    /// Address that the linker gave to the first byte.
    address: u64,
    executable: bool,
}

impl Segments {
    pub(crate) fn of(elf: &Elf<'_>) -> Self {
        let segments = elf.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            let executable = segment.permissions().executable();
            Segment { in_file: offset..offset.saturating_add(size), address: segment.address(), executable }
        });
        Self(segments.collect())
    }

    /// The address that the linker gave to a byte of the file.
    pub(crate) fn address_of(&self, file_offset: u64) -> Option<u64> {
        let segment = self.0.iter().find(|segment| segment.in_file.contains(&file_offset))?;
        Some((file_offset - segment.in_file.start).wrapping_add(segment.address))
    }

    /// The byte of the file that the linker gave this address.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let in_memory = |segment: &&Segment| {
            let length = segment.in_file.end - segment.in_file.start;
            (segment.address..segment.address.saturating_add(length)).contains(&address)
        };
        let segment = self.0.iter().find(in_memory)?;
        Some(address - segment.address + segment.in_file.start)
    }

    /// The address that the linker would have given to the start of an executable mapping of these bytes. It begins at a
    /// page and so can begin before the segment does, in the same page as the end of another one.
    pub(crate) fn address_of_code(&self, mapped: &Range<u64>) -> Option<u64> {
        let overlaps = |in_file: &Range<u64>| in_file.start < mapped.end && mapped.start < in_file.end;
        let segment = self.0.iter().find(|segment| segment.executable && overlaps(&segment.in_file))?;
        Some(segment.address.wrapping_add(mapped.start.wrapping_sub(segment.in_file.start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_offsets_become_linked_addresses() {
        // As lld lays out a position-independent program: the text shares its first page of the file with what is before.
        let segment = |in_file, address, executable| Segment { in_file, address, executable };
        let segments = Segments(vec![segment(0..0x1034, 0, false), segment(0x1040..0x3000, 0x2040, true)]);
        assert_eq!(segments.address_of(0x1033), Some(0x1033));
        assert_eq!(segments.address_of(0x1048), Some(0x2048));
        assert_eq!(segments.address_of(0x1038), None);
        assert_eq!(
            [0x1033, 0x2048, 0x2000].map(|address| segments.offset_of(address)),
            [Some(0x1033), Some(0x1048), None]
        );
        assert_eq!(segments.address_of_code(&(0x1000..0x3000)), Some(0x2000));
        assert_eq!(segments.address_of_code(&(0x2000..0x3000)), Some(0x3000));
        assert_eq!(segments.address_of_code(&(0..0x1000)), None);
    }

    /// Against the whole file's parse, which looks at its sections.
    #[test]
    fn the_build_id_in_the_notes_is_the_files() {
        let by_sections = |path: &Path| read(path, |elf| Ok(elf.build_id()?.map(<[u8]>::to_vec))).unwrap();
        let own = std::env::current_exe().unwrap();
        let mapped = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = mapped.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
        for path in [&own, Path::new(library)] {
            assert_eq!(build_id(path), by_sections(path), "{}", path.display());
        }
        assert!(build_id(Path::new(library)).is_some());
        assert_eq!(build_id(Path::new("/nonexistent")), None);
    }

    #[test]
    fn what_is_no_elf_file_is_an_error() {
        let text = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(text.path(), "#!/bin/sh\n").unwrap();
        assert_eq!(read(text.path(), |_| Ok(())).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(Path::new("/"), |_| Ok(())).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(Path::new("/nonexistent"), |_| Ok(())).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
