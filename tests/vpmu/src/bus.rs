//! What the PMU needs from its machine: the adapter's side of the model.

use crate::event::Privilege;
use crate::micro::DataOutcome;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A linear address that the processor could not translate for the access it made on the PMU's behalf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("page fault at linear address {linear:#x} ({})", if *.write { "write" } else { "read" })]
pub struct PageFault {
    /// The faulting linear address (what CR2 would hold).
    pub linear: u64,
    /// Whether the access was a write.
    pub write: bool,
}

/// The architectural registers that a PEBS record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15: the encoding order of SDM Vol. 2A, table 3-1.
    pub general: [u64; 16],
    /// The instruction pointer at the boundary: the next instruction to execute.
    pub rip: u64,
    /// RFLAGS.
    pub rflags: u64,
}

/// One data access of a retired instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataAccess {
    /// Linear address of the first byte.
    pub linear: u64,
    /// What the microarchitecture did for it; `None` when demand was below `Microarchitecture`.
    pub outcome: Option<DataOutcome>,
}

/// The instruction that has just retired, as of the boundary at which [`crate::Pmu::settle`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// Linear address of the instruction.
    pub pc: u64,
    /// Linear address of the instruction that executes next (the target, if a branch was taken).
    pub next_pc: u64,
    /// The privilege level it retired at.
    pub privilege: Privilege,
    /// Its last load, if it had any and demand was `DataAddresses` or above.
    pub load: Option<DataAccess>,
    /// Its last store, if it had any and demand was `DataAddresses` or above.
    pub store: Option<DataAccess>,
    /// Whether its accesses are locked: by a LOCK prefix, or because it is an `XCHG` with memory (SDM Vol. 3A
    /// 8.1.2).
    pub locked: bool,
}

/// The machine around the PMU. Everything is as of the instruction boundary at which `settle` runs.
pub trait Bus {
    /// The architectural registers.
    fn registers(&mut self) -> Registers;

    /// XMM0 to XMM15, each as its low and its high half.
    fn xmm(&mut self) -> [[u64; 2]; 16];

    /// Reads `into.len()` bytes at `linear` through the current CR3, with supervisor rights.
    ///
    /// # Errors
    /// The first linear address without a present translation.
    fn read(&mut self, linear: u64, into: &mut [u8]) -> Result<(), PageFault>;

    /// Writes `from` at `linear` through the current CR3, with supervisor rights. On an error nothing has
    /// been written.
    ///
    /// # Errors
    /// The first linear address without a present, writable translation.
    fn write(&mut self, linear: u64, from: &[u8]) -> Result<(), PageFault>;

    /// Writes `from` at the physical address `physical`; what is not memory there takes nothing.
    fn write_physical(&mut self, physical: u64, from: &[u8]);

    /// The time-stamp counter.
    fn tsc(&mut self) -> u64;

    /// A performance-monitoring interrupt is requested: deliver it as the local APIC's LVTPC entry says
    /// (nothing if masked; else set its mask bit and deliver; SDM Vol. 3A 10.5.1).
    fn pmi(&mut self);

    /// The physical address of `linear` through the current CR3, if it is mapped. A machine whose PMU has no
    /// instruction-based sampling is not asked.
    fn translate(&mut self, linear: u64) -> Option<u64> {
        let _ = linear;
        unimplemented!("a machine for instruction-based sampling translates addresses")
    }

    /// An interrupt of AMD's instruction-based sampling is requested: deliver it as the entry of the local APIC's
    /// extended local vector table says that IBS_CTL names (APM 13.3). A machine whose PMU has none is not asked.
    fn ibs(&mut self) {
        unimplemented!("a machine for instruction-based sampling has an extended local vector table")
    }
}
