//! The clocks that a trace pairs.

use nix::time::{ClockId, clock_gettime};

/// The same moment on three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// Time-stamp counter, in ticks.
    pub tsc: u64,
    /// CLOCK_MONOTONIC_RAW in ns: the clock of the side band.
    pub monotonic_raw_ns: u64,
    /// CLOCK_REALTIME in ns since the epoch.
    pub realtime_ns: u64,
}

impl ClockPair {
    /// Reads the clocks; the tightest of a few tries, so that an interruption between two reads does not spoil the pair.
    #[must_use]
    pub fn now() -> Self {
        let read = || {
            let before = tsc();
            let (monotonic_raw_ns, realtime_ns) =
                (clock_ns(ClockId::CLOCK_MONOTONIC_RAW), clock_ns(ClockId::CLOCK_REALTIME));
            let width = tsc() - before;
            (width, Self { tsc: before + width / 2, monotonic_raw_ns, realtime_ns })
        };
        let tries: [_; 5] = std::array::from_fn(|_| read());
        tries.into_iter().min_by_key(|(width, _)| *width).map(|(_, pair)| pair).expect("five tries")
    }
}

/// The time-stamp counter of this CPU, in ticks.
#[must_use]
pub fn tsc() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 processor; Linux does not set CR4.TSD unless a process asks for it with prctl.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// TSC ticks in a ms, against CLOCK_MONOTONIC_RAW. Takes 2 ms.
#[must_use]
pub fn tsc_per_ms() -> f64 {
    let pair = || (clock_ns(ClockId::CLOCK_MONOTONIC_RAW), tsc());
    let (from_ns, from) = pair();
    loop {
        let (now_ns, now) = pair();
        // Two reads within 2 ms are off by less than a thousandth.
        if now_ns - from_ns >= 2_000_000 {
            return (now - from) as f64 * 1e6 / (now_ns - from_ns) as f64;
        }
    }
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("every Linux since 2.6.28 has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
