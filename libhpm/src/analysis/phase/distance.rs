//! The tri-distance selection (§3.2): after which time a pattern should come back.

/// T of §5.1: lengths are alike when they differ by at most this part of the expected one.
pub const TOLERANCE: f64 = 0.10;

/// Repetition distances kept for each pattern.
const DISTANCES: usize = 3;
/// Hotness of a new distance: "low but positive".
pub(super) const HOTNESS_NEW: u8 = 2;
/// Hotness goes no higher, so that old habits can be given up.
pub(super) const HOTNESS_MAX: u8 = 15;

/// Whether `length` is `expected` within [`TOLERANCE`].
#[must_use]
pub fn within_tolerance(length: u64, expected: u64) -> bool {
    length.abs_diff(expected) as f64 <= TOLERANCE * expected as f64
}

/// When a pattern should come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Time from one occurrence to the next, in TSC ticks on a CPU.
    pub length: u64,
    /// Hotness: how well that has held, 0 to 15.
    pub confidence: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Distance {
    length: u64,
    /// The occurrence that confirmed it last.
    end: u64,
    hotness: u8,
}

/// The three most popular repetition distances of one pattern.
#[derive(Clone, Copy, Debug)]
pub struct Distances {
    kept: [Distance; DISTANCES],
    len: usize,
    /// The last occurrence; `None` when time is missing since.
    last: Option<u64>,
}

impl Distances {
    /// Of a pattern that occurs for the first time.
    #[must_use]
    pub fn new(at: u64) -> Self {
        Self { kept: [Distance::default(); DISTANCES], len: 0, last: Some(at) }
    }

    /// The hottest distance, of equals the first one; `None` for a pattern that has occurred once.
    #[must_use]
    pub fn best(&self) -> Option<Repetition> {
        let kept = &self.kept[..self.len];
        let best = kept.iter().rev().max_by_key(|distance| distance.hotness)?;
        Some(Repetition { length: best.length, confidence: best.hotness })
    }

    /// Takes an occurrence. When it came as [`Distances::best`] said, returns the time since the one that it repeats.
    pub fn occur(&mut self, at: u64) -> Option<u64> {
        let Some(last) = self.last.replace(at) else {
            self.kept.iter_mut().for_each(|distance| distance.end = at);
            return None;
        };
        let predicted = self.best();
        let mut matched = false;
        let mut repeats = None;
        for distance in &mut self.kept[..self.len] {
            let since = at.saturating_sub(distance.end);
            if within_tolerance(since, distance.length) {
                matched = true;
                if predicted.is_some_and(|best| best.length == distance.length) {
                    repeats = Some(since);
                }
                distance.hotness = HOTNESS_MAX.min(distance.hotness + 1);
                distance.end = at;
            } else {
                distance.hotness = distance.hotness.saturating_sub(1);
            }
        }
        if !matched {
            let new = Distance { length: at.saturating_sub(last), end: at, hotness: HOTNESS_NEW };
            *self.coldest() = new;
        }
        repeats
    }

    /// Some time is missing before the next occurrence, which all distances are measured from then.
    pub fn interrupt(&mut self) {
        self.last = None;
    }

    /// The place for a new distance: a free one, or that of the coldest.
    fn coldest(&mut self) -> &mut Distance {
        let place = if self.len < DISTANCES {
            self.len += 1;
            self.len - 1
        } else {
            // There are three, so the range is not empty.
            (0..DISTANCES).min_by_key(|&place| self.kept[place].hotness).unwrap_or(0)
        };
        &mut self.kept[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(occurrences: &[u64]) -> Distances {
        let mut distances = Distances::new(occurrences[0]);
        occurrences[1..].iter().for_each(|&at| {
            distances.occur(at);
        });
        distances
    }

    #[test]
    fn a_regular_pattern_grows_confident() {
        assert_eq!(after(&[1000]).best(), None);
        assert_eq!(after(&[1000, 2000]).best(), Some(Repetition { length: 1000, confidence: 2 }));
        assert_eq!(after(&[0, 1000, 2050, 3010]).best(), Some(Repetition { length: 1000, confidence: 4 }));
        let many: Vec<u64> = (0..100).map(|time| time * 1000).collect();
        assert_eq!(after(&many).best(), Some(Repetition { length: 1000, confidence: 15 }));
    }

    #[test]
    fn the_tolerance_is_a_tenth_of_the_length() {
        let mut distances = after(&[0, 1000]);
        assert_eq!(distances.occur(2100), Some(1100), "1100 is within 10 % of 1000");
        assert_eq!(distances.occur(3201), None, "1101 is not");
        assert!(within_tolerance(900, 1000) && !within_tolerance(899, 1000));
    }

    /// A limit of the published selection (see `lag.rs`): each new distance ends at the last occurrence, so that of two distances in turn
    /// none is ever confirmed.
    #[test]
    fn two_distances_in_turn_are_not_learnt() {
        let times: Vec<u64> = (0..20).map(|time| time / 2 * 1000 + time % 2 * 300).collect();
        assert_eq!(after(&times).best().unwrap().confidence, HOTNESS_NEW);
    }

    #[test]
    fn the_coldest_makes_room() {
        // 1000 is confirmed twice; then come 10, 50 and 300, of which the third replaces one of the two before.
        let distances = after(&[0, 1000, 2000, 3000, 3010, 3060, 3360]);
        let lengths: Vec<u64> = distances.kept.iter().map(|distance| distance.length).collect();
        assert_eq!(lengths, [1000, 300, 50]);
        assert_eq!(distances.kept.map(|distance| distance.hotness), [1, 2, 1]);
    }

    #[test]
    fn on_time_means_the_hottest_distance() {
        let mut distances = after(&[0, 1000, 2000, 3000, 3300]);
        assert_eq!(distances.occur(3600), None, "300 is known, but 1000 is hotter");
    }
}
