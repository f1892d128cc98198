//! Events of AMD's Zen 5 (family 1AH).
//!
//! Names and encodings as in perf's list, which is AMD's (`pmu-events/arch/x86/amdzen5`); event select bits 11:8 are bits 35:32.

use crate::event::table::{Absent, Alias, C0_5, FETCH, NO, OP, Row, Table, absent, alias, row};
use crate::event::wording::caveat;

/// The table.
pub(super) const ZEN_5: Table = Table { rows: ROWS, aliases: ALIASES, absent: ABSENT };

/// Generic names, each with the event that it counts and samples.
#[rustfmt::skip]
const ALIASES: &[Alias] = &[
    alias("cycles", "ls_not_halted_cyc", "ls_not_halted_cyc"),
    alias("instructions", "ex_ret_instr", "ibs_op.uops").but("sampled by IBS as the micro-operations that instructions consist of"),
    alias("branch", "ex_ret_brn", "ex_ret_brn").but("exceptions and interrupts count, too"),
    alias("branches", "ex_ret_brn", "ex_ret_brn").but("exceptions and interrupts count, too"),
    alias("branch-miss", "ex_ret_brn_misp", "ex_ret_brn_misp"),
    alias("branch-misses", "ex_ret_brn_misp", "ex_ret_brn_misp"),
    alias("load", "ls_dispatch.ld_dispatch", "ls_dispatch.ld_dispatch").but("operations dispatched, speculative ones too; those that load and store are counted apart"),
    alias("store", "ls_dispatch.store_dispatch", "ls_dispatch.store_dispatch").but("operations dispatched, speculative ones too; those that load and store are counted apart"),
    alias("mem-loads", "ibs_op", "ibs_op").but("all ops are sampled; those that load have a source, and those that missed the L1 data cache a latency"),
    alias("l1i-miss", "ic_tag_hit_miss.instruction_cache_miss", "ic_tag_hit_miss.instruction_cache_miss").but(caveat::FETCHES),
    alias("l2i-miss", "l2_cache_req_stat.ic_fill_miss", "l2_cache_req_stat.ic_fill_miss").but(caveat::FETCHES),
    alias("dtlb-miss", "ls_l1_d_tlb_miss.all_l2_miss", "ls_l1_d_tlb_miss.all_l2_miss").but("only misses of both levels, of speculative accesses too"),
    alias("itlb-miss", "bp_l1_tlb_miss_l2_tlb_miss.all", "bp_l1_tlb_miss_l2_tlb_miss.all").but("only fetches that missed both levels, speculative ones too"),
    alias("resource-stall", "de_dispatch_stall_cycle_dynamic_tokens_part1.all", "de_dispatch_stall_cycle_dynamic_tokens_part1.all").but("without waits for integer schedulers and the retire queue: de_dispatch_stall_cycle_dynamic_tokens_part2"),
    alias("ref-cycles", "ls_not_halted_p0_cyc.p0_freq_cyc", "ls_not_halted_p0_cyc.p0_freq_cyc"),
];

/// Generic names that mean nothing here, and why.
#[rustfmt::skip]
const ABSENT: &[Absent] = &[
    absent("mem-stores", "IBS samples stores among all ops: ibs_op"),
    absent("l1d-load-hit", "what came to the L1 data cache is counted, by source (ls_dmnd_fills_from_sys), not the loads; ibs_op samples them with their source"),
    absent("l1d-load-miss", "what came to the L1 data cache is counted, by source (ls_dmnd_fills_from_sys), not the loads; ibs_op samples them with their source"),
    absent("l1d-store-miss", "what came to the L1 data cache is counted, by source (ls_dmnd_fills_from_sys), not the stores"),
    absent("l2-load-hit", "what came to the L1 data cache is counted, by source (ls_dmnd_fills_from_sys), not the loads; ibs_op samples them with their source"),
    absent("l2-load-miss", "loads and stores are counted together: l2_cache_req_stat.ls_rd_blk_c; ibs_op samples them with their source"),
    absent("l2-store-miss", "loads and stores are counted together: l2_cache_req_stat.ls_rd_blk_c"),
    absent("dtlb-load-miss", "loads and stores are counted together: dtlb-miss"),
    absent("dtlb-store-miss", "loads and stores are counted together: dtlb-miss"),
    absent("slots", "issue slots are counted by Intel's processors since Ice Lake"),
    absent("l3-load-hit", "L3 has counters of its own, which hpm does not use; ibs_op samples loads that it served"),
    absent("l3-load-miss", "L3 has counters of its own, which hpm does not use; ibs_op samples loads that it served"),
    absent("l3-reference", "L3 has counters of its own, which hpm does not use; ibs_op samples loads that it served"),
    absent("l3-miss", "L3 has counters of its own, which hpm does not use; ibs_op samples loads that it served"),
];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("ibs_op", 0x0076, OP, C0_5, "Cycles, of which IBS samples an op each period, with its data address, latency and data source"),
    row("ibs_op.uops", 0x00c1, OP, C0_5, "Ops, of which IBS samples one each period when it is dispatched; counted when they retire"),
    row("ibs_fetch", 0x100001f8e, FETCH, C0_5, "Instruction fetches, of which IBS samples one each period"),
    row("ls_not_halted_cyc", 0x0076, OP, C0_5, "Core cycles while not halted"),
    row("ls_not_halted_p0_cyc.p0_freq_cyc", 0x100000120, NO, C0_5, "Cycles at the frequency of P0 while not halted"),
    row("ex_ret_instr", 0x00c0, NO, C0_5, "Instructions retired"),
    row("ex_ret_ops", 0x00c1, OP, C0_5, "Macro-operations retired"),
    row("ex_ret_brn", 0x00c2, NO, C0_5, "Branches retired, exceptions and interrupts included"),
    row("ex_ret_brn_misp", 0x00c3, NO, C0_5, "Branches retired that were mispredicted"),
    row("ex_ret_brn_tkn", 0x00c4, NO, C0_5, "Taken branches retired"),
    row("ex_ret_brn_tkn_misp", 0x00c5, NO, C0_5, "Taken branches retired that were mispredicted"),
    row("ex_ret_brn_far", 0x00c6, NO, C0_5, "Far calls, jumps and returns, exceptions and interrupts"),
    row("ex_ret_near_ret", 0x00c8, NO, C0_5, "Near returns retired"),
    row("ex_ret_near_ret_mispred", 0x00c9, NO, C0_5, "Near returns retired that the return stack predicted wrongly"),
    row("ex_ret_brn_ind_misp", 0x00ca, NO, C0_5, "Indirect branches retired that were mispredicted"),
    row("ex_ret_ind_brch_instr", 0x00cc, NO, C0_5, "Indirect branches retired"),
    row("ex_ret_cond", 0x00d1, NO, C0_5, "Conditional branches retired"),
    row("ex_ret_msprd_brnch_instr_dir_msmtch", 0x1000000c7, NO, C0_5, "Branches retired whose direction was mispredicted"),
    row("ex_ret_uncond_brnch_instr", 0x1000000c9, NO, C0_5, "Unconditional branches retired"),
    row("ex_ret_mmx_fp_instr.sse", 0x04cb, NO, C0_5, "SSE and AVX instructions retired"),
    row("ex_no_retire.load_not_complete", 0xa2d6, NO, C0_5, "Cycles in which nothing retires because the oldest op waits for its load"),
    row("ex_no_retire.not_complete", 0x02d6, NO, C0_5, "Cycles in which nothing retires because the oldest op is not executed"),
    row("ls_locks.bus_lock", 0x0125, NO, C0_5, "Bus locks"),
    row("ls_dispatch.ld_dispatch", 0x0129, NO, C0_5, "Loads dispatched"),
    row("ls_dispatch.store_dispatch", 0x0229, NO, C0_5, "Stores dispatched"),
    row("ls_dispatch.ld_st_dispatch", 0x0429, NO, C0_5, "Operations dispatched that load from and store to one address"),
    row("ls_int_taken", 0x002c, NO, C0_5, "Interrupts taken"),
    row("ls_stlf", 0x0035, NO, C0_5, "Loads that an older store forwarded to"),
    row("ls_mab_alloc.all_allocations", 0x0f41, NO, C0_5, "L1 data cache misses that were given a buffer"),
    row("ls_dmnd_fills_from_sys.local_l2", 0x0143, NO, C0_5, "Lines that came to the L1 data cache on demand from L2"),
    row("ls_dmnd_fills_from_sys.local_ccx", 0x0243, NO, C0_5, "Lines that came to the L1 data cache on demand from L3 or another L2 behind it"),
    row("ls_dmnd_fills_from_sys.dram_io_near", 0x0843, NO, C0_5, "Lines that came to the L1 data cache on demand from the node's memory"),
    row("ls_dmnd_fills_from_sys.all", 0xff43, NO, C0_5, "Lines that came to the L1 data cache on demand"),
    row("ls_any_fills_from_sys.local_l2", 0x0144, NO, C0_5, "Lines that came to the L1 data cache from L2, prefetches included"),
    row("ls_any_fills_from_sys.dram_io_all", 0x4844, NO, C0_5, "Lines that came to the L1 data cache from memory of any node, prefetches included"),
    row("ls_l1_d_tlb_miss.all", 0xff45, NO, C0_5, "Accesses that missed the first data TLB"),
    row("ls_l1_d_tlb_miss.all_l2_miss", 0xf045, NO, C0_5, "Accesses that missed both data TLBs"),
    row("ls_misal_loads.ma64", 0x0147, NO, C0_5, "Loads that crossed a line"),
    row("ls_misal_loads.ma4k", 0x0247, NO, C0_5, "Loads that crossed a page"),
    row("ls_pref_instr_disp.all", 0x074b, NO, C0_5, "Prefetch instructions dispatched"),
    row("l2_request_g1.rd_blk_l", 0x8060, NO, C0_5, "Reads of the L1 data cache from L2, prefetches included"),
    row("l2_request_g1.cacheable_ic_read", 0x1060, NO, C0_5, "Reads of the L1 instruction cache from L2"),
    row("l2_cache_req_stat.ls_rd_blk_c", 0x0864, NO, C0_5, "Requests of the L1 data cache that missed L2"),
    row("l2_cache_req_stat.ic_fill_miss", 0x0164, NO, C0_5, "Requests of the L1 instruction cache that missed L2"),
    row("l2_fill_rsp_src.dram_io_near", 0x100000865, NO, C0_5, "Lines that came to L2 from the node's memory"),
    row("l2_pf_hit_l2.l1_dc_l2_hwpf", 0xff70, NO, C0_5, "Prefetches that hit L2"),
    row("ic_cache_fill_l2", 0x0082, NO, C0_5, "Lines that came to the L1 instruction cache from L2"),
    row("ic_cache_fill_sys", 0x0083, NO, C0_5, "Lines that came to the L1 instruction cache from beyond L2"),
    row("bp_l1_tlb_miss_l2_tlb_hit", 0x0084, NO, C0_5, "Fetches that missed the first instruction TLB and hit the second"),
    row("bp_l1_tlb_miss_l2_tlb_miss.all", 0x0f85, NO, C0_5, "Fetches that missed both instruction TLBs"),
    row("ic_tag_hit_miss.instruction_cache_miss", 0x10000188e, NO, C0_5, "Instruction cache accesses that missed"),
    row("ic_tag_hit_miss.all_instruction_cache_accesses", 0x100001f8e, FETCH, C0_5, "Instruction cache accesses"),
    row("op_cache_hit_miss.op_cache_miss", 0x20000048f, NO, C0_5, "Op cache accesses that missed"),
    row("de_op_queue_empty", 0x00a9, NO, C0_5, "Cycles in which the op queue is empty"),
    row("de_src_op_disp.x86_decoder", 0x01aa, NO, C0_5, "Ops dispatched that came from the decoder"),
    row("de_src_op_disp.op_cache", 0x02aa, NO, C0_5, "Ops dispatched that came from the op cache"),
    row("de_dispatch_stall_cycle_dynamic_tokens_part1.all", 0x57ae, NO, C0_5, "Cycles in which dispatch waits for registers, queues or the floating-point unit; hpm's own name for all units"),
    row("de_dispatch_stall_cycle_dynamic_tokens_part2.retq", 0x20af, NO, C0_5, "Cycles in which dispatch waits for the retire queue"),
    row("de_no_dispatch_per_slot.no_ops_from_frontend", 0x1000001a0, NO, C0_5, "Dispatch slots left empty because the front end had no ops"),
    row("de_no_dispatch_per_slot.backend_stalls", 0x100001ea0, NO, C0_5, "Dispatch slots left empty because of stalls of the back end"),
    row("ex_div_count", 0x00d4, NO, C0_5, "Divisions"),
    row("ex_tagged_ibs_ops.ibs_tagged_ops_ret", 0x1000002cf, NO, C0_5, "Ops tagged by IBS that retired"),
];
