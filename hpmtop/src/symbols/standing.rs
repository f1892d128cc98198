//! How advice on the layout of objects stands: whether it was followed, and what came of that.
//!
//! That it was followed is told by a marker of the program itself, or by whoever sits before the screen. What came of it is judged
//! by `libhpm::analysis::coallocation::Monitor`, by the misses of each period before and after.

use std::collections::{BTreeMap, HashMap};

use libhpm::analysis::coallocation::{Effect, Field, Monitor, MonitorRules, Verdict, Weights};

/// How a marker begins that tells of a changed layout; behind it stands the field, as the screen shows it.
pub(crate) const LAYOUT: &str = "coalloc ";

/// Changes of layout of each process that are kept.
const CHANGES_MAX: usize = 64;
/// Processes of which they are kept.
const PROCESSES_MAX: usize = 256;
/// Periods after which following begins anew, with what was judged until then.
const PERIODS_MAX: usize = 4096;

/// A change of layout: when (TSC), and of the objects behind which field.
pub(super) type Change = (u64, String);

/// The changes of layout of all processes.
#[derive(Default)]
pub(super) struct Layouts {
    processes: HashMap<u32, Vec<Change>>,
}

impl Layouts {
    /// Takes note of a change.
    pub(super) fn add(&mut self, pid: u32, tsc: u64, field: String) {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&pid) {
            self.processes.clear();
        }
        let changes = self.processes.entry(pid).or_default();
        // A replay that went back tells the same again.
        if changes.contains(&(tsc, field.clone())) {
            return;
        }
        let place = changes.partition_point(|(other, _)| *other <= tsc);
        changes.insert(place, (tsc, field));
        if changes.len() > CHANGES_MAX {
            changes.remove(0);
        }
    }

    /// Those of a process, in order of time.
    pub(super) fn of(&self, pid: u32) -> &[Change] {
        self.processes.get(&pid).map_or(&[], Vec::as_slice)
    }
}

/// How advice stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Nothing is advised, or not yet.
    Watching,
    /// It is advised, and nobody has told that it was done.
    Advised,
    /// It was done, and what comes of it is not clear yet.
    Applied,
    /// There are fewer misses: relative change with its 95 % interval (low, mean, high).
    Better((f64, f64, f64)),
    /// There are more misses.
    Worse((f64, f64, f64)),
}

impl Standing {
    /// In a word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Watching => "watching",
            Self::Advised => "advised",
            Self::Applied => "applied",
            Self::Better(_) => "better",
            Self::Worse(_) => "worse",
        }
    }
}

/// Follows the misses of the fields of one process.
pub(super) struct Follower {
    rules: MonitorRules,
    monitor: Monitor<String>,
    start: u64,
    now: u64,
    /// The weight of each field that the monitor knows of.
    known: HashMap<String, f64>,
    /// Changes that the monitor was told, by their number in the process's list.
    told: Vec<Change>,
    /// What was judged by a monitor that was given up.
    before: BTreeMap<String, Standing>,
}

impl Follower {
    /// With periods of so many ticks.
    pub(super) fn new(slot_ticks: u64) -> Self {
        let rules = MonitorRules { period: slot_ticks.max(1), ..MonitorRules::default() };
        Self {
            rules,
            monitor: Monitor::new(rules, 0),
            start: 0,
            now: 0,
            known: HashMap::new(),
            told: Vec::new(),
            before: BTreeMap::new(),
        }
    }

    /// It is now this time: what the fields weigh until now belongs to the period before it if that is over.
    pub(super) fn advance(&mut self, tsc: u64, weights: &Weights, changes: &[Change]) {
        if self.start == 0 {
            (self.start, self.now) = (tsc, tsc);
            self.monitor = Monitor::new(self.rules, tsc);
        }
        let is_new = |change: &&Change| change.0 <= tsc && !self.told.contains(change);
        let new: Vec<Change> = changes.iter().filter(is_new).cloned().collect();
        let period = |tsc: u64| tsc.saturating_sub(self.start) / self.rules.period;
        if new.is_empty() && period(tsc) == period(self.now) {
            self.now = self.now.max(tsc);
            return;
        }
        self.weigh(weights);
        for (time, field) in new {
            self.monitor.changed(time.max(self.now), &field);
            self.before.remove(&field);
            self.told.push((time, field));
            self.told.drain(..self.told.len().saturating_sub(CHANGES_MAX));
        }
        self.monitor.advance(tsc);
        self.now = self.now.max(tsc);
        if self.monitor.periods() > PERIODS_MAX {
            self.begin_anew();
        }
    }

    /// Tells the monitor what came since the last time.
    fn weigh(&mut self, weights: &Weights) {
        for (field, weight) in weights.table() {
            let field = field.to_string();
            let known = self.known.get(&field).copied().unwrap_or(0.0);
            if weight.samples > known {
                self.monitor.add(self.now, &field, weight.samples - known);
                self.known.insert(field, weight.samples);
            }
        }
    }

    /// The weights were counted anew, and nothing of them is news.
    pub(super) fn forget(&mut self, weights: &Weights) {
        let known = weights.table().into_iter().map(|(field, weight)| (field.to_string(), weight.samples));
        self.known = known.collect();
    }

    /// Memory is bounded: the periods so far are given up, and what was judged is kept.
    fn begin_anew(&mut self) {
        let judged: Vec<(String, Standing)> = self.changed().collect();
        self.before.extend(judged);
        self.start = self.now;
        self.monitor = Monitor::new(self.rules, self.now);
    }

    /// What came of each change.
    pub(super) fn changed(&self) -> impl Iterator<Item = (String, Standing)> {
        let now = self.monitor.fields().filter_map(|(field, series)| {
            let standing = match series.effect {
                Effect::Unchanged => return None,
                Effect::Waiting | Effect::Unclear { .. } => Standing::Applied,
                Effect::Helped { change } => Standing::Better(change),
                Effect::Hurt { change } => Standing::Worse(change),
            };
            Some((field.clone(), standing))
        });
        self.before.iter().map(|(field, standing)| (field.clone(), *standing)).chain(now)
    }

    /// How the advice of a field stands.
    pub(super) fn standing(&self, field: &Field, verdict: Verdict) -> Standing {
        let name = field.to_string();
        let changed = self.changed().filter(|(other, _)| *other == name).last();
        match (changed, verdict) {
            (Some((_, standing)), _) => standing,
            (None, Verdict::CoAllocate) => Standing::Advised,
            (None, Verdict::Leave) => Standing::Watching,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Misses of one field, so many in each period.
    fn follow(rates: &[u32], changes: &[Change]) -> Follower {
        let field = Field::new("entry", "items");
        let (mut follower, mut weights) = (Follower::new(100), Weights::default());
        for (period, rate) in (1..).zip(rates) {
            for n in 0..*rate {
                let tsc = period * 100 + u64::from(n % 100);
                follower.advance(tsc, &weights, changes);
                weights.add(&field, 1.0, 1000, false);
            }
        }
        follower.advance((rates.len() as u64 + 1) * 100, &weights, changes);
        follower
    }

    fn standing(follower: &Follower) -> &'static str {
        follower.standing(&Field::new("entry", "items"), Verdict::CoAllocate).word()
    }

    #[test]
    fn advice_that_was_followed_is_judged_by_what_came_then() {
        let change = [(1100, "entry::items".to_owned())];
        let rates = |after: u32| [vec![40; 10], vec![after; 12]].concat();
        assert_eq!(standing(&follow(&rates(40), &[])), "advised");
        assert_eq!(standing(&follow(&rates(40), &change)), "applied");
        assert_eq!(standing(&follow(&rates(15), &change)), "better");
        assert_eq!(standing(&follow(&rates(90), &change)), "worse");
        let leave = follow(&rates(40), &[]).standing(&Field::new("entry", "items"), Verdict::Leave);
        assert_eq!(leave, Standing::Watching);
    }

    #[test]
    fn what_was_judged_outlives_the_periods() {
        let change = [(1100, "entry::items".to_owned())];
        let mut follower = follow(&[vec![40; 10], vec![15; 12]].concat(), &change);
        follower.begin_anew();
        assert_eq!((standing(&follower), follower.monitor.periods()), ("better", 0));
    }

    #[test]
    fn changes_are_kept_in_order_once_and_not_too_many() {
        let mut layouts = Layouts::default();
        for tsc in (0..200).rev().chain(0..10) {
            layouts.add(7, tsc, "a::b".to_owned());
        }
        let times: Vec<u64> = layouts.of(7).iter().map(|(tsc, _)| *tsc).collect();
        assert!(times.len() <= CHANGES_MAX && times.is_sorted(), "{times:?}");
        assert!(layouts.of(8).is_empty());
    }
}
