//! Events of AMD's family 16H.
//!
//! Names and encodings as in libpfm4, which takes them from AMD's manuals; event select bits 11:8 are bits 35:32.

use crate::event::table::{Absent, Alias, C0_3, FETCH, NO, OP, Row, Table, absent, alias, row};
use crate::event::wording::caveat;

/// The table.
pub(super) const FAMILY_16H: Table = Table { rows: ROWS, aliases: ALIASES, absent: ABSENT };

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
    alias("l2i-miss", "INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM", "INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM").but("counts lines that came from beyond L2, for speculative fetches too"),
    alias("dtlb-load-miss", "DTLB_MISS.LOADS_L2TLB", "DTLB_MISS.LOADS_L2TLB").but("only misses of both levels, of speculative accesses too"),
    alias("dtlb-store-miss", "DTLB_MISS.STORES_L2TLB", "DTLB_MISS.STORES_L2TLB").but("only misses of both levels, of speculative accesses too"),
    alias("dtlb-miss", "DTLB_MISS.L2TLB", "DTLB_MISS.L2TLB").but("only misses of both levels, of speculative accesses too"),
    alias("itlb-miss", "ITLB_MISS.ALL", "ITLB_MISS.ALL").but("only fetches that missed both levels, speculative ones too"),
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
    absent("l2-load-hit", "L2 has counters of its own, which hpm does not use; IBS_OP samples loads with their source"),
    absent("l2-load-miss", "loads and stores are counted together: DATA_CACHE_REFILLS_FROM_NORTHBRIDGE.ALL; IBS_OP samples them with their source"),
    absent("l2-store-miss", "loads and stores are counted together: DATA_CACHE_REFILLS_FROM_NORTHBRIDGE.ALL"),
    absent("slots", "issue slots are counted by Intel's processors since Ice Lake"),
    absent("resource-stall", "stalls of dispatch are not counted"),
    absent("l3-load-hit", "the processor has no third cache: its last level is L2"),
    absent("l3-load-miss", "the processor has no third cache: its last level is L2"),
    absent("l3-reference", "the processor has no third cache: its last level is L2"),
    absent("l3-miss", "the processor has no third cache: its last level is L2"),
];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("IBS_OP", 0x0076, OP, C0_3, "Cycles, of which IBS samples an op each period, with its data address, latency and data source"),
    row("IBS_OP.UOPS", 0x00c1, OP, C0_3, "Ops, of which IBS samples one each period when it is dispatched; counted when they retire"),
    row("IBS_FETCH", 0x0080, FETCH, C0_3, "Instruction fetches, of which IBS samples one each period"),
    row("CPU_CLK_UNHALTED", 0x0076, OP, C0_3, "Core cycles while not halted"),
    row("RETIRED_INSTRUCTIONS", 0x00c0, NO, C0_3, "Instructions retired"),
    row("RETIRED_UOPS", 0x00c1, OP, C0_3, "Micro-operations retired"),
    row("RETIRED_BRANCH_INSTRUCTIONS", 0x00c2, NO, C0_3, "Branches retired, exceptions and interrupts included"),
    row("RETIRED_MISPREDICTED_BRANCH_INSTRUCTIONS", 0x00c3, NO, C0_3, "Branches retired that were mispredicted"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS", 0x00c4, NO, C0_3, "Taken branches retired"),
    row("RETIRED_TAKEN_BRANCH_INSTRUCTIONS_MISPREDICTED", 0x00c5, NO, C0_3, "Taken branches retired that were mispredicted"),
    row("RETIRED_FAR_CONTROL_TRANSFERS", 0x00c6, NO, C0_3, "Far calls, jumps and returns, exceptions and interrupts"),
    row("RETIRED_NEAR_RETURNS", 0x00c8, NO, C0_3, "Near returns retired"),
    row("RETIRED_NEAR_RETURNS_MISPREDICTED", 0x00c9, NO, C0_3, "Near returns retired that the return stack predicted wrongly"),
    row("RETIRED_INDIRECT_BRANCH_INFO.RETIRED", 0x10000019a, NO, C0_3, "Indirect branches retired"),
    row("RETIRED_INDIRECT_BRANCH_INFO.MISPREDICTED", 0x10000029a, NO, C0_3, "Indirect branches retired that were mispredicted"),
    row("RETIRED_MMX_AND_FP_INSTRUCTIONS.SSE", 0x02cb, NO, C0_3, "SSE and AVX instructions retired"),
    row("LS_DISPATCH.LOADS", 0x0129, NO, C0_3, "Loads dispatched"),
    row("LS_DISPATCH.STORES", 0x0229, NO, C0_3, "Stores dispatched"),
    row("LS_DISPATCH.LOAD_OP_STORES", 0x0429, NO, C0_3, "Operations dispatched that load from and store to one address"),
    row("DATA_CACHE_ACCESSES", 0x0040, NO, C0_3, "Loads and stores to the L1 data cache, speculative ones included"),
    row("DATA_CACHE_MISSES", 0x0041, NO, C0_3, "Loads and stores that missed the L1 data cache"),
    row("DATA_CACHE_REFILLS.ALL", 0x1f42, NO, C0_3, "Lines that came to the L1 data cache from L2"),
    row("DATA_CACHE_REFILLS_FROM_NORTHBRIDGE.ALL", 0x1f43, NO, C0_3, "Lines that came to the L1 data cache from beyond L2, by state"),
    row("L1_DTLB_MISS_AND_L2_DTLB_HIT", 0x0045, NO, C0_3, "Accesses that missed the first data TLB and hit the second"),
    row("DTLB_MISS.LOADS_L2TLB", 0x0846, NO, C0_3, "Loads that missed both data TLBs"),
    row("DTLB_MISS.STORES_L2TLB", 0x0446, NO, C0_3, "Stores that missed both data TLBs"),
    row("DTLB_MISS.L2TLB", 0x0c46, NO, C0_3, "Accesses that missed both data TLBs; hpm's own name for both units"),
    row("MISALIGNED_ACCESSES.ALL", 0x0347, NO, C0_3, "Misaligned accesses"),
    row("LOCKED_OPS.EXECUTED", 0x0124, NO, C0_3, "Locked instructions executed"),
    row("PREFETCH_INSTRUCTIONS_DISPATCHED.ALL", 0x074b, NO, C0_3, "Prefetch instructions dispatched"),
    row("INSTRUCTION_CACHE_FETCHES", 0x0080, FETCH, C0_3, "Instruction fetches"),
    row("INSTRUCTION_CACHE_MISSES", 0x0081, NO, C0_3, "Instruction fetches that missed the L1 instruction cache"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_L2", 0x0082, NO, C0_3, "Lines that came to the L1 instruction cache from L2"),
    row("INSTRUCTION_CACHE_REFILLS_FROM_SYSTEM", 0x0083, NO, C0_3, "Lines that came to the L1 instruction cache from beyond L2"),
    row("L1_ITLB_MISS_AND_L2_ITLB_HIT", 0x0084, NO, C0_3, "Fetches that missed the first instruction TLB and hit the second"),
    row("ITLB_MISS.ALL", 0x0385, NO, C0_3, "Fetches that missed both instruction TLBs"),
    row("INSTRUCTION_FETCH_STALL", 0x0087, NO, C0_3, "Cycles in which instruction fetch stalls"),
    row("INTERRUPTS_TAKEN", 0x00cf, NO, C0_3, "Interrupts taken"),
    row("TAGGED_IBS_OPS_RETIRED", 0x1000000d0, NO, C0_3, "Ops tagged by IBS that retired"),
];
