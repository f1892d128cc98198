//! The instructions around a place in a binary.

use std::cell::OnceCell;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, FastFormatter, FlowControl};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};
use serde::Serialize;

use super::demangle::demangled;
use super::module::Changed;
use super::table::SymbolTable;
use super::{FileFinder, frames};
use crate::elf::{self, Elf, Segments};

/// A place in a program's code, as people write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// So many bytes behind a symbol.
    Symbol(String, u64),
    /// A byte of a file.
    FileOffset(u64),
    /// The address that the linker gave it.
    Linked(u64),
}

impl Place {
    /// `NAME` or `NAME+OFFSET`, the offset as a decimal or `0x` hexadecimal number.
    #[must_use]
    pub fn of_symbol(text: &str) -> Self {
        let split = text.rsplit_once('+').and_then(|(name, offset)| Some((name, number(offset.trim())?)));
        let (name, offset) = split.unwrap_or((text, 0));
        Self::Symbol(name.trim().to_owned(), offset)
    }
}

/// A decimal number, or a hexadecimal one after `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Instruction {
    /// The address that the linker gave it.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u8,
    /// Its mnemonic, in small letters.
    pub mnemonic: String,
    /// All of it, in Intel's syntax.
    pub text: String,
    /// The linker's address of where a branch or call goes that says so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
}

/// The instructions of the function around a place.
#[derive(Clone, Debug)]
pub struct Code {
    /// The function.
    pub function: Arc<str>,
    /// Its instructions in the order of their addresses. Never empty.
    pub instructions: Vec<Instruction>,
    /// Which of them the place is.
    pub reference: usize,
    segments: Segments,
}

/// A file that code is looked at in: where its functions are is read once, as its own symbols and those of its separate debug
/// information say, and their code when it is asked for.
#[derive(Debug)]
pub struct CodeFile {
    /// Its path when it was recorded.
    recorded: PathBuf,
    /// Where it is here.
    here: PathBuf,
    segments: Segments,
    symbols: SymbolTable,
    /// What the tables for unwinding describe, which stripped files have, too; read when no symbol covers a place.
    described: OnceCell<Vec<Range<u64>>>,
}

impl CodeFile {
    /// The file that was recorded as `path` with this build ID (if one is known).
    ///
    /// # Errors
    /// The file cannot be read, is no ELF file, or is another one here than was recorded.
    pub fn open(path: &Path, build_id: Option<&[u8]>, finder: &FileFinder) -> io::Result<Self> {
        let here = finder.here(path);
        let read = elf::read(&here, |elf| {
            if elf::is_another(elf, build_id)? {
                return Ok(Err(Changed));
            }
            Ok(Ok((Segments::of(elf), SymbolTable::of(path, elf, finder))))
        })?;
        let (segments, symbols) = read.map_err(|Changed| {
            io::Error::other(
                "it is another file here than the one recorded (its build ID differs); name the recorded machine's files \
                 with --symfs",
            )
        })?;
        Ok(Self { recorded: path.to_owned(), here, segments, symbols, described: OnceCell::new() })
    }

    /// The function around a place; `None` when the file has no such symbol, or no function covers the place. One without a symbol
    /// is called after its address.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn around(&self, place: &Place) -> io::Result<Option<Code>> {
        let address = match place {
            Place::Symbol(name, offset) => {
                self.symbols.address_of(name).map(|address| address.wrapping_add(*offset))
            }
            Place::FileOffset(offset) => self.segments.address_of(*offset),
            Place::Linked(address) => Some(*address),
        };
        let Some(address) = address else { return Ok(None) };
        elf::read(&self.here, |elf| {
            let Some((function, extent)) = self.function_at(elf, address) else { return Ok(None) };
            let instructions = decode(&bytes(elf, &extent)?, extent.start);
            let reference = instruction_at(&instructions, address);
            let segments = self.segments.clone();
            Ok(reference.map(|reference| Code { function, instructions, reference, segments }))
        })
    }

    /// Name and extent of the function that covers an address.
    fn function_at(&self, elf: &Elf<'_>, address: u64) -> Option<(Arc<str>, Range<u64>)> {
        let mut sections =
            elf.sections().map(|section| section.address()..section.address().saturating_add(section.size()));
        let section = sections.find(|section| section.contains(&address))?;
        if let Some((name, extent)) = self.symbols.function_at(address, &section) {
            return Some((demangled(name).into(), extent));
        }
        let described = self.described.get_or_init(|| frames::described(elf));
        let extent = described.iter().find(|extent| extent.contains(&address))?.clone();
        Some((frames::name(&self.recorded, extent.start), extent))
    }
}

impl Code {
    /// As [`CodeFile::around`] has it, of a file that is looked at once.
    ///
    /// # Errors
    /// The file cannot be read, is no ELF file, or is another one here than was recorded.
    pub fn around(
        place: &Place,
        path: &Path,
        build_id: Option<&[u8]>,
        finder: &FileFinder,
    ) -> io::Result<Option<Self>> {
        CodeFile::open(path, build_id, finder)?.around(place)
    }

    /// Whether an address that the linker gave is in the function.
    #[must_use]
    pub fn contains(&self, linked_address: u64) -> bool {
        instruction_at(&self.instructions, linked_address).is_some()
    }

    /// The instruction that has this byte of the file.
    #[must_use]
    pub fn instruction_of(&self, file_offset: u64) -> Option<usize> {
        instruction_at(&self.instructions, self.segments.address_of(file_offset)?)
    }
}

fn instruction_at(instructions: &[Instruction], address: u64) -> Option<usize> {
    let after = instructions.partition_point(|instruction| instruction.address <= address);
    let place = after.checked_sub(1)?;
    let found = &instructions[place];
    (address < found.address + u64::from(found.bytes)).then_some(place)
}

/// Symbols that can stand for code, with their names; those of code written by hand have no kind.
pub(super) fn code_symbols<'a>(
    elf: &'a Elf<'a>,
) -> impl Iterator<Item = (object::Symbol<'a, 'a, &'a object::ReadCache<std::fs::File>>, &'a str)> {
    let kinds = [SymbolKind::Text, SymbolKind::Unknown, SymbolKind::Label];
    let all = elf.symbols().chain(elf.dynamic_symbols());
    let code = all.filter(move |symbol| !symbol.is_undefined() && kinds.contains(&symbol.kind()));
    code.filter_map(|symbol| symbol.name().ok().filter(|name| !name.is_empty()).map(|name| (symbol, name)))
}

/// The bytes of these addresses.
pub(super) fn bytes(elf: &Elf<'_>, extent: &Range<u64>) -> object::Result<Vec<u8>> {
    for section in elf.sections() {
        if let Some(bytes) = section.data_range(extent.start, extent.end - extent.start)? {
            return Ok(bytes.to_vec());
        }
    }
    Ok(Vec::new())
}

pub(super) fn decode(bytes: &[u8], start: u64) -> Vec<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut formatter = FastFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_use_hex_prefix(true);
    formatter.options_mut().set_uppercase_hex(false);
    let mut instructions = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        let direct = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch | FlowControl::Call
        );
        instructions.push(Instruction {
            address: instruction.ip(),
            bytes: instruction.len() as u8,
            mnemonic: format!("{:?}", instruction.mnemonic()).to_lowercase(),
            text,
            target: direct.then(|| instruction.near_branch_target()),
        });
    }
    instructions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_symbols_with_an_offset() {
        assert_eq!(Place::of_symbol("main"), Place::Symbol("main".into(), 0));
        assert_eq!(Place::of_symbol("main+0x1f"), Place::Symbol("main".into(), 0x1f));
        assert_eq!(Place::of_symbol("main+12"), Place::Symbol("main".into(), 12));
        assert_eq!(Place::of_symbol("operator+"), Place::Symbol("operator+".into(), 0));
    }

    #[test]
    fn instructions_are_found_by_any_of_their_bytes() {
        // mov rax, [rdi]; nop; ret
        let instructions = decode(&[0x48, 0x8b, 0x07, 0x90, 0xc3], 0x100);
        let mnemonics: Vec<&str> = instructions.iter().map(|one| one.mnemonic.as_str()).collect();
        assert_eq!(mnemonics, ["mov", "nop", "ret"]);
        assert_eq!(instructions[0].text, "mov rax, [rdi]");
        // call 0x205; jmp rax
        let branches = decode(&[0xe8, 0, 1, 0, 0, 0xff, 0xe0], 0x100);
        assert_eq!(branches.iter().map(|one| one.target).collect::<Vec<_>>(), [Some(0x205), None]);
        let at = |address| instruction_at(&instructions, address);
        assert_eq!(
            [at(0xff), at(0x100), at(0x102), at(0x103), at(0x105)],
            [None, Some(0), Some(0), Some(1), None]
        );
    }

    /// This test's own code, in this test's own file.
    #[test]
    fn a_function_of_a_real_binary_is_decoded() {
        let here = std::env::current_exe().unwrap();
        let finder = FileFinder::default();
        let around = |name: &str| Code::around(&Place::of_symbol(name), &here, None, &finder).unwrap();
        let code = around("main+0x4").unwrap();
        assert_eq!(&*code.function, "main");
        assert!(code.reference > 0 && code.instructions.len() > code.reference);
        assert!(code.instructions.iter().all(|one| one.mnemonic != "invalid"), "{:?}", code.instructions);
        assert!(around("there is no such function").is_none());
        let id = elf::build_id(&here).unwrap();
        let of = |id: &[u8]| Code::around(&Place::of_symbol("main"), &here, Some(id), &finder);
        assert!(of(&id).unwrap().is_some());
        assert!(of(&[1, 2, 3]).unwrap_err().to_string().contains("its build ID differs"));
    }
}
