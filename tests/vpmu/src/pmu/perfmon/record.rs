//! What is in a PEBS record of the formats 0 to 3 (IA32_PERF_CAPABILITIES bits 11:8): RFLAGS, RIP and the
//! general registers in all of them, then what each format appends to the one before.

use super::Perfmon;
use crate::bus::{Bus, DataAccess, Retired};
use crate::micro::{DataOutcome, DataSource};
use crate::pmu::ds;
use crate::profile::DataRecord;

/// IA32_PEBS_ENABLE: counter 3 captures precise stores (SDM Vol. 3B, figure 18-35).
const PS_EN: u64 = 1 << 63;
/// In the data source of a load and the status of a store: the second-level TLB missed, the access is locked.
const STLB_MISS: u64 = 1 << 4;
const LOCKED: u64 = 1 << 5;

/// Sizes of the records of formats 0 to 3 in 64-bit words (SDM Vol. 3B 18.4.4.2, tables 18-23, 18-44,
/// 18-55).
const RECORD_WORDS: [usize; 4] = [ds::FORMAT_0_WORDS, 22, 24, 25];

impl Perfmon {
    /// The bytes of the record for all of `counters`, of which it says `shown`, as the part's format lays it out.
    pub(super) fn record(&self, counters: u64, shown: u64, retired: &Retired, bus: &mut dyn Bus) -> Vec<u8> {
        let format = self.facts.pebs_format();
        let mut words = [0; 25];
        // The machine state is that after the instruction; EventingIP names the instruction itself
        // (18.11.3.1).
        words[..ds::FORMAT_0_WORDS].copy_from_slice(&ds::format_0(&bus.registers()));
        words[18] = shown;
        words[19..22].copy_from_slice(&self.data_words(counters, retired));
        words[22] = retired.pc;
        // 23 is the transactional abort status; the modelled parts have no TSX.
        words[24] = bus.tsc();
        let size = RECORD_WORDS[usize::from(format).min(RECORD_WORDS.len() - 1)];
        words[..size].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Data linear address, data source encoding and latency. If several counters share the record, the first
    /// with a memory event decides (counters are prioritised in index order, 18.8.1.1).
    fn data_words(&self, counters: u64, retired: &Retired) -> [u64; 3] {
        let records =
            self.counters.iter().enumerate().filter(|&(index, _)| index < 64 && counters >> index & 1 != 0);
        for (_, counter) in records {
            let data = counter.rule.event.map_or(DataRecord::None, |event| event.data);
            let words = match data {
                // The store latency facility came with another format.
                DataRecord::None | DataRecord::StoreLatency => None,
                // Of a load that is not sampled for latency, only the address is defined (table 18-46).
                DataRecord::Load => retired.load.map(|load| [load.linear, 0, 0]),
                DataRecord::LoadLatency => retired.load.map(|load| self.load_latency(load, retired.locked)),
                DataRecord::Store => retired.store.map(store),
                DataRecord::PreciseStore if self.registers.pebs_enable & PS_EN == 0 => None,
                DataRecord::PreciseStore => retired.store.map(|store| precise_store(store, retired.locked)),
            };
            if let Some(words) = words {
                return words;
            }
        }
        [0; 3]
    }

    /// A load of the load latency facility (SDM Vol. 3B, tables 18-24 and 18-25). The manual gives bits 4 and
    /// 5 their meaning for stores only ("layout of precise store information", 18.9.4.3); processors from
    /// Westmere on report them for loads too, and Linux reads them so (pebs_no_tlb).
    fn load_latency(&self, load: DataAccess, locked: bool) -> [u64; 3] {
        let Some(outcome) = load.outcome else { return [load.linear, 0, 0] };
        let details = if self.facts.data_source_tlb_lock { tlb_lock(outcome, locked) } else { 0 };
        let source = source(outcome, self.facts.pebs_format());
        [load.linear, source | details, outcome.latency_cycles.into()]
    }
}

/// The encoding of where the data came from (SDM Vol. 3B, table 18-24).
fn source(outcome: DataOutcome, format: u8) -> u64 {
    match outcome.source {
        // "Minimal latency core cache hit. This request was satisfied by the L1 data cache."
        DataSource::L1 => 0x1,
        // "This data request was satisfied by the L2."
        DataSource::L2 => 0x3,
        // "L3 HIT. Local or Remote home requests that hit L3 cache with no coherency actions required."
        DataSource::L3 => 0x4,
        // "L3 MISS. Local home requests that missed the L3 cache and were serviced by local DRAM (go to
        // exclusive state)."
        DataSource::Memory if format < 3 => 0xC,
        // The same, "go to shared state". The table stands unchanged in Skylake's section (18.13.1), but Linux reads 0CH there as
        // a forward from another package's cache (intel_pmu_pebs_data_source_skl); both read 0AH as local DRAM.
        DataSource::Memory => 0xA,
    }
}

fn tlb_lock(outcome: DataOutcome, locked: bool) -> u64 {
    let tlb = if outcome.stlb_miss { STLB_MISS } else { 0 };
    tlb | if locked { LOCKED } else { 0 }
}

/// A store of data address profiling (SDM Vol. 3B, table 18-46): bit 0 says that it hit the L1 data cache.
fn store(store: DataAccess) -> [u64; 3] {
    let hit = store.outcome.is_some_and(|outcome| outcome.source == DataSource::L1);
    [store.linear, u64::from(hit), 0]
}

/// A precise store (SDM Vol. 3B 18.9.4.3): bit 0 says that it hit the L1 data cache, bit 4 that it missed the
/// second-level TLB, bit 5 that it was locked.
fn precise_store(store: DataAccess, locked: bool) -> [u64; 3] {
    let status = store
        .outcome
        .map_or(0, |outcome| u64::from(outcome.source == DataSource::L1) | tlb_lock(outcome, locked));
    [store.linear, status, 0]
}
