//! From what happened in each process to objects with a beginning and an end.

use std::collections::HashMap;

use super::{Allocated, TraceClock};
use crate::sys::clock::ClockPair;

/// A process from its beginning, or from its last execve, on.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) pid: u32,
    /// The process that it was forked from, if it has not executed a program since; else 0.
    pub(super) forked_from: u32,
    pub(super) began: u64,
    /// When, then what happened, in order of time.
    pub(super) entries: Vec<(u64, Happened)>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Happened {
    Allocated { tid: u32, address: u64, bytes: u64, frames: Vec<u64> },
    Freed { address: u64 },
}

/// The TSC beside CLOCK_MONOTONIC_RAW, from two moments as far apart as can be.
pub(super) struct Times {
    /// TSC, and ns.
    pub(super) from: (u64, u64),
    pub(super) now: ClockPair,
}

impl Times {
    /// Makes of times that are ticks those of a trace.
    pub(super) fn convert_ticks(&self, objects: &mut [Allocated], clock: TraceClock) {
        if clock == TraceClock::MonotonicRaw {
            convert(objects, |tsc| self.ns(tsc));
        }
    }

    /// Makes of times that are ns those of a trace.
    pub(super) fn convert_ns(&self, objects: &mut [Allocated], clock: TraceClock) {
        if clock == TraceClock::Tsc {
            convert(objects, |ns| self.tsc(ns));
        }
    }

    fn ns(&self, tsc: u64) -> u64 {
        let (ticks, ns) = self.passed();
        scale(tsc, self.from.0, ns, ticks, self.from.1)
    }

    fn tsc(&self, ns: u64) -> u64 {
        let (ticks, passed) = self.passed();
        scale(ns, self.from.1, ticks, passed, self.from.0)
    }

    /// Ticks and ns between the two moments.
    fn passed(&self) -> (i128, i128) {
        let since = |now: u64, from: u64| (i128::from(now) - i128::from(from)).max(1);
        (since(self.now.tsc, self.from.0), since(self.now.monotonic_raw_ns, self.from.1))
    }
}

/// `time`, of a clock that showed `from`, on one that showed `to` then and makes so many steps `per` those of the first.
fn scale(time: u64, from: u64, steps: i128, per: i128, to: u64) -> u64 {
    let since = (i128::from(time) - i128::from(from)) * steps / per;
    u64::try_from(i128::from(to) + since).unwrap_or(0)
}

fn convert(objects: &mut [Allocated], of: impl Fn(u64) -> u64) {
    for object in objects {
        object.tsc = of(object.tsc);
        object.freed_tsc = object.freed_tsc.map(&of);
    }
}

/// Ends objects where they were freed, and where their process executed another program; a process that was forked has its parent's.
pub(super) fn join(lives: Vec<Life>) -> Vec<Allocated> {
    let mut objects: Vec<Allocated> = Vec::new();
    // Of each process: its objects that live, by address. A life begins where the one before it of the same process ends.
    let mut living: HashMap<u32, HashMap<u64, usize>> = HashMap::new();
    // A fork copies what its parent had then, so that lives are taken in order of their beginning and the parent's in full before: what it
    // frees after the fork is told by time.
    for life in lives {
        if let Some(before) = living.insert(life.pid, HashMap::new()) {
            before.values().for_each(|&object| objects[object].freed_tsc = Some(life.began));
        }
        if life.forked_from != 0 {
            let inherited: Vec<Allocated> = objects
                .iter()
                .filter(|object| object.pid == life.forked_from && object.tsc <= life.began)
                .filter(|object| object.freed_tsc.is_none_or(|freed| freed > life.began))
                .map(|object| Allocated { pid: life.pid, freed_tsc: None, tsc: life.began, ..object.clone() })
                .collect();
            for object in inherited {
                living.entry(life.pid).or_default().insert(object.address, objects.len());
                objects.push(object);
            }
        }
        let own = living.entry(life.pid).or_default();
        for (tsc, happened) in life.entries {
            match happened {
                Happened::Freed { address } => {
                    if let Some(object) = own.remove(&address) {
                        objects[object].freed_tsc = Some(tsc);
                    }
                }
                Happened::Allocated { tid, address, bytes, frames } => {
                    // One whose end was not recorded has ended when its memory is given out again.
                    if let Some(before) = own.insert(address, objects.len()) {
                        objects[before].freed_tsc = Some(tsc);
                    }
                    objects.push(Allocated {
                        tsc,
                        freed_tsc: None,
                        pid: life.pid,
                        tid,
                        address,
                        bytes,
                        frames,
                    });
                }
            }
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_trace() {
        let now = ClockPair { tsc: 2_000_100, monotonic_raw_ns: 1_500_000, realtime_ns: 0 };
        let times = Times { from: (100, 500_000), now };
        let object = |tsc| Allocated {
            tsc,
            freed_tsc: Some(tsc),
            pid: 1,
            tid: 1,
            address: 0,
            bytes: 0,
            frames: vec![],
        };
        let mut ticks = [object(1_000_100)];
        times.convert_ticks(&mut ticks, TraceClock::Tsc);
        assert_eq!((ticks[0].tsc, ticks[0].freed_tsc), (1_000_100, Some(1_000_100)));
        times.convert_ticks(&mut ticks, TraceClock::MonotonicRaw);
        assert_eq!((ticks[0].tsc, ticks[0].freed_tsc), (1_000_000, Some(1_000_000)));
        times.convert_ns(&mut ticks, TraceClock::MonotonicRaw);
        assert_eq!(ticks[0].tsc, 1_000_000);
        times.convert_ns(&mut ticks, TraceClock::Tsc);
        assert_eq!((ticks[0].tsc, ticks[0].freed_tsc), (1_000_100, Some(1_000_100)));
    }
}
