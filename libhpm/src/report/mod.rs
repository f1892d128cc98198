//! What the samples of a trace say: by function, source line, thread, CPU or address, and how far to trust it.
//!
//! [`Table`] and [`Estimate`] are pure: samples in, numbers out. [`Resolver`] turns the rows of a trace into samples,
//! and reads binaries for it.

mod estimate;
mod resolver;
mod summary;
mod table;

pub use self::estimate::Estimate;
pub use self::resolver::Resolver;
pub use self::summary::{EventSummary, Summary};
pub use self::table::{By, Entry, Key, Sum, Table};

use std::sync::Arc;

use crate::symbol::Frames;

/// A sample whose addresses have become functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index of the event in `meta.json`.
    pub event: u8,
    /// Events that it stands for: its period.
    pub period: u64,
    /// Logical CPU.
    pub cpu: u32,
    /// Thread-group ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// The thread's name at that time; empty when unknown.
    pub thread_name: Arc<str>,
    /// Address of the instruction that caused the event.
    pub ip: u64,
    /// Where it was called from.
    pub chain: Arc<CallChain>,
}

/// The functions of a call stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallChain {
    /// The functions at each address, innermost address first. Never empty.
    pub calls: Vec<Frames>,
    /// How much of the stack this is.
    pub extent: Extent,
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
