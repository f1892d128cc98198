//! Which functions are worth an entry and exit event: the filter of Georges et al. (§3.1.2) on machine code.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::FileFinder;
use super::code::{bytes, code_symbols, decode};
use super::demangle::demangled;
use super::preference::Preference;
use crate::elf::{self, Segments};

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionCode {
    /// Demangled name.
    pub name: Arc<str>,
    /// Its first byte in the file.
    pub offset: u64,
    /// Bytes of its machine code.
    pub bytes: u64,
    /// It has a branch to a lower address (or its own) within itself, so it can loop.
    pub loops: bool,
}

impl FunctionCode {
    /// Whether the filter lets it be instrumented: it is larger than `least_bytes`, or can loop.
    #[must_use]
    pub fn is_worth_it(&self, least_bytes: u64) -> bool {
        self.bytes > least_bytes || self.loops
    }
}

/// The functions of an ELF file that its symbol tables give a size, by their place in the file; each once.
///
/// # Errors
/// The file cannot be read, or is no ELF file.
pub fn functions_of(path: &Path, finder: &FileFinder) -> io::Result<Vec<FunctionCode>> {
    elf::read(&finder.here(path), |elf| {
        let segments = Segments::of(elf);
        let mut functions = Vec::new();
        for (symbol, name) in code_symbols(elf) {
            use object::ObjectSymbol as _;
            let extent = symbol.address()..symbol.address().saturating_add(symbol.size());
            let Some(offset) = segments.offset_of(extent.start).filter(|_| symbol.size() > 0) else {
                continue;
            };
            let code = decode(&bytes(elf, &extent)?, extent.start);
            // A call of itself is recursion, not a loop.
            let backward = code.iter().any(|one| {
                one.mnemonic != "call"
                    && one.target.is_some_and(|target| extent.contains(&target) && target <= one.address)
            });
            let (name, bytes) = (demangled(name).into(), symbol.size());
            functions.push((FunctionCode { name, offset, bytes, loops: backward }, symbol.is_local()));
        }
        /// Of the names of one function the one is kept that reports show.
        fn order((function, local): &(FunctionCode, bool)) -> (u64, Preference<'_>) {
            (function.offset, Preference::of(&function.name, *local))
        }
        functions.sort_by(|a, b| order(a).cmp(&order(b)));
        functions.dedup_by_key(|(function, _)| function.offset);
        Ok(functions.into_iter().map(|(function, _)| function).collect())
    })
}
