//! When a pattern comes back, beyond the paper: repetitions that span other occurrences of the same pattern.
//!
//! The published selection measures each new distance from the last occurrence. A pattern that occurs twice in a round, after 40
//! and 140, is then never confirmed, although every second occurrence comes after 180. Here each of the last occurrences
//! has a distance of its own: how long ago the last one was, the one before it, and so on.

use super::distance::{HOTNESS_MAX, HOTNESS_NEW, Repetition, within_tolerance};

/// Occurrences back in time that are compared with.
const LAGS: usize = 6;
/// A length follows what is measured by one in so many parts, so that it averages jitter and follows drift.
const FOLLOW: i64 = 4;

/// Repetition lengths of one pattern, one for each lag.
#[derive(Clone, Copy, Debug)]
pub struct Lags {
    /// The last occurrences, the latest first.
    recent: [u64; LAGS],
    /// How many of them there are.
    count: usize,
    lengths: [u64; LAGS],
    hotness: [u8; LAGS],
}

impl Lags {
    /// Of a pattern that occurs for the first time.
    #[must_use]
    pub fn new(at: u64) -> Self {
        let mut recent = [0; LAGS];
        recent[0] = at;
        Self { recent, count: 1, lengths: [0; LAGS], hotness: [0; LAGS] }
    }

    /// The lag with the hottest length; of equals the smallest, as twice a period is a period too.
    fn best_lag(&self) -> Option<usize> {
        let lag = (0..LAGS).rev().max_by_key(|&lag| self.hotness[lag])?;
        (self.hotness[lag] > 0).then_some(lag)
    }

    /// The hottest repetition.
    #[must_use]
    pub fn best(&self) -> Option<Repetition> {
        let lag = self.best_lag()?;
        Some(Repetition { length: self.lengths[lag], confidence: self.hotness[lag] })
    }

    /// Takes an occurrence. When it came as [`Lags::best`] said, returns the time since the one that it repeats.
    pub fn occur(&mut self, at: u64) -> Option<u64> {
        let predicted = self.best_lag();
        let mut repeats = None;
        for lag in 0..self.count {
            let since = at.saturating_sub(self.recent[lag]);
            if self.hotness[lag] > 0 && within_tolerance(since, self.lengths[lag]) {
                if predicted == Some(lag) {
                    repeats = Some(since);
                }
                self.hotness[lag] = HOTNESS_MAX.min(self.hotness[lag] + 1);
                let change = (since as i64 - self.lengths[lag] as i64) / FOLLOW;
                self.lengths[lag] = self.lengths[lag].saturating_add_signed(change);
            } else {
                self.hotness[lag] = self.hotness[lag].saturating_sub(1);
                if self.hotness[lag] == 0 {
                    (self.lengths[lag], self.hotness[lag]) = (since, HOTNESS_NEW);
                }
            }
        }
        self.recent.rotate_right(1);
        self.recent[0] = at;
        self.count = LAGS.min(self.count + 1);
        repeats
    }

    /// Some time is missing before the next occurrence: nothing is measured across it.
    pub fn interrupt(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u64>) -> Lags {
        let mut times = times.into_iter();
        let mut lags = Lags::new(times.next().unwrap());
        times.for_each(|at| {
            lags.occur(at);
        });
        lags
    }

    #[test]
    fn a_regular_pattern_repeats_after_its_distance() {
        assert_eq!(after([1000]).best(), None);
        let best = after((0..20).map(|round| round * 1000)).best();
        assert_eq!(best, Some(Repetition { length: 1000, confidence: HOTNESS_MAX }));
    }

    /// What the published selection never learns.
    #[test]
    fn several_occurrences_in_a_round_repeat_after_the_round() {
        let times = (0..40).map(|time| time / 2 * 180 + time % 2 * 40);
        assert_eq!(after(times).best(), Some(Repetition { length: 180, confidence: HOTNESS_MAX }));
    }

    #[test]
    fn lengths_follow_a_drift() {
        let mut at = 0;
        let mut length = 1000;
        let times = (0..60).map(|_| {
            at += length;
            length += 10;
            at
        });
        let best = after(times).best().unwrap();
        assert!(best.length.abs_diff(1590) < 80 && best.confidence == HOTNESS_MAX, "{best:?}");
    }

    #[test]
    fn a_habit_that_ends_is_forgotten() {
        let mut lags = after((0..20).map(|round| round * 1000));
        let mut at = 19_000;
        for _ in 0..40 {
            at += 300;
            lags.occur(at);
        }
        assert_eq!(lags.best().unwrap().length, 300);
    }
}
