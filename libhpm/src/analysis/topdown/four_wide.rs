//! Sandy Bridge to Skylake: four slots a cycle; the back end is the rest.

use super::{BACK_END_PARTS, Counts, MEMORY, Method, Share, four, memory_bound, mispredicted};

/// The back end cannot be split.
pub(super) const SANDY_BRIDGE: Method =
    Method { of_slots: true, first: FIRST, second: &[SECOND], shares, remarks: ["", ""] };
/// It can.
pub(super) const SKYLAKE: Method = Method { second: &[SECOND, MEMORY], ..SANDY_BRIDGE };

const FIRST: &[&str] = &[
    "cycles",
    "IDQ_UOPS_NOT_DELIVERED.CORE",
    "UOPS_ISSUED.ANY",
    "UOPS_RETIRED.RETIRE_SLOTS",
    "INT_MISC.RECOVERY_CYCLES",
];
/// IDQ_UOPS_NOT_DELIVERED.CYCLES_0_UOPS_DELIV.CORE: the event with a counter mask of the core's width.
const STARVED: &str = "cpu/event=0x9c,umask=0x01,cmask=4/";
const SECOND: &[&str] = &[STARVED, "branch-misses", "MACHINE_CLEARS.COUNT", "IDQ.MS_UOPS"];
/// Slots of a cycle.
const WIDTH: f64 = 4.0;

fn shares(counts: &Counts<'_>) -> Option<Vec<Share>> {
    let slots = WIDTH * counts.of("cycles")?;
    let (issued, retired) = (counts.of("UOPS_ISSUED.ANY")?, counts.of("UOPS_RETIRED.RETIRE_SLOTS")?);
    let front_end = counts.of("IDQ_UOPS_NOT_DELIVERED.CORE")? / slots;
    let retiring = retired / slots;
    let bad = ((issued - retired + WIDTH * counts.of("INT_MISC.RECOVERY_CYCLES")?) / slots).max(0.0);
    let back_end = (1.0 - front_end - retiring - bad).max(0.0);
    let starved = counts.of(STARVED).map(|cycles| WIDTH * cycles / slots);
    let microcode = counts.of("IDQ.MS_UOPS").map(|uops| retired / issued * uops / slots);
    let waiting = memory_bound(counts, back_end, retiring);
    let firsts = [microcode, mispredicted(counts, bad), starved, waiting];
    Some(four([retiring, bad, front_end, back_end], firsts, BACK_END_PARTS))
}
