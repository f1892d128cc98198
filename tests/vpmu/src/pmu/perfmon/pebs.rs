//! The PEBS assist: from an armed counter's event to a record in memory (SDM Vol. 3B 18.8.1.1, 18.13.1).

use super::Perfmon;
use crate::bus::{Bus, DataAccess, PageFault, Registers, Retired};
use crate::micro::{DataOutcome, DataSource};
use crate::pmu::PebsOutcome;
use crate::profile::DataRecord;

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
/// Size of a record of format 0011B (SDM Vol. 3B, table 18-55).
pub(super) const RECORD_BYTES: u64 = 0xC8;

/// What the assist did, beside its outcome.
pub(super) struct Assist {
    pub(super) outcome: PebsOutcome,
    /// Reset values of the counters; `None` if the management area could not be read.
    pub(super) resets: Option<[u64; 4]>,
    /// The index has reached the interrupt threshold.
    pub(super) threshold_reached: bool,
}

/// A general register's place in a record is not its encoding: RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to
/// R15.
const RECORD_ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

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
        // Nothing is written past the absolute maximum, and nothing is signalled (18.8.1.1).
        let end = area.index.checked_add(RECORD_BYTES).filter(|&end| end <= area.absolute_maximum);
        let Some(end) = end else {
            let outcome = PebsOutcome::Dropped { counters };
            return Assist { outcome, resets: Some(area.resets), threshold_reached: false };
        };
        let record = self.record(counters, retired, bus.registers(), bus.tsc());
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

    /// The record's bytes (SDM Vol. 3B, table 18-55).
    fn record(
        &self,
        counters: u64,
        retired: &Retired,
        registers: Registers,
        tsc: u64,
    ) -> [u8; RECORD_BYTES as usize] {
        let mut words = [0u64; RECORD_BYTES as usize / 8];
        words[0] = registers.rflags;
        // The machine state is that after the instruction; EventingIP names the instruction itself
        // (18.11.3.1).
        words[1] = retired.next_pc;
        for (word, &register) in words[2..18].iter_mut().zip(&RECORD_ORDER) {
            *word = registers.general[register];
        }
        words[18] = counters;
        let [address, source, latency] = self.data_words(counters, retired);
        words[19] = address;
        words[20] = source;
        words[21] = latency;
        words[22] = retired.pc;
        // 23 is the transactional abort status; the modelled parts have no TSX.
        words[24] = tsc;
        let mut bytes = [0; RECORD_BYTES as usize];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Data linear address, data source encoding and latency. If several counters share the record, the first
    /// with a memory event decides (counters are prioritised in index order, 18.8.1.1).
    fn data_words(&self, counters: u64, retired: &Retired) -> [u64; 3] {
        let records =
            self.counters.iter().enumerate().filter(|&(index, _)| index < 64 && counters >> index & 1 != 0);
        for (_, counter) in records {
            let data = counter.rule.event.map_or(DataRecord::None, |event| event.data);
            let words = match data {
                DataRecord::None => None,
                // Of a load that is not sampled for latency, only the address is defined (table 18-46).
                DataRecord::Load => retired.load.map(|load| [load.linear, 0, 0]),
                DataRecord::LoadLatency => retired.load.map(load_latency),
                DataRecord::Store => retired.store.map(store),
            };
            if let Some(words) = words {
                return words;
            }
        }
        [0; 3]
    }
}

/// A load of the load latency facility (SDM Vol. 3B, tables 18-24 and 18-25).
fn load_latency(load: DataAccess) -> [u64; 3] {
    /// The second-level TLB missed. The manual gives bit 4 this meaning for stores only ("layout of precise
    /// store information", 18.9.4.3); processors report it for loads too, and Linux reads it so.
    const STLB_MISS: u64 = 1 << 4;
    let encoding = |outcome: DataOutcome| {
        let source = match outcome.source {
            // 01H "satisfied by the L1 data cache", 03H "by the L2", 04H "L3 hit, no coherency actions", 0CH
            // "L3 miss, serviced by local DRAM, exclusive".
            DataSource::L1 => 0x1,
            DataSource::L2 => 0x3,
            DataSource::L3 => 0x4,
            DataSource::Memory => 0xC,
        };
        source | if outcome.stlb_miss { STLB_MISS } else { 0 }
    };
    [
        load.linear,
        load.outcome.map_or(0, encoding),
        load.outcome.map_or(0, |outcome| outcome.latency_cycles.into()),
    ]
}

/// A store of data address profiling (SDM Vol. 3B, table 18-46): bit 0 says that it hit the L1 data cache.
fn store(store: DataAccess) -> [u64; 3] {
    let hit = store.outcome.is_some_and(|outcome| outcome.source == DataSource::L1);
    [store.linear, u64::from(hit), 0]
}
