//! Which objects are worth allocating together, and whether it helped (Schneider's thesis, chapter 5.1 and 5.2.6).
//!
//! A missing load whose address was loaded from a field counts for that field: [`Weights`] are Table 5.1. [`advise`] says of each
//! field whether the object with the field and the one that it refers to should share a cache line, or why not. Once a layout has
//! been changed, a [`Monitor`] follows the misses of each field and says whether the change helped or hurt, so that it can be
//! taken back. Where some pairs can be laid out and others not, a [`Trial`] compares the two, which no phase of
//! the program disturbs. [`layout`] has hints for the order of fields within a type.

mod advice;
pub mod layout;
mod monitor;
mod trial;
mod weights;

pub use self::advice::{Advice, Benefit, Candidate, Pair, Reason, Rules, Shape, Verdict, advise};
pub use self::monitor::{Change, Effect, Monitor, MonitorRules, Series};
pub use self::trial::{Exposure, Group, Trial, TrialRules};
pub use self::weights::{Field, Weight, Weights};

#[cfg(test)]
mod tests;
