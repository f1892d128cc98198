//! How fast this machine's time stamp counter runs, which is how fast the guest's does.

use std::thread::{self, JoinHandle};

/// Measures the time stamp counter in kHz, in the background: it takes a fifth of a second.
///
/// An emulated guest reads this machine's counter, but measures its rate against emulated timers, which on a
/// busy machine can be wrong by a factor of two; all its time is then wrong by that factor. So it is told.
/// `None` when the counter's rate is not constant, or there is none.
pub(crate) fn measure_tsc_khz() -> JoinHandle<Option<u64>> {
    thread::spawn(|| {
        let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let flags = info.lines().find(|line| line.starts_with("flags"))?;
        // Without these quanta would silently use another clock.
        if !["constant_tsc", "nonstop_tsc", "rdtscp"].iter().all(|flag| flags.split(' ').any(|f| f == *flag))
        {
            return None;
        }
        let clock = quanta::Clock::new();
        let ticks: u64 = 1 << 40;
        (ticks * 1_000_000).checked_div(clock.delta_as_nanos(0, ticks))
    })
}
