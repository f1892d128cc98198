//! Where functions are by the tables for unwinding, which stripped files have, too.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection as _};
use object::{Object as _, ObjectSection as _};

use crate::elf::{self, Elf};

/// Bytes of an address in the tables of 64-bit programs.
const ADDRESS_BYTES: u8 = 8;

/// The code that each entry of `.eh_frame` describes, by the linker's addresses. A function whose cold part lies elsewhere has two.
/// What follows an entry that cannot be read is left out.
pub(super) fn described(elf: &Elf<'_>) -> Vec<Range<u64>> {
    let Ok(Some(section)) = elf::section(elf, ".eh_frame") else { return Vec::new() };
    let address = |name| elf.section_by_name(name).map_or(0, |section| section.address());
    let mut frames = EhFrame::new(&section.bytes, LittleEndian);
    if elf.is_64() {
        frames.set_address_size(ADDRESS_BYTES);
    }
    let bases = BaseAddresses::default()
        .set_eh_frame(section.addresses.start)
        .set_text(address(".text"))
        .set_got(address(".got"));
    let mut found = Vec::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(entry) = entry
            && let Ok(entry) = entry.parse(EhFrame::cie_from_offset)
        {
            let start = entry.initial_address();
            found.push(start..start.saturating_add(entry.len()));
        }
    }
    found
}

/// What a function of a file is called of which only its address is known.
pub(super) fn name(path: &Path, start: u64) -> Arc<str> {
    format!("[{}+{start:#x}]", path.file_name().unwrap_or_default().to_string_lossy()).into()
}
