//! Whether a layout helps, by a control group: of the pairs that are made, some get the layout on trial by chance, the others stay
//! as they were, and the samples that hit either are compared.
//!
//! What a program does from one phase to the next changes both groups alike, so that their ratio shows the layout alone. The samples
//! of a whole pair count, parent and child: what the parents lose by being less dense is seen as well as what the children gain.
//!
//! Each sample of the two groups hits the treated one with probability r·t / (r·t + c), where t and c are how many pairs are in each and r is how
//! many times as often a treated pair misses as one of the control group. Evidence is Robbins's mixture of likelihood ratios
//! (Annals of Mathematical Statistics 41, 1970; Johari et al., Operations Research 70, 2022): under any r the mixture over all others
//! exceeds it twenty-fold with a probability of at most 5 % *at any time*, so that one may look after every sample, and stop as soon as
//! something is clear. The intervals hold simultaneously for all looks; they are wider than those that hold for one look only.
//!
//! Samples of the same object come together: likelihoods are divided by how much more the samples of one object scatter than
//! chance would have it, a quasi-likelihood (McCullagh and Nelder, Generalized Linear Models, 9). With that the error rates are
//! approximate.

use std::collections::HashMap;

use std::sync::LazyLock;

use serde::Serialize;

use super::monitor::Effect;
use crate::analysis::statistics::LEVEL;

/// Ratios that are considered: e to the power of -REACH to REACH, so many steps to each side of 1.
const STEPS: i32 = 96;
const REACH: f64 = 3.0;
/// Standard deviation of the logarithms of ratios in the mixture: effects of this size are found the soonest.
const TYPICAL: f64 = 0.5;

/// A part of the mixture that is smaller by this in its logarithm adds nothing that a number could hold.
const NEGLIGIBLE: f64 = -40.0;

/// What is the same for all trials and samples. Samples come while a program waits: they are weighed together, when somebody looks or when
/// there are more pairs than before.
struct Ratios {
    /// The ratios.
    ratios: Vec<f64>,
    /// The mixture's weight of each; their sum is 1.
    weights: Vec<f64>,
}

static RATIOS: LazyLock<Ratios> = LazyLock::new(|| {
    let density = |log_ratio: f64| (-0.5 * (log_ratio / TYPICAL).powi(2)).exp();
    let all: f64 = log_ratios().map(density).sum();
    Ratios {
        ratios: log_ratios().map(f64::exp).collect(),
        weights: log_ratios().map(|log_ratio| density(log_ratio) / all).collect(),
    }
});

/// Where a pair was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// It has the layout that is on trial.
    Treated,
    /// It is as it would be without.
    Control,
}

/// How many pairs have been put into each group. Pairs of both come from the same population at the same rate and live equally long, so that
/// these numbers stand to each other as those of the live ones do. With another share of the control group a new trial begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Exposure {
    /// With the layout on trial.
    pub treated: u64,
    /// Without.
    pub control: u64,
}

impl Exposure {
    /// One more pair.
    pub fn count(&mut self, group: Group) {
        match group {
            Group::Treated => self.treated += 1,
            Group::Control => self.control += 1,
        }
    }
}

/// How a trial judges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TrialRules {
    /// Relative fall of a pair's misses that has to be shown (with 95 % confidence) for a layout to help: what it costs otherwise, in room and
    /// in collections, no sample of misses shows. From 0 to 1.
    pub gain_min: f64,
    /// Relative rise that has to be shown for a layout to hurt.
    pub tolerance: f64,
    /// Relative fall that a trial looks for. It is over when the samples speak so much for no difference against this one that
    /// a layout which is that good would look so with a probability of `doubt` at most.
    pub worth: f64,
    /// That probability.
    pub doubt: f64,
    /// Samples of both groups, less what repeated hits of the same objects add, after which a trial is over whatever it shows.
    pub samples_max: f64,
}

impl Default for TrialRules {
    /// Most trials of a layout that does nothing are over after 200 to 300 samples of equal groups.
    fn default() -> Self {
        Self { gain_min: 0.0, tolerance: 0.0, worth: 0.25, doubt: 0.1, samples_max: 1000.0 }
    }
}

/// One comparison of a layout with a control group.
#[derive(Clone, Debug)]
pub struct Trial {
    rules: TrialRules,
    exposure: Exposure,
    samples: Exposure,
    /// Logarithms of the likelihoods of all ratios.
    likelihoods: Vec<f64>,
    /// Samples that are not in them yet: all of them came with the pairs that there are.
    pending: Exposure,
    /// How often each object was hit, and the sum of the squares of these.
    hits: HashMap<u64, u64>,
    squares: u64,
    /// Ratios that were never excluded, as places in the list: the intersection of all intervals until now.
    kept: (usize, usize),
}

impl Trial {
    /// Without any samples.
    #[must_use]
    pub fn new(rules: TrialRules) -> Self {
        let ratios = 2 * STEPS as usize + 1;
        Self {
            rules,
            exposure: Exposure::default(),
            samples: Exposure::default(),
            likelihoods: vec![0.0; ratios],
            pending: Exposure::default(),
            hits: HashMap::new(),
            squares: 0,
            kept: (0, ratios - 1),
        }
    }

    /// A sample that hit an object of a group, while so many pairs had been put into the groups. `object` is any number that is
    /// the same for samples of the same object. Before there are pairs in both groups, samples tell nothing and are left out.
    pub fn add(&mut self, group: Group, object: u64, exposure: Exposure) {
        if exposure != self.exposure {
            self.weigh();
            self.exposure = exposure;
        }
        if exposure.treated == 0 || exposure.control == 0 {
            return;
        }
        self.samples.count(group);
        self.pending.count(group);
        let hits = self.hits.entry(object).or_default();
        self.squares += 2 * *hits + 1;
        *hits += 1;
    }

    /// Adds what samples that have come with the same pairs say to the likelihoods.
    fn weigh(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let (hits, misses) = (pending.treated as f64, pending.control as f64);
        if hits + misses == 0.0 {
            return;
        }
        let (treated, control) = (self.exposure.treated as f64, self.exposure.control as f64);
        let alone = hits * treated.ln() + misses * control.ln();
        for ((likelihood, ratio), log_ratio) in
            self.likelihoods.iter_mut().zip(&RATIOS.ratios).zip(log_ratios())
        {
            *likelihood += hits * log_ratio + alone - (hits + misses) * (ratio * treated + control).ln();
        }
        self.exclude();
    }

    /// Samples of each group.
    #[must_use]
    pub fn samples(&self) -> Exposure {
        self.samples
    }

    /// Pairs in each group when the last sample came.
    #[must_use]
    pub fn exposure(&self) -> Exposure {
        self.exposure
    }

    /// How a treated pair's misses differ from those of one of the control group, as a share of these: the interval's low end, the likeliest, and
    /// the high end, from -1 for none. `None` without samples. The interval holds with 95 % confidence whenever one looks.
    #[must_use]
    pub fn change(&mut self) -> Option<(f64, f64, f64)> {
        self.weigh();
        if self.effective() == 0.0 {
            return None;
        }
        let relative = |place: usize| log_ratio(place).exp_m1();
        let (low, high) = self.kept;
        let likeliest = (low..=high)
            .max_by(|&one, &other| self.likelihoods[one].total_cmp(&self.likelihoods[other]))
            .unwrap_or(low);
        Some((relative(low), relative(likeliest), relative(high)))
    }

    /// What is shown by now.
    #[must_use]
    pub fn effect(&mut self) -> Effect {
        match self.change() {
            None => Effect::Waiting,
            Some(change) if change.2 < -self.rules.gain_min => Effect::Helped { change },
            Some(change) if change.0 > self.rules.tolerance => Effect::Hurt { change },
            Some(change) => Effect::Unclear { change },
        }
    }

    /// Whether there were as many samples as there may be.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.effective() >= self.rules.samples_max
    }

    /// Whether a trial has lasted long enough: it is full, or unlikely to show what it looks for.
    #[must_use]
    pub fn is_over(&mut self) -> bool {
        self.weigh();
        let against = self.likelihoods[place(1.0)] - self.likelihoods[place(1.0 - self.rules.worth)];
        self.is_full() || against / self.dispersion() > -self.rules.doubt.ln()
    }

    /// Begins anew with the same pairs: what was shown long ago speaks no longer for a layout, nor against it.
    pub fn restart(&mut self) {
        *self = Self { exposure: self.exposure, ..Self::new(self.rules) };
    }

    /// Samples, as many as tell as much if no object were hit twice.
    fn effective(&self) -> f64 {
        (self.samples.treated + self.samples.control) as f64 / self.dispersion()
    }

    /// How many times as much samples scatter as those of equal objects would: at least 1.
    fn dispersion(&self) -> f64 {
        let samples = (self.samples.treated + self.samples.control) as f64;
        // Of a pair both objects can be hit.
        let objects = 2.0 * (self.exposure.treated + self.exposure.control) as f64;
        let by_chance = samples / objects.max(1.0);
        (self.squares as f64 / samples.max(1.0) - by_chance).max(1.0)
    }

    /// Leaves out the ratios under which the samples would be too unlikely.
    fn exclude(&mut self) {
        let dispersion = self.dispersion();
        // Relative to the greatest, so that nothing overflows.
        let greatest = self.likelihoods.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let relative = self.likelihoods.iter().map(|likelihood| (likelihood - greatest) / dispersion);
        let parts = RATIOS.weights.iter().zip(relative).filter(|(_, relative)| *relative > NEGLIGIBLE);
        let mixture: f64 = parts.map(|(weight, relative)| weight * relative.exp()).sum();
        let least = mixture.ln() + LEVEL.ln();
        let stays = |place: &usize| (self.likelihoods[*place] - greatest) / dispersion > least;
        let (low, high) = self.kept;
        // Likelihoods have one peak, so that what stays is an interval. Excluded ratios stay so, unless nothing would be left:
        // then something has changed, and the newest interval counts.
        let mut now = (low..=high).filter(stays);
        let first = now.next();
        if let Some(first) = first {
            self.kept = (first, now.next_back().unwrap_or(first));
        } else {
            let mut now = (0..self.likelihoods.len()).filter(stays);
            let first = now.next().unwrap_or(0);
            self.kept = (first, now.next_back().unwrap_or(first));
        }
    }
}

fn log_ratio(place: usize) -> f64 {
    (place as f64 - f64::from(STEPS)) * REACH / f64::from(STEPS)
}

/// The place of the ratio that is next to this one.
fn place(ratio: f64) -> usize {
    let steps = f64::from(STEPS);
    let place = (ratio.max(f64::MIN_POSITIVE).ln() / REACH * steps).clamp(-steps, steps) + steps;
    place.round() as usize
}

fn log_ratios() -> impl Iterator<Item = f64> {
    (0..=2 * STEPS as usize).map(log_ratio)
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
