//! Core 2's events: names and encodings of Intel's event list for the Core microarchitecture (SDM Vol. 3B, tables 18-9 and
//! 18-10, and chapter 19), as far as the model gives them a meaning. An encoding that is not here counts nothing. Umasks of L2 events are
//! those of "this core, demand, all states".

use super::EventSpec;
use super::spec::{event, on, precise, precise_cycles};
use crate::event::Event as E;

/// What is counted at retirement by tagging "is limited to IA32_PMC0" (18.4.3).
const PMC0: u64 = 0b1;
const BOTH: u64 = 0b11;

const fn either(spec: EventSpec) -> EventSpec {
    on(BOTH, spec)
}

/// General-purpose events.
pub(super) static EVENTS: &[EventSpec] = &[
    either(precise("INST_RETIRED.ANY_P", 0xC0, 0x00, &[E::Instruction])),
    either(event("INST_RETIRED.LOADS", 0xC0, 0x01, &[E::Load])),
    either(event("INST_RETIRED.STORES", 0xC0, 0x02, &[E::Store])),
    // What Linux samples cycles with (intel_pebs_aliases_core2), on real parts too.
    either(precise_cycles("INST_RETIRED.TOTAL_CYCLES", 0xC0, 0x00)),
    // One fused micro-operation is modelled for each instruction.
    either(event("UOPS_RETIRED.ANY", 0xC2, 0x0F, &[E::Instruction])),
    // Branches. Nothing executes speculatively.
    either(event("BR_INST_RETIRED.ANY", 0xC4, 0x00, &[E::Branch])),
    either(event("BR_INST_RETIRED.MISPRED_TAKEN", 0xC4, 0x08, &[E::BranchTakenMispredicted])),
    either(event("BR_INST_RETIRED.TAKEN", 0xC4, 0x0C, &[E::BranchTaken, E::BranchFar])),
    either(precise("BR_INST_RETIRED.MISPRED", 0xC5, 0x00, &[E::BranchMispredicted])),
    either(event("BR_INST_EXEC", 0x88, 0x00, &[E::Branch])),
    either(event("BR_MISSP_EXEC", 0x89, 0x00, &[E::BranchMispredicted])),
    either(event("BR_CND_EXEC", 0x8B, 0x00, &[E::BranchConditional])),
    either(event("BR_CND_MISSP_EXEC", 0x8C, 0x00, &[E::BranchConditionalMispredicted])),
    either(event("BR_RET_EXEC", 0x8F, 0x00, &[E::BranchReturn])),
    either(event("BR_CALL_EXEC", 0x92, 0x00, &[E::BranchCall])),
    either(event("BR_CALL_MISSP_EXEC", 0x93, 0x00, &[E::BranchCallMispredicted])),
    // Clocks.
    either(event("CPU_CLK_UNHALTED.CORE_P", 0x3C, 0x00, &[E::Cycle])),
    either(event("CPU_CLK_UNHALTED.BUS", 0x3C, 0x01, &[E::CrystalCycle])),
    // Loads at retirement. A line that misses is one load's.
    on(PMC0, precise("MEM_LOAD_RETIRED.L1D_MISS", 0xCB, 0x01, &[E::LoadL1Miss])),
    on(PMC0, precise("MEM_LOAD_RETIRED.L1D_LINE_MISS", 0xCB, 0x02, &[E::LoadL1Miss])),
    on(PMC0, precise("MEM_LOAD_RETIRED.L2_MISS", 0xCB, 0x04, &[E::LoadL3Miss])),
    on(PMC0, precise("MEM_LOAD_RETIRED.L2_LINE_MISS", 0xCB, 0x08, &[E::LoadL3Miss])),
    on(PMC0, precise("MEM_LOAD_RETIRED.DTLB_MISS", 0xCB, 0x10, &[E::LoadStlbMiss])),
    on(PMC0, event("ITLB_MISS_RETIRED", 0xC9, 0x00, &[E::ItlbWalk])),
    // Caches. The second level is the model's last.
    either(event("L1D_CACHE_LD.MESI", 0x40, 0x0F, &[E::L1dRead])),
    either(event("L1D_CACHE_LD.I_STATE", 0x40, 0x01, &[E::L1dReadMiss])),
    either(event("L1D_CACHE_ST.MESI", 0x41, 0x0F, &[E::L1dWrite])),
    either(event("L1D_CACHE_ST.I_STATE", 0x41, 0x01, &[E::L1dWriteMiss])),
    either(event("L1D_ALL_REF", 0x43, 0x01, &[E::L1dRead, E::L1dWrite])),
    either(event("L1D_REPL", 0x45, 0x0F, &[E::L1dReadMiss, E::L1dWriteMiss])),
    either(event("L1I_READS", 0x80, 0x00, &[E::L1iRead])),
    either(event("L1I_MISSES", 0x81, 0x00, &[E::L1iMiss])),
    either(event("CYCLES_L1I_MEM_STALLED", 0x86, 0x00, &[E::StallInstructionCache])),
    either(event("L2_LD.SELF.DEMAND.MESI", 0x29, 0x4F, &[E::L3ReadHit, E::LlcReadMiss])),
    either(event("L2_LD.SELF.DEMAND.I_STATE", 0x29, 0x41, &[E::LlcReadMiss])),
    either(event("L2_ST.SELF.MESI", 0x2A, 0x4F, &[E::L3RfoHit, E::LlcWriteMiss])),
    either(event("L2_ST.SELF.I_STATE", 0x2A, 0x41, &[E::LlcWriteMiss])),
    either(event("L2_IFETCH.SELF.MESI", 0x28, 0x4F, &[E::L3CodeHit, E::LlcInstructionMiss])),
    either(event("L2_IFETCH.SELF.I_STATE", 0x28, 0x41, &[E::LlcInstructionMiss])),
    either(event("L2_RQSTS.SELF.DEMAND.MESI", 0x2E, 0x4F, REFERENCES)),
    either(event("L2_RQSTS.SELF.DEMAND.I_STATE", 0x2E, 0x41, MISSES)),
    // Translation. All pages are modelled as 4-KiB pages.
    either(event("DTLB_MISSES.ANY", 0x08, 0x01, &[E::DtlbLoadWalk, E::DtlbStoreWalk])),
    either(event("DTLB_MISSES.MISS_LD", 0x08, 0x02, &[E::DtlbLoadWalk])),
    either(event("DTLB_MISSES.L0_MISS_LD", 0x08, 0x04, &[E::DtlbLoadStlbHit, E::DtlbLoadWalk])),
    either(event("DTLB_MISSES.MISS_ST", 0x08, 0x08, &[E::DtlbStoreWalk])),
    either(event("ITLB.SMALL_MISS", 0x82, 0x02, &[E::ItlbStlbHit, E::ItlbWalk])),
    either(event("ITLB.MISSES", 0x82, 0x12, &[E::ItlbStlbHit, E::ItlbWalk])),
    either(event("PAGE_WALKS.COUNT", 0x0C, 0x01, &[E::DtlbLoadWalk, E::DtlbStoreWalk, E::ItlbWalk])),
    // Stalls. In the model, a cycle with a miss outstanding is a stalled cycle.
    either(event("RESOURCE_STALLS.ANY", 0xDC, 0x1F, &[E::StallMemory])),
];

pub(super) const REFERENCES: &[E] =
    &[E::L3ReadHit, E::L3RfoHit, E::L3CodeHit, E::LlcReadMiss, E::LlcWriteMiss, E::LlcInstructionMiss];
pub(super) const MISSES: &[E] = &[E::LlcReadMiss, E::LlcWriteMiss, E::LlcInstructionMiss];
