//! Method-level phases: functions, with all that they call, in which a program spends much of its time.
//!
//! Entry and exit events become matched invocations ([`CallMatcher`]) and an annotated dynamic call graph ([`CallGraph`], step
//! 1); of this functions are selected as phases ([`select()`], [`propose`], step 2); what was measured of each of their
//! invocations (step 3) is averaged over runs ([`Merged`]) and described ([`statistics`], [`Bottlenecks`], [`components`]). After Georges,
//! Buytaert, Eeckhout & De Bosschere, *Method-Level Phase Behavior in Java Workloads*, OOPSLA 2004; sections (§) named here
//! are of that paper. What it leaves open is settled in `docs/methods.md`.

mod bottleneck;
mod component;
mod graph;
mod matching;
mod merge;
mod privilege;
mod select;
pub mod statistics;

pub use self::bottleneck::{Bottleneck, Bottlenecks, Metric, bottlenecks};
pub use self::component::{Component, components};
pub use self::graph::{CallGraph, FunctionTimes, Node, Profile};
pub use self::matching::{CallEvent, CallKind, CallMatcher, Calls, End, Invocation, Mismatches};
pub use self::merge::{Merged, Observation, PhaseData, Run, merge};
pub use self::privilege::{base, take_common_privilege};
pub use self::select::{GRAINS, GridPoint, Selection, Thresholds, WEIGHTS, grid, propose, select};

/// Counts that an event can carry beside its time.
pub const MAX_COUNTS: usize = 8;

/// What had been counted at an event, or what was counted between two; unused places are 0.
pub type Counts = [u64; MAX_COUNTS];

#[cfg(test)]
mod tests;
