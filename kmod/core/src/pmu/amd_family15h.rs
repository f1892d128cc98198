//! Family 15H: Bulldozer, Piledriver, Steamroller and Excavator (BKDG 42301 and later).

use super::amd::{any_of_six as any, sampled_by_ibs, BASE};
use super::{rule, EventRule, Generation, PreciseRule};

/// Family 15H.
pub const FAMILY_15H: Generation =
    Generation { name: "family15h", events: &EVENTS, precise: &PRECISE, ..BASE };

/// An event that counters 0 to 2 count: of what the two cores of a module share, and of the decoder.
const fn low(select: u16, unit_mask_bits: u16) -> EventRule {
    rule(select, unit_mask_bits, 0x07)
}

/// An event of the floating-point unit, which counters 3 to 5 count.
const fn fpu(select: u16, unit_mask_bits: u16) -> EventRule {
    rule(select, unit_mask_bits, 0x38)
}

/// An event that counter 3 alone counts. With some of their unit masks counters 4 and 5 count DISPATCHED_FPU_OPS and
/// MOVE_SCALAR_OPTIMIZATION, too, which is not used.
const fn third(select: u16, unit_mask_bits: u16) -> EventRule {
    rule(select, unit_mask_bits, 0x08)
}

/// The events of a core by the names of libpfm4 (its list of Interlagos), which takes them from the BKDG, and which counters
/// count them as in Linux (`amd_get_event_constraints_f15h`). Not here: events of the northbridge, which has counters of its own.
const EVENTS: [EventRule; 82] = [
    third(0x00, 0xFF), // DISPATCHED_FPU_OPS
    fpu(0x01, 0x00),   // CYCLES_FPU_EMPTY
    third(0x03, 0xFF), // RETIRED_SSE_OPS
    third(0x04, 0x0F), // MOVE_SCALAR_OPTIMIZATION
    fpu(0x05, 0x0F),   // RETIRED_SERIALIZING_OPS
    fpu(0x06, 0x00),   // BOTTOM_EXECUTE_OP
    any(0x20, 0x7F),   // SEGMENT_REGISTER_LOADS
    any(0x21, 0x00),   // PIPELINE_RESTART_DUE_TO_SELF_MODIFYING_CODE
    any(0x22, 0x00),   // PIPELINE_RESTART_DUE_TO_PROBE_HIT
    low(0x23, 0x03),   // LOAD_Q_STORE_Q_FULL
    any(0x24, 0x0D),   // LOCKED_OPS
    any(0x26, 0x00),   // RETIRED_CLFLUSH_INSTRUCTIONS
    any(0x27, 0x00),   // RETIRED_CPUID_INSTRUCTIONS
    any(0x29, 0x07),   // LS_DISPATCH
    any(0x2A, 0x01),   // CANCELLED_STORE_TO_LOAD
    any(0x2B, 0x00),   // SMIS_RECEIVED
    any(0x30, 0x00),   // EXECUTED_CLFLUSH_INSTRUCTIONS
    any(0x40, 0x00),   // DATA_CACHE_ACCESSES
    any(0x41, 0x03),   // DATA_CACHE_MISSES
    any(0x42, 0x0F),   // DATA_CACHE_REFILLS_FROM_L2_OR_NORTHBRIDGE
    low(0x43, 0x00),   // DATA_CACHE_REFILLS_FROM_NORTHBRIDGE
    low(0x45, 0x77),   // UNIFIED_TLB_HIT
    low(0x46, 0x77),   // UNIFIED_TLB_MISS
    any(0x47, 0x00),   // MISALIGNED_ACCESSES
    any(0x4B, 0x07),   // PREFETCH_INSTRUCTIONS_DISPATCHED
    any(0x52, 0x09),   // INEFFECTIVE_SW_PREFETCHES
    low(0x65, 0x83),   // MEMORY_REQUESTS
    low(0x67, 0x02),   // DATA_PREFETCHER
    low(0x68, 0xFF),   // MAB_REQS
    low(0x69, 0xFF),   // MAB_WAIT
    low(0x6C, 0x3F),   // SYSTEM_READ_RESPONSES
    low(0x6D, 0x01),   // OCTWORD_WRITE_TRANSFERS
    low(0x76, 0x00),   // CPU_CLK_UNHALTED
    low(0x7D, 0x5F),   // REQUESTS_TO_L2
    low(0x7E, 0x17),   // L2_CACHE_MISS
    low(0x7F, 0x07),   // L2_CACHE_FILL_WRITEBACK
    low(0x80, 0x00),   // INSTRUCTION_CACHE_FETCHES
    low(0x81, 0x00),   // INSTRUCTION_CACHE_MISSES
    low(0x82, 0x00),   // INSTRUCTION_CACHE_REFILLS_FROM_L2
    low(0x83, 0x00),   // INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM
    low(0x84, 0x00),   // L1_ITLB_MISS_AND_L2_ITLB_HIT
    low(0x85, 0x07),   // L1_ITLB_MISS_AND_L2_ITLB_MISS
    low(0x86, 0x00),   // PIPELINE_RESTART_DUE_TO_INSTRUCTION_STREAM_PROBE
    low(0x87, 0x00),   // INSTRUCTION_FETCH_STALL
    low(0x88, 0x00),   // RETURN_STACK_HITS
    low(0x89, 0x00),   // RETURN_STACK_OVERFLOWS
    low(0x8B, 0x00),   // INSTRUCTION_CACHE_VICTIMS
    low(0x8C, 0x0F),   // INSTRUCTION_CACHE_INVALIDATED
    low(0x99, 0x00),   // ITLB_RELOADS
    low(0x9A, 0x00),   // ITLB_RELOADS_ABORTED
    any(0xC0, 0x00),   // RETIRED_INSTRUCTIONS
    any(0xC1, 0x00),   // RETIRED_UOPS
    any(0xC2, 0x00),   // RETIRED_BRANCH_INSTRUCTIONS
    any(0xC3, 0x00),   // RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS
    any(0xC4, 0x00),   // RETIRED_TAKEN_BRANCH_INSTRUCTIONS
    any(0xC5, 0x00),   // RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xC6, 0x00),   // RETIRED_FAR_CONTROL_TRANSFERS
    any(0xC7, 0x00),   // RETIRED_BRANCH_RESYNCS
    any(0xC8, 0x00),   // RETIRED_NEAR_RETURNS
    any(0xC9, 0x00),   // RETIRED_NEAR_RETURNS_MISPREDICTED
    any(0xCA, 0x00),   // RETIRED_INDIRECT_BRANCHES_MISPREDICTED
    any(0xCB, 0x07),   // RETIRED_MMX_FP_INSTRUCTIONS
    any(0xCD, 0x00),   // INTERRUPTS_MASKED_CYCLES
    any(0xCE, 0x00),   // INTERRUPTS_MASKED_CYCLES_WITH_INTERRUPT_PENDING
    any(0xCF, 0x00),   // INTERRUPTS_TAKEN
    low(0xD0, 0x00),   // DECODER_EMPTY
    low(0xD1, 0x00),   // DISPATCH_STALLS
    low(0xD3, 0x00),   // DISPATCH_STALL_FOR_SERIALIZATION
    low(0xD5, 0x00),   // DISPATCH_STALL_FOR_RETIRE_QUEUE_FULL
    low(0xD6, 0x00),   // DISPATCH_STALL_FOR_INT_SCHED_QUEUE_FULL
    low(0xD7, 0x00),   // DISPATCH_STALL_FOR_FPU_FULL
    low(0xD8, 0x00),   // DISPATCH_STALL_FOR_LDQ_FULL
    low(0xD9, 0x00),   // MICROSEQ_STALL_WAITING_FOR_ALL_QUIET
    any(0xDB, 0x1F),   // FPU_EXCEPTIONS
    any(0xDC, 0x00),   // DR0_BREAKPOINTS
    any(0xDD, 0x00),   // DR1_BREAKPOINTS
    any(0xDE, 0x00),   // DR2_BREAKPOINTS
    any(0xDF, 0x00),   // DR3_BREAKPOINTS
    low(0x165, 0x07),  // PAGE_SPLINTERING
    low(0x16C, 0x03),  // L2_PREFETCHER_TRIGGER_EVENTS
    any(0x1CF, 0x07),  // IBS_OPS_TAGGED
    any(0x1D8, 0x00),  // DISPATCH_STALL_FOR_STQ_FULL
];

/// Fetches are sampled by the event that counts them.
const PRECISE: [PreciseRule; 3] = sampled_by_ibs(0x80);
