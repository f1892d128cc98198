//! Samples counted by what they have in common.

use std::collections::HashMap;

use serde::Serialize;

use super::{Estimate, Grouping, Key, Sample, Sum};

/// Which groups come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Those with most events of their own.
    #[default]
    Events,
    /// Those whose own samples waited longest together.
    Latency,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// What its samples have in common.
    #[serde(flatten)]
    pub key: Key,
    /// Samples whose own instruction belongs to the group.
    #[serde(rename = "self")]
    pub own: Sum,
    /// Samples whose call stack touches the group; each counts once, however often.
    pub total: Sum,
    /// Share of `own` in all events of the table.
    pub own_share: Estimate,
    /// Share of `total` in all events of the table.
    pub total_share: Estimate,
}

/// Collects samples into groups.
#[derive(Debug)]
pub struct Table {
    by: Grouping,
    groups: HashMap<Key, (Sum, Sum)>,
    all: Sum,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(by: impl Into<Grouping>) -> Self {
        Self { by: by.into(), groups: HashMap::new(), all: Sum::default() }
    }

    /// What it groups by.
    #[must_use]
    pub fn by(&self) -> &Grouping {
        &self.by
    }

    /// Counts samples that say the same.
    pub fn add(&mut self, sample: &Sample, sum: Sum) {
        self.all.add(sum);
        let (own, touched) = self.by.keys(sample);
        self.groups.entry(own).or_default().0.add(sum);
        for key in touched {
            self.groups.entry(key).or_default().1.add(sum);
        }
    }

    /// All samples of the table.
    #[must_use]
    pub fn all(&self) -> Sum {
        self.all
    }

    /// The groups in this order.
    #[must_use]
    pub fn entries(&self, order: Order) -> Vec<Entry> {
        let share = |sum: Sum| Estimate::of(sum, self.all);
        let entry = |(key, &(own, total)): (&Key, &(Sum, Sum))| Entry {
            key: key.clone(),
            own,
            total,
            own_share: share(own),
            total_share: share(total),
        };
        let mut entries: Vec<Entry> = self.groups.iter().map(entry).collect();
        let first = |entry: &Entry| match order {
            Order::Events => entry.own.events,
            Order::Latency => entry.own.latency_cycles,
        };
        entries.sort_by(|a, b| {
            (first(b), b.own.events, b.total.events)
                .cmp(&(first(a), a.own.events, a.total.events))
                .then_with(|| a.key.cmp(&b.key))
        });
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Level, Snoop};
    use crate::report::{By, CallChain, Extent, MemorySource, SharedChain, Tally};
    use crate::symbol::Frame;

    fn frame(function: &str, line: u32, inlined: bool) -> Frame {
        Frame {
            function: Some(function.into()),
            module: "/bin/program".into(),
            file: Some("program.c".into()),
            line: Some(line),
            inlined,
        }
    }

    fn sample(calls: &[&[Frame]]) -> Sample {
        Sample {
            event: 0,
            cpu: 1,
            pid: 10,
            tid: 11,
            thread_name: "worker".into(),
            last_thread_name: "worker".into(),
            process_name: "program".into(),
            ip: 0x1234,
            chain: SharedChain::from(CallChain {
                calls: calls.iter().map(|&frames| frames.into()).collect(),
                linked_address: 0x234,
                extent: Extent::Whole,
            }),
            source: None,
            region: None,
        }
    }

    /// `leaf` inlined into `recurse`, which calls itself, called from `main`; and one sample in `main`.
    fn tally() -> Tally {
        let main = [frame("main", 30, false)];
        let recurse = [frame("recurse", 20, false)];
        let leaf = [frame("leaf", 10, true), frame("recurse", 21, false)];
        let (deep, shallow) = (sample(&[&leaf, &recurse, &recurse, &main]), sample(&[&main]));
        let mut tally = Tally::default();
        tally.add(deep.clone(), 100, None);
        tally.add(shallow, 100, Some(300));
        tally.add(deep, 200, Some(20));
        tally
    }

    fn sums(by: By) -> Vec<(String, u64, u64)> {
        let mut table = Table::new(by);
        tally().iter().for_each(|(sample, sum)| table.add(sample, sum));
        assert_eq!(
            table.all(),
            Sum { samples: 3, events: 400, timed: 2, latency_cycles: 320, squares: 60_000 }
        );
        let name = |key: &Key| match (&key.function, key.line) {
            (Some(function), Some(line)) => format!("{function}:{line}"),
            (Some(function), None) => function.to_string(),
            _ => format!("{:?} {:?} {:?}", key.cpu, key.tid, key.thread),
        };
        table
            .entries(Order::Events)
            .iter()
            .map(|entry| (name(&entry.key), entry.own.events, entry.total.events))
            .collect()
    }

    #[test]
    fn functions_have_own_and_total_events() {
        let expected = [("leaf", 300, 300), ("main", 100, 400), ("recurse", 0, 300)];
        assert_eq!(sums(By::Function), expected.map(|(name, own, total)| (name.to_owned(), own, total)));
    }

    #[test]
    fn lines_of_a_recursive_function_count_once() {
        let expected =
            [("leaf:10", 300, 300), ("main:30", 100, 400), ("recurse:20", 0, 300), ("recurse:21", 0, 300)];
        assert_eq!(sums(By::Line), expected.map(|(name, own, total)| (name.to_owned(), own, total)));
    }

    #[test]
    fn files_have_the_events_that_their_functions_have_in_all() {
        assert_eq!(sums(By::Module), [("None None None".to_owned(), 400, 400)]);
        let mut table = Table::new(By::Module);
        let other = Frame { module: "/lib/other.so".into(), ..frame("callee", 1, false) };
        table.add(&sample(&[&[other], &[frame("main", 30, false)]]), Sum::sample(100, None));
        let entries: Vec<_> = table
            .entries(Order::Events)
            .into_iter()
            .map(|entry| (entry.key.module.unwrap(), entry.own.events, entry.total.events))
            .collect();
        assert_eq!(entries, [("/lib/other.so".into(), 100, 100), ("/bin/program".into(), 0, 100)]);
    }

    #[test]
    fn functions_are_told_apart_by_where_their_data_was() {
        let at = |level| MemorySource { level, snoop: None, stlb_miss: None, locked: None };
        let mut table = Table::new(Grouping::new([By::Function, By::Level]));
        for level in [Level::L2, Level::L3, Level::L2] {
            let calls = [[frame("leaf", 10, false)], [frame("main", 30, false)]];
            let found = Sample { source: Some(at(level)), ..sample(&[&calls[0], &calls[1]]) };
            table.add(&found, Sum::sample(100, None));
        }
        let entries = table.entries(Order::Events);
        let seen: Vec<_> = entries
            .iter()
            .map(|Entry { key, own, total, .. }| {
                (key.function.as_deref().unwrap(), key.level.unwrap(), own.samples, total.samples)
            })
            .collect();
        let (l2, l3) = (Level::L2.name(), Level::L3.name());
        assert_eq!(seen, [("leaf", l2, 2, 2), ("leaf", l3, 1, 1), ("main", l2, 0, 2), ("main", l3, 0, 1)]);
        assert_eq!(serde_json::to_string(table.by()).unwrap(), r#""function,level""#);
    }

    #[test]
    fn of_the_sampled_instruction_callers_have_no_part_whatever_else_groups() {
        for by in [By::Function, By::Thread] {
            let mut table = Table::new(Grouping::new([By::Instruction, by]));
            tally().iter().for_each(|(sample, sum)| table.add(sample, sum));
            let entries = table.entries(Order::Events);
            assert!(
                entries.len() == 2 && entries.iter().all(|entry| entry.own == entry.total),
                "{entries:?}"
            );
        }
    }

    #[test]
    fn threads_of_a_process_are_one_group() {
        let mut table = Table::new(By::Process);
        for tid in [10, 11] {
            let of_thread = Sample { tid, ..sample(&[&[frame("main", 30, false)]]) };
            table.add(&of_thread, Sum::sample(100, None));
        }
        let entries = table.entries(Order::Events);
        assert_eq!((entries.len(), entries[0].key.process.as_deref()), (1, Some("program")));
        assert_eq!((entries[0].own.events, entries[0].key.tid), (200, None));
    }

    /// A fork that runs another program has two names, and is one thread all the same.
    #[test]
    fn a_thread_that_got_another_name_is_one_group() {
        let mut table = Table::new(By::Thread);
        for name in ["sh", "worker"] {
            let named = Sample { thread_name: name.into(), ..sample(&[&[frame("main", 30, false)]]) };
            table.add(&named, Sum::sample(100, None));
        }
        let entries = table.entries(Order::Events);
        assert_eq!((entries.len(), entries[0].own.samples), (1, 2));
        assert_eq!(entries[0].key.thread.as_deref(), Some("worker"));
    }

    #[test]
    fn threads_and_cpus_have_no_callers() {
        assert_eq!(sums(By::Thread), [("None Some(11) Some(\"worker\")".to_owned(), 400, 400)]);
        assert_eq!(sums(By::Cpu), [("Some(1) None None".to_owned(), 400, 400)]);
        assert_eq!(sums(By::Instruction).len(), 2);
    }

    #[test]
    fn sources_are_told_apart_and_ordered_by_what_they_cost() {
        let source = |level, stlb_miss| {
            Some(MemorySource {
                level,
                snoop: Some(Snoop::None),
                stlb_miss: Some(stlb_miss),
                locked: Some(false),
            })
        };
        let at = |source| Sample { source, ..sample(&[&[frame("main", 30, false)]]) };
        let mut tally = Tally::default();
        tally.add(at(source(Level::L2, false)), 100, Some(12));
        tally.add(at(source(Level::L2, true)), 100, Some(40));
        tally.add(at(source(Level::LocalDram, true)), 100, Some(300));
        tally.add(at(None), 100, None);
        let entries = |by, order| {
            let mut table = Table::new(by);
            tally.iter().for_each(|(sample, sum)| table.add(sample, sum));
            let entry = |entry: &Entry| (entry.key.level, entry.own.samples, entry.own.mean_latency());
            table.entries(order).iter().map(entry).collect::<Vec<_>>()
        };
        let (dram, l2) = (Level::LocalDram.name(), Level::L2.name());
        assert_eq!(
            entries(By::Level, Order::Events),
            [(Some(l2), 2, Some(26.0)), (None, 1, None), (Some(dram), 1, Some(300.0))]
        );
        assert_eq!(entries(By::Level, Order::Latency)[0], (Some(dram), 1, Some(300.0)));
        assert_eq!(entries(By::Source, Order::Latency).len(), 4);
    }
}
