//! Samples counted by what they have in common.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Estimate, Sample, Sum};
use crate::symbol::Frame;

/// What samples are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Function and the file that has it.
    Function,
    /// Source line, and the function it belongs to.
    Line,
    /// Thread.
    Thread,
    /// Logical CPU.
    Cpu,
    /// Address of the instruction.
    Address,
}

/// What the samples of one group have in common; what does not matter for the grouping is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Key {
    /// Address of the instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Function; absent also when no symbol covers the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Arc<str>>,
    /// The file that has the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<Arc<str>>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
    /// Line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Logical CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Thread-group ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Thread ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Name of the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<Arc<str>>,
}

impl Key {
    fn of_function(frame: &Frame) -> Self {
        Self { function: frame.function.clone(), module: Some(Arc::clone(&frame.module)), ..Self::default() }
    }

    fn of_line(frame: &Frame) -> Self {
        Self { file: frame.file.clone(), line: frame.line, ..Self::of_function(frame) }
    }

    fn of_thread(sample: &Sample) -> Self {
        let thread = Some(Arc::clone(&sample.thread_name));
        Self { pid: Some(sample.pid), tid: Some(sample.tid), thread, ..Self::default() }
    }
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
    by: By,
    groups: HashMap<Key, (Sum, Sum)>,
    all: Sum,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(by: By) -> Self {
        Self { by, groups: HashMap::new(), all: Sum::default() }
    }

    /// What it groups by.
    #[must_use]
    pub fn by(&self) -> By {
        self.by
    }

    /// Counts samples that say the same.
    pub fn add(&mut self, sample: &Sample, sum: Sum) {
        self.all.add(sum);
        let (own, touched) = self.keys(sample);
        self.groups.entry(own).or_default().0.add(sum);
        for key in touched {
            self.groups.entry(key).or_default().1.add(sum);
        }
    }

    /// The group of the sample itself, and every group of its stack, each once.
    fn keys(&self, sample: &Sample) -> (Key, Vec<Key>) {
        let key: fn(&Frame) -> Key = match self.by {
            By::Function => Key::of_function,
            By::Line => Key::of_line,
            By::Thread => return (Key::of_thread(sample), vec![Key::of_thread(sample)]),
            By::Cpu => {
                let key = Key { cpu: Some(sample.cpu), ..Key::default() };
                return (key.clone(), vec![key]);
            }
            By::Address => {
                let key = Key { address: Some(sample.ip), ..Key::of_line(&sample.chain.calls[0][0]) };
                return (key.clone(), vec![key]);
            }
        };
        let mut touched: Vec<Key> =
            sample.chain.calls.iter().flat_map(|frames| frames.iter()).map(key).collect();
        let own = touched[0].clone();
        touched.sort_unstable();
        touched.dedup();
        (own, touched)
    }

    /// All samples of the table.
    #[must_use]
    pub fn all(&self) -> Sum {
        self.all
    }

    /// The groups, those with most events of their own first.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let share = |sum: Sum| Estimate::new(sum.events, self.all.events, self.all.samples);
        let entry = |(key, &(own, total)): (&Key, &(Sum, Sum))| Entry {
            key: key.clone(),
            own,
            total,
            own_share: share(own),
            total_share: share(total),
        };
        let mut entries: Vec<Entry> = self.groups.iter().map(entry).collect();
        entries.sort_by(|a, b| {
            (b.own.events, b.total.events)
                .cmp(&(a.own.events, a.total.events))
                .then_with(|| a.key.cmp(&b.key))
        });
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{CallChain, Extent, SharedChain, Tally};

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
            ip: 0x1234,
            chain: SharedChain::from(CallChain {
                calls: calls.iter().map(|&frames| frames.into()).collect(),
                extent: Extent::Whole,
            }),
        }
    }

    /// `leaf` inlined into `recurse`, which calls itself, called from `main`; and one sample in `main`.
    fn tally() -> Tally {
        let main = [frame("main", 30, false)];
        let recurse = [frame("recurse", 20, false)];
        let leaf = [frame("leaf", 10, true), frame("recurse", 21, false)];
        let (deep, shallow) = (sample(&[&leaf, &recurse, &recurse, &main]), sample(&[&main]));
        let mut tally = Tally::default();
        tally.add(deep.clone(), 100);
        tally.add(shallow, 100);
        tally.add(deep, 200);
        tally
    }

    fn sums(by: By) -> Vec<(String, u64, u64)> {
        let mut table = Table::new(by);
        tally().iter().for_each(|(sample, sum)| table.add(sample, sum));
        assert_eq!(table.all(), Sum { samples: 3, events: 400 });
        let name = |key: &Key| match (&key.function, key.line) {
            (Some(function), Some(line)) => format!("{function}:{line}"),
            (Some(function), None) => function.to_string(),
            _ => format!("{:?} {:?} {:?}", key.cpu, key.tid, key.thread),
        };
        table.entries().iter().map(|entry| (name(&entry.key), entry.own.events, entry.total.events)).collect()
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
    fn threads_and_cpus_have_no_callers() {
        assert_eq!(sums(By::Thread), [("None Some(11) Some(\"worker\")".to_owned(), 400, 400)]);
        assert_eq!(sums(By::Cpu), [("Some(1) None None".to_owned(), 400, 400)]);
        assert_eq!(sums(By::Address).len(), 2);
    }
}
