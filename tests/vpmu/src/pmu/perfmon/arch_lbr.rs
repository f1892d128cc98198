//! Architectural last-branch records (SDM Vol. 3B chapter 19): entry 0 is always the most recent one.

use super::lbr::Entry;
use crate::event::Privilege;
use crate::micro::BranchKind;
use crate::profile::ArchitecturalLbr;
use serde::{Deserialize, Serialize};

/// IA32_LBR_CTL (Vol. 4, table 2-2, 14CEH): a set bit lets branches in.
mod ctl {
    pub(super) const LBR_EN: u64 = 1;
    pub(super) const OS: u64 = 1 << 1;
    pub(super) const USR: u64 = 1 << 2;
    pub(super) const CALL_STACK: u64 = 1 << 3;
    pub(super) const COND: u64 = 1 << 16;
    pub(super) const NEAR_REL_JMP: u64 = 1 << 17;
    pub(super) const NEAR_IND_JMP: u64 = 1 << 18;
    pub(super) const NEAR_REL_CALL: u64 = 1 << 19;
    pub(super) const NEAR_IND_CALL: u64 = 1 << 20;
    pub(super) const NEAR_RET: u64 = 1 << 21;
    pub(super) const OTHER_BRANCH: u64 = 1 << 22;
    pub(super) const DEFINED: u64 = 0x7F_000F;
}

/// IA32_LBR_x_INFO (Vol. 4, table 2-2, 1200H).
mod info {
    pub(super) const MAX_CYCLES: u64 = 0xFFFF;
    pub(super) const BR_TYPE: u32 = 56;
    pub(super) const CYC_CNT_VALID: u64 = 1 << 60;
    pub(super) const MISPRED: u64 = 1 << 63;
    /// CYC_CNT, BR_TYPE, CYC_CNT_VALID, TSX_ABORT, IN_TSX, MISPRED.
    pub(super) const DEFINED: u64 = 0xFF00_0000_0000_FFFF;
}

/// The records and their control registers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ArchLbr {
    /// As many as the greatest depth; those beyond IA32_LBR_DEPTH are not used.
    entries: Vec<Entry>,
    /// IA32_LBR_CTL.
    pub(super) control: u64,
    /// IA32_LBR_DEPTH.
    depth: usize,
    /// Core clock cycles since the last record.
    cycles: u64,
}

impl ArchLbr {
    /// After reset the depth is the greatest (19.1.1).
    pub(super) fn new(facts: ArchitecturalLbr) -> Self {
        let depth = facts.max_depth();
        Self { entries: vec![Entry::default(); depth], control: 0, depth, cycles: 0 }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// IA32_LBR_DEPTH is written: all records are cleared, also if the depth stays the same (19.1.1).
    pub(super) fn set_depth(&mut self, depth: usize) {
        self.depth = depth;
        self.entries.fill(Entry::default());
        self.cycles = 0;
    }

    /// Whether it belongs to a part with these facts.
    pub(super) fn fits(&self, facts: ArchitecturalLbr) -> bool {
        self.entries.len() == facts.max_depth() && facts.supports(self.depth as u64)
    }

    pub(super) fn is_on(&self) -> bool {
        self.control & ctl::LBR_EN != 0
    }

    /// The records, most recent first.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries[..self.depth]
    }

    pub(super) fn entry_mut(&mut self, index: usize) -> &mut Entry {
        &mut self.entries[index]
    }

    /// Time passes.
    pub(super) fn advance(&mut self, cycles: u32) {
        self.cycles = (self.cycles + u64::from(cycles)).min(info::MAX_CYCLES);
    }

    /// Records a taken branch, if IA32_LBR_CTL lets it in.
    pub(super) fn record(
        &mut self,
        from: u64,
        to: u64,
        kind: BranchKind,
        mispredicted: bool,
        privilege: Privilege,
    ) {
        let (class, branch_type) = class(kind);
        let level = if privilege == Privilege::Kernel { ctl::OS } else { ctl::USR };
        if self.control & level == 0 || self.control & class == 0 {
            return;
        }
        let entries = &mut self.entries[..self.depth];
        if self.control & ctl::CALL_STACK != 0 && kind == BranchKind::Return {
            // The return takes its call off the stack (19.1.2.4).
            entries.rotate_left(1);
            entries[self.depth - 1] = Entry::default();
            return;
        }
        entries.rotate_right(1);
        let mispredicted = if mispredicted { info::MISPRED } else { 0 };
        let info = self.cycles | branch_type << info::BR_TYPE | info::CYC_CNT_VALID | mispredicted;
        entries[0] = Entry { from, to, info };
        self.cycles = 0;
    }
}

/// Bits of IA32_LBR_CTL that are not reserved.
pub(super) const CONTROL_MASK: u64 = ctl::DEFINED;
/// Bits of IA32_LBR_x_INFO that are not reserved.
pub(super) const INFO_MASK: u64 = info::DEFINED;

/// The IA32_LBR_CTL bit that lets branches of this kind in, and their BR_TYPE (19.1.3, "Branch Types").
fn class(kind: BranchKind) -> (u64, u64) {
    match kind {
        BranchKind::Conditional => (ctl::COND, 0),
        BranchKind::IndirectJump => (ctl::NEAR_IND_JMP, 1),
        BranchKind::DirectJump => (ctl::NEAR_REL_JMP, 2),
        BranchKind::IndirectCall => (ctl::NEAR_IND_CALL, 3),
        BranchKind::DirectCall => (ctl::NEAR_REL_CALL, 4),
        BranchKind::Return => (ctl::NEAR_RET, 5),
        BranchKind::Far => (ctl::OTHER_BRANCH, 8),
    }
}
