//! Records: which formats there are, and the one that the driver itself writes.

/// [`super::Quantum::record_format`] of records that the driver wrote in an interrupt: see [`InterruptRecord`].
/// Numbers below 0x100 are those of IA32_PERF_CAPABILITIES bits 11:8 (SDM Vol. 3B 20.6.2.4).
pub const RECORD_FORMAT_INTERRUPT: u16 = 0x100;
/// [`super::Quantum::record_format`] of architectural PEBS: each record says its size and groups in its header, and
/// [`super::Quantum::record_size`] is 0.
pub const RECORD_FORMAT_ARCHITECTURAL: u16 = 0x101;
/// [`super::Quantum::record_format`] of a Pentium 4's PEBS records with 32-bit fields, as kernels of 32 bits have them
/// written. This driver is of 64 bits and never has.
pub const RECORD_FORMAT_NETBURST_32: u16 = 0x103;

/// What the driver saved when a counter's overflow interrupted a thread ([`super::EventMode::Interrupt`]). The
/// instruction pointer is that of the interrupted instruction, which is some instructions after the one that caused the
/// overflow (skid; SDM Vol. 3B 20.6.2.4 calls such samples imprecise).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptRecord {
    /// A bit for each counter that overflowed, at its place in IA32_PERF_GLOBAL_STATUS.
    pub counters: u64,
    /// TSC when the interrupt was handled.
    pub tsc: u64,
    /// RFLAGS.
    pub rflags: u64,
    /// RIP.
    pub rip: u64,
    /// RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to R15: the order of a PEBS record (SDM Vol. 3B, table 20-3).
    pub registers: [u64; 16],
}
const _: () = assert!(core::mem::size_of::<InterruptRecord>() == 160);
const _: () = assert!(core::mem::offset_of!(InterruptRecord, registers) == 32);
