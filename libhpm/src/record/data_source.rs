//! The data source field of a record (SDM Vol. 3B, "Data Source Encoding for Load Latency Record", and for stores "Layout
//! of Precise Store Information In PEBS Record").

use std::fmt;

/// What the data source field says, given what kind of event wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// A load latency event (MEM_TRANS_RETIRED.LOAD_LATENCY).
    Load {
        /// Where the data came from.
        source: LoadSource,
        /// Bit 4: the load missed the second-level TLB.
        stlb_miss: bool,
        /// Bit 5: the load was part of a locked access.
        locked: bool,
    },
    /// A store event with data address.
    Store {
        /// Bit 0: the store hit the L1 data cache.
        l1_hit: bool,
        /// Bit 4: the store missed the second-level TLB.
        stlb_miss: bool,
        /// Bit 5: the store was part of a locked access.
        locked: bool,
    },
}

impl DataSource {
    /// Decodes the field of a load latency record.
    #[must_use]
    pub fn load(field: u64) -> Self {
        Self::Load {
            source: LoadSource::new(field),
            stlb_miss: field >> 4 & 1 == 1,
            locked: field >> 5 & 1 == 1,
        }
    }

    /// Decodes the field of a store record.
    #[must_use]
    pub fn store(field: u64) -> Self {
        Self::Store { l1_hit: field & 1 == 1, stlb_miss: field >> 4 & 1 == 1, locked: field >> 5 & 1 == 1 }
    }
}

/// Where a load's data came from: bits 3:0 of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSource {
    /// 00H: an L3 miss whose source is unknown.
    UnknownL3Miss,
    /// 01H: the L1 data cache.
    L1,
    /// 02H: a miss to the same line was already under way.
    PendingMiss,
    /// 03H: the L2 cache.
    L2,
    /// 04H: the L3 cache, without snooping.
    L3,
    /// 05H: the L3 cache; a snoop of other cores found no modified copy.
    L3Clean,
    /// 06H and 07H: the L3 cache; another core had a modified copy (HITM).
    L3Modified,
    /// 08H: an L3 miss, forwarded from another package without a modified copy.
    RemoteCache,
    /// 0AH and 0CH: local DRAM.
    LocalDram,
    /// 0BH and 0DH: remote DRAM.
    RemoteDram,
    /// 0EH: I/O.
    Io,
    /// 0FH: uncacheable memory.
    Uncacheable,
    /// 09H: reserved.
    Reserved,
}

impl LoadSource {
    fn new(field: u64) -> Self {
        match field & 0xF {
            0x0 => Self::UnknownL3Miss,
            0x1 => Self::L1,
            0x2 => Self::PendingMiss,
            0x3 => Self::L2,
            0x4 => Self::L3,
            0x5 => Self::L3Clean,
            0x6 | 0x7 => Self::L3Modified,
            0x8 => Self::RemoteCache,
            0xA | 0xC => Self::LocalDram,
            0xB | 0xD => Self::RemoteDram,
            0xE => Self::Io,
            0xF => Self::Uncacheable,
            _ => Self::Reserved,
        }
    }
}

impl fmt::Display for LoadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownL3Miss => "L3 miss, source unknown",
            Self::L1 => "L1",
            Self::PendingMiss => "pending miss (fill buffer)",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::L3Clean => "L3, clean after snoop",
            Self::L3Modified => "L3, modified in another core",
            Self::RemoteCache => "cache of another package",
            Self::LocalDram => "local DRAM",
            Self::RemoteDram => "remote DRAM",
            Self::Io => "I/O",
            Self::Uncacheable => "uncacheable memory",
            Self::Reserved => "reserved encoding",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_load_from_dram_that_missed_the_stlb() {
        let expected = DataSource::Load { source: LoadSource::LocalDram, stlb_miss: true, locked: true };
        assert_eq!(DataSource::load(0x3A), expected);
    }

    #[test]
    fn a_store_that_hit_l1() {
        assert_eq!(
            DataSource::store(0x01),
            DataSource::Store { l1_hit: true, stlb_miss: false, locked: false }
        );
        assert_eq!(
            DataSource::store(0x10),
            DataSource::Store { l1_hit: false, stlb_miss: true, locked: false }
        );
    }

    #[test]
    fn only_09h_is_reserved() {
        let reserved: Vec<u64> = (0..16).filter(|n| LoadSource::new(*n) == LoadSource::Reserved).collect();
        assert_eq!(reserved, [9]);
    }
}
