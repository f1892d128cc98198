//! Thread timelines and processor timelines: who ran where when.

use std::collections::BTreeMap;

use hpm_abi::QuantumEnd;

use super::Record;

/// What the lanes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeline {
    /// One lane for each thread; a cell has the CPU on which it was.
    Threads,
    /// One lane for each CPU; a cell has the thread that it ran.
    Cpus,
}

/// A thread or CPU through time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Number of the thread or CPU.
    pub id: u32,
    /// One for each interval of time.
    pub cells: Vec<Cell>,
}

/// An interval of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The CPU or thread that has most of the interval; `None` where nothing ran.
    pub most: Option<u32>,
    /// How the last record ended that ended in the interval, unless the thread ran on.
    pub end: Option<QuantumEnd>,
}

impl Timeline {
    /// The lane of a record.
    #[must_use]
    pub fn lane(self, record: &Record) -> u32 {
        if self == Self::Threads { record.tid } else { record.cpu }
    }

    /// What a record puts into its lane.
    #[must_use]
    pub fn content(self, record: &Record) -> u32 {
        if self == Self::Threads { record.cpu } else { record.tid }
    }

    /// The lanes of these records in `cells` intervals (at least one) from the first start to the last end, in the order of
    /// their numbers.
    #[must_use]
    pub fn lanes(self, records: &[&Record], cells: usize) -> Vec<Lane> {
        let axis = Axis::of(records, cells);
        let mut lanes: BTreeMap<u32, Vec<Filling>> = BTreeMap::new();
        for record in records {
            let lane = lanes.entry(self.lane(record)).or_insert_with(|| vec![Filling::default(); axis.cells]);
            let last_ns = record.end_ns.saturating_sub(1).max(record.start_ns);
            let (first, last) = (axis.cell(record.start_ns), axis.cell(last_ns));
            for (index, cell) in lane.iter_mut().enumerate().take(last + 1).skip(first) {
                *cell.shares_ns.entry(self.content(record)).or_default() += axis.overlap_ns(record, index);
            }
            if record.end.is_some_and(|end| {
                matches!(end, QuantumEnd::Yielded | QuantumEnd::Preempted | QuantumEnd::Exit)
            }) {
                lane[last].end = record.end;
            }
        }
        let cell = |filling: Filling| {
            // Of equal shares the lowest number, so that the same records always look the same.
            let most = filling.shares_ns.iter().max_by_key(|&(id, ns)| (ns, std::cmp::Reverse(id)));
            Cell { most: most.map(|(id, _)| *id), end: filling.end }
        };
        lanes
            .into_iter()
            .map(|(id, cells)| Lane { id, cells: cells.into_iter().map(cell).collect() })
            .collect()
    }
}

/// What a cell is made of.
#[derive(Clone, Default)]
struct Filling {
    /// Time of each CPU or thread.
    shares_ns: BTreeMap<u32, u64>,
    end: Option<QuantumEnd>,
}

/// The intervals of a timeline.
struct Axis {
    from_ns: u64,
    span_ns: u64,
    cells: usize,
}

impl Axis {
    fn of(records: &[&Record], cells: usize) -> Self {
        let from_ns = records.iter().map(|record| record.start_ns).min().unwrap_or(0);
        let until_ns = records.iter().map(|record| record.end_ns).max().unwrap_or(0);
        Self { from_ns, span_ns: until_ns.saturating_sub(from_ns).max(1), cells: cells.max(1) }
    }

    /// The interval of a time.
    fn cell(&self, ns: u64) -> usize {
        let cell = u128::from(ns - self.from_ns) * self.cells as u128 / u128::from(self.span_ns);
        (cell as usize).min(self.cells - 1)
    }

    /// Where an interval begins.
    fn edge_ns(&self, index: usize) -> u64 {
        self.from_ns + (u128::from(self.span_ns) * index as u128 / self.cells as u128) as u64
    }

    /// What a record has of an interval, in ns; at least 1, because a record shorter than that is still there.
    fn overlap_ns(&self, record: &Record, index: usize) -> u64 {
        let (start, end) =
            (record.start_ns.max(self.edge_ns(index)), record.end_ns.min(self.edge_ns(index + 1)));
        end.saturating_sub(start).max(1)
    }
}
