extern crate std;

use super::super::allocate::Counter;
use super::*;

fn periods(nominal: u64) -> Periods {
    Periods::of([nominal; SAMPLING_COUNTERS_MAX])
}

const RANDOMISED: SamplingCounter = SamplingCounter {
    place: 0,
    counter: Counter::at(0),
    event: 0,
    period: 100_000,
    rate: 0,
    randomise: true,
    windowed: false,
    grid: Grid { unit: 1, least: 1, most: u64::MAX },
};

#[test]
fn no_drawn_period_leaves_the_grid() {
    let grid = Grid { unit: 16, least: 160, most: 1_048_560 };
    for nominal in [160, 1_048_560] {
        let mut periods = periods(nominal);
        for _ in 0..1000 {
            let drawn = periods.draw(&SamplingCounter { grid, ..RANDOMISED }, 7);
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
            let drawn = periods.draw(&RANDOMISED, 12_345);
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

/// A new thread that is so many events away from its record.
fn at(periods: &Periods, left: i64) -> Positions {
    Positions { left: [left; SAMPLING_COUNTERS_MAX], periods: periods.nominal }
}

/// Lets a thread count so many events in each of its stays, each time on the next CPU, and weighs its records; the sum of both.
fn stays(cpus: &mut [Periods], sampler: SamplingCounter, left: i64, each: &[i64]) -> (i64, i64) {
    let (shift, mut counted, mut weighed) = (AtomicI64::new(0), 0, 0);
    let mut positions = at(&cpus[0], left);
    for (stay, events) in each.iter().enumerate() {
        let periods = &mut cpus[stay % cpus.len()];
        periods.in_use[0] = periods.draw(&sampler, 99);
        periods.go_on(&sampler, &mut positions, Some(&shift).filter(|_| sampler.randomise), 99);
        positions.left[0] -= events;
        counted += events;
        while positions.left[0] <= 0 {
            positions.left[0] += periods.in_use[0] as i64;
            weighed += periods.in_use[0] as i64;
        }
    }
    (counted, weighed)
}

#[test]
fn records_stand_for_what_is_counted_however_short_the_stays_are() {
    for (rate, part) in [0, 1000].into_iter().flat_map(|rate| [16, 256, 1000].map(|part| (rate, part))) {
        let periods = periods(100_000);
        let sampler = SamplingCounter { rate, ..RANDOMISED };
        let each = std::vec![100_000 / part; 300 * part as usize];
        let (counted, weighed) = stays(&mut [periods], sampler, 100_000, &each);
        assert!(weighed.abs_diff(counted) * 100 <= counted as u64, "{weighed} for {counted}, {part} stays");
    }
}

#[test]
fn records_stand_for_what_is_counted_where_cpus_have_periods_of_their_own() {
    // Whole periods, and stays that are far shorter than the longer period.
    for (one, other, events) in [(1000, 1_000_000, 10_000), (100, 1_000_000, 20_000), (1000, 1900, 170)] {
        for randomise in [false, true] {
            let sampler = SamplingCounter { rate: 1000, randomise, ..RANDOMISED };
            let stretch = usize::try_from(other / events * 600).expect("it fits");
            let mut cpus = [periods(one), periods(other)];
            let (counted, weighed) = stays(&mut cpus, sampler, 1, &std::vec![events as i64; stretch]);
            assert!(
                weighed.abs_diff(counted) * 10 <= counted as u64,
                "{weighed} for {counted}, {one} and {other}, randomised: {randomise}"
            );
        }
    }
}

#[test]
fn the_rest_of_an_interval_is_the_same_part_of_another_period() {
    for (events, of, to, rest) in [
        (250, 1000, 400, 100),
        (250, 400, 1000, 625),
        (-15, 1000, 400, -6),
        (7, 10, 5, 4),
        (0, 10, 5, 0),
        (12, 0, 5, 12),
        (1 << 46, 1 << 47, 1 << 47, 1 << 46),
        (1_234_567_890_123, 1 << 44, 1 << 44, 1_234_567_890_123),
        (1 << 46, 1 << 47, 100, 50),
        (50, 100, 1 << 47, 1 << 46),
    ] {
        assert_eq!(in_proportion(events, of, to), rest, "{events} of {of} to {to}");
    }
}

#[test]
fn a_shift_that_was_drawn_for_a_longer_period_is_soon_replaced() {
    let sampler = SamplingCounter { rate: 1000, ..RANDOMISED };
    for (left, old) in [(300, 6000), (100, -6000)] {
        let (mut periods, shift) = (periods(1000), AtomicI64::new(old));
        let mut positions = at(&periods, left);
        positions.periods[0] = 100_000;
        periods.go_on(&sampler, &mut positions, Some(&shift), 99);
        assert!((1..=1125).contains(&positions.left[0]), "{}", positions.left[0]);
        let shifts: std::vec::Vec<i64> = (0..20)
            .map(|_| {
                positions.left[0] = 1000;
                periods.go_on(&sampler, &mut positions, Some(&shift), 99);
                shift.load(Ordering::Relaxed)
            })
            .collect();
        assert!(shifts.iter().all(|shift| shift.abs() <= 64), "{shifts:?}");
        assert!(shifts.windows(2).any(|two| two[0] != two[1]), "{shifts:?}");
    }
}

#[test]
fn a_shift_goes_over_with_its_period_where_a_record_is_due() {
    let sampler = SamplingCounter { rate: 1000, ..RANDOMISED };
    for old in [6_000_000, -6_000_000] {
        let (mut periods, shift) = (periods(100_000), AtomicI64::new(old));
        let mut positions = at(&periods, -3);
        positions.periods[0] = 100_000_000;
        periods.go_on(&sampler, &mut positions, Some(&shift), 99);
        assert_eq!((positions.left[0], shift.load(Ordering::Relaxed)), (-3, old / 1000));
        // The record has come.
        positions.left[0] += 100_000;
        periods.go_on(&sampler, &mut positions, Some(&shift), 99);
        assert!((75_000..125_000).contains(&positions.left[0]), "{}", positions.left[0]);
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
                i128::from(stays(&mut [periods], RANDOMISED, left, &[events]).1)
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
    let mut counted = 0;
    for (spans, events) in [(60, 10_000_000), (100, 100_000), (20, 10_000_000)] {
        for _ in 0..spans {
            counted += events;
            periods.adapt(0, counted, 30_000_000, WISH, 1 << 47);
        }
        let nominal = periods.nominal[0];
        assert!(nominal.abs_diff(events / 10) <= events / 100, "{nominal} for {events}");
    }
}

#[test]
fn an_event_that_stops_brings_the_period_down_to_the_floor_and_not_below() {
    let mut periods = periods(1 << 30);
    for _ in 0..100 {
        periods.adapt(0, 0, 30_000_000, WISH, 1 << 47);
    }
    assert_eq!(periods.nominal[0], PERIOD_MIN);
}
