//! What a record says of its memory access, given the PMU and the event.

use super::ibs;
use super::source::{self, DataSource, Table};
use crate::event::Sampling;

/// The fields of a record's memory access as hardware wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// Data linear address; 0 when the event has none.
    pub address: u64,
    /// Data source, or for stores their status.
    pub source: u64,
    /// Latency, or from Golden Cove on latencies.
    pub latency: u64,
}

/// Cycles that a memory access took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Core cycles of the access itself: until Ice Lake from the load's dispatch until its data was globally observed, from
    /// Golden Cove on the cache latency; of IBS that of a load that missed the L1 data cache.
    pub access_cycles: Option<u32>,
    /// Core cycles from the instruction's dispatch to its completion (Golden Cove and later); of IBS from its tagging to its
    /// retirement.
    pub instruction_cycles: Option<u32>,
}

/// Decodes memory accesses of one PMU.
#[derive(Clone, Copy, Debug)]
pub struct MemoryDecoder(Encoding);

#[derive(Clone, Copy, Debug)]
enum Encoding {
    Pebs(&'static Table),
    Ibs(ibs::Kind),
}

impl MemoryDecoder {
    /// Of a PMU by the driver's name for it; `None` for one that hpm does not know.
    #[must_use]
    pub fn new(pmu: &str) -> Option<Self> {
        let ibs = || ibs::kind(pmu).map(Encoding::Ibs);
        source::table(pmu).map(Encoding::Pebs).or_else(ibs).map(Self)
    }

    /// Whether the records of an event that is sampled in this way say more of an access than its address.
    #[must_use]
    pub fn tells(sampling: Sampling) -> bool {
        use Sampling::{LoadLatency, Op, StoreAddress, StoreLatency};
        matches!(sampling, LoadLatency | StoreLatency | StoreAddress | Op)
    }

    /// Where the data of an access was found, when the event's records say so.
    #[must_use]
    pub fn source(&self, access: MemoryAccess, sampling: Sampling) -> Option<DataSource> {
        match (sampling, self.0) {
            _ if access.address == 0 => None,
            (Sampling::LoadLatency, Encoding::Pebs(table)) => Some(table.load(access.source)),
            (Sampling::StoreLatency, Encoding::Pebs(table)) => Some(table.store(access.source)),
            (Sampling::StoreAddress, Encoding::Pebs(table)) => Some(table.store_status(access.source)),
            (Sampling::Op, Encoding::Ibs(kind)) => kind.source(access.source),
            _ => None,
        }
    }

    /// How long an access took, when the event's records say so.
    #[must_use]
    pub fn latency(&self, access: MemoryAccess, sampling: Sampling) -> Latency {
        let table = match (sampling, self.0) {
            (Sampling::LoadLatency | Sampling::StoreLatency, Encoding::Pebs(table)) => table,
            (Sampling::Op, Encoding::Ibs(kind)) => return kind.latency(access),
            _ => return Latency::default(),
        };
        let part = |value: u64| Some(value as u32).filter(|&cycles| cycles != 0);
        if table.split_latency {
            // SDM Vol. 3B 20.9.2.2.2: instruction latency in bits 15:0, cache latency in bits 47:32.
            let (instruction, cache) = (access.latency & 0xffff, access.latency >> 32 & 0xffff);
            return Latency { access_cycles: part(cache), instruction_cycles: part(instruction) };
        }
        Latency { access_cycles: part(access.latency & 0xffff_ffff), instruction_cycles: None }
    }
}
