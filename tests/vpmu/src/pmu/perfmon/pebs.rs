//! The PEBS assist: from an armed counter's event to a record in memory (SDM Vol. 3B 18.8.1.1, 18.13.1).

use super::Perfmon;
use crate::bus::{Bus, PageFault, Retired};
use crate::pmu::PebsOutcome;

/// The part of the DS management area that PEBS uses, 64-bit layout (SDM Vol. 3B, figure 18-22): offset 20H
/// to 60H.
struct ManagementArea {
    index: u64,
    absolute_maximum: u64,
    threshold: u64,
    resets: [u64; 4],
}

/// Offset of "PEBS buffer base" in the management area.
const PEBS_FIELDS: u64 = 0x20;
/// Offset of "PEBS index".
const PEBS_INDEX: u64 = 0x28;

/// What the assist did, beside its outcome.
pub(super) struct Assist {
    pub(super) outcome: PebsOutcome,
    /// Reset values of the counters; `None` if the management area could not be read.
    pub(super) resets: Option<[u64; 4]>,
    /// The index has reached the interrupt threshold.
    pub(super) threshold_reached: bool,
}

impl ManagementArea {
    fn read(ds_area: u64, bus: &mut dyn Bus) -> Result<Self, PageFault> {
        let mut bytes = [0; 0x40];
        bus.read(ds_area.wrapping_add(PEBS_FIELDS), &mut bytes)?;
        let mut words = [0u64; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        }
        let [_base, index, absolute_maximum, threshold, resets @ ..] = words;
        Ok(Self { index, absolute_maximum, threshold, resets })
    }
}

impl Perfmon {
    /// Writes one record for all of `counters` (the "applicable counters" of SDM Vol. 3B 18.13.1.1).
    pub(super) fn assist(&self, counters: u64, retired: &Retired, bus: &mut dyn Bus) -> Assist {
        let fault = |fault| Assist {
            outcome: PebsOutcome::Faulted { counters, fault },
            resets: None,
            threshold_reached: false,
        };
        let ds_area = self.registers.ds_area;
        let area = match ManagementArea::read(ds_area, bus) {
            Ok(area) => area,
            Err(error) => return fault(error),
        };
        let record = self.record(counters, retired, bus);
        // Nothing is written past the absolute maximum, and nothing is signalled (18.8.1.1).
        let end = area.index.checked_add(record.len() as u64).filter(|&end| end <= area.absolute_maximum);
        let Some(end) = end else {
            let outcome = PebsOutcome::Dropped { counters };
            return Assist { outcome, resets: Some(area.resets), threshold_reached: false };
        };
        let written =
            bus.write(area.index, &record).and_then(|()| bus.write(ds_area + PEBS_INDEX, &end.to_le_bytes()));
        if let Err(error) = written {
            return fault(error);
        }
        Assist {
            outcome: PebsOutcome::Written { at: area.index, counters },
            resets: Some(area.resets),
            threshold_reached: end >= area.threshold,
        }
    }
}
