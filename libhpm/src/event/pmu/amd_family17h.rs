//! Events of AMD's Zen 1 and Zen 2 (family 17H).
//!
//! Names and encodings as in libpfm4, which takes them from AMD's manuals, and for what it lacks of Zen 2 in perf's list; event
//! select bits 11:8 are bits 35:32. Names of all pages or all sources (ANY) are hpm's own.

use crate::event::table::{Absent, Alias, C0_5, FETCH, NO, OP, Row, Table, absent, alias, joined, row};
use crate::event::wording::caveat;

/// The table of Zen 1.
pub(super) const ZEN_1: Table = Table { rows: &ROWS_1, aliases: ALIASES, absent: ABSENT };

/// The table of Zen 2.
pub(super) const ZEN_2: Table = Table { rows: &ROWS_2, aliases: ALIASES, absent: ABSENT };

/// Generic names, each with the event that it counts and samples.
#[rustfmt::skip]
const ALIASES: &[Alias] = &[
    alias("cycles", "CYCLES_NOT_IN_HALT", "CYCLES_NOT_IN_HALT"),
    alias("instructions", "RETIRED_INSTRUCTIONS", "IBS_OP.UOPS").but("sampled by IBS as the micro-operations that instructions consist of"),
    alias("branch", "RETIRED_BRANCH_INSTRUCTIONS", "RETIRED_BRANCH_INSTRUCTIONS").but("exceptions and interrupts count, too"),
    alias("branches", "RETIRED_BRANCH_INSTRUCTIONS", "RETIRED_BRANCH_INSTRUCTIONS").but("exceptions and interrupts count, too"),
    alias("branch-miss", "RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED", "RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED"),
    alias("branch-misses", "RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED", "RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED"),
    alias("load", "LS_DISPATCH.LD_DISPATCH", "LS_DISPATCH.LD_DISPATCH").but("operations dispatched, speculative ones too; those that load and store are counted apart"),
    alias("store", "LS_DISPATCH.STORE_DISPATCH", "LS_DISPATCH.STORE_DISPATCH").but("operations dispatched, speculative ones too; those that load and store are counted apart"),
    alias("mem-loads", "IBS_OP", "IBS_OP").but("all ops are sampled; those that load have a source, and those that missed the L1 data cache a latency"),
    alias("l1i-miss", "32_BYTE_INSTRUCTION_CACHE_MISSES", "32_BYTE_INSTRUCTION_CACHE_MISSES").but(caveat::FETCHES),
    alias("l2i-miss", "CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.IC_FILL_MISS", "CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.IC_FILL_MISS").but(caveat::FETCHES),
    alias("dtlb-miss", "L1_DTLB_MISS.ANY_L2_MISS", "L1_DTLB_MISS.ANY_L2_MISS").but("only misses of both levels, of speculative accesses too"),
    alias("itlb-miss", "L1_ITLB_MISS_L2_ITLB_MISS.ANY", "L1_ITLB_MISS_L2_ITLB_MISS.ANY").but("only fetches that missed both levels, speculative ones too"),
    alias("resource-stall", "DISPATCH_RESOURCE_STALL_CYCLES_1.ANY", "DISPATCH_RESOURCE_STALL_CYCLES_1.ANY").but("without waits for integer schedulers and the retire queue: DISPATCH_RESOURCE_STALL_CYCLES_0"),
];

/// Generic names that mean nothing here, and why.
#[rustfmt::skip]
const ABSENT: &[Absent] = &[
    absent("mem-stores", "IBS samples stores among all ops: IBS_OP"),
    absent("l1d-load-hit", "loads are not counted by the level that served them; IBS_OP samples them with their source"),
    absent("l1d-load-miss", "loads are not counted by the level that served them; IBS_OP samples them with their source"),
    absent("l1d-store-miss", "stores are not counted by the level that served them; MAB_ALLOCATION_BY_PIPE.ST_PIPE counts the buffers that their misses were given"),
    absent("l2-load-hit", "loads are not counted by the level that served them; IBS_OP samples them with their source"),
    absent("l2-load-miss", "loads and stores are counted together: CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.LS_RD_BLK_C; IBS_OP samples them with their source"),
    absent("l2-store-miss", "loads and stores are counted together: CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.LS_RD_BLK_C"),
    absent("dtlb-load-miss", "loads and stores are counted together: dtlb-miss"),
    absent("dtlb-store-miss", "loads and stores are counted together: dtlb-miss"),
    absent("slots", "issue slots are counted by Intel's processors since Ice Lake"),
    absent("l3-load-hit", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
    absent("l3-load-miss", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
    absent("l3-reference", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
    absent("l3-miss", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
    absent("ref-cycles", "no counter counts at a constant rate"),
];

const ROWS_1: [Row; BOTH.len() + ALONE_1.len()] = joined(&BOTH, &ALONE_1);
const ROWS_2: [Row; BOTH.len() + ALONE_2.len()] = joined(&BOTH, &ALONE_2);

#[rustfmt::skip]
const BOTH: [Row; 49] = [
    row("IBS_OP", 0x0076, OP, C0_5, "Cycles, of which IBS samples an op each period, with its data address, latency and data source"),
    row("IBS_OP.UOPS", 0x00c1, OP, C0_5, "Ops, of which IBS samples one each period when it is dispatched; counted when they retire"),
    row("IBS_FETCH", 0x0080, FETCH, C0_5, "Instruction fetches, of which IBS samples one each period; counted as windows of 32 bytes"),
    row("CYCLES_NOT_IN_HALT", 0x0076, OP, C0_5, "Core cycles while not halted"),
    row("RETIRED_INSTRUCTIONS", 0x00c0, NO, C0_5, "Instructions retired"),
    row("RETIRED_UOPS", 0x00c1, OP, C0_5, "Macro-operations retired"),
    row("RETIRED_BRANCH_INSTRUCTIONS", 0x00c2, NO, C0_5, "Branches retired, exceptions and interrupts included"),
    row("RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00c3, NO, C0_5, "Branches retired that were mispredicted"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS", 0x00c4, NO, C0_5, "Taken branches retired"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00c5, NO, C0_5, "Taken branches retired that were mispredicted"),
    row("RETIRED_FAR_CONTROL_TRANSFERS", 0x00c6, NO, C0_5, "Far calls, jumps and returns, exceptions and interrupts"),
    row("RETIRED_NEAR_RETURNS", 0x00c8, NO, C0_5, "Near returns retired"),
    row("RETIRED_NEAR_RETURNS_MISPREDICTED", 0x00c9, NO, C0_5, "Near returns retired that the return stack predicted wrongly"),
    row("RETIRED_INDIRECT_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00ca, NO, C0_5, "Indirect branches retired that were mispredicted"),
    row("RETIRED_CONDITIONAL_BRANCH_INSTRUCTIONS", 0x00d1, NO, C0_5, "Conditional branches retired"),
    row("RETIRED_MMX_FP_INSTRUCTIONS.SSE_INSTR", 0x04cb, NO, C0_5, "SSE and AVX instructions retired"),
    row("LS_DISPATCH.LD_DISPATCH", 0x0129, NO, C0_5, "Loads dispatched"),
    row("LS_DISPATCH.STORE_DISPATCH", 0x0229, NO, C0_5, "Stores dispatched"),
    row("LS_DISPATCH.LD_ST_DISPATCH", 0x0429, NO, C0_5, "Operations dispatched that load from and store to one address"),
    row("STORE_TO_LOAD_FORWARD", 0x0035, NO, C0_5, "Loads that an older store forwarded to"),
    row("DATA_CACHE_ACCESSES", 0x0040, NO, C0_5, "Accesses to the L1 data cache, of eight bytes each, speculative ones included"),
    row("MAB_ALLOCATION_BY_PIPE.DATA_PIPE", 0x0141, NO, C0_5, "L1 data cache misses of loads that were given a buffer"),
    row("MAB_ALLOCATION_BY_PIPE.ST_PIPE", 0x0241, NO, C0_5, "L1 data cache misses of stores that were given a buffer"),
    row("MAB_ALLOCATION_BY_PIPE.HW_PF", 0x0841, NO, C0_5, "Prefetches of the L1 data cache that were given a buffer"),
    row("L1_DTLB_MISS.ANY", 0xff45, NO, C0_5, "Accesses that missed the first data TLB"),
    row("L1_DTLB_MISS.ANY_L2_MISS", 0xf045, NO, C0_5, "Accesses that missed both data TLBs"),
    row("L1_DTLB_MISS.ANY_L2_HIT", 0x0f45, NO, C0_5, "Accesses that missed the first data TLB and hit the second"),
    row("MISALIGNED_LOADS", 0x0047, NO, C0_5, "Misaligned loads"),
    row("REQUESTS_TO_L2_GROUP1.RD_BLK_L", 0x8060, NO, C0_5, "Reads of the L1 data cache from L2, prefetches included"),
    row("REQUESTS_TO_L2_GROUP1.RD_BLK_X", 0x4060, NO, C0_5, "Stores of the L1 data cache that read from L2"),
    row("REQUESTS_TO_L2_GROUP1.CACHEABLE_IC_READ", 0x1060, NO, C0_5, "Reads of the L1 instruction cache from L2"),
    row("CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.LS_RD_BLK_C", 0x0864, NO, C0_5, "Requests of the L1 data cache that missed L2"),
    row("CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.IC_FILL_MISS", 0x0164, NO, C0_5, "Requests of the L1 instruction cache that missed L2"),
    row("HARDWARE_PREFETCH_DATA_CACHE_FILLS.MABRESP_LCL_L2", 0x015a, NO, C0_5, "Lines that the hardware prefetcher brought to the L1 data cache from L2"),
    row("32_BYTE_INSTRUCTION_CACHE_FETCH", 0x0080, FETCH, C0_5, "Instruction cache fetches of 32 bytes"),
    row("32_BYTE_INSTRUCTION_CACHE_MISSES", 0x0081, NO, C0_5, "Instruction cache fetches of 32 bytes that missed"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_L2", 0x0082, NO, C0_5, "Lines that came to the L1 instruction cache from L2"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM", 0x0083, NO, C0_5, "Lines that came to the L1 instruction cache from beyond L2"),
    row("L1_ITLB_MISS_L2_ITLB_HIT", 0x0084, NO, C0_5, "Fetches that missed the first instruction TLB and hit the second"),
    row("L1_ITLB_MISS_L2_ITLB_MISS.ANY", 0x0785, NO, C0_5, "Fetches that missed both instruction TLBs"),
    row("INSTRUCTION_PIPE_STALL.IC_STALL_ANY", 0x0487, NO, C0_5, "Cycles in which the instruction fetch pipe stalls"),
    row("UOPS_DISPATCHED_FROM_DECODER.DECODER_DISPATCHED", 0x01aa, NO, C0_5, "Ops dispatched that came from the decoder"),
    row("UOPS_DISPATCHED_FROM_DECODER.OPCACHE_DISPATCHED", 0x02aa, NO, C0_5, "Ops dispatched that came from the op cache"),
    row("DISPATCH_RESOURCE_STALL_CYCLES_1.ANY", 0xffae, NO, C0_5, "Cycles in which dispatch waits for registers, queues or the floating-point unit"),
    row("DISPATCH_RESOURCE_STALL_CYCLES_1.LOAD_QUEUE_RSRC_STALL", 0x02ae, NO, C0_5, "Cycles in which dispatch waits for the load queue"),
    row("DISPATCH_RESOURCE_STALL_CYCLES_1.STORE_QUEUE_RSRC_STALL", 0x04ae, NO, C0_5, "Cycles in which dispatch waits for the store queue"),
    row("DISPATCH_RESOURCE_STALL_CYCLES_0.ANY", 0x7faf, NO, C0_5, "Cycles in which dispatch waits for integer schedulers or the retire queue"),
    row("DIV_OP_COUNT", 0x00d4, NO, C0_5, "Divisions"),
    row("TAGGED_IBS_OPS.IBS_TAGGED_OPS_RET", 0x1000002cf, NO, C0_5, "Ops tagged by IBS that retired"),
];

#[rustfmt::skip]
const ALONE_1: [Row; 3] = [
    row("LOCKS.BUS_LOCK", 0x0125, NO, C0_5, "Bus locks"),
    row("RETIRED_CONDITIONAL_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00d2, NO, C0_5, "Conditional branches retired that were mispredicted"),
    row("FP_SCHEDULER_EMPTY", 0x0001, NO, C0_5, "Cycles in which the floating-point scheduler is empty"),
];

#[rustfmt::skip]
const ALONE_2: [Row; 8] = [
    row("RETIRED_LOCK_INSTRUCTIONS.BUS_LOCK", 0x0125, NO, C0_5, "Bus locks"),
    row("PREFETCH_INSTRUCTIONS_DISPATCHED.ANY", 0x074b, NO, C0_5, "Prefetch instructions dispatched"),
    row("RETIRED_BRANCH_MISPREDICTED_DIRECTION_MISMATCH", 0x1000000c7, NO, C0_5, "Branches retired whose direction was mispredicted"),
    row("DATA_CACHE_REFILLS_FROM_SYSTEM.MABRESP_LCL_L2", 0x0143, NO, C0_5, "Lines that came to the L1 data cache on demand from L2"),
    row("DATA_CACHE_REFILLS_FROM_SYSTEM.LS_MABRESP_LCL_CACHE", 0x0243, NO, C0_5, "Lines that came to the L1 data cache on demand from L3 or another cache of the node"),
    row("DATA_CACHE_REFILLS_FROM_SYSTEM.LS_MABRESP_LCL_DRAM", 0x0843, NO, C0_5, "Lines that came to the L1 data cache on demand from the node's memory"),
    row("INTERRUPT_TAKEN", 0x002c, NO, C0_5, "Interrupts taken"),
    row("UOPS_QUEUE_EMPTY", 0x00a9, NO, C0_5, "Cycles in which the op queue is empty"),
];
