//! Counter pages: which thread has which, and what the engine writes into them.
//!
//! A page has one writer at a time, because a thread is on one CPU at a time; whoever reads it without the thread's CPU
//! standing still goes by its sequence number.

use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use super::abi::{
    CounterPage, CounterPageFlags, CounterReading, QuantumEnd, COUNTER_PAGES_MAX, COUNT_ABSENT, COUNT_ASK,
    COUNT_HELD, EVENTS_MAX,
};
use super::allocate::COUNTERS_MAX;
use super::hardware::Hardware;
use super::port::Rings;
use super::quantum::Stay;
use super::session::Session;
use super::threads::hash;
use super::Program;

/// Keys of pages without a thread; thread IDs are below 2^22 (Linux PID_MAX_LIMIT).
const NEVER_USED: u32 = 0;
const RETIRED: u32 = u32::MAX;

/// Pages looked at for one thread: bounds the work on the switch path.
const PROBES: usize = 64;

/// Which thread each page of a session belongs to. Read by any CPU at any time; pages are claimed by one caller at a time.
#[derive(Debug)]
pub struct PageKeys {
    /// Pages with a living thread, so that a session without any costs one load.
    live: AtomicU32,
    keys: [AtomicU32; COUNTER_PAGES_MAX],
}

impl PageKeys {
    /// No page has a thread.
    #[must_use]
    pub const fn new() -> Self {
        Self { live: AtomicU32::new(0), keys: [const { AtomicU32::new(NEVER_USED) }; COUNTER_PAGES_MAX] }
    }

    /// The page of this thread.
    #[must_use]
    pub fn find(&self, tid: u32) -> Option<usize> {
        // A CPU's idle thread has the number of a page that was never used.
        if tid == NEVER_USED || self.live.load(Ordering::Relaxed) == 0 {
            return None;
        }
        for page in probes(tid) {
            match self.keys[page].load(Ordering::Acquire) {
                found if found == tid => return Some(page),
                NEVER_USED => return None,
                _ => {}
            }
        }
        None
    }

    /// A page that this thread can have: never used, or retired and by `is_unseen` no longer looked at. The caller makes
    /// it ready and then calls [`PageKeys::assign`], with no other caller in between. `None` when there is none.
    #[must_use]
    pub fn claim(&self, tid: u32, mut is_unseen: impl FnMut(usize) -> bool) -> Option<usize> {
        probes(tid).find(|&page| match self.keys[page].load(Ordering::Relaxed) {
            NEVER_USED => true,
            RETIRED => is_unseen(page),
            _ => false,
        })
    }

    /// Gives a claimed page to its thread.
    pub fn assign(&self, page: usize, tid: u32) {
        self.keys[page].store(tid, Ordering::Release);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    /// Nothing runs any more under the ID of this thread, which has another one.
    pub fn forget(&self, tid: u32) {
        if let Some(page) = self.find(tid) {
            self.retire(page);
        }
    }

    /// Retires the pages of threads whose IDs nothing runs under any more. Whoever has got such an ID since keeps the page.
    pub fn forget_gone(&self, is_there: impl Fn(u32) -> bool) {
        for (page, key) in self.keys.iter().enumerate() {
            let tid = key.load(Ordering::Acquire);
            if tid != NEVER_USED && tid != RETIRED && !is_there(tid) {
                self.retire(page);
            }
        }
    }

    /// The thread never runs again; its page keeps its last counts for those who look at it.
    pub(super) fn retire(&self, page: usize) {
        if self.keys[page].swap(RETIRED, Ordering::AcqRel) != RETIRED {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Default for PageKeys {
    fn default() -> Self {
        Self::new()
    }
}

fn probes(tid: u32) -> impl Iterator<Item = usize> {
    let start = hash(tid);
    (0..PROBES).map(move |step| (start + step) % COUNTER_PAGES_MAX)
}

/// How often a reader begins anew while somebody writes. A writer's few stores are bounded, so that once is nearly always enough.
const TRIES: u32 = 1000;

/// Makes a page ready for a thread that is not on a CPU, or whose CPU does not know of the page yet.
pub fn prepare(page: &CounterPage, tid: u32, events: u32, tsc_khz: u32) {
    write(page, || {
        page.flags.store(0, Ordering::Relaxed);
        page.tid.store(tid, Ordering::Relaxed);
        page.event_count.store(events, Ordering::Relaxed);
        page.tsc_khz.store(tsc_khz, Ordering::Relaxed);
        page.enabled_tsc.store(0, Ordering::Relaxed);
        for event in &page.events {
            event.counter.store(COUNT_HELD, Ordering::Relaxed);
            event.base.store(0, Ordering::Relaxed);
            event.running_tsc.store(0, Ordering::Relaxed);
            event.absent_tsc.store(0, Ordering::Relaxed);
        }
    });
}

/// What the page says, when its thread is not on a CPU or has just been brought up to date; false when somebody always writes it, and the
/// reading is to be thrown away.
#[must_use]
pub fn reading(page: &CounterPage, reading: &mut CounterReading) -> bool {
    for _ in 0..TRIES {
        let sequence = page.sequence.load(Ordering::Acquire);
        reading.tid = page.tid.load(Ordering::Relaxed);
        reading.tsc = page.start_tsc.load(Ordering::Relaxed);
        reading.enabled_tsc = page.enabled_tsc.load(Ordering::Relaxed);
        for (index, event) in page.events.iter().enumerate() {
            reading.counts[index] = event.base.load(Ordering::Relaxed);
            reading.running_tsc[index] = event.running_tsc.load(Ordering::Relaxed);
            reading.absent_tsc[index] = event.absent_tsc.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        if sequence % 2 == 0 && page.sequence.load(Ordering::Relaxed) == sequence {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

fn write(page: &CounterPage, change: impl FnOnce()) {
    // Odd while it is written, and even afterwards, also if two wrote it at once before: a thread in `execve` has two numbers.
    let sequence = page.sequence.load(Ordering::Relaxed) | 1;
    page.sequence.store(sequence, Ordering::Relaxed);
    fence(Ordering::Release);
    change();
    page.sequence.store(sequence.wrapping_add(1), Ordering::Release);
}

fn add(sum: &AtomicU64, more: u64) {
    sum.store(sum.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// The counters as an engine call left them, which a page is brought up to date with.
#[derive(Clone, Copy)]
pub(super) struct Now<'a> {
    pub(super) hardware: &'a Hardware,
    pub(super) program: &'a Program,
    /// Each counter's value.
    pub(super) values: &'a [u64; COUNTERS_MAX],
    pub(super) tsc: u64,
}

impl Now<'_> {
    /// The thread has come to the CPU, or goes on there with other counters.
    pub(super) fn attach(&self, page: &CounterPage) {
        write(page, || {
            page.start_tsc.store(self.tsc, Ordering::Relaxed);
            let flags = page.flags.load(Ordering::Relaxed);
            // May be granted from another CPU meanwhile, so the two bits are changed apart.
            page.flags.fetch_or(CounterPageFlags::ON_CPU, Ordering::Relaxed);
            for (index, event) in page.events.iter().enumerate().take(self.program.event_count()) {
                let counter = match self.program.counting_counter(index) {
                    Some(counter) => {
                        event.start.store(self.values[counter.place()], Ordering::Relaxed);
                        event.mask.store(self.hardware.mask(counter), Ordering::Relaxed);
                        let may = flags & CounterPageFlags::MAY_RDPMC != 0;
                        if may {
                            self.hardware.rdpmc_index(counter)
                        } else {
                            COUNT_ASK
                        }
                    }
                    // With auto-reload, a sampling counter alone says nothing.
                    None if self.program.is_active(index) => COUNT_ASK,
                    None if self.program.is_complete(index) => COUNT_ABSENT,
                    None => COUNT_HELD,
                };
                event.counter.store(counter, Ordering::Relaxed);
            }
        });
    }

    /// Adds what has been counted since the page was last brought up to date. `sampled` is what each event that only its
    /// sampling counter counts has counted in the quantum that ends; `None` when none ends.
    pub(super) fn advance(&self, page: &CounterPage, sampled: Option<&[u64; EVENTS_MAX]>) {
        write(page, || {
            let elapsed = self.tsc.saturating_sub(page.start_tsc.load(Ordering::Relaxed));
            page.start_tsc.store(self.tsc, Ordering::Relaxed);
            add(&page.enabled_tsc, elapsed);
            for (index, event) in page.events.iter().enumerate().take(self.program.event_count()) {
                if !self.program.is_complete(index) {
                    continue;
                }
                add(&event.running_tsc, elapsed);
                if self.program.absent() >> index & 1 == 1 {
                    add(&event.absent_tsc, elapsed);
                }
                if let Some(counter) = self.program.counting_counter(index) {
                    let (value, mask) = (self.values[counter.place()], self.hardware.mask(counter));
                    let counted = value.wrapping_sub(event.start.load(Ordering::Relaxed)) & mask;
                    event.start.store(value, Ordering::Relaxed);
                    add(&event.base, counted);
                } else if let Some(counts) = sampled {
                    add(&event.base, counts[index]);
                }
            }
        });
    }

    /// [`Now::advance`] after a quantum of the stay was closed. `before` is what the session's counts were then.
    pub(super) fn advance_stay<R: Rings>(
        &self,
        session: &Session<'_, R>,
        stay: &Stay,
        before: Option<&[u64; EVENTS_MAX]>,
    ) {
        let (Some(page), Some(before)) = (session.counter_page(stay), before) else { return };
        let mut counted = session.state.totals.counts;
        for (count, before) in counted.iter_mut().zip(before) {
            *count -= before;
        }
        self.advance(page, Some(&counted));
    }

    /// As [`Now::advance_stay`], and the thread has left the CPU.
    pub(super) fn leave<R: Rings>(
        &self,
        session: &Session<'_, R>,
        stay: &Stay,
        before: Option<&[u64; EVENTS_MAX]>,
        end: QuantumEnd,
    ) {
        let (Some(number), Some(page)) = (stay.page, session.counter_page(stay)) else { return };
        self.advance_stay(session, stay, before);
        self.detach(page);
        if let (QuantumEnd::Exit, Some(pages)) = (end, session.pages) {
            pages.retire(number);
        }
    }

    /// The thread has left the CPU.
    fn detach(&self, page: &CounterPage) {
        write(page, || {
            page.flags.fetch_and(!CounterPageFlags::ON_CPU, Ordering::Relaxed);
            for event in page.events.iter().take(self.program.event_count()) {
                event.counter.store(COUNT_HELD, Ordering::Relaxed);
            }
        });
    }
}
