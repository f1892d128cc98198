//! Application against runtime components (Table 5): whose code, or which thread, takes how much of the time.

use std::collections::BTreeMap;

use serde::Serialize;

/// A part of the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Component {
    /// A file, or a thread's name.
    pub name: String,
    /// Time in its functions, without those of other components that they called.
    pub time: u64,
    /// The same as a part of all.
    pub share: f64,
    /// Invocations of its functions.
    pub calls: u64,
}

/// Adds up name, own time and calls of functions by name; most time first.
#[must_use]
pub fn components<'a>(functions: impl IntoIterator<Item = (&'a str, u64, u64)>) -> Vec<Component> {
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, time, calls) in functions {
        let sum = sums.entry(name).or_default();
        sum.0 += time;
        sum.1 += calls;
    }
    let all: u64 = sums.values().map(|sum| sum.0).sum();
    let component = |(name, (time, calls)): (&str, (u64, u64))| Component {
        name: name.to_owned(),
        time,
        share: if all == 0 { 0.0 } else { time as f64 / all as f64 },
        calls,
    };
    let mut components: Vec<Component> = sums.into_iter().map(component).collect();
    components.sort_by_key(|component| std::cmp::Reverse(component.time));
    components
}
