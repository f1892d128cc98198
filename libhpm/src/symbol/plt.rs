//! Entries of procedure linkage tables: the short pieces of code through which a file calls functions of other files.
//!
//! They have no symbols. Each jumps through a slot that the dynamic linker fills, and the slot's relocation says with what; so that
//! all layouts that linkers use (`.plt`, `.plt.got`, `.plt.sec`, with and without `endbr64` and `bnd`) are read in one way: by decoding.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ObjectSymbolTable as _, RelocationTarget};

use super::demangle::demangled;
use crate::elf::Elf;

/// The names of all addresses in the tables: that of an entry's function, demangled, with `@plt` behind it as perf and gdb write it;
/// the section's where an entry names no function.
pub(super) fn entries(elf: &Elf<'_>) -> Vec<(Range<u64>, Arc<str>)> {
    let slots = slots(elf);
    let mut found = Vec::new();
    for section in elf.sections() {
        let Some(name) = section.name().ok().filter(|name| name.starts_with(".plt")) else { continue };
        let whole: Arc<str> = format!("[{name}]").into();
        let start = section.address();
        let end = start.saturating_add(section.size());
        let mut named = start;
        // A file of separate debug information has the section without its bytes: the program's own file names the entries.
        let Some(code) = section.data().ok().filter(|code| !code.is_empty()) else { continue };
        for (entry, name) in named_entries(start, code, &slots) {
            found.push((named..entry.start, Arc::clone(&whole)));
            named = entry.end;
            found.push((entry, name));
        }
        found.push((named..end, whole));
    }
    found.retain(|(addresses, _)| !addresses.is_empty());
    found
}

/// The entries of a table that name a function, by address.
fn named_entries(start: u64, code: &[u8], slots: &HashMap<u64, String>) -> Vec<(Range<u64>, Arc<str>)> {
    let size = entry_size(code);
    let named = |instruction: Instruction| {
        let is_jump = instruction.flow_control() == FlowControl::IndirectBranch
            && instruction.is_ip_rel_memory_operand();
        let name = slots.get(&instruction.ip_rel_memory_address()).filter(|_| is_jump)?;
        let first = start + (instruction.ip() - start) / size * size;
        let name = demangled(name);
        Some((first..first + size, format!("{name}@plt").into()))
    };
    Decoder::with_ip(64, code, start, DecoderOptions::NONE).iter().filter_map(named).collect()
}

/// Bytes of an entry. Those of `.plt.got` without `endbr64` are a jump and a filler of two bytes.
fn entry_size(code: &[u8]) -> u64 {
    const JUMP: [u8; 2] = [0xff, 0x25];
    const FILLER: [u8; 2] = [0x66, 0x90];
    if code.starts_with(&JUMP) && code.get(6..8) == Some(&FILLER) { 8 } else { 16 }
}

/// The functions by the slots that hold their addresses.
fn slots(elf: &Elf<'_>) -> HashMap<u64, String> {
    let (Some(relocations), Some(symbols)) = (elf.dynamic_relocations(), elf.dynamic_symbol_table()) else {
        return HashMap::new();
    };
    let name = |target| match target {
        RelocationTarget::Symbol(index) => {
            symbols.symbol_by_index(index).ok()?.name().ok().map(str::to_owned)
        }
        _ => None,
    };
    relocations.filter_map(|(slot, relocation)| Some((slot, name(relocation.target())?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    /// A jump at an address through a slot.
    fn jump(at: u64, slot: u64) -> Vec<u8> {
        [&[0xff, 0x25][..], &((slot - at - 6) as u32).to_le_bytes()].concat()
    }

    fn shown(code: &[u8]) -> Vec<(u64, u64, String)> {
        let slots = HashMap::from([(0x4018, "memcpy".to_owned()), (0x4020, "_ZN1a1bEv".to_owned())]);
        let entries = named_entries(START, code, &slots);
        entries.into_iter().map(|(at, name)| (at.start, at.end, name.to_string())).collect()
    }

    fn named(at: u64, size: u64) -> Vec<(u64, u64, String)> {
        vec![(at, at + size, "memcpy@plt".into()), (at + size, at + 2 * size, "a::b()@plt".into())]
    }

    #[test]
    fn entries_of_all_layouts_have_their_function_s_name() {
        // The table of old: push, jump to the linker; then jump, push, jump.
        let first =
            [&[0xff, 0x35, 0, 0, 0, 0][..], &jump(START + 6, 0x4010), &[0x0f, 0x1f, 0x40, 0]].concat();
        let lazy = |at, slot| [&jump(at, slot)[..], &[0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0]].concat();
        let old = [first, lazy(START + 16, 0x4018), lazy(START + 32, 0x4020)].concat();
        assert_eq!(shown(&old), named(START + 16, 16));
        // With endbr64 and bnd, and without lazy binding.
        let endbr = |at: u64, slot| {
            [&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2][..], &jump(at + 5, slot), &[0x0f, 0x1f, 0x44, 0, 0]].concat()
        };
        assert_eq!(shown(&[endbr(START, 0x4018), endbr(START + 16, 0x4020)].concat()), named(START, 16));
        let short = |at, slot| [&jump(at, slot)[..], &[0x66, 0x90]].concat();
        assert_eq!(shown(&[short(START, 0x4018), short(START + 8, 0x4020)].concat()), named(START, 8));
    }

    #[test]
    fn what_jumps_elsewhere_has_no_name() {
        assert_eq!(shown(&[jump(START, 0x5000), vec![0xff; 40]].concat()), []);
        assert_eq!(shown(&[]), []);
    }

    #[test]
    fn tables_are_covered_without_a_gap() {
        let file = std::env::current_exe().unwrap();
        let (sections, entries) = crate::elf::read(&file, |elf| {
            let sections =
                elf.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".plt")));
            Ok((sections.map(|section| section.size()).sum::<u64>(), entries(elf)))
        })
        .unwrap();
        assert_eq!(entries.iter().map(|(at, _)| at.end - at.start).sum::<u64>(), sections);
    }
}
