//! What the generic names mean, and what each PMU makes of them (Schneider's thesis, Table 2.2, for every PMU here).

use super::table::{Row, Table};

/// A generic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generic {
    /// The name.
    pub name: &'static str,
    /// What it counts on every PMU that has an event for it, but for what the event's caveat says.
    pub meaning: &'static str,
}

const fn generic(name: &'static str, meaning: &'static str) -> Generic {
    Generic { name, meaning }
}

/// Every generic name. A PMU's table has an event or a reason for each.
pub const GENERICS: &[Generic] = &[
    generic("cycles", "core cycles while not halted"),
    generic("ref-cycles", "cycles of a clock of constant rate while not halted"),
    generic("instructions", "instructions retired"),
    generic("branch", "branches retired"),
    generic("branches", "the same, as perf calls it"),
    generic("branch-miss", "mispredicted branches retired"),
    generic("branch-misses", "the same, as perf calls it"),
    generic("load", "instructions retired that load"),
    generic("store", "instructions retired that store"),
    generic("mem-loads", "loads with address, latency and data source"),
    generic("mem-stores", "stores with their address"),
    generic("l1d-load-hit", "loads retired that hit the L1 data cache"),
    generic("l1d-load-miss", "loads retired that missed the L1 data cache"),
    generic("l1d-store-miss", "stores that missed the L1 data cache"),
    generic("l2-load-hit", "loads retired that hit L2"),
    generic("l2-load-miss", "loads retired that missed L2"),
    generic("l2-store-miss", "stores that missed L2"),
    generic("l3-load-hit", "loads retired that hit L3"),
    generic("l3-load-miss", "loads retired that missed L3"),
    generic("l3-reference", "requests to L3"),
    generic("l3-miss", "requests that missed L3"),
    generic("l1i-miss", "code reads that missed the L1 instruction cache"),
    generic("l2i-miss", "code reads that missed L2"),
    generic("dtlb-load-miss", "loads that missed the data TLB"),
    generic("dtlb-store-miss", "stores that missed the data TLB"),
    generic("dtlb-miss", "loads and stores that missed the data TLB"),
    generic("itlb-miss", "code reads that missed the instruction TLB"),
    generic("resource-stall", "cycles in which allocation waits for a resource"),
    generic("slots", "issue slots"),
];

/// What a PMU makes of a generic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equivalent {
    /// It has an event for it.
    Event {
        /// The event that is counted.
        counted: &'static Row,
        /// The event that is sampled, which counts the same.
        sampled: &'static Row,
        /// How it differs from the name's meaning; empty when it does not.
        caveat: &'static str,
    },
    /// It has none.
    Absent {
        /// Why, and what comes near.
        reason: &'static str,
    },
}

impl Table {
    /// What the PMU makes of a generic name; `None` for what is not one.
    pub(super) fn equivalent(&self, name: &str) -> Option<Equivalent> {
        let event = || {
            let (counted, sampled) = self.generic(name)?;
            Some(Equivalent::Event { counted, sampled, caveat: self.alias(name)?.caveat })
        };
        event().or_else(|| Some(Equivalent::Absent { reason: self.absent(name)? }))
    }
}
