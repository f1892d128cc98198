//! What can happen on the modelled processor: the vocabulary between adapter, microarchitecture and PMU.
//!
//! A hardware event ("MEM_LOAD_RETIRED.L1_MISS") is an entry of a profile's table and names one or more of
//! the [`Event`]s here. Events are finer than what an adapter can count by itself ([`Basic`]).

use serde::{Deserialize, Serialize};

/// The current privilege level as counters see it (SDM Vol. 3B 18.2.1.1: USR counts at CPL 1 to 3, OS at CPL
/// 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privilege {
    /// CPL 1, 2 or 3.
    User = 0,
    /// CPL 0.
    Kernel = 1,
}

impl Privilege {
    /// Both levels, in index order.
    pub const ALL: [Self; 2] = [Self::User, Self::Kernel];
}

/// What an adapter can count inline, without calling the model for each occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basic {
    /// A retired instruction. A `rep` string instruction is one instruction however often it iterates.
    Instruction = 0,
    /// A retired instruction with at least one load.
    Load = 1,
    /// A retired instruction with at least one store.
    Store = 2,
    /// A retired branch: jumps, calls, returns, conditional or not, taken or not, near or far.
    Branch = 3,
}

impl Basic {
    /// All basic events, in index order.
    pub const ALL: [Self; 4] = [Self::Instruction, Self::Load, Self::Store, Self::Branch];
}

/// Occurrences of each [`Basic`] event in each [`Privilege`]: `counts[basic][privilege]`.
pub type BasicCounts = [[u64; 2]; 4];

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that happens on the modelled processor, at the finest grain that some counter tells
        /// apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum Event { $($(#[$doc])* $name,)* }

        impl Event {
            /// Every event, in index order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// How many events there are.
            pub const COUNT: usize = Self::ALL.len();
        }
    };
}

events! {
    /// [`Basic::Instruction`].
    Instruction,
    /// [`Basic::Load`].
    Load,
    /// [`Basic::Store`].
    Store,
    /// [`Basic::Branch`].
    Branch,
    /// A retired conditional branch.
    BranchConditional,
    /// A retired near call.
    BranchCall,
    /// A retired near return.
    BranchReturn,
    /// A retired near branch that was taken.
    BranchTaken,
    /// A retired conditional branch that was not taken.
    BranchNotTaken,
    /// A retired far branch: interrupt return, system call, far jump.
    BranchFar,
    /// A retired branch whose direction or target was mispredicted.
    BranchMispredicted,
    /// A mispredicted conditional branch.
    BranchConditionalMispredicted,
    /// A mispredicted near call.
    BranchCallMispredicted,
    /// A mispredicted branch that was taken.
    BranchTakenMispredicted,
    /// A load instruction with an access that hit the L1 data cache.
    LoadL1Hit,
    /// A load instruction with an access that missed the L1 data cache.
    LoadL1Miss,
    /// A load instruction with an access that missed L1 and hit L2.
    LoadL2Hit,
    /// A load instruction with an access that missed L1 and L2.
    LoadL2Miss,
    /// A load instruction with an access that missed L2 and hit the last-level cache.
    LoadL3Hit,
    /// A load instruction with an access that missed the last-level cache.
    LoadL3Miss,
    /// A load instruction that crossed a cache line.
    LoadSplit,
    /// A store instruction that crossed a cache line.
    StoreSplit,
    /// A load instruction that missed the second-level TLB.
    LoadStlbMiss,
    /// A store instruction that missed the second-level TLB.
    StoreStlbMiss,
    /// One instruction read from the L1 instruction cache (Cachegrind's Ir).
    L1iRead,
    /// An instruction read that missed the L1 instruction cache (Cachegrind's I1mr).
    L1iMiss,
    /// An instruction read that missed every cache (Cachegrind's ILmr).
    LlcInstructionMiss,
    /// One data read access (Cachegrind's Dr).
    L1dRead,
    /// A data read that missed the L1 data cache (Cachegrind's D1mr).
    L1dReadMiss,
    /// A data read that missed every cache (Cachegrind's DLmr).
    LlcReadMiss,
    /// One data write access (Cachegrind's Dw).
    L1dWrite,
    /// A data write that missed the L1 data cache (Cachegrind's D1mw).
    L1dWriteMiss,
    /// A data write that missed every cache (Cachegrind's DLmw).
    LlcWriteMiss,
    /// A demand data read that missed L2 and hit the last-level cache.
    L3ReadHit,
    /// A read for ownership that missed L2 and hit the last-level cache.
    L3RfoHit,
    /// An instruction read that missed L2 and hit the last-level cache.
    L3CodeHit,
    /// A demand data read that hit L2.
    L2ReadHit,
    /// A demand data read that missed L2.
    L2ReadMiss,
    /// A read for ownership (store miss in L1) that hit L2.
    L2RfoHit,
    /// A read for ownership that missed L2.
    L2RfoMiss,
    /// An instruction read that hit L2.
    L2CodeHit,
    /// An instruction read that missed L2.
    L2CodeMiss,
    /// A load that missed the first-level data TLB and hit the second-level TLB.
    DtlbLoadStlbHit,
    /// A load that walked the page tables.
    DtlbLoadWalk,
    /// A store that missed the first-level data TLB and hit the second-level TLB.
    DtlbStoreStlbHit,
    /// A store that walked the page tables.
    DtlbStoreWalk,
    /// An instruction fetch that missed the instruction TLB and hit the second-level TLB.
    ItlbStlbHit,
    /// An instruction fetch that walked the page tables.
    ItlbWalk,
    /// A core clock cycle.
    Cycle,
    /// A cycle of the time-stamp counter's clock while not halted.
    ReferenceCycle,
    /// A cycle of the core crystal clock while not halted.
    CrystalCycle,
    /// A slot for a micro-operation to retire in: each core clock cycle has as many as the core is wide.
    Slot,
    /// A cycle in which nothing retired because execution was stalled.
    StallTotal,
    /// A stalled cycle with a demand load outstanding.
    StallMemory,
    /// A stalled cycle with a load that missed L1 outstanding.
    StallL1dMiss,
    /// A stalled cycle with a load that missed L2 outstanding.
    StallL2Miss,
    /// A stalled cycle with a load that missed the last-level cache outstanding.
    StallL3Miss,
    /// A cycle in which the front end waited for the L1 instruction cache.
    StallInstructionCache,
    /// A cycle in which the front end waited for the instruction TLB.
    StallInstructionTlb,
    /// A load, once for each access, whose use latency is in [`MicroEvents::load_latency_cycles`].
    LoadLatency,
}

impl From<Basic> for Event {
    fn from(basic: Basic) -> Self {
        match basic {
            Basic::Instruction => Self::Instruction,
            Basic::Load => Self::Load,
            Basic::Store => Self::Store,
            Basic::Branch => Self::Branch,
        }
    }
}

/// A set of [`Event`]s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EventSet(u64);

impl EventSet {
    /// No event.
    pub const EMPTY: Self = Self(0);

    /// The set of these events.
    #[must_use]
    pub const fn of(events: &[Event]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < events.len() {
            bits |= 1 << events[i] as u8;
            i += 1;
        }
        Self(bits)
    }

    /// Whether `event` is in the set.
    #[must_use]
    pub const fn contains(self, event: Event) -> bool {
        self.0 >> event as u8 & 1 == 1
    }

    /// Adds one event.
    pub const fn insert(&mut self, event: Event) {
        self.0 |= 1 << event as u8;
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many events are in the set.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Events in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Events in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Events in this set that are not in `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The events, in index order.
    pub fn iter(self) -> impl Iterator<Item = Event> {
        self.indices().map(|index| Event::ALL[index])
    }

    /// The events' indices: [`Event`] as a number.
    #[inline]
    pub fn indices(self) -> impl Iterator<Item = usize> {
        let mut bits = self.0;
        std::iter::from_fn(move || {
            let index = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            (index < 64).then_some(index)
        })
    }
}

// An EventSet is one word; the list of events must fit.
const _: () = assert!(Event::COUNT <= 64);

/// What the microarchitecture reports of one fetch, data access or branch.
///
/// Basic events ([`Basic`]) are never in it: the adapter counts them itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MicroEvents {
    /// Events that happened once.
    pub once: EventSet,
    /// Core clock cycles that passed.
    pub cycles: u32,
    /// Core crystal clock cycles that passed.
    pub crystal_cycles: u32,
    /// Slots of those cycles.
    pub slots: u32,
    /// How many of `cycles` were stalled.
    pub stall_cycles: u32,
    /// Which per-cycle stall events those `stall_cycles` belong to (each counts `stall_cycles` times).
    pub stalled: EventSet,
    /// Use latency of the load in cycles, if `once` contains [`Event::LoadLatency`]; else 0.
    pub load_latency_cycles: u16,
}

impl MicroEvents {
    /// How often the events of `set` happened in total.
    #[must_use]
    #[inline]
    pub fn occurrences(&self, set: EventSet) -> u64 {
        let mut n = u64::from(self.once.intersection(set).len());
        n += u64::from(self.stall_cycles) * u64::from(self.stalled.intersection(set).len());
        if set.contains(Event::Cycle) {
            n += u64::from(self.cycles);
        }
        if set.contains(Event::ReferenceCycle) {
            n += u64::from(self.cycles);
        }
        if set.contains(Event::Slot) {
            n += u64::from(self.slots);
        }
        if set.contains(Event::CrystalCycle) {
            n += u64::from(self.crystal_cycles);
        }
        n
    }
}
