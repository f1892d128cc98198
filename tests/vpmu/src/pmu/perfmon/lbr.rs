//! The last-branch-record stack of Skylake (SDM Vol. 3B 17.10; filtering: table 17-13, call stack: 17.9.1).

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

/// MSR_LBR_INFO_x (table 17-16).
const MISPRED: u64 = 1 << 63;
const MAX_CYCLES: u64 = 0xFFFF;

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
    pub(super) entries: Vec<Entry>,
    /// MSR_LASTBRANCH_TOS: the most recent entry.
    pub(super) tos: usize,
    /// MSR_LBR_SELECT.
    pub(super) select: u64,
    /// Core clock cycles since the stack was last updated.
    cycles: u64,
}

impl Lbr {
    pub(super) fn new(depth: u8) -> Self {
        Self { entries: vec![Entry::default(); usize::from(depth)], tos: 0, select: 0, cycles: 0 }
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
            // A return takes its call from the stack instead of adding to it.
            self.tos = (self.tos + self.depth() - 1) % self.depth();
            return;
        }
        self.tos = (self.tos + 1) % self.depth();
        self.entries[self.tos] =
            Entry { from, to, info: self.cycles | if mispredicted { MISPRED } else { 0 } };
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
