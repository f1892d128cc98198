//! PEBS formats 0 to 3: in 64-bit mode one layout that grew at its end.
//!
//! | part | bytes | since format | processors | SDM Vol. 3B |
//! |---|---|---|---|---|
//! | registers | 00H–8FH | 0 | Pentium 4, Core 2, Atom | 20.3.1.1.1, "PEBS Record Format for Intel Core i7" (first part) |
//! | counter and memory | 90H–AFH | 1 | Nehalem to Ivy Bridge | 20.3.1.1.1, same table |
//! | EventingIP, TX abort | B0H–BFH | 2 | Haswell, Broadwell | 20.3.6.2, "PEBS Record Format for 4th Generation Intel Core" |
//! | TSC | C0H–C7H | 3 | Skylake to Comet Lake | 20.3.8.1.1, "PEBS Record Format for 6th Generation Intel Core" |

use zerocopy::FromBytes;

use super::places::{Order, Places};
use super::{Attribution, MemoryAccess, Record, Registers};
use crate::{Error, Result};

/// A format of this layout, by `IA32_PERF_CAPABILITIES[11:8]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format(u16);

impl Format {
    /// Where the words of its records are; `None` of format 0, whose records do not say which counter they are for.
    pub(crate) fn places(self) -> Option<Places> {
        let (ip, tsc) = match self.0 {
            1 => (1, None),
            2 => (22, None),
            3 => (22, Some(24)),
            _ => return None,
        };
        let (count, registers) = (self.size() / 8, Some(Order::From(0)));
        Some(Places { count, ip, counters: 18, tsc, address: Some(19), registers })
    }

    /// The format with this number.
    ///
    /// # Errors
    /// [`Error::RecordFormat`] above 3.
    pub fn new(number: u16) -> Result<Self> {
        if number <= 3 { Ok(Self(number)) } else { Err(Error::RecordFormat { format: number }) }
    }

    /// Bytes of a record.
    #[must_use]
    #[inline]
    pub fn size(self) -> usize {
        match self.0 {
            0 => 0x90,
            1 => 0xB0,
            2 => 0xC0,
            _ => 0xC8,
        }
    }
}

/// Views the record that these bytes are.
///
/// # Errors
/// [`Error::Corrupt`] when they are too few or not aligned.
#[inline]
pub fn parse(format: Format, bytes: &[u8]) -> Result<Record<'_>> {
    // One look at size and alignment for all parts: this is what each sample of most processors goes through.
    let words = bytes.get(..format.size()).and_then(|bytes| <[u64]>::ref_from_bytes(bytes).ok());
    let parts = words.and_then(|words| words.split_first_chunk::<18>());
    let (words, rest) = parts.ok_or_else(|| no_record(format, bytes))?;
    let registers = Registers::fixed(words);
    let memory: Option<&[u64; 4]> = rest.first_chunk();
    let cause: Option<u64> = rest.get(4).copied();
    Ok(Record {
        ip: cause.unwrap_or_else(|| registers.rip()),
        attribution: if cause.is_some() { Attribution::Cause } else { Attribution::Next },
        applicable_counters: memory.map(|&[counters, ..]| counters),
        tsc: rest.get(6).copied(),
        registers: Some(registers),
        memory: memory.map(|&[_, address, source, latency]| MemoryAccess { address, source, latency }),
        retire_latency_cycles: None,
        xmm: None,
        branches: &[],
    })
}

#[cold]
fn no_record(format: Format, bytes: &[u8]) -> Error {
    let (len, size) = (bytes.len(), format.size());
    Error::corrupt(format!("{len} bytes at {:p} where a record of {size} should be", bytes.as_ptr()))
}
