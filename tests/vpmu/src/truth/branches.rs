//! The branches that were really taken last, for tests to compare branch records with.

use crate::event::Privilege;
use crate::micro::BranchKind;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Taken branches that are remembered of each privilege level: as many as the deepest stack of branch records
/// (SDM Vol. 3B 17.10).
const REMEMBERED: usize = 32;

/// One taken branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBranch {
    /// Linear address of the branch.
    pub from: u64,
    /// Linear address of its target.
    pub to: u64,
    /// What kind of branch it is.
    pub kind: BranchKind,
    /// Whether the modelled predictor was wrong about its direction or target.
    pub mispredicted: bool,
    /// Privilege level it was taken at.
    pub privilege: Privilege,
    /// Core clock cycles that had passed on this CPU while it was observed. The difference between two branches is
    /// what a branch record shows as elapsed, if it recorded none between them.
    pub cycle: u64,
}

/// The last taken branches of one CPU.
#[derive(Debug, Default)]
pub(super) struct Branches {
    /// Of each privilege level, so that a long stay in one leaves the other's; oldest first.
    taken: [VecDeque<TakenBranch>; 2],
    cycles: u64,
}

impl Branches {
    pub(super) fn advance(&mut self, cycles: u32) {
        self.cycles += u64::from(cycles);
    }

    pub(super) fn record(
        &mut self,
        from: u64,
        to: u64,
        kind: BranchKind,
        mispredicted: bool,
        privilege: Privilege,
    ) {
        let taken = &mut self.taken[privilege as usize];
        if taken.len() == REMEMBERED {
            taken.pop_front();
        }
        taken.push_back(TakenBranch { from, to, kind, mispredicted, privilege, cycle: self.cycles });
    }

    /// The remembered branches, those of user mode first; of each level the most recent first.
    pub(super) fn recent(&self) -> Vec<TakenBranch> {
        self.taken.iter().flat_map(|taken| taken.iter().rev().copied()).collect()
    }
}
