//! Family 16H: Jaguar and Puma (BKDG 48751, 52740).

use super::amd::{any_of_four as any, sampled_by_ibs, BASE};
use super::{EventRule, Generation, PreciseRule};

/// Family 16H.
pub const FAMILY_16H: Generation =
    Generation { name: "family16h", events: &EVENTS, precise: &PRECISE, ..BASE };

/// The events of a core by the names of libpfm4, which takes them from the BKDG. Not here: MAB_REQUESTS and MAB_WAIT_CYCLES
/// (068H, 069H), whose unit masks in libpfm4 have more bits than the register; events of the northbridge and of L2, which have
/// counters of their own.
const EVENTS: [EventRule; 73] = [
    any(0x00, 0x03),  // DISPATCHED_FPU
    any(0x01, 0x00),  // FP_SCHEDULER_EMPTY
    any(0x02, 0x00),  // DISPATCHED_FPU_OPS_FAST_FLAG
    any(0x03, 0x7F),  // RETIRED_SSE_AVX_OPERATIONS
    any(0x05, 0x0F),  // RETIRED_SERIALIZING_OPS
    any(0x11, 0x0F),  // RETIRED_X87_OPERATIONS
    any(0x20, 0x7F),  // SEGMENT_REGISTER_LOADS
    any(0x21, 0x00),  // PIPELINE_RESTART_DUE_TO_SELF_MODIFYING_CODE
    any(0x22, 0x03),  // PIPELINE_RESTART_DUE_TO_PROBE_HIT
    any(0x24, 0x07),  // LOCKED_OPS
    any(0x26, 0x00),  // RETIRED_CLFLUSH_INSTRUCTIONS
    any(0x27, 0x00),  // RETIRED_CPUID_INSTRUCTIONS
    any(0x29, 0x07),  // LS_DISPATCH
    any(0x2A, 0x07),  // CANCELLED_STORE_TO_LOAD_FORWARD_OPERATIONS
    any(0x40, 0x00),  // DATA_CACHE_ACCESSES
    any(0x41, 0x00),  // DATA_CACHE_MISSES
    any(0x42, 0x1F),  // DATA_CACHE_REFILLS
    any(0x43, 0x1F),  // DATA_CACHE_REFILLS_FROM_NORTHBRIDGE
    any(0x44, 0x1F),  // DATA_CACHE_LINES_EVICTED
    any(0x45, 0x00),  // L1_DTLB_MISS_AND_L2_DTLB_HIT
    any(0x46, 0x0F),  // DTLB_MISS
    any(0x47, 0x03),  // MISALIGNED_ACCESSES
    any(0x4B, 0x07),  // PREFETCH_INSTRUCTIONS_DISPATCHED
    any(0x4C, 0x00),  // DCACHE_MISSES_BY_LOCKED_INSTRUCTIONS
    any(0x4D, 0x03),  // L1_DTLB_HIT
    any(0x52, 0x0F),  // INEFFECTIVE_SW_PREFETCHES
    any(0x54, 0x00),  // GLOBAL_TLB_FLUSHES
    any(0x61, 0x33),  // COMMAND_RELATED_UNCACHABLE
    any(0x62, 0x77),  // COMMAND_RELATED_READ_BLOCK
    any(0x63, 0x10),  // COMMAND_RELATED_DIRTY
    any(0x65, 0x83),  // MEMORY_REQUESTS
    any(0x67, 0x0A),  // DATA_PREFETCHES
    any(0x6C, 0x7F),  // SYSTEM_RESPONSES
    any(0x6D, 0x3F),  // DATA_WRITTEN_TO_SYSTEM
    any(0x75, 0x7F),  // CACHE_CROSS_INVALIDATES
    any(0x76, 0x00),  // CPU_CLK_UNHALTED
    any(0x80, 0x00),  // INSTRUCTION_CACHE_FETCHES
    any(0x81, 0x00),  // INSTRUCTION_CACHE_MISSES
    any(0x82, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_L2
    any(0x83, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM
    any(0x84, 0x00),  // L1_ITLB_MISS_AND_L2_ITLB_HIT
    any(0x85, 0x03),  // ITLB_MISS
    any(0x87, 0x00),  // INSTRUCTION_FETCH_STALL
    any(0x88, 0x00),  // RETURN_STACK_HITS
    any(0x89, 0x00),  // RETURN_STACK_OVERFLOWS
    any(0x8B, 0x00),  // INSTRUCTION_CACHE_VICTIMS
    any(0x8C, 0x03),  // INSTRUCTION_CACHE_LINES_INVALIDATED
    any(0x99, 0x00),  // ITLB_RELOADS
    any(0x9A, 0x00),  // ITLB_RELOADS_ABORTED
    any(0xC0, 0x00),  // RETIRED_INSTRUCTIONS
    any(0xC1, 0x00),  // RETIRED_UOPS
    any(0xC2, 0x00),  // RETIRED_BRANCH_INSTRUCTIONS
    any(0xC3, 0x00),  // RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS
    any(0xC4, 0x00),  // RETIRED_TAKEN_BRANCH_INSTRUCTIONS
    any(0xC5, 0x00),  // RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xC6, 0x00),  // RETIRED_FAR_CONTROL_TRANSFERS
    any(0xC7, 0x00),  // RETIRED_BRANCH_RESYNCS
    any(0xC8, 0x00),  // RETIRED_NEAR_RETURNS
    any(0xC9, 0x00),  // RETIRED_NEAR_RETURNS_MISPREDICTED
    any(0xCA, 0x00),  // RETIRED_MISPREDICTED_TAKEN
    any(0xCB, 0x03),  // RETIRED_MMX_AND_FP_INSTRUCTIONS
    any(0xCD, 0x00),  // INTERRUPTS_MASKED_CYCLES
    any(0xCE, 0x00),  // INTERRUPTS_MASKED_CYCLES_WITH_INTERRUPT_PENDING
    any(0xCF, 0x00),  // INTERRUPTS_TAKEN
    any(0xDB, 0x0F),  // FPU_EXCEPTIONS
    any(0xDC, 0x00),  // DR0_BREAKPOINT_MATCHES
    any(0xDD, 0x00),  // DR1_BREAKPOINT_MATCHES
    any(0xDE, 0x00),  // DR2_BREAKPOINT_MATCHES
    any(0xDF, 0x00),  // DR3_BREAKPOINT_MATCHES
    any(0x162, 0x77), // PDC_MISS
    any(0x19A, 0x03), // RETIRED_INDIRECT_BRANCH_INFO
    any(0x1CF, 0x00), // TAGGED_IBS_OPS
    any(0x1D0, 0x00), // TAGGED_IBS_OPS_RETIRED
];

/// Fetches are sampled by the event that counts them.
const PRECISE: [PreciseRule; 3] = sampled_by_ibs(0x80);
