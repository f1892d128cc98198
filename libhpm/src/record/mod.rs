//! PEBS records as hardware writes them (SDM Vol. 3B, "PEBS Record Format" of each microarchitecture).
//!
//! Formats 0 to 3 of 64-bit mode are one layout that grew at its end, so a record is a view of up to four parts:
//!
//! | part | bytes | since format | processors | SDM Vol. 3B |
//! |---|---|---|---|---|
//! | [`Registers`] | 00H–8FH | 0 | Core 2, Atom | 20.3.1.1.1, "PEBS Record Format for Intel Core i7" (first part) |
//! | [`Memory`] | 90H–AFH | 1 | Nehalem to Ivy Bridge | 20.3.1.1.1, same table |
//! | [`Cause`] | B0H–BFH | 2 | Haswell, Broadwell | 20.3.6.2, "PEBS Record Format for 4th Generation Intel Core" |
//! | [`Time`] | C0H–C7H | 3 | Skylake to Comet Lake | 20.3.8.1.1, "PEBS Record Format for 6th Generation Intel Core" |
//!
//! Format 4 and later (adaptive PEBS, 20.9) is another layout; [`Format::new`] refuses it.

mod data_source;

use zerocopy::{FromBytes, Immutable, KnownLayout};

pub use self::data_source::{DataSource, LoadSource};

use crate::{Error, Result};

/// A record format that this library reads, by `IA32_PERF_CAPABILITIES[11:8]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Format(u16);

impl Format {
    /// The largest format of this layout.
    pub const LARGEST: Self = Self(3);

    /// The format with this number.
    ///
    /// # Errors
    /// [`Error::RecordFormat`] for a layout that this library does not know.
    pub fn new(number: u16) -> Result<Self> {
        if number <= Self::LARGEST.0 { Ok(Self(number)) } else { Err(Error::RecordFormat { format: number }) }
    }

    /// Bytes of a record.
    #[must_use]
    pub fn size(self) -> usize {
        let later = [size_of::<Memory>(), size_of::<Cause>(), size_of::<Time>()];
        size_of::<Registers>() + later[..usize::from(self.0)].iter().sum::<usize>()
    }
}

/// 00H–8FH: the registers after the instruction that caused the event (EventingIP) retired.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[allow(missing_docs, reason = "the fields are the registers' names")]
pub struct Registers {
    pub rflags: u64,
    pub rip: u64,
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
}

impl Registers {
    /// In the record's order: RFLAGS, RIP, RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to R15.
    #[must_use]
    pub fn to_array(self) -> [u64; 18] {
        let Self {
            rflags,
            rip,
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
        } = self;
        [rflags, rip, rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15]
    }
}

/// 90H–AFH: which counter overflowed, and what the memory access was.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct Memory {
    /// IA32_PERF_GLOBAL_STATUS in formats 1 and 2, Applicable Counters in format 3: one bit for each general counter.
    pub applicable_counters: u64,
    /// Data Linear Address: of the load or store, for events that have one.
    pub data_linear_address: u64,
    /// Data Source Encoding; see [`DataSource`].
    pub data_source: u64,
    /// Latency Value, in core cycles, for load latency events.
    pub latency: u64,
}

/// B0H–BFH: the instruction that caused the event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct Cause {
    /// EventingIP: the address of the instruction that caused the event.
    pub eventing_ip: u64,
    /// TX Abort Information.
    pub tx_abort: u64,
}

/// C0H–C7H.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct Time {
    /// The time-stamp counter when the record was written.
    pub tsc: u64,
}

/// A view of one record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Registers.
    pub registers: &'a Registers,
    /// Counter and memory access, where the format has them.
    pub memory: Option<&'a Memory>,
    /// Cause, where the format has it.
    pub cause: Option<&'a Cause>,
    /// Time, where the format has it.
    pub time: Option<&'a Time>,
}

impl<'a> Record<'a> {
    /// Views the record at the start of `bytes`.
    ///
    /// # Panics
    /// When `bytes` is shorter than the format says or not aligned to 8 bytes, as a record in a segment always is.
    #[must_use]
    pub fn new(format: Format, bytes: &'a [u8]) -> Self {
        let bytes = &bytes[..format.size()];
        let (registers, bytes) = part(bytes).expect("every format has registers");
        let (memory, bytes) = part(bytes).unzip();
        let (cause, bytes) = bytes.and_then(part).unzip();
        let (time, _) = bytes.and_then(part).unzip();
        Self { registers, memory, cause, time }
    }

    /// Address of the instruction that caused the event; where the format does not tell, RIP, which is the next one.
    #[must_use]
    pub fn ip(&self) -> u64 {
        self.cause.map_or(self.registers.rip, |cause| cause.eventing_ip)
    }

    /// One bit for each general counter whose overflow the record reports; `None` where the format does not tell.
    #[must_use]
    pub fn applicable_counters(&self) -> Option<u64> {
        self.memory.map(|memory| memory.applicable_counters)
    }
}

/// The next part of a record, and what is left. An empty rest is the end of the format.
fn part<T: FromBytes + Immutable + KnownLayout>(bytes: &[u8]) -> Option<(&T, &[u8])> {
    if bytes.is_empty() {
        return None;
    }
    Some(
        T::ref_from_prefix(bytes)
            .expect("records are aligned to 8 bytes and their sizes follow from the parts"),
    )
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    /// A record in which each 8 bytes hold their own offset.
    fn ramp() -> [u64; 25] {
        std::array::from_fn(|i| i as u64 * 8)
    }

    #[test]
    fn sizes_are_those_of_the_manual() {
        let sizes: Vec<_> = (0..4).map(|n| Format::new(n).unwrap().size()).collect();
        assert_eq!(sizes, [0x90, 0xB0, 0xC0, 0xC8]);
        assert!(matches!(Format::new(4), Err(Error::RecordFormat { format: 4 })));
    }

    #[test]
    fn format_3_has_every_field_at_its_offset() {
        let words = ramp();
        let record = Record::new(Format::LARGEST, words.as_bytes());
        assert_eq!((record.registers.rip, record.registers.rsp, record.registers.r15), (0x08, 0x48, 0x88));
        let memory = record.memory.unwrap();
        assert_eq!((memory.applicable_counters, memory.data_linear_address), (0x90, 0x98));
        assert_eq!((memory.data_source, memory.latency), (0xA0, 0xA8));
        assert_eq!((record.ip(), record.cause.unwrap().tx_abort), (0xB0, 0xB8));
        assert_eq!(record.time.unwrap().tsc, 0xC0);
        assert_eq!(record.registers.to_array()[..3], [0, 8, 0x10]);
    }

    #[test]
    fn earlier_formats_lack_what_came_later() {
        let words = ramp();
        let old = Record::new(Format::new(0).unwrap(), words.as_bytes());
        assert!(old.memory.is_none() && old.cause.is_none() && old.time.is_none());
        assert_eq!(old.ip(), 0x08, "without an EventingIP the next instruction's address must do");
        let haswell = Record::new(Format::new(2).unwrap(), words.as_bytes());
        assert!(haswell.cause.is_some() && haswell.time.is_none());
    }
}
