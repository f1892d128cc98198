//! Ice Lake, whose slots are counted and bad speculation is the rest; Golden Cove to Cougar Cove, which count every part.

use super::{BACK_END_PARTS, Counts, MEMORY, Method, Share, four, memory_bound, mispredicted};

pub(super) const ICE_LAKE: Method = Method {
    of_slots: true,
    first: ICE_LAKE_1,
    second: &[ICE_LAKE_2, MEMORY],
    shares: ice_lake,
    remarks: ["", ""],
};
pub(super) const GOLDEN_COVE: Method = Method {
    of_slots: true,
    first: GOLDEN_COVE_1,
    second: &[GOLDEN_COVE_2],
    shares: golden_cove,
    remarks: ["", "Each share of level 1 is counted by itself; what they lack to 100 % is told by none."],
};
pub(super) const LION_COVE: Method =
    Method { first: LION_COVE_1, second: &[LION_COVE_2], shares: lion_cove, ..GOLDEN_COVE };

/// INT_MISC.CLEARS_COUNT: times that the allocator began to recover.
const CLEARS: &str = "cpu/event=0x0d,umask=0x01,cmask=1,edge/";
const ICE_LAKE_1: &[&str] = &[
    "TOPDOWN.SLOTS_P",
    "UOPS_RETIRED.SLOTS",
    "IDQ_UOPS_NOT_DELIVERED.CORE",
    "INT_MISC.UOP_DROPPING",
    "TOPDOWN.BACKEND_BOUND_SLOTS",
    CLEARS,
];
/// IDQ_UOPS_NOT_DELIVERED.CYCLES_0_UOPS_DELIV.CORE.
const ICE_LAKE_STARVED: &str = "cpu/event=0x9c,umask=0x01,cmask=5/";
const ICE_LAKE_2: &[&str] =
    &[ICE_LAKE_STARVED, "branch-misses", "MACHINE_CLEARS.COUNT", "UOPS_ISSUED.ANY", "IDQ.MS_UOPS"];

const GOLDEN_COVE_1: &[&str] = &[
    "TOPDOWN.SLOTS_P",
    "UOPS_RETIRED.SLOTS",
    "TOPDOWN.BAD_SPEC_SLOTS",
    "IDQ_BUBBLES.CORE",
    "INT_MISC.UOP_DROPPING",
    "TOPDOWN.BACKEND_BOUND_SLOTS",
];
/// IDQ_BUBBLES.CYCLES_0_UOPS_DELIV.CORE.
const GOLDEN_COVE_STARVED: &str = "cpu/event=0x9c,umask=0x01,cmask=6/";
const GOLDEN_COVE_2: &[&str] =
    &["UOPS_RETIRED.MS", "TOPDOWN.BR_MISPREDICT_SLOTS", GOLDEN_COVE_STARVED, "TOPDOWN.MEMORY_BOUND_SLOTS"];
/// Of which nothing is dropped behind the queue.
const LION_COVE_1: &[&str] = &[
    "TOPDOWN.SLOTS_P",
    "UOPS_RETIRED.SLOTS",
    "TOPDOWN.BAD_SPEC_SLOTS",
    "IDQ_BUBBLES.CORE",
    "TOPDOWN.BACKEND_BOUND_SLOTS",
];
/// Cycles: shorter gaps than of two are a matter of bandwidth (Intel's metrics tma_dsb and tma_mite).
const LION_COVE_STARVED: &str = "IDQ_BUBBLES.FETCH_LATENCY";
const LION_COVE_2: &[&str] =
    &["UOPS_RETIRED.MS", "TOPDOWN.BR_MISPREDICT_SLOTS", LION_COVE_STARVED, "TOPDOWN.MEMORY_BOUND_SLOTS"];

fn ice_lake(counts: &Counts<'_>) -> Option<Vec<Share>> {
    const WIDTH: f64 = 5.0;
    let slots = counts.of("TOPDOWN.SLOTS_P")?;
    let retired = counts.of("UOPS_RETIRED.SLOTS")?;
    let retiring = retired / slots;
    let dropped = counts.of("INT_MISC.UOP_DROPPING")?;
    let front_end = (counts.of("IDQ_UOPS_NOT_DELIVERED.CORE")? - dropped).max(0.0) / slots;
    let back_end = (counts.of("TOPDOWN.BACKEND_BOUND_SLOTS")? + WIDTH * counts.of(CLEARS)?) / slots;
    let bad = (1.0 - front_end - retiring - back_end).max(0.0);
    let starved = counts.of(ICE_LAKE_STARVED).map(|cycles| (WIDTH * cycles - dropped) / slots);
    let microcode = || Some(retired / counts.of("UOPS_ISSUED.ANY")? * counts.of("IDQ.MS_UOPS")? / slots);
    let firsts = [microcode(), mispredicted(counts, bad), starved, memory_bound(counts, back_end, retiring)];
    Some(four([retiring, bad, front_end, back_end], firsts, BACK_END_PARTS))
}

fn golden_cove(counts: &Counts<'_>) -> Option<Vec<Share>> {
    let dropped = counts.of("INT_MISC.UOP_DROPPING")?;
    counted(counts, (6.0, GOLDEN_COVE_STARVED), dropped)
}

fn lion_cove(counts: &Counts<'_>) -> Option<Vec<Share>> {
    counted(counts, (8.0, LION_COVE_STARVED), 0.0)
}

/// Every part is counted; `starved` are the cycles in which none of the `width` slots had anything, and `dropped` the micro-operations that the
/// front end had delivered all the same.
fn counted(counts: &Counts<'_>, (width, starved): (f64, &str), dropped: f64) -> Option<Vec<Share>> {
    let slots = counts.of("TOPDOWN.SLOTS_P")?;
    let of_slots = |event: &str| Some(counts.of(event)? / slots);
    let dropped = dropped / slots;
    let level_1 = [
        of_slots("UOPS_RETIRED.SLOTS")?,
        of_slots("TOPDOWN.BAD_SPEC_SLOTS")?,
        (of_slots("IDQ_BUBBLES.CORE")? - dropped).max(0.0),
        of_slots("TOPDOWN.BACKEND_BOUND_SLOTS")?,
    ];
    let firsts = [
        of_slots("UOPS_RETIRED.MS"),
        of_slots("TOPDOWN.BR_MISPREDICT_SLOTS"),
        of_slots(starved).map(|cycles| width * cycles - dropped),
        of_slots("TOPDOWN.MEMORY_BOUND_SLOTS"),
    ];
    Some(four(level_1, firsts, BACK_END_PARTS))
}
