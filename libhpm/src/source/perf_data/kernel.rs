//! Functions of the kernel that was recorded. A perf.data file says which kernel it was and where one of its symbols was,
//! but has no names: they are this machine's, if it runs the same kernel.

use std::fs;

use super::bytes::u32_at;
use crate::sideband::Mapping;
use crate::symbol::kernel_symbols;
use crate::trace::KernelSymbolRow;

/// What a file says of its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordedKernel {
    /// `uname -r`; empty when not known.
    pub(super) release: String,
    /// Build ID.
    pub(super) build_id: Option<Vec<u8>>,
    /// A symbol, and where it was.
    pub(super) reference: Option<(String, u64)>,
}

impl RecordedKernel {
    /// Takes note of the mapping of the kernel itself: `[kernel.kallsyms]_text` at the file offset that is `_text`'s address.
    pub(super) fn note(&mut self, mapping: &Mapping) {
        if let Some(symbol) = mapping.path.strip_prefix("[kernel.kallsyms]").filter(|name| !name.is_empty()) {
            self.reference = Some((symbol.to_owned(), mapping.file_offset));
        }
    }

    /// Its functions, at the addresses where they were.
    ///
    /// # Errors
    /// A sentence's end: why there are none.
    pub(super) fn symbols(&self) -> Result<Vec<KernelSymbolRow>, String> {
        let own = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let same =
            match (&self.build_id, fs::read("/sys/kernel/notes").ok().as_deref().and_then(build_id_of_notes))
            {
                (Some(recorded), Some(own)) => *recorded == own,
                _ => !self.release.is_empty() && self.release == own.trim(),
            };
        if !same {
            let release = if self.release.is_empty() { "another" } else { &self.release };
            return Err(format!("the kernel recorded ({release}) is not the one that runs here"));
        }
        let symbols = kernel_symbols().unwrap_or_default();
        if symbols.is_empty() {
            return Err("this user may not read /proc/kallsyms".to_owned());
        }
        let (name, address) = self.reference.as_ref().ok_or("the file does not say where the kernel was")?;
        relocate(symbols, name, *address).ok_or_else(|| format!("this kernel has no symbol `{name}`"))
    }
}

/// Moves symbols so that the one of this name comes to an address: a kernel is elsewhere after each boot. Where each module was
/// is then not known.
fn relocate(symbols: Vec<KernelSymbolRow>, name: &str, address: u64) -> Option<Vec<KernelSymbolRow>> {
    let here = symbols.iter().find(|symbol| symbol.name == name && symbol.module.is_none())?.address;
    let shift = address.wrapping_sub(here);
    if shift == 0 {
        return Some(symbols);
    }
    let moved = |row: KernelSymbolRow| KernelSymbolRow { address: row.address.wrapping_add(shift), ..row };
    Some(symbols.into_iter().filter(|row| row.module.is_none()).map(moved).collect())
}

/// The GNU build ID among the notes of an ELF file: lengths of name and contents, a type, both padded to 4 bytes.
fn build_id_of_notes(bytes: &[u8]) -> Option<Vec<u8>> {
    const GNU_BUILD_ID: u32 = 3;
    let padded = |length: u32| u64::from(length).next_multiple_of(4);
    let mut place = 0;
    loop {
        let [name, contents, kind] = [0, 4, 8].map(|field| u32_at(bytes, place + field));
        let (name, contents, kind) = (name?, contents?, kind?);
        let start = place + 12 + padded(name);
        if kind == GNU_BUILD_ID && bytes.get(place as usize + 12..)?.starts_with(b"GNU\0") {
            return bytes.get(start as usize..)?.get(..contents as usize).map(<[u8]>::to_vec);
        }
        place = start + padded(contents);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(address: u64, name: &str, module: Option<&str>) -> KernelSymbolRow {
        KernelSymbolRow { address, name: name.into(), module: module.map(str::to_owned) }
    }

    #[test]
    fn a_kernel_that_booted_elsewhere_is_moved_without_its_modules() {
        let here =
            || vec![symbol(0x1000, "_text", None), symbol(0x1100, "f", None), symbol(0x9000, "m", Some("x"))];
        assert_eq!(relocate(here(), "_text", 0x1000).unwrap(), here());
        let moved = relocate(here(), "_text", 0x3000).unwrap();
        assert_eq!(moved, [symbol(0x3000, "_text", None), symbol(0x3100, "f", None)]);
        assert_eq!(relocate(here(), "_stext", 0x3000), None);
    }

    #[test]
    fn the_build_id_is_found_among_notes() {
        let note = |name: &[u8], kind: u32, contents: &[u8]| {
            let mut bytes = Vec::new();
            for number in [name.len() as u32, contents.len() as u32, kind] {
                bytes.extend(number.to_le_bytes());
            }
            for part in [name, contents] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let notes = [note(b"Linux\0", 257, &[1; 5]), note(b"GNU\0", 3, &[7; 20])].concat();
        assert_eq!(build_id_of_notes(&notes), Some(vec![7; 20]));
        assert_eq!(build_id_of_notes(&notes[..30]), None);
    }
}
