//! Adaptive PEBS records: formats 4 to 6 (SDM Vol. 3B 20.9.2). A record is a basic group, and behind it the
//! groups that MSR_PEBS_DATA_CFG chooses.

use super::bits::{evtsel, fixed_ctrl};
use super::extended::data_cfg;
use super::{Perfmon, set_bits};
use crate::bus::{Bus, DataAccess, Registers, Retired};
use crate::micro::DataSource;
use crate::profile::{DataRecord, MemoryInfo};

/// Size of a last-branch record: source, target, information.
const LBR_ENTRY_BYTES: usize = 24;

/// The general registers in the order of the GPR group: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15,
/// which is their encoding order.
pub(super) fn gpr_group(registers: &Registers) -> [u64; 18] {
    let mut words = [0; 18];
    words[0] = registers.rflags;
    words[1] = registers.rip;
    words[2..].copy_from_slice(&registers.general);
    words
}

pub(super) fn append(record: &mut Vec<u8>, words: &[u64]) {
    record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

impl Perfmon {
    /// The bytes of the record for `counters`, whose bits in "applicable counters" are `names`.
    pub(super) fn adaptive_record(
        &self,
        counters: u64,
        names: u64,
        retired: &Retired,
        bus: &mut dyn Bus,
    ) -> Vec<u8> {
        let groups = if set_bits(counters).any(|index| self.wants_adaptive_record(index)) {
            self.registers.later.pebs_data_cfg
        } else {
            0
        };
        let mut record = Vec::new();
        append(&mut record, &[0, retired.pc, names, bus.tsc()]);
        if groups & data_cfg::MEMORY_INFO != 0 {
            append(&mut record, &self.memory_group(counters, retired));
        }
        if groups & data_cfg::GPRS != 0 {
            append(&mut record, &gpr_group(&bus.registers()));
        }
        if groups & data_cfg::XMMS != 0 {
            append(&mut record, bus.xmm().as_flattened());
        }
        if groups & data_cfg::LBRS != 0 {
            let entries = (groups >> data_cfg::LBR_ENTRIES_SHIFT & 0xFF) as usize + 1;
            self.append_branches(&mut record, entries);
        }
        // Record format 31:0, retire latency 47:32, record size 63:48 (20.9.2.2.1).
        let size = record.len() as u64;
        let retire_latency = self.retire_latency().unwrap_or(0);
        record[..8].copy_from_slice(&(groups | retire_latency << 32 | size << 48).to_le_bytes());
        record
    }

    /// Whether the counter's records have the groups of MSR_PEBS_DATA_CFG; if not, they are basic ones
    /// (20.9.2.1).
    fn wants_adaptive_record(&self, index: usize) -> bool {
        match index.checked_sub(self.general()) {
            None => self.registers.evtsel[index] & evtsel::ADAPTIVE_RECORD != 0,
            Some(fixed) => self.registers.fixed_ctrl & fixed_ctrl::ADAPTIVE_RECORD << (4 * fixed) != 0,
        }
    }

    /// Core clock cycles between the retirement of the instruction before and of this one, if the part
    /// reports them.
    pub(super) fn retire_latency(&self) -> Option<u64> {
        self.has_timed_pebs().then(|| u64::from(self.retire_cycles).min(0xFFFF))
    }

    /// The last branches, most recent first; where there are fewer, zeros.
    pub(super) fn append_branches(&self, record: &mut Vec<u8>, entries: usize) {
        let end = record.len() + entries * LBR_ENTRY_BYTES;
        let architectural = self.arch_lbr.as_ref().map(|lbr| lbr.entries());
        let depth = self.lbr.depth();
        let legacy = (0..depth).map(|age| &self.lbr.entries[(self.lbr.tos + depth - age) % depth]);
        for entry in architectural.unwrap_or_default().iter().chain(legacy).take(entries) {
            append(record, &[entry.from, entry.to, entry.info]);
        }
        record.resize(end, 0);
    }

    /// Address, auxiliary information, latency and TSX information (20.9.2.2.2). If several counters share
    /// the record, the first with a memory event decides, as in the older formats.
    pub(super) fn memory_group(&self, counters: u64, retired: &Retired) -> [u64; 4] {
        let words = |index: usize| {
            let data = self.counters[index].rule.event.map_or(DataRecord::None, |event| event.data);
            match data {
                DataRecord::None | DataRecord::PreciseStore => None,
                // Only of a sampled load or store are source and latency defined.
                DataRecord::Load => retired.load.map(|load| [load.linear, 0, 0, 0]),
                DataRecord::LoadLatency => retired.load.map(|load| self.sampled(load, retired.locked)),
                DataRecord::StoreLatency => retired.store.map(|store| self.sampled(store, retired.locked)),
                DataRecord::Store => retired.store.map(|store| {
                    let hit = store.outcome.is_some_and(|outcome| outcome.source == DataSource::L1);
                    [store.linear, u64::from(hit), 0, 0]
                }),
            }
        };
        set_bits(counters).find_map(words).unwrap_or_default()
    }

    /// A load or store whose latency and data source are sampled.
    fn sampled(&self, access: DataAccess, locked: bool) -> [u64; 4] {
        let Some(outcome) = access.outcome else { return [access.linear, 0, 0, 0] };
        let lion_cove = self.facts.extended.memory_info == MemoryInfo::LionCove;
        let source = match outcome.source {
            // Linux, lnc_pebs_data_source: the L1 that is the core's second level, L2, L3, local memory.
            DataSource::L1 if lion_cove => 0x2,
            DataSource::L2 if lion_cove => 0x5,
            DataSource::L3 if lion_cove => 0x8,
            DataSource::Memory if lion_cove => 0x11,
            // "L1 HIT", "L2 HIT", "L3 HIT, no coherency actions required", "local DRAM".
            DataSource::L1 => 0x1,
            DataSource::L2 => 0x3,
            DataSource::L3 => 0x4,
            DataSource::Memory => 0xA,
        };
        let (lock_bit, tlb_bit) = match self.facts.extended.memory_info {
            MemoryInfo::IceLake | MemoryInfo::GoldenCove => (5, 4),
            MemoryInfo::Gracemont => (4, 5),
            MemoryInfo::Crestmont => (5, 6),
            MemoryInfo::LionCove => (11, 10),
        };
        let latency = u64::from(outcome.latency_cycles);
        let latencies = match self.facts.extended.memory_info {
            MemoryInfo::IceLake => latency,
            // Nothing overlaps in the model, so the instruction takes as long as its access.
            _ => latency | latency << 32,
        };
        let auxiliary = source | u64::from(locked) << lock_bit | u64::from(outcome.stlb_miss) << tlb_bit;
        [access.linear, auxiliary, latencies, 0]
    }
}
