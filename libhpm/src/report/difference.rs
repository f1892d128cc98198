//! What changed between two traces, and whether it is more than chance.
//!
//! If nothing has changed, a group's samples in the second trace are a random choice among all of both traces when shares are compared,
//! so that they are hypergeometrically distributed (Fisher's exact test); when events are compared, those of the second among the group's
//! samples in both are binomially distributed, with the part that its periods give it (Przyborowski and Wilenski's test of two Poisson
//! rates, Biometrika 31, 1940). Both are exact for few samples.
//! Where a group's periods differ from each other or from those of the rest (`-F`, a period for each phase) it is the same test of
//! as many samples of one period as tell as much ([`Sum::effective_samples`]), each of which stands for Σw²/Σw events; it is
//! approximate then. Many groups are tested at once, so their p-values become rates of false discoveries
//! ([`crate::analysis::statistics::false_discovery_rates`]).
//!
//! It takes samples for independent, and knows nothing of what differs from one run to the next anyway: one trace of each side
//! shows that these two runs differ, not that the programs do.

use std::collections::HashMap;

use serde::Serialize;

use super::{Entry, Estimate, Key, Sum};
use crate::analysis::statistics::{
    LEVEL, binomial_two_sided, false_discovery_rates, hypergeometric_two_sided,
};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Shares of all samples: for runs of different length.
    Share,
    /// Events as estimated from samples: for runs that did the same work.
    Events,
}

/// A group in two traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What its samples have in common.
    #[serde(flatten)]
    pub key: Key,
    /// Samples in the first trace.
    pub before: Sum,
    /// Samples in the second trace.
    pub after: Sum,
    /// Their share of the first trace.
    pub share_before: Estimate,
    /// Their share of the second trace.
    pub share_after: Estimate,
    /// How likely chance alone makes such a difference, or a greater one.
    pub p_value: f64,
    /// Rate of false discoveries among all groups that are at least as clear as this one.
    pub false_discovery_rate: f64,
}

impl Change {
    /// The rate of false discoveries is at most 5 %.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.false_discovery_rate <= LEVEL
    }

    /// How much it grew: in parts of all samples, or in events.
    #[must_use]
    pub fn growth(&self, basis: Basis) -> f64 {
        match basis {
            Basis::Share => self.share_after.share - self.share_before.share,
            Basis::Events => self.after.events as f64 - self.before.events as f64,
        }
    }
}

/// The groups of two tables of one event, those that changed most first. Each side is the table's entries and the sum of all its
/// samples.
#[must_use]
pub fn changes(before: (&[Entry], Sum), after: (&[Entry], Sum), basis: Basis) -> Vec<Change> {
    let mut groups: HashMap<Key, (Sum, Sum)> = HashMap::new();
    for entry in before.0 {
        groups.entry(comparable(&entry.key)).or_default().0.add(entry.own);
    }
    for entry in after.0 {
        groups.entry(comparable(&entry.key)).or_default().1.add(entry.own);
    }
    let mut changes: Vec<Change> = groups
        .into_iter()
        .filter(|(_, (one, other))| one.samples + other.samples > 0)
        .map(|(key, (one, other))| Change {
            key,
            before: one,
            after: other,
            share_before: Estimate::of(one, before.1),
            share_after: Estimate::of(other, after.1),
            p_value: chance((one, before.1), (other, after.1), basis),
            false_discovery_rate: 1.0,
        })
        .collect();
    let p_values: Vec<f64> = changes.iter().map(|change| change.p_value).collect();
    for (change, rate) in changes.iter_mut().zip(false_discovery_rates(&p_values)) {
        change.false_discovery_rate = rate;
    }
    changes.sort_by(|a, b| {
        let (one, other) = (a.growth(basis).abs(), b.growth(basis).abs());
        other.total_cmp(&one).then_with(|| a.key.cmp(&b.key))
    });
    changes
}

/// How likely chance alone makes a group's samples differ so much, or more. Each side is the group's samples and all of the trace's.
fn chance(before: (Sum, Sum), after: (Sum, Sum), basis: Basis) -> f64 {
    // A sample stands for its period: the same events are fewer samples with longer ones. A group without samples would have had
    // those of the rest.
    let per_event = |(own, all): (Sum, Sum)| {
        let sum = if own.samples > 0 { own } else { all };
        sum.effective_samples() / sum.events.max(1) as f64
    };
    let (hits, rest) = (after.0.effective_samples(), before.0.effective_samples());
    let [one, other] = [per_event(before), per_event(after)];
    match basis {
        Basis::Share => {
            let [one, other] = [one * before.1.events as f64, other * after.1.events as f64];
            hypergeometric_two_sided(hits, hits + rest, other, one + other)
        }
        Basis::Events => {
            let is_told = before.1.samples > 0 && after.1.samples > 0 && one + other > 0.0;
            binomial_two_sided(hits, hits + rest, if is_told { other / (one + other) } else { 0.5 })
        }
    }
}

/// The key without what differs between builds and runs of one program: its file's folder.
fn comparable(key: &Key) -> Key {
    let name = |path: &std::sync::Arc<str>| path.rsplit('/').next().unwrap_or(path).into();
    Key { module: key.module.as_ref().map(name), ..key.clone() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(samples: u64, period: u64) -> Sum {
        let squares = u128::from(samples * period) * u128::from(period);
        Sum { samples, events: samples * period, squares, ..Sum::default() }
    }

    fn entries(folder: &str, period: u64, groups: &[(&str, u64)]) -> (Vec<Entry>, Sum) {
        let mut all = Sum::default();
        let entry = |&(name, samples): &(&str, u64)| {
            let own = of(samples, period);
            all.add(own);
            let none = Estimate::new(0, 0, 0.0);
            let module = format!("{folder}/program").as_str().into();
            let key = Key { function: Some(name.into()), module: Some(module), ..Key::default() };
            Entry { key, own, total: own, own_share: none, total_share: none }
        };
        (groups.iter().map(entry).collect(), all)
    }

    fn between(before: &(Vec<Entry>, Sum), after: &(Vec<Entry>, Sum), basis: Basis) -> Vec<(String, bool)> {
        let changes = changes((&before.0, before.1), (&after.0, after.1), basis);
        let name = |change: &Change| change.key.function.as_deref().unwrap().to_owned();
        changes.iter().map(|change| (name(change), change.is_significant())).collect()
    }

    #[test]
    fn what_got_faster_is_told_from_chance() {
        let before = entries("/old", 1000, &[("fixed", 500), ("same", 400), ("other", 100)]);
        let after = entries("/new", 1000, &[("fixed", 100), ("same", 412), ("other", 95), ("rare", 1)]);
        let named = |name: &str, significant| (name.to_owned(), significant);
        assert_eq!(
            between(&before, &after, Basis::Events),
            [named("fixed", true), named("same", false), named("other", false), named("rare", false)]
        );
        // The same work is a greater share of what is left.
        assert_eq!(between(&before, &after, Basis::Share)[..2], [named("fixed", true), named("same", true)]);
    }

    /// What one group gains the others lose: it is one fact, and as likely by chance.
    #[test]
    fn a_group_and_all_the_others_change_alike() {
        for (was, is, p) in [(600, 550, 0.0271), (990, 970, 0.0020)] {
            let before = entries("/p", 1000, &[("f", was), ("others", 1000 - was)]);
            let after = entries("/p", 1000, &[("f", is), ("others", 1000 - is)]);
            let found = changes((&before.0, before.1), (&after.0, after.1), Basis::Share);
            let found: Vec<f64> = found.iter().map(|change| change.p_value).collect();
            assert!(found.iter().all(|one| (one / p - 1.0).abs() < 0.1), "{found:?}, not {p}");
            assert!((found[0] / found[1] - 1.0).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn longer_periods_are_no_change() {
        let before = entries("/p", 1000, &[("f", 800), ("g", 200)]);
        let after = entries("/p", 4000, &[("f", 200), ("g", 50)]);
        for basis in [Basis::Share, Basis::Events] {
            assert!(between(&before, &after, basis).iter().all(|(_, significant)| !significant), "{basis:?}");
        }
    }

    /// As with `-F`: a group's periods became shorter, those of the other did not.
    #[test]
    fn other_periods_of_one_group_are_no_change() {
        let side = |samples, period| {
            (of(samples, period), {
                let mut all = of(1000, 100_000);
                all.add(of(samples, period));
                all
            })
        };
        let chance = |basis| chance(side(1000, 100_000), side(2000, 50_000), basis);
        assert!(chance(Basis::Share) > 0.99 && chance(Basis::Events) > 0.99, "{}", chance(Basis::Share));
    }

    /// However many events it stands for, it is one.
    #[test]
    fn a_single_sample_of_a_long_period_shows_nothing() {
        let before = of(10_000, 100);
        let (long, mut after) = (Sum::sample(100_000, None), before);
        after.add(long);
        let found = chance((Sum::default(), before), (long, after), Basis::Share);
        assert!(found > LEVEL / 100.0, "{found}");
    }

    #[test]
    fn nothing_against_something() {
        let (none, some) = (entries("/p", 1, &[]), entries("/p", 1, &[("f", 100)]));
        assert_eq!(between(&none, &some, Basis::Events), [("f".to_owned(), true)]);
        assert!(between(&none, &none, Basis::Share).is_empty());
    }

    proptest! {
        /// Two traces that are the same differ in nothing, and those of one drawn twice rarely do.
        #[test]
        fn the_same_is_no_change(samples in prop::collection::vec(0_u64..10_000, 1..40)) {
            let names: Vec<String> = (0..samples.len()).map(|number| format!("f{number}")).collect();
            let groups: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(samples).collect();
            let one = entries("/p", 7, &groups);
            for basis in [Basis::Share, Basis::Events] {
                prop_assert!(between(&one, &one, basis).iter().all(|(_, significant)| !significant));
            }
        }
    }
}
