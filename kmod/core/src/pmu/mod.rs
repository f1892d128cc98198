//! The PMUs that hpm knows: what is common ([`architectural`]), and one file per generation.

pub mod architectural;
pub mod skylake;

use self::architectural::Perfmon;

/// Every generation that hpm knows.
const GENERATIONS: [&Generation; 1] = [&skylake::SKYLAKE];

/// A PMU that hpm can program, as found on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Pmu {
    /// What its generation can count, and how.
    pub generation: &'static Generation,
    /// What CPUID says of its counters.
    pub perfmon: Perfmon,
    /// Whether general counters can be written in full width (IA32_PERF_CAPABILITIES.FW_WRITE).
    pub full_width_writes: bool,
    /// How it writes precise records; `None` when it does not.
    pub pebs: Option<Pebs>,
}

/// How a PMU writes PEBS records. A counter's overflow arms PEBS; the next event is recorded and the counter goes on from
/// its reset value, to which that event counts already: a reset of -n gives a record every n events (SDM Vol. 3B
/// 20.3.1.1.1, and what Linux's accounting of auto-reload rests on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pebs {
    /// Record format (IA32_PERF_CAPABILITIES, bits 11:8).
    pub format: u16,
    /// Bytes of a record.
    pub record_size: u16,
    /// Byte offset in a record of the word that says which counters it is for ("Applicable Counters").
    pub applicable_counters: u16,
    /// Byte offset in a record of RBP.
    pub rbp: u16,
    /// Byte offset in a record of RSP.
    pub rsp: u16,
    /// General counters that can write records, one bit each.
    pub counters: u16,
}

/// What is the same on all processors of one generation.
#[derive(Debug, PartialEq, Eq)]
pub struct Generation {
    /// Its name.
    pub name: &'static str,
    /// Display models of family 6 that have it (SDM Vol. 4, table 2-1).
    pub models: &'static [u32],
    /// Events of general counters, in order of event select. An event that needs a register which hpm does not program
    /// (an off-core response, a latency threshold) is not among them.
    pub events: &'static [EventRule],
    /// Events that can be sampled precisely.
    pub precise: &'static [PreciseRule],
    /// How it writes PEBS records, where the processor says it does.
    pub pebs: Pebs,
}

/// An event select and the unit masks that the PMU documents for it.
#[derive(Debug, PartialEq, Eq)]
pub struct EventRule {
    /// IA32_PERFEVTSELx bits 7:0.
    pub select: u8,
    /// The bits that its unit masks are made of.
    pub unit_mask_bits: u8,
    /// General counters that can count it, one bit each.
    pub counters: u16,
}

/// An event that can be sampled precisely, in this form only: no edge, inversion or counter mask.
#[derive(Debug, PartialEq, Eq)]
pub struct PreciseRule {
    /// IA32_PERFEVTSELx bits 15:0.
    pub encoding: u16,
    /// General counters that can write its records, one bit each.
    pub counters: u16,
    /// The encoding that a plain counter uses to count the same.
    pub count_as: u16,
}

/// The generation of this processor of family 6, if hpm knows it.
#[must_use]
pub fn generation_of(model: u32) -> Option<&'static Generation> {
    GENERATIONS.into_iter().find(|generation| generation.models.contains(&model))
}

impl Generation {
    /// The rule for this event select.
    #[must_use]
    pub fn event(&self, select: u8) -> Option<&'static EventRule> {
        let place = self.events.binary_search_by_key(&select, |rule| rule.select).ok()?;
        self.events.get(place)
    }

    /// The rule for sampling this encoding precisely.
    #[must_use]
    pub fn precise(&self, encoding: u64) -> Option<&'static PreciseRule> {
        self.precise.iter().find(|rule| u64::from(rule.encoding) == encoding)
    }
}
