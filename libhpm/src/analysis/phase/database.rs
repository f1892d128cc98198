//! The pattern database (§3.2), of bounded size.

use super::Rules;
use super::distance::{Distances, Repetition};
use super::lag::Lags;
use super::shape::PatternKey;

/// Patterns that the database keeps by default. The paper's largest program has 49 (Table 1).
pub const PATTERNS_DEFAULT: usize = 128;

#[derive(Clone, Debug)]
struct Entry {
    history: History,
    last: u64,
}

/// When a pattern occurred, by the rules in force.
#[derive(Clone, Debug)]
enum History {
    Distances(Distances),
    Lags(Lags),
}

impl History {
    fn new(rules: Rules, at: u64) -> Self {
        match rules {
            Rules::Published => Self::Distances(Distances::new(at)),
            Rules::NoiseGated => Self::Lags(Lags::new(at)),
        }
    }

    fn best(&self) -> Option<Repetition> {
        match self {
            Self::Distances(distances) => distances.best(),
            Self::Lags(lags) => lags.best(),
        }
    }

    fn occur(&mut self, at: u64) -> Option<u64> {
        match self {
            Self::Distances(distances) => distances.occur(at),
            Self::Lags(lags) => lags.occur(at),
        }
    }

    fn interrupt(&mut self) {
        match self {
            Self::Distances(distances) => distances.interrupt(),
            Self::Lags(lags) => lags.interrupt(),
        }
    }
}

/// All patterns seen, up to a fixed number. When it is full, the pattern with the coldest best distance makes room for a new
/// one; among equals the one that has not been seen for longest.
#[derive(Clone, Debug)]
pub struct PatternDatabase {
    // Beside the entries, so that a search reads two bytes a pattern.
    keys: Vec<PatternKey>,
    entries: Vec<Entry>,
    capacity: usize,
    replaced: u64,
    rules: Rules,
}

/// What the database says of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The pattern was in the database.
    pub recurrent: bool,
    /// It came when its hottest distance said: the time since the occurrence that it repeats.
    pub repeats: Option<u64>,
    /// When it should have come, before this occurrence was taken into account.
    pub expected: Option<Repetition>,
    /// When it should come again.
    pub next: Option<Repetition>,
}

impl PatternDatabase {
    /// An empty database for at most `capacity` patterns (at least one). All memory is allocated here.
    #[must_use]
    pub fn new(rules: Rules, capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            keys: Vec::with_capacity(capacity),
            entries: Vec::with_capacity(capacity),
            capacity,
            replaced: 0,
            rules,
        }
    }

    /// Takes an occurrence of a pattern.
    pub fn occur(&mut self, key: PatternKey, at: u64) -> Lookup {
        if let Some(place) = self.keys.iter().position(|&known| known == key) {
            let entry = &mut self.entries[place];
            entry.last = at;
            let expected = entry.history.best();
            let repeats = entry.history.occur(at);
            return Lookup { recurrent: true, repeats, expected, next: entry.history.best() };
        }
        let entry = Entry { history: History::new(self.rules, at), last: at };
        if self.keys.len() < self.capacity {
            self.keys.push(key);
            self.entries.push(entry);
        } else if let Some(place) = self.least_useful() {
            self.keys[place] = key;
            self.entries[place] = entry;
            self.replaced += 1;
        }
        Lookup { recurrent: false, repeats: None, expected: None, next: None }
    }

    /// Some time is missing: what was learnt of lengths holds, but the time since earlier occurrences is not known.
    pub fn interrupt(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.history.interrupt());
    }

    fn least_useful(&self) -> Option<usize> {
        let worth = |entry: &Entry| (entry.history.best().map_or(0, |best| best.confidence), entry.last);
        (0..self.entries.len()).min_by_key(|&place| worth(&self.entries[place]))
    }

    /// Patterns kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no pattern has been seen.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Patterns that had to make room for others.
    #[must_use]
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Bytes allocated, which never change.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.keys.capacity() * size_of::<PatternKey>() + self.entries.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::level::Variation;
    use super::super::shape::ShapeBuilder;
    use super::*;

    /// The pattern of this level that is a rise.
    fn key(level: u8) -> PatternKey {
        let mut builder = ShapeBuilder::new(Rules::Published);
        builder.push(Variation { level, rising: true }, 0);
        builder.push(Variation { level: level + 1, rising: true }, 1).unwrap().key
    }

    #[test]
    fn a_pattern_that_comes_back_is_recurrent_and_then_on_time() {
        let mut database = PatternDatabase::new(Rules::Published, 8);
        assert!(!database.occur(key(1), 100).recurrent);
        let second = database.occur(key(1), 200);
        assert!(second.recurrent && second.repeats.is_none() && second.expected.is_none());
        assert_eq!(second.next.map(|next| next.length), Some(100));
        let third = database.occur(key(1), 305);
        assert_eq!((third.recurrent, third.repeats), (true, Some(105)));
        assert_eq!((database.len(), database.replaced()), (1, 0));
    }

    /// Lengths are kept over a gap, and none is measured across it.
    #[test]
    fn nothing_is_measured_across_a_gap() {
        for rules in [Rules::Published, Rules::NoiseGated] {
            let mut database = PatternDatabase::new(rules, 8);
            for at in [0, 100, 200] {
                database.occur(key(1), at);
            }
            database.interrupt();
            let after = database.occur(key(1), 300);
            assert_eq!(
                (after.recurrent, after.repeats, after.next),
                (true, None, after.expected),
                "{rules:?}"
            );
            assert_eq!(database.occur(key(1), 400).repeats, Some(100), "{rules:?}");
        }
    }

    #[test]
    fn a_full_database_forgets_the_coldest_pattern_not_seen_for_longest() {
        let mut database = PatternDatabase::new(Rules::Published, 2);
        let bytes = database.bytes();
        database.occur(key(0), 0);
        database.occur(key(1), 5);
        database.occur(key(0), 10);
        // Level 1 has no distance yet and goes, although level 0 is older.
        database.occur(key(2), 20);
        assert!(database.occur(key(0), 25).recurrent);
        assert!(!database.occur(key(1), 30).recurrent);
        assert_eq!((database.len(), database.replaced(), database.bytes()), (2, 2, bytes));
    }
}
