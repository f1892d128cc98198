//! Last branch records.

use hpm_abi::BranchFilter;
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// One taken branch (SDM Vol. 3B 18.4.8.1 and 19.1, "LBR entries": IA32_LBR_x_FROM_IP, _TO_IP and _INFO).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
pub struct Branch {
    /// Address of the branch.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// IA32_LBR_x_INFO.
    pub info: u64,
}

impl Branch {
    /// Bit 63: the branch was mispredicted, in target or direction.
    #[must_use]
    pub fn mispredicted(self) -> bool {
        self.info >> 63 & 1 == 1
    }

    /// Bits 15:0: core cycles since the branch before; saturates at 65535, and 0 means unknown. As hardware wrote them they
    /// may mean nothing: see [`Branch::told`].
    #[must_use]
    pub fn cycles(self) -> u16 {
        self.info as u16
    }

    /// The branch without cycles that hardware does not call valid. Architectural records do so by bit 60; those before them
    /// have no such bit, and always tell.
    #[must_use]
    pub fn told(self, architectural: bool) -> Self {
        let valid = !architectural || self.info >> 60 & 1 == 1;
        Self { info: if valid { self.info } else { self.info & !0xffff }, ..self }
    }

    /// Whether the last branch records of a PMU, by the driver's name for it, are architectural.
    #[must_use]
    pub fn are_architectural(pmu: &str) -> bool {
        matches!(
            pmu,
            "goldencove"
                | "redwoodcove"
                | "lioncove"
                | "cougarcove"
                | "gracemont"
                | "crestmont"
                | "skymont"
                | "darkmont"
        )
    }

    /// The branches as a record or the driver has them: 24 bytes each, the newest first; nothing when the bytes are not
    /// whole branches at an aligned place.
    #[must_use]
    pub fn view(bytes: &[u8]) -> &[Self] {
        <[Self]>::ref_from_bytes(bytes).unwrap_or_default()
    }

    /// The branches before the first that holds nothing: hardware writes as many as it was told to, whatever was taken.
    #[must_use]
    pub fn used(branches: &[Self]) -> &[Self] {
        let used = branches.iter().position(|branch| branch.from == 0).unwrap_or(branches.len());
        &branches[..used]
    }
}

/// A type of branches that can be recorded apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BranchType {
    /// Conditional jumps.
    Conditional,
    /// Direct jumps.
    Jump,
    /// Indirect jumps.
    IndirectJump,
    /// Direct calls.
    Call,
    /// Indirect calls.
    IndirectCall,
    /// Returns.
    Return,
    /// System calls, interrupts and the ways back.
    Far,
}

impl BranchType {
    /// All types.
    pub const ALL: [Self; 7] = [
        Self::Conditional,
        Self::Jump,
        Self::IndirectJump,
        Self::Call,
        Self::IndirectCall,
        Self::Return,
        Self::Far,
    ];

    /// As `record --branch-types` calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conditional => "conditional",
            Self::Jump => "jump",
            Self::IndirectJump => "indirect-jump",
            Self::Call => "call",
            Self::IndirectCall => "indirect-call",
            Self::Return => "return",
            Self::Far => "far",
        }
    }

    /// What these are, in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Conditional => "Conditional jumps",
            Self::Jump => "Direct jumps",
            Self::IndirectJump => "Indirect jumps",
            Self::Call => "Direct calls",
            Self::IndirectCall => "Indirect calls",
            Self::Return => "Returns",
            Self::Far => "System calls, interrupts and the ways back, where kernel mode is measured",
        }
    }

    /// Its bit in [`BranchFilter`].
    #[must_use]
    pub const fn bit(self) -> u32 {
        match self {
            Self::Conditional => BranchFilter::CONDITIONAL,
            Self::Jump => BranchFilter::JUMP,
            Self::IndirectJump => BranchFilter::INDIRECT_JUMP,
            Self::Call => BranchFilter::CALL,
            Self::IndirectCall => BranchFilter::INDIRECT_CALL,
            Self::Return => BranchFilter::RETURN,
            Self::Far => BranchFilter::FAR,
        }
    }

    /// The types that a filter records; 0 filters none.
    #[must_use]
    pub fn of_filter(filter: u32) -> Vec<Self> {
        Self::ALL.into_iter().filter(|kind| filter == 0 || filter & kind.bit() != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_nothing_records_all() {
        assert_eq!(BranchType::of_filter(0), BranchType::ALL);
        let two = BranchFilter::CALL | BranchFilter::RETURN;
        assert_eq!(BranchType::of_filter(two), [BranchType::Call, BranchType::Return]);
        let names = serde_json::to_value(BranchType::ALL).unwrap();
        assert_eq!(names, serde_json::json!(BranchType::ALL.map(BranchType::name)));
    }

    #[test]
    fn cycles_are_those_that_hardware_calls_valid() {
        let branch = |info| Branch { from: 1, to: 2, info };
        let (valid, mispredicted) = (1 << 60, 1 << 63);
        let told = branch(mispredicted | 40).told(true);
        assert_eq!((told.cycles(), told.mispredicted()), (0, true));
        assert_eq!(branch(valid | 40).told(true).cycles(), 40);
        assert_eq!(branch(40).told(false).cycles(), 40);
    }

    #[test]
    fn what_follows_an_empty_record_is_not_used() {
        let branch = |from| Branch { from, to: 2, info: 0 };
        let all = [branch(5), branch(4), branch(0), branch(3)];
        assert_eq!(Branch::used(&all), &all[..2]);
        assert_eq!(Branch::used(&all[..2]), &all[..2]);
        assert!(Branch::used(&[]).is_empty());
    }
}
