//! Zen 4 (family 19H, PPR 56713) and Zen 5 (family 1AH).

use super::amd::{any_of_six as any, merged, sampled_by_ibs, BASE};
use super::{EventRule, Generation, PreciseRule};

/// Family 19H, models 10H to 1FH and 60H to AFH.
pub const ZEN_4: Generation = Generation { name: "zen4", events: &EVENTS_4, precise: &PRECISE, ..BASE };

/// Family 1AH, models 00H to 2FH, 40H to 4FH and 60H to 7FH.
pub const ZEN_5: Generation = Generation { name: "zen5", events: &EVENTS_5, precise: &PRECISE, ..BASE };

/// What each of them counts: what both do, and what it does alone or with other unit masks.
const EVENTS_4: [EventRule; 75] = merged(&BOTH, &ALONE_4);
const EVENTS_5: [EventRule; 80] = merged(&BOTH, &ALONE_5);

/// The events of a core: of Zen 4 by the names of libpfm4, which takes them from the PPR; those of Zen 5 are in perf's list
/// (`pmu-events/arch/x86/amdzen5`, by AMD), with its names where Zen 4 differs. Not here: RETIRED_SSE_AVX_FLOPS (003H), of
/// which so many can occur in a cycle that it takes two counters (MergeEvent); events of L3 and the data fabric, which have
/// counters of their own.
const BOTH: [EventRule; 66] = [
    any(0x02, 0x07),  // RETIRED_X87_FP_OPS
    any(0x08, 0x3F),  // RETIRED_FP_OPS_BY_WIDTH
    any(0x0A, 0xFF),  // RETIRED_FP_OPS_BY_TYPE
    any(0x0B, 0xFF),  // RETIRED_INT_OPS
    any(0x0C, 0xFF),  // PACKED_FP_OPS_RETIRED
    any(0x0D, 0xFF),  // PACKED_INT_OPS_RETIRED
    any(0x0E, 0x0F),  // FP_DISPATCH_FAULTS
    any(0x24, 0x02),  // BAD_STATUS_2
    any(0x26, 0x00),  // RETIRED_CLFLUSH_INSTRUCTIONS
    any(0x27, 0x00),  // RETIRED_CPUID_INSTRUCTIONS
    any(0x29, 0x07),  // LS_DISPATCH
    any(0x2B, 0x00),  // SMI_RECEIVED
    any(0x2C, 0x00),  // INTERRUPT_TAKEN
    any(0x35, 0x00),  // STORE_TO_LOAD_FORWARD
    any(0x37, 0x01),  // STORE_COMMIT_CANCELS_2
    any(0x45, 0xFF),  // L1_DTLB_MISS
    any(0x47, 0x03),  // MISALIGNED_LOADS
    any(0x4B, 0x07),  // PREFETCH_INSTRUCTIONS_DISPATCHED
    any(0x52, 0x03),  // INEFFECTIVE_SOFTWARE_PREFETCH
    any(0x59, 0xDF),  // SOFTWARE_PREFETCH_DATA_CACHE_FILLS
    any(0x5A, 0xDF),  // HARDWARE_PREFETCH_DATA_CACHE_FILLS
    any(0x5F, 0x00),  // ALLOC_MAB_COUNT
    any(0x64, 0xFF),  // CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS
    any(0x70, 0xFF),  // L2_PREFETCH_HIT_L2
    any(0x71, 0xFF),  // L2_PREFETCH_HIT_L3
    any(0x72, 0xFF),  // L2_PREFETCH_MISS_L3
    any(0x76, 0x00),  // CYCLES_NOT_IN_HALT
    any(0x78, 0xFF),  // TLB_FLUSHES
    any(0x82, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_L2
    any(0x83, 0x00),  // INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM
    any(0x84, 0x00),  // L1_ITLB_MISS_L2_ITLB_HIT
    any(0x85, 0x0F),  // L1_ITLB_MISS_L2_ITLB_MISS
    any(0x8B, 0x00),  // L2_BTB_CORRECTION
    any(0x8E, 0x00),  // DYNAMIC_INDIRECT_PREDICTIONS
    any(0x91, 0x00),  // DECODER_OVERRIDE_BRANCH_PRED
    any(0x94, 0x07),  // L1_ITLB_FETCH_HIT
    any(0xA9, 0x00),  // OPS_QUEUE_EMPTY
    any(0xAA, 0x07),  // OPS_SOURCE_DISPATCHED_FROM_DECODER
    any(0xAB, 0x0C),  // OPS_TYPE_DISPATCHED_FROM_DECODER
    any(0xC0, 0x00),  // RETIRED_INSTRUCTIONS
    any(0xC1, 0x00),  // RETIRED_OPS
    any(0xC2, 0x00),  // RETIRED_BRANCH_INSTRUCTIONS
    any(0xC3, 0x00),  // RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xC4, 0x00),  // RETIRED_TAKEN_BRANCH_INSTRUCTIONS
    any(0xC5, 0x00),  // RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xC6, 0x00),  // RETIRED_FAR_CONTROL_TRANSFERS
    any(0xC8, 0x00),  // RETIRED_NEAR_RETURNS
    any(0xC9, 0x00),  // RETIRED_NEAR_RETURNS_MISPREDICTED
    any(0xCA, 0x00),  // RETIRED_INDIRECT_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0xCB, 0x07),  // RETIRED_MMX_FP_INSTRUCTIONS
    any(0xCC, 0x00),  // RETIRED_INDIRECT_BRANCH_INSTRUCTIONS
    any(0xD1, 0x00),  // RETIRED_CONDITIONAL_BRANCH_INSTRUCTIONS
    any(0xD3, 0x00),  // DIV_CYCLES_BUSY_COUNT
    any(0xD4, 0x00),  // DIV_OP_COUNT
    any(0xD6, 0xBB),  // CYCLES_NO_RETIRE
    any(0x120, 0x01), // P0_FREQ_CYCLES_NOT_IN_HALT
    any(0x18E, 0x1F), // IC_TAG_HIT_MISS
    any(0x1A0, 0x7F), // DISPATCH_STALLS_1
    any(0x1A2, 0x30), // DISPATCH_STALLS_2
    any(0x1C2, 0x00), // RETIRED_UCODE_OPS
    any(0x1C7, 0x00), // RETIRED_BRANCH_MISPREDICTED_DIRECTION_MISMATCH
    any(0x1C8, 0x00), // RETIRED_INDIRECT_BRANCH_INSTRUCTIONS_MISPREDICTED
    any(0x1C9, 0x00), // RETIRED_UNCONDITIONAL_BRANCH_INSTRUCTIONS
    any(0x1CF, 0x07), // TAGGED_IBS_OPS
    any(0x1D0, 0x00), // RETIRED_FUSED_INSTRUCTIONS
    any(0x28F, 0x07), // OP_CACHE_HIT_MISS
];

const ALONE_4: [EventRule; 9] = [
    any(0x05, 0x0F), // RETIRED_SERIALIZING_OPS
    any(0x25, 0x01), // RETIRED_LOCK_INSTRUCTIONS
    any(0x41, 0x7F), // MAB_ALLOCATION_BY_TYPE
    any(0x43, 0xDF), // DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM
    any(0x44, 0xDF), // ANY_DATA_CACHE_FILLS_FROM_SYSTEM
    any(0x60, 0xFF), // REQUESTS_TO_L2_GROUP1
    any(0x96, 0x00), // RESYNCS
    any(0xAE, 0xF7), // DISPATCH_RESOURCE_STALL_CYCLES_1
    any(0xAF, 0x2F), // DISPATCH_RESOURCE_STALL_CYCLES_2
];

const ALONE_5: [EventRule; 14] = [
    any(0x25, 0x1F),  // LS_LOCKS
    any(0x41, 0x0F),  // LS_MAB_ALLOC
    any(0x43, 0xFF),  // LS_DMND_FILLS_FROM_SYS
    any(0x44, 0xFF),  // LS_ANY_FILLS_FROM_SYS
    any(0x50, 0x01),  // WCB_CLOSE
    any(0x60, 0xF7),  // L2_REQUEST_G1
    any(0x61, 0x60),  // L2_REQUEST_G2
    any(0x63, 0x20),  // L2_WCB_REQ
    any(0x9F, 0x03),  // BP_REDIRECTS
    any(0xAE, 0x57),  // DE_DISPATCH_STALL_CYCLE_DYNAMIC_TOKENS_PART1
    any(0xAF, 0x27),  // DE_DISPATCH_STALL_CYCLE_DYNAMIC_TOKENS_PART2
    any(0x165, 0xDE), // L2_FILL_RSP_SRC
    any(0x188, 0x1E), // IC_FETCH_IBS_EVENTS
    any(0x1C1, 0x00), // EX_RET_UCODE_INSTR
];

/// Fetches are sampled by the event that counts them.
const PRECISE: [PreciseRule; 3] = sampled_by_ibs(0x100001F8E);
