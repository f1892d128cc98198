//! What keeps sampling from taking a CPU over: ceilings on interrupts, on records and on the time in the handler.
//!
//! Within each window of 100 ms a CPU may spend so much for all sessions together. Once a ceiling is passed, samples are
//! withheld on that CPU until the window is over: counters count on without records or interrupts, and what would have
//! been sampled is counted as lost. So it is when a section of the driver has to serve many PMIs at once. Time in the handler beyond the ceiling is a debt that later windows pay, so that a
//! handler which takes longer than a window, as on a starved virtual CPU, does not come again before the CPU has done
//! something else. A record of PEBS raises no interrupt, so that records have a ceiling of their own: hardware interrupts at the latest after
//! those that the window has left.

/// Length of a window, in ms.
pub const THROTTLE_MS: u64 = 100;
/// Windows in a second.
const WINDOWS: u64 = 1000 / THROTTLE_MS;

/// PMIs that a section serves before samples are withheld.
const IN_ONE_SECTION: u32 = 8;

/// The ceilings of one CPU. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// TSC ticks per millisecond.
    pub tsc_khz: u32,
    /// Interrupts (PMIs) per second.
    pub pmi_rate: u32,
    /// Records per second.
    pub record_rate: u32,
    /// Time in the PMI's handler, in percent.
    pub handler_percent: u32,
}

/// What has been spent in the window that runs. One per CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    begun_tsc: u64,
    pmis: u64,
    records: u64,
    ticks: u64,
    throttled: bool,
}

impl Guard {
    /// A window that has not begun.
    pub(super) const fn new() -> Self {
        Self { begun_tsc: 0, pmis: 0, records: 0, ticks: 0, throttled: false }
    }

    /// Whether samples are withheld now.
    pub(super) const fn is_throttled(&self) -> bool {
        self.throttled
    }

    /// Begins a new window when the last one is over.
    pub(super) fn look(&mut self, now: u64, limits: &Limits) {
        let (elapsed, window) = (now.wrapping_sub(self.begun_tsc), THROTTLE_MS * u64::from(limits.tsc_khz));
        if elapsed < window {
            return;
        }
        let Some(windows) = elapsed.checked_div(window) else { return };
        let ceiling = ticks_allowed(limits);
        let ticks = if ceiling == 0 { 0 } else { self.ticks.saturating_sub(windows.saturating_mul(ceiling)) };
        *self = Self { begun_tsc: now, ticks, throttled: ticks > ceiling, ..Self::new() };
    }

    /// A PMI has come inside a section of the driver, the `nth` one. The work for it ends with counters that run again, so
    /// that a period which the rest of the section counts up to, of an event of the kernel, would keep the CPU in there
    /// for ever, ceilings or not.
    pub(super) fn look_for_storm(&mut self, nth: u32) {
        self.throttled |= nth > IN_ONE_SECTION;
    }

    /// So many records were written.
    pub(super) fn add_records(&mut self, records: u64, limits: &Limits) {
        self.records += records;
        self.throttled |= passes(self.records, limits.record_rate);
    }

    /// Records until the ceiling is passed, at least one.
    pub(super) fn records_left(&self, limits: &Limits) -> u64 {
        match limits.record_rate {
            0 => u64::MAX,
            rate => (u64::from(rate) / WINDOWS + 1).saturating_sub(self.records).max(1),
        }
    }

    /// A PMI was handled, which took so many TSC ticks.
    pub(super) fn add_pmi(&mut self, ticks: u64, limits: &Limits) {
        self.pmis += 1;
        self.ticks = self.ticks.saturating_add(ticks);
        let ceiling = ticks_allowed(limits);
        self.throttled |= passes(self.pmis, limits.pmi_rate) || ceiling != 0 && self.ticks > ceiling;
    }
}

/// TSC ticks of a window that the handler may take; 0 for no ceiling.
fn ticks_allowed(limits: &Limits) -> u64 {
    THROTTLE_MS * u64::from(limits.tsc_khz) / 100 * u64::from(limits.handler_percent)
}

fn passes(spent: u64, rate: u32) -> bool {
    rate != 0 && spent * WINDOWS > u64::from(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { tsc_khz: 1_000_000, pmi_rate: 1000, record_rate: 20_000, handler_percent: 25 };
    const WINDOW: u64 = 100_000_000;

    fn begun() -> Guard {
        let mut guard = Guard::new();
        guard.look(WINDOW, &LIMITS);
        guard
    }

    #[test]
    fn each_ceiling_throttles_until_the_window_is_over() {
        let spend: [&dyn Fn(&mut Guard); 3] = [
            &|guard| (0..101).for_each(|_| guard.add_pmi(0, &LIMITS)),
            &|guard| guard.add_records(2001, &LIMITS),
            &|guard| guard.add_pmi(WINDOW / 4 + 1, &LIMITS),
        ];
        for spend in spend {
            let mut guard = begun();
            spend(&mut guard);
            assert!(guard.is_throttled());
            guard.look(2 * WINDOW - 1, &LIMITS);
            assert!(guard.is_throttled());
            guard.look(2 * WINDOW, &LIMITS);
            assert!(!guard.is_throttled());
        }
    }

    #[test]
    fn a_handler_slower_than_a_window_is_paid_for_in_later_ones() {
        let mut guard = begun();
        guard.add_pmi(2 * WINDOW, &LIMITS);
        // Two windows in the handler are a quarter of eight.
        for passed in 2..8 {
            guard.look((1 + passed) * WINDOW, &LIMITS);
            assert_eq!(guard.is_throttled(), passed < 7, "after {passed} windows");
        }
        let none = Limits { handler_percent: 0, ..LIMITS };
        guard.add_pmi(100 * WINDOW, &LIMITS);
        guard.look(20 * WINDOW, &none);
        assert!(!guard.is_throttled(), "an administrator has lifted the ceiling");
    }

    #[test]
    fn the_record_that_passes_the_ceiling_is_the_last_one_left() {
        let mut guard = begun();
        for records in [1999, 1] {
            guard.add_records(records, &LIMITS);
            assert!(!guard.is_throttled());
        }
        assert_eq!(guard.records_left(&LIMITS), 1);
        guard.add_records(1, &LIMITS);
        assert!(guard.is_throttled());
        assert_eq!(guard.records_left(&Limits { record_rate: 0, ..LIMITS }), u64::MAX);
    }

    #[test]
    fn what_stays_below_or_has_no_ceiling_is_let_through() {
        let mut guard = begun();
        (0..100).for_each(|_| guard.add_pmi(WINDOW / 400, &LIMITS));
        guard.add_records(2000, &LIMITS);
        assert!(!guard.is_throttled());
        let none = Limits { tsc_khz: LIMITS.tsc_khz, ..Limits::default() };
        guard.add_records(1 << 40, &none);
        guard.add_pmi(WINDOW, &none);
        assert!(!guard.is_throttled());
    }
}
