//! What the samples of a trace say: by function, source line, instruction, thread, CPU, data region or data source, by callers
//! and callees, and how far to trust it; and where threads waited ([`Waits`]).
//!
//! All but [`Resolver`] and [`Summary::new`] are pure: samples in, numbers out. A [`Filter`] says which samples. [`Resolver`] turns the rows of a trace into samples,
//! and reads binaries for it.

mod allocations;
mod annotate;
mod branches;
mod calls;
mod cause;
mod condition;
mod difference;
mod distribution;
mod estimate;
mod filter;
#[cfg(test)]
mod fixture;
mod grouping;
mod locator;
mod lost;
mod names;
mod offsets;
mod references;
mod resolver;
mod similar;
mod summary;
mod table;
mod tally;
mod waits;
mod wall_clock;

pub use self::allocations::objects;
pub use self::annotate::{Annotated, AnnotatedInstruction, AnnotatedLine, Hotspots, Sources};
pub use self::branches::{BranchEntry, BranchTable, Place};
pub use self::calls::{CallNode, CallTree, Direction};
pub use self::condition::{Condition, SAMPLE_NAMES, SampleName};
pub use self::difference::{Basis, Change, changes};
pub use self::distribution::{Distribution, QUANTILES, Quantile, TOP};
pub use self::estimate::Estimate;
pub use self::filter::{Clause, CodePlace, DataPlace, Filter, Span, TimeRange};
pub use self::grouping::{By, Grouping, Key};
pub use self::locator::{Agreement, Located, Locator};
pub(crate) use self::lost::{Losses, LostSpans};
pub use self::offsets::{Around, OffsetEntry, Offsets};
pub use self::references::{References, TypeHeat, Unattributed};
pub use self::resolver::Resolver;
pub use self::similar::{did_you_mean, similar};
pub use self::summary::{EventSummary, Summary};
pub use self::table::{Entry, Order, Table};
pub use self::tally::{Sum, Tally};
pub use self::waits::{ThreadTimes, Times, Wait, WaitKind, Waits};
pub use self::wall_clock::{WallClock, WallClockEntry};

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use crate::record::{Level, Snoop};
use crate::symbol::{Frame, Frames};

/// What a sample says, once its addresses have become functions. Many samples say the same: [`Tally`] counts them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Index of the event in `meta.json`.
    pub event: u8,
    /// Logical CPU.
    pub cpu: u32,
    /// Thread-group ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// The thread's name at that time; empty when unknown.
    pub thread_name: Arc<str>,
    /// The thread's last name, the same in all samples of its life; empty when unknown.
    pub last_thread_name: Arc<str>,
    /// The last name of its process's first thread, the same in all samples of the process; empty when unknown.
    pub process_name: Arc<str>,
    /// Address of the instruction that caused the event.
    pub ip: u64,
    /// Where it was called from.
    pub chain: SharedChain,
    /// Where its data was found; `None` where the record does not tell.
    pub source: Option<MemorySource>,
    /// What was mapped where its data is: a file's path, `[heap]`, `[stack]`, `//anon`, or `[unknown]`; `None` without a
    /// data address.
    pub region: Option<Arc<str>>,
}

/// Where a memory access found its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemorySource {
    /// The cache or memory.
    pub level: Level,
    /// What other caches said, where it is told.
    pub snoop: Option<Snoop>,
    /// The second-level TLB was missed, where it is told.
    pub stlb_miss: Option<bool>,
    /// The access was locked, where it is told.
    pub locked: Option<bool>,
}

/// The functions of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallChain {
    /// The functions at each address, innermost address first. Never empty.
    pub calls: Vec<Frames>,
    /// The address that the linker gave to the innermost instruction; of code without a file, where it was in memory.
    pub linked_address: u64,
    /// How much of the stack this is.
    pub extent: Extent,
}

impl CallChain {
    /// Every function of the stack, the innermost first, inlined ones as if they had been called. Never empty.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.calls.iter().flat_map(|frames| frames.iter())
    }
}

/// A call stack that many samples have. Two are equal when they are the same in memory, which is quick to see.
#[derive(Clone, Debug)]
pub struct SharedChain(Arc<CallChain>);

impl From<CallChain> for SharedChain {
    fn from(chain: CallChain) -> Self {
        Self(Arc::new(chain))
    }
}

impl Deref for SharedChain {
    type Target = CallChain;

    fn deref(&self) -> &CallChain {
        &self.0
    }
}

impl PartialEq for SharedChain {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedChain {}

impl Hash for SharedChain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// How much of a stack is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, from the thread's first function.
    Whole,
    /// The outermost calls are missing.
    Truncated,
    /// The sample has no stack, only its own address.
    AddressOnly,
}
