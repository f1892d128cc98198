//! Symbol tables: the name at an address when there is no debug information.

use std::sync::Arc;

use object::{Object as _, ObjectSection, ObjectSymbol as _, SectionFlags, SymbolKind};

use super::plt;
use crate::elf::Elf;

/// Functions by address.
#[derive(Debug, Default)]
pub(super) struct SymbolTable(Vec<Symbol>);

#[derive(Debug, PartialEq, Eq)]
struct Symbol {
    address: u64,
    /// First address after it; `None` when the table does not say.
    end: Option<u64>,
    /// Of several symbols at one address the lowest rank is shown.
    rank: u8,
    name: Arc<str>,
}

impl SymbolTable {
    /// Takes in the functions of a file's `.symtab` and `.dynsym`, and the entries of its `.plt` sections; what of these names no
    /// function has the section's name.
    pub(super) fn add(&mut self, elf: &Elf<'_>) {
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            let section = symbol.section_index().and_then(|index| elf.section_by_index(index).ok());
            let is_code = section.is_some_and(|section| holds_code(&section));
            let rank = match symbol.kind() {
                SymbolKind::Text if symbol.is_weak() => 1,
                SymbolKind::Text if symbol.is_local() => 2,
                SymbolKind::Text => 0,
                // Labels of assembler code, which often has no other symbols.
                SymbolKind::Unknown | SymbolKind::Label => 3,
                _ => continue,
            };
            if let (true, false, Ok(name)) = (is_code, symbol.is_undefined(), symbol.name())
                && !name.is_empty()
            {
                let end = (symbol.size() > 0).then(|| symbol.address().saturating_add(symbol.size()));
                self.0.push(Symbol { address: symbol.address(), end, rank, name: name.into() });
            }
        }
        for (addresses, name) in plt::entries(elf) {
            self.0.push(Symbol { address: addresses.start, end: Some(addresses.end), rank: 4, name });
        }
    }

    /// Brings the table into the order that look-ups need.
    pub(super) fn sort(&mut self) {
        self.0.sort_by(|a, b| (a.address, a.rank, &a.name).cmp(&(b.address, b.rank, &b.name)));
        self.0.dedup_by_key(|symbol| symbol.address);
    }

    /// The (mangled) name of the function that covers the address.
    pub(super) fn name_at(&self, address: u64) -> Option<&Arc<str>> {
        let after = self.0.partition_point(|symbol| symbol.address <= address);
        let symbol = &self.0[after.checked_sub(1)?];
        symbol.end.is_none_or(|end| address < end).then_some(&symbol.name)
    }
}

/// By the flag, because a file with separate debug information has sections of code without their bytes.
fn holds_code<'a>(section: &impl ObjectSection<'a>) -> bool {
    matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(object::elf::SHF_EXECINSTR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(address: u64, end: Option<u64>, rank: u8, name: &str) -> Symbol {
        Symbol { address, end, rank, name: name.into() }
    }

    #[test]
    fn the_covering_function_is_found() {
        let mut table = SymbolTable(vec![
            symbol(0x200, None, 3, "label"),
            symbol(0x100, Some(0x120), 1, "weak_alias"),
            symbol(0x100, Some(0x120), 0, "function"),
        ]);
        table.sort();
        let name = |address| table.name_at(address).map(|name| &**name);
        assert_eq!(name(0xff), None);
        assert_eq!(name(0x100), Some("function"));
        assert_eq!(name(0x11f), Some("function"));
        assert_eq!(name(0x120), None);
        assert_eq!(name(0x9999), Some("label"));
    }
}
