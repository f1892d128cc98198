//! Addresses of the modelled model-specific registers (SDM Vol. 4, chapter 2: architectural MSRs, and those
//! of family 6 model 94; AMD's: APM Vol. 2, appendix A).
#![allow(missing_docs, reason = "the names are the manuals'")]

pub const IA32_PMC0: u32 = 0xC1;
pub const IA32_PERFEVTSEL0: u32 = 0x186;
pub const MSR_OFFCORE_RSP_0: u32 = 0x1A6;
pub const MSR_OFFCORE_RSP_1: u32 = 0x1A7;
pub const MSR_LBR_SELECT: u32 = 0x1C8;
pub const MSR_LASTBRANCH_TOS: u32 = 0x1C9;
pub const IA32_DEBUGCTL: u32 = 0x1D9;
pub const IA32_FIXED_CTR0: u32 = 0x309;
pub const IA32_PERF_CAPABILITIES: u32 = 0x345;
pub const IA32_FIXED_CTR_CTRL: u32 = 0x38D;
pub const IA32_PERF_GLOBAL_STATUS: u32 = 0x38E;
pub const IA32_PERF_GLOBAL_CTRL: u32 = 0x38F;
pub const IA32_PERF_GLOBAL_STATUS_RESET: u32 = 0x390;
pub const IA32_PERF_GLOBAL_STATUS_SET: u32 = 0x391;
pub const IA32_PERF_GLOBAL_INUSE: u32 = 0x392;
pub const IA32_PEBS_ENABLE: u32 = 0x3F1;
/// Adaptive PEBS; faults on parts without.
pub const MSR_PEBS_DATA_CFG: u32 = 0x3F2;
pub const MSR_PEBS_LD_LAT_THRESHOLD: u32 = 0x3F6;
pub const MSR_PEBS_FRONTEND: u32 = 0x3F7;
pub const IA32_A_PMC0: u32 = 0x4C1;
pub const IA32_RTIT_CTL: u32 = 0x570;
pub const IA32_DS_AREA: u32 = 0x600;
pub const MSR_LASTBRANCH_0_FROM_IP: u32 = 0x680;
pub const MSR_LASTBRANCH_0_TO_IP: u32 = 0x6C0;
pub const MSR_LBR_INFO_0: u32 = 0xDC0;

/// General-purpose counters that the address ranges have room for.
pub const GENERAL_SLOTS: u32 = 10;
/// Fixed-function counters that the address range has room for.
pub const FIXED_SLOTS: u32 = 7;
/// Last-branch records that the address ranges have room for.
pub const LBR_SLOTS: u32 = 32;

/// Top-down metrics; not on the parts modelled so far.
pub const MSR_PERF_METRICS: u32 = 0x329;
/// Architectural PEBS (CPUID leaf 23H).
pub const IA32_PEBS_BASE: u32 = 0x3F4;
pub const IA32_PEBS_INDEX: u32 = 0x3F5;
/// Architectural last-branch records (CPUID leaf 1CH): 32 of each at most.
pub const IA32_LBR_0_INFO: u32 = 0x1200;
pub const IA32_LBR_CTL: u32 = 0x14CE;
pub const IA32_LBR_DEPTH: u32 = 0x14CF;
pub const IA32_LBR_0_FROM_IP: u32 = 0x1500;
pub const IA32_LBR_0_TO_IP: u32 = 0x1600;
/// The counters' second set of addresses (version 6): CTR, CFG_A, CFG_B and CFG_C of each counter.
pub const IA32_PMC_GP0_CTR: u32 = 0x1900;
pub const IA32_PMC_GP0_CFG_A: u32 = 0x1901;
pub const IA32_PMC_GP0_CFG_B: u32 = 0x1902;
pub const IA32_PMC_GP0_CFG_C: u32 = 0x1903;
pub const IA32_PMC_FX0_CTR: u32 = 0x1980;
pub const IA32_PMC_FX0_CFG_B: u32 = 0x1982;
pub const IA32_PMC_FX0_CFG_C: u32 = 0x1983;
/// The last address of that set.
pub const IA32_PMC_FX_LAST: u32 = 0x19FF;

/// AMD's core performance counters: the addresses of four that every part has, and of the extension.
pub const PERF_CTL0_LEGACY: u32 = 0xC001_0000;
pub const PERF_CTL3_LEGACY: u32 = 0xC001_0003;
pub const PERF_CTR0_LEGACY: u32 = 0xC001_0004;
pub const PERF_CTR3_LEGACY: u32 = 0xC001_0007;
pub const PERF_CTL0: u32 = 0xC001_0200;
pub const PERF_CTR0: u32 = 0xC001_0201;
/// The last that the address range has room for.
pub const PERF_CTR7: u32 = 0xC001_020F;
/// PerfMonV2.
pub const PERF_CNTR_GLOBAL_STATUS: u32 = 0xC000_0300;
pub const PERF_CNTR_GLOBAL_CTL: u32 = 0xC000_0301;
pub const PERF_CNTR_GLOBAL_STATUS_CLR: u32 = 0xC000_0302;
pub const PERF_CNTR_GLOBAL_STATUS_SET: u32 = 0xC000_0303;
/// Instruction-based sampling.
pub const IBS_FETCH_CTL: u32 = 0xC001_1030;
pub const IBS_FETCH_LINADDR: u32 = 0xC001_1031;
pub const IBS_FETCH_PHYSADDR: u32 = 0xC001_1032;
pub const IBS_OP_CTL: u32 = 0xC001_1033;
pub const IBS_OP_RIP: u32 = 0xC001_1034;
pub const IBS_OP_DATA: u32 = 0xC001_1035;
pub const IBS_OP_DATA2: u32 = 0xC001_1036;
pub const IBS_OP_DATA3: u32 = 0xC001_1037;
pub const IBS_DC_LINADDR: u32 = 0xC001_1038;
pub const IBS_DC_PHYSADDR: u32 = 0xC001_1039;
pub const IBS_CTL: u32 = 0xC001_103A;
pub const BP_IBSTGT_RIP: u32 = 0xC001_103B;
pub const IC_IBS_EXTD_CTL: u32 = 0xC001_103C;
pub const IBS_OP_DATA4: u32 = 0xC001_103D;
