//! How well found changes agree with the true ones.

use serde::Serialize;

use super::online::Alarm;

/// Found changes against true ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// True changes that were found.
    pub hits: usize,
    /// True changes.
    pub changes: usize,
    /// Changes that were declared.
    pub declared: usize,
    /// Sum over the hits of the intervals from the change until it was found.
    pub delay: usize,
}

impl Score {
    /// Adds the numbers of another stream.
    pub fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.changes += other.changes;
        self.declared += other.declared;
        self.delay += other.delay;
    }

    /// The part of the declared changes that are true; 1 when none was declared.
    #[must_use]
    pub fn precision(&self) -> f64 {
        part(self.hits, self.declared)
    }

    /// The part of the true changes that were found; 1 when there is none.
    #[must_use]
    pub fn recall(&self) -> f64 {
        part(self.hits, self.changes)
    }

    /// Harmonic mean of precision and recall.
    #[must_use]
    pub fn f1(&self) -> f64 {
        part(2 * self.hits, self.declared + self.changes)
    }

    /// Mean intervals from a change until it was found; `None` without a hit.
    #[must_use]
    pub fn mean_delay(&self) -> Option<f64> {
        (self.hits > 0).then(|| self.delay as f64 / self.hits as f64)
    }
}

fn part(of: usize, all: usize) -> f64 {
    if all == 0 { 1.0 } else { of as f64 / all as f64 }
}

/// Matches found changes (in order) with true ones (in order): each with at most one. A change is hit when it was found no more
/// than `margin` intervals after it, and dated no more than `margin` before or after it.
#[must_use]
pub fn score(found: &[Alarm], changes: &[usize], margin: usize) -> Score {
    let mut score = Score { changes: changes.len(), declared: found.len(), ..Score::default() };
    let mut next = 0;
    for &change in changes {
        // Alarms too early for this change are too early for all later ones.
        while found.get(next).is_some_and(|alarm| alarm.changed + margin < change) {
            next += 1;
        }
        let hit = found
            .get(next)
            .filter(|alarm| alarm.changed <= change + margin && alarm.found <= change.saturating_add(margin));
        if let Some(alarm) = hit {
            score.hits += 1;
            score.delay += alarm.found.saturating_sub(change);
            next += 1;
        }
    }
    score
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &[usize]) -> Vec<Alarm> {
        places.iter().map(|&place| Alarm { found: place, changed: place }).collect()
    }

    #[test]
    fn each_change_is_hit_once() {
        let result = score(&at(&[51, 53, 99, 200]), &[50, 100, 150], 5);
        assert_eq!(result, Score { hits: 2, changes: 3, declared: 4, delay: 1 });
        assert_eq!((result.precision(), result.recall()), (0.5, 2.0 / 3.0));
        assert!((result.f1() - 4.0 / 7.0).abs() < 1e-12);
        assert_eq!(result.mean_delay(), Some(0.5));
    }

    #[test]
    fn what_is_found_too_late_is_not_hit() {
        let late = [Alarm { found: 70, changed: 50 }];
        assert_eq!(score(&late, &[50], 5).hits, 0);
        assert_eq!(score(&late, &[50], 20).hits, 1);
    }

    #[test]
    fn nothing_to_find_and_nothing_found_is_perfect() {
        let none = score(&[], &[], 5);
        assert_eq!((none.precision(), none.recall(), none.f1(), none.mean_delay()), (1.0, 1.0, 1.0, None));
        assert_eq!(score(&at(&[3]), &[], 5).precision(), 0.0);
    }
}
