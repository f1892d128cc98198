//! Profile control with a profile for each behaviour, beyond the paper's one buffer for everything (§3.3).
//!
//! Counters go on while profiling pauses, so that what a paused interval did is known once it is over: its densities say which
//! behaviour it was, and what was recorded of that behaviour stands for it. Only whether to record has to be decided beforehand.

use super::interval::Interval;
use super::level::Signal;
use super::metrics::Profile;

/// Behaviours that are told apart; further ones are counted to the nearest.
pub const BEHAVIOURS: usize = 32;

/// The part of all intervals that is recorded, as a part of 2^64: 36 %.
const SHARE: u64 = (u64::MAX / 100) * 36;
/// For how many times as many intervals as each on average a recorded one may stand.
const AT_ONCE: f64 = 1.5;
/// The golden ratio's fraction of 2^64. Its multiples are spread evenly, and beat with no period (Weyl; Knuth, The Art of Computer
/// Programming, 6.4), so that of each behaviour as large a part is recorded, however it alternates with others.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Its first intervals that are all recorded.
const FIRST: u32 = 2;
/// Densities of one behaviour differ from its mean by at most this part of it, or so many of its usual differences.
const NEAR: f64 = 0.1;
const USUAL: f64 = 3.0;
/// With how much of a density a behaviour's mean follows it, once it has seen as many.
const FOLLOW: f64 = 0.05;

#[derive(Clone, Copy, Debug, Default)]
struct Behaviour {
    mean: f64,
    /// Usual difference from the mean, as a part of it.
    spread: f64,
    intervals: u32,
    recorded: u32,
}

/// Decides, interval by interval, whether the next one's profile is taken, and says of each which behaviour it was. Constant memory.
#[derive(Clone, Debug)]
pub struct BehaviourControl {
    signal: Signal,
    known: Vec<Behaviour>,
    /// The last interval's.
    current: Option<usize>,
    /// Whether the next one is recorded.
    records: bool,
    /// Multiples of [`GOLDEN`].
    turn: u64,
}

impl BehaviourControl {
    /// A control that has seen nothing. Behaviours are told apart by the signal's first event.
    #[must_use]
    pub fn new(signal: Signal) -> Self {
        Self { signal, known: Vec::with_capacity(BEHAVIOURS), current: None, records: true, turn: 0 }
    }

    /// Whether the next interval's profile is to be taken.
    pub fn decide(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(GOLDEN);
        let is_new = self.current.is_none_or(|current| self.known[current].recorded < FIRST);
        self.records = is_new || self.turn < SHARE;
        self.records
    }

    /// Takes the interval for which [`BehaviourControl::decide`] decided; returns the number of its behaviour, or `None` when that
    /// cannot be known: then nothing can stand for it.
    pub fn learn(&mut self, interval: &Interval) -> Option<usize> {
        let density = self.signal.density(interval)?;
        let place = self.place_of(density);
        let behaviour = &mut self.known[place];
        behaviour.take(density);
        behaviour.recorded = behaviour.recorded.saturating_add(self.records.into());
        self.current = Some(place);
        Some(place)
    }

    /// The behaviour with the nearest mean, if it is near enough; else a new one.
    fn place_of(&mut self, density: f64) -> usize {
        let mut nearest: Option<(usize, f64)> = None;
        for (place, behaviour) in self.known.iter().enumerate() {
            let distance = (density - behaviour.mean).abs() / behaviour.mean.abs().max(f64::MIN_POSITIVE);
            if nearest.is_none_or(|(_, least)| distance < least) {
                nearest = Some((place, distance));
            }
        }
        match nearest {
            Some((place, distance)) if distance <= self.known[place].reach() => place,
            Some((place, _)) if self.known.len() == BEHAVIOURS => place,
            _ => {
                self.known.push(Behaviour { mean: density, ..Behaviour::default() });
                self.known.len() - 1
            }
        }
    }

    /// Behaviours that have been told apart.
    #[must_use]
    pub fn behaviours(&self) -> usize {
        self.known.len()
    }
}

impl Behaviour {
    fn reach(&self) -> f64 {
        NEAR.max(USUAL * self.spread)
    }

    fn take(&mut self, density: f64) {
        self.intervals = self.intervals.saturating_add(1);
        let weight = FOLLOW.max(1.0 / f64::from(self.intervals));
        self.mean += weight * (density - self.mean);
        if self.mean > 0.0 {
            self.spread += weight * ((density - self.mean).abs() / self.mean - self.spread);
        }
    }
}

/// The profile of a stream of which only some intervals' profiles were taken: a recorded interval stands for itself and for paused ones of
/// its behaviour ([`Shares`]). `recorded` and `behaviours` are what a
/// [`BehaviourControl`] said of each interval; `profiles` has each interval's samples by function, as they would all have been taken.
#[must_use]
pub fn replay_by_behaviour(
    recorded: &[bool],
    behaviours: &[Option<usize>],
    profiles: &[Vec<(u32, u64)>],
) -> Profile {
    let mut result = Profile::default();
    let mut shares = Shares::default();
    for ((&recorded, &behaviour), samples) in recorded.iter().zip(behaviours).zip(profiles) {
        let weight = shares.take(behaviour, recorded);
        if recorded {
            let times = |&(function, samples): &(u32, u64)| (u64::from(function), samples as f64 * weight);
            samples.iter().map(times).for_each(|(function, weight)| result.add(function, weight));
        }
    }
    result
}

/// How much of each behaviour was recorded so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares([Share; BEHAVIOURS]);

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    intervals: u64,
    recorded: u64,
    /// Intervals for which recorded ones stand already.
    stood_for: f64,
}

impl Shares {
    /// Takes note of an interval; returns for how many intervals stands what was recorded in it. Together those recorded stand for all of
    /// their behaviour but the last paused ones; a single one for at most 1.5 times as many as there have been for each, because
    /// one that stood for many would bring its own chance into all of them. 1 where the behaviour is not known.
    pub fn take(&mut self, behaviour: Option<usize>, recorded: bool) -> f64 {
        let Some(share) = behaviour.and_then(|behaviour| self.0.get_mut(behaviour)) else { return 1.0 };
        share.intervals += 1;
        if !recorded {
            return 1.0;
        }
        share.recorded += 1;
        let intervals = share.intervals as f64;
        let most = AT_ONCE * intervals / share.recorded as f64;
        let weight = (intervals - share.stood_for).min(most).max(1.0);
        share.stood_for += weight;
        weight
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{Stream, labelled_set};
    use super::super::{Base, metrics::profiling_rate};
    use super::*;

    fn stream(name: &str, noise: f64) -> Stream {
        labelled_set(noise).into_iter().find(|recipe| recipe.name == name).unwrap().stream(4000, 1)
    }

    fn control(stream: &Stream) -> (Vec<bool>, Vec<Option<usize>>, usize) {
        let mut control = BehaviourControl::new(Signal::new(&[0], Base::Time));
        let (mut recorded, mut behaviours) = (Vec::new(), Vec::new());
        for interval in &stream.intervals {
            recorded.push(control.decide());
            behaviours.push(control.learn(interval));
        }
        (recorded, behaviours, control.behaviours())
    }

    #[test]
    fn behaviours_are_those_of_the_recipe() {
        let stream = stream("steps", 0.02);
        let (recorded, behaviours, number) = control(&stream);
        assert_eq!(number, 3);
        let of = |label: usize| {
            let of_label = behaviours.iter().zip(&stream.labels).filter(|(_, one)| **one == label);
            let mut all: Vec<_> = of_label.map(|(behaviour, _)| *behaviour).collect();
            all.dedup();
            all
        };
        assert_eq!([of(0), of(1), of(2)], [vec![Some(0)], vec![Some(1)], vec![Some(2)]]);
        let rate = profiling_rate(recorded);
        assert!((0.34..0.4).contains(&rate), "{rate}");
    }

    #[test]
    fn what_is_paused_is_stood_for_by_its_own_behaviour() {
        for (name, noise) in [("steps", 0.01), ("irregular", 0.2), ("short", 0.05), ("drift and steps", 0.2)]
        {
            let stream = stream(name, noise);
            let (recorded, behaviours, _) = control(&stream);
            let mut canonical = Profile::default();
            for &(function, samples) in stream.profiles.iter().flatten() {
                canonical.add(function.into(), samples as f64);
            }
            let coverage = replay_by_behaviour(&recorded, &behaviours, &stream.profiles).coverage(&canonical);
            assert!(coverage > 0.96, "{name}: {coverage}");
        }
    }

    #[test]
    fn what_is_recorded_of_a_behaviour_stands_for_all_of_it() {
        let profiles = [vec![(1, 10)], vec![(2, 4)], vec![(2, 4)], vec![(7, 9)], vec![(3, 2)]];
        let behaviours = [Some(0), Some(1), Some(1), None, None];
        let profile = replay_by_behaviour(&[true, false, true, false, true], &behaviours, &profiles);
        let mut expected = Profile::default();
        [(1, 10.0), (2, 8.0), (3, 2.0)]
            .into_iter()
            .for_each(|(function, weight)| expected.add(function, weight));
        assert_eq!(profile, expected);
        assert_eq!(Shares::default().take(Some(BEHAVIOURS), false), 1.0);
    }

    #[test]
    fn many_behaviours_share_what_there_is() {
        let mut control = BehaviourControl::new(Signal::new(&[0], Base::Time));
        for count in 0..2 * BEHAVIOURS as u64 {
            control.decide();
            let counts =
                std::array::from_fn(|event| if event == 0 { 10 * 2_u64.pow(count as u32 % 60) } else { 0 });
            let place = control.learn(&Interval { on_cpu: 1000, counts, ..Interval::default() });
            assert!(place.is_some_and(|place| place < BEHAVIOURS));
        }
        assert_eq!(control.behaviours(), BEHAVIOURS);
        assert_eq!(control.learn(&Interval::default()), None, "no time on a CPU");
    }
}
