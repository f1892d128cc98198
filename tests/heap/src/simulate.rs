//! A model of a processor's caches that sees the heap's accesses: what co-allocation does can be tried without the hardware.
//!
//! Only what goes through the heap's accessors is seen, and what allocation and collections do to the heap's memory: no
//! instructions, no stack, none of the collector's own tables. Time is one cycle for each access and what the model's loads
//! stall; the virtual lab machine has the whole program.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vpmu::{Core, DataSource, GeometryError, Profile, SharedCache};

use crate::advice::{Sample, Samples};
use crate::layout::FieldId;
use crate::observe::{Access, By, Observer};
use crate::space::{Ranges, Space};

/// What was counted of one kind of accesses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Loads and stores.
    pub accesses: u64,
    /// Loads that were not in the first-level data cache.
    pub l1_misses: u64,
    /// Loads that came from memory.
    pub memory_loads: u64,
    /// Loads that needed a page walk.
    pub page_walks: u64,
    /// Cycles that loads took beyond a hit in the first-level cache.
    pub stall_cycles: u64,
}

impl Counts {
    /// Cycles of the model, if every latency beyond the first-level cache's is divided by `divisor`.
    #[must_use]
    pub fn cycles(&self, divisor: u64) -> u64 {
        self.accesses + self.stall_cycles / divisor
    }

    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            accesses: with(self.accesses, other.accesses),
            l1_misses: with(self.l1_misses, other.l1_misses),
            memory_loads: with(self.memory_loads, other.memory_loads),
            page_walks: with(self.page_walks, other.page_walks),
            stall_cycles: with(self.stall_cycles, other.stall_cycles),
        }
    }
}

/// What was counted, by whom and where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The program's accesses to each space.
    nursery: Counts,
    mature: Counts,
    large: Counts,
    /// The allocator's and the collector's.
    pub collector: Counts,
}

impl Measured {
    /// The program's accesses to one space.
    #[must_use]
    pub fn space(&self, space: Space) -> Counts {
        match space {
            Space::Nursery => self.nursery,
            Space::Mature => self.mature,
            Space::Large => self.large,
        }
    }

    /// All of the program's accesses.
    #[must_use]
    pub fn program(&self) -> Counts {
        let add = |one: Counts, other| one.zip(other, |a, b| a + b);
        add(add(self.nursery, self.mature), self.large)
    }

    /// What came after an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |one: Counts, other| one.zip(other, |a, b| a - b);
        Self {
            nursery: less(self.nursery, earlier.nursery),
            mature: less(self.mature, earlier.mature),
            large: less(self.large, earlier.large),
            collector: less(self.collector, earlier.collector),
        }
    }

    /// Cycles of program and collector.
    #[must_use]
    pub fn cycles(&self, divisor: u64) -> u64 {
        self.program().cycles(divisor) + self.collector.cycles(divisor)
    }
}

/// Takes one of so many misses, as a performance-monitoring unit does.
#[derive(Debug)]
struct Sampler {
    interval: u64,
    left: u64,
    random: fastrand::Rng,
    /// Address, and the field whose reference led there.
    taken: Vec<Sample>,
}

/// Low bits of a sampling interval that are drawn anew each time (Schneider's thesis, §5.2.2).
const RANDOM_BITS: u32 = 8;

impl Sampler {
    fn draw(&mut self) {
        let random = (1_u64 << RANDOM_BITS).min(self.interval);
        // The mean stays the interval.
        self.left = (self.interval - random / 2 + self.random.u64(0..random)).max(1);
    }

    fn miss(&mut self, address: u32, field: Option<FieldId>) {
        self.left -= 1;
        if self.left == 0 {
            self.taken.push(Sample { address, field });
            self.draw();
        }
    }
}

#[derive(Debug)]
struct State {
    core: Core,
    ranges: Option<Ranges>,
    measured: Measured,
    l1_latency: u16,
    sampler: Option<Sampler>,
}

/// The model, as an [`Observer`]; clones are the same one.
#[derive(Debug, Clone)]
pub struct Model(Rc<RefCell<State>>);

impl Model {
    /// A processor of this profile, with empty caches.
    ///
    /// # Errors
    /// The profile's caches are impossible.
    pub fn new(profile: &'static Profile) -> Result<Self, GeometryError> {
        let llc = SharedCache::new(&profile.geometry.llc)?;
        let core = Core::new(profile, &profile.geometry, llc)?;
        let l1_latency = profile.microarchitecture.l1d_latency_cycles;
        let state = State { core, ranges: None, measured: Measured::default(), l1_latency, sampler: None };
        Ok(Self(Rc::new(RefCell::new(state))))
    }

    /// Where the heap's spaces are; until it is told, nothing is counted by space.
    pub fn set_ranges(&self, ranges: &Ranges) {
        self.0.borrow_mut().ranges = Some(ranges.clone());
    }

    /// Samples one of `interval` missing loads of the program, from now on.
    pub fn sample(&self, interval: u64) {
        let mut sampler =
            Sampler { interval, left: 0, random: fastrand::Rng::with_seed(interval), taken: Vec::new() };
        sampler.draw();
        self.0.borrow_mut().sampler = Some(sampler);
    }

    /// What was counted so far.
    #[must_use]
    pub fn measured(&self) -> Measured {
        self.0.borrow().measured
    }
}

impl Observer for Model {
    fn access(&self, access: Access) {
        let state = &mut *self.0.borrow_mut();
        let address = u64::from(access.address);
        let (_, outcome) = state.core.data(address, address, access.bytes as u8, access.store);
        let counts = match (access.by, state.ranges.as_ref().and_then(|ranges| ranges.space(access.address)))
        {
            (By::Collector | By::Allocator, _) => &mut state.measured.collector,
            (By::Program(_), Some(Space::Mature)) => &mut state.measured.mature,
            (By::Program(_), Some(Space::Large)) => &mut state.measured.large,
            (By::Program(_), _) => &mut state.measured.nursery,
        };
        counts.accesses += 1;
        if access.store {
            // Stores retire into a buffer; nothing waits for them.
            return;
        }
        counts.stall_cycles += u64::from(outcome.latency_cycles - state.l1_latency);
        counts.page_walks += u64::from(outcome.stlb_miss);
        counts.memory_loads += u64::from(outcome.source == DataSource::Memory);
        if outcome.source != DataSource::L1 {
            counts.l1_misses += 1;
            if let (Some(sampler), By::Program(origin)) = (&mut state.sampler, access.by) {
                sampler.miss(access.address, origin.field());
            }
        }
    }
}

/// Sampling as the model simulates it; its clock is that of the program's accesses.
impl Samples for Model {
    fn take(&mut self, _all: bool) -> Result<Vec<Sample>, String> {
        let mut state = self.0.borrow_mut();
        Ok(state.sampler.as_mut().map(|sampler| std::mem::take(&mut sampler.taken)).unwrap_or_default())
    }

    fn now(&self) -> u64 {
        self.0.borrow().measured.program().accesses
    }

    fn interval(&self) -> u64 {
        self.0.borrow().sampler.as_ref().map_or(1, |sampler| sampler.interval)
    }

    fn collector_share(&self, _: Duration) -> f64 {
        let measured = self.0.borrow().measured;
        measured.collector.cycles(1) as f64 / measured.cycles(1).max(1) as f64
    }
}
