//! An online detector of changes of a mean: CUSUM (Page, *Biometrika* 1954) that begins anew after each change, with the mean of
//! the values that made it notice.

/// Values from which mean and deviation are learnt at the beginning; after a change the mean is learnt from so many.
const LEARN: u32 = 8;
/// Deviations are at least this part of the mean, so that a quiet stream does not cry at every tick.
const DEVIATION_MIN: f64 = 0.02;
/// Values count as far as they are from the mean by more than this many deviations (half of the smallest change worth finding).
const SLACK: f64 = 0.75;
/// Sum at which a change is declared, in deviations.
const LIMIT: f64 = 8.0;
/// One value counts at most this many deviations: a single outlier is no change, two in a row may be.
const OUTLIER: f64 = 6.0;
/// While a sum is above this, a change may have begun: what comes is not learnt as normal.
const DOUBT: f64 = 2.0;
/// With how much of a value mean and deviation follow it while nothing has changed: a slow drift is no change.
const FOLLOW: f64 = 0.03;

/// A change that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Index of the value at which it was found.
    pub found: usize,
    /// Index of the first value that seems to belong to the new behaviour.
    pub changed: usize,
}

/// The detector. Constant memory, constant work.
#[derive(Clone, Debug, Default)]
pub struct Cusum {
    index: usize,
    /// Values from which the mean was made, up to [`LEARN`].
    count: u32,
    /// Deviations are known: the first values are over.
    ready: bool,
    mean: f64,
    /// While learning the sum of squared deviations (Welford), then their running mean.
    spread: f64,
    rise: Side,
    fall: Side,
}

/// The sum of one direction, and the values that made it.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    sum: f64,
    /// Where the sum left 0 for the last time.
    since: usize,
    values: f64,
    count: u32,
}

impl Side {
    fn add(&mut self, score: f64, value: f64, index: usize) {
        if self.sum <= 0.0 {
            *self = Self { since: index, ..Self::default() };
        }
        self.sum = (self.sum + score.min(OUTLIER) - SLACK).max(0.0);
        self.values += value;
        self.count += 1;
    }
}

impl Cusum {
    /// A detector that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next value.
    pub fn push(&mut self, value: f64) -> Option<Alarm> {
        let index = self.index;
        self.index += 1;
        if !self.ready {
            self.begin(value);
            return None;
        }
        let difference = value - self.mean;
        let deviation = self.spread.sqrt().max(DEVIATION_MIN * self.mean.abs()).max(f64::MIN_POSITIVE);
        // The mean of few values is itself uncertain.
        let score = difference / (deviation * (1.0 + 1.0 / f64::from(self.count)).sqrt());
        self.rise.add(score, value, index);
        self.fall.add(-score, value, index);
        let stronger = if self.rise.sum >= self.fall.sum { self.rise } else { self.fall };
        if stronger.sum >= LIMIT {
            self.change(stronger);
            return Some(Alarm { found: index, changed: stronger.since });
        }
        if stronger.sum <= DOUBT {
            self.count = LEARN.min(self.count + 1);
            let follow = if self.count < LEARN { 1.0 / f64::from(self.count) } else { FOLLOW };
            self.mean += follow * difference;
            self.spread += FOLLOW * (difference * difference - self.spread);
        }
        None
    }

    /// Learns from the first values.
    fn begin(&mut self, value: f64) {
        self.count += 1;
        let difference = value - self.mean;
        self.mean += difference / f64::from(self.count);
        self.spread += difference * (value - self.mean);
        if self.count == LEARN {
            self.spread /= f64::from(LEARN - 1);
            self.ready = true;
        }
    }

    /// Begins anew with the mean of the values since the change, and with deviations in proportion to it.
    fn change(&mut self, side: Side) {
        let mean = side.values / f64::from(side.count);
        if self.mean.abs() > 0.0 {
            self.spread *= (mean / self.mean).powi(2);
        }
        (self.mean, self.count) = (mean, side.count.min(LEARN));
        (self.rise, self.fall) = (Side::default(), Side::default());
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::synthetic::Random;
    use super::*;

    fn alarms(values: impl IntoIterator<Item = f64>) -> Vec<Alarm> {
        let mut detector = Cusum::new();
        values.into_iter().filter_map(|value| detector.push(value)).collect()
    }

    fn noisy(means: &[(f64, usize)], deviation: f64) -> Vec<f64> {
        let mut random = Random::new(11);
        let values = means.iter().flat_map(|&(mean, count)| std::iter::repeat_n(mean, count));
        values.map(|mean| mean + deviation * random.normal()).collect()
    }

    #[test]
    fn a_step_is_found_soon_and_dated() {
        let found = alarms(noisy(&[(100.0, 50), (150.0, 50), (100.0, 50)], 10.0));
        assert_eq!(found.len(), 2, "{found:?}");
        for (alarm, change) in found.iter().zip([50, 100]) {
            assert!(alarm.found >= change && alarm.found <= change + 4, "{found:?}");
            assert!(alarm.changed.abs_diff(change) <= 2, "{found:?}");
        }
    }

    #[test]
    fn quiet_and_slowly_drifting_streams_have_no_change() {
        assert_eq!(alarms([5.0; 500]), []);
        assert_eq!(alarms([0.0; 500]), []);
        assert_eq!(alarms((0..1000).map(|index| 100.0 + 0.05 * f64::from(index))), []);
    }

    #[test]
    fn one_outlier_is_no_change() {
        let mut values = noisy(&[(100.0, 100)], 2.0);
        values[60] = 900.0;
        assert_eq!(alarms(values), []);
    }
}
