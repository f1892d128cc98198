//! Events of AMD's Zen 4 (family 19H).
//!
//! Names and encodings as in libpfm4, which takes them from AMD's manuals; event select bits 11:8 are bits 35:32.

use crate::event::table::{Absent, Alias, C0_5, FETCH, NO, OP, Row, Table, absent, alias, row};
use crate::event::wording::caveat;

/// The table.
pub(super) const ZEN_4: Table = Table { rows: ROWS, aliases: ALIASES, absent: ABSENT };

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
    alias("l1i-miss", "IC_TAG_HIT_MISS.IC_MISS", "IC_TAG_HIT_MISS.IC_MISS").but(caveat::FETCHES),
    alias("l2i-miss", "CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.IC_FILL_MISS", "CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.IC_FILL_MISS").but(caveat::FETCHES),
    alias("dtlb-miss", "L1_DTLB_MISS.ANY_L2_MISS", "L1_DTLB_MISS.ANY_L2_MISS").but("only misses of both levels, of speculative accesses too"),
    alias("itlb-miss", "L1_ITLB_MISS_L2_ITLB_MISS.ANY", "L1_ITLB_MISS_L2_ITLB_MISS.ANY").but("only fetches that missed both levels, speculative ones too"),
    alias("resource-stall", "DISPATCH_RESOURCE_STALL_CYCLES_1.ANY", "DISPATCH_RESOURCE_STALL_CYCLES_1.ANY").but("without waits for integer schedulers and the retire queue: DISPATCH_RESOURCE_STALL_CYCLES_2"),
    alias("ref-cycles", "P0_FREQ_CYCLES_NOT_IN_HALT.P0_FREQ_CYCLES", "P0_FREQ_CYCLES_NOT_IN_HALT.P0_FREQ_CYCLES"),
];

/// Generic names that mean nothing here, and why.
#[rustfmt::skip]
const ABSENT: &[Absent] = &[
    absent("mem-stores", "IBS samples stores among all ops: IBS_OP"),
    absent("l1d-load-hit", "what came to the L1 data cache is counted, by source (DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM), not the loads; IBS_OP samples them with their source"),
    absent("l1d-load-miss", "what came to the L1 data cache is counted, by source (DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM), not the loads; IBS_OP samples them with their source"),
    absent("l1d-store-miss", "what came to the L1 data cache is counted, by source (DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM), not the stores"),
    absent("l2-load-hit", "what came to the L1 data cache is counted, by source (DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM), not the loads; IBS_OP samples them with their source"),
    absent("l2-load-miss", "loads and stores are counted together: CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.LS_RD_BLK_C; IBS_OP samples them with their source"),
    absent("l2-store-miss", "loads and stores are counted together: CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.LS_RD_BLK_C"),
    absent("dtlb-load-miss", "loads and stores are counted together: dtlb-miss"),
    absent("dtlb-store-miss", "loads and stores are counted together: dtlb-miss"),
    absent("slots", "issue slots are counted by Intel's processors since Ice Lake"),
    absent("l3-load-hit", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
    absent("l3-load-miss", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
    absent("l3-reference", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
    absent("l3-miss", "L3 has counters of its own, which hpm does not use; IBS_OP samples loads that it served"),
];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("IBS_OP", 0x0076, OP, C0_5, "Cycles, of which IBS samples an op each period, with its data address, latency and data source"),
    row("IBS_OP.UOPS", 0x00c1, OP, C0_5, "Ops, of which IBS samples one each period when it is dispatched; counted when they retire"),
    row("IBS_FETCH", 0x100001f8e, FETCH, C0_5, "Instruction fetches, of which IBS samples one each period"),
    row("CYCLES_NOT_IN_HALT", 0x0076, OP, C0_5, "Core cycles while not halted"),
    row("RETIRED_INSTRUCTIONS", 0x00c0, NO, C0_5, "Instructions retired"),
    row("RETIRED_OPS", 0x00c1, OP, C0_5, "Macro-operations retired"),
    row("RETIRED_BRANCH_INSTRUCTIONS", 0x00c2, NO, C0_5, "Branches retired, exceptions and interrupts included"),
    row("RETIRED_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00c3, NO, C0_5, "Branches retired that were mispredicted"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS", 0x00c4, NO, C0_5, "Taken branches retired"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00c5, NO, C0_5, "Taken branches retired that were mispredicted"),
    row("RETIRED_FAR_CONTROL_TRANSFERS", 0x00c6, NO, C0_5, "Far calls, jumps and returns, exceptions and interrupts"),
    row("RETIRED_NEAR_RETURNS", 0x00c8, NO, C0_5, "Near returns retired"),
    row("RETIRED_NEAR_RETURNS_MISPREDICTED", 0x00c9, NO, C0_5, "Near returns retired that the return stack predicted wrongly"),
    row("RETIRED_INDIRECT_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00ca, NO, C0_5, "Indirect branches retired that were mispredicted"),
    row("RETIRED_INDIRECT_BRANCH_INSTRUCTIONS", 0x00cc, NO, C0_5, "Indirect branches retired"),
    row("RETIRED_CONDITIONAL_BRANCH_INSTRUCTIONS", 0x00d1, NO, C0_5, "Conditional branches retired"),
    row("RETIRED_MMX_FP_INSTRUCTIONS.SSE_INSTR", 0x04cb, NO, C0_5, "SSE and AVX instructions retired"),
    row("RETIRED_LOCK_INSTRUCTIONS.BUS_LOCK", 0x0125, NO, C0_5, "Bus locks"),
    row("LS_DISPATCH.LD_DISPATCH", 0x0129, NO, C0_5, "Loads dispatched"),
    row("LS_DISPATCH.STORE_DISPATCH", 0x0229, NO, C0_5, "Stores dispatched"),
    row("LS_DISPATCH.LD_ST_DISPATCH", 0x0429, NO, C0_5, "Operations dispatched that load from and store to one address"),
    row("STORE_TO_LOAD_FORWARD", 0x0035, NO, C0_5, "Loads that an older store forwarded to"),
    row("MAB_ALLOCATION_BY_TYPE.ALL", 0x7f41, NO, C0_5, "L1 data cache misses that were given a buffer"),
    row("DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM.LCL_L2", 0x0143, NO, C0_5, "Lines that came to the L1 data cache on demand from L2"),
    row("DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM.LOCAL_CCX", 0x0243, NO, C0_5, "Lines that came to the L1 data cache on demand from L3 or another L2 behind it"),
    row("DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM.DRAM_IO_NEAR", 0x0843, NO, C0_5, "Lines that came to the L1 data cache on demand from the node's memory"),
    row("ANY_DATA_CACHE_FILLS_FROM_SYSTEM.LCL_L2", 0x0144, NO, C0_5, "Lines that came to the L1 data cache from L2, prefetches included"),
    row("L1_DTLB_MISS.ANY", 0xff45, NO, C0_5, "Accesses that missed the first data TLB"),
    row("L1_DTLB_MISS.ANY_L2_MISS", 0xf045, NO, C0_5, "Accesses that missed both data TLBs"),
    row("L1_DTLB_MISS.ANY_L2_HIT", 0x0f45, NO, C0_5, "Accesses that missed the first data TLB and hit the second"),
    row("MISALIGNED_LOADS.MA64", 0x0147, NO, C0_5, "Loads that crossed a line"),
    row("PREFETCH_INSTRUCTIONS_DISPATCHED.ANY", 0x074b, NO, C0_5, "Prefetch instructions dispatched"),
    row("REQUESTS_TO_L2_GROUP1.RD_BLK_L", 0x8060, NO, C0_5, "Reads of the L1 data cache from L2, prefetches included"),
    row("REQUESTS_TO_L2_GROUP1.CACHEABLE_IC_READ", 0x1060, NO, C0_5, "Reads of the L1 instruction cache from L2"),
    row("CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.LS_RD_BLK_C", 0x0864, NO, C0_5, "Requests of the L1 data cache that missed L2"),
    row("CORE_TO_L2_CACHEABLE_REQUEST_ACCESS_STATUS.IC_FILL_MISS", 0x0164, NO, C0_5, "Requests of the L1 instruction cache that missed L2"),
    row("L2_PREFETCH_HIT_L2.ANY", 0xff70, NO, C0_5, "Prefetches that hit L2"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_L2", 0x0082, NO, C0_5, "Lines that came to the L1 instruction cache from L2"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM", 0x0083, NO, C0_5, "Lines that came to the L1 instruction cache from beyond L2"),
    row("L1_ITLB_MISS_L2_ITLB_HIT", 0x0084, NO, C0_5, "Fetches that missed the first instruction TLB and hit the second"),
    row("L1_ITLB_MISS_L2_ITLB_MISS.ANY", 0x0f85, NO, C0_5, "Fetches that missed both instruction TLBs"),
    row("IC_TAG_HIT_MISS.IC_MISS", 0x10000188e, NO, C0_5, "Instruction cache accesses that missed"),
    row("IC_TAG_HIT_MISS.ALL_IC_ACCESS", 0x100001f8e, FETCH, C0_5, "Instruction cache accesses"),
    row("OP_CACHE_HIT_MISS.OC_MISS", 0x20000048f, NO, C0_5, "Op cache accesses that missed"),
    row("OPS_QUEUE_EMPTY", 0x00a9, NO, C0_5, "Cycles in which the op queue is empty"),
    row("DISPATCH_RESOURCE_STALL_CYCLES_1.ANY", 0xf7ae, NO, C0_5, "Cycles in which dispatch waits for registers, queues or the floating-point unit"),
    row("DISPATCH_RESOURCE_STALL_CYCLES_2.ANY", 0x2faf, NO, C0_5, "Cycles in which dispatch waits for integer schedulers or the retire queue"),
    row("DIV_OP_COUNT", 0x00d4, NO, C0_5, "Divisions"),
    row("TAGGED_IBS_OPS.IBS_TAGGED_OPS_RET", 0x1000002cf, NO, C0_5, "Ops tagged by IBS that retired"),
    row("P0_FREQ_CYCLES_NOT_IN_HALT.P0_FREQ_CYCLES", 0x100000120, NO, C0_5, "Cycles at the frequency of P0 while not halted"),
    row("DISPATCH_STALLS_1.BE_STALLS", 0x100001ea0, NO, C0_5, "Dispatch slots that the back end left unused"),
    row("DISPATCH_STALLS_1.FE_NO_OPS", 0x1000001a0, NO, C0_5, "Dispatch slots that the front end left unused"),
    row("CYCLES_NO_RETIRE.EMPTY", 0x01d6, NO, C0_5, "Cycles in which nothing waits to retire"),
];
