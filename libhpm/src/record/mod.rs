//! Sampling records as views of mapped memory: what hardware (PEBS) or the driver wrote when a counter overflowed.
//!
//! | layout | [`hpm_abi::Quantum::record_format`] | processors | described in |
//! |---|---|---|---|
//! | [`fixed`] | 0 to 3 | Pentium 4 in 64-bit mode, Core 2 to Comet Lake | SDM Vol. 3B 20.3.1.1.1, 20.3.6.2, 20.3.8.1.1 |
//! | [`netburst`] | [`hpm_abi::RECORD_FORMAT_NETBURST_32`] | Pentium 4 in 32-bit mode | SDM Vol. 3B 17.4.9.2 of 2016 |
//! | [`adaptive`] | 4 to 6 | Ice Lake to Granite Rapids, client processors to Arrow Lake | SDM Vol. 3B 20.9.2 |
//! | [`architectural`] | [`hpm_abi::RECORD_FORMAT_ARCHITECTURAL`] | Clearwater Forest on | SDM Vol. 3B, "Architectural PEBS" |
//! | interrupt | [`hpm_abi::RECORD_FORMAT_INTERRUPT`] | all | [`hpm_abi::InterruptRecord`] |
//! | [`ibs`] | [`hpm_abi::RECORD_FORMAT_IBS`] | AMD's, family 10H on | [`hpm_abi::IbsRecord`] |
//!
//! [`Records`] walks the records of one span. Bytes that are no record are an error and never a panic: what is mapped is
//! not under this process's control.

pub mod adaptive;
pub mod architectural;
mod branch;
pub mod fixed;
pub mod ibs;
mod interrupt;
mod memory;
pub mod netburst;
mod parts;
mod places;
mod registers;
mod source;

pub use self::branch::{Branch, BranchType};
pub use self::memory::{Latency, MemoryAccess, MemoryDecoder};
pub(crate) use self::places::Places;
pub use self::registers::Registers;
pub use self::source::{DataSource, Level, Operation, Snoop};

use hpm_abi::{
    RECORD_FORMAT_ARCHITECTURAL, RECORD_FORMAT_IBS, RECORD_FORMAT_INTERRUPT, RECORD_FORMAT_NETBURST_32,
};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The sixteen XMM registers, each as its low and its high half.
pub type Xmm = [[u64; 2]; 16];

/// Which instruction [`Record::ip`] names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attribution {
    /// The one that caused the event.
    #[default]
    Cause,
    /// The one after it in the order of execution: PEBS formats 0 and 1 have no EventingIP.
    Next,
    /// The one that the interrupt found, some instructions after it (skid).
    Skid,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Address of the instruction, as close to the cause as the record tells: see `attribution`.
    pub ip: u64,
    /// Which instruction that is.
    pub attribution: Attribution,
    /// A bit for each counter whose overflow the record reports, general ones from bit 0, fixed ones from bit 32; `None`
    /// where the format does not tell.
    pub applicable_counters: Option<u64>,
    /// The time-stamp counter when it was written, where the format has it.
    pub tsc: Option<u64>,
    /// The registers after the instruction.
    pub registers: Option<Registers<'a>>,
    /// The memory access, where the record has room for one; its address is 0 when the event has none.
    pub memory: Option<MemoryAccess>,
    /// Cycles from the retirement of the instruction before it to its own (Golden Cove and later).
    pub retire_latency_cycles: Option<u16>,
    /// XMM registers.
    pub xmm: Option<&'a Xmm>,
    /// Last branch records, the newest first; empty when the record has none.
    pub branches: &'a [Branch],
}

/// How the records of a span are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Fixed(fixed::Format),
    Netburst32,
    Adaptive,
    Architectural,
    Interrupt,
    Ibs,
}

/// The records of a span, in the order in which they were written. Ends after the first error.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    layout: Layout,
    /// Bytes of each record; 0 when each says its own.
    record_size: usize,
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Of these bytes, in a record format and of a record size as a quantum gives them.
    ///
    /// # Errors
    /// [`Error::RecordFormat`] for a layout that this library does not know.
    pub fn new(record_format: u16, record_size: u16, bytes: &'a [u8]) -> Result<Self> {
        let layout = match record_format {
            0..=3 => Layout::Fixed(fixed::Format::new(record_format)?),
            4..=6 => Layout::Adaptive,
            RECORD_FORMAT_ARCHITECTURAL => Layout::Architectural,
            RECORD_FORMAT_NETBURST_32 => Layout::Netburst32,
            RECORD_FORMAT_INTERRUPT => Layout::Interrupt,
            RECORD_FORMAT_IBS => Layout::Ibs,
            format => return Err(Error::RecordFormat { format }),
        };
        Ok(Self { layout, record_size: record_size.into(), rest: bytes })
    }

    /// No records.
    #[must_use]
    pub fn none() -> Self {
        Self { layout: Layout::Interrupt, record_size: 0, rest: &[] }
    }

    /// Whether all have been taken.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many there are, without a look into those whose size is known; bytes that are no record count as one.
    #[must_use]
    pub fn remaining(&self) -> usize {
        match self.record_size {
            0 => self.count(),
            size => self.rest.len().div_ceil(size),
        }
    }

    /// Takes the first record. Compiled where it is called, as all that it calls for PEBS: of a record's two dozen words a caller
    /// looks at a few, and only there is it known which.
    #[inline]
    fn first(&mut self) -> Result<Record<'a>> {
        let all = std::mem::take(&mut self.rest);
        if self.layout == Layout::Architectural {
            let (record, size) = architectural::parse(all)?;
            self.rest = all.get(size..).unwrap_or_default();
            return Ok(record);
        }
        let size = self.record_size;
        let (bytes, rest) =
            all.split_at_checked(size).filter(|_| size > 0).ok_or_else(|| cut_off(all.len(), size))?;
        let record = match self.layout {
            Layout::Fixed(format) => fixed::parse(format, bytes),
            Layout::Netburst32 => netburst::parse(bytes),
            Layout::Adaptive => adaptive::parse(bytes),
            Layout::Ibs => ibs::parse(bytes),
            Layout::Interrupt | Layout::Architectural => interrupt::parse(bytes),
        }?;
        self.rest = rest;
        Ok(record)
    }
}

/// So few bytes are there of a record.
#[cold]
fn cut_off(bytes: usize, size: usize) -> Error {
    Error::corrupt(format!("{bytes} bytes where a record of {size} should be"))
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // After an error nothing is left.
        (!self.rest.is_empty()).then(|| self.first())
    }
}

#[cfg(test)]
mod tests;
