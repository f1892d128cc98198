//! Descriptive statistics and correlation.

use serde::Serialize;

/// Two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_985;

/// What the values of a metric come to, as Sweeney et al. show it (section 4). What is not defined is not a number, which JSON shows
/// as null: of no value all but the sum, of a single one what tells how values differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Values that are numbers.
    pub count: usize,
    /// Values that could not be computed, and are left out.
    pub undefined: usize,
    /// Their sum.
    pub sum: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// The arithmetic mean, in which each record counts once.
    pub mean: f64,
    /// The standard deviation of the sample (n − 1), which takes two values.
    pub sd: f64,
    /// The mean of the absolute differences between successive values, of which one alone has none.
    pub mean_delta: f64,
}

impl Statistics {
    /// Of values in the order of time.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let all: Vec<f64> = values.into_iter().collect();
        let values: Vec<f64> = all.iter().copied().filter(|value| value.is_finite()).collect();
        let count = values.len();
        let sum: f64 = values.iter().sum();
        let mean = per(sum, count);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deltas: f64 = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        let differences = count.saturating_sub(1);
        Self {
            count,
            undefined: all.len() - count,
            sum,
            // Of numbers and NaN these take the number.
            min: values.iter().copied().fold(f64::NAN, f64::min),
            max: values.iter().copied().fold(f64::NAN, f64::max),
            mean,
            sd: per(squares, differences).sqrt(),
            mean_delta: per(deltas, differences),
        }
    }
}

/// A part of a sum; not a number where there is none to take.
fn per(sum: f64, count: usize) -> f64 {
    if count == 0 { f64::NAN } else { sum / count as f64 }
}

/// Pearson's correlation coefficient of two metrics over the same records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Correlation {
    /// Records for which both are numbers.
    pub count: usize,
    /// The coefficient, from −1 to 1; `None` when one of them does not vary, or there are fewer than two records.
    pub r: Option<f64>,
    /// Its 95 % interval by Fisher's transformation, which wants more than three records. It takes records for independent
    /// of each other, which successive ones of a thread are not quite.
    pub interval: Option<(f64, f64)>,
}

impl Correlation {
    /// Of pairs of values.
    #[must_use]
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let pairs: Vec<(f64, f64)> =
            pairs.into_iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        let count = pairs.len();
        let n = count as f64;
        let (mean_x, mean_y) = pairs.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0 / n, y + pair.1 / n));
        let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
        for (x, y) in pairs {
            let (x, y) = (x - mean_x, y - mean_y);
            (xx, yy, xy) = (xx + x * x, yy + y * y, xy + x * y);
        }
        let r = (count >= 2 && xx > 0.0 && yy > 0.0).then(|| (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0));
        let interval = r.filter(|r| count > 3 && r.abs() < 1.0).map(|r| {
            let half = Z / (n - 3.0).sqrt();
            ((r.atanh() - half).tanh(), (r.atanh() + half).tanh())
        });
        Self { count, r, interval }
    }
}
