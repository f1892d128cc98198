//! Family 17H: Zen 1 (PPR 54945) and Zen 2 (PPR 55803).

use super::amd::{any_of_six as any, merged, sampled_by_ibs, BASE};
use super::{EventRule, Generation, PreciseRule};

/// Models 00H to 2FH: Zen and Zen+.
pub const ZEN_1: Generation = Generation { name: "zen1", events: &EVENTS_1, precise: &PRECISE, ..BASE };

/// Models 30H to 3FH, 47H, 60H to 7FH, 84H to 87H and 90H to AFH.
pub const ZEN_2: Generation = Generation { name: "zen2", events: &EVENTS_2, precise: &PRECISE, ..BASE };

/// What each of them counts: what both do, and what it does alone.
const EVENTS_1: [EventRule; 63] = merged(&BOTH, &ALONE_1);
const EVENTS_2: [EventRule; 70] = merged(&BOTH, &ALONE_2);

/// The events of a core by the names of libpfm4, which takes them from the PPRs; where the two differ, that of Zen 2. libpfm4's list
/// of Zen 2 lacks some that perf's (`pmu-events/arch/x86/amdzen2`) has as on Zen 1; they are here, and the unit masks of the L2
/// prefetcher's events and of DISPATCH_RESOURCE_STALL_CYCLES_0 are as there. Not here: RETIRED_SSE_AVX_OPERATIONS (003H), of which so many can occur in a
/// cycle that it takes two counters (MergeEvent); events of L3 and the data fabric, which have counters of their own.
const BOTH: [EventRule; 57] = [
    any(0x05, 0x0F),  // RETIRED_SERIALIZING_OPS
    any(0x25, 0x0F),  // RETIRED_LOCK_INSTRUCTIONS
    any(0x29, 0x07),  // LS_DISPATCH
    any(0x35, 0x00),  // STORE_TO_LOAD_FORWARD
    any(0x40, 0x00),  // DATA_CACHE_ACCESSES
    any(0x41, 0x1F),  // MAB_ALLOCATION_BY_PIPE
    any(0x45, 0xFF),  // L1_DTLB_MISS
    any(0x46, 0x0F),  // TABLEWALKER_ALLOCATION
    any(0x47, 0x00),  // MISALIGNED_LOADS
    any(0x4B, 0x07),  // PREFETCH_INSTRUCTIONS_DISPATCHED
    any(0x52, 0x03),  // INEFFECTIVE_SOFTWARE_PREFETCH
    any(0x59, 0x5B),  // SOFTWARE_PREFETCH_DATA_CACHE_FILLS
    any(0x5A, 0x5B),  // HARDWARE_PREFETCH_DATA_CACHE_FILLS
    any(0x60, 0xFF),  // REQUESTS_TO_L2_GROUP1
    any(0x61, 0xFF),  // REQUESTS_TO_L2_GROUP2
    any(0x62, 0x01),  // L2_LATENCY
    any(0x63, 0x7F),  // LS_TO_L2_WBC_REQUESTS
    any(0x64, 0xFF),  // CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS
    any(0x6D, 0x01),  // CYCLES_WITH_FILL_PENDING_FROM_L2
    any(0x70, 0xFF),  // L2_PREFETCH_HIT_L2
    any(0x71, 0xFF),  // L2_PREFETCH_HIT_L3
    any(0x72, 0xFF),  // L2_PREFETCH_MISS_L3
    any(0x76, 0x00),  // CYCLES_NOT_IN_HALT
    any(0x80, 0x00),  // 32_BYTE_INSTRUCTION_CACHE_FETCH
    any(0x81, 0x00),  // 32_BYTE_INSTRUCTION_CACHE_MISSES
    any(0x82, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_L2
    any(0x83, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM
    any(0x84, 0x00),  // L1_ITLB_MISS_L2_ITLB_HIT
    any(0x85, 0x07),  // L1_ITLB_MISS_L2_ITLB_MISS
    any(0x86, 0x00),  // PIPELINE_RESTART_DUE_TO_INSTRUCTION_STREAM_PROBE
    any(0x87, 0x07),  // INSTRUCTION_PIPE_STALL
    any(0x8A, 0x00),  // L1_BTB_CORRECTION
    any(0x8B, 0x00),  // L2_BTB_CORRECTION
    any(0x8C, 0x03),  // INSTRUCTION_CACHE_LINES_INVALIDATED
    any(0x8E, 0x00),  // DYNAMIC_INDIRECT_PREDICTIONS
    any(0x91, 0x00),  // DECODER_OVERRIDE_BRANCH_PRED
    any(0x99, 0x00),  // ITLB_RELOADS
    any(0xAA, 0x03),  // UOPS_DISPATCHED_FROM_DECODER
    any(0xAE, 0xFF),  // DISPATCH_RESOURCE_STALL_CYCLES_1
    any(0xAF, 0x7F),  // DISPATCH_RESOURCE_STALL_CYCLES_0
    any(0xC0, 0x00),  // RETIRED_INSTRUCTIONS
    any(0xC1, 0x00),  // RETIRED_UOPS
    any(0xC2, 0x00),  // RETIRED_BRANCH_INSTRUCTIONS
    any(0xC3, 0x00),  // RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xC4, 0x00),  // RETIRED_TAKEN_BRANCH_INSTRUCTIONS
    any(0xC5, 0x00),  // RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xC6, 0x00),  // RETIRED_FAR_CONTROL_TRANSFERS
    any(0xC8, 0x00),  // RETIRED_NEAR_RETURNS
    any(0xC9, 0x00),  // RETIRED_NEAR_RETURNS_MISPREDICTED
    any(0xCA, 0x00),  // RETIRED_INDIRECT_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xCB, 0x07),  // RETIRED_MMX_FP_INSTRUCTIONS
    any(0xD1, 0x00),  // RETIRED_CONDITIONAL_BRANCH_INSTRUCTIONS
    any(0xD3, 0x00),  // DIV_CYCLES_BUSY_COUNT
    any(0xD4, 0x00),  // DIV_OP_COUNT
    any(0x1CF, 0x07), // TAGGED_IBS_OPS
    any(0x1D0, 0x00), // RETIRED_FUSED_INSTRUCTIONS
    any(0x28A, 0x03), // OC_MODE_SWITCH
];

const ALONE_1: [EventRule; 6] = [
    any(0x00, 0xFF), // FPU_PIPE_ASSIGNMENT
    any(0x01, 0x00), // FP_SCHEDULER_EMPTY
    any(0x02, 0x07), // RETIRED_X87_FLOATING_POINT_OPERATIONS
    any(0x04, 0x0F), // NUMBER_OF_MOVE_ELIMINATION_AND_SCALAR_OP_OPTIMIZATION
    any(0xC7, 0x00), // RETIRED_BRANCH_RESYNCS
    any(0xD2, 0x00), // RETIRED_CONDITIONAL_BRANCH_INSTRUCTIONS_MISPREDICTED
];

const ALONE_2: [EventRule; 13] = [
    any(0x0E, 0x0F),  // FP_DISPATCH_FAULTS
    any(0x24, 0x02),  // BAD_STATUS_2
    any(0x26, 0x00),  // RETIRED_CLFLUSH_INSTRUCTIONS
    any(0x27, 0x00),  // RETIRED_CPUID_INSTRUCTIONS
    any(0x2B, 0x00),  // SMI_RECEIVED
    any(0x2C, 0x00),  // INTERRUPT_TAKEN
    any(0x2D, 0x00),  // RDTSC
    any(0x37, 0x01),  // STORE_COMMIT_CANCELS_2
    any(0x43, 0x5B),  // DATA_CACHE_REFILLS_FROM_SYSTEM
    any(0x78, 0xFF),  // TLB_FLUSHES
    any(0x94, 0x07),  // ITLB_FETCH_HIT
    any(0xA9, 0x00),  // UOPS_QUEUE_EMPTY
    any(0x1C7, 0x00), // RETIRED_BRANCH_MISPREDICTED_DIRECTION_MISMATCH
];

/// Fetches are sampled by the event that counts them, of 32 bytes each.
const PRECISE: [PreciseRule; 3] = sampled_by_ibs(0x80);
