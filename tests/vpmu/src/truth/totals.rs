//! Counters of what happened: written by one CPU, readable by all at any time.

use crate::event::{Basic, BasicCounts, Event, EventSet, MicroEvents, Privilege};
use crate::profile::EventSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Occurrences of every event at both privilege levels.
///
/// Only one CPU writes; hence an addition needs no read-modify-write instruction. Another CPU that reads
/// while this one runs sees each number at some recent moment.
#[derive(Debug)]
pub(super) struct Totals([[AtomicU64; 2]; Event::COUNT]);

/// Adds to a number that only the calling thread writes.
#[inline]
pub(super) fn add(number: &AtomicU64, n: u64) {
    number.store(number.load(Relaxed) + n, Relaxed);
}

impl Totals {
    pub(super) fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; 2] }; Event::COUNT])
    }

    pub(super) fn count_basic(&self, delta: &BasicCounts) {
        for basic in Basic::ALL {
            for privilege in Privilege::ALL {
                self.add(basic.into(), privilege, delta[basic as usize][privilege as usize]);
            }
        }
    }

    #[inline]
    pub(super) fn count(&self, events: &MicroEvents, privilege: Privilege) {
        for index in events.once.indices() {
            add(&self.0[index][privilege as usize], 1);
        }
        if events.cycles > 0 {
            self.add(Event::Cycle, privilege, events.cycles.into());
            self.add(Event::ReferenceCycle, privilege, events.cycles.into());
            self.add(Event::Slot, privilege, events.slots.into());
            self.add(Event::CrystalCycle, privilege, events.crystal_cycles.into());
            for index in events.stalled.indices() {
                add(&self.0[index][privilege as usize], events.stall_cycles.into());
            }
        }
    }

    #[inline]
    fn add(&self, event: Event, privilege: Privilege, n: u64) {
        add(&self.0[event as usize][privilege as usize], n);
    }
}

/// Occurrences at each privilege level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PerPrivilege {
    /// At CPL 1 to 3.
    pub user: u64,
    /// At CPL 0.
    pub kernel: u64,
}

/// Occurrences by event; events that never happened are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<Event, PerPrivilege>);

impl Counts {
    /// Occurrences of one event.
    #[must_use]
    pub fn of(&self, event: Event) -> PerPrivilege {
        self.0.get(&event).copied().unwrap_or_default()
    }

    /// What a counter programmed with this hardware event (and no CMASK, INV or E) should have counted. For
    /// `MEM_TRANS_RETIRED.LOAD_LATENCY` this is the number of all loads, since the threshold is not known
    /// here.
    #[must_use]
    pub fn of_spec(&self, spec: &EventSpec) -> PerPrivilege {
        self.of_set(spec.counts)
    }

    fn of_set(&self, set: EventSet) -> PerPrivilege {
        set.iter().map(|event| self.of(event)).fold(PerPrivilege::default(), |sum, n| PerPrivilege {
            user: sum.user + n.user,
            kernel: sum.kernel + n.kernel,
        })
    }

    /// Adds what `totals` holds now.
    pub(super) fn add(&mut self, totals: &Totals) {
        for (&event, [user, kernel]) in Event::ALL.iter().zip(&totals.0) {
            let (user, kernel) = (user.load(Relaxed), kernel.load(Relaxed));
            if user + kernel > 0 {
                let count = self.0.entry(event).or_default();
                count.user += user;
                count.kernel += kernel;
            }
        }
    }
}

/// What has happened since an earlier reading of the same numbers.
impl Sub for &Counts {
    type Output = Counts;

    fn sub(self, earlier: Self) -> Counts {
        let since = self.0.iter().map(|(&event, now)| {
            let then = earlier.of(event);
            (event, PerPrivilege { user: now.user - then.user, kernel: now.kernel - then.kernel })
        });
        Counts(since.filter(|(_, count)| *count != PerPrivilege::default()).collect())
    }
}
