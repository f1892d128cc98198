//! Phases: repetitive behaviour that is found and predicted while a program runs.
//!
//! Quanta become sample intervals ([`Slicer`]), intervals become event densities and their variations ([`Meter`]), variations
//! become pattern shapes ([`ShapeBuilder`]), and shapes are looked up in a database that says when they should come back
//! ([`Detector`]). The algorithm is that of Gu & Verbrugge, *Using hardware data to detect repetitive program behavior*,
//! Sable Technical Report 2007-2; sections (§) named here are of that paper. What it leaves open is settled in
//! `docs/phases.md`.

mod behaviour;
pub mod change;
mod channel;
mod control;
mod database;
mod detector;
mod distance;
mod interval;
mod lag;
mod level;
pub mod metrics;
mod outcome;
mod recorded;
mod shape;
mod subject;
pub mod synthetic;

pub use self::behaviour::{BEHAVIOURS, BehaviourControl, Shares, replay_by_behaviour};
pub use self::channel::{Channels, Prediction};
pub use self::control::{Action, Control, replay};
pub use self::database::{PATTERNS_DEFAULT, PatternDatabase};
pub use self::detector::{Detector, Occurrence, Step};
pub use self::distance::{Distances, Repetition, TOLERANCE, within_tolerance};
pub use self::interval::{Disorder, Interval, MAX_EVENTS, Slicer, Stay};
pub use self::lag::Lags;
pub use self::level::{Base, LEVELS, MAJOR_LEVEL, Meter, Signal, THRESHOLDS, Variation, usual_event};
pub use self::outcome::{ByChance, NoPhases, PatternSummary, Phases, Repeating, Span, find_phases};
pub use self::recorded::Recorded;
pub use self::shape::{DIES_AFTER, MAX_CODES, PatternKey, Shape, ShapeBuilder};
pub use self::subject::{Subject, SubjectKind, subjects};

/// Which algorithm finds phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// As published.
    Published,
    /// Beyond the paper: usual variations are of level 0 ([`Meter`]), each other variation is a pattern by itself, told apart by level and
    /// direction, and repetitions may span other occurrences of the same pattern ([`Lags`]).
    #[default]
    NoiseGated,
}

#[cfg(test)]
mod tests;
