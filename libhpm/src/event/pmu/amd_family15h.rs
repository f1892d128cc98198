//! Events of AMD's family 15H.
//!
//! Names and encodings as in libpfm4, which takes them from AMD's manuals; event select bits 11:8 are bits 35:32.

use crate::event::table::{Absent, Alias, C0_2, C0_5, C3, FETCH, NO, OP, Row, Table, absent, alias, row};
use crate::event::wording::caveat;

/// The table.
pub(super) const FAMILY_15H: Table = Table { rows: ROWS, aliases: ALIASES, absent: ABSENT };

/// Generic names, each with the event that it counts and samples.
#[rustfmt::skip]
const ALIASES: &[Alias] = &[
    alias("cycles", "CPU_CLK_UNHALTED", "CPU_CLK_UNHALTED"),
    alias("instructions", "RETIRED_INSTRUCTIONS", "IBS_OP.UOPS").but("sampled by IBS as the micro-operations that instructions consist of"),
    alias("branch", "RETIRED_BRANCH_INSTRUCTIONS", "RETIRED_BRANCH_INSTRUCTIONS").but("exceptions and interrupts count, too"),
    alias("branches", "RETIRED_BRANCH_INSTRUCTIONS", "RETIRED_BRANCH_INSTRUCTIONS").but("exceptions and interrupts count, too"),
    alias("branch-miss", "RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS", "RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS"),
    alias("branch-misses", "RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS", "RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS"),
    alias("load", "LS_DISPATCH.LOADS", "LS_DISPATCH.LOADS").but("operations dispatched, speculative ones too; those that load and store are counted apart"),
    alias("store", "LS_DISPATCH.STORES", "LS_DISPATCH.STORES").but("operations dispatched, speculative ones too; those that load and store are counted apart"),
    alias("l1i-miss", "INSTRUCTION_CACHE_MISSES", "INSTRUCTION_CACHE_MISSES").but(caveat::FETCHES),
    alias("l2i-miss", "L2_CACHE_MISS.INSTRUCTIONS", "L2_CACHE_MISS.INSTRUCTIONS").but(caveat::FETCHES),
    alias("dtlb-miss", "UNIFIED_TLB_MISS.DATA", "UNIFIED_TLB_MISS.DATA").but("only misses of both levels, of speculative accesses too"),
    alias("itlb-miss", "L1_ITLB_MISS_AND_L2_ITLB_MISS.ALL", "L1_ITLB_MISS_AND_L2_ITLB_MISS.ALL").but("only fetches that missed both levels, speculative ones too"),
    alias("resource-stall", "DISPATCH_STALLS", "DISPATCH_STALLS").but("waiting for a mispredicted branch to clear, or for serialisation, counts, too"),
    alias("mem-loads", "IBS_OP", "IBS_OP").but("all ops are sampled; those that load have a source, and those that missed the L1 data cache a latency"),
];

/// Generic names that mean nothing here, and why.
#[rustfmt::skip]
const ABSENT: &[Absent] = &[
    absent("ref-cycles", "no counter counts at a constant rate"),
    absent("mem-stores", "IBS samples stores among all ops: IBS_OP"),
    absent("l1d-load-hit", "what missed each level is counted, not what hit it; IBS_OP samples them with their source"),
    absent("l1d-load-miss", "loads and stores are counted together: DATA_CACHE_MISSES; IBS_OP samples them with their source"),
    absent("l1d-store-miss", "loads and stores are counted together: DATA_CACHE_MISSES"),
    absent("l2-load-hit", "what missed each level is counted, not what hit it; IBS_OP samples them with their source"),
    absent("l2-load-miss", "loads and stores are counted together: L2_CACHE_MISS.DATA; IBS_OP samples them with their source"),
    absent("l2-store-miss", "loads and stores are counted together: L2_CACHE_MISS.DATA"),
    absent("dtlb-load-miss", "loads and stores are counted together: dtlb-miss"),
    absent("dtlb-store-miss", "loads and stores are counted together: dtlb-miss"),
    absent("slots", "issue slots are counted by Intel's processors since Ice Lake"),
    absent("l3-load-hit", "L3 belongs to the northbridge, whose events hpm does not count"),
    absent("l3-load-miss", "L3 belongs to the northbridge, whose events hpm does not count"),
    absent("l3-reference", "L3 belongs to the northbridge, whose events hpm does not count"),
    absent("l3-miss", "L3 belongs to the northbridge, whose events hpm does not count"),
];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("IBS_OP", 0x0076, OP, C0_2, "Cycles, of which IBS samples an op each period, with its data address, latency and data source"),
    row("IBS_OP.UOPS", 0x00c1, OP, C0_5, "Ops, of which IBS samples one each period when it is dispatched; counted when they retire"),
    row("IBS_FETCH", 0x0080, FETCH, C0_2, "Instruction fetches, of which IBS samples one each period"),
    row("CPU_CLK_UNHALTED", 0x0076, OP, C0_2, "Core cycles while not halted"),
    row("RETIRED_INSTRUCTIONS", 0x00c0, NO, C0_5, "Instructions retired"),
    row("RETIRED_UOPS", 0x00c1, OP, C0_5, "Micro-operations retired"),
    row("RETIRED_BRANCH_INSTRUCTIONS", 0x00c2, NO, C0_5, "Branches retired, exceptions and interrupts included"),
    row("RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS", 0x00c3, NO, C0_5, "Branches retired that were mispredicted"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS", 0x00c4, NO, C0_5, "Taken branches retired"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00c5, NO, C0_5, "Taken branches retired that were mispredicted"),
    row("RETIRED_FAR_CONTROL_TRANSFERS", 0x00c6, NO, C0_5, "Far calls, jumps and returns, exceptions and interrupts"),
    row("RETIRED_NEAR_RETURNS", 0x00c8, NO, C0_5, "Near returns retired"),
    row("RETIRED_NEAR_RETURNS_MISPREDICTED", 0x00c9, NO, C0_5, "Near returns retired that the return stack predicted wrongly"),
    row("RETIRED_INDIRECT_BRANCHES_MISPREDICTED", 0x00ca, NO, C0_5, "Indirect branches retired that were mispredicted"),
    row("RETIRED_MMX_FP_INSTRUCTIONS.SSE", 0x04cb, NO, C0_5, "SSE and AVX instructions retired"),
    row("RETIRED_SSE_OPS.ALL", 0xff03, NO, C3, "Floating-point operations of SSE and AVX retired"),
    row("LS_DISPATCH.LOADS", 0x0129, NO, C0_5, "Loads dispatched"),
    row("LS_DISPATCH.STORES", 0x0229, NO, C0_5, "Stores dispatched"),
    row("LS_DISPATCH.LOAD_OP_STORES", 0x0429, NO, C0_5, "Operations dispatched that load from and store to one address"),
    row("LOCKED_OPS.EXECUTED", 0x0124, NO, C0_5, "Locked instructions executed"),
    row("DATA_CACHE_ACCESSES", 0x0040, NO, C0_5, "Loads and stores to the L1 data cache, speculative ones included"),
    row("DATA_CACHE_MISSES.DC_MISS_STREAMING_STORE", 0x0141, NO, C0_5, "Loads and stores that missed the L1 data cache, and the first streaming store to a line"),
    row("DATA_CACHE_REFILLS_FROM_L2_OR_NORTHBRIDGE.ALL", 0x0f42, NO, C0_5, "Lines that came to the L1 data cache"),
    row("DATA_CACHE_REFILLS_FROM_NORTHBRIDGE", 0x0043, NO, C0_2, "Lines that came to the L1 data cache from beyond L2"),
    row("UNIFIED_TLB_HIT.DATA", 0x0745, NO, C0_2, "Accesses that missed the first data TLB and hit the second; hpm's own name for all pages"),
    row("UNIFIED_TLB_MISS.DATA", 0x0746, NO, C0_2, "Accesses that missed both data TLBs; hpm's own name for all pages"),
    row("MISALIGNED_ACCESSES", 0x0047, NO, C0_5, "Misaligned accesses"),
    row("PREFETCH_INSTRUCTIONS_DISPATCHED.ALL", 0x074b, NO, C0_5, "Prefetch instructions dispatched"),
    row("REQUESTS_TO_L2.DATA", 0x027d, NO, C0_2, "Requests of the L1 data cache to L2"),
    row("REQUESTS_TO_L2.INSTRUCTIONS", 0x017d, NO, C0_2, "Requests of the L1 instruction cache to L2"),
    row("L2_CACHE_MISS.DATA", 0x027e, NO, C0_2, "Requests of the L1 data cache that missed L2"),
    row("L2_CACHE_MISS.INSTRUCTIONS", 0x017e, NO, C0_2, "Requests of the L1 instruction cache that missed L2"),
    row("L2_CACHE_FILL_WRITEBACK.L2_FILLS", 0x017f, NO, C0_2, "Lines filled into L2"),
    row("INSTRUCTION_CACHE_FETCHES", 0x0080, FETCH, C0_2, "Instruction fetches"),
    row("INSTRUCTION_CACHE_MISSES", 0x0081, NO, C0_2, "Instruction fetches that missed the L1 instruction cache"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_L2", 0x0082, NO, C0_2, "Lines that came to the L1 instruction cache from L2"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM", 0x0083, NO, C0_2, "Lines that came to the L1 instruction cache from beyond L2"),
    row("L1_ITLB_MISS_AND_L2_ITLB_HIT", 0x0084, NO, C0_2, "Fetches that missed the first instruction TLB and hit the second"),
    row("L1_ITLB_MISS_AND_L2_ITLB_MISS.ALL", 0x0785, NO, C0_2, "Fetches that missed both instruction TLBs"),
    row("INSTRUCTION_FETCH_STALL", 0x0087, NO, C0_2, "Cycles in which instruction fetch stalls"),
    row("INTERRUPTS_TAKEN", 0x00cf, NO, C0_5, "Interrupts taken"),
    row("DECODER_EMPTY", 0x00d0, NO, C0_2, "Cycles in which the decoder has nothing to dispatch"),
    row("DISPATCH_STALLS", 0x00d1, NO, C0_2, "Cycles in which dispatch stalls"),
    row("DISPATCH_STALL_FOR_RETIRE_QUEUE_FULL", 0x00d5, NO, C0_2, "Cycles in which dispatch waits for an entry of the retire queue"),
    row("DISPATCH_STALL_FOR_INT_SCHED_QUEUE_FULL", 0x00d6, NO, C0_2, "Cycles in which dispatch waits for an integer scheduler entry"),
    row("DISPATCH_STALL_FOR_FPU_FULL", 0x00d7, NO, C0_2, "Cycles in which dispatch waits for the floating-point unit"),
    row("DISPATCH_STALL_FOR_LDQ_FULL", 0x00d8, NO, C0_2, "Cycles in which dispatch waits for the load queue"),
    row("DISPATCH_STALL_FOR_STQ_FULL", 0x1000000d8, NO, C0_5, "Cycles in which dispatch waits for the store queue"),
    row("IBS_OPS_TAGGED.RETIRED", 0x1000002cf, NO, C0_5, "Ops tagged by IBS that retired"),
];
