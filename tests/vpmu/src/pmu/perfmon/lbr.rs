//! The last-branch-record stack from Nehalem to Skylake (SDM Vol. 3B 17.6 to 17.10; filtering: tables 17-11
//! and 17-13, call stack: 17.9.1, formats: 17.4.8.1).

use crate::event::Privilege;
use crate::micro::BranchKind;
use serde::{Deserialize, Serialize};

/// MSR_LBR_SELECT: bits that keep a class of branches out, and the call-stack mode.
mod select {
    pub(super) const CPL_EQ_0: u64 = 1;
    pub(super) const CPL_NEQ_0: u64 = 1 << 1;
    pub(super) const JCC: u64 = 1 << 2;
    pub(super) const NEAR_REL_CALL: u64 = 1 << 3;
    pub(super) const NEAR_IND_CALL: u64 = 1 << 4;
    pub(super) const NEAR_RET: u64 = 1 << 5;
    pub(super) const NEAR_IND_JMP: u64 = 1 << 6;
    pub(super) const NEAR_REL_JMP: u64 = 1 << 7;
    pub(super) const FAR_BRANCH: u64 = 1 << 8;
    pub(super) const EN_CALLSTACK: u64 = 1 << 9;
}

/// The branch was mispredicted: in MSR_LBR_INFO_x (table 17-16), before that in MSR_LASTBRANCH_x_FROM_IP
/// (table 17-8).
const MISPRED: u64 = 1 << 63;
/// In MSR_LASTBRANCH_x_FROM_IP of format 4: IN_TSX and TSX_ABORT (table 17-14).
const TSX: u64 = 0b11 << 61;
const MAX_CYCLES: u64 = 0xFFFF;

/// What a record consists of (IA32_PERF_CAPABILITIES bits 5:0, SDM Vol. 3B 17.4.8.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Format {
    /// 3: misprediction in bit 63 of the source.
    Flags,
    /// 4: as 3, with bits 62:61 for transactions, which hardware without them writes as 0.
    FlagsTsx,
    /// 5 and later: source, target, and MSR_LBR_INFO_x beside them.
    Info,
}

impl Format {
    /// The meaning of IA32_PERF_CAPABILITIES bits 5:0, for the formats of the profiles.
    pub(super) fn of(format: u8) -> Self {
        match format {
            3 => Self::Flags,
            4 => Self::FlagsTsx,
            _ => Self::Info,
        }
    }

    /// Whether MSR_LASTBRANCH_x_FROM_IP takes `value`: an address, in the older formats with flags. Without
    /// transactions bits 62:61 are written as part of the address (Linux found so: lbr_from_signext_quirk_wr).
    pub(super) fn accepts_from(self, value: u64) -> bool {
        match self {
            Self::Flags | Self::FlagsTsx => matches!((value & !MISPRED) >> 47, 0 | 0xFFFF),
            Self::Info => super::registers::canonical(value),
        }
    }

    fn entry(self, from: u64, to: u64, mispredicted: bool, cycles: u64) -> Entry {
        let flag = if mispredicted { MISPRED } else { 0 };
        match self {
            Self::Flags => Entry { from: from & !MISPRED | flag, to, info: 0 },
            Self::FlagsTsx => Entry { from: from & !(MISPRED | TSX) | flag, to, info: 0 },
            Self::Info => Entry { from, to, info: cycles | flag },
        }
    }
}

/// One recorded branch.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) info: u64,
}

/// The stack and its registers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Lbr {
    pub(super) format: Format,
    pub(super) entries: Vec<Entry>,
    /// MSR_LASTBRANCH_TOS: the most recent entry.
    pub(super) tos: usize,
    /// MSR_LBR_SELECT.
    pub(super) select: u64,
    /// Core clock cycles since the stack was last updated.
    cycles: u64,
}

impl Lbr {
    pub(super) fn new(depth: u8, format: u8) -> Self {
        let entries = vec![Entry::default(); usize::from(depth)];
        Self { format: Format::of(format), entries, tos: 0, select: 0, cycles: 0 }
    }

    pub(super) fn depth(&self) -> usize {
        self.entries.len()
    }

    /// Time passes.
    pub(super) fn advance(&mut self, cycles: u32) {
        self.cycles = (self.cycles + u64::from(cycles)).min(MAX_CYCLES);
    }

    /// Records a taken branch, unless it is filtered out.
    pub(super) fn record(
        &mut self,
        from: u64,
        to: u64,
        kind: BranchKind,
        mispredicted: bool,
        privilege: Privilege,
    ) {
        let (class, level) = match (kind, privilege) {
            (kind, Privilege::Kernel) => (class(kind), select::CPL_EQ_0),
            (kind, Privilege::User) => (class(kind), select::CPL_NEQ_0),
        };
        if self.select & (class | level) != 0 {
            return;
        }
        if self.select & select::EN_CALLSTACK != 0 && kind == BranchKind::Return {
            // A return flushes its call from the stack (17.9.1); the record reads 0 then, at which Linux's reader of call stacks
            // ends (intel_pmu_lbr_read_64).
            self.entries[self.tos] = Entry::default();
            self.tos = (self.tos + self.depth() - 1) % self.depth();
            return;
        }
        self.tos = (self.tos + 1) % self.depth();
        self.entries[self.tos] = self.format.entry(from, to, mispredicted, self.cycles);
        self.cycles = 0;
    }
}

/// The MSR_LBR_SELECT bit that filters branches of this kind.
fn class(kind: BranchKind) -> u64 {
    match kind {
        BranchKind::Conditional => select::JCC,
        BranchKind::DirectJump => select::NEAR_REL_JMP,
        BranchKind::IndirectJump => select::NEAR_IND_JMP,
        BranchKind::DirectCall => select::NEAR_REL_CALL,
        BranchKind::IndirectCall => select::NEAR_IND_CALL,
        BranchKind::Return => select::NEAR_RET,
        BranchKind::Far => select::FAR_BRANCH,
    }
}
