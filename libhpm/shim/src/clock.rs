//! Times of entries and exits.

use libhpm::sys::clock::tsc;
use nix::time::{ClockId, clock_gettime};

/// Longest time in ns for which the TSC alone is trusted. A thread that waited or was pre-empted for less is timed too long by it.
const TRUSTED_NS: f64 = 20_000.0;
/// Time in ns after which the clock is set right in any case.
const SET_AFTER_NS: f64 = 1e6;

/// The calling thread's time on a CPU in ns, in user mode and in the kernel.
pub(crate) fn cpu_ns() -> u64 {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The calling thread's time on a CPU in ns, mostly without a system call: between two readings of CLOCK_THREAD_CPUTIME_ID that
/// are at most a ms apart it goes with the TSC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuClock {
    ns_per_tick: f64,
    /// When it was set: time and TSC.
    set_ns: u64,
    set_tsc: u64,
    /// When it was read last.
    last_tsc: u64,
    last_ns: u64,
}

impl CpuClock {
    pub(crate) fn new(tsc_per_ms: f64) -> Self {
        let (set_ns, set_tsc) = (cpu_ns(), tsc());
        Self { ns_per_tick: 1e6 / tsc_per_ms, set_ns, set_tsc, last_tsc: set_tsc, last_ns: set_ns }
    }

    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        let tsc = tsc();
        let since_last = tsc.wrapping_sub(self.last_tsc) as f64 * self.ns_per_tick;
        let since_set = tsc.wrapping_sub(self.set_tsc) as f64 * self.ns_per_tick;
        self.last_tsc = tsc;
        let now = if since_last > TRUSTED_NS || since_set > SET_AFTER_NS {
            self.set(tsc)
        } else {
            self.set_ns + since_set as u64
        };
        // Never backwards: a short wait that the TSC took for work is given back by standing still.
        self.last_ns = now.max(self.last_ns);
        self.last_ns
    }

    #[cold]
    fn set(&mut self, tsc: u64) -> u64 {
        self.set_ns = cpu_ns();
        self.set_tsc = tsc;
        self.set_ns
    }
}

#[cfg(test)]
mod tests {
    use libhpm::sys::clock::tsc_per_ms;

    use super::*;

    #[test]
    fn time_on_a_cpu_leaves_waiting_out() {
        let per_ms = tsc_per_ms();
        let mut clock = CpuClock::new(per_ms);
        let (before, real) = (clock.now(), tsc());
        std::thread::sleep(std::time::Duration::from_millis(200));
        let slept = (tsc() - real) as f64 / per_ms;
        let after = clock.now();
        assert!(slept > 150.0, "{slept} ms");
        assert!(after >= before && ((after - before) as f64) < 100e6, "{} ns", after - before);
    }
}
