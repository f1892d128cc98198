//! A thread's counter page, and reading by it.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};

use hpm_abi::{
    COUNT_ABSENT, COUNT_ASK, COUNT_HELD, CounterEvent, CounterPage, CounterPageFlags, PAGE_BYTES,
    counters_offset,
};
use memmap2::{MmapOptions, MmapRaw};

use crate::sys::{clock, fault};
use crate::{Error, Result};

/// The counter page of any thread of a session, mapped read-only.
#[derive(Debug)]
pub struct CounterMap(MmapRaw);

impl CounterMap {
    /// Maps a page by the number that the driver gave it.
    ///
    /// # Errors
    /// [`Error::Io`] when there is no page of this number.
    pub fn new(memory: BorrowedFd<'_>, number: u32) -> Result<Self> {
        let map = MmapOptions::new()
            .offset(counters_offset(number))
            .len(PAGE_BYTES)
            .map_raw_read_only(memory.as_raw_fd())
            .map_err(Error::io(format!("map the counter page {number}")))?;
        Ok(Self(map))
    }

    /// What the driver writes.
    #[must_use]
    pub fn page(&self) -> &CounterPage {
        // SAFETY: the mapping is a page long and aligned to one, which is more than a `CounterPage` asks for; all of it
        // is atomics, which the driver writes and this side only loads.
        unsafe { &*self.0.as_ptr().cast::<CounterPage>() }
    }
}

/// The counter page of the calling thread, which stays with that thread: only there do counters say what the page is about.
#[derive(Debug)]
pub struct OwnPage {
    map: CounterMap,
    _stays_with_its_thread: PhantomData<*const ()>,
}

/// An event's count by the page and its counter; the page's sequence number tells whether they go together.
#[inline]
fn now(event: &CounterEvent) -> Option<u64> {
    let counter = event.counter.load(Ordering::Relaxed);
    let base = event.base.load(Ordering::Relaxed);
    // One comparison where there is a counter: this is read in tight loops.
    if is_counter(counter) {
        let counted = fault::rdpmc(counter)?.wrapping_sub(event.start.load(Ordering::Relaxed));
        return Some(base.wrapping_add(counted & event.mask.load(Ordering::Relaxed)));
    }
    // The driver's answer is right whatever has changed meanwhile.
    (counter != COUNT_ASK).then_some(base)
}

/// Whether a page's word for an event names a counter. What it may say instead are the highest numbers.
const fn is_counter(word: u32) -> bool {
    const { assert!(COUNT_ABSENT < COUNT_ASK && COUNT_ASK < COUNT_HELD && COUNT_HELD == u32::MAX) };
    word < COUNT_ABSENT
}

/// What a thread counted of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The count since the page was made.
    pub count: u64,
    /// TSC ticks during which the thread was on a CPU that has the event: on a hybrid processor not those on cores of another type.
    pub enabled_tsc: u64,
    /// TSC ticks during which the event was counted; less than `enabled_tsc` when the session multiplexes.
    pub running_tsc: u64,
}

impl OwnPage {
    /// Maps the page that the driver gave the calling thread for its own.
    ///
    /// # Errors
    /// As [`CounterMap::new`].
    pub fn new(memory: BorrowedFd<'_>, number: u32) -> Result<Self> {
        fault::catch()?;
        Ok(Self { map: CounterMap::new(memory, number)?, _stays_with_its_thread: PhantomData })
    }

    /// The count of an event by its place in the session; `None` when only the driver can tell, or there is no such event,
    /// or the process has lost the right to RDPMC ([`OwnPage::misleads`]).
    #[inline]
    #[must_use]
    pub fn count(&self, event: usize) -> Option<u64> {
        let mut count = 0;
        self.counts(event, std::slice::from_mut(&mut count))?;
        Some(count)
    }

    /// The counts of consecutive events of the session, from this place on, all of the same time on a CPU. `None` as for
    /// [`OwnPage::count`]; some may have been written then.
    #[inline]
    #[must_use]
    pub fn counts(&self, first: usize, counts: &mut [u64]) -> Option<()> {
        let page = self.map.page();
        let events = page.events.get(first..)?.get(..counts.len())?;
        loop {
            let sequence = page.sequence.load(Ordering::Acquire);
            for (event, count) in events.iter().zip(counts.iter_mut()) {
                *count = now(event)?;
            }
            fence(Ordering::Acquire);
            // The driver never writes while this thread executes, so the number is even.
            if page.sequence.load(Ordering::Relaxed) == sequence {
                return Some(());
            }
        }
    }

    /// Whether the page names a counter for this event: when [`OwnPage::count`] knows no count all the same, RDPMC has
    /// faulted, and the page is to be asked for anew.
    #[must_use]
    pub fn misleads(&self, event: usize) -> bool {
        let event = self.map.page().events.get(event);
        event.is_some_and(|event| is_counter(event.counter.load(Ordering::Relaxed)))
    }

    /// As [`OwnPage::count`], with the times that a scaled count needs.
    #[must_use]
    pub fn counted(&self, event: usize) -> Option<Counted> {
        let page = self.map.page();
        loop {
            let sequence = page.sequence.load(Ordering::Acquire);
            let count = self.count(event)?;
            let since = match page.flags.load(Ordering::Relaxed) & CounterPageFlags::ON_CPU {
                0 => 0,
                _ => clock::tsc().saturating_sub(page.start_tsc.load(Ordering::Relaxed)),
            };
            let event = page.events.get(event)?;
            // Where the event is absent, neither time passes.
            let (enabled, running) = match event.counter.load(Ordering::Relaxed) {
                COUNT_HELD => (since, 0),
                COUNT_ABSENT => (0, 0),
                _ => (since, since),
            };
            let absent = event.absent_tsc.load(Ordering::Relaxed);
            let counted = Counted {
                count,
                enabled_tsc: (page.enabled_tsc.load(Ordering::Relaxed) + enabled).saturating_sub(absent),
                running_tsc: (event.running_tsc.load(Ordering::Relaxed) + running).saturating_sub(absent),
            };
            fence(Ordering::Acquire);
            if page.sequence.load(Ordering::Relaxed) == sequence {
                return Some(counted);
            }
        }
    }
}
