//! Confidence and the possible miss rate (§4.1).

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::level::MAJOR_LEVEL;
use super::super::shape::PatternKey;
use super::super::{Occurrence, Step};
use super::regularity::{Regularity, clusters};
use super::similarity::{Segments, Unit};

/// Instances are compared by at least so many densities.
const LENGTH_MIN: usize = 4;
/// Instances without which a group has no quality once one is removed.
const INSTANCES_MIN: usize = 3;
/// Of larger groups the first instances are evaluated.
const INSTANCES_MAX: usize = 1000;

/// All instances of one pattern: G(P).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The pattern's level.
    pub level: u8,
    /// Densities by which instances are compared.
    pub length: usize,
    /// Variations that the pattern's codes describe, fewer than `length`.
    pub codes: usize,
    /// Index of each instance's first density, rising.
    pub starts: Vec<usize>,
}

/// The metrics of a detection. Rates are NaN when there is nothing to evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quality {
    /// Different patterns.
    pub patterns: usize,
    /// Occurrences of all patterns.
    pub occurrences: usize,
    /// Occurrences of patterns with fewer than three, which are not evaluated.
    pub rare: usize,
    /// Confidence, 0 to 1.
    pub confidence: f64,
    /// Possible miss rate, 0 to 1.
    pub pmr: f64,
    /// The same over the patterns of the major levels.
    pub pmr_major: f64,
}

/// The groups of a detection.
#[must_use]
pub fn groups(steps: &[Step]) -> Vec<Group> {
    let mut groups: BTreeMap<PatternKey, Group> = BTreeMap::new();
    for &Occurrence { key, first, .. } in steps.iter().filter_map(|step| step.occurrence.as_ref()) {
        let codes = key.codes();
        let length = LENGTH_MIN.max(codes + 1);
        let group = || Group { level: key.level(), length, codes, starts: Vec::new() };
        // The density before the first variation belongs to it; a variation always has one before it.
        let start = first as usize - 1;
        // What reaches beyond the end, or into an interval whose density is not known, cannot be compared.
        let described = steps.get(start..start + length);
        if described.is_some_and(|steps| steps.iter().all(|step| step.density.is_some())) {
            groups.entry(key).or_insert_with(group).starts.push(start);
        }
    }
    groups.into_values().collect()
}

/// The level of each interval's variation; `None` where it is not known.
#[must_use]
pub fn levels(steps: &[Step]) -> Vec<Option<u8>> {
    steps.iter().map(|step| step.variation.map(|variation| variation.level)).collect()
}

/// Evaluates groups on the stream they were found in: the densities (NaN where unknown), the levels of their variations, and the time at
/// which each interval began, in units of the mean interval. All have one value for each interval.
#[must_use]
pub fn evaluate(densities: &[f64], levels: &[Option<u8>], clock: &[f64], groups: &[Group]) -> Quality {
    let stream = Stream { densities, levels, clock };
    let occurrences = groups.iter().map(|group| group.starts.len()).sum();
    let mut total = Sums::default();
    let mut major = Sums::default();
    for group in groups {
        let Some(sums) = Judge::new(stream, group).map(|mut judge| judge.sums()) else { continue };
        total.add(sums);
        if group.level >= MAJOR_LEVEL {
            major.add(sums);
        }
    }
    let rare = |group: &&Group| group.starts.len() < INSTANCES_MIN;
    Quality {
        patterns: groups.len(),
        occurrences,
        rare: groups.iter().filter(rare).map(|group| group.starts.len()).sum(),
        confidence: total.confidence / total.instances as f64,
        pmr: total.miss_rate(),
        pmr_major: major.miss_rate(),
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    confidence: f64,
    instances: usize,
    missed: usize,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.confidence += other.confidence;
        self.instances += other.instances;
        self.missed += other.missed;
    }

    fn miss_rate(self) -> f64 {
        self.missed as f64 / (self.missed + self.instances) as f64
    }
}

/// What groups were found in.
#[derive(Clone, Copy)]
struct Stream<'a> {
    densities: &'a [f64],
    levels: &'a [Option<u8>],
    clock: &'a [f64],
}

/// Evaluates one group.
struct Judge<'a> {
    stream: Stream<'a>,
    starts: &'a [usize],
    length: usize,
    level: u8,
    codes: usize,
    segments: Segments,
    regularity: Regularity,
    k: usize,
    /// E of the group.
    own: f64,
}

impl<'a> Judge<'a> {
    /// `None` for a group that is too small.
    fn new(mut stream: Stream<'a>, group: &'a Group) -> Option<Self> {
        let starts = &group.starts[..group.starts.len().min(INSTANCES_MAX)];
        if starts.len() < INSTANCES_MIN {
            return None;
        }
        let segments = Segments::new(stream.densities, starts, group.length)?;
        let k = clusters(starts.len() - 1);
        // A group that was cut is looked at no further than it reaches.
        let cut = group.starts.len() > INSTANCES_MAX;
        let end = if cut { starts[INSTANCES_MAX - 1] + group.length } else { stream.densities.len() };
        stream.densities = &stream.densities[..end];
        let &Group { level, codes, length, .. } = group;
        let regularity = Regularity::default();
        let mut judge = Self { stream, starts, length, level, codes, segments, regularity, k, own: 0.0 };
        judge.own = judge.segments.similarity() / judge.deviation(starts.iter().copied());
        Some(judge)
    }

    /// D of instances at these places.
    fn deviation(&mut self, starts: impl Iterator<Item = usize> + Clone) -> f64 {
        let clock = self.stream.clock;
        let pairs = starts.clone().zip(starts.skip(1));
        self.regularity.deviation(pairs.map(|(from, to)| clock[to] - clock[from]), self.k)
    }

    fn sums(&mut self) -> Sums {
        let confidence = (0..self.starts.len()).map(|instance| self.confidence(instance)).sum();
        Sums { confidence, instances: self.starts.len(), missed: self.missed() }
    }

    /// Conf(Pⱼ).
    fn confidence(&mut self, instance: usize) -> f64 {
        let (before, after) = (&self.starts[..instance], &self.starts[instance + 1..]);
        let deviation = self.deviation(before.iter().chain(after).copied());
        let without = self.segments.without(instance) / deviation;
        match (self.own > without, without > 0.0) {
            (true, _) => 1.0,
            (false, true) => self.own / without,
            // Neither resembles anything.
            (false, false) => 0.0,
        }
    }

    /// Windows that no instance touches, that vary as a pattern of this level does and that make the group better: possible missed
    /// pattern instances.
    fn missed(&mut self) -> usize {
        let mut missed = 0;
        let mut window = 0;
        // Instances before the window.
        let mut before = 0;
        while window + self.length <= self.stream.densities.len() {
            while self.starts.get(before).is_some_and(|&start| start < window) {
                before += 1;
            }
            let next = self.starts.get(before).copied().filter(|&start| start < window + self.length);
            let last = before.checked_sub(1).map(|last| self.starts[last]);
            let last = last.filter(|&start| start + self.length > window);
            if let Some(start) = next.or(last) {
                window = start + self.length;
            } else if self.could_be(window) && self.improves(window, before) {
                missed += 1;
                window += self.length;
            } else {
                window += 1;
            }
        }
        missed
    }

    /// Whether a shape of the pattern's level could begin here: its first variation is of that level, and none that its codes describe
    /// is of a higher one. Correlation alone does not see size: for it the noise of a quiet part looks like any upheaval.
    fn could_be(&self, window: usize) -> bool {
        let described = &self.stream.levels[window + 1..=window + self.codes];
        described.first() == Some(&Some(self.level))
            && described.iter().all(|level| level.is_some_and(|level| level <= self.level))
    }

    /// Whether E grows with the window as a further instance.
    fn improves(&mut self, window: usize, before: usize) -> bool {
        let Some(unit) = Unit::new(&self.stream.densities[window..window + self.length]) else {
            return false;
        };
        let similarity = self.segments.with(&unit);
        // D is at least 1, so that many windows need no clustering.
        if similarity <= self.own {
            return false;
        }
        let (first, rest) = self.starts.split_at(before);
        similarity / self.deviation(first.iter().copied().chain([window]).chain(rest.iter().copied()))
            > self.own
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Base, Detector, Interval, MAX_EVENTS, Rules, Signal};
    use super::*;

    /// A burst of this shape at each of the places, on a level of 10.
    fn stream(length: usize, places: &[usize]) -> Vec<f64> {
        let mut densities = vec![10.0; length];
        for &place in places {
            densities[place..place + 4].copy_from_slice(&[10.0, 40.0, 25.0, 12.0]);
        }
        densities
    }

    fn quality(densities: &[f64], starts: &[usize]) -> Quality {
        let clock: Vec<f64> = (0..densities.len()).map(|index| index as f64).collect();
        let group = Group { level: 3, length: 4, codes: 2, starts: starts.to_vec() };
        evaluate(densities, &levels_of(densities), &clock, &[group])
    }

    /// The rise of a burst is of level 3.
    fn levels_of(densities: &[f64]) -> Vec<Option<u8>> {
        let level = |pair: &[f64]| Some(if (pair[1] - pair[0]).abs() > 20.0 { 3 } else { 1 });
        std::iter::once(None).chain(densities.windows(2).map(level)).collect()
    }

    /// What resembles the pattern and is of another size is no missed instance of it.
    #[test]
    fn a_faint_copy_is_not_missed() {
        let places = [5, 24, 46, 64, 86, 105, 124, 146, 165, 184];
        let mut densities = stream(200, &places);
        densities[105..109].copy_from_slice(&[10.0, 13.0, 11.5, 10.2]);
        let starts: Vec<usize> = places.iter().copied().filter(|&place| place != 105).collect();
        assert_eq!(quality(&densities, &starts).pmr, 0.0);
    }

    const PLACES: [usize; 10] = [5, 25, 45, 65, 85, 105, 125, 145, 165, 185];

    #[test]
    fn a_perfect_detection() {
        let quality = quality(&stream(200, &PLACES), &PLACES);
        assert_eq!((quality.confidence, quality.pmr, quality.pmr_major), (1.0, 0.0, 0.0));
        assert_eq!((quality.patterns, quality.occurrences, quality.rare), (1, 10, 0));
    }

    /// The instance left out is where it would make the group more regular; a window without any likeness is not.
    #[test]
    fn a_missed_instance_is_found() {
        let places = [5, 24, 46, 64, 86, 105, 124, 146, 165, 184];
        let starts: Vec<usize> = places.iter().copied().filter(|&place| place != 105).collect();
        let densities = stream(200, &places);
        let clock: Vec<f64> = (0..200).map(f64::from).collect();
        let group = Group { level: 3, length: 4, codes: 2, starts };
        let levels = levels_of(&densities);
        let mut judge =
            Judge::new(Stream { densities: &densities, levels: &levels, clock: &clock }, &group).unwrap();
        assert!(judge.improves(105, 5) && !judge.improves(113, 5));
        let quality = evaluate(&densities, &levels, &clock, &[group]);
        assert!(quality.pmr >= 0.1 && quality.pmr == quality.pmr_major, "{quality:?}");
    }

    /// A segment that has nothing of the pattern, and where none belongs.
    #[test]
    fn a_wrong_instance_costs_confidence() {
        let mut wrong = PLACES.to_vec();
        wrong.insert(6, 113);
        let quality = quality(&stream(200, &PLACES), &wrong);
        assert!(quality.confidence < 0.99, "{quality:?}");
        assert!(quality.confidence > 0.7, "{quality:?}");
    }

    #[test]
    fn rare_patterns_are_counted_and_not_evaluated() {
        let quality = quality(&stream(200, &PLACES), &PLACES[..2]);
        assert_eq!((quality.occurrences, quality.rare), (2, 2));
        assert!(quality.confidence.is_nan() && quality.pmr.is_nan());
    }

    /// One density that is not known costs the instance that it is in, not the pattern.
    #[test]
    fn an_instance_with_an_unknown_density_is_left_out() {
        let steps = |unknown: Option<usize>| -> Vec<Step> {
            let mut detector = Detector::new(Rules::NoiseGated, Signal::new(&[0], Base::Event(1)));
            let step = |index: usize| {
                let mut counts = [0; MAX_EVENTS];
                counts[0] = if PLACES.contains(&index) { 5000 } else { 1000 };
                counts[1] = if unknown == Some(index) { 0 } else { 1000 };
                detector.push(&Interval { on_cpu: 1000, counts, ..Interval::default() })
            };
            (0..200).map(step).collect()
        };
        let starts = |unknown| -> Vec<usize> {
            groups(&steps(unknown)).iter().map(|group| group.starts.len()).collect()
        };
        // The second density after the first rise is not known, so that this rise and this fall have no four.
        let (all, without) = (starts(None), starts(Some(PLACES[0] + 2)));
        assert_eq!(all.len(), without.len());
        assert!(all.iter().zip(&without).all(|(all, without)| *without + 1 == *all), "{all:?} {without:?}");
        let steps = steps(Some(PLACES[0] + 2));
        let densities: Vec<f64> = steps.iter().map(|step| step.density.unwrap_or(f64::NAN)).collect();
        let clock: Vec<f64> = (0..200).map(f64::from).collect();
        let quality = evaluate(&densities, &levels(&steps), &clock, &groups(&steps));
        assert!(quality.confidence > 0.9, "{quality:?}");
    }

    #[test]
    fn segments_without_any_likeness_deserve_no_confidence() {
        // Rising and falling in turn: their mean correlation is below 0.
        let densities: Vec<f64> = (0..40)
            .map(|index| f64::from(if index / 4 % 2 == 0 { index % 4 } else { 3 - index % 4 }))
            .collect();
        let quality = quality(&densities, &[0, 4, 8, 12]);
        assert_eq!(quality.confidence, 0.0);
    }
}
