//! PMUs that do not tell slots: cycles in which something stalled, which overlap.

use super::{Counts, Method, Share};

const REMARK: &str = "This PMU does not tell whose issue slots are empty, so these are cycles in which a part stalled; they overlap.";

/// Sandy Bridge to Skylake, where the two threads of a core share its slots.
pub(super) const SANDY_BRIDGE: Method = Method {
    of_slots: false,
    first: &["cycles", "UOPS_ISSUED.STALL_CYCLES", "UOPS_RETIRED.STALL_CYCLES", "RESOURCE_STALLS.ANY"],
    second: &[],
    shares,
    remarks: [REMARK, REMARK],
};
/// Core 2 to Westmere.
pub(super) const NEHALEM: Method =
    Method { first: &["cycles", "RAT_STALLS.ANY", "RESOURCE_STALLS.ANY"], ..SANDY_BRIDGE };
/// The Pentium 4, whose allocator's stalls are counted for one reason only (SDM Vol. 3B, NetBurst's resource_stall).
pub(super) const NETBURST: Method = Method { first: &["cycles", "resource_stall.SBFULL"], ..SANDY_BRIDGE };

/// Stalls, and what they are called; those of one PMU differ.
const NAMES: [(&str, &str); 5] = [
    ("UOPS_ISSUED.STALL_CYCLES", "nothing issued"),
    ("UOPS_RETIRED.STALL_CYCLES", "nothing retired"),
    ("RAT_STALLS.ANY", "renaming stalled"),
    ("RESOURCE_STALLS.ANY", "allocation waited for a resource"),
    ("resource_stall.SBFULL", "allocation waited for a store buffer"),
];

fn shares(counts: &Counts<'_>) -> Option<Vec<Share>> {
    let cycles = counts.of("cycles")?;
    let share =
        |(event, name)| Some(Share { cores: None, name, part_of: None, share: counts.of(event)? / cycles });
    Some(NAMES.into_iter().filter_map(share).collect())
}
