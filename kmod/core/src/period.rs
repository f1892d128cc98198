//! The periods that a session samples with on one CPU: fixed, adapted to a wished rate, randomised.
//!
//! They change only between two spans, so that one period holds for all records of a quantum.
//!
//! **Randomised** (EventSpec::RANDOMISE): a program that repeats itself every few events is sampled at few of its places
//! when the period is a multiple of its own, or nearly (Schneider, thesis, §3.5). So before each span the low bits are drawn
//! anew, both of the reset value and of the first interval. Intervals lie within one sixteenth around the nominal period,
//! their mean is the nominal period. The first interval is moved by a shift that belongs to the thread, and each new shift
//! replaces the last one, so that records × periods never stray from the count by more than one sixteenth of a period.
//! A thread that is new, or has no place for its positions, begins anywhere in an interval: one that counts a quarter of a
//! period has a record in one of four runs, and records × periods are right in the mean however short threads live. Without
//! randomising it begins with a whole period, so that the first record comes where it is expected.
//!
//! **Adapted** (EventSpec::rate): p·M/L of §3.4.3, with a moving average. M is taken from the events counted instead of the
//! records written (M = events / p), which is the same without the rounding: the new period is the events of about the
//! last 100 ms divided by the samples wished for that time. An interval that began with a period much longer is cut short.

use core::sync::atomic::{AtomicI64, Ordering};

use super::abi::{EventSpec, SAMPLING_COUNTERS_MAX};
use super::events::PERIOD_MIN;
use super::hybrid;
use super::program::{Program, SamplingCounter};
use super::threads::Positions;

/// The moving average weighs half when it is this old, in ms.
const AVERAGE_MS: u64 = 100;
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

/// What an event has counted lately.
#[derive(Clone, Copy, Debug, Default)]
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
    /// State of an xorshift generator; 0 before its first use.
    random: u64,
    /// The span that begins is to have other periods than the last one.
    stale: bool,
}

impl Periods {
    /// Those that were asked for.
    pub(super) fn new(program: &Program) -> Self {
        let nominal = hybrid::periods(program.config());
        let averages = [Average { events: 0, ticks: 0 }; SAMPLING_COUNTERS_MAX];
        Self { nominal, in_use: nominal, averages, random: 0, stale: false }
    }

    /// Events from one record to the next in the span that begins, or has begun.
    pub(super) const fn in_use(&self) -> &[u64; SAMPLING_COUNTERS_MAX] {
        &self.in_use
    }

    /// Whether the counters are to be set anew for the span that begins.
    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// A span has ended, with records or without.
    pub(super) fn note_drain(&mut self, program: &Program, records: bool) {
        self.stale |= records && program.sampling_counters().any(|sampler| sampler.randomise);
    }

    /// Takes note of what an event has counted in a span of so many TSC ticks, and adapts its period to the wished rate
    /// in samples per second. `limit` is the longest period that the counter can have.
    pub(super) fn adapt(&mut self, place: usize, span: (u64, u64), wish: Wish, limit: u64) {
        let (events, ticks) = span;
        let average = &mut self.averages[place];
        average.events = average.events.saturating_add(events);
        average.ticks = average.ticks.saturating_add(ticks);
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
        first
    }

    /// Fixes the periods of the span that begins, and moves the first intervals: `left` are the events to the thread's next
    /// records, and `shift` gives the place of the thread's shift, where it has one. `seed` is any number; only the first
    /// one counts.
    pub(super) fn renew<'a>(
        &mut self,
        program: &Program,
        left: &mut Positions,
        shift: impl Fn(usize) -> Option<&'a AtomicI64>,
        seed: u64,
    ) {
        self.stale = false;
        for sampler in program.sampling_counters() {
            let place = usize::from(sampler.place);
            self.in_use[place] = self.draw(sampler, seed);
            let shift = shift(place).filter(|_| sampler.randomise);
            left[place] = self.moved(sampler, left[place], shift, seed);
        }
    }

    /// The events to the thread's next record, of which there were `left`, with a new shift in place of the last one.
    fn moved(&mut self, sampler: SamplingCounter, left: i64, shift: Option<&AtomicI64>, seed: u64) -> i64 {
        let place = usize::from(sampler.place);
        let nominal = self.nominal[place];
        let most_drawn = if sampler.randomise { range(nominal) / 2 } else { 0 };
        let new = shift.map_or(0, |_| self.draw_shift(place, seed));
        // A record that is due comes when it is due.
        if left <= 0 {
            return left;
        }
        let old = shift.map_or(0, |shift| shift.load(Ordering::Relaxed));
        let mut unshifted = left - old;
        if sampler.rate != 0 {
            // The rest of an interval that began with a longer period would keep samples away. One that can be drawn now
            // stays whole: else every stay would make intervals shorter, and records stand for more than was counted.
            unshifted = unshifted.min(sampler.grid.below(nominal + most_drawn) as i64);
        }
        // None is further away than the counter can be set.
        let most = i64::try_from(sampler.grid.most).unwrap_or(i64::MAX);
        let moved = unshifted + new;
        let (left, kept) = if (1..=most).contains(&moved) {
            (moved, new)
        } else if old.unsigned_abs() > most_drawn {
            // Drawn for a period so much longer that no shift of this one's would ever take its place.
            (unshifted.clamp(1, most), 0)
        } else {
            ((unshifted + old).clamp(1, most), old)
        };
        if let Some(shift) = shift {
            shift.store(kept, Ordering::Relaxed);
        }
        left
    }

    fn draw(&mut self, sampler: SamplingCounter, seed: u64) -> u64 {
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

/// Width of the range that intervals are drawn from: a power of two, at least 1.
fn range(period: u64) -> u64 {
    let part = (period / RANDOM_PART).clamp(1, 1 << 31);
    1 << part.ilog2()
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::super::allocate::Counter;
    use super::*;

    fn periods(nominal: u64) -> Periods {
        Periods {
            nominal: [nominal; SAMPLING_COUNTERS_MAX],
            in_use: [nominal; SAMPLING_COUNTERS_MAX],
            averages: [Average::default(); SAMPLING_COUNTERS_MAX],
            random: 0,
            stale: false,
        }
    }

    const RANDOMISED: SamplingCounter = SamplingCounter {
        place: 0,
        counter: Counter::at(0),
        event: 0,
        period: 100_000,
        rate: 0,
        randomise: true,
        grid: Grid { unit: 1, least: 1, most: u64::MAX },
    };

    #[test]
    fn no_drawn_period_leaves_the_grid() {
        let grid = Grid { unit: 16, least: 160, most: 1_048_560 };
        for nominal in [160, 1_048_560] {
            let mut periods = periods(nominal);
            for _ in 0..1000 {
                let drawn = periods.draw(SamplingCounter { grid, ..RANDOMISED }, 7);
                assert!((grid.least..=grid.most).contains(&drawn) && drawn % grid.unit == 0, "{drawn}");
            }
        }
    }

    #[test]
    fn drawn_periods_lie_within_a_sixteenth_and_their_mean_is_the_nominal_one() {
        for nominal in [100, 1000, 99_980, 400_000, 1 << 40] {
            let mut periods = periods(nominal);
            let mut sum = 0;
            for _ in 0..10_000 {
                let drawn = periods.draw(RANDOMISED, 12_345);
                assert!(drawn.abs_diff(nominal) <= nominal / 16, "{drawn} for {nominal}");
                sum += u128::from(drawn);
            }
            let mean = (sum / 10_000) as u64;
            assert!(mean.abs_diff(nominal) <= 1 + nominal / 500, "{mean} for {nominal}");
        }
    }

    #[test]
    fn every_low_bit_is_drawn() {
        let mut periods = periods(400_000);
        let mut ones = [0; 15];
        for _ in 0..4096 {
            let shift = periods.draw_shift(0, 1) + (1 << 14);
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += shift >> bit & 1;
            }
        }
        assert!(ones.iter().all(|ones| (1850..2250).contains(ones)), "{ones:?}");
    }

    /// Lets a thread count so many events in each of its stays, and weighs its records; the sum of both.
    fn stays(periods: &mut Periods, sampler: SamplingCounter, mut left: i64, each: &[i64]) -> (i64, i64) {
        let (shift, mut counted, mut weighed) = (AtomicI64::new(0), 0, 0);
        for events in each {
            periods.in_use[0] = periods.draw(sampler, 99);
            left = periods.moved(sampler, left, Some(&shift), 99) - events;
            counted += events;
            while left <= 0 {
                left += periods.in_use[0] as i64;
                weighed += periods.in_use[0] as i64;
            }
        }
        (counted, weighed)
    }

    #[test]
    fn records_stand_for_what_is_counted_however_short_the_stays_are() {
        for (rate, part) in [0, 1000].into_iter().flat_map(|rate| [16, 256, 1000].map(|part| (rate, part))) {
            let mut periods = periods(100_000);
            let sampler = SamplingCounter { rate, ..RANDOMISED };
            let each = std::vec![100_000 / part; 300 * part as usize];
            let (counted, weighed) = stays(&mut periods, sampler, 100_000, &each);
            assert!(
                weighed.abs_diff(counted) * 100 <= counted as u64,
                "{weighed} for {counted}, {part} stays"
            );
        }
    }

    #[test]
    fn a_shift_that_was_drawn_for_a_longer_period_is_soon_replaced() {
        let sampler = SamplingCounter { rate: 1000, ..RANDOMISED };
        for (left, old) in [(300, 6000), (100, -6000)] {
            let (mut periods, shift) = (periods(1000), AtomicI64::new(old));
            let mut left = periods.moved(sampler, left, Some(&shift), 99);
            assert!((1..=1125).contains(&left), "{left}");
            let shifts: std::vec::Vec<i64> = (0..20)
                .map(|_| {
                    left = periods.moved(sampler, 1000, Some(&shift), 99);
                    shift.load(Ordering::Relaxed)
                })
                .collect();
            assert!(shifts.iter().all(|shift| shift.abs() <= 64), "{shifts:?}");
            assert!(shifts.windows(2).any(|two| two[0] != two[1]), "{shifts:?}");
        }
    }

    #[test]
    fn threads_that_live_shorter_than_a_period_are_sampled_as_often_as_they_count() {
        const THREADS: u64 = 20_000;
        for nominal in [1000, 100_000, 1 << 40] {
            let mut periods = periods(nominal);
            let events = nominal as i64 / 4;
            let weighed: i128 = (0..THREADS)
                .map(|_| {
                    let left = periods.draw_first(0, 99);
                    assert!((1..=periods.in_use[0] as i64).contains(&left), "{left}");
                    i128::from(stays(&mut periods, RANDOMISED, left, &[events]).1)
                })
                .sum();
            let counted = i128::from(THREADS) * i128::from(events);
            // Twice the deviation that chance makes.
            assert!(weighed.abs_diff(counted) * 40 <= counted as u128, "{weighed} for {counted}");
        }
    }

    /// 3 GHz.
    const WISH: Wish = Wish { rate: 1000, tsc_khz: 3_000_000 };

    #[test]
    fn the_period_follows_an_event_rate_that_changes_a_hundredfold() {
        let mut periods = periods(10_007);
        // Events in each span of 10 ms, so a tenth of that is the period for 1000 a second.
        for (spans, events) in [(60, 10_000_000), (100, 100_000), (20, 10_000_000)] {
            for _ in 0..spans {
                periods.adapt(0, (events, 30_000_000), WISH, 1 << 47);
            }
            let nominal = periods.nominal[0];
            assert!(nominal.abs_diff(events / 10) <= events / 100, "{nominal} for {events}");
        }
    }

    #[test]
    fn an_event_that_stops_brings_the_period_down_to_the_floor_and_not_below() {
        let mut periods = periods(1 << 30);
        for _ in 0..100 {
            periods.adapt(0, (0, 30_000_000), WISH, 1 << 47);
        }
        assert_eq!(periods.nominal[0], PERIOD_MIN);
    }
}
