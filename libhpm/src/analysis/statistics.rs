//! Distributions that tests and intervals need.
//!
//! Everything rests on the regularised incomplete beta function I_x(a, b), computed by its continued fraction as in Press et
//! al., Numerical Recipes, 6.4, with the logarithm of the gamma function by Lanczos's series (6.1).

/// Significance below which chance is not believed, and the share of false discoveries that is put up with.
pub const LEVEL: f64 = 0.05;

/// Steps of the continued fraction; some hundred are enough for any a and b below a million.
const STEPS: u32 = 10_000;

/// ln Γ(x) of a positive number, to about 1e-13.
fn ln_gamma(x: f64) -> f64 {
    const SERIES: [f64; 14] = [
        57.156_235_665_862_92,
        -59.597_960_355_475_49,
        14.136_097_974_741_746,
        -0.491_913_816_097_620_2,
        0.339_946_499_848_118_9e-4,
        0.465_236_289_270_485_8e-4,
        -0.983_744_753_048_795_6e-4,
        0.158_088_703_224_912_5e-3,
        -0.210_264_441_724_104_9e-3,
        0.217_439_618_115_212_7e-3,
        -0.164_318_106_536_764e-3,
        0.844_182_239_838_527_5e-4,
        -0.261_908_384_015_814_1e-4,
        0.368_991_826_595_316_2e-5,
    ];
    let shifted = x + 671.0 / 128.0;
    let (sum, _) = SERIES
        .iter()
        .fold((0.999_999_999_999_997_1, x), |(sum, at), term| (sum + term / (at + 1.0), at + 1.0));
    (x + 0.5) * shifted.ln() - shifted + (2.506_628_274_631_000_7 * sum / x).ln()
}

/// I_x(a, b) for positive a and b and x from 0 to 1.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let factor = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges fast on one side of the mean only.
    if x < (a + 1.0) / (a + b + 2.0) {
        factor * fraction(a, b, x) / a
    } else {
        1.0 - factor * fraction(b, a, 1.0 - x) / b
    }
}

/// The continued fraction of I_x(a, b), by Lentz's method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    let away = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut product = d;
    for step in 1..STEPS {
        let m = f64::from(step);
        for term in [
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)),
        ] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            product *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    product
}

/// How many standard errors a mean of `samples` values can be off, with 95 % confidence: the two-sided quantile of Student's
/// t-distribution. Infinite for fewer than two values.
#[must_use]
pub fn student_95(samples: u64) -> f64 {
    if samples < 2 {
        return f64::INFINITY;
    }
    let freedom = (samples - 1) as f64;
    let beyond = |t: f64| incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t));
    let (mut low, mut high) = (0.0, 16.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if beyond(middle) > LEVEL { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// How likely it is that of `all` independent events, each with probability `p`, a number comes that is at least as far out as
/// `hits`: twice the smaller tail of the binomial distribution (Clopper and Pearson's convention), 1 at most. Numbers between
/// whole ones are taken as such, by the continuous form of the tails.
#[must_use]
pub fn binomial_two_sided(hits: f64, all: f64, p: f64) -> f64 {
    let rest = (all - hits).max(0.0);
    let at_least = if hits == 0.0 { 1.0 } else { incomplete_beta(hits, rest + 1.0, p) };
    let at_most = if rest == 0.0 { 1.0 } else { incomplete_beta(rest, hits + 1.0, 1.0 - p) };
    (2.0 * at_least.min(at_most)).min(1.0)
}

/// How likely it is that of `drawn` out of `all` things, of which `marked` are marked, a number of marked ones comes that is at least as
/// far out as `hits`: twice the smaller tail of the hypergeometric distribution, 1 at most (Fisher's exact test). Numbers between whole
/// ones are rounded.
#[must_use]
pub fn hypergeometric_two_sided(hits: f64, marked: f64, drawn: f64, all: f64) -> f64 {
    let [hits, marked, drawn] = [hits, marked, drawn].map(f64::round);
    // Rounded apart, the parts can be one more than the whole.
    let all = all.round().max(marked + drawn - hits).max(marked).max(drawn);
    let (least, most) = ((marked + drawn - all).max(0.0), marked.min(drawn));
    let ways = |of: f64, some: f64| ln_gamma(of + 1.0) - ln_gamma(some + 1.0) - ln_gamma(of - some + 1.0);
    let at = (ways(marked, hits) + ways(all - marked, drawn - hits) - ways(all, drawn)).exp();
    // From one number to the next the probability changes by a simple factor; what is far out adds nothing.
    let up = |k: f64| (marked - k) * (drawn - k) / ((k + 1.0) * (all - marked - drawn + k + 1.0));
    let tail = |end: f64, step: f64, factor: &dyn Fn(f64) -> f64| {
        let (mut k, mut term, mut sum) = (hits, at, at);
        while k != end && term > sum * f64::EPSILON {
            term *= factor(k);
            sum += term;
            k += step;
        }
        sum
    };
    let at_least = tail(most, 1.0, &up);
    let at_most = tail(least, -1.0, &|k| 1.0 / up(k - 1.0));
    (2.0 * at_least.min(at_most)).min(1.0)
}

/// The rate of false discoveries at which each of these tests would be one: Benjamini and Hochberg's correction (Journal of the
/// Royal Statistical Society B 57, 1995) of p-values, in their order.
#[must_use]
pub fn false_discovery_rates(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut rates = vec![1.0; p_values.len()];
    let mut least = 1.0_f64;
    for (rank, &place) in (1..).zip(&order).collect::<Vec<(u32, _)>>().into_iter().rev() {
        least = least.min(p_values[place] * p_values.len() as f64 / f64::from(rank));
        rates[place] = least;
    }
    rates
}

/// Mean and scatter of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Repeated {
    /// How many there are.
    pub runs: u64,
    /// Their mean.
    pub mean: f64,
    /// Standard deviation of one measurement; `None` for a single one.
    pub deviation: Option<f64>,
    /// How far the mean can be off with 95 % confidence, either way; `None` for a single one. It takes measurements for
    /// independent and normally distributed.
    pub interval: Option<f64>,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Repeated {
    /// Of these; `None` of none.
    #[must_use]
    pub fn new(values: &[f64]) -> Option<Self> {
        let (runs, count) = (values.len() as u64, values.len() as f64);
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (runs > 1).then(|| (squares / (count - 1.0)).sqrt());
        let least = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        Some(Self {
            runs,
            mean,
            deviation,
            interval: deviation.map(|deviation| student_95(runs) * deviation / count.sqrt()),
            min: least(f64::min)?,
            max: least(f64::max)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-4 * expected.abs().max(1e-9), "{found}, expected {expected}");
    }

    /// Tables of Student's distribution (NIST/SEMATECH e-Handbook, 1.3.6.7.2), two-sided 95 %.
    #[test]
    fn students_quantiles_agree_with_the_tables() {
        for (freedom, t) in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (29, 2.045), (100, 1.984)] {
            assert!((student_95(freedom + 1) - t).abs() < 5e-4, "{freedom}: {}", student_95(freedom + 1));
        }
        near(student_95(1_000_001), 1.959_966);
        assert!(student_95(1).is_infinite());
    }

    /// Sums of binomial probabilities, added up one by one.
    #[test]
    fn binomial_tails_are_sums_of_probabilities() {
        let probability = |hits: u64, all: u64, p: f64| {
            let ways = (0..hits).fold(1.0, |ways, i| ways * (all - i) as f64 / (i + 1) as f64);
            ways * p.powi(hits as i32) * (1.0 - p).powi((all - hits) as i32)
        };
        for (all, p) in [(1, 0.5), (10, 0.5), (30, 0.1), (25, 0.77)] {
            for hits in 0..=all {
                let tail = |range: std::ops::RangeInclusive<u64>| {
                    range.map(|hits| probability(hits, all, p)).sum::<f64>()
                };
                let found = binomial_two_sided(hits as f64, all as f64, p);
                near(found, (2.0 * tail(0..=hits).min(tail(hits..=all))).min(1.0));
            }
        }
        assert!(binomial_two_sided(600_000.0, 1_000_000.0, 0.5) < 1e-300);
        near(binomial_two_sided(500_000.0, 1_000_000.0, 0.5), 1.0);
    }

    /// The example of Benjamini and Hochberg's paper, section 3.1: four of fifteen are discoveries at 5 %.
    #[test]
    fn discoveries_are_those_of_the_paper() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.0,
        ];
        let rates = false_discovery_rates(&p);
        assert_eq!(rates.iter().filter(|rate| **rate <= LEVEL).count(), 4);
        near(rates[3], 0.0095 * 15.0 / 4.0);
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(false_discovery_rates(&[]).is_empty());
    }

    #[test]
    fn repeated_measurements_have_an_interval() {
        let found = Repeated::new(&[10.0, 12.0, 14.0]).unwrap();
        assert_eq!((found.runs, found.mean, found.min, found.max), (3, 12.0, 10.0, 14.0));
        near(found.deviation.unwrap(), 2.0);
        near(found.interval.unwrap(), 4.302_65 * 2.0 / 3.0_f64.sqrt());
        assert_eq!(Repeated::new(&[5.0]).unwrap().interval, None);
        assert!(Repeated::new(&[]).is_none());
    }
}
