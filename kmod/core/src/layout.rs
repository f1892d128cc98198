//! How the records of one session are laid out: fixed by the PEBS format, or chosen by the session's record groups.

use super::abi::{Reason, RECORD_FORMAT_ARCHITECTURAL};
use super::pmu::Pebs;
use super::{cfg_c, Refusal};

/// PEBS record format that stands for architectural PEBS (IA32_PERF_CAPABILITIES, bits 11:8).
pub const ARCHITECTURAL: u16 = 15;

/// MSR_PEBS_DATA_CFG: the memory group (SDM Vol. 3B 20.9.2.3).
pub const MEMORY: u64 = 1;
/// MSR_PEBS_DATA_CFG: the group of general registers.
pub const GPRS: u64 = 1 << 1;
/// MSR_PEBS_DATA_CFG: the group of XMM registers.
pub const XMMS: u64 = 1 << 2;

/// MSR_PEBS_DATA_CFG: the group of last branch records; bits 31:24 are their number less one.
pub const LBRS: u64 = 1 << 3;
/// Where the number of branch records less one is in MSR_PEBS_DATA_CFG.
const LBR_ENTRIES_SHIFT: u32 = 24;

/// Where RIP is in the group of general registers: RFLAGS, RIP, RAX, RCX, RDX, RBX, RSP, RBP, …
pub(super) const GPR_RIP: u32 = 0x08;
/// RSP.
pub(super) const GPR_RSP: u32 = 0x30;
/// RBP.
pub(super) const GPR_RBP: u32 = 0x38;

/// How many branch records these groups have.
pub(super) const fn branches_of(pebs_data_cfg: u64) -> u32 {
    if pebs_data_cfg & LBRS == 0 {
        0
    } else {
        (pebs_data_cfg >> LBR_ENTRIES_SHIFT & 0xFF) as u32 + 1
    }
}

/// Bytes of the parts of a record.
struct Sizes {
    /// What every record begins with.
    basic: u16,
    memory: u16,
    gprs: u16,
    xmms: u16,
    /// What branch records begin with.
    lbrs: u16,
}

/// Adaptive records (20.9.2.2).
const ADAPTIVE: Sizes = Sizes { basic: 32, memory: 32, gprs: 18 * 8, xmms: 16 * 16, lbrs: 0 };
/// Architectural records: a header of 16 bytes before the basic group, and one before vector registers and branches each.
const ARCHITECTURAL_RECORD: Sizes =
    Sizes { basic: 16 + 48, memory: 64, gprs: 20 * 8, xmms: 16 + 16 * 16, lbrs: 6 * 8 };

/// Where what the driver itself reads is in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// [`super::abi::Quantum::record_format`].
    pub format: u16,
    /// Bytes of a record.
    pub record_size: u16,
    /// Byte offset of the word that says which counters a record is for ("Applicable Counters", or before format 3
    /// IA32_PERF_GLOBAL_STATUS as it was).
    pub applicable_counters: u16,
    /// Byte offsets of where a record says which instruction it is for, and which came next; both the same where it has only
    /// one.
    pub(super) instruction_pointers: [u16; 2],
    /// Byte offsets of RBP and RSP; `None` without general registers.
    pub frame: Option<Frame>,
    /// MSR_PEBS_DATA_CFG, or for architectural PEBS what it would be; 0 where all records are alike.
    pub pebs_data_cfg: u64,
    /// What an architectural record's header says of size and groups, if the record lies as all this says; else 0.
    pub(super) header: u64,
}

/// Where the registers of a stack frame are in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Byte offset of RBP.
    pub rbp: u16,
    /// Byte offset of RSP.
    pub rsp: u16,
}

/// Whether a record of this format shows in its word of counters all that have overflowed, also one that has yet to write its own
/// record.
pub(super) const fn shows_overflows(format: u16) -> bool {
    matches!(format, 1 | 2)
}

impl RecordLayout {
    /// The layout of records with these groups of [`super::abi::SessionConfig::record_groups`], and so many branches.
    ///
    /// # Errors
    /// [`Reason::RecordGroups`] for groups that the PMU does not write, or any where all its records are alike.
    pub fn new(pebs: &Pebs, record_groups: u32, branches: u32) -> Result<Self, Refusal> {
        let asked = u64::from(record_groups);
        // Branches have a field of their own in the request.
        let offered = pebs.groups & !LBRS;
        if asked & !offered != 0 {
            return Err(Refusal::new(Reason::RecordGroups, [asked & !offered, offered]));
        }
        if pebs.groups == 0 {
            return Ok(Self::alike(pebs.format));
        }
        let groups = if asked == 0 { (MEMORY | GPRS) & pebs.groups } else { asked };
        let lbrs = match branches {
            0 => 0,
            entries => LBRS | u64::from(entries - 1) << LBR_ENTRIES_SHIFT,
        };
        Ok(Self::grouped(pebs.format, groups | lbrs))
    }

    /// Formats 0 to 3 (18.4.4.2 of Core, 20.3.1.1.1, table 20-3; 20.3.6.2, 20.3.8.1.1). Registers as in table 20-3. Format 0
    /// ends with them: one counter writes its records, so that nobody asks which.
    const fn alike(format: u16) -> Self {
        let record_size = match format {
            0 => 0x90,
            1 => 0xB0,
            2 => 0xC0,
            _ => 0xC8,
        };
        Self {
            format,
            record_size,
            applicable_counters: 0x90,
            // RIP; from format 2 on EventingRIP as well.
            instruction_pointers: [0x08, if format <= 1 { 0x08 } else { 0xB0 }],
            frame: Some(Frame { rbp: 0x40, rsp: 0x48 }),
            pebs_data_cfg: 0,
            header: 0,
        }
    }

    /// Formats from 4 on (20.9.2.2), and architectural records, whose groups are larger and in the same order.
    fn grouped(format: u16, groups: u64) -> Self {
        let architectural = format == ARCHITECTURAL;
        let sizes = if architectural { ARCHITECTURAL_RECORD } else { ADAPTIVE };
        let mut record_size = sizes.basic;
        let mut frame = None;
        let instruction = if architectural { 0x10 } else { 0x08 };
        let mut next = instruction;
        if groups & MEMORY != 0 {
            record_size += sizes.memory;
        }
        if groups & GPRS != 0 {
            let register = |place: u32| record_size + place as u16;
            frame = Some(Frame { rbp: register(GPR_RBP), rsp: register(GPR_RSP) });
            next = register(GPR_RIP);
            record_size += sizes.gprs;
        }
        if groups & XMMS != 0 {
            record_size += sizes.xmms;
        }
        if groups & LBRS != 0 {
            record_size += sizes.lbrs + branches_of(groups) as u16 * super::lbr::BRANCH_BYTES as u16;
        }
        let format = if architectural { RECORD_FORMAT_ARCHITECTURAL } else { format };
        // A group's bit is where CFG_C has it, and the basic group's where CFG_C enables PEBS.
        let header = if architectural { cfg_c::value(groups, 0) | u64::from(record_size) } else { 0 };
        let applicable_counters = if architectural { 0x18 } else { 0x10 };
        Self {
            format,
            record_size,
            applicable_counters,
            instruction_pointers: [instruction, next],
            frame,
            pebs_data_cfg: groups,
            header,
        }
    }

    /// Whether PEBS is architectural: the buffer is physical, and each record says its size.
    #[must_use]
    pub const fn is_architectural(&self) -> bool {
        self.format == RECORD_FORMAT_ARCHITECTURAL
    }
}
