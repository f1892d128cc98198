//! Variability within phases and between them (§4), and summaries that box plots draw.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, FisherSnedecor};

/// One-way analysis of variance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Anova {
    /// The F statistic; infinite where nothing varies within the groups.
    pub f: f64,
    /// Degrees of freedom between groups: k − 1.
    pub between: u64,
    /// Degrees of freedom within groups: Σ n_i − k.
    pub within: u64,
    /// How likely groups of equal means show an F at least as high.
    pub p: f64,
}

/// Why there is no analysis of variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NoAnova {
    /// There is nothing to compare.
    #[error("there are fewer than two phases with a measurement")]
    OneGroup,
    /// Nothing can be said of the variability within groups.
    #[error("no phase has two measurements")]
    NoRepetition,
    /// All measurements are equal.
    #[error("all measurements are equal")]
    Constant,
}

/// Compares the means of groups, each with its measurements (§4). Empty groups are left out.
///
/// # Errors
/// Why that is not possible.
pub fn anova(groups: &[&[f64]]) -> Result<Anova, NoAnova> {
    let groups: Vec<&[f64]> = groups.iter().copied().filter(|group| !group.is_empty()).collect();
    let all: usize = groups.iter().map(|group| group.len()).sum();
    if groups.len() < 2 {
        return Err(NoAnova::OneGroup);
    }
    if all == groups.len() {
        return Err(NoAnova::NoRepetition);
    }
    let overall = groups.iter().flat_map(|group| group.iter()).sum::<f64>() / all as f64;
    let (mut between_squares, mut within_squares) = (0.0, 0.0);
    for group in &groups {
        let mean = mean(group);
        between_squares += group.len() as f64 * (mean - overall).powi(2);
        within_squares += group.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    }
    let (between, within) = (groups.len() - 1, all - groups.len());
    // What rounding alone leaves of equal values is no variability.
    let negligible = overall.powi(2) * all as f64 * f64::EPSILON.powi(2) * 16.0;
    if between_squares <= negligible && within_squares <= negligible {
        return Err(NoAnova::Constant);
    }
    let f = if within_squares <= negligible {
        f64::INFINITY
    } else {
        between_squares / between as f64 / (within_squares / within as f64)
    };
    let distribution = FisherSnedecor::new(between as f64, within as f64);
    let p =
        if f.is_finite() { distribution.map_or(f64::NAN, |distribution| distribution.sf(f)) } else { 0.0 };
    Ok(Anova { f, between: between as u64, within: within as u64, p })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean and (sample) standard deviation; NaN for what the values do not tell: the mean of none, the deviation of fewer than two.
#[must_use]
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    if values.len() < 2 {
        return (mean, f64::NAN);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (values.len() - 1) as f64).sqrt())
}

/// The coefficient of variation: standard deviation over mean. 0 where the mean is 0; NaN for fewer than two values.
#[must_use]
pub fn cov(values: &[f64]) -> f64 {
    let (mean, deviation) = mean_and_deviation(values);
    if mean == 0.0 && values.len() > 1 { 0.0 } else { deviation / mean.abs() }
}

/// How far phases vary within themselves (§4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    /// The mean of their coefficients of variation, weighted by the time in each; NaN where none has two measurements.
    pub cov: f64,
    /// The part of all phases' time in those of fewer than two measurements, whose variation nobody knows: they are left out.
    pub left_out: f64,
}

impl Within {
    /// Of phases with the time in each and its measurements.
    pub fn of<'a>(phases: impl IntoIterator<Item = (f64, &'a [f64])>) -> Self {
        let (mut weighted, mut known, mut all) = (0.0, 0.0, 0.0);
        for (time, values) in phases {
            all += time;
            if values.len() > 1 {
                weighted += time * cov(values);
                known += time;
            }
        }
        Self { cov: weighted / known, left_out: if all > 0.0 { 1.0 - known / all } else { 0.0 } }
    }
}

/// What a box plot draws.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FiveNumbers {
    /// The least.
    pub min: f64,
    /// A quarter is at most this.
    pub lower_quartile: f64,
    /// Half is at most this.
    pub median: f64,
    /// Three quarters are at most this.
    pub upper_quartile: f64,
    /// The greatest.
    pub max: f64,
}

impl FiveNumbers {
    /// Of these values, quantiles between two of them in proportion (R's type 7); `None` of none, or when one is no number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (sorted.len() - 1) as f64;
            let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        let [min, lower_quartile, median, upper_quartile, max] = [0.0, 0.25, 0.5, 0.75, 1.0].map(at);
        Some(Self { min, lower_quartile, median, upper_quartile, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST/SEMATECH e-Handbook, 7.4.3.3 (resistance of three levels): F = 9.59 with 2 and 12 degrees of freedom.
    #[test]
    fn variances_are_analysed_as_in_the_handbook() {
        let groups: [&[f64]; 3] =
            [&[6.9, 5.4, 5.8, 4.6, 4.0], &[8.3, 6.8, 7.8, 9.2, 6.5], &[8.0, 10.5, 8.1, 6.9, 9.3]];
        let found = anova(&groups).unwrap();
        assert_eq!((found.between, found.within), (2, 12));
        assert!((found.f - 9.59).abs() < 0.005, "{found:?}");
        assert!((found.p - 0.00325).abs() < 0.0002, "{found:?}");
    }

    /// F at the 5 % point of the tables (NIST/SEMATECH e-Handbook, 1.3.6.7.3).
    #[test]
    fn p_agrees_with_the_tables() {
        for (between, within, f) in [(1.0, 10.0, 4.965), (5.0, 20.0, 2.711), (10.0, 100.0, 1.927)] {
            let p = FisherSnedecor::new(between, within).unwrap().sf(f);
            assert!((p - 0.05).abs() < 1e-4, "{between} {within}: {p}");
        }
    }

    #[test]
    fn what_cannot_be_analysed_has_a_reason() {
        assert_eq!(anova(&[&[1.0, 2.0], &[]]), Err(NoAnova::OneGroup));
        assert_eq!(anova(&[&[1.0], &[2.0]]), Err(NoAnova::NoRepetition));
        assert_eq!(anova(&[&[0.1, 0.1, 0.1], &[0.1]]), Err(NoAnova::Constant));
        let apart = anova(&[&[1.0, 1.0], &[2.0, 2.0]]).unwrap();
        assert!(apart.f.is_infinite() && apart.p == 0.0);
    }

    #[test]
    fn variation_is_weighted_by_time() {
        assert!((cov(&[8.0, 12.0]) - 8.0_f64.sqrt() / 10.0).abs() < 1e-12);
        assert_eq!(cov(&[0.0, 0.0]), 0.0);
        let both = Within::of([(3.0, &[8.0, 12.0][..]), (1.0, &[7.0, 7.0][..])]);
        assert!((both.cov - cov(&[8.0, 12.0]) * 0.75).abs() < 1e-12);
        assert_eq!(both.left_out, 0.0);
        assert!(Within::of([]).cov.is_nan());
    }

    /// R: sd(5) is NA.
    #[test]
    fn nobody_knows_how_a_single_call_varies() {
        assert!(cov(&[5.0]).is_nan() && cov(&[0.0]).is_nan() && mean_and_deviation(&[5.0]).1.is_nan());
        let some = Within::of([(3.0, &[8.0, 12.0][..]), (5.0, &[7.0][..]), (4.0, &[][..])]);
        assert_eq!(some, Within { cov: cov(&[8.0, 12.0]), left_out: 0.75 });
        let none = Within::of([(3.0, &[8.0][..])]);
        assert!(none.cov.is_nan() && none.left_out == 1.0);
    }

    #[test]
    fn five_numbers_are_those_of_r() {
        let numbers = FiveNumbers::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((numbers.min, numbers.lower_quartile, numbers.median), (1.0, 1.75, 2.5));
        assert_eq!((numbers.upper_quartile, numbers.max), (3.25, 4.0));
        assert_eq!(FiveNumbers::of(&[7.0]).unwrap().median, 7.0);
        assert!(FiveNumbers::of(&[]).is_none() && FiveNumbers::of(&[f64::NAN]).is_none());
    }
}
