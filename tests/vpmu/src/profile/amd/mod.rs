//! AMD's processors.
//!
//! *APM* is AMD's Architecture Programmer's Manual, Vol. 2 (24593), chapter 13 "Debug and Performance Resources";
//! *BKDG* the BIOS and Kernel Developer's Guide of a family (0Fh: 32559, 10h: 31116, 15h: 42301, 16h: 48751), *PPR* the Processor
//! Programming Reference of later ones (family 17h model 1: 54945, model 31h: 55803; family 19h model 21h: 56214, model 61h:
//! 56713).

mod family10h;
mod family10h_events;
mod family15h;
mod family15h_events;
mod family16h;
mod family16h_events;
mod family17h;
mod family17h_events;
mod k8;
mod k8_events;
mod zen;
mod zen_events;

use super::Profile;
use crate::event::{Event, EventSet};

pub use family10h::FAMILY_10H;
pub use family15h::FAMILY_15H;
pub use family16h::FAMILY_16H;
pub use family17h::{ZEN_1, ZEN_2};
pub use k8::K8;
pub use zen::{ZEN_3, ZEN_4, ZEN_5};

/// Every profile of AMD's processors.
pub static ALL: &[&Profile] =
    &[&K8, &FAMILY_10H, &FAMILY_15H, &FAMILY_16H, &ZEN_1, &ZEN_2, &ZEN_3, &ZEN_4, &ZEN_5];

/// AMD's core performance counters (APM 13.2), and instruction-based sampling (13.3).
#[derive(Debug)]
pub struct Amd {
    /// How many counters a logical processor has: 4, or 6 with the extension.
    pub counters: u8,
    /// The counters also have the addresses C001_0200H and following (`CPUID.8000_0001H:ECX.PerfCtrExtCore`).
    pub extended: bool,
    /// Bits of PERF_CTLx that are not reserved.
    pub control_mask: u64,
    /// Global control and status (`CPUID.8000_0022H:EAX.PerfMonV2`).
    pub version_2: bool,
    /// Instruction-based sampling: `CPUID.8000_001BH:EAX`, 0 if the part has none.
    pub ibs: u32,
    /// Events that the counters count, in lists that parts share.
    pub events: &'static [&'static [AmdEvent]],
}

/// Bits of `CPUID.8000_001BH:EAX` ("IBS Feature Identification").
pub mod ibs {
    #![allow(missing_docs, reason = "the names are the manual's")]

    pub const IBSFFV: u32 = 1;
    pub const FETCH_SAM: u32 = 1 << 1;
    pub const OP_SAM: u32 = 1 << 2;
    pub const RD_WR_OP_CNT: u32 = 1 << 3;
    pub const OP_CNT: u32 = 1 << 4;
    pub const BRN_TRGT: u32 = 1 << 5;
    pub const OP_CNT_EXT: u32 = 1 << 6;
    pub const RIP_INVALID_CHK: u32 = 1 << 7;
    pub const OP_BRN_FUSE: u32 = 1 << 8;
    pub const FETCH_CTL_EXTD: u32 = 1 << 9;
    /// Zen 4's extensions: filtering by misses of the last-level cache, five bits of data source.
    pub const ZEN4_EXTENSIONS: u32 = 1 << 11;
}

/// PERF_CTLx of K7 and K8: event and unit mask, USR, OS, E, PC, INT, EN, INV, CNT_MASK (BKDG 32559,
/// "Performance Event Select Register").
pub(super) const CONTROL_8_BIT: u64 = 0xFFDF_FFFF;
/// Those from family 10h on: also EventSelect[11:8] in 35:32 and HostGuestOnly in 41:40; there is no pin to
/// control, so that bit 19 is reserved (APM 13.2.1).
pub(super) const CONTROL_12_BIT: u64 = 0x30F_FFD7_FFFF;

/// One event: how it is programmed and what it counts.
#[derive(Debug)]
pub struct AmdEvent {
    /// The vendor's name, as far as it has one, for example `LsDispatch`.
    pub name: &'static str,
    /// EventSelect, up to 12 bits.
    pub select: u16,
    /// What the unit mask chooses.
    pub units: Units,
    /// The counters that count it, one bit each; on others it counts nothing.
    pub counters: u8,
}

/// What the unit mask of an event chooses.
#[derive(Debug)]
pub enum Units {
    /// Nothing: the event counts these.
    None(EventSet),
    /// Each bit adds what it stands for; bits that are not listed stand for what the model does not have.
    Bits(&'static [(u8, EventSet)]),
}

impl AmdEvent {
    /// The event, if only these counters count it.
    pub(super) const fn on(self, counters: u8) -> Self {
        Self { counters, ..self }
    }

    /// Whether counter `index` counts it.
    #[must_use]
    pub fn is_counted_by(&self, index: usize) -> bool {
        self.counters >> index & 1 != 0
    }

    /// What it counts with this unit mask.
    #[must_use]
    pub fn counts(&self, unit_mask: u8) -> EventSet {
        match self.units {
            Units::None(counts) => counts,
            Units::Bits(bits) => bits
                .iter()
                .filter(|(bit, _)| unit_mask & bit != 0)
                .fold(EventSet::EMPTY, |all, &(_, counts)| all.union(counts)),
        }
    }
}

/// An event without units.
pub(super) const fn plain(name: &'static str, select: u16, counts: &[Event]) -> AmdEvent {
    AmdEvent { name, select, units: Units::None(EventSet::of(counts)), counters: u8::MAX }
}

/// An event with units.
pub(super) const fn units(name: &'static str, select: u16, bits: &'static [(u8, EventSet)]) -> AmdEvent {
    AmdEvent { name, select, units: Units::Bits(bits), counters: u8::MAX }
}

/// One bit of a unit mask.
pub(super) const fn bit(bit: u8, counts: &[Event]) -> (u8, EventSet) {
    (bit, EventSet::of(counts))
}

impl Amd {
    /// Every event.
    pub fn events(&self) -> impl Iterator<Item = &'static AmdEvent> + use<> {
        self.events.iter().copied().flatten()
    }

    /// The event of this EventSelect.
    #[must_use]
    pub fn event(&self, select: u16) -> Option<&'static AmdEvent> {
        self.events().find(|event| event.select == select)
    }
}
