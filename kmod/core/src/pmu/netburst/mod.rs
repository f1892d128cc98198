//! NetBurst: Pentium 4 and its Xeons, family 15 (SDM Vol. 3B 18.15, and with Hyper-Threading 18.16).
//!
//! | module | |
//! |---|---|
//! | [`registers`] | addresses and layouts; which ESCRs feed which counters |
//! | [`events`] | the events, and how one is asked for |
//! | [`tags`] | which micro-operations are tagged for events at retirement |
//! | [`assignment`] | events to counters and ESCRs |
//! | [`settings`] | counters to register values |
//! | `found` | from CPUID to such a PMU |
//!
//! **Hyper-Threading.** The two logical processors of a core share its PMU. Each of the 16 pairs of ESCRs used here has one
//! that feeds one half of the counters and one for the other half, so that each logical processor gets a half: logical
//! processor 0 the ESCRs with even addresses, with nine counters of which number 16 can write records, logical processor 1
//! the others with number 17 (18.16.3). No register of a half is touched by the other logical processor. What both share,
//! IA32_PEBS_ENABLE and MSR_PEBS_MATRIX_VERT, has one value for a whole session; so such a PMU serves one session at a time.

pub mod assignment;
pub mod events;
mod found;
pub mod registers;
pub mod settings;
pub mod tags;

pub(in super::super) use self::found::detect;
use self::registers::{Escr, PebsEnable, COUNTERS};
use super::super::abi::{CoreType, EventSpec};
use super::super::allocate::CounterSet;
use super::{Generation, Quirks};

/// Which part of its core's PMU a logical processor uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of it: it is the core's only one.
    Whole,
    /// The half of the logical processor with this number, 0 or 1.
    Half(u8),
}

/// The PMU of one logical processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What it uses of its core's.
    pub share: Share,
    /// Whether it is a Prescott or later.
    pub prescott: bool,
}

impl Unit {
    /// Its counters, one bit each.
    #[must_use]
    pub fn counter_bits(&self) -> u32 {
        let own = |half: &u32| match self.share {
            Share::Whole => true,
            Share::Half(number) => u32::from(number) == *half,
        };
        let of_half = |half| registers::Block::ALL.iter().fold(0, |bits, block| bits | block.counters(half));
        (0..2).filter(own).fold(0, |bits, half| bits | of_half(half))
    }

    /// Its counters' numbers.
    pub fn counters(&self) -> impl Iterator<Item = u32> {
        let bits = self.counter_bits();
        (0..COUNTERS).filter(move |number| bits >> number & 1 == 1)
    }

    /// Its ESCRs.
    pub fn escrs(&self) -> impl Iterator<Item = registers::EscrId> + Clone {
        let share = self.share;
        let own = move |half: &u32| share == Share::Whole || share == Share::Half(*half as u8);
        (0..2).filter(own).flat_map(registers::EscrId::of_half)
    }

    /// The counter that can write records (18.15.7.3, 18.16.3).
    #[must_use]
    pub const fn pebs_counter(&self) -> u32 {
        match self.share {
            Share::Whole => 16,
            Share::Half(number) => 16 + number as u32,
        }
    }

    /// The bits of an ESCR that count this logical processor at these privilege levels.
    #[must_use]
    pub const fn qualification(&self, privilege: u8) -> u32 {
        let (usr, os) = match self.share {
            Share::Half(1) => (Escr::T1_USR, Escr::T1_OS),
            _ => (Escr::T0_USR, Escr::T0_OS),
        };
        let usr = if privilege & EventSpec::USER != 0 { usr } else { 0 };
        let os = if privilege & EventSpec::KERNEL != 0 { os } else { 0 };
        usr | os
    }

    /// The bits of IA32_PEBS_ENABLE with which records are written. Where two logical processors share the register both bits
    /// are set, so that its value does not depend on which of them writes it: which of them writes records is up to its
    /// counter.
    #[must_use]
    pub const fn pebs_bits(&self) -> u32 {
        match self.share {
            Share::Whole => PebsEnable::UOP_TAG | PebsEnable::MY_THREAD,
            Share::Half(_) => PebsEnable::UOP_TAG | PebsEnable::MY_THREAD | PebsEnable::OTHER_THREAD,
        }
    }

    /// Which of a session's programs its logical processor runs.
    #[must_use]
    pub const fn place(&self) -> usize {
        match self.share {
            Share::Half(1) => 1,
            _ => 0,
        }
    }

    /// Its counters.
    #[must_use]
    pub fn counter_set(&self) -> CounterSet {
        CounterSet::netburst(self.counter_bits())
    }
}

/// Willamette to Gallatin: models 0 to 2, which run no 64-bit code.
pub static NETBURST: Generation = generation("netburst");
/// Prescott, Nocona, Cedar Mill and their like: models 3, 4 and 6.
pub static PRESCOTT: Generation = generation("netburst_p");

/// Their events are in [`events`]; the tables for architectural PMUs are empty.
const fn generation(name: &'static str) -> Generation {
    Generation {
        name,
        models: &[],
        hybrid_models: &[],
        core_type: CoreType::Any,
        events: &[],
        constrained: &[],
        fixed: &[],
        precise: &[],
        extra: &[],
        quirks: Quirks::NONE,
        pebs_formats: &[0],
        pebs_counters: 0,
        lbr_format: 0,
        errata: &[],
    }
}
