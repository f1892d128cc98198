//! Similarity (§4.1): the mean Pearson correlation of all pairs of a group's instances.

/// A segment without its mean and size, so that the correlation of two is their dot product.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Unit {
    /// All zeros for a constant segment.
    values: Vec<f64>,
    constant: bool,
}

/// Deviations below this part of the mean are rounding, not variation.
const ROUNDING: f64 = 1e-9;

impl Unit {
    /// `None` when a density is not known.
    pub(super) fn new(densities: &[f64]) -> Option<Self> {
        let mean = densities.iter().sum::<f64>() / densities.len() as f64;
        if mean.is_nan() {
            return None;
        }
        let mut values: Vec<f64> = densities.iter().map(|density| density - mean).collect();
        let size = values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let constant = size <= ROUNDING * mean.abs();
        values.iter_mut().for_each(|value| *value = if constant { 0.0 } else { *value / size });
        Some(Self { values, constant })
    }

    fn dot(&self, other: &[f64]) -> f64 {
        self.values.iter().zip(other).map(|(a, b)| a * b).sum()
    }
}

/// The instances of one pattern, all of the same length.
///
/// The sum over all pairs needs no pairs: with unit segments uᵢ and their sum s, it is (s·s − n) / 2.
#[derive(Clone, Debug)]
pub struct Segments {
    units: Vec<Unit>,
    sum: Vec<f64>,
    constant: usize,
    pairs: f64,
}

impl Segments {
    /// The segments that begin at `starts`; `None` when one of them reaches beyond the end or has an unknown density (NaN).
    #[must_use]
    pub fn new(densities: &[f64], starts: &[usize], length: usize) -> Option<Self> {
        let unit = |&start: &usize| Unit::new(densities.get(start..start + length)?);
        let units: Vec<Unit> = starts.iter().map(unit).collect::<Option<_>>()?;
        let mut sum = vec![0.0; length];
        for unit in &units {
            sum.iter_mut().zip(&unit.values).for_each(|(sum, value)| *sum += value);
        }
        let constant = units.iter().filter(|unit| unit.constant).count();
        let varying = (units.len() - constant) as f64;
        let square: f64 = sum.iter().map(|value| value * value).sum();
        let pairs = (square - varying) / 2.0 + pairs_of(constant);
        Some(Self { units, sum, constant, pairs })
    }

    /// C of the group: 0 when the instances resemble each other no more than by chance, 1 when they are alike.
    #[must_use]
    pub fn similarity(&self) -> f64 {
        mean(self.pairs, self.units.len())
    }

    /// C without one of the instances.
    #[must_use]
    pub fn without(&self, instance: usize) -> f64 {
        let unit = &self.units[instance];
        // Its correlation with itself, 1, is not part of the pairs.
        let own = if unit.constant { self.constant as f64 - 1.0 } else { unit.dot(&self.sum) - 1.0 };
        mean(self.pairs - own, self.units.len() - 1)
    }

    /// C with a further segment.
    pub(super) fn with(&self, segment: &Unit) -> f64 {
        let own = if segment.constant { self.constant as f64 } else { segment.dot(&self.sum) };
        mean(self.pairs + own, self.units.len() + 1)
    }
}

fn pairs_of(items: usize) -> f64 {
    (items * items.saturating_sub(1)) as f64 / 2.0
}

/// The mean over the pairs of so many instances; nothing resembles less than not at all.
fn mean(sum: f64, instances: usize) -> f64 {
    match pairs_of(instances) {
        0.0 => 0.0,
        pairs => (sum / pairs).clamp(0.0, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: Pearson's coefficient of two segments, by its textbook formula.
    fn pearson(a: &[f64], b: &[f64]) -> f64 {
        let n = a.len() as f64;
        let (sum_a, sum_b): (f64, f64) = (a.iter().sum(), b.iter().sum());
        let products: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
        let squares = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
        (n * products - sum_a * sum_b)
            / ((n * squares(a) - sum_a * sum_a) * (n * squares(b) - sum_b * sum_b)).sqrt()
    }

    const DENSITIES: [f64; 16] =
        [1.0, 5.0, 2.0, 2.5, 1.2, 4.0, 2.2, 3.0, 0.5, 6.0, 1.0, 1.5, 2.0, 2.0, 2.0, 2.0];

    #[test]
    fn the_mean_of_all_pairs() {
        let (a, b, c) = (&DENSITIES[0..4], &DENSITIES[4..8], &DENSITIES[8..12]);
        let three = Segments::new(&DENSITIES, &[0, 4, 8], 4).unwrap();
        let expected = (pearson(a, b) + pearson(a, c) + pearson(b, c)) / 3.0;
        assert!((three.similarity() - expected).abs() < 1e-12);
        assert!((three.without(1) - pearson(a, c)).abs() < 1e-12);
        let two = Segments::new(&DENSITIES, &[0, 8], 4).unwrap();
        assert!((two.with(&Unit::new(b).unwrap()) - expected).abs() < 1e-12);
    }

    #[test]
    fn constant_segments_resemble_each_other_only() {
        let mixed = Segments::new(&DENSITIES, &[0, 12], 4).unwrap();
        assert!(mixed.similarity() < 1e-12);
        let constant = Segments::new(&[3.0; 8], &[0, 4], 4).unwrap();
        assert_eq!(constant.similarity(), 1.0);
        let three = Segments::new(&[3.0; 12], &[0, 4, 8], 4).unwrap();
        assert_eq!(three.without(0), 1.0);
    }

    #[test]
    fn opposite_segments_do_not_resemble_each_other() {
        let opposite = Segments::new(&[1.0, 2.0, 3.0, 4.0, 4.0, 3.0, 2.0, 1.0], &[0, 4], 4).unwrap();
        assert_eq!(opposite.similarity(), 0.0);
    }

    #[test]
    fn what_is_not_known_makes_no_segment() {
        assert!(Segments::new(&DENSITIES, &[13], 4).is_none());
        assert!(Segments::new(&[1.0, f64::NAN, 1.0], &[0], 3).is_none());
    }
}
