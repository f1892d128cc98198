//! PELT (Killick, Fearnhead & Eckley, *JASA* 2012): the best segmentation of a finished stream into stretches of constant mean,
//! exactly, in about linear time.

/// Shorter stretches are noise.
const LENGTH_MIN: usize = 3;
/// The penalty of a change point: twice the usual β = 2 σ² log n, as real streams are more correlated than white noise.
const PENALTY: f64 = 4.0;
/// The standard deviation of a normal distribution over its median absolute deviation.
const MAD_SCALE: f64 = 1.4826;

/// Indices of the values at which another mean begins. The values' noise is estimated from the differences of neighbours.
#[must_use]
pub fn pelt(values: &[f64]) -> Vec<usize> {
    let variance = noise_variance(values);
    let penalty = PENALTY * variance * (values.len().max(2) as f64).ln();
    segment(values, penalty)
}

/// Where the last stretch could begin.
struct Candidate {
    begin: usize,
    /// The first end at which another beginning was better.
    beaten: usize,
}

/// The changes that minimise the sum of squared deviations plus the penalty of each change.
fn segment(values: &[f64], penalty: f64) -> Vec<usize> {
    let n = values.len();
    let costs = Costs::new(values);
    // Cost of the best segmentation of the first `end` values, and where its last stretch begins.
    let mut best = vec![f64::INFINITY; n + 1];
    let mut last = vec![0; n + 1];
    best[0] = -penalty;
    let mut candidates: Vec<Candidate> = vec![];
    for end in LENGTH_MIN..=n {
        // Only now a stretch that begins here could be long enough.
        let begin = end - LENGTH_MIN;
        if best[begin].is_finite() {
            candidates.push(Candidate { begin, beaten: usize::MAX });
        }
        for candidate in &candidates {
            let cost = best[candidate.begin] + costs.of(candidate.begin, end) + penalty;
            if cost < best[end] {
                (best[end], last[end]) = (cost, candidate.begin);
            }
        }
        // A beginning that is worse now without paying for a change is never the best again, once a stretch that begins here
        // is long enough.
        for candidate in &mut candidates {
            if best[candidate.begin] + costs.of(candidate.begin, end) > best[end] {
                candidate.beaten = candidate.beaten.min(end);
            }
        }
        candidates.retain(|candidate| candidate.beaten > end + 1 - LENGTH_MIN);
    }
    let mut changes = Vec::new();
    let mut end = n;
    while last[end] > 0 {
        end = last[end];
        changes.push(end);
    }
    changes.reverse();
    changes
}

/// Sums of which the squared deviations of any stretch follow.
struct Costs {
    sums: Vec<f64>,
    squares: Vec<f64>,
}

impl Costs {
    fn new(values: &[f64]) -> Self {
        // Differences from the overall mean: squares of large numbers would swallow small deviations.
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let running = |of: fn(f64) -> f64| {
            let mut sum = 0.0;
            let add = |value: &f64| {
                sum += of(value - mean);
                sum
            };
            std::iter::once(0.0).chain(values.iter().map(add)).collect()
        };
        Self { sums: running(|value| value), squares: running(|value| value * value) }
    }

    fn of(&self, begin: usize, end: usize) -> f64 {
        let sum = self.sums[end] - self.sums[begin];
        let squares = self.squares[end] - self.squares[begin];
        (squares - sum * sum / (end - begin) as f64).max(0.0)
    }
}

/// Variance of the noise: neighbours differ by it, while few of them lie on both sides of a change.
fn noise_variance(values: &[f64]) -> f64 {
    let mut differences: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    if differences.is_empty() {
        return 0.0;
    }
    differences.sort_unstable_by(f64::total_cmp);
    let median = differences[differences.len() / 2];
    // A difference of two has twice the variance. Of values without noise, a tiny part of their size is taken.
    let size = values.iter().map(|value| value.abs()).sum::<f64>() / values.len() as f64;
    ((MAD_SCALE * median).powi(2) / 2.0).max((1e-3 * size).powi(2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every segmentation, by trying all beginnings: what PELT must equal.
    fn optimal(values: &[f64], penalty: f64) -> f64 {
        let costs = Costs::new(values);
        let mut best = vec![f64::INFINITY; values.len() + 1];
        best[0] = -penalty;
        for end in LENGTH_MIN..=values.len() {
            for begin in 0..=end - LENGTH_MIN {
                best[end] = best[end].min(best[begin] + costs.of(begin, end) + penalty);
            }
        }
        best[values.len()]
    }

    fn cost(values: &[f64], changes: &[usize], penalty: f64) -> f64 {
        let costs = Costs::new(values);
        let ends = changes.iter().copied().chain([values.len()]);
        let begins = [0].into_iter().chain(changes.iter().copied());
        let stretches: f64 = begins.zip(ends).map(|(begin, end)| costs.of(begin, end)).sum();
        stretches + penalty * changes.len() as f64
    }

    #[test]
    fn steps_without_noise() {
        let values: Vec<f64> = [[10.0; 20], [30.0; 20], [12.0; 20]].concat();
        assert_eq!(pelt(&values), [20, 40]);
        assert_eq!(pelt(&[7.0; 100]), [0; 0]);
        assert_eq!(pelt(&[]), [0; 0]);
        assert_eq!(pelt(&[1.0, 9.0]), [0; 0]);
    }

    proptest! {
        #[test]
        fn nothing_is_better_than_what_pelt_finds(
            values in prop::collection::vec(0.0_f64..10.0, 3..60), penalty in 0.5_f64..40.0
        ) {
            let found = cost(&values, &segment(&values, penalty), penalty);
            prop_assert!((found - optimal(&values, penalty)).abs() < 1e-6, "{} {}", found, optimal(&values, penalty));
        }
    }
}
