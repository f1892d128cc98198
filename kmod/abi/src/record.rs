//! Records: which formats there are, and those that the driver itself writes.

/// [`super::Quantum::record_format`] of records that the driver wrote in an interrupt: see [`InterruptRecord`].
/// Numbers below 0x100 are those of IA32_PERF_CAPABILITIES bits 11:8 (SDM Vol. 3B 20.6.2.4).
pub const RECORD_FORMAT_INTERRUPT: u16 = 0x100;
/// [`super::Quantum::record_format`] of architectural PEBS: each record says its size and groups in its header, and
/// [`super::Quantum::record_size`] is 0.
pub const RECORD_FORMAT_ARCHITECTURAL: u16 = 0x101;
/// [`super::Quantum::record_format`] of a Pentium 4's PEBS records with 32-bit fields, as kernels of 32 bits have them
/// written. This driver is of 64 bits and never has.
pub const RECORD_FORMAT_NETBURST_32: u16 = 0x103;
/// [`super::Quantum::record_format`] of AMD's instruction-based sampling: see [`IbsRecord`].
pub const RECORD_FORMAT_IBS: u16 = 0x102;

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

/// [`IbsRecord::counters`] of a sampled instruction fetch.
pub const IBS_FETCH: u64 = 1 << 32;
/// [`IbsRecord::counters`] of a sampled op.
pub const IBS_OP: u64 = 1 << 33;

/// What the driver read of AMD's instruction-based sampling when it interrupted (AMD64 Architecture Programmer's Manual
/// Vol. 2, 13.3). Registers as hardware left them; one that does not exist, that says by its valid bit that it means nothing,
/// or that the session may not see, is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IbsRecord {
    /// [`IBS_FETCH`] or [`IBS_OP`].
    pub counters: u64,
    /// TSC when the sample was read.
    pub tsc: u64,
    /// IBS_FETCH_CTL or IBS_OP_CTL.
    pub control: u64,
    /// IBS_FETCH_LINADDR or IBS_OP_RIP: the sampled instruction's address, without skid.
    pub address: u64,
    /// IBS_OP_DATA of an op; IC_IBS_EXTD_CTL of a fetch.
    pub data: u64,
    /// IBS_OP_DATA2 of an op that loads.
    pub data2: u64,
    /// IBS_OP_DATA3 of an op.
    pub data3: u64,
    /// IBS_DC_LINADDR of an op that loads or stores.
    pub data_address: u64,
    /// IBS_FETCH_PHYSADDR or IBS_DC_PHYSADDR; always 0 for an event that does not count kernel mode.
    pub physical_address: u64,
    /// IBS_BR_TARGET of a branch.
    pub branch_target: u64,
    /// RFLAGS and RIP where the interrupt met the thread, some instructions after the sampled one; all registers are 0 where
    /// they could not be had, as RFLAGS never is.
    pub rflags: u64,
    /// RIP, see `rflags`.
    pub rip: u64,
    /// RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to R15, see `rflags`.
    pub registers: [u64; 16],
}
const _: () = assert!(core::mem::size_of::<IbsRecord>() == 224);
const _: () = assert!(core::mem::offset_of!(IbsRecord, address) == 24);
const _: () = assert!(core::mem::offset_of!(IbsRecord, registers) == 96);
