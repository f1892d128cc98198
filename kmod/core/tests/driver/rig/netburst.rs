//! Events of the Pentium 4: ESCR above, CCCR and block below (libpfm4's `intel_netburst_events.h` has the numbers too).

/// Event Select and Event Mask at their places in an ESCR, ESCR Select in a CCCR, and the block.
pub const fn encoding(select: u64, mask: u64, escr_select: u64, block: u64) -> u64 {
    (select << 25 | mask << 9) << 32 | escr_select << 13 | block
}

const IQ: u64 = 3;

/// instr_retired with NBOGUSNTAG and NBOGUSTAG.
pub const INSTRUCTIONS: u64 = encoding(0x02, 3, 4, IQ);
/// instr_completed with NBOGUS.
pub const INSTRUCTIONS_COMPLETED: u64 = encoding(0x07, 1, 4, IQ);
/// branch_retired with all four masks.
pub const BRANCHES: u64 = encoding(0x06, 0xF, 5, IQ);
/// front_end_event with NBOGUS.
pub const FRONT_END: u64 = encoding(0x08, 1, 5, IQ);
/// replay_event with NBOGUS.
pub const REPLAY: u64 = encoding(0x09, 1, 5, IQ);
/// uop_type with TAGLOADS.
pub const TAG_LOADS: u64 = encoding(0x02, 2, 2, IQ);
/// uop_type with TAGSTORES.
pub const TAG_STORES: u64 = encoding(0x02, 4, 2, IQ);
