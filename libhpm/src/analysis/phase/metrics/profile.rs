//! Profiles that were taken only in part (§4.2).

use std::collections::BTreeMap;

/// How often each function (or whatever the number stands for) was seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    weights: BTreeMap<u64, f64>,
    total: f64,
}

impl Profile {
    /// Adds what was seen of a function.
    pub fn add(&mut self, function: u64, weight: f64) {
        *self.weights.entry(function).or_default() += weight;
        self.total += weight;
    }

    /// Adds another profile, times a factor.
    pub fn add_scaled(&mut self, other: &Self, factor: f64) {
        for (&function, &weight) in &other.weights {
            self.add(function, weight * factor);
        }
    }

    /// The sum of all weights.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.total
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.weights.clear();
        self.total = 0.0;
    }

    /// Cov of this profile against the canonical one: the sum over all functions of the smaller of both percentages, 0 to 1.
    /// An empty profile covers nothing.
    #[must_use]
    pub fn coverage(&self, canonical: &Self) -> f64 {
        if self.total <= 0.0 || canonical.total <= 0.0 {
            return 0.0;
        }
        let common = |(function, weight): (&u64, &f64)| {
            let other = canonical.weights.get(function)?;
            Some((weight / self.total).min(other / canonical.total))
        };
        self.weights.iter().filter_map(common).sum()
    }
}

/// P_r: the part of the profiling points at which a profile was taken; NaN for no point.
pub fn profiling_rate(taken: impl IntoIterator<Item = bool>) -> f64 {
    let (mut points, mut profiled) = (0_u64, 0_u64);
    for taken in taken {
        points += 1;
        profiled += u64::from(taken);
    }
    profiled as f64 / points as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(weights: &[(u64, f64)]) -> Profile {
        let mut profile = Profile::default();
        weights.iter().for_each(|&(function, weight)| profile.add(function, weight));
        profile
    }

    #[test]
    fn coverage_is_what_both_profiles_have() {
        let canonical = profile(&[(1, 50.0), (2, 30.0), (3, 20.0)]);
        assert_eq!(canonical.coverage(&canonical), 1.0);
        let half = profile(&[(1, 25.0), (2, 15.0), (3, 10.0)]);
        assert_eq!(half.coverage(&canonical), 1.0, "only percentages count");
        let other = profile(&[(1, 80.0), (4, 20.0)]);
        assert!((other.coverage(&canonical) - 0.5).abs() < 1e-12);
        assert_eq!(Profile::default().coverage(&canonical), 0.0);
    }

    #[test]
    fn profiles_add_up() {
        let mut sum = profile(&[(1, 1.0)]);
        sum.add_scaled(&profile(&[(1, 2.0), (2, 4.0)]), 0.5);
        assert_eq!(sum, profile(&[(1, 2.0), (2, 2.0)]));
        assert_eq!(sum.total(), 4.0);
        sum.clear();
        assert_eq!(sum, Profile::default());
    }

    #[test]
    fn the_rate_counts_points() {
        assert_eq!(profiling_rate([true, false, false, true]), 0.5);
    }
}
