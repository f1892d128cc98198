//! Which functions are phases (§3.2, the algorithm of Huang, Renau & Torrellas, ISCA 2003), and what measuring them would cost
//! (§5.1).

use serde::Serialize;

use super::graph::Profile;

/// Values of θ_weight that a grid has, as parts of the program's time: those that Figure 4 and Table 3 span, in steps of 1, 2
/// and 5.
pub const WEIGHTS: [f64; 20] = [
    0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5, 5e-6, 2e-6, 1e-6,
    1e-7, 1e-8,
];
/// Values of θ_grain that a grid has.
pub const GRAINS: [f64; 20] = WEIGHTS;

/// What a function has to exceed to be a phase, as parts of the program's time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// θ_weight: of the time in all its invocations.
    pub weight: f64,
    /// θ_grain: of the time in one invocation, on average.
    pub grain: f64,
}

/// The phases that thresholds give.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// Its thresholds.
    pub thresholds: Thresholds,
    /// The selected functions, the one with most time first: static phases.
    pub functions: Vec<u32>,
    /// Their invocations: dynamic phases.
    pub invocations: u64,
    /// Estimated overhead as published (§5.1): these invocations as a part of those of all functions.
    pub estimated_overhead: f64,
}

/// A cell of the grid (Figure 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GridPoint {
    /// Its thresholds.
    pub thresholds: Thresholds,
    /// Static phases.
    pub functions: usize,
    /// Dynamic phases.
    pub invocations: u64,
    /// Estimated overhead as published.
    pub estimated_overhead: f64,
}

/// The functions that exceed both thresholds (§3.2).
#[must_use]
pub fn select(profile: &Profile, thresholds: Thresholds) -> Selection {
    let mut chosen: Vec<_> = chosen(profile, thresholds).collect();
    chosen.sort_by_key(|function| (std::cmp::Reverse(function.total), function.function));
    let invocations = chosen.iter().map(|function| function.calls).sum();
    Selection {
        thresholds,
        functions: chosen.iter().map(|function| function.function).collect(),
        invocations,
        estimated_overhead: share(invocations, profile.calls()),
    }
}

fn chosen(profile: &Profile, thresholds: Thresholds) -> impl Iterator<Item = &super::FunctionTimes> {
    let (weight, grain) = (thresholds.weight * profile.total as f64, thresholds.grain * profile.total as f64);
    let exceeds =
        move |function: &&super::FunctionTimes| function.total as f64 > weight && function.per_call() > grain;
    profile.functions.iter().filter(exceeds)
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// How many phases, and which overhead, each pair of thresholds would give: rows by weight, then by grain.
#[must_use]
pub fn grid(profile: &Profile, weights: &[f64], grains: &[f64]) -> Vec<GridPoint> {
    let calls = profile.calls();
    let pairs =
        weights.iter().flat_map(|&weight| grains.iter().map(move |&grain| Thresholds { weight, grain }));
    let point = |thresholds| {
        let count = |(functions, invocations), function: &super::FunctionTimes| {
            (functions + 1, invocations + function.calls)
        };
        let (functions, invocations) = chosen(profile, thresholds).fold((0, 0), count);
        GridPoint { thresholds, functions, invocations, estimated_overhead: share(invocations, calls) }
    };
    pairs.map(point).collect()
}

/// Of the grid's points that `affordable` accepts the one with the most phases; of equals the one with the fewest invocations,
/// then with the highest thresholds. `None` when every point that has a phase costs more.
#[must_use]
pub fn propose(profile: &Profile, affordable: impl Fn(&GridPoint) -> bool) -> Option<Selection> {
    let best = grid(profile, &WEIGHTS, &GRAINS)
        .into_iter()
        .filter(|point| point.functions > 0 && affordable(point))
        .max_by(|a, b| {
            (a.functions, std::cmp::Reverse(a.invocations))
                .cmp(&(b.functions, std::cmp::Reverse(b.invocations)))
                .then(a.thresholds.weight.total_cmp(&b.thresholds.weight))
                .then(a.thresholds.grain.total_cmp(&b.thresholds.grain))
        })?;
    Some(select(profile, best.thresholds))
}
