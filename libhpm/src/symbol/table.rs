//! Symbol tables: the name at an address when there is no debug information, and where its function begins and ends.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use object::{Object as _, ObjectSection, ObjectSymbol as _, SectionFlags, SymbolKind};

use super::demangle::demangled;
use super::files::FileFinder;
use super::plt;
use super::preference::Preference;
use crate::elf::{self, Elf};

/// Functions by address.
#[derive(Debug, Default)]
pub(super) struct SymbolTable(Vec<Symbol>);

#[derive(Debug, PartialEq, Eq)]
struct Symbol {
    address: u64,
    /// First address after it; `None` when the table does not say.
    end: Option<u64>,
    /// Of several symbols at one address the one of the first kind is shown.
    kind: Kind,
    /// Other files do not see it.
    local: bool,
    name: Arc<str>,
}

/// What names code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Function,
    /// Of assembler code, which often has no other symbols.
    Label,
    /// An entry of a procedure linkage table.
    Linkage,
}

impl Symbol {
    /// By address, and at one address the one that is shown first.
    fn order(&self) -> (u64, Kind, bool, Preference<'_>) {
        (self.address, self.kind, self.end.is_none(), Preference::of(&self.name, self.local))
    }
}

impl SymbolTable {
    /// That of a file, which was recorded as `recorded`, with what its separate debug information has.
    pub(super) fn of(recorded: &Path, elf: &Elf<'_>, finder: &FileFinder) -> Self {
        let mut table = Self::default();
        table.add(elf);
        let debug_file = if elf.has_debug_symbols() { None } else { finder.debug_file(recorded, elf) };
        if let Some(path) = debug_file {
            // One that cannot be read leaves the file's own symbols.
            let _ = elf::read(&path, |debug| {
                table.add(debug);
                Ok(())
            });
        }
        table.sort();
        table
    }

    /// Takes in the functions of a file's `.symtab` and `.dynsym`, and the entries of its `.plt` sections; what of these names no
    /// function has the section's name.
    pub(super) fn add(&mut self, elf: &Elf<'_>) {
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            let section = symbol.section_index().and_then(|index| elf.section_by_index(index).ok());
            let is_code = section.is_some_and(|section| holds_code(&section));
            let kind = match symbol.kind() {
                SymbolKind::Text => Kind::Function,
                SymbolKind::Unknown | SymbolKind::Label => Kind::Label,
                _ => continue,
            };
            if let (true, false, Ok(name)) = (is_code, symbol.is_undefined(), symbol.name())
                && !name.is_empty()
            {
                let end = (symbol.size() > 0).then(|| symbol.address().saturating_add(symbol.size()));
                let (address, local) = (symbol.address(), symbol.is_local());
                self.0.push(Symbol { address, end, kind, local, name: name.into() });
            }
        }
        for (addresses, name) in plt::entries(elf) {
            let (address, end, kind) = (addresses.start, Some(addresses.end), Kind::Linkage);
            self.0.push(Symbol { address, end, kind, local: true, name });
        }
    }

    /// Brings the table into the order that look-ups need.
    pub(super) fn sort(&mut self) {
        self.0.sort_by(|a, b| a.order().cmp(&b.order()));
        // A file with separate debug information repeats the symbols of its program.
        self.0.dedup_by(|a, b| a.address == b.address && a.name == b.name);
    }

    /// The (mangled) name of the function that covers the address.
    pub(super) fn name_at(&self, address: u64) -> Option<&Arc<str>> {
        let symbol = self.beginning_at(self.before(address).last()?.address).first()?;
        symbol.end.is_none_or(|end| address < end).then_some(&symbol.name)
    }

    /// Whether the function that covers the address has this (mangled) name, too.
    pub(super) fn is_name_at(&self, address: u64, name: &str) -> bool {
        let start = self.before(address).last().map(|symbol| symbol.address);
        start.is_some_and(|start| self.beginning_at(start).iter().any(|symbol| &*symbol.name == name))
    }

    /// The address of a function by its name, mangled or not.
    pub(super) fn address_of(&self, wanted: &str) -> Option<u64> {
        let found = self.0.iter().find(|symbol| &*symbol.name == wanted);
        let found = found.or_else(|| self.0.iter().find(|symbol| demangled(&symbol.name) == wanted));
        found.map(|symbol| symbol.address)
    }

    /// Name and extent of the function whose code an address of a section is in: labels within a function are of it. Symbols
    /// without a size that are in none reach to the next one, or to the section's end.
    pub(super) fn function_at(&self, address: u64, section: &Range<u64>) -> Option<(&Arc<str>, Range<u64>)> {
        let in_section = self.0.partition_point(|symbol| symbol.address < section.start);
        let before = self.before(address).get(in_section..)?;
        let covers = |symbol: &&Symbol| symbol.end.is_some_and(|end| address < end);
        if let Some(nearest) = before.iter().rfind(covers) {
            let symbol = self.beginning_at(nearest.address).iter().find(covers).unwrap_or(nearest);
            return Some((&symbol.name, symbol.address..symbol.end?));
        }
        let symbol = self.beginning_at(before.last()?.address).first()?;
        let next = self.0.get(self.before(address).len()).map_or(section.end, |next| next.address);
        symbol.end.is_none().then(|| (&symbol.name, symbol.address..next.min(section.end)))
    }

    /// The symbols that do not begin behind an address.
    fn before(&self, address: u64) -> &[Symbol] {
        &self.0[..self.0.partition_point(|symbol| symbol.address <= address)]
    }

    /// The symbols of one address, the one that is shown first.
    fn beginning_at(&self, address: u64) -> &[Symbol] {
        let before = self.before(address);
        &before[before.partition_point(|symbol| symbol.address < address)..]
    }
}

/// By the flag, because a file with separate debug information has sections of code without their bytes.
fn holds_code<'a>(section: &impl ObjectSection<'a>) -> bool {
    matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(object::elf::SHF_EXECINSTR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(address: u64, end: Option<u64>, kind: Kind, name: &str) -> Symbol {
        Symbol { address, end, kind, local: false, name: name.into() }
    }

    #[test]
    fn the_covering_function_is_found() {
        let mut table = SymbolTable(vec![
            symbol(0x200, None, Kind::Label, "label"),
            symbol(0x100, Some(0x120), Kind::Function, "__function"),
            symbol(0x100, Some(0x120), Kind::Function, "function"),
        ]);
        table.sort();
        let name = |address| table.name_at(address).map(|name| &**name);
        assert_eq!(name(0xff), None);
        assert_eq!(name(0x100), Some("function"));
        assert_eq!(name(0x11f), Some("function"));
        assert_eq!(name(0x120), None);
        assert_eq!(name(0x9999), Some("label"));
        assert_eq!([0x110, 0x120].map(|address| table.is_name_at(address, "__function")), [true, true]);
        assert!(!table.is_name_at(0x200, "__function") && !table.is_name_at(0xff, "__function"));
    }

    #[test]
    fn labels_are_of_the_function_around_them() {
        let mut table = SymbolTable(vec![
            symbol(0x100, Some(0x140), Kind::Function, "whole"),
            symbol(0x110, None, Kind::Label, "label"),
            symbol(0x160, Some(0x170), Kind::Function, "_name"),
            symbol(0x160, Some(0x170), Kind::Function, "name"),
            symbol(0x180, None, Kind::Label, "unsized"),
            symbol(0x1a0, None, Kind::Label, "next"),
        ]);
        table.sort();
        let at =
            |address| table.function_at(address, &(0x100..0x1c0)).map(|(name, extent)| (&**name, extent));
        assert_eq!(at(0x100), Some(("whole", 0x100..0x140)));
        assert_eq!(at(0x118), Some(("whole", 0x100..0x140)));
        // A function that ends before the address does not have it, however far the next one is.
        assert!([0xff, 0x170].into_iter().all(|address| at(address).is_none()));
        assert_eq!(at(0x165), Some(("name", 0x160..0x170)));
        assert_eq!(at(0x181), Some(("unsized", 0x180..0x1a0)));
        assert_eq!(at(0x1b0), Some(("next", 0x1a0..0x1c0)));
        assert_eq!(table.function_at(0x1b0, &(0x1a8..0x1c0)), None, "another section's");
        assert_eq!(
            ["_name", "label", "none"].map(|name| table.address_of(name)),
            [Some(0x160), Some(0x110), None]
        );
    }
}
