//! Which ways control took, by the branch records of samples.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::analysis::reference::{EdgeCounts, Function};
use crate::report::{Locator, Resolver};
use crate::trace::{Meta, SampleRow};

/// How often control took each way.
pub(super) struct Ways {
    /// Why branch records do not tell it: without those of some types, what lies between two of them need not have been executed.
    left_out: Option<String>,
    /// Samples have branch records.
    noted: bool,
    /// Branches that were taken, and runs of code without a taken branch, by binary.
    taken: HashMap<usize, EdgeCounts>,
    runs: HashMap<usize, HashMap<(u64, u64), u64>>,
}

impl Ways {
    /// Of a trace as described.
    pub(super) fn new(meta: &Meta) -> Self {
        let left_out = meta.ways_left_out();
        Self { left_out, noted: false, taken: HashMap::new(), runs: HashMap::new() }
    }

    /// Why branch records were left out, if samples have any.
    pub(super) fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref().filter(|_| self.noted)
    }

    /// A sample's branch records, the newest first; none where they do not tell which way control came.
    pub(super) fn of<'a>(&self, row: &'a SampleRow) -> &'a [[u64; 3]] {
        let branches = row.branches.as_deref().filter(|_| self.left_out.is_none());
        branches.unwrap_or_default().as_chunks().0
    }

    /// Takes note of a sample's branch records.
    pub(super) fn note(&mut self, resolver: &Resolver, locator: &mut Locator, row: &SampleRow) {
        self.noted |= row.branches.is_some();
        let mut newer: Option<u64> = None;
        for &[from, to, _] in self.of(row) {
            let Some(loaded) = locator.images().at(resolver.spaces(), row.pid, row.tsc, to) else {
                newer = Some(from);
                continue;
            };
            let image = Arc::as_ptr(&loaded.image) as usize;
            let edge = (loaded.linked(from), loaded.linked(to));
            *self.taken.entry(image).or_default().entry(edge).or_default() += 1;
            // From where this branch went no branch was taken until the next newer one.
            if let Some(until) = newer.map(|until| loaded.linked(until)).filter(|until| *until >= edge.1) {
                *self.runs.entry(image).or_default().entry((edge.1, until)).or_default() += 1;
            }
            newer = Some(from);
        }
    }

    /// How often control took each way in a function.
    pub(super) fn edges(&self, image: usize, extent: &Range<u64>, function: &Function) -> EdgeCounts {
        let taken = self.taken.get(&image).into_iter().flatten();
        let within = taken.filter(|((from, to), _)| extent.contains(from) && extent.contains(to));
        let mut edges: EdgeCounts = within.map(|(edge, count)| (*edge, *count)).collect();
        let Some(runs) = self.runs.get(&image) else { return edges };
        let runs: Vec<_> = runs.iter().filter(|((start, _), _)| extent.contains(start)).collect();
        for (from, to) in function.joins() {
            let through = |((start, end), _): &&(&(u64, u64), &u64)| *start <= from && to <= *end;
            let count: u64 = runs.iter().filter(|run| through(run)).map(|(_, count)| **count).sum();
            edges.insert((from, to), count);
        }
        edges
    }
}
