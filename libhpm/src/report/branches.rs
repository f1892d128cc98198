//! The branches that samples' last branch records hold: from where to where, how often, and how often mispredicted.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::Resolver;
use crate::record::Branch;
use crate::symbol::Frame;
use crate::trace::SampleRow;

/// One end of a branch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Address.
    pub address: u64,
    /// Function; absent when no symbol covers the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<Arc<str>>,
    /// The file that has the code.
    pub module: Arc<str>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Arc<str>>,
    /// Line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A branch, and how often it stood in the records of the samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BranchEntry {
    /// Where it is.
    pub from: Place,
    /// Where it went.
    pub to: Place,
    /// Times that it stood in a sample's records.
    pub count: u64,
    /// Of these, those that were mispredicted.
    pub mispredicted: u64,
    /// Mean core cycles since the branch before it, of the records that tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_cycles: Option<f64>,
}

/// Counts the branches of samples.
#[derive(Debug, Default)]
pub struct BranchTable {
    branches: HashMap<Key, Counted>,
    /// Branch records of all samples.
    all: u64,
}

/// The same addresses mean the same code as long as the process has the same mappings.
type Key = (u32, (u64, usize), u64, u64);

#[derive(Debug)]
struct Counted {
    from: Place,
    to: Place,
    count: u64,
    mispredicted: u64,
    timed: u64,
    cycles: u64,
}

impl Place {
    fn new(address: u64, frames: &[Frame]) -> Self {
        // The function that has the code is the last.
        let frame = frames.last().cloned().unwrap_or_default();
        Self { address, function: frame.function, module: frame.module, file: frame.file, line: frame.line }
    }
}

impl BranchTable {
    /// Counts the branches of one row; nothing for a row that has none.
    pub fn add(&mut self, resolver: &mut Resolver, row: &SampleRow) {
        let words = row.branches.as_deref().unwrap_or_default();
        let (branches, _) = words.as_chunks::<3>();
        for &[from, to, info] in branches {
            let key = (row.pid, resolver.epoch(row), from, to);
            let counted = self.branches.entry(key).or_insert_with(|| Counted {
                from: Place::new(from, &resolver.functions(row, from)),
                to: Place::new(to, &resolver.functions(row, to)),
                count: 0,
                mispredicted: 0,
                timed: 0,
                cycles: 0,
            });
            let branch = Branch { from, to, info };
            counted.count += 1;
            counted.mispredicted += u64::from(branch.mispredicted());
            counted.timed += u64::from(branch.cycles() > 0);
            counted.cycles += u64::from(branch.cycles());
            self.all += 1;
        }
    }

    /// Branch records of all samples.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.all
    }

    /// The branches, the most frequent first.
    #[must_use]
    pub fn entries(&self) -> Vec<BranchEntry> {
        let entry = |counted: &Counted| BranchEntry {
            from: counted.from.clone(),
            to: counted.to.clone(),
            count: counted.count,
            mispredicted: counted.mispredicted,
            mean_cycles: (counted.timed > 0).then(|| counted.cycles as f64 / counted.timed as f64),
        };
        let mut entries: Vec<BranchEntry> = self.branches.values().map(entry).collect();
        entries.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| (&a.from, &a.to).cmp(&(&b.from, &b.to))));
        entries
    }
}
