//! One binary with its symbols and debug information.

use std::io;
use std::path::Path;
use std::sync::Arc;

use addr2line::{Context, FrameIter};
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use object::Object as _;

use super::demangle::{demangled, is_mangled};
use super::files::FileFinder;
use super::table::SymbolTable;
use super::{Frame, Frames};
use crate::elf::{self, Elf, Segments};

type Reader = EndianArcSlice<LittleEndian>;

/// A binary's symbols.
pub(super) struct Module {
    name: Arc<str>,
    segments: Segments,
    symbols: SymbolTable,
    lines: Option<Context<Reader>>,
    /// Neither it nor its debug file says more of functions than which of them other files call.
    stripped: bool,
    /// The recorded file had a build ID and this one has none, or the other way round.
    doubtful: bool,
}

/// The file is another one than was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed;

impl Module {
    /// Reads the symbols of the file recorded as `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is no ELF file.
    pub(super) fn load(
        path: &Arc<str>,
        build_id: Option<&[u8]>,
        finder: &FileFinder,
    ) -> io::Result<Result<Self, Changed>> {
        let recorded = Path::new(&**path);
        elf::read(&finder.here(recorded), |elf| {
            if elf::is_another(elf, build_id)? {
                return Ok(Err(Changed));
            }
            let doubtful = elf.build_id().ok().flatten().is_some() != build_id.is_some();
            let mut symbols = SymbolTable::default();
            symbols.add(elf);
            let mut stripped = elf.symbols().next().is_none();
            let lines = lines(recorded, elf, finder).or_else(|| {
                let debug_file = finder.debug_file(recorded, elf)?;
                let read = |debug: &Elf<'_>| {
                    symbols.add(debug);
                    stripped &= debug.symbols().next().is_none();
                    Ok(lines(&debug_file, debug, finder))
                };
                elf::read(&debug_file, read).ok()?
            });
            symbols.sort();
            Ok(Ok(Self {
                name: Arc::clone(path),
                segments: Segments::of(elf),
                symbols,
                lines,
                stripped,
                doubtful,
            }))
        })
    }

    /// The same under another name.
    pub(super) fn renamed(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Whether it may be another file than the recorded one, because only one of the two has a build ID.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Whether there is debug information.
    pub(super) fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// Whether functions are unknown that no other file calls.
    pub(super) fn is_stripped(&self) -> bool {
        self.stripped
    }

    /// The address that the linker gave to a byte of the file.
    pub(super) fn linked_address(&self, file_offset: u64) -> Option<u64> {
        self.segments.address_of(file_offset)
    }

    /// The functions at a byte of the file, innermost first.
    pub(super) fn frames(&self, file_offset: u64) -> Frames {
        let Some(address) = self.segments.address_of(file_offset) else { return self.unknown() };
        let symbol = self.symbols.name_at(address);
        let mut raw = None;
        let mut frames = self.lines.as_ref().map_or_else(Vec::new, |lines| {
            // Split debug information (.dwo) is not followed: distributions do not ship it.
            let found = lines.find_frames(address).skip_all_loads();
            found.map_or_else(|_| Vec::new(), |found| self.debug_frames(found, &mut raw))
        });
        if frames.is_empty() {
            frames.push(Frame { module: Arc::clone(&self.name), ..Frame::default() });
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.inlined = false;
            if symbol.is_some_and(|symbol| self.is_better(symbol, raw.as_deref(), address)) {
                outermost.function = symbol.map(|name| demangled(name).into());
            }
        }
        frames.into()
    }

    /// Whether a symbol names the function at an address better than the debug information does.
    fn is_better(&self, symbol: &str, debug_name: Option<&str>, address: u64) -> bool {
        match debug_name {
            None => true,
            // That of the linker, with all of the types.
            Some(name) if is_mangled(name) => false,
            // A function that only its file can see, such as one made for a lambda, has a short name in the debug information,
            // and its whole name in the symbol table. Of several names of one of C the table knows which is typed; a part of a
            // function that lies elsewhere has a symbol of its own, though.
            Some(name) => is_mangled(symbol) || self.symbols.is_name_at(address, name),
        }
    }

    /// `raw`: the outermost one's name as the debug information has it.
    fn debug_frames(&self, mut found: FrameIter<'_, Reader>, raw: &mut Option<String>) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = found.next() {
            let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
            let location = frame.location.as_ref();
            frames.push(Frame {
                function: name.as_deref().map(|name| demangled(name).into()),
                module: Arc::clone(&self.name),
                file: location.and_then(|location| location.file).map(Into::into),
                line: location.and_then(|location| location.line).filter(|&line| line > 0),
                inlined: true,
            });
            *raw = name.map(Into::into);
        }
        frames
    }

    fn unknown(&self) -> Frames {
        [Frame { module: Arc::clone(&self.name), ..Frame::default() }].into()
    }
}

/// The debug information of an open file; `None` when it has none that can be read.
fn lines(path: &Path, elf: &Elf<'_>, finder: &FileFinder) -> Option<Context<Reader>> {
    Context::from_dwarf(read_dwarf(path, elf, finder)?).ok()
}

/// The sections of an open file's debug information; `None` when it has none that can be read.
pub(super) fn read_dwarf(path: &Path, elf: &Elf<'_>, finder: &FileFinder) -> Option<Dwarf<Reader>> {
    if !elf.has_debug_symbols() {
        return None;
    }
    let mut dwarf = Dwarf::load(|id| section(elf, id)).ok()?;
    if let Some(path) = finder.supplementary_file(path, elf) {
        elf::read(&path, |supplementary| dwarf.load_sup(|id| section(supplementary, id))).ok()?;
    }
    Some(dwarf)
}

fn section(elf: &Elf<'_>, id: SectionId) -> object::Result<Reader> {
    let bytes = elf::section(elf, id.name())?.map_or_else(|| Arc::from([]), |section| section.bytes);
    Ok(EndianArcSlice::new(bytes, LittleEndian))
}
