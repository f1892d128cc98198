//! The microarchitecture of one core: caches, TLBs, branch prediction, cycles.

use crate::event::MicroEvents;
use crate::profile::Profile;
use serde::{Deserialize, Serialize};

/// Size and shape of one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheGeometry {
    /// Capacity in bytes.
    pub size_bytes: u32,
    /// Ways per set.
    pub associativity: u32,
    /// Line size in bytes, a power of two.
    pub line_bytes: u32,
}

/// Which address the caches are indexed and tagged with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Indexing {
    /// The physical address, as hardware does.
    Physical,
    /// The linear address, as Cachegrind does.
    Linear,
}

/// The shape of the cache hierarchy, by default the profile's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// L1 instruction cache.
    pub l1i: CacheGeometry,
    /// L1 data cache.
    pub l1d: CacheGeometry,
    /// Unified second-level cache; `None` for the two-level hierarchy that Cachegrind simulates.
    pub l2: Option<CacheGeometry>,
    /// Last-level cache, shared by the cores.
    pub llc: CacheGeometry,
    /// What the caches are indexed with.
    pub indexing: Indexing,
}

/// The last-level cache, shared by all cores of a machine. Cloning shares it.
#[derive(Debug, Clone)]
pub struct SharedCache {}

impl SharedCache {
    /// An empty last-level cache of this shape.
    #[must_use]
    pub fn new(geometry: &Geometry) -> Self {
        let _ = geometry;
        Self {}
    }
}

/// What kind of branch retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchKind {
    /// A conditional direct jump (`Jcc`, `LOOP`, `JRCXZ`).
    Conditional,
    /// An unconditional direct jump.
    DirectJump,
    /// An indirect jump.
    IndirectJump,
    /// A direct near call.
    DirectCall,
    /// An indirect near call.
    IndirectCall,
    /// A near return.
    Return,
    /// A far transfer: `SYSCALL`, `SYSRET`, `IRET`, far jump, call or return.
    Far,
}

/// Where a load's data came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataSource {
    /// The L1 data cache.
    L1,
    /// The second-level cache.
    L2,
    /// The last-level cache.
    L3,
    /// Local memory.
    Memory,
}

/// What the microarchitecture did for one data access; goes into PEBS records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataOutcome {
    /// The deepest level that had to be asked.
    pub source: DataSource,
    /// Cycles from dispatch to data.
    pub latency_cycles: u16,
    /// Whether the second-level TLB missed.
    pub stlb_miss: bool,
}

/// The microarchitecture of one core.
#[derive(Debug)]
pub struct Core {}

impl Core {
    /// A cold core of `profile`, with caches shaped as `geometry` says (the profile's unless overridden).
    #[must_use]
    pub fn new(profile: &'static Profile, geometry: &Geometry, llc: SharedCache) -> Self {
        let _ = (profile, geometry, llc);
        unimplemented!()
    }

    /// An instruction begins: it is fetched from `linear`, which is `physical`, `size` bytes long. Call once for each
    /// instruction, before its data accesses and its branch; its execution cycles are reported here.
    pub fn fetch(&mut self, physical: u64, linear: u64, size: u8) -> MicroEvents {
        let _ = (physical, linear, size);
        unimplemented!()
    }

    /// A data access of the current instruction.
    pub fn data(&mut self, physical: u64, linear: u64, size: u8, store: bool) -> (MicroEvents, DataOutcome) {
        let _ = (physical, linear, size, store);
        unimplemented!()
    }

    /// The current instruction is a branch at `pc`; the next instruction in memory is at `fallthrough`, the one that
    /// executes next at `next`. A conditional branch was taken if they differ; every other kind always is.
    /// [`crate::Event::BranchMispredicted`] is among the events if the prediction was wrong.
    pub fn branch(&mut self, pc: u64, fallthrough: u64, next: u64, kind: BranchKind) -> MicroEvents {
        let _ = (pc, fallthrough, next, kind);
        unimplemented!()
    }

    /// CR3 was loaded: the TLBs forget everything (they have no process-context identifiers).
    pub fn flush_tlbs(&mut self) {
        unimplemented!()
    }
}
