//! Reading a thread's counts while it runs: its own without a system call, another's exactly with one.
//!
//! ```no_run
//! use libhpm::{event, session::{Options, Session, Target}};
//! # fn main() -> libhpm::Result<()> {
//! let loads = event::parse("load:u", "skylake")?;
//! let target = Target::Process(std::process::id() as i32);
//! let session = Session::open(&Options::new(target).count(loads).counter_pages(true))?;
//! session.start()?;
//! let counters = session.own_counters()?;
//! let before = counters.count(0)?;
//! // ...
//! println!("{} loads", counters.count(0)? - before);
//! # Ok(())
//! # }
//! ```

use std::sync::atomic::Ordering;

use hpm_abi::{CounterReading, EVENTS_MAX};

use super::{Session, refuse};
use crate::sys::counters::{Counted, CounterMap, OwnPage};
use crate::sys::device::Device;
use crate::{Error, Result};

/// The counts of the thread that asked for them. They stay with that thread, and do not outlive a `fork` in the child.
#[derive(Debug)]
pub struct OwnCounters<'a, D: Device> {
    session: &'a Session<D>,
    page: OwnPage,
    number: u32,
}

/// The counts of any thread of the session.
#[derive(Debug)]
pub struct ThreadCounters<'a, D: Device> {
    session: &'a Session<D>,
    map: CounterMap,
    number: u32,
}

impl<D: Device> Session<D> {
    /// The calling thread's counts, which begin with its first call of this. Needs [`super::Options::counter_pages`], and
    /// a session that measures the calling process.
    ///
    /// # Errors
    /// [`Error::Refused`] when the session does not measure this thread, or [`Error::Io`] when its page cannot be mapped.
    pub fn own_counters(&self) -> Result<OwnCounters<'_, D>> {
        let number = self.counter_page(0)?;
        Ok(OwnCounters { session: self, page: OwnPage::new(self.device.memory(), number)?, number })
    }

    /// The counts of a thread that the session measures, by its ID; they begin with the first call for that thread.
    ///
    /// # Errors
    /// As [`Session::own_counters`].
    pub fn counters_of(&self, tid: i32) -> Result<ThreadCounters<'_, D>> {
        let number = self.counter_page(tid)?;
        Ok(ThreadCounters { session: self, map: CounterMap::new(self.device.memory(), number)?, number })
    }

    fn counter_page(&self, tid: i32) -> Result<u32> {
        let refused = |denied| refuse("give a thread's counters", denied, &self.events);
        self.device.counters(tid).map_err(refused)
    }

    fn read_counters(&self, page: u32) -> Result<CounterReading> {
        self.device.read(page).map_err(|denied| refuse("read a thread's counters", denied, &self.events))
    }
}

impl<D: Device> OwnCounters<'_, D> {
    /// The count of the session's event at this place. Costs no system call while this process may use RDPMC and a counter
    /// counts the event; else it asks the driver. Multiplexed counts are raw.
    ///
    /// # Errors
    /// [`Error::Refused`] when the driver had to be asked and refused.
    #[inline]
    pub fn count(&self, event: usize) -> Result<u64> {
        match self.page.count(event) {
            Some(count) => Ok(count),
            None => self.ask_instead(event).map(|counted| counted.count),
        }
    }

    /// The counts of consecutive events of the session, from this place on, at one look. What cannot be read stays as it is in
    /// `counts`.
    ///
    /// # Errors
    /// As [`OwnCounters::count`].
    #[inline]
    pub fn counts(&self, first: usize, counts: &mut [u64]) -> Result<()> {
        match self.page.counts(first, counts) {
            Some(()) => Ok(()),
            None => self.ask_for_each(first, counts),
        }
    }

    #[cold]
    fn ask_for_each(&self, first: usize, counts: &mut [u64]) -> Result<()> {
        counts.iter_mut().enumerate().try_for_each(|(place, count)| {
            *count = self.count(first + place)?;
            Ok(())
        })
    }

    /// As [`OwnCounters::count`], with the times by which a multiplexed count is scaled.
    ///
    /// # Errors
    /// As [`OwnCounters::count`].
    pub fn counted(&self, event: usize) -> Result<Counted> {
        match self.page.counted(event) {
            Some(counted) => Ok(counted),
            None => self.ask_instead(event),
        }
    }

    /// What the page does not tell.
    #[cold]
    fn ask_instead(&self, event: usize) -> Result<Counted> {
        if self.page.misleads(event) {
            // Asked for anew, the page says what the process may do now.
            self.session.counter_page(0)?;
        }
        self.ask(event)
    }

    /// The count by the driver's word, whether or not that is needed.
    ///
    /// # Errors
    /// [`Error::Refused`], also for an event that the session does not have.
    pub fn ask(&self, event: usize) -> Result<Counted> {
        let reading = self.session.read_counters(self.number)?;
        if event >= EVENTS_MAX {
            return Err(Error::corrupt(format!("event {event} of a session that has none of that number")));
        }
        let present = |ticks: u64| ticks.saturating_sub(reading.absent_tsc[event]);
        Ok(Counted {
            count: reading.counts[event],
            enabled_tsc: present(reading.enabled_tsc),
            running_tsc: present(reading.running_tsc[event]),
        })
    }

    /// Whether an event can be read without a system call now.
    #[must_use]
    pub fn reads_by_itself(&self, event: usize) -> bool {
        self.page.count(event).is_some()
    }
}

impl<D: Device> ThreadCounters<'_, D> {
    /// Every event's count, exact at a moment between call and return.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn read(&self) -> Result<CounterReading> {
        self.session.read_counters(self.number)
    }

    /// An event's count when the driver last wrote it, and the TSC at that moment: no system call, but out of date by up
    /// to the session's longest quantum while the thread is on a CPU. `None` for an event that the session does not have.
    #[must_use]
    pub fn last_known(&self, event: usize) -> Option<(u64, u64)> {
        let page = self.map.page();
        let event = page.events.get(event)?;
        loop {
            let sequence = page.sequence.load(Ordering::Acquire);
            let last = (event.base.load(Ordering::Acquire), page.start_tsc.load(Ordering::Acquire));
            if sequence.is_multiple_of(2) && page.sequence.load(Ordering::Relaxed) == sequence {
                return Some(last);
            }
            std::hint::spin_loop();
        }
    }
}
