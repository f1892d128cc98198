//! Where the data of a memory access was found: one declarative table for each generation.
//!
//! Nehalem's encodings are those of SDM Vol. 3B 20.3.1.1.2, "Data Source Encoding for Load Latency Record"; Sandy Bridge
//! to Broadwell keep them, with more told of the snoop. Ice Lake's are those of 20.3.9.2, "Data Source Encoding for Memory
//! Accesses (Ice Lake and Later Microarchitectures)"; Skylake, of which the manual says nothing of its own, has them already.
//! That, those of the Atom cores, and what the manual leaves as reserved, are read as Linux reads them
//! (`arch/x86/events/intel/ds.c`, `intel_pmu_pebs_data_source_skl`, `_grt` and `_cmt`).

/// What kind of access it was.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A load.
    Load = 1,
    /// A store.
    Store = 2,
}

/// Where the data was found.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The L1 data cache.
    L1 = 1,
    /// A miss to the same line was already under way.
    FillBuffer = 2,
    /// The L2 cache.
    L2 = 3,
    /// The L3 cache, or another core behind it.
    L3 = 4,
    /// Local DRAM; with far memory present, the near one.
    LocalDram = 5,
    /// DRAM of another package.
    RemoteDram = 6,
    /// A cache of another package.
    RemoteCache = 7,
    /// Local far memory (persistent memory, or an L4 cache).
    FarMemory = 8,
    /// Far memory of another package.
    RemoteFarMemory = 9,
    /// I/O.
    Io = 10,
    /// Uncacheable memory.
    Uncacheable = 11,
    /// Somewhere behind a miss of the L3 cache.
    BeyondL3 = 12,
    /// Somewhere behind a miss of the L1 data cache: all that the status of a store tells.
    BeyondL1 = 13,
    /// The record has an encoding that is reserved.
    Reserved = 14,
}

impl Level {
    /// The level with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        const ALL: [Level; 14] = [
            Level::L1,
            Level::FillBuffer,
            Level::L2,
            Level::L3,
            Level::LocalDram,
            Level::RemoteDram,
            Level::RemoteCache,
            Level::FarMemory,
            Level::RemoteFarMemory,
            Level::Io,
            Level::Uncacheable,
            Level::BeyondL3,
            Level::BeyondL1,
            Level::Reserved,
        ];
        ALL.into_iter().find(|level| *level as u8 == number)
    }

    /// In a few words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::FillBuffer => "fill buffer",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::LocalDram => "local DRAM",
            Self::RemoteDram => "remote DRAM",
            Self::RemoteCache => "remote cache",
            Self::FarMemory => "far memory",
            Self::RemoteFarMemory => "remote far memory",
            Self::Io => "I/O",
            Self::Uncacheable => "uncacheable memory",
            Self::BeyondL3 => "L3 miss, source unknown",
            Self::BeyondL1 => "L1 miss",
            Self::Reserved => "reserved encoding",
        }
    }
}

/// What other caches said.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Snoop {
    /// None was asked.
    None = 1,
    /// None had the line.
    Miss = 2,
    /// One had it, unmodified.
    Hit = 3,
    /// One had it, modified.
    Modified = 4,
    /// One had it unmodified and forwarded it.
    Forwarded = 5,
    /// One had it and forwarded it; hardware does not tell whether it was modified.
    Supplied = 6,
}

impl Snoop {
    /// The answer with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        const ALL: [Snoop; 6] =
            [Snoop::None, Snoop::Miss, Snoop::Hit, Snoop::Modified, Snoop::Forwarded, Snoop::Supplied];
        ALL.into_iter().find(|snoop| *snoop as u8 == number)
    }

    /// In a few words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no snoop",
            Self::Miss => "snoop miss",
            Self::Hit => "snoop hit",
            Self::Modified => "modified in another cache",
            Self::Forwarded => "forwarded by another cache",
            Self::Supplied => "forwarded by another cache, modified or not",
        }
    }
}

/// Where the data of an access was found, and what is known besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSource {
    /// What kind of access it was.
    pub operation: Operation,
    /// Where the data was found.
    pub level: Level,
    /// What other caches said; `None` where the encoding does not tell.
    pub snoop: Option<Snoop>,
    /// The access missed the second-level TLB; `None` where the processor does not tell.
    pub stlb_miss: Option<bool>,
    /// The access was locked; `None` where the processor does not tell.
    pub locked: Option<bool>,
    /// The load waited for an older store (its data, or its address); `None` where the processor does not tell.
    pub blocked: Option<bool>,
}

/// How one generation encodes a data source.
#[derive(Debug)]
pub(super) struct Table {
    /// By the lowest bits.
    sources: &'static [(Level, Option<Snoop>)],
    /// Bits of the field that are the index into `sources`.
    source_mask: u64,
    /// Bit that says that the second-level TLB was missed.
    stlb_miss: Option<u32>,
    /// Bit that says that the access was locked.
    locked: Option<u32>,
    /// Bits that say that an older store was in the way; 0 where there is none.
    blocked: u64,
    /// The status of a store, too, tells of the TLB and of a lock.
    precise_stores: bool,
    /// The latency field holds the instruction's and the cache's latency.
    pub(super) split_latency: bool,
}

impl Table {
    pub(super) fn load(&self, field: u64) -> DataSource {
        let blocked = (self.blocked != 0).then_some(field & self.blocked != 0);
        DataSource { operation: Operation::Load, blocked, ..self.store(field) }
    }

    pub(super) fn store(&self, field: u64) -> DataSource {
        let code = (field & self.source_mask) as usize;
        let (level, snoop) = self.sources.get(code).copied().unwrap_or((Level::Reserved, None));
        let bit = |place: Option<u32>| place.map(|place| field >> place & 1 == 1);
        DataSource {
            operation: Operation::Store,
            level,
            snoop,
            stlb_miss: bit(self.stlb_miss),
            locked: bit(self.locked),
            blocked: None,
        }
    }

    /// The status that a store's record has instead of a data source (SDM Vol. 3B 20.3.4.4.3, "Layout of Precise Store
    /// Information In PEBS Record"; 20.3.6.3 for data address profiling, which has its first bit alone).
    pub(super) fn store_status(&self, field: u64) -> DataSource {
        let bit = |place: u32| self.precise_stores.then_some(field >> place & 1 == 1);
        DataSource {
            operation: Operation::Store,
            level: if field & 1 == 1 { Level::L1 } else { Level::BeyondL1 },
            snoop: None,
            stlb_miss: bit(4),
            locked: bit(5),
            blocked: None,
        }
    }
}

/// The table of a PMU by the driver's name for it.
pub(super) fn table(pmu: &str) -> Option<&'static Table> {
    Some(match pmu {
        // Records of format 0 have no memory access, so that no table is asked for what they have.
        "netburst" | "netburst_p" | "merom" | "core2" | "nehalem" => &NEHALEM,
        "westmere" => &WESTMERE,
        "sandybridge" | "ivybridge" => &SANDY_BRIDGE,
        "haswell" | "broadwell" => &HASWELL,
        "skylake" => &SKYLAKE,
        "icelake" => &ICE_LAKE,
        "goldencove" | "redwoodcove" => &GOLDEN_COVE,
        "gracemont" => &GRACEMONT,
        "lioncove" | "cougarcove" => &LION_COVE,
        "crestmont" | "skymont" | "darkmont" => &CRESTMONT,
        _ => return None,
    })
}

use Level::{
    BeyondL3, FarMemory, FillBuffer, Io, L1, L2, L3, LocalDram, RemoteCache, RemoteDram, RemoteFarMemory,
    Reserved, Uncacheable,
};

const NONE: Option<Snoop> = Some(Snoop::None);
const MISS: Option<Snoop> = Some(Snoop::Miss);
const HIT: Option<Snoop> = Some(Snoop::Hit);
const MODIFIED: Option<Snoop> = Some(Snoop::Modified);
const FORWARDED: Option<Snoop> = Some(Snoop::Forwarded);
const SUPPLIED: Option<Snoop> = Some(Snoop::Supplied);

#[rustfmt::skip]
static NEHALEM: Table = Table {
    sources: &[
        (BeyondL3, None),       (L1, NONE),              (FillBuffer, NONE),  (L2, NONE),
        (L3, NONE),             (L3, HIT),               (L3, MODIFIED),      (Reserved, None),
        (RemoteCache, FORWARDED), (Reserved, None),      (LocalDram, HIT),    (RemoteDram, HIT),
        (LocalDram, NONE),      (RemoteDram, NONE),      (Io, None),          (Uncacheable, None),
    ],
    source_mask: 0xf,
    stlb_miss: None,
    locked: None,
    blocked: 0,
    precise_stores: false,
    split_latency: false,
};

/// From Westmere on loads tell of the TLB and of a lock (Linux: `pebs_no_tlb`, which only Nehalem has).
static WESTMERE: Table = Table { stlb_miss: Some(4), locked: Some(5), ..NEHALEM };

#[rustfmt::skip]
static SANDY_BRIDGE: Table = Table {
    sources: &[
        (BeyondL3, None),       (L1, NONE),              (FillBuffer, NONE),  (L2, NONE),
        (L3, NONE),             (L3, MISS),              (L3, HIT),           (L3, MODIFIED),
        (RemoteCache, HIT),     (RemoteCache, MODIFIED), (LocalDram, HIT),    (RemoteDram, HIT),
        (LocalDram, NONE),      (RemoteDram, NONE),      (Io, None),          (Uncacheable, None),
    ],
    source_mask: 0xf,
    stlb_miss: Some(4),
    locked: Some(5),
    blocked: 0,
    precise_stores: true,
    split_latency: false,
};

/// Haswell's stores have a data address by their event, and no status but whether they hit the L1 data cache.
static HASWELL: Table = Table { precise_stores: false, ..SANDY_BRIDGE };

#[rustfmt::skip]
const SINCE_SKYLAKE: [(Level, Option<Snoop>); 16] = [
    (BeyondL3, None),           (L1, NONE),              (FillBuffer, NONE),  (L2, NONE),
    (L3, NONE),                 (L3, MISS),              (L3, HIT),           (L3, MODIFIED),
    (FarMemory, None),          (RemoteFarMemory, None), (LocalDram, None),   (RemoteDram, None),
    (RemoteCache, FORWARDED),   (RemoteCache, MODIFIED), (Io, None),          (Uncacheable, None),
];

static SKYLAKE: Table = Table {
    sources: &SINCE_SKYLAKE,
    source_mask: 0xf,
    stlb_miss: Some(4),
    locked: Some(5),
    blocked: 0,
    precise_stores: false,
    split_latency: false,
};

/// From Ice Lake on another core's line may have been modified or not (SDM Vol. 3B, 20.9.7, table 20-101, encoding 07H).
const SINCE_ICE_LAKE: [(Level, Option<Snoop>); 16] = {
    let mut sources = SINCE_SKYLAKE;
    sources[7] = (L3, SUPPLIED);
    sources
};

static ICE_LAKE: Table = Table { sources: &SINCE_ICE_LAKE, ..SKYLAKE };

static GOLDEN_COVE: Table = Table {
    sources: &SINCE_ICE_LAKE,
    source_mask: 0xf,
    stlb_miss: Some(4),
    locked: Some(5),
    blocked: 0b11 << 6,
    precise_stores: false,
    split_latency: true,
};

/// Linux: `lnc_pebs_data_source`, `lnc_latency_data`. Both of L1's levels are L1, what is on its way to L2 is a fill buffer's, and the memory-side
/// cache is told as far memory is where it has that place.
#[rustfmt::skip]
static LION_COVE: Table = Table {
    sources: &[
        (BeyondL3, None),       (L1, NONE),              (L1, NONE),          (FillBuffer, NONE),
        (Reserved, None),       (L2, NONE),              (FillBuffer, NONE),  (Reserved, None),
        (L3, NONE),             (Reserved, None),        (Reserved, None),    (Reserved, None),
        (L3, FORWARDED),        (L3, MODIFIED),          (Reserved, None),    (BeyondL3, MODIFIED),
        (FarMemory, NONE),      (LocalDram, NONE),
    ],
    source_mask: 0xff,
    stlb_miss: Some(10),
    locked: Some(11),
    blocked: 0b11 << 12,
    precise_stores: false,
    split_latency: true,
};

#[rustfmt::skip]
static GRACEMONT: Table = Table {
    sources: &[
        (BeyondL3, None),       (L1, NONE),              (FillBuffer, NONE),  (L2, NONE),
        (L3, NONE),             (L3, HIT),               (L3, MODIFIED),      (L3, MODIFIED),
        (L3, FORWARDED),        (RemoteCache, MODIFIED), (LocalDram, HIT),    (RemoteDram, HIT),
        (LocalDram, NONE),      (RemoteDram, NONE),      (Io, None),          (Uncacheable, None),
    ],
    source_mask: 0xf,
    stlb_miss: Some(5),
    locked: Some(4),
    blocked: 1 << 6,
    precise_stores: false,
    split_latency: true,
};

/// Crestmont and later (Linux: `__intel_pmu_pebs_data_source_cmt`, `cmt_latency_data`).
#[rustfmt::skip]
static CRESTMONT: Table = Table {
    sources: &[
        (BeyondL3, None),       (L1, NONE),              (FillBuffer, NONE),  (L2, NONE),
        (L3, NONE),             (L3, MISS),              (L3, HIT),           (L3, FORWARDED),
        (L3, MODIFIED),         (RemoteCache, MODIFIED), (LocalDram, NONE),   (RemoteDram, NONE),
        (RemoteDram, FORWARDED), (RemoteDram, MODIFIED), (Io, None),          (Uncacheable, None),
    ],
    source_mask: 0x1f,
    stlb_miss: Some(6),
    locked: Some(5),
    blocked: 1 << 7,
    precise_stores: false,
    split_latency: true,
};
