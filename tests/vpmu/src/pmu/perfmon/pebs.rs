//! The PEBS assist: from an armed counter's event to a record in memory (SDM Vol. 3B 18.8.1.1, 18.13.1).

use super::extended::PebsKind;
use super::{Perfmon, set_bits};
use crate::bus::{Bus, PageFault, Retired};
use crate::pmu::{PebsOutcome, ds};

/// Offset of the reset value of general-purpose counter 0.
const GENERAL_RESETS: u64 = 0x40;
/// Offset of the reset value of fixed-function counter 0: behind 8 general-purpose counters, in format 5 and
/// later behind 32 (Vol. 3B 20.9.1, "Extended PEBS").
const FIXED_RESETS: u64 = GENERAL_RESETS + 8 * 8;
const FIXED_RESETS_FORMAT_5: u64 = GENERAL_RESETS + 32 * 8;

/// What the assist did, beside its outcome.
pub(super) struct Assist {
    pub(super) outcome: PebsOutcome,
    /// Reset values by counter index; empty if they could not be read.
    pub(super) resets: Vec<(usize, u64)>,
    /// The index has reached the interrupt threshold.
    pub(super) threshold_reached: bool,
}

impl Perfmon {
    /// Writes one record for all of `counters`, a set of counter indices (the "applicable counters" of SDM
    /// Vol. 3B 18.13.1.1).
    pub(super) fn assist(&mut self, counters: u64, retired: &Retired, bus: &mut dyn Bus) -> Assist {
        let names = set_bits(counters).fold(0, |names, index| names | self.global_bit(index));
        if PebsKind::of(self.facts) == PebsKind::Architectural {
            return self.architectural_assist(counters, names, retired, bus);
        }
        self.ds_assist(counters, names, retired, bus).unwrap_or_else(|fault| Assist {
            outcome: PebsOutcome::Faulted { counters: names, fault },
            resets: Vec::new(),
            threshold_reached: false,
        })
    }

    fn ds_assist(
        &self,
        counters: u64,
        names: u64,
        retired: &Retired,
        bus: &mut dyn Bus,
    ) -> Result<Assist, PageFault> {
        let resets = self.resets(counters, bus)?;
        let record = match PebsKind::of(self.facts) {
            PebsKind::Adaptive => self.adaptive_record(counters, names, retired, bus),
            PebsKind::Fixed | PebsKind::Architectural => {
                self.record(counters, self.shown(names), retired, bus)
            }
        };
        let stored = ds::store(self.registers.ds_area, self.facts.pebs_buffer_most(), &record, bus)?;
        // Records are far below 4 GiB.
        let bytes = record.len() as u32;
        let outcome = match stored.at {
            Some(at) => PebsOutcome::Written { at, bytes, counters: names, shown: self.shown(names) },
            None => PebsOutcome::Dropped { counters: names },
        };
        Ok(Assist { outcome, resets, threshold_reached: stored.threshold_reached })
    }

    /// What a record says of the counters that it is for.
    pub(super) fn shown(&self, names: u64) -> u64 {
        match self.facts.pebs_format() {
            0 => 0,
            // IA32_PERF_GLOBAL_STATUS, which names every counter that has overflowed, also one whose own record is still to come
            // (18.8.1.1).
            1 | 2 => self.registers.status,
            // The applicable counters (18.13.1.1).
            _ => names,
        }
    }

    /// The reset values of `counters`.
    fn resets(&self, counters: u64, bus: &mut dyn Bus) -> Result<Vec<(usize, u64)>, PageFault> {
        let fixed = if self.facts.pebs_format() < 5 { FIXED_RESETS } else { FIXED_RESETS_FORMAT_5 };
        let reset = |index: usize| {
            let offset = match index.checked_sub(self.general()) {
                None => GENERAL_RESETS + 8 * index as u64,
                Some(index) => fixed + 8 * index as u64,
            };
            let [value] = ds::words(bus, self.registers.ds_area.wrapping_add(offset))?;
            Ok((index, value))
        };
        set_bits(counters).map(reset).collect()
    }
}
