//! How much of the guest is observed: the level of instrumentation of translated code.
//!
//! Blocks are shared by all vCPUs, so the level is the machine's: the most that any vCPU's counters demand. Going up throws
//! translated code away once, before the next instruction. Going down waits until the lower level has been enough for a while,
//! because a driver that stops its counters on each context switch is about to start them again.

use crate::here::Here;
use crate::machine::MAX_VCPUS;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};
use vpmu::Demand;

/// How long a lower level must have been enough.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What translated code reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    /// Nothing but accesses to the PMU.
    Off = 0,
    /// Basic events.
    Basic = 1,
    /// And the linear address of each data access.
    DataAddresses = 2,
    /// And every fetch, data access and branch.
    Microarchitecture = 3,
}

impl From<Demand> for Level {
    fn from(demand: Demand) -> Self {
        match demand {
            Demand::Nothing => Self::Off,
            Demand::Basic => Self::Basic,
            Demand::DataAddresses => Self::DataAddresses,
            Demand::Microarchitecture => Self::Microarchitecture,
        }
    }
}

impl Level {
    fn from_u8(level: u8) -> Self {
        [Self::Off, Self::Basic, Self::DataAddresses, Self::Microarchitecture][usize::from(level & 3)]
    }
}

/// The level, and what decides it.
pub(crate) struct Mode {
    level: AtomicU8,
    /// Each vCPU's demand.
    demands: [AtomicU8; MAX_VCPUS],
    /// What the truth asks for since the guest's first label or window; nothing again when it rests.
    floor: AtomicU8,
    /// Since when a lower level would do.
    idle_since: Mutex<Option<Instant>>,
    /// The level has changed since translated code was last thrown away.
    changed: AtomicBool,
}

impl Default for Mode {
    fn default() -> Self {
        Self {
            level: AtomicU8::new(0),
            demands: [const { AtomicU8::new(0) }; MAX_VCPUS],
            floor: AtomicU8::new(0),
            idle_since: Mutex::new(None),
            changed: AtomicBool::new(false),
        }
    }
}

impl Mode {
    /// The level that code is translated for now.
    pub(crate) fn level(&self) -> Level {
        Level::from_u8(self.level.load(Ordering::Relaxed))
    }

    /// Whether translated code tallies.
    pub(crate) fn observes(&self) -> bool {
        self.level() != Level::Off
    }

    /// Whether the level has changed since the last call.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }

    fn wanted(&self) -> u8 {
        let demands = self.demands.iter().map(|demand| demand.load(Ordering::SeqCst));
        demands.max().unwrap_or(0).max(self.floor.load(Ordering::Relaxed))
    }

    /// Sets what the vCPU demands; `true` if the level went up: the callback must leave its block.
    pub(crate) fn demand(&self, here: &Here, demand: Demand) -> bool {
        self.demands[here.vcpu.index as usize].store(Level::from(demand) as u8, Ordering::SeqCst);
        self.raise(here)
    }

    /// Asks for at least `level` from now on; `true` if the level went up.
    pub(crate) fn require(&self, here: &Here, level: Level) -> bool {
        self.floor.fetch_max(level as u8, Ordering::Relaxed);
        self.raise(here)
    }

    /// Asks for nothing beyond what counters demand, from now on.
    pub(crate) fn rest(&self) {
        self.floor.store(Level::Off as u8, Ordering::Relaxed);
    }

    fn raise(&self, here: &Here) -> bool {
        let wanted = self.wanted();
        if self.level.fetch_max(wanted, Ordering::SeqCst) >= wanted {
            return false;
        }
        self.changed.store(true, Ordering::Relaxed);
        here.flush_translations();
        true
    }

    /// Called now and then: goes down if a lower level has been enough for long.
    pub(crate) fn relax(&self, here: &Here) {
        let wanted = self.wanted();
        // Another vCPU that is looking at it right now will do.
        let Ok(mut idle_since) = self.idle_since.try_lock() else { return };
        if wanted >= self.level.load(Ordering::Relaxed) {
            *idle_since = None;
            return;
        }
        if idle_since.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return;
        }
        *idle_since = None;
        // Another vCPU's demand may have gone up since `wanted` was read, and its `raise` have found the level high enough. The swap
        // comes before the second look at the demands, so that one of the two sees the other.
        self.level.swap(wanted, Ordering::SeqCst);
        self.changed.store(true, Ordering::Relaxed);
        here.flush_translations();
        self.raise(here);
    }
}
