//! What a count means beside another one: instructions per cycle, misses per load.

use std::fmt;

use libhpm::event::{CoreType, base};
use serde::Serialize;

use super::EventCount;

/// A count related to another one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Metric {
    /// The quotient.
    pub(super) value: f64,
    /// Its unit.
    pub(super) unit: &'static str,
    /// Digits behind the point.
    #[serde(skip)]
    digits: usize,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*} {}", self.digits, self.value, self.unit)
    }
}

/// Gives each count what it means beside the others, where one that it is commonly related to was counted at the same
/// privilege and on the same cores.
pub(super) fn relate(events: &mut [EventCount], on_cpu_ns: u64) {
    let metrics: Vec<Option<Metric>> = events.iter().map(|event| metric(event, events, on_cpu_ns)).collect();
    for (event, metric) in events.iter_mut().zip(metrics) {
        event.metric = metric;
    }
}

fn metric(event: &EventCount, events: &[EventCount], on_cpu_ns: u64) -> Option<Metric> {
    let (cores, name) = base(&event.name);
    let other = |names: &[&str]| {
        events.iter().find(|other| {
            let (of, other_name) = base(&other.name);
            names.contains(&other_name)
                && of == cores
                && (other.user, other.kernel) == (event.user, event.kernel)
        })
    };
    let per = |names: &[&str], scale: f64, unit, digits| {
        let count = other(names).and_then(|other| other.scaled).filter(|&count| count > 0)?;
        Some(Metric { value: event.scaled? as f64 * scale / count as f64, unit, digits })
    };
    let per_thousand = || per(&["instructions"], 1000.0, "per 1000 instructions", 2);
    let share = |of, unit| per(&[of], 100.0, unit, 2).or_else(per_thousand);
    match name {
        "cycles" if event.user && event.kernel && cores == CoreType::Any && on_cpu_ns > 0 => {
            Some(Metric { value: event.scaled? as f64 / on_cpu_ns as f64, unit: "GHz", digits: 3 })
        }
        "cycles" => None,
        "instructions" => per(&["cycles"], 1.0, "per cycle", 2),
        "branch-misses" | "branch-miss" => per(&["branches", "branch"], 100.0, "% of branches", 2),
        "l1d-load-miss" => share("load", "% of loads"),
        "l2-load-miss" => share("l1d-load-miss", "% of L1 misses"),
        "l3-load-miss" => share("l2-load-miss", "% of L2 misses"),
        "l1d-store-miss" => share("store", "% of stores"),
        "l2-store-miss" => share("l1d-store-miss", "% of L1 misses"),
        "l3-miss" => share("l3-reference", "% of references"),
        _ => per_thousand(),
    }
}
