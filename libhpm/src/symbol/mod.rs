//! From addresses to functions, files and lines, with inlined functions.
//!
//! Built on `object`, `gimli` and `addr2line`, the gimli project's own crates, rather than on blazesym: they read the
//! supplementary files that Debian's debug packages use (`.gnu_debugaltlink`), and let us find debug files by build ID
//! in a folder of another machine.

mod code;
mod code_map;
mod demangle;
mod files;
mod frames;
mod image;
mod instrumentation;
mod jitdump;
mod kernel;
mod module;
mod perf_map;
mod plt;
mod preference;
mod symbolizer;
mod table;
mod types;
mod vdso;

pub use self::code::{Code, CodeFile, Instruction, Place};
pub use self::files::FileFinder;
pub use self::image::{Image, Images, Loaded};
pub use self::instrumentation::{FunctionCode, functions_of};
pub use self::kernel::{KernelFunctions, kernel_symbols};
pub use self::symbolizer::Symbolizer;
pub use self::types::{Member, TypeId, Types};
pub use crate::elf::build_id;

use std::ops::Range;

use std::sync::Arc;

/// A function that was being executed: the function of an address itself, or one that was inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// Demangled name; `None` when no symbol covers the address.
    pub function: Option<Arc<str>>,
    /// The file that has the code: its path when recorded, `[kernel]`, a kernel module as `[name]`, or `[unknown]`.
    pub module: Arc<str>,
    /// Source file, as the compiler named it.
    pub file: Option<Arc<str>>,
    /// Line in `file`, from 1: where this function was, or where it called the inlined function before it.
    pub line: Option<u32>,
    /// The compiler put this function into the next one.
    pub inlined: bool,
}

/// The functions that a jitdump describes, by the addresses that they have in the end; what is cut off or damaged is left out.
#[must_use]
pub fn jitdump_functions(bytes: &[u8]) -> Vec<(Range<u64>, Arc<str>)> {
    jitdump::parse(bytes).functions().collect()
}

/// The functions that a perf map describes; lines that are none are left out.
#[must_use]
pub fn perf_map_functions(bytes: &[u8]) -> Vec<(Range<u64>, Arc<str>)> {
    perf_map::parse(&String::from_utf8_lossy(bytes)).functions().collect()
}

/// The functions at one address, innermost first: inlined ones, then the one that has the code. Never empty.
pub type Frames = Arc<[Frame]>;

/// Lowest address of the upper half of the address space (SDM Vol. 1, 3.3.7.1), where Linux has the kernel.
pub const KERNEL_START: u64 = 0xffff_8000_0000_0000;
