//! Streams whose phases are known: for tests, benchmarks and the tables of `docs/phases.md`.

use std::f64::consts::TAU;

use super::interval::{Interval, MAX_EVENTS};

/// TSC ticks of a synthetic interval: 1 ms at 1 GHz.
pub const TICKS: u64 = 1_000_000;

/// Samples drawn for the profile of one interval.
const SAMPLES: usize = 10;

/// SplitMix64 (Steele, Lea & Flood, OOPSLA 2014): small, and the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.bits()) * limit as u128) >> 64) as usize
    }

    /// Normal with mean 0 and variance 1 (Box & Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// Puts items into random order (Fisher & Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place + 1));
        }
    }
}

/// One way in which a program behaves.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Mean counts of the events in an interval.
    pub counts: Vec<f64>,
    /// Factors of the counts, interval by interval, over and over: the shape within the phase. Empty for none.
    pub shape: Vec<f64>,
    /// Functions and their parts of the time.
    pub functions: Vec<(u32, f64)>,
}

/// How a stream is made.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// What the stream is called in tables.
    pub name: &'static str,
    /// The behaviours.
    pub behaviours: Vec<Behaviour>,
    /// Which behaviour comes after which, over and over, and for how many intervals.
    pub schedule: Vec<(usize, usize)>,
    /// The lengths of the schedule vary uniformly by this part.
    pub jitter: f64,
    /// Standard deviation of the counts, as a part of their mean.
    pub noise: f64,
    /// By which part the counts grow in 1,000 intervals.
    pub drift: f64,
}

/// A stream, and what is known of it.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// The intervals.
    pub intervals: Vec<Interval>,
    /// The behaviour of each interval.
    pub labels: Vec<usize>,
    /// Indices of the intervals at which another behaviour begins.
    pub changes: Vec<usize>,
    /// Samples of each interval: function and number.
    pub profiles: Vec<Vec<(u32, u64)>>,
}

impl Recipe {
    /// Makes a stream of this many intervals.
    #[must_use]
    pub fn stream(&self, intervals: usize, seed: u64) -> Stream {
        let mut random = Random::new(seed);
        let mut stream = Stream::default();
        for &(behaviour, length) in self.schedule.iter().cycle() {
            if stream.labels.last().is_some_and(|&last| last != behaviour) {
                stream.changes.push(stream.labels.len());
            }
            let factor = 1.0 + self.jitter * (2.0 * random.uniform() - 1.0);
            let length = ((length as f64 * factor).round() as usize).max(1);
            for place in 0..length {
                if stream.labels.len() == intervals {
                    return stream;
                }
                self.extend(&mut stream, &mut random, behaviour, place);
            }
        }
        stream
    }

    /// Adds one interval, the `place`-th since its behaviour began.
    fn extend(&self, stream: &mut Stream, random: &mut Random, behaviour: usize, place: usize) {
        let how = &self.behaviours[behaviour];
        let index = stream.labels.len();
        let shape = how.shape.get(place % how.shape.len().max(1)).copied().unwrap_or(1.0);
        let drift = 1.0 + self.drift * index as f64 / 1000.0;
        let mut counts = [0; MAX_EVENTS];
        for (count, mean) in counts.iter_mut().zip(&how.counts) {
            let factor = (1.0 + self.noise * random.normal()).max(0.0);
            *count = (mean * shape * drift * factor).round() as u64;
        }
        let start = index as u64 * TICKS;
        let after_gap = index == 0;
        stream.intervals.push(Interval { start, end: start + TICKS, on_cpu: TICKS, counts, after_gap });
        stream.labels.push(behaviour);
        stream.profiles.push(profile(&how.functions, random));
    }
}

/// Draws the samples of an interval.
fn profile(functions: &[(u32, f64)], random: &mut Random) -> Vec<(u32, u64)> {
    let mut drawn: Vec<(u32, u64)> = functions.iter().map(|&(function, _)| (function, 0)).collect();
    for _ in 0..SAMPLES {
        let mut left = random.uniform();
        let place = functions.iter().position(|&(_, part)| {
            left -= part;
            left < 0.0
        });
        // Rounding may leave a little over, which is the last one's.
        let place = place.unwrap_or(functions.len().saturating_sub(1));
        if let Some((_, samples)) = drawn.get_mut(place) {
            *samples += 1;
        }
    }
    drawn.retain(|&(_, samples)| samples > 0);
    drawn
}

/// A behaviour that differs from others by its place in the list: its own functions, and these counts.
fn behaviour(place: u32, counts: &[f64], shape: &[f64]) -> Behaviour {
    let base = 10 * place;
    let functions = vec![(base, 0.5), (base + 1, 0.25), (base + 2, 0.15), (1000, 0.1)];
    Behaviour { counts: counts.to_vec(), shape: shape.to_vec(), functions }
}

/// The labelled set, at one level of noise: clear and faint steps, bursts within phases, recurrences of irregular length,
/// drift with and without changes, and no change at all.
#[must_use]
pub fn labelled_set(noise: f64) -> Vec<Recipe> {
    let recipe = |name, behaviours, schedule: &[(usize, usize)], jitter, drift| Recipe {
        name,
        behaviours,
        schedule: schedule.to_vec(),
        jitter,
        noise,
        drift,
    };
    let steps = |levels: &[f64]| -> Vec<Behaviour> {
        (0..).zip(levels).map(|(place, &level)| behaviour(place, &[level, 2e5], &[])).collect()
    };
    let (burst, wave) = ([1.0, 1.0, 1.0, 1.8], [0.7, 1.0, 1.3, 1.0]);
    let bursts = vec![behaviour(0, &[1e4, 2e5], &burst), behaviour(1, &[3e4, 2e5], &wave)];
    vec![
        recipe("steps", steps(&[1e4, 4e4, 2e4]), &[(0, 60), (1, 40), (2, 80)], 0.0, 0.0),
        recipe("faint", steps(&[1e4, 1.3e4]), &[(0, 100), (1, 100)], 0.1, 0.0),
        recipe("bursts", bursts, &[(0, 64), (1, 48)], 0.0, 0.0),
        recipe(
            "irregular",
            steps(&[1e4, 3e4, 1.5e4, 6e4]),
            &[(0, 50), (1, 30), (2, 70), (1, 20), (3, 40)],
            0.5,
            0.0,
        ),
        recipe("short", steps(&[1e4, 5e4]), &[(0, 12), (1, 6)], 0.2, 0.0),
        recipe("drift and steps", steps(&[1e4, 2.5e4]), &[(0, 80), (1, 60)], 0.2, 0.5),
        recipe("drift only", steps(&[1e4]), &[(0, 100)], 0.0, 0.5),
        recipe("no change", steps(&[1e4]), &[(0, 100)], 0.0, 0.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_as_their_recipe_says() {
        let [steps, .., none] = &labelled_set(0.0)[..] else { panic!("the set has several recipes") };
        let stream = steps.stream(400, 1);
        assert_eq!(stream.changes, [60, 100, 180, 240, 280, 360]);
        assert_eq!(stream.intervals.len(), 400);
        assert_eq!((stream.labels[59], stream.labels[60], stream.labels[100]), (0, 1, 2));
        assert_eq!([59, 60, 100].map(|index| stream.intervals[index].counts[0]), [10_000, 40_000, 20_000]);
        let samples = |index: usize| stream.profiles[index].iter().map(|&(_, number)| number).sum::<u64>();
        assert_eq!((samples(0), samples(399)), (10, 10));
        assert_eq!(none.stream(400, 1).changes, [0; 0]);
    }

    #[test]
    fn noise_has_the_deviation_asked_for_and_seeds_decide() {
        let none = labelled_set(0.2).pop().unwrap();
        let stream = none.stream(4000, 7);
        let parts: Vec<f64> =
            stream.intervals.iter().map(|interval| interval.counts[0] as f64 / 1e4).collect();
        let mean = parts.iter().sum::<f64>() / 4000.0;
        let deviation = (parts.iter().map(|part| (part - mean).powi(2)).sum::<f64>() / 4000.0).sqrt();
        assert!((mean - 1.0).abs() < 0.02 && (deviation - 0.2).abs() < 0.01, "{mean} {deviation}");
        assert_eq!(none.stream(50, 3).intervals, none.stream(50, 3).intervals);
        assert_ne!(none.stream(50, 3).intervals, none.stream(50, 4).intervals);
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<usize> = (0..100).collect();
        Random::new(5).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
