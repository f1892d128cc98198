//! Whether a change of layout helped: misses of each field over time (Figures 5.13 and 5.14 of Schneider's thesis).
//!
//! Misses are summed in periods of equal length. A change is judged by the periods after it against those before it: the difference
//! of the mean rates with its 95 % interval (Welch's, with at least the scatter that random samples have). The judgement has to be
//! the same at the end of several periods in a row before it counts, because it is asked for again and again. That helps and does not
//! suffice: of changes without any effect some 2 in 100 are ever judged to have one within 15 periods, some 9 within 60. `Trial`
//! may be asked as often as one likes.
//!
//! A rate is per tick of the clock that is fed. With a clock of executed instructions, a slower phase of the program does not look
//! like a better layout; with a clock of time it does.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::phase::change::pelt;
use crate::analysis::statistics::student_95;

/// Periods that the thin lines of Figure 5.13 are averaged over.
const SMOOTHED_OVER: usize = 3;

/// How a monitor judges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MonitorRules {
    /// Length of a period, in ticks of the clock that is fed.
    pub period: u64,
    /// Periods that are left out after a change: the one in which it happened, and those in which it comes into force.
    pub settle: usize,
    /// Fewest periods before and after a change.
    pub periods_min: usize,
    /// Most periods before a change that it is compared with: an older past was perhaps another phase of the program.
    pub periods_max: usize,
    /// Relative rise of the rate that is put up with: a change hurts when the interval lies above it.
    pub tolerance: f64,
    /// Periods in a row at whose end the judgement has to be the same.
    pub confirmations: usize,
}

impl Default for MonitorRules {
    fn default() -> Self {
        Self { period: 1, settle: 1, periods_min: 3, periods_max: 16, tolerance: 0.05, confirmations: 2 }
    }
}

/// A change that somebody made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When, on the clock that is fed.
    pub time: u64,
    /// The period in which that was.
    pub period: usize,
}

/// What came of the last change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "effect")]
pub enum Effect {
    /// Nothing was changed.
    #[default]
    Unchanged,
    /// There are too few periods before or after it.
    Waiting,
    /// The interval has both better and worse in it, or the last periods disagree.
    Unclear {
        /// Relative change of the rate, with its 95 % interval.
        change: (f64, f64, f64),
    },
    /// Fewer misses.
    Helped {
        /// Relative change of the rate, with its 95 % interval: (low, mean, high), negative for fewer.
        change: (f64, f64, f64),
    },
    /// More misses than are put up with: take the change back.
    Hurt {
        /// As above.
        change: (f64, f64, f64),
    },
}

/// Misses of one field through time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Misses in each period that has ended.
    pub misses: Vec<f64>,
    /// Changes, in order.
    pub changes: Vec<Change>,
    /// What came of the last one.
    pub effect: Effect,
    /// Misses of the current period.
    #[serde(skip)]
    current: f64,
    /// The last judgement, and for how many periods it has been the same.
    #[serde(skip)]
    repeated: (Judgement, usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Judgement {
    #[default]
    None,
    Better,
    Worse,
}

impl Series {
    /// Misses from the beginning to the end of each period (Figure 5.13 (a)).
    #[must_use]
    pub fn cumulative(&self) -> Vec<f64> {
        let sum = |sum: &mut f64, misses: &f64| {
            *sum += misses;
            Some(*sum)
        };
        self.misses.iter().scan(0.0, sum).collect()
    }

    /// The mean of each period and the two before it (the thin lines of Figure 5.13 (b)).
    #[must_use]
    pub fn moving_average(&self) -> Vec<f64> {
        let mean = |end: usize| {
            let part = &self.misses[end.saturating_sub(SMOOTHED_OVER)..end];
            part.iter().sum::<f64>() / part.len() as f64
        };
        (1..=self.misses.len()).map(mean).collect()
    }

    /// Periods with which another rate begins, whether somebody told of a change or not: the bends of the cumulative line.
    #[must_use]
    pub fn bends(&self) -> Vec<usize> {
        pelt(&self.misses)
    }

    fn end_period(&mut self, rules: &MonitorRules) {
        self.misses.push(std::mem::take(&mut self.current));
        let Some((judgement, change)) = self.judge(rules) else {
            if !self.changes.is_empty() {
                self.effect = Effect::Waiting;
            }
            return;
        };
        let (last, times) = self.repeated;
        let times = if judgement == last { times + 1 } else { 1 };
        self.repeated = (judgement, times);
        let confirmed = times >= rules.confirmations;
        self.effect = match judgement {
            Judgement::Better if confirmed => Effect::Helped { change },
            Judgement::Worse if confirmed => Effect::Hurt { change },
            _ => Effect::Unclear { change },
        };
    }

    /// The last change by the periods around it; `None` while there are too few.
    fn judge(&self, rules: &MonitorRules) -> Option<(Judgement, (f64, f64, f64))> {
        let last = self.changes.last()?;
        // What was before the change before that belongs to another layout.
        let earlier =
            self.changes.iter().rev().map(|change| change.period).find(|&period| period < last.period);
        let since = earlier.map_or(0, |period| period + rules.settle);
        let before = self.misses.get(since..last.period).unwrap_or_default();
        let before = &before[before.len().saturating_sub(rules.periods_max)..];
        let after = self.misses.get(last.period + rules.settle..).unwrap_or_default();
        let after = &after[after.len().saturating_sub(rules.periods_max)..];
        if before.len().min(after.len()) < rules.periods_min.max(2) {
            return None;
        }
        let (one, other) = (Mean::of(before), Mean::of(after));
        if one.mean <= 0.0 {
            return None;
        }
        let error = (one.squared_error + other.squared_error).sqrt();
        let wide = student_95(before.len().min(after.len()) as u64) * error / one.mean;
        let change = (other.mean - one.mean) / one.mean;
        let interval = (change - wide, change, change + wide);
        let judgement = match interval {
            (low, ..) if low > rules.tolerance => Judgement::Worse,
            (.., high) if high < 0.0 => Judgement::Better,
            _ => Judgement::None,
        };
        Some((judgement, interval))
    }
}

/// A mean of counts, and the square of its standard error.
struct Mean {
    mean: f64,
    squared_error: f64,
}

impl Mean {
    fn of(counts: &[f64]) -> Self {
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / (n - 1.0);
        // Counts of random samples scatter at least as a Poisson variable does, whose variance is its mean; never less than one.
        Self { mean, squared_error: variance.max(mean).max(1.0) / n }
    }
}

/// Follows the misses of each field. Fed with (time, field, misses) in order of time; `K` names fields.
#[derive(Clone, Debug)]
pub struct Monitor<K: Ord + Clone> {
    rules: MonitorRules,
    start: u64,
    periods: usize,
    fields: BTreeMap<K, Series>,
}

impl<K: Ord + Clone> Monitor<K> {
    /// From a time on.
    ///
    /// # Panics
    /// With periods of no length.
    #[must_use]
    pub fn new(rules: MonitorRules, start: u64) -> Self {
        assert!(rules.period > 0, "a period has a length");
        Self { rules, start, periods: 0, fields: BTreeMap::new() }
    }

    /// Misses of a field at a time, as many as there were samples (their scatter is judged as that of samples). One earlier than the
    /// current period counts for the current one.
    pub fn add(&mut self, time: u64, field: &K, misses: f64) {
        self.advance(time);
        self.series(field).current += misses;
    }

    /// It is now this time: ends the periods before it. The number of periods that it ended.
    pub fn advance(&mut self, time: u64) -> usize {
        let reached = time.saturating_sub(self.start) / self.rules.period;
        let reached = usize::try_from(reached).unwrap_or(usize::MAX);
        let ended = reached.saturating_sub(self.periods);
        for _ in 0..ended {
            let rules = self.rules;
            self.fields.values_mut().for_each(|series| series.end_period(&rules));
            self.periods += 1;
        }
        ended
    }

    /// The layout of the objects behind a field was changed, or changed back, at a time.
    pub fn changed(&mut self, time: u64, field: &K) {
        self.advance(time);
        let period = self.periods;
        let series = self.series(field);
        series.changes.push(Change { time, period });
        series.effect = Effect::Waiting;
        series.repeated = (Judgement::None, 0);
    }

    /// What is known of a field; `None` for one that never had a miss.
    #[must_use]
    pub fn of(&self, field: &K) -> Option<&Series> {
        self.fields.get(field)
    }

    /// All fields.
    pub fn fields(&self) -> impl Iterator<Item = (&K, &Series)> {
        self.fields.iter()
    }

    /// Fields whose last change hurt.
    pub fn hurt(&self) -> impl Iterator<Item = &K> {
        let hurt = |(_, series): &(&K, &Series)| matches!(series.effect, Effect::Hurt { .. });
        self.fields.iter().filter(hurt).map(|(field, _)| field)
    }

    /// Periods that have ended.
    #[must_use]
    pub fn periods(&self) -> usize {
        self.periods
    }

    fn series(&mut self, field: &K) -> &mut Series {
        if !self.fields.contains_key(field) {
            // A field that was silent until now had no misses.
            let series = Series { misses: vec![0.0; self.periods], ..Series::default() };
            self.fields.insert(field.clone(), series);
        }
        self.fields.get_mut(field).expect("inserted")
    }
}
