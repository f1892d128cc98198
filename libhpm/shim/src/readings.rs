//! What a thread reads at each entry and exit: its time, the TSC, and counts.

use std::slice::from_mut;

use libhpm::call_log::Clock;
use libhpm::session::{OwnCounters, Session};
use libhpm::sys::clock::tsc;
use libhpm::sys::device::Driver;

use crate::clock::CpuClock;
use crate::counting::{Source, ThreadCounts};

/// Where a process's times and counts come from.
pub(crate) struct Sources {
    pub(crate) clock: Clock,
    /// The session of which the first event is the clock, where it is cycles.
    pub(crate) cycles: Option<&'static Session>,
    pub(crate) source: Source,
    pub(crate) tsc_per_ms: f64,
}

/// Where a thread's come from.
pub(crate) enum Readings {
    /// Both from the module, the clock's event before the others: one look at the counters.
    Together(OwnCounters<'static, Driver>),
    Apart(ThreadClock, ThreadCounts),
    /// Nowhere.
    None,
}

pub(crate) enum ThreadClock {
    Cpu(CpuClock),
    Tsc,
    /// The first event of a session of the hpm module.
    Cycles(OwnCounters<'static, Driver>),
}

impl Readings {
    /// What the calling thread reads; `None` when the source refuses.
    pub(crate) fn begin(sources: &Sources) -> Option<Self> {
        let clock = match (sources.cycles, &sources.source) {
            (Some(session), Source::None | Source::Driver(_)) => {
                return Some(Self::Together(session.own_counters().ok()?));
            }
            (Some(session), Source::Perf(_)) => ThreadClock::Cycles(session.own_counters().ok()?),
            (None, _) if sources.clock == Clock::Tsc => ThreadClock::Tsc,
            (None, _) => ThreadClock::Cpu(CpuClock::new(sources.tsc_per_ms)),
        };
        Some(Self::Apart(clock, sources.source.of_thread().ok()?))
    }

    /// Reads the time into the first word, the TSC into the second and counts into the others, as many as there are. What cannot be read
    /// stays as it was.
    #[inline]
    pub(crate) fn read(&mut self, words: &mut [u64]) {
        let Some((time, counted)) = words.split_first_mut() else { return };
        match self {
            Self::Together(counters) if counted.is_empty() => {
                let _ = counters.counts(0, from_mut(time));
            }
            Self::Together(counters) => {
                // The clock is counted where the TSC belongs, so that all are consecutive.
                if counters.counts(0, counted).is_ok() {
                    *time = counted[0];
                }
                counted[0] = tsc();
            }
            Self::Apart(clock, counts) => {
                if let Some((ticks, counted)) = counted.split_first_mut() {
                    counts.read(counted);
                    *ticks = tsc();
                }
                clock.read(time);
            }
            Self::None => {}
        }
    }
}

impl ThreadClock {
    #[inline]
    fn read(&mut self, time: &mut u64) {
        match self {
            Self::Cpu(clock) => *time = clock.now(),
            Self::Tsc => *time = tsc(),
            Self::Cycles(counters) => *time = counters.count(0).unwrap_or(*time),
        }
    }
}
