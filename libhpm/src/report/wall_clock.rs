//! Where threads spent their time, on a CPU and off it, by what samples and waits have in common.

use std::collections::HashMap;

use serde::Serialize;

use super::{Grouping, Key, Order, Sample, Sum, Table, WaitKind};

/// Collects time into groups.
#[derive(Debug)]
pub struct WallClock {
    on_cpu: Table,
    blocked: Table,
    preempted: Table,
    unknown: Table,
}

/// One group; all times in ns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WallClockEntry {
    /// What its samples and waits have in common.
    #[serde(flatten)]
    pub key: Key,
    /// On a CPU, as the samples of a clock share it out.
    pub on_cpu_ns: u64,
    /// Blocked there.
    pub blocked_ns: u64,
    /// Pre-empted there.
    pub preempted_ns: u64,
    /// Off a CPU, and the trace does not tell why.
    pub unknown_ns: u64,
    /// How many waits.
    pub waits: u64,
    /// All of this, here and in what was called from here; a wait has its callers only where its stack was recorded.
    pub total_ns: u64,
}

impl WallClockEntry {
    /// All time here.
    #[must_use]
    pub fn own_ns(&self) -> u64 {
        [self.on_cpu_ns, self.blocked_ns, self.preempted_ns, self.unknown_ns]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl WallClock {
    /// An empty one.
    #[must_use]
    pub fn new(by: impl Into<Grouping>) -> Self {
        let by = by.into();
        let table = || Table::new(by.clone());
        Self { on_cpu: table(), blocked: table(), preempted: table(), unknown: table() }
    }

    /// What it groups by.
    #[must_use]
    pub fn by(&self) -> &Grouping {
        self.on_cpu.by()
    }

    /// Adds a thread's time on CPUs, shared out by its samples of a clock with their events. Without samples nobody knows
    /// where it was; the time is returned.
    #[must_use]
    pub fn on_cpu(&mut self, samples: &[(Sample, Sum)], on_cpu_ns: u64) -> u64 {
        let all: u128 = samples.iter().map(|(_, sum)| u128::from(sum.events)).sum();
        // Rounding down each share would lose ns; the running sum loses none.
        let (mut events, mut given) = (0, 0);
        for (sample, sum) in samples {
            events += u128::from(sum.events);
            let until = (u128::from(on_cpu_ns) * events).checked_div(all).unwrap_or(0) as u64;
            self.on_cpu.add(sample, Sum { samples: sum.samples, events: until - given, ..Sum::default() });
            given = until;
        }
        on_cpu_ns - given
    }

    /// Adds a wait, at the place where the thread was.
    pub fn wait(&mut self, kind: WaitKind, place: &Sample, ns: u64) {
        let table = match kind {
            WaitKind::Blocked => &mut self.blocked,
            WaitKind::Preempted => &mut self.preempted,
            WaitKind::Unknown => &mut self.unknown,
        };
        table.add(place, Sum::sample(ns, None));
    }

    /// All time: on a CPU, blocked, pre-empted, not told.
    #[must_use]
    pub fn all(&self) -> [u64; 4] {
        [&self.on_cpu, &self.blocked, &self.preempted, &self.unknown].map(|table| table.all().events)
    }

    /// The groups, the one with most time first.
    #[must_use]
    pub fn entries(&self) -> Vec<WallClockEntry> {
        let mut groups: HashMap<Key, ([u64; 4], u64, u64)> = HashMap::new();
        let tables = [&self.on_cpu, &self.blocked, &self.preempted, &self.unknown];
        for (place, table) in tables.into_iter().enumerate() {
            for entry in table.entries(Order::Events) {
                let (own, waits, total) = groups.entry(entry.key).or_default();
                own[place] = entry.own.events;
                *waits += if place > 0 { entry.own.samples } else { 0 };
                *total += entry.total.events;
            }
        }
        let entry = |(key, (own, waits, total_ns)): (Key, ([u64; 4], u64, u64))| {
            let [on_cpu_ns, blocked_ns, preempted_ns, unknown_ns] = own;
            WallClockEntry { key, on_cpu_ns, blocked_ns, preempted_ns, unknown_ns, waits, total_ns }
        };
        let mut entries: Vec<WallClockEntry> = groups.into_iter().map(entry).collect();
        entries.sort_by(|a, b| {
            (b.own_ns(), b.total_ns).cmp(&(a.own_ns(), a.total_ns)).then_with(|| a.key.cmp(&b.key))
        });
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::sample;
    use crate::report::{By, Extent};

    #[test]
    fn time_on_a_cpu_is_shared_out_without_a_loss() {
        let mut clock = WallClock::new(By::Function);
        let sum = |events| Sum::sample(events, None);
        let of = |names: &[&str]| sample(names, Extent::Whole);
        let samples = [(of(&["a", "main"]), sum(1)), (of(&["b", "main"]), sum(1)), (of(&["main"]), sum(1))];
        assert_eq!(clock.on_cpu(&samples, 100), 0);
        assert_eq!(clock.on_cpu(&[], 7), 7, "nobody knows");
        clock.wait(WaitKind::Blocked, &of(&["read", "a", "main"]), 1000);
        clock.wait(WaitKind::Preempted, &of(&["a", "main"]), 5);
        assert_eq!(clock.all(), [100, 1000, 5, 0]);
        let entries = clock.entries();
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| {
                (entry.key.function.as_deref().unwrap(), entry.own_ns(), entry.total_ns, entry.waits)
            })
            .collect();
        assert_eq!(
            seen,
            [("read", 1000, 1000, 1), ("a", 38, 1038, 1), ("main", 34, 1105, 0), ("b", 33, 33, 0)]
        );
        assert_eq!((entries[1].on_cpu_ns, entries[1].preempted_ns), (33, 5));
    }
}
