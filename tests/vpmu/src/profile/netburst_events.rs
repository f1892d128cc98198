//! NetBurst's events (SDM Vol. 3B, tables 19-28 "for Non-Retirement Counting" and 19-29 "for At-Retirement Counting"), as
//! far as the model gives them a meaning. What is not here counts nothing.
//!
//! Nothing executes speculatively in the model: nothing is bogus, and the mask bits for bogus work count nothing. One
//! micro-operation is modelled for each instruction, and one more for each that both loads and stores when those are told
//! apart. The second-level cache is the last level: what misses it goes to memory.

use super::netburst::{Masked, Meaning, NetburstEvent, RAT_ESCRS, SAAT_ESCR0, SAAT_ESCR1, Term};
use crate::event::Event as E;
use crate::event::EventSet;

const fn event(
    name: &'static str,
    escrs: &'static [u32],
    select: u8,
    masks: &'static [Masked],
) -> NetburstEvent {
    NetburstEvent { name, escrs, select, thread_independent: false, precise: false, masks }
}

const fn precise(
    name: &'static str,
    escrs: &'static [u32],
    select: u8,
    masks: &'static [Masked],
) -> NetburstEvent {
    NetburstEvent { precise: true, ..event(name, escrs, select, masks) }
}

const fn sum(mask: u16, events: &[E]) -> Masked {
    Masked { mask, counts: Meaning::Sum(EventSet::of(events)) }
}

const fn terms(mask: u16, terms: &'static [Term]) -> Masked {
    Masked { mask, counts: Meaning::Terms(terms) }
}

const fn term(every: &[E], none: &[E]) -> Term {
    Term { any: EventSet::EMPTY, every: EventSet::of(every), none: EventSet::of(none) }
}

const NBOGUS: u16 = 1;
const CRU_01: &[u32] = &[0x3B8, 0x3B9];
const CRU_23: &[u32] = &[0x3CC, 0x3CD];
const TBPU: &[u32] = &[0x3C2, 0x3C3];

/// Every event class.
pub(super) static EVENTS: &[NetburstEvent] = &[
    // At retirement (table 19-29).
    event("instr_retired", CRU_01, 0x02, INSTR_RETIRED),
    event("uops_retired", CRU_01, 0x01, &[sum(NBOGUS, &[E::Instruction])]),
    // Models 3, 4 and 6 only (table 19-30).
    event("instr_completed", CRU_01, 0x07, &[sum(NBOGUS, &[E::Instruction])]),
    event("branch_retired", CRU_23, 0x06, BRANCH_RETIRED),
    event("mispred_branch_retired", CRU_01, 0x03, &[sum(NBOGUS, &[E::BranchMispredicted])]),
    precise("front_end_event", CRU_23, 0x08, &[Masked { mask: NBOGUS, counts: Meaning::FrontEndTagged }]),
    precise("replay_event", CRU_23, 0x09, &[Masked { mask: NBOGUS, counts: Meaning::ReplayTagged }]),
    // What its upstream events (table 19-32) look for, floating-point and SIMD micro-operations, is not modelled: nothing is
    // ever tagged.
    precise("execution_event", CRU_23, 0x0C, &[]),
    // "Setting the TAGLOADS and TAGSTORES mask bits does not cause a counter to increment."
    event("uop_type", &RAT_ESCRS, 0x02, &[]),
    // Not at retirement (table 19-28).
    event("retired_branch_type", TBPU, 0x04, BRANCH_TYPE),
    event("retired_mispred_branch_type", TBPU, 0x05, MISPREDICTED_BRANCH_TYPE),
    // TCMISS: lookups that miss the trace cache, for which the instruction cache of the model stands.
    event("BPU_fetch_request", &[0x3B2, 0x3B3], 0x03, &[sum(1, &[E::L1iMiss])]),
    // MISS.
    event("ITLB_reference", &[0x3B6, 0x3B7], 0x18, &[sum(1 << 1, &[E::ItlbWalk])]),
    NetburstEvent {
        thread_independent: true,
        ..event("page_walk_type", &[0x3AC, 0x3AD], 0x01, PAGE_WALK_TYPE)
    },
    event("BSQ_cache_reference", &[0x3A0, 0x3A1], 0x0C, CACHE_REFERENCE),
    // SPLIT_LD, SPLIT_ST.
    event("load_port_replay", &[SAAT_ESCR0, SAAT_ESCR1], 0x04, &[sum(1 << 1, &[E::LoadSplit])]),
    event("store_port_replay", &[SAAT_ESCR0, SAAT_ESCR1], 0x05, &[sum(1 << 1, &[E::StoreSplit])]),
    // LSC, SSC: split loads and stores that completed.
    event(
        "memory_complete",
        &[SAAT_ESCR0, SAAT_ESCR1],
        0x08,
        &[sum(1, &[E::LoadSplit]), sum(1 << 1, &[E::StoreSplit])],
    ),
    // RUNNING: the processor is active.
    event("global_power_events", &[0x3A2, 0x3A3], 0x13, &[sum(1, &[E::Cycle])]),
];

/// NBOGUSNTAG, NBOGUSTAG.
const INSTR_RETIRED: &[Masked] = &[
    sum(0b11, &[E::Instruction]),
    Masked { mask: 1, counts: Meaning::Instructions { tagged: false } },
    Masked { mask: 1 << 1, counts: Meaning::Instructions { tagged: true } },
];

/// MMNP, MMNM, MMTP, MMTM: not taken or taken, predicted or mispredicted. Far branches are taken.
const BRANCH_RETIRED: &[Masked] = &[
    sum(0b1111, &[E::Branch]),
    terms(1, &[term(&[E::BranchNotTaken], &[E::BranchMispredicted])]),
    terms(1 << 1, &[term(&[E::BranchNotTaken, E::BranchMispredicted], &[])]),
    terms(
        1 << 2,
        &[term(&[E::BranchTaken], &[E::BranchMispredicted]), term(&[E::BranchFar], &[E::BranchMispredicted])],
    ),
    terms(1 << 3, &[term(&[E::BranchTakenMispredicted], &[])]),
];

/// CONDITIONAL, CALL, RETURN. INDIRECT is not told apart from direct jumps, and counts nothing.
const BRANCH_TYPE: &[Masked] =
    &[sum(1 << 1, &[E::BranchConditional]), sum(1 << 2, &[E::BranchCall]), sum(1 << 3, &[E::BranchReturn])];

/// CONDITIONAL, CALL, RETURN, INDIRECT: "returns, indirect calls, or indirect jumps", which are the near branches beside
/// conditional ones that can be mispredicted.
const MISPREDICTED_BRANCH_TYPE: &[Masked] = &[
    terms(0b1_1100, INDIRECT_MISPREDICTED),
    terms(0b1_0100, INDIRECT_MISPREDICTED),
    terms(0b1_1000, INDIRECT_MISPREDICTED),
    terms(1 << 4, INDIRECT_MISPREDICTED),
    sum(1 << 1, &[E::BranchConditionalMispredicted]),
    sum(1 << 2, &[E::BranchCallMispredicted]),
    terms(1 << 3, &[term(&[E::BranchReturn, E::BranchMispredicted], &[])]),
];

const INDIRECT_MISPREDICTED: &[Term] =
    &[term(&[E::BranchMispredicted], &[E::BranchConditional, E::BranchFar])];

/// DTMISS, ITMISS.
const PAGE_WALK_TYPE: &[Masked] =
    &[sum(1, &[E::DtlbLoadWalk, E::DtlbStoreWalk]), sum(1 << 1, &[E::ItlbWalk])];

/// RD_2ndL_HITE and RD_2ndL_MISS: reads, which are loads and reads for ownership. No other processor is ever asked for a
/// line, so that lines that hit count as exclusive, never as shared or modified. There is no third level; write-backs
/// always hit.
const CACHE_REFERENCE: &[Masked] =
    &[sum(1 << 1, &[E::L3ReadHit, E::L3RfoHit]), sum(1 << 8, &[E::LlcReadMiss, E::LlcWriteMiss])];
