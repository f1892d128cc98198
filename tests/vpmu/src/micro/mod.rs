//! The microarchitecture of one core: caches, TLBs, branch prediction, cycles.
//!
//! Deterministic and in order: instructions retire at the profile's width, and every stall is waited out.
//! What is simplified against a real core is listed in docs/pmu-model.md.

mod branch;
mod cache;
mod outcome;
mod tlb;

use crate::event::{Event, EventSet, MicroEvents};
use crate::profile::{Microarchitecture, Profile};
use branch::Predictor;
use cache::Cache;
use serde::{Deserialize, Serialize};
use tlb::{Found, Tlb};

pub use cache::{CacheGeometry, GeometryError, SharedCache};
pub use outcome::{DataOutcome, DataSource};

/// Which address the caches are indexed and tagged with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Unified second-level cache; `None` for the two-level hierarchy that Cachegrind simulates. Without it,
    /// every request to it counts as a miss and goes on to the last level.
    pub l2: Option<CacheGeometry>,
    /// Last-level cache, shared by the cores.
    pub llc: CacheGeometry,
    /// What the caches are indexed with.
    pub indexing: Indexing,
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

/// The microarchitecture of one core.
#[derive(Debug)]
pub struct Core {
    parameters: &'static Microarchitecture,
    indexing: Indexing,
    l1i: Cache,
    l1d: Cache,
    l2: Option<Cache>,
    llc: SharedCache,
    itlb: Tlb,
    dtlb: Tlb,
    stlb: Tlb,
    predictor: Predictor,
    /// Instructions retired in the current cycle.
    retired: u32,
    /// Core clock cycles since the last crystal clock cycle.
    crystal: u32,
    /// Per-instruction events that the current instruction has already had.
    had: EventSet,
}

/// Events that an instruction counts once, however many accesses it makes (SDM Vol. 3B, table 18-56, note 4).
const PER_INSTRUCTION: EventSet = EventSet::of(&[
    Event::LoadL1Hit,
    Event::LoadL1Miss,
    Event::LoadL2Hit,
    Event::LoadL2Miss,
    Event::LoadL3Hit,
    Event::LoadL3Miss,
    Event::LoadSplit,
    Event::StoreSplit,
    Event::LoadStlbMiss,
    Event::StoreStlbMiss,
]);

impl Core {
    /// A cold core of `profile`, with caches shaped as `geometry` says (`profile.geometry` unless
    /// overridden). `llc` must have been made from the same geometry.
    ///
    /// # Errors
    /// If a cache of `geometry` is impossible.
    pub fn new(
        profile: &'static Profile,
        geometry: &Geometry,
        llc: SharedCache,
    ) -> Result<Self, GeometryError> {
        let parameters = &profile.microarchitecture;
        Ok(Self {
            parameters,
            indexing: geometry.indexing,
            l1i: Cache::new(&geometry.l1i)?,
            l1d: Cache::new(&geometry.l1d)?,
            l2: geometry.l2.as_ref().map(Cache::new).transpose()?,
            llc,
            itlb: Tlb::new(parameters.itlb),
            dtlb: Tlb::new(parameters.dtlb),
            stlb: Tlb::new(parameters.stlb),
            predictor: Predictor::new(parameters),
            retired: 0,
            crystal: 0,
            had: EventSet::EMPTY,
        })
    }

    /// An instruction begins: it is fetched from `linear`, which is `physical`, `size` bytes long. Call once
    /// for each instruction, before its data accesses and its branch; its execution cycles are reported here.
    ///
    /// Bytes beyond a page are taken to follow physically.
    #[inline]
    pub fn fetch(&mut self, physical: u64, linear: u64, size: u8) -> MicroEvents {
        self.had = EventSet::EMPTY;
        self.retired += 1;
        let busy = u32::from(self.retired == self.parameters.retire_width);
        if busy == 1 {
            self.retired = 0;
        }
        let translation = tlb::translate(&mut self.itlb, &mut self.stlb, linear, size);
        let address = self.address(physical, linear);
        let source =
            if self.l1i.access(address, size) { DataSource::L1 } else { self.beyond_l1(address, size) };
        let mut events = MicroEvents { once: outcome::FETCH[source as usize], ..MicroEvents::default() };
        let (mut stall, mut stalled) = (0, EventSet::EMPTY);
        if source != DataSource::L1 {
            stall += self.latency(source) - self.parameters.l1d_latency_cycles;
            stalled.insert(Event::StallInstructionCache);
        }
        if translation != Found::First {
            events.once.insert(if translation == Found::Walk { Event::ItlbWalk } else { Event::ItlbStlbHit });
            stall += self.translation_latency(translation);
            stalled.insert(Event::StallInstructionTlb);
        }
        self.spend(&mut events, busy, stall, stalled);
        events
    }

    /// A data access of the current instruction. An access that both reads and writes is a load, then a
    /// store.
    ///
    /// Bytes beyond a page are taken to follow physically.
    #[inline]
    pub fn data(&mut self, physical: u64, linear: u64, size: u8, store: bool) -> (MicroEvents, DataOutcome) {
        let translation = tlb::translate(&mut self.dtlb, &mut self.stlb, linear, size);
        let address = self.address(physical, linear);
        let source =
            if self.l1d.access(address, size) { DataSource::L1 } else { self.beyond_l1(address, size) };
        let split = !self.l1d.within_line(address, size);
        let latency_cycles = self.latency(source) + self.translation_latency(translation);
        let outcome = DataOutcome { source, latency_cycles, stlb_miss: translation == Found::Walk };
        let all = outcome::data_events(store, source, translation, split);
        let mut events = MicroEvents { once: all.difference(self.had), ..MicroEvents::default() };
        self.had = self.had.union(all.intersection(PER_INSTRUCTION));
        if !store {
            events.load_latency_cycles = latency_cycles;
            let stall = latency_cycles - self.parameters.l1d_latency_cycles;
            self.spend(&mut events, 0, stall, outcome::LOAD_STALL[source as usize]);
        }
        (events, outcome)
    }

    /// The current instruction is a branch at `pc`; the next instruction in memory is at `fallthrough`, the
    /// one that executes next (leaving interrupts aside) at `next`. A conditional branch was taken if they
    /// differ; every other kind always is. [`Event::BranchMispredicted`] is among the events if the
    /// prediction was wrong.
    pub fn branch(&mut self, pc: u64, fallthrough: u64, next: u64, kind: BranchKind) -> MicroEvents {
        let taken = kind != BranchKind::Conditional || next != fallthrough;
        let mispredicted = self.predictor.retire(pc, fallthrough, next, kind);
        let mut events =
            MicroEvents { once: outcome::branch_events(kind, taken, mispredicted), ..MicroEvents::default() };
        let stall = if mispredicted { self.parameters.mispredict_cycles } else { 0 };
        self.spend(&mut events, 0, stall, EventSet::EMPTY);
        events
    }

    /// CR3 was loaded: the TLBs forget everything (they have no process-context identifiers).
    pub fn flush_tlbs(&mut self) {
        self.itlb.flush();
        self.dtlb.flush();
        self.stlb.flush();
    }

    fn address(&self, physical: u64, linear: u64) -> u64 {
        match self.indexing {
            Indexing::Physical => physical,
            Indexing::Linear => linear,
        }
    }

    /// Accesses the levels below L1 until one has it.
    fn beyond_l1(&mut self, address: u64, size: u8) -> DataSource {
        if self.l2.as_mut().is_some_and(|l2| l2.access(address, size)) {
            DataSource::L2
        } else if self.llc.lock().access(address, size) {
            DataSource::L3
        } else {
            DataSource::Memory
        }
    }

    fn latency(&self, source: DataSource) -> u16 {
        match source {
            DataSource::L1 => self.parameters.l1d_latency_cycles,
            DataSource::L2 => self.parameters.l2_latency_cycles,
            DataSource::L3 => self.parameters.llc_latency_cycles,
            DataSource::Memory => self.parameters.memory_latency_cycles,
        }
    }

    fn translation_latency(&self, found: Found) -> u16 {
        match found {
            Found::First => 0,
            Found::Second => self.parameters.stlb_latency_cycles,
            Found::Walk => self.parameters.walk_latency_cycles,
        }
    }

    /// Lets time pass: `busy` cycles of execution, then `stall` cycles of the kinds in `stalled`.
    #[inline]
    fn spend(&mut self, events: &mut MicroEvents, busy: u32, stall: u16, stalled: EventSet) {
        events.cycles = busy + u32::from(stall);
        events.slots = events.cycles * self.parameters.retire_width;
        events.stall_cycles = u32::from(stall);
        if stall > 0 {
            events.stalled = stalled.union(EventSet::of(&[Event::StallTotal]));
        }
        self.crystal += events.cycles;
        while self.crystal >= self.parameters.crystal_ratio {
            self.crystal -= self.parameters.crystal_ratio;
            events.crystal_cycles += 1;
        }
    }
}
