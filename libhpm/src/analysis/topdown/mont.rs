//! E cores. Gracemont has five slots a cycle and bad speculation is the rest, as in Intel's metrics: its own event sees only some of
//! the machine clears. From Crestmont on they count all parts, and slots are their sum.

use super::{Counts, Method, Parts, Share, four};

pub(super) const GRACEMONT: Method = Method {
    of_slots: true,
    first: &["cycles", "TOPDOWN_FE_BOUND.ALL", "TOPDOWN_BE_BOUND.ALL", "TOPDOWN_RETIRING.ALL"],
    second: &[&[
        "TOPDOWN_FE_BOUND.FRONTEND_LATENCY",
        "TOPDOWN_BE_BOUND.ALLOC_RESTRICTIONS",
        "TOPDOWN_BAD_SPECULATION.MISPREDICT",
        "UOPS_RETIRED.MS",
    ]],
    shares: gracemont,
    remarks: [
        "",
        "The back end is split by what blocks allocation: resources that are full, memory's among them, or rules of the core.",
    ],
};
pub(super) const CRESTMONT: Method = Method {
    of_slots: true,
    first: PARTS,
    second: GRACEMONT.second,
    shares: summed,
    remarks: GRACEMONT.remarks,
};

const PARTS: &[&str] = &[
    "TOPDOWN_RETIRING.ALL_P",
    "TOPDOWN_BAD_SPECULATION.ALL_P",
    "TOPDOWN_FE_BOUND.ALL_P",
    "TOPDOWN_BE_BOUND.ALL_P",
];
/// Slots that allocation restrictions cost, and those that a full resource did.
const BACK_END: Parts = ["core bound", "resource bound"];

fn gracemont(counts: &Counts<'_>) -> Option<Vec<Share>> {
    const WIDTH: f64 = 5.0;
    let slots = WIDTH * counts.of("cycles")?;
    let of_slots = |event: &str| Some(counts.of(event)? / slots);
    let (front_end, back_end) = (of_slots("TOPDOWN_FE_BOUND.ALL")?, of_slots("TOPDOWN_BE_BOUND.ALL")?);
    let retiring = of_slots("TOPDOWN_RETIRING.ALL")?;
    let bad = (1.0 - front_end - back_end - retiring).max(0.0);
    Some(four([retiring, bad, front_end, back_end], firsts(counts, slots), BACK_END))
}

fn summed(counts: &Counts<'_>) -> Option<Vec<Share>> {
    let part = |place: usize| counts.of(PARTS[place]);
    let parts = [part(0)?, part(1)?, part(2)?, part(3)?];
    let slots: f64 = parts.iter().sum();
    Some(four(parts.map(|part| part / slots), firsts(counts, slots), BACK_END))
}

/// The first part of each share of level 1, where it was counted.
fn firsts(counts: &Counts<'_>, slots: f64) -> [Option<f64>; 4] {
    let events = [
        "UOPS_RETIRED.MS",
        "TOPDOWN_BAD_SPECULATION.MISPREDICT",
        "TOPDOWN_FE_BOUND.FRONTEND_LATENCY",
        "TOPDOWN_BE_BOUND.ALLOC_RESTRICTIONS",
    ];
    events.map(|event| Some(counts.of(event)? / slots))
}
