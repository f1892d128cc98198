//! Architectural performance monitoring (SDM Vol. 3B 20.2): what every Intel PMU since Core Duo shares.

use super::super::allocate::CounterSet;
use super::super::cfg_c;
use super::super::detect::CpuidRegisters;
use super::super::events::{Way, PERIOD_MIN};
use super::super::period::Grid;
use super::super::registers::PerfEvtSel;
use super::amd::Amd;
use super::{Interface, Pebs, Pmu};

/// General counters that hpm uses at most: what a quantum describes.
pub const GENERAL_COUNTERS_MAX: u32 = super::super::abi::SAMPLING_COUNTERS_MAX as u32;
/// Fixed counters that hpm uses at most: those with an event that any generation here documents.
pub const FIXED_COUNTERS_MAX: u32 = 7;

/// CPUID leaves 0AH and 23H (SDM Vol. 2A, CPUID; Vol. 3B 20.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Perfmon {
    /// Version; 0 without a PMU.
    pub version: u32,
    /// General counters of each logical processor, one bit each.
    pub general: u32,
    /// Width of a general counter in bits.
    pub general_width: u32,
    /// Fixed counters of each logical processor, one bit each.
    pub fixed: u32,
    /// Width of a fixed counter in bits.
    pub fixed_width: u32,
    /// Architectural events that are not available, one bit each, in the order of [`EVENTS`].
    pub events_unavailable: u32,
}

/// The lowest `count` bits.
const fn lowest(count: u32) -> u32 {
    if count >= 32 {
        u32::MAX
    } else {
        (1 << count) - 1
    }
}

impl Perfmon {
    /// The meaning of leaf 0AH.
    #[must_use]
    pub const fn new(leaf: CpuidRegisters) -> Self {
        let version = leaf.eax & 0xff;
        // The fixed counters' fields have a meaning from version 2 on, the map in ECX from version 5 on (Vol. 2A, CPUID).
        let fixed = if version >= 2 { leaf.edx } else { 0 };
        let map = if version >= 5 { leaf.ecx } else { 0 };
        let listed = (leaf.eax >> 24) & 0xff;
        Self {
            version,
            general: lowest((leaf.eax >> 8) & 0xff),
            general_width: (leaf.eax >> 16) & 0xff,
            fixed: lowest(fixed & 0x1f) | map,
            fixed_width: (fixed >> 5) & 0xff,
            events_unavailable: leaf.ebx | !lowest(listed),
        }
    }

    /// With the three fixed counters of versions 2 to 4, of which leaf 0AH may be silent; not where a hypervisor gives what it says
    /// (Linux's `intel_pmu_init`: "v2 perfmon does not report fixed-purpose events, so assume at least 3 events"). They are as wide as the
    /// others, where nothing else is said.
    #[must_use]
    pub const fn assuming_fixed(self, hypervisor: bool) -> Self {
        if hypervisor || self.version < 2 || self.version > 4 {
            return self;
        }
        let fixed_width = if self.fixed_width == 0 { self.general_width } else { self.fixed_width };
        Self { fixed: self.fixed | lowest(FIXED_EVENTS.len() as u32), fixed_width, ..self }
    }

    /// With the maps of leaf 23H, subleaf 1, which version 6 has beside leaf 0AH.
    #[must_use]
    pub const fn with_maps(self, leaf: CpuidRegisters) -> Self {
        Self { general: leaf.eax, fixed: leaf.ebx, ..self }
    }

    /// Without counters that hpm does not use.
    #[must_use]
    pub const fn usable(self) -> Self {
        Self {
            general: self.general & lowest(GENERAL_COUNTERS_MAX),
            fixed: self.fixed & lowest(FIXED_COUNTERS_MAX),
            ..self
        }
    }

    /// Every counter.
    #[must_use]
    pub fn counters(&self) -> CounterSet {
        (0..FIXED_COUNTERS_MAX)
            .filter(|&number| self.fixed >> number & 1 == 1)
            .fold(CounterSet::general(self.general as u16), |set, number| {
                set.union(CounterSet::one_fixed(number))
            })
    }
}

/// The architectural events' encodings, in the order of CPUID.0AH:EBX (20.2.1.2, table 20-1).
pub const EVENTS: [u16; 7] = [0x003C, 0x00C0, 0x013C, 0x4F2E, 0x412E, 0x00C4, 0x00C5];

/// Encodings of what the first three fixed counters count on every generation (20.2.2, table 20-2). The first of each row is also an event of general
/// counters, except for CPU_CLK_UNHALTED.REF_TSC, which only has the number that Intel's event lists give it.
pub(in super::super) const FIXED_EVENTS: [[u16; 2]; 3] =
    [[0x00C0, 0x0100], [0x003C, 0x0200], [0x0300, 0x0300]];

impl Pmu {
    /// The fixed counter that counts this encoding, if this PMU has it.
    #[must_use]
    pub fn fixed_counter(&self, encoding: u64) -> Option<u32> {
        let common = FIXED_EVENTS.iter().zip(0..);
        let common = common.flat_map(|(row, counter)| row.iter().map(move |&event| (event, counter)));
        let more = self.generation.fixed.iter().map(|rule| (rule.encoding, u32::from(rule.counter)));
        let (_, counter) = common.chain(more).find(|&(event, _)| u64::from(event) == encoding)?;
        (self.perfmon.fixed >> counter & 1 == 1).then_some(counter)
    }

    /// Whether CPUID says that this architectural event is missing.
    #[must_use]
    pub fn is_unavailable(&self, encoding: u64) -> bool {
        EVENTS
            .iter()
            .position(|&event| u64::from(event) == encoding)
            .is_some_and(|bit| self.perfmon.events_unavailable >> bit & 1 == 1)
    }

    /// Has RDPMC in user mode read counters as 0, whatever they hold: all but those whose place has its bit set in `shown`. Where the
    /// processor cannot do so, nothing is changed.
    pub(in super::super) fn keep_from_user(
        &self,
        shown: u64,
        selects: &mut [PerfEvtSel],
        fixed_ctr_ctrl: &mut u64,
    ) {
        if !self.rdpmc_user_disable {
            return;
        }
        for counter in self.perfmon.counters().iter().filter(|counter| shown >> counter.place() & 1 == 0) {
            if let Some(number) = counter.as_fixed() {
                // The bit beside that of adaptive records, in 32 bits that are four for each counter as the lower ones are.
                *fixed_ctr_ctrl |= 1 << (33 + 4 * number);
            } else if let Some(select) = selects.get_mut(counter.place()) {
                *select = select.with_rdpmc_usr_disable(1);
            }
        }
    }

    /// The periods that an event can be sampled with in this way by some of these counters.
    #[must_use]
    pub fn period_grid(&self, way: Way, counters: CounterSet) -> Grid {
        match self.interface {
            Interface::Amd(Amd { ibs: Some(ibs), .. }) if way == Way::Ibs => ibs.grid(counters),
            _ => {
                let reloads = way == Way::Pebs && self.pebs.is_ok_and(Pebs::is_architectural);
                let most = if reloads { cfg_c::PERIOD_MAX } else { u64::MAX };
                Grid { unit: 1, least: PERIOD_MIN, most: most.min(self.period_max()) }
            }
        }
    }

    /// Greatest period: the counter must start below zero, and without full-width writes only bits 31:0 can be written
    /// (20.2.8).
    #[must_use]
    pub const fn period_max(&self) -> u64 {
        let bits = if self.full_width_writes { self.perfmon.general_width } else { 32 };
        (1 << (bits - 1)) - 1
    }
}
