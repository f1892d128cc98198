//! What the tables of a generation are made of.

use super::super::allocate::CounterSet;

/// An event select and the unit masks that the PMU documents for it.
#[derive(Debug, PartialEq, Eq)]
pub struct EventRule {
    /// IA32_PERFEVTSELx bits 7:0; of AMD's PerfEvtSel also its bits 35:32, as bits 11:8 here.
    pub select: u16,
    /// The bits that its unit masks are made of; above 7:0 those of UMASK2, which only some processors have.
    pub unit_mask_bits: u16,
    /// General counters that can count it, one bit each.
    pub counters: u16,
}

/// One encoding that other counters count than the rest of its event select, mostly fewer.
#[derive(Debug, PartialEq, Eq)]
pub struct Constraint {
    /// IA32_PERFEVTSELx bits 15:0.
    pub encoding: u16,
    /// General counters that can count it, one bit each.
    pub counters: u16,
}

/// What a fixed counter counts.
#[derive(Debug, PartialEq, Eq)]
pub struct FixedRule {
    /// The encoding by which it is asked for: that of a general counter, or the number in Intel's event lists.
    pub encoding: u16,
    /// The fixed counter's number.
    pub counter: u8,
}

/// An event that can be sampled precisely, in this form only: no edge, inversion or counter mask.
#[derive(Debug, PartialEq, Eq)]
pub struct PreciseRule {
    /// Event select and unit mask, at their places in the event select register.
    pub encoding: u64,
    /// Counters that can write its records.
    pub counters: CounterSet,
    /// The encoding that a plain counter uses to count the same; `None` for an event that hardware counts only while it
    /// samples, on one counter at a time.
    pub count_as: Option<u64>,
    /// Bits that it needs in IA32_PEBS_ENABLE beside its counter's; of IBS, in the control register.
    pub pebs_enable: u64,
}

/// A register that an event needs beside its encoding. Each logical processor has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraRegister {
    /// MSR_OFFCORE_RSP_0: which requests and responses OFFCORE_RESPONSE counts.
    OffcoreRsp0,
    /// MSR_OFFCORE_RSP_1: the same for its second encoding.
    OffcoreRsp1,
    /// MSR_PEBS_LD_LAT_THRESHOLD: loads that took longer are sampled.
    LoadLatency,
    /// MSR_PEBS_FRONTEND: which retired instructions FRONTEND_RETIRED counts.
    Frontend,
}

impl ExtraRegister {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OffcoreRsp0, Self::OffcoreRsp1, Self::LoadLatency, Self::Frontend];

    /// Its address (SDM Vol. 4).
    #[must_use]
    pub const fn address(self) -> u32 {
        match self {
            Self::OffcoreRsp0 => 0x1A6,
            Self::OffcoreRsp1 => 0x1A7,
            Self::LoadLatency => 0x3F6,
            Self::Frontend => 0x3F7,
        }
    }

    /// The register that can take its place, with another encoding of the same event.
    #[must_use]
    pub const fn sibling(self) -> Option<Self> {
        match self {
            Self::OffcoreRsp0 => Some(Self::OffcoreRsp1),
            Self::OffcoreRsp1 => Some(Self::OffcoreRsp0),
            Self::LoadLatency | Self::Frontend => None,
        }
    }

    /// Its place in [`ExtraRegister::ALL`].
    #[must_use]
    pub const fn place(self) -> usize {
        self as usize
    }
}

/// An event that needs a register beside its encoding.
#[derive(Debug, PartialEq, Eq)]
pub struct ExtraRule {
    /// IA32_PERFEVTSELx bits 15:0.
    pub encoding: u16,
    /// The register.
    pub register: ExtraRegister,
    /// Bits that may be set in it.
    pub bits: u64,
}

/// The microcode from which on PEBS works on one stepping.
#[derive(Debug, PartialEq, Eq)]
pub struct Microcode {
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Least revision.
    pub revision: u32,
}

/// Bits of MSR_PEBS_LD_LAT_THRESHOLD: the threshold in core cycles (20.3.1.1.2).
pub(super) const LATENCY: u64 = 0xFFFF;

pub(super) const fn rule(select: u16, unit_mask_bits: u16, counters: u16) -> EventRule {
    EventRule { select, unit_mask_bits, counters }
}

/// An event that a plain counter counts by the same encoding.
pub(super) const fn precise(encoding: u64, counters: u16) -> PreciseRule {
    counted_as(encoding, counters, encoding)
}

/// An event that a plain counter counts by another encoding.
pub(super) const fn counted_as(encoding: u64, counters: u16, count_as: u64) -> PreciseRule {
    PreciseRule { count_as: Some(count_as), ..only_precise(encoding, counters) }
}

/// An event that hardware counts only while it samples.
pub(super) const fn only_precise(encoding: u64, counters: u16) -> PreciseRule {
    PreciseRule { encoding, counters: CounterSet::general(counters), count_as: None, pebs_enable: 0 }
}
