//! Family 10H: Phenom, Athlon II and Opteron of the K10 core.

use super::amd::{any_of_four as any, sampled_by_ibs, BASE};
use super::{EventRule, Generation, PreciseRule};

/// Family 10H.
pub const FAMILY_10H: Generation =
    Generation { name: "family10h", events: &EVENTS, precise: &PRECISE, ..BASE };

/// The events of a core by the names of libpfm4, which takes them from the BKDG (31116). Not here: events of the northbridge and L3,
/// which are the same for all cores and whose counters one core at a time may use.
const EVENTS: [EventRule; 92] = [
    any(0x00, 0x3F),  // DISPATCHED_FPU
    any(0x01, 0x00),  // CYCLES_NO_FPU_OPS_RETIRED
    any(0x02, 0x00),  // DISPATCHED_FPU_OPS_FAST_FLAG
    any(0x03, 0x7F),  // RETIRED_SSE_OPERATIONS
    any(0x04, 0x0F),  // RETIRED_MOVE_OPS
    any(0x05, 0x0F),  // RETIRED_SERIALIZING_OPS
    any(0x06, 0x03),  // FP_SCHEDULER_CYCLES
    any(0x20, 0x7F),  // SEGMENT_REGISTER_LOADS
    any(0x21, 0x00),  // PIPELINE_RESTART_DUE_TO_SELF_MODIFYING_CODE
    any(0x22, 0x00),  // PIPELINE_RESTART_DUE_TO_PROBE_HIT
    any(0x23, 0x00),  // LS_BUFFER_2_FULL_CYCLES
    any(0x24, 0x0F),  // LOCKED_OPS
    any(0x26, 0x00),  // RETIRED_CLFLUSH_INSTRUCTIONS
    any(0x27, 0x00),  // RETIRED_CPUID_INSTRUCTIONS
    any(0x2A, 0x07),  // CANCELLED_STORE_TO_LOAD_FORWARD_OPERATIONS
    any(0x2B, 0x00),  // SMIS_RECEIVED
    any(0x40, 0x00),  // DATA_CACHE_ACCESSES
    any(0x41, 0x00),  // DATA_CACHE_MISSES
    any(0x42, 0x1F),  // DATA_CACHE_REFILLS
    any(0x43, 0x1F),  // DATA_CACHE_REFILLS_FROM_SYSTEM
    any(0x44, 0x7F),  // DATA_CACHE_LINES_EVICTED
    any(0x45, 0x07),  // L1_DTLB_MISS_AND_L2_DTLB_HIT
    any(0x46, 0x07),  // L1_DTLB_AND_L2_DTLB_MISS
    any(0x47, 0x00),  // MISALIGNED_ACCESSES
    any(0x48, 0x00),  // MICROARCHITECTURAL_LATE_CANCEL_OF_AN_ACCESS
    any(0x49, 0x00),  // MICROARCHITECTURAL_EARLY_CANCEL_OF_AN_ACCESS
    any(0x4A, 0x0F),  // SCRUBBER_SINGLE_BIT_ECC_ERRORS
    any(0x4B, 0x07),  // PREFETCH_INSTRUCTIONS_DISPATCHED
    any(0x4C, 0x02),  // DCACHE_MISSES_BY_LOCKED_INSTRUCTIONS
    any(0x4D, 0x07),  // L1_DTLB_HIT
    any(0x52, 0x09),  // INEFFECTIVE_SW_PREFETCHES
    any(0x54, 0x00),  // GLOBAL_TLB_FLUSHES
    any(0x65, 0x83),  // MEMORY_REQUESTS
    any(0x67, 0x03),  // DATA_PREFETCHES
    any(0x6C, 0x1F),  // SYSTEM_READ_RESPONSES
    any(0x6D, 0x01),  // QUADWORDS_WRITTEN_TO_SYSTEM
    any(0x76, 0x00),  // CPU_CLK_UNHALTED
    any(0x7D, 0x3F),  // REQUESTS_TO_L2
    any(0x7E, 0x0F),  // L2_CACHE_MISS
    any(0x7F, 0x03),  // L2_FILL_WRITEBACK
    any(0x80, 0x00),  // INSTRUCTION_CACHE_FETCHES
    any(0x81, 0x00),  // INSTRUCTION_CACHE_MISSES
    any(0x82, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_L2
    any(0x83, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM
    any(0x84, 0x00),  // L1_ITLB_MISS_AND_L2_ITLB_HIT
    any(0x85, 0x03),  // L1_ITLB_MISS_AND_L2_ITLB_MISS
    any(0x86, 0x00),  // PIPELINE_RESTART_DUE_TO_INSTRUCTION_STREAM_PROBE
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
    any(0xCA, 0x00),  // RETIRED_INDIRECT_BRANCHES_MISPREDICTED
    any(0xCB, 0x07),  // RETIRED_MMX_AND_FP_INSTRUCTIONS
    any(0xCC, 0x07),  // RETIRED_FASTPATH_DOUBLE_OP_INSTRUCTIONS
    any(0xCD, 0x00),  // INTERRUPTS_MASKED_CYCLES
    any(0xCE, 0x00),  // INTERRUPTS_MASKED_CYCLES_WITH_INTERRUPT_PENDING
    any(0xCF, 0x00),  // INTERRUPTS_TAKEN
    any(0xD0, 0x00),  // DECODER_EMPTY
    any(0xD1, 0x00),  // DISPATCH_STALLS
    any(0xD2, 0x00),  // DISPATCH_STALL_FOR_BRANCH_ABORT
    any(0xD3, 0x00),  // DISPATCH_STALL_FOR_SERIALIZATION
    any(0xD4, 0x00),  // DISPATCH_STALL_FOR_SEGMENT_LOAD
    any(0xD5, 0x00),  // DISPATCH_STALL_FOR_REORDER_BUFFER_FULL
    any(0xD6, 0x00),  // DISPATCH_STALL_FOR_RESERVATION_STATION_FULL
    any(0xD7, 0x00),  // DISPATCH_STALL_FOR_FPU_FULL
    any(0xD8, 0x00),  // DISPATCH_STALL_FOR_LS_FULL
    any(0xD9, 0x00),  // DISPATCH_STALL_WAITING_FOR_ALL_QUIET
    any(0xDA, 0x00),  // DISPATCH_STALL_FOR_FAR_TRANSFER_OR_RSYNC
    any(0xDB, 0x0F),  // FPU_EXCEPTIONS
    any(0xDC, 0x00),  // DR0_BREAKPOINT_MATCHES
    any(0xDD, 0x00),  // DR1_BREAKPOINT_MATCHES
    any(0xDE, 0x00),  // DR2_BREAKPOINT_MATCHES
    any(0xDF, 0x00),  // DR3_BREAKPOINT_MATCHES
    any(0x165, 0x07), // PAGE_SIZE_MISMATCHES (revision C on)
    any(0x1C0, 0x07), // RETIRED_X87_OPS (revision C on)
    any(0x1CF, 0x00), // IBS_OPS_TAGGED (revision C on)
    any(0x1D3, 0x00), // LFENCE_INST_RETIRED (revision C on)
    any(0x1D4, 0x00), // SFENCE_INST_RETIRED (revision C on)
    any(0x1D5, 0x00), // MFENCE_INST_RETIRED (revision C on)
];

/// Fetches are sampled by the event that counts them.
const PRECISE: [PreciseRule; 3] = sampled_by_ibs(0x80);
