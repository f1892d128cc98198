//! A binary as it lies in memory: its machine code, its functions and its variables by address.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use object::{
    Architecture, Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind,
};

use super::demangle::demangled;
use super::preference::Preference;
use super::{FileFinder, frames};
use crate::address_space::{AddressSpaces, Mapping};
use crate::elf::{self, Elf, Segments};

/// A binary's code and symbols, at the addresses that the linker gave them.
#[derive(Debug)]
pub struct Image {
    /// Its path when recorded.
    pub path: Arc<str>,
    /// Bits of its addresses: 64 or 32.
    pub bits: u32,
    segments: Segments,
    /// Bytes of sections with code.
    code: Vec<(Range<u64>, Vec<u8>)>,
    /// Places in memory of what is loaded, variables without bytes in the file included.
    loaded: Vec<Range<u64>>,
    functions: Extents,
    variables: Extents,
}

/// Symbols by address.
#[derive(Debug, Default)]
struct Extents(Vec<(Range<u64>, Arc<str>)>);

/// A symbol of a file.
struct Symbol {
    address: u64,
    size: u64,
    section_end: u64,
    name: String,
    /// Other files do not see it.
    local: bool,
}

impl Symbol {
    /// By address, and at one address the one that is kept first: of the greatest ones that with the name which people type.
    fn order(&self) -> (u64, Reverse<u64>, Preference<'_>) {
        (self.address, Reverse(self.size), Preference::of(&self.name, self.local))
    }
}

impl Extents {
    /// Of these addresses, sizes and names. A symbol without a size reaches to the next one, or to the end of its section.
    fn new(mut symbols: Vec<Symbol>) -> Self {
        symbols.sort_by(|a, b| a.order().cmp(&b.order()));
        symbols.dedup_by_key(|symbol| symbol.address);
        let next: Vec<u64> = symbols.iter().skip(1).map(|symbol| symbol.address).chain([u64::MAX]).collect();
        let extents = symbols.into_iter().zip(next).map(|(symbol, next)| {
            let Symbol { address, size, section_end, name, .. } = symbol;
            let end = if size > 0 { address.saturating_add(size) } else { next.min(section_end) };
            (address..end, demangled(&name).into())
        });
        Self(extents.collect())
    }

    /// Adds functions without a symbol. Nobody knows their names: they are called after their addresses.
    fn add_described(&mut self, elf: &Elf<'_>, path: &Path) {
        let linkage = elf.sections().filter(|section| {
            // An entry describes all of it, although it is many functions.
            section.name().is_ok_and(|name| name.starts_with(".plt"))
        });
        let linkage: Vec<u64> = linkage.map(|section| section.address()).collect();
        let described = frames::described(elf).into_iter();
        let unknown = described.filter(|range| {
            !range.is_empty() && self.at(range.start).is_none() && !linkage.contains(&range.start)
        });
        let added: Vec<_> = unknown.map(|range| (range.clone(), frames::name(path, range.start))).collect();
        self.0.extend(added);
        self.0.sort_by_key(|(range, _)| range.start);
    }

    fn at(&self, address: u64) -> Option<&(Range<u64>, Arc<str>)> {
        let after = self.0.partition_point(|(range, _)| range.start <= address);
        self.0[..after].last().filter(|(range, _)| range.contains(&address))
    }
}

impl Image {
    /// Reads the file that was recorded as `path`; `None` when it is another one here than was recorded.
    ///
    /// # Errors
    /// The file cannot be read, or is no ELF file.
    pub fn load(path: &Arc<str>, build_id: Option<&[u8]>, finder: &FileFinder) -> io::Result<Option<Self>> {
        let recorded = Path::new(&**path);
        elf::read(&finder.here(recorded), |elf| {
            if elf::is_another(elf, build_id)? {
                return Ok(None);
            }
            let (mut functions, mut variables) = (Vec::new(), Vec::new());
            symbols(elf, &mut functions, &mut variables);
            if elf.symbols().next().is_none()
                && let Some(debug) = finder.debug_file(recorded, elf)
            {
                // A debug file that cannot be read leaves the binary's own symbols.
                let _ = elf::read(&debug, |debug| {
                    symbols(debug, &mut functions, &mut variables);
                    Ok(())
                });
            }
            let mut functions = Extents::new(functions);
            functions.add_described(elf, recorded);
            Ok(Some(Self {
                path: Arc::clone(path),
                bits: if elf.architecture() == Architecture::I386 { 32 } else { 64 },
                segments: Segments::of(elf),
                code: code(elf)?,
                loaded: elf
                    .segments()
                    .map(|segment| segment.address()..segment.address().saturating_add(segment.size()))
                    .collect(),
                functions,
                variables: Extents::new(variables),
            }))
        })
    }

    /// The code from an address on, to the end of its section; empty where there is none.
    #[must_use]
    pub fn code_at(&self, address: u64) -> &[u8] {
        let section = self.code.iter().find(|(range, _)| range.contains(&address));
        section.and_then(|(range, bytes)| bytes.get((address - range.start) as usize..)).unwrap_or_default()
    }

    /// The function that covers an address: its extent and its name.
    #[must_use]
    pub fn function_at(&self, address: u64) -> Option<(Range<u64>, Arc<str>)> {
        self.functions.at(address).cloned()
    }

    /// The code of a function.
    #[must_use]
    pub fn function_code(&self, extent: &Range<u64>) -> &[u8] {
        let code = self.code_at(extent.start);
        &code[..code.len().min((extent.end - extent.start) as usize)]
    }

    /// The variable that covers an address: its extent and its name.
    #[must_use]
    pub fn variable_at(&self, address: u64) -> Option<(Range<u64>, Arc<str>)> {
        self.variables.at(address).cloned()
    }

    /// Whether something is loaded at an address.
    #[must_use]
    pub fn is_loaded(&self, address: u64) -> bool {
        self.loaded.iter().any(|range| range.contains(&address))
    }
}

fn code(elf: &Elf<'_>) -> object::Result<Vec<(Range<u64>, Vec<u8>)>> {
    let sections = elf.sections().filter(|section| section.kind() == object::SectionKind::Text);
    sections
        .map(|section| {
            let bytes = section.data()?.to_vec();
            Ok((section.address()..section.address() + bytes.len() as u64, bytes))
        })
        .collect()
}

/// Adds the functions and variables of a file.
fn symbols(elf: &Elf<'_>, functions: &mut Vec<Symbol>, variables: &mut Vec<Symbol>) {
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        let Ok(name) = symbol.name() else { continue };
        let section = symbol.section_index().and_then(|index| elf.section_by_index(index).ok());
        let Some(section) = section.filter(|_| !name.is_empty() && !symbol.is_undefined()) else { continue };
        let entry = || Symbol {
            address: symbol.address(),
            size: symbol.size(),
            section_end: section.address().saturating_add(section.size()),
            name: name.to_owned(),
            local: symbol.is_local(),
        };
        let is_code = section.kind() == object::SectionKind::Text;
        match symbol.kind() {
            SymbolKind::Text => functions.push(entry()),
            SymbolKind::Unknown | SymbolKind::Label if is_code => functions.push(entry()),
            // Labels in data, such as `__bss_start`, have no extent of their own.
            SymbolKind::Data if symbol.size() > 0 => variables.push(entry()),
            _ => {}
        }
    }
}

/// A binary in a process.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The binary.
    pub image: Arc<Image>,
    /// What is added to the linker's addresses.
    pub bias: u64,
}

impl Loaded {
    /// The address that the linker gave to one in memory.
    #[must_use]
    pub fn linked(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }
}

/// Path and build ID of a file.
type FileKey = (Arc<str>, Option<Arc<[u8]>>);
/// A process, and the epoch of its code ([`AddressSpaces::epoch`]).
type ProcessKey = (u32, (u64, usize));

/// The binaries of each process; reads each file once.
#[derive(Debug, Default)]
pub struct Images {
    finder: FileFinder,
    files: HashMap<FileKey, Option<Arc<Image>>>,
    /// By process and epoch of its code.
    processes: HashMap<ProcessKey, Arc<[Loaded]>>,
}

impl Images {
    /// One that finds files as told.
    #[must_use]
    pub fn new(finder: FileFinder) -> Self {
        Self { finder, ..Self::default() }
    }

    /// The binary whose code or data is at an address of a process at a time (TSC); `None` where there is none, or its file is not
    /// here.
    pub fn at(&mut self, spaces: &AddressSpaces, pid: u32, tsc: u64, address: u64) -> Option<Loaded> {
        let key = (pid, spaces.epoch(pid, tsc));
        if !self.processes.contains_key(&key) {
            let code =
                spaces.at(pid, tsc).into_iter().filter(|mapping| mapping.executable && mapping.is_file());
            let loaded: Vec<Loaded> = code.filter_map(|mapping| self.loaded(&mapping)).collect();
            self.processes.insert(key, loaded.into());
        }
        let loaded = self.processes.get(&key)?;
        loaded.iter().find(|one| one.image.is_loaded(one.linked(address))).cloned()
    }

    fn loaded(&mut self, mapping: &Mapping) -> Option<Loaded> {
        let finder = &self.finder;
        let file = (Arc::clone(&mapping.path), mapping.build_id.clone());
        let load = |(path, build_id): &FileKey| {
            Image::load(path, build_id.as_deref(), finder).ok().flatten().map(Arc::new)
        };
        let image = self.files.entry(file).or_insert_with_key(load).clone()?;
        let mapped = mapping.file_offset..mapping.file_offset + (mapping.end - mapping.start);
        let bias = mapping.start.wrapping_sub(image.segments.address_of_code(&mapped)?);
        Some(Loaded { image, bias })
    }
}
