//! Architectural performance monitoring (SDM Vol. 3B 20.2): what every Intel PMU since Core Duo shares.

use super::super::detect::CpuidRegisters;
use super::Pmu;

/// General counters that hpm uses at most: what a quantum describes.
pub const GENERAL_COUNTERS_MAX: u32 = super::super::abi::SAMPLING_COUNTERS_MAX as u32;
/// Fixed counters that hpm uses at most: those with an event of version 2 to 4 (20.2.2).
pub const FIXED_COUNTERS_MAX: u32 = 3;

/// CPUID leaf 0AH (SDM Vol. 2A, CPUID; Vol. 3B 20.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perfmon {
    /// Version; 0 without a PMU.
    pub version: u32,
    /// General counters per logical processor.
    pub general_counters: u32,
    /// Width of a general counter in bits.
    pub general_width: u32,
    /// Fixed counters per logical processor.
    pub fixed_counters: u32,
    /// Width of a fixed counter in bits.
    pub fixed_width: u32,
    /// Architectural events that are not available, one bit each, in the order of [`EVENTS`].
    pub events_unavailable: u32,
}

impl Perfmon {
    /// The meaning of leaf 0AH.
    #[must_use]
    pub const fn new(leaf: CpuidRegisters) -> Self {
        let version = leaf.eax & 0xff;
        // The fixed counters' fields have a meaning from version 2 on (Vol. 2A, CPUID).
        let fixed = if version >= 2 { leaf.edx } else { 0 };
        let listed = (leaf.eax >> 24) & 0xff;
        let not_listed = if listed >= 32 { 0 } else { u32::MAX << listed };
        Self {
            version,
            general_counters: (leaf.eax >> 8) & 0xff,
            general_width: (leaf.eax >> 16) & 0xff,
            fixed_counters: fixed & 0x1f,
            fixed_width: (fixed >> 5) & 0xff,
            events_unavailable: leaf.ebx | not_listed,
        }
    }
}

/// The architectural events' encodings, in the order of CPUID.0AH:EBX (20.2.1.2, table 20-1).
pub const EVENTS: [u16; 7] = [0x003C, 0x00C0, 0x013C, 0x4F2E, 0x412E, 0x00C4, 0x00C5];

/// Encodings of what each fixed counter counts (20.2.2, table 20-2). The first of each row is also an event of general
/// counters, except for CPU_CLK_UNHALTED.REF_TSC, which only has the number that Intel's event lists give it.
const FIXED_EVENTS: [[u16; 2]; FIXED_COUNTERS_MAX as usize] =
    [[0x00C0, 0x0100], [0x003C, 0x0200], [0x0300, 0x0300]];

impl Pmu {
    /// The fixed counter that counts this encoding, if this PMU has it.
    #[must_use]
    pub fn fixed_counter(&self, encoding: u64) -> Option<u32> {
        let place =
            FIXED_EVENTS.iter().position(|row| row.iter().any(|&event| u64::from(event) == encoding))?;
        let place = place as u32;
        (place < self.perfmon.fixed_counters).then_some(place)
    }

    /// Whether CPUID says that this architectural event is missing.
    #[must_use]
    pub fn is_unavailable(&self, encoding: u64) -> bool {
        EVENTS
            .iter()
            .position(|&event| u64::from(event) == encoding)
            .is_some_and(|bit| self.perfmon.events_unavailable >> bit & 1 == 1)
    }

    /// Greatest period: the counter must start below zero, and without full-width writes only bits 31:0 can be written
    /// (20.2.8).
    #[must_use]
    pub const fn period_max(&self) -> u64 {
        let bits = if self.full_width_writes { self.perfmon.general_width } else { 32 };
        (1 << (bits - 1)) - 1
    }
}
