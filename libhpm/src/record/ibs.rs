//! The record that the driver writes of a sample of AMD's instruction-based sampling, and what its registers mean.
//!
//! AMD64 Architecture Programmer's Manual Vol. 2, 13.3; Processor Programming Reference of family 19H, MSRC001_1035 to
//! MSRC001_1037. Where several readings are possible, Linux's is taken (`arch/x86/events/amd/ibs.c`).

use hpm_abi::{IBS_OP, IbsRecord};

use super::memory::{Latency, MemoryAccess};
use super::parts::Parts;
use super::source::{DataSource, Level, Operation, Snoop};
use super::{Attribution, Record, Registers};
use crate::Result;

/// Words of a record before the registers of the interrupted thread.
const OWN: usize = 10;
const _: () = assert!(std::mem::offset_of!(IbsRecord, rflags) == 8 * OWN);
const _: () = assert!(size_of::<IbsRecord>() == 8 * (OWN + Registers::COUNT));

/// Places of an [`IbsRecord`]'s words.
const COUNTERS: usize = 0;
const TSC: usize = 1;
const ADDRESS: usize = 3;
const DATA: usize = 4;
const DATA2: usize = 5;
const DATA3: usize = 6;
const DATA_ADDRESS: usize = 7;

/// IBS_OP_DATA3: IbsLdOp, IbsStOp, IbsDcL1TlbMiss, IbsDcL2TlbMiss, IbsDcMiss, IbsDcUcMemAcc, IbsDcLockedOp,
/// IbsDcMissNoMabAlloc, IbsDcLinAddrValid, IbsL2Miss, IbsSwPf.
const LD_OP: u32 = 0;
const ST_OP: u32 = 1;
const L1_TLB_MISS: u32 = 2;
const L2_TLB_MISS: u32 = 3;
const DC_MISS: u32 = 7;
const UC_MEM_ACC: u32 = 14;
const LOCKED_OP: u32 = 15;
const NO_MAB_ALLOC: u32 = 16;
const LIN_ADDR_VALID: u32 = 17;
const L2_MISS: u32 = 20;
const SW_PF: u32 = 21;
/// IBS_OP_DATA2, in the upper half of [`MemoryAccess::source`]: RmtNode, CacheHitSt.
const RMT_NODE: u32 = 32 + 4;
const CACHE_HIT_ST: u32 = 32 + 5;

pub(super) fn parse(bytes: &[u8]) -> Result<Record<'_>> {
    let mut parts = Parts(bytes);
    let own = parts.take::<[u64; OWN]>()?;
    let registers = Registers::fixed(parts.take()?);
    let op = own[COUNTERS] & IBS_OP != 0;
    let memory = MemoryAccess {
        address: own[DATA_ADDRESS],
        // Flags of DATA3, and DataSrc, RmtNode and CacheHitSt of DATA2.
        source: own[DATA3] & 0xffff_ffff | own[DATA2] << 32,
        // DcMissLat and TagToRetCtr.
        latency: own[DATA3] >> 32 & 0xffff | (own[DATA] >> 16 & 0xffff) << 16,
    };
    Ok(Record {
        ip: own[ADDRESS],
        attribution: Attribution::Cause,
        applicable_counters: Some(own[COUNTERS]),
        tsc: Some(own[TSC]),
        // RFLAGS is never 0.
        registers: Some(registers).filter(|registers| registers.to_array()[0] != 0),
        memory: op.then_some(memory),
        retire_latency_cycles: None,
        xmm: None,
        branches: &[],
    })
}

/// How a processor tells where data was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Family 10H, which has no bit for a miss of L2, and families 15H and 16H, of which not all have one: where there is a source,
    /// it is beyond L2.
    Family10h,
    /// Zen 1 and Zen 2: three bits of data source.
    Zen2,
    /// Zen 3: three bits of data source, and no state of a cache's line.
    Zen3,
    /// Zen 4 and Zen 5: five bits of data source.
    Zen4,
}

/// The kind of a PMU by the driver's name for it.
pub(super) fn kind(pmu: &str) -> Option<Kind> {
    match pmu {
        "family10h" | "family15h" | "family16h" => Some(Kind::Family10h),
        "zen1" | "zen2" => Some(Kind::Zen2),
        "zen3" => Some(Kind::Zen3),
        "zen4" | "zen5" => Some(Kind::Zen4),
        _ => None,
    }
}

impl Kind {
    /// Where the data of an op's access was found; `None` of an op that neither loads nor stores.
    pub(super) fn source(self, field: u64) -> Option<DataSource> {
        let has = |bit: u32| field >> bit & 1 == 1;
        let operation = match (has(LD_OP), has(ST_OP)) {
            (true, _) => Operation::Load,
            (false, true) => Operation::Store,
            _ => return None,
        };
        let (level, snoop) = self.level(field, operation);
        Some(DataSource {
            operation,
            level,
            snoop,
            stlb_miss: has(LIN_ADDR_VALID).then_some(has(L1_TLB_MISS) && has(L2_TLB_MISS)),
            locked: Some(has(LOCKED_OP)),
            blocked: None,
        })
    }

    fn level(self, field: u64, operation: Operation) -> (Level, Option<Snoop>) {
        const IO: u64 = 7;
        // Of what is not told, nothing but the miss of L1 is known: as of a miss of L2 without a data source.
        let field =
            if self.tells_of_miss(field) { field } else { field & u64::from(u32::MAX) | 1 << L2_MISS };
        let has = |bit: u32| field >> bit & 1 == 1;
        let code = self.code(field);
        if has(UC_MEM_ACC) && code != IO {
            return (Level::Uncacheable, None);
        }
        if !has(DC_MISS) {
            return (Level::L1, None);
        }
        let missed_l2 = if self == Self::Family10h { code != 0 } else { has(L2_MISS) };
        if !missed_l2 {
            return (Level::L2, None);
        }
        // DATA2 is of loads only.
        let found = if operation == Operation::Load { self.beyond_l2(code, has(RMT_NODE)) } else { None };
        match found {
            Some(level) => {
                // As Linux, which believes it of the node's own caches only where the source has three bits on Zen.
                let told = match self {
                    Self::Zen2 => code == 2,
                    Self::Zen3 => false,
                    _ => matches!(level, Level::L3 | Level::RemoteCache),
                };
                (level, (told && !has(CACHE_HIT_ST)).then_some(Snoop::Modified))
            }
            None if has(NO_MAB_ALLOC) => (Level::FillBuffer, None),
            None => (Level::BeyondL1, None),
        }
    }

    /// Whether IbsL2Miss, DataSrc and IbsDcMissLat are valid. Erratum 1293 of Zen 3: not of a software prefetch, nor of a miss
    /// for which no miss address buffer was free. A later model of Zen 3 may tell, but no record says which model it is of.
    fn tells_of_miss(self, field: u64) -> bool {
        self != Self::Zen3 || field & (1 << SW_PF | 1 << NO_MAB_ALLOC) == 0
    }

    /// How long an op took: a load that missed the L1 data cache until its data came, any op from its tagging to its retirement.
    pub(super) fn latency(self, access: MemoryAccess) -> Latency {
        let part = |value: u64| Some(value as u32 & 0xffff).filter(|&cycles| cycles != 0);
        let missed = access.source >> LD_OP & access.source >> DC_MISS & 1 == 1;
        Latency {
            access_cycles: part(access.latency).filter(|_| missed && self.tells_of_miss(access.source)),
            instruction_cycles: part(access.latency >> 16),
        }
    }

    /// DataSrc: bits 2:0, of Zen 4 with bits 7:6 above them.
    fn code(self, field: u64) -> u64 {
        let data2 = field >> 32;
        match self {
            Self::Zen4 => data2 & 7 | (data2 >> 6 & 3) << 3,
            _ => data2 & 7,
        }
    }

    fn beyond_l2(self, code: u64, remote: bool) -> Option<Level> {
        Some(match (self, code) {
            (Self::Zen4, 1 | 2) | (_, 1 | 2) => Level::L3,
            (_, 3) if remote => Level::RemoteDram,
            (_, 3) => Level::LocalDram,
            (Self::Zen4, 5) | (Self::Family10h | Self::Zen2 | Self::Zen3, 4) => Level::RemoteCache,
            (Self::Zen4, 6 | 8) if remote => Level::RemoteFarMemory,
            (Self::Zen4, 6 | 8) => Level::FarMemory,
            (_, 7) => Level::Io,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flags of DATA3 and the low bits of DATA2.
    fn field(flags: &[u32], data2: u64) -> u64 {
        flags.iter().fold(data2 << 32, |field, bit| field | 1 << bit)
    }

    #[test]
    fn a_load_was_served_where_its_flags_and_its_data_source_say() {
        let miss = [LD_OP, DC_MISS, L2_MISS, LIN_ADDR_VALID];
        let level =
            |kind: Kind, flags: &[u32], data2| kind.source(field(flags, data2)).map(|source| source.level);
        assert_eq!(level(Kind::Zen4, &[LD_OP], 0), Some(Level::L1));
        assert_eq!(level(Kind::Zen4, &[LD_OP, DC_MISS], 0), Some(Level::L2));
        assert_eq!(level(Kind::Zen4, &miss, 1 | 1 << 5), Some(Level::L3));
        assert_eq!(level(Kind::Zen4, &miss, 3), Some(Level::LocalDram));
        assert_eq!(level(Kind::Zen4, &miss, 3 | 1 << 4), Some(Level::RemoteDram));
        assert_eq!(level(Kind::Zen4, &miss, 1 << 6), Some(Level::FarMemory));
        assert_eq!(level(Kind::Zen3, &miss, 2), Some(Level::L3));
        assert_eq!(level(Kind::Zen3, &miss, 4), Some(Level::RemoteCache));
        assert_eq!(level(Kind::Family10h, &[LD_OP, DC_MISS], 0), Some(Level::L2));
        assert_eq!(level(Kind::Family10h, &[LD_OP, DC_MISS], 3), Some(Level::LocalDram));
        assert_eq!(level(Kind::Zen4, &[ST_OP, DC_MISS, L2_MISS], 3), Some(Level::BeyondL1));
        assert_eq!(level(Kind::Zen4, &[], 0), None);
        let modified = |kind: Kind, data2| kind.source(field(&miss, data2)).unwrap().snoop;
        assert_eq!(
            [modified(Kind::Zen4, 1), modified(Kind::Zen4, 1 | 1 << 5)],
            [Some(Snoop::Modified), None]
        );
        assert_eq!(modified(Kind::Zen3, 2), None);
        assert_eq!(level(Kind::Zen2, &miss, 2), Some(Level::L3));
        assert_eq!(level(Kind::Zen2, &miss, 4), Some(Level::RemoteCache));
        assert_eq!(level(Kind::Zen2, &[LD_OP, DC_MISS], 3), Some(Level::L2));
        let modified = [2, 2 | 1 << 5, 4].map(|data2| modified(Kind::Zen2, data2));
        assert_eq!(modified, [Some(Snoop::Modified), None, None]);
    }

    /// Erratum 1293.
    #[test]
    fn of_a_prefetch_or_a_miss_without_a_buffer_zen_3_does_not_say_where_it_was_served() {
        let told = |kind: Kind, flags: &[u32]| {
            let source = field(&[&[LD_OP, DC_MISS], flags].concat(), 3);
            let access = MemoryAccess { address: 8, source, latency: 55 << 16 | 200 };
            let Latency { access_cycles, instruction_cycles } = kind.latency(access);
            assert_eq!(instruction_cycles, Some(55));
            (kind.source(source).unwrap().level, access_cycles)
        };
        for l2 in [&[][..], &[L2_MISS]] {
            let with = |flag| [l2, &[flag]].concat();
            assert_eq!(told(Kind::Zen3, &with(SW_PF)), (Level::BeyondL1, None));
            assert_eq!(told(Kind::Zen3, &with(NO_MAB_ALLOC)), (Level::FillBuffer, None));
        }
        assert_eq!(told(Kind::Zen3, &[L2_MISS]), (Level::LocalDram, Some(200)));
        assert_eq!(told(Kind::Zen4, &[SW_PF]), (Level::L2, Some(200)));
    }

    #[test]
    fn a_record_is_an_op_with_its_access_or_a_fetch() {
        let mut words = [0u64; 28];
        (words[0], words[1], words[3], words[7]) = (IBS_OP, 77, 0x40_1000, 0x7000);
        (words[4], words[6]) = (55 << 16, 200 << 32 | field(&[LD_OP, DC_MISS, LIN_ADDR_VALID], 0));
        (words[10], words[11]) = (0x202, 0x40_1010);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let record = parse(&bytes).unwrap();
        assert_eq!((record.ip, record.tsc, record.attribution), (0x40_1000, Some(77), Attribution::Cause));
        assert_eq!(record.registers.map(Registers::rip), Some(0x40_1010));
        let access = record.memory.unwrap();
        let times = Kind::Zen4.latency(access);
        assert_eq!(
            (access.address, times.access_cycles, times.instruction_cycles),
            (0x7000, Some(200), Some(55))
        );
        assert_eq!(Kind::Zen4.source(access.source).unwrap().stlb_miss, Some(false));
        words[0] = hpm_abi::IBS_FETCH;
        words[10] = 0;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let fetch = parse(&bytes).unwrap();
        assert!(fetch.memory.is_none() && fetch.registers.is_none());
        assert!(parse(&bytes[..200]).is_err());
    }
}
