//! The periods that a session samples with on one CPU: fixed, adapted to a wished rate, randomised.
//!
//! They change only between two spans, so that one period holds for all records of a quantum.
//!
//! **Randomised** (EventSpec::RANDOMISE): a program that repeats itself every few events is sampled at few of its places
//! when the period is a multiple of its own, or nearly (Schneider, thesis, §3.5). So the low bits are drawn anew, both of the
//! reset value and of the first interval: whenever a thread comes to a CPU where another one was measured since it left, with each
//! segment, and at the cut that ends 48 records, or one with a stack. Intervals lie within one sixteenth around the nominal period,
//! their mean is the nominal period. The first interval is moved by a shift that belongs to the thread, and each new shift
//! replaces the last one, so that records × periods never stray from the count by more than one sixteenth of a period.
//! A thread that is new, or has no place for its positions, begins anywhere in an interval: one that counts a quarter of a
//! period has a record in one of four runs, and records × periods are right in the mean however short threads live. Without
//! randomising it begins with a whole period, so that the first record comes where it is expected.
//!
//! **Adapted** (EventSpec::rate): p·M/L of §3.4.3, with a moving average. M is taken from the events counted instead of the
//! records written (M = events / p), which is the same without the rounding: the new period is the events of about the
//! last 100 ms divided by the samples wished for that time. The rest of an interval that began with another period is brought
//! to the new one in proportion: each CPU adapts its own, and a thread that ended the rest of a short one where the period is
//! long would have a record that stands for far more than was counted, at every move.

use core::sync::atomic::{AtomicI64, Ordering};

use super::abi::{EventSpec, SAMPLING_COUNTERS_MAX};
use super::events::PERIOD_MIN;
use super::hybrid;
use super::program::{Program, SamplingCounter};
use super::threads::Positions;

/// The moving average weighs half when it is this old, in ms.
const AVERAGE_MS: u64 = 100;
/// Rates are looked at when the session has run for so long since the last time, in ms: at each cut it would be a fifteenth of the
/// cut's instructions.
const LOOK_MS: u64 = 20;
/// Highest rate that can be wished, samples per second and CPU.
pub const RATE_MAX: u64 = 1_000_000;
/// A period is kept until the wished one is further away than this part of it: each change costs register writes.
const KEPT_PART: u64 = 32;
/// Least part of itself that a period becomes at once, because events may come back.
const SMALLEST_STEP: u64 = 8;
/// Least events to its overflow with which a counter is set: certain processors do not take one (Linux:
/// `x86_perf_event_set_period`). Positions are kept by counts, so that a record which comes an event late moves no other; what
/// a thread lacks that never counts two events in one stay is lost, and said to be.
pub(super) const LEFT_MIN: i64 = 2;
/// Records after which a thread that stays on its CPU has its intervals drawn anew, at the next cut, to whose instructions a draw adds a
/// third. The thesis draws about twice a second (§3.5).
pub(super) const RECORDS_A_DRAW: u64 = 48;
/// An interval is drawn from the range of a power of two that is at most this part of the period.
const RANDOM_PART: u64 = 8;

/// The periods that a sampler takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// What they are multiples of.
    pub unit: u64,
    /// The shortest.
    pub least: u64,
    /// The longest, which is one of the grid.
    pub most: u64,
}

impl Grid {
    /// The period of the grid that is at most this one, where there is one.
    const fn below(self, period: u64) -> u64 {
        let period = match period.checked_rem(self.unit) {
            Some(rest) => period - rest,
            None => period,
        };
        if period < self.least {
            self.least
        } else if period > self.most {
            self.most
        } else {
            period
        }
    }
}

/// What an event has counted lately, the less of it the older it is.
#[derive(Clone, Copy, Debug)]
struct Average {
    events: u64,
    ticks: u64,
}

/// The periods of a session's sampled events on one CPU, by their places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Periods {
    nominal: [u64; SAMPLING_COUNTERS_MAX],
    in_use: [u64; SAMPLING_COUNTERS_MAX],
    averages: [Average; SAMPLING_COUNTERS_MAX],
    /// What each event, and the TSC, had counted while the session ran, when rates were last looked at; and records since.
    looked_events: [u64; SAMPLING_COUNTERS_MAX],
    looked_ticks: u64,
    unlooked_records: u64,
    /// State of an xorshift generator; 0 before its first use.
    random: u64,
    /// The span that begins is to have other periods than the last one.
    stale: bool,
    /// Records since they were drawn.
    records: u64,
}

impl Periods {
    /// Those that were asked for.
    pub(super) fn new(program: &Program) -> Self {
        let nominal = hybrid::periods(program.config());
        Self::of(nominal)
    }

    const fn of(nominal: [u64; SAMPLING_COUNTERS_MAX]) -> Self {
        Self {
            nominal,
            in_use: nominal,
            averages: [Average { events: 0, ticks: 0 }; SAMPLING_COUNTERS_MAX],
            looked_events: [0; SAMPLING_COUNTERS_MAX],
            looked_ticks: 0,
            unlooked_records: 0,
            random: 0,
            stale: false,
            records: 0,
        }
    }

    /// Events from one record to the next in the span that begins, or has begun.
    pub(super) const fn in_use(&self) -> &[u64; SAMPLING_COUNTERS_MAX] {
        &self.in_use
    }

    /// Whether the counters are to be set anew for the span that begins.
    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// A span with so many records has ended.
    pub(super) fn note_drain(&mut self, program: &Program, records: u64) {
        self.records += records;
        self.stale |= self.records >= program.records_a_draw();
    }

    /// TSC ticks since rates were last looked at, if they are to be now that the session has run for so many `ticks`, of `tsc_khz` a
    /// millisecond, and so many more records have come.
    pub(super) fn look(&mut self, program: &Program, ticks: u64, records: u64, tsc_khz: u64) -> Option<u64> {
        self.unlooked_records += records;
        let passed = ticks.wrapping_sub(self.looked_ticks);
        // Half of them, because a PMI for them may come so much earlier.
        let enough = self.unlooked_records >= program.records_a_look() / 2;
        (passed >= LOOK_MS * tsc_khz || enough).then(|| {
            (self.looked_ticks, self.unlooked_records) = (ticks, 0);
            passed
        })
    }

    /// Takes note of what an event has counted until now, and adapts its period to the wished rate in samples per second. `passed`: TSC
    /// ticks since that was last done. `limit` is the longest period that the counter can have.
    pub(super) fn adapt(&mut self, place: usize, counted: u64, passed: u64, wish: Wish, limit: u64) {
        let before = core::mem::replace(&mut self.looked_events[place], counted);
        let average = &mut self.averages[place];
        average.events = average.events.saturating_add(counted.wrapping_sub(before));
        average.ticks = average.ticks.saturating_add(passed);
        let rate = wish.rate.min(RATE_MAX);
        // A low rate is known only after some samples' time.
        let window_ms = AVERAGE_MS.max(2000_u64.checked_div(rate).unwrap_or(0));
        while average.ticks > window_ms * wish.tsc_khz {
            average.events /= 2;
            average.ticks /= 2;
        }
        // Samples wished for that time, times 1000.
        let Some(wished) = (average.ticks * rate).checked_div(wish.tsc_khz) else { return };
        let nominal = self.nominal[place];
        if wished < 1000 {
            return;
        }
        let period = average.events.saturating_mul(1000).checked_div(wished).unwrap_or(nominal);
        let period = period.max(nominal / SMALLEST_STEP).clamp(PERIOD_MIN, limit);
        if period.abs_diff(nominal) > nominal / KEPT_PART {
            self.nominal[place] = period;
            self.stale = true;
        }
    }

    /// Events to the first records of a thread that is new, or has no place for its positions.
    pub(super) fn first(&mut self, program: &Program, seed: u64) -> Positions {
        let mut first = self.in_use.map(|period| period as i64);
        for (place, event) in hybrid::sampled(program.config()).enumerate().take(SAMPLING_COUNTERS_MAX) {
            if event.flags & EventSpec::RANDOMISE != 0 {
                first[place] = self.draw_first(place, seed);
            }
        }
        Positions { left: first, periods: self.in_use }
    }

    /// Fixes the periods of the span that begins, and moves the first intervals from the thread's positions: `shift` gives the
    /// place of the thread's shift, where it has one. `seed` is any number; only the first one counts.
    pub(super) fn renew<'a>(
        &mut self,
        program: &Program,
        positions: &mut Positions,
        shift: impl Fn(usize) -> Option<&'a AtomicI64>,
        seed: u64,
    ) {
        (self.stale, self.records) = (false, 0);
        for sampler in program.sampling_counters() {
            let place = usize::from(sampler.place);
            self.in_use[place] = self.draw(sampler, seed);
            let shift = shift(place).filter(|_| sampler.randomise);
            self.go_on(sampler, positions, shift, seed);
        }
    }

    /// Moves the thread's position to the period in force, with a new shift in place of the last one.
    fn go_on(
        &mut self,
        sampler: &SamplingCounter,
        positions: &mut Positions,
        shift: Option<&AtomicI64>,
        seed: u64,
    ) {
        let place = usize::from(sampler.place);
        let nominal = self.nominal[place];
        let (left, began_with) = (positions.left[place], positions.periods[place]);
        positions.periods[place] = nominal;
        let new = shift.map_or(0, |_| self.draw_shift(place, seed));
        let old = shift.map_or(0, |shift| in_proportion(shift.load(Ordering::Relaxed), began_with, nominal));
        // None is further away than the counter can be set.
        let most = i64::try_from(sampler.grid.most).unwrap_or(i64::MAX);
        let rest = in_proportion(left, began_with, nominal).max(1);
        let moved = rest - old + new;
        let (rest, kept) = if left <= 0 {
            // A record that is due comes when it is due.
            (left, old)
        } else if (1..=most).contains(&moved) {
            (moved, new)
        } else if old.unsigned_abs() > range(nominal) / 2 {
            // Drawn from a range that was wider in proportion, so that none of this one's might ever take its place.
            ((rest - old).clamp(1, most), 0)
        } else {
            (rest.min(most), old)
        };
        positions.left[place] = rest;
        if let Some(shift) = shift {
            shift.store(kept, Ordering::Relaxed);
        }
    }

    fn draw(&mut self, sampler: &SamplingCounter, seed: u64) -> u64 {
        let nominal = self.nominal[usize::from(sampler.place)];
        let range = range(nominal);
        if sampler.randomise {
            sampler.grid.below(nominal - range / 2 + (self.random(seed) & (range - 1)))
        } else {
            sampler.grid.below(nominal)
        }
    }

    fn draw_shift(&mut self, place: usize, seed: u64) -> i64 {
        let range = range(self.nominal[place]);
        (self.random(seed) & (range - 1)) as i64 - (range / 2) as i64
    }

    /// A place in an interval of the period in use, any as likely as the others: the events from there to its end.
    fn draw_first(&mut self, place: usize, seed: u64) -> i64 {
        let (period, random) = (self.in_use[place], self.random(seed));
        // The number has 32 bits, and a product must not have more than 64.
        let drawn = if period >> 32 == 0 { (random * period) >> 32 } else { (random * (period >> 16)) >> 16 };
        1 + drawn as i64
    }

    /// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016): the high
    /// half, whose bits are the better ones.
    fn random(&mut self, seed: u64) -> u64 {
        let mut state = if self.random == 0 { seed | 1 } else { self.random };
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random = state;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }
}

/// What a rate is asked for in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Samples per second of time on this CPU.
    pub(super) rate: u64,
    /// TSC ticks per millisecond.
    pub(super) tsc_khz: u64,
}

/// So many events of one period, as the same part of another, rounded. As they are where the period is not known.
fn in_proportion(events: i64, of: u64, to: u64) -> i64 {
    if of == to {
        return events;
    }
    let whole = events.unsigned_abs();
    let (Some(times), Some(rest)) = (whole.checked_div(of), whole.checked_rem(of)) else { return events };
    // Periods have at most 48 bits, so that at least 15 of the rest's are kept.
    let bits = |value: u64| u64::BITS - value.leading_zeros();
    let cut = (bits(rest) + bits(to)).saturating_sub(u64::BITS - 1);
    let of = of >> cut;
    let part = ((rest >> cut) * to + of / 2).checked_div(of).unwrap_or(0);
    events.signum() * times.saturating_mul(to).saturating_add(part) as i64
}

/// Width of the range that intervals are drawn from: a power of two, at least 1.
fn range(period: u64) -> u64 {
    let part = (period / RANDOM_PART).clamp(1, 1 << 31);
    1 << part.ilog2()
}

#[cfg(test)]
mod tests;
