//! AMD's instruction-based sampling (IBS): after so many fetches, cycles or ops hardware tags a fetch or an op, follows it
//! to its end, writes what became of it to registers and interrupts. There is no memory buffer: the interrupt's handler reads the
//! registers and writes an [`IbsRecord`], whose address is the tagged instruction's own, however late the interrupt comes.
//!
//! Sources: AMD64 Architecture Programmer's Manual (APM) Vol. 2, 13.3; Processor Programming Reference of family 19H
//! (56214, 56713), MSRC001_1030 and following; BKDG of family 10H (31116), the same. What the manuals leave open is taken from
//! Linux's driver (`arch/x86/events/amd/ibs.c`).
//!
//! IBS knows no privilege levels: a sample of one that its event does not count is dropped here and counted as withheld.
//! Its counter stands still from a sample until the handler has read it.

use super::abi::{IbsRecord, IBS_FETCH, IBS_OP, RECORD_FORMAT_IBS};
use super::allocate::{Counter, CounterSet};
use super::events::PERIOD_MIN;
use super::period::Grid;
use super::port::Port;
use super::program::Records;
use super::registers::register;

/// IBS_FETCH_CTL.
pub const IBS_FETCH_CTL: u32 = 0xC001_1030;
const IBS_FETCH_LINADDR: u32 = 0xC001_1031;
const IBS_FETCH_PHYSADDR: u32 = 0xC001_1032;
/// IBS_OP_CTL.
pub const IBS_OP_CTL: u32 = 0xC001_1033;
const IBS_OP_RIP: u32 = 0xC001_1034;
const IBS_OP_DATA: u32 = 0xC001_1035;
const IBS_OP_DATA2: u32 = 0xC001_1036;
const IBS_OP_DATA3: u32 = 0xC001_1037;
const IBS_DC_LINADDR: u32 = 0xC001_1038;
const IBS_DC_PHYSADDR: u32 = 0xC001_1039;
const IBS_BR_TARGET: u32 = 0xC001_103B;
const IC_IBS_EXTD_CTL: u32 = 0xC001_103C;

register! {
    /// IBS_FETCH_CTL (MSRC001_1030).
    FetchCtl {
        /// IbsFetchMaxCnt, in units of 16 fetches.
        15:0 => max_cnt, with_max_cnt;
        /// IbsFetchCnt, in the same units.
        31:16 => cnt, with_cnt;
        /// IbsFetchEn.
        48:48 => en, with_en;
        /// IbsFetchVal: a sample waits.
        49:49 => val, with_val;
        /// IbsPhyAddrValid.
        52:52 => phy_addr_valid, with_phy_addr_valid;
    }
}

register! {
    /// IBS_OP_CTL (MSRC001_1033).
    OpCtl {
        /// IbsOpMaxCnt bits 19:4.
        15:0 => max_cnt, with_max_cnt;
        /// IbsOpEn.
        17:17 => en, with_en;
        /// IbsOpVal: a sample waits.
        18:18 => val, with_val;
        /// IbsOpCntCtl: count dispatched ops instead of cycles.
        19:19 => cnt_ctl, with_cnt_ctl;
        /// IbsOpMaxCnt bits 26:20, where [`Ibs`] has OpCntExt.
        26:20 => max_cnt_ext, with_max_cnt_ext;
        /// IbsOpCurCnt: 20 bits before OpCntExt.
        58:32 => cur_cnt, with_cur_cnt;
    }
}

/// The bit of [`super::pmu::PreciseRule::pebs_enable`] by which an event counts ops instead of cycles.
pub const COUNT_OPS: u64 = OpCtl(0).with_cnt_ctl(1).0;

/// IBS of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ibs {
    capabilities: u32,
    /// Erratum 420 of family 10H: switched off with a count that is not 0, it may interrupt without end.
    erratum_420: bool,
    /// Erratum 1197: a fetch without an address is none (Linux: `fetch_ignore_if_zero_rip`).
    erratum_1197: bool,
}

/// CPUID.8000_001BH:EAX: the flags are valid; sampling of fetches; of ops.
const IBSFFV: u32 = 1;
const FETCH_SAM: u32 = 1 << 1;
const OP_SAM: u32 = 1 << 2;
/// IbsOpCurCnt can be read and written.
const RD_WR_OP_CNT: u32 = 1 << 3;
/// Ops can be counted.
const OP_CNT: u32 = 1 << 4;
/// IBS_BR_TARGET exists.
const BRN_TRGT: u32 = 1 << 5;
/// Counts of 27 bits.
const OP_CNT_EXT: u32 = 1 << 6;
/// IBS_OP_DATA says whether IBS_OP_RIP is valid.
const RIP_INVALID_CHK: u32 = 1 << 7;
/// IC_IBS_EXTD_CTL exists.
const FETCH_CTL_EXTD: u32 = 1 << 9;

/// Counts are written without their low four bits.
const UNIT: u64 = 16;
/// Least count of ops or cycles (Linux: `min_period` of `perf_ibs_op`).
const OP_LEAST: u64 = 0x90;
/// Least count of fetches.
const FETCH_LEAST: u64 = PERIOD_MIN.next_multiple_of(UNIT);

/// What hardware draws at random for IbsOpCurCnt when it samples a count of ops, and half of it.
const DRAWN: u64 = 0x7F;
const DRAWN_HALF: u64 = 64;

/// How the records look.
pub(super) const RECORDS: Records =
    Records { size: core::mem::size_of::<IbsRecord>() as u16, format: RECORD_FORMAT_IBS };
/// Words of a record.
pub(super) const WORDS: usize = core::mem::size_of::<IbsRecord>() / 8;
/// Words of a record before the interrupted thread's registers.
pub(super) const OWN_WORDS: usize = core::mem::offset_of!(IbsRecord, rflags) / 8;

/// Both samplers.
pub(super) const SAMPLERS: [Counter; 2] = [Counter::IBS_FETCH, Counter::IBS_OP];

/// What became of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    /// The record's own words, without the time.
    Taken([u64; OWN_WORDS]),
    /// It is of a privilege level that its event does not count.
    Withheld,
    /// Hardware could not say of which instruction it is.
    Unknown,
}

impl Ibs {
    /// From CPUID.8000_001BH:EAX, of this family and model.
    #[must_use]
    pub const fn new(capabilities: u32, family: u32, model: u32) -> Self {
        // The first processors do not say (Linux: `IBS_CAPS_DEFAULT`).
        let valid = capabilities & IBSFFV != 0;
        Self {
            capabilities: if valid { capabilities } else { IBSFFV | FETCH_SAM | OP_SAM },
            erratum_420: family == 0x10,
            erratum_1197: family == 0x19 && model < 0x10,
        }
    }

    const fn has(self, capability: u32) -> bool {
        self.capabilities & capability == capability
    }

    /// The samplers that it has for an event with these control bits.
    #[must_use]
    pub fn samplers(self, control: u64) -> CounterSet {
        let none = CounterSet::EMPTY;
        let op = self.has(OP_SAM) && (control & COUNT_OPS == 0 || self.has(OP_CNT));
        let fetch = if self.has(FETCH_SAM) { CounterSet::one(Counter::IBS_FETCH) } else { none };
        fetch.union(if op { CounterSet::one(Counter::IBS_OP) } else { none })
    }

    /// The periods of some of these samplers. Where a count of ops or cycles can begin anywhere, a period is any number: one that
    /// shares no divisor with a loop's length samples all of the loop.
    #[must_use]
    pub fn grid(self, samplers: CounterSet) -> Grid {
        let op = samplers.contains(Counter::IBS_OP);
        let bits = if op && self.has(OP_CNT_EXT) { 27 } else { 20 };
        let unit = if op && self.has(RD_WR_OP_CNT) { 1 } else { UNIT };
        Grid { unit, least: if op { OP_LEAST } else { FETCH_LEAST }, most: (1 << bits) - UNIT }
    }

    /// The control register for a sample after `left` more events, not yet enabled. `control` are the event's own bits.
    pub(super) fn control(self, sampler: Counter, control: u64, left: u64) -> u64 {
        let grid = self.grid(CounterSet::one(sampler));
        let count = left.next_multiple_of(UNIT).clamp(grid.least, grid.most);
        let passed = count.saturating_sub(left);
        if register_of(sampler) == IBS_FETCH_CTL {
            return FetchCtl(control).with_max_cnt(count / UNIT).with_cnt(passed / UNIT).0;
        }
        let passed = if self.has(RD_WR_OP_CNT) { passed } else { 0 };
        OpCtl(control).with_max_cnt(count / UNIT).with_max_cnt_ext(count >> 20).with_cur_cnt(passed).0
    }

    /// Events from a sample to the next. `value` is the control register's while the first one waits: where ops are counted, it has
    /// what hardware drew at random, without which some ops of a dispatch group are sampled more often than others (Linux
    /// 0f4cd769c410). Linux goes on from there, which makes intervals shorter than the period by half of what is drawn; here they are
    /// shorter or longer.
    pub(super) fn next(self, sampler: Counter, value: u64, period: u64) -> u64 {
        let control = OpCtl(value);
        if register_of(sampler) == IBS_FETCH_CTL || control.cnt_ctl() == 0 || !self.has(RD_WR_OP_CNT) {
            return period;
        }
        period + DRAWN_HALF - (control.cur_cnt() & DRAWN)
    }

    /// How many events are left until a sample by this value of the control register; 0 when one waits.
    pub(super) fn left(self, sampler: Counter, value: u64) -> u64 {
        if waits(sampler, value) {
            return 0;
        }
        if register_of(sampler) == IBS_FETCH_CTL {
            let control = FetchCtl(value);
            return control.max_cnt().saturating_sub(control.cnt()) * UNIT;
        }
        let control = OpCtl(value);
        let extended = if self.has(OP_CNT_EXT) { control.max_cnt_ext() << 20 } else { 0 };
        let passed = if self.has(RD_WR_OP_CNT) { control.cur_cnt() } else { 0 };
        (extended + control.max_cnt() * UNIT).saturating_sub(passed)
    }

    /// Starts a sampler with this value of its control register.
    pub(super) fn start<P: Port>(self, port: &mut P, sampler: Counter, value: u64) {
        port.wrmsr(register_of(sampler), value | enable(sampler));
    }

    /// Stops a sampler; the value from which it can go on.
    pub(super) fn stop<P: Port>(self, port: &mut P, sampler: Counter) -> u64 {
        let register = register_of(sampler);
        let value = port.rdmsr(register);
        let stopped = value & !enable(sampler);
        if self.erratum_420 {
            // The count first, then the rest (Revision Guide of family 10H, 41322).
            port.wrmsr(register, value & !0xFFFF);
            port.wrmsr(register, stopped & !0xFFFF);
        } else {
            port.wrmsr(register, stopped);
        }
        stopped
    }

    /// Reads the sample that waits, for an event that counts these privilege levels. `value` is what the control register held.
    pub(super) fn read<P: Port>(self, port: &mut P, sampler: Counter, value: u64, levels: Levels) -> Sample {
        if register_of(sampler) == IBS_FETCH_CTL {
            self.read_fetch(port, FetchCtl(value), levels)
        } else {
            self.read_op(port, value, levels)
        }
    }

    fn read_fetch<P: Port>(self, port: &mut P, control: FetchCtl, levels: Levels) -> Sample {
        let address = port.rdmsr(IBS_FETCH_LINADDR);
        if self.erratum_1197 && address == 0 {
            return Sample::Unknown;
        }
        if !levels.counts(address) {
            return Sample::Withheld;
        }
        let data = if self.has(FETCH_CTL_EXTD) { port.rdmsr(IC_IBS_EXTD_CTL) } else { 0 };
        let physical =
            if levels.kernel && control.phy_addr_valid() == 1 { port.rdmsr(IBS_FETCH_PHYSADDR) } else { 0 };
        Sample::Taken([IBS_FETCH, 0, control.0, address, data, 0, 0, 0, physical, 0])
    }

    fn read_op<P: Port>(self, port: &mut P, control: u64, levels: Levels) -> Sample {
        let data = OpData(port.rdmsr(IBS_OP_DATA));
        let address = port.rdmsr(IBS_OP_RIP);
        if self.has(RIP_INVALID_CHK) && data.rip_invalid() == 1 {
            return Sample::Unknown;
        }
        let data3 = OpData3(port.rdmsr(IBS_OP_DATA3));
        let valid = |valid: u64, port: &mut P, register| if valid == 1 { port.rdmsr(register) } else { 0 };
        let data2 = valid(data3.ld_op(), port, IBS_OP_DATA2);
        let linear = valid(data3.lin_addr_valid(), port, IBS_DC_LINADDR);
        let branch = u64::from(self.has(BRN_TRGT)) & data.brn_ret();
        let target = valid(branch, port, IBS_BR_TARGET);
        // A user's op may have branched to the kernel, or asked for its data: that is withheld as a whole, as Linux does.
        if !levels.counts(address) || !levels.kernel && (linear | target) >> 63 != 0 {
            return Sample::Withheld;
        }
        let physical = valid(u64::from(levels.kernel) & data3.phy_addr_valid(), port, IBS_DC_PHYSADDR);
        Sample::Taken([IBS_OP, 0, control, address, data.0, data2, data3.0, linear, physical, target])
    }
}

register! {
    /// IBS_OP_DATA (MSRC001_1035).
    OpData {
        /// IbsOpBrnRet: the op is a branch that retired.
        37:37 => brn_ret, with_brn_ret;
        /// IbsRipInvalid.
        38:38 => rip_invalid, with_rip_invalid;
    }
}

register! {
    /// IBS_OP_DATA3 (MSRC001_1037).
    OpData3 {
        /// IbsLdOp.
        0:0 => ld_op, with_ld_op;
        /// IbsDcLinAddrValid.
        17:17 => lin_addr_valid, with_lin_addr_valid;
        /// IbsDcPhyAddrValid.
        18:18 => phy_addr_valid, with_phy_addr_valid;
    }
}

/// The privilege levels that an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) user: bool,
    pub(super) kernel: bool,
}

impl Levels {
    /// Whether an instruction at this address is of one of them: the kernel has the upper half of the address space.
    const fn counts(self, address: u64) -> bool {
        if address >> 63 == 0 {
            self.user
        } else {
            self.kernel
        }
    }
}

/// A sampler's control register.
pub(super) fn register_of(sampler: Counter) -> u32 {
    if sampler == Counter::IBS_FETCH {
        IBS_FETCH_CTL
    } else {
        IBS_OP_CTL
    }
}

fn enable(sampler: Counter) -> u64 {
    if sampler == Counter::IBS_FETCH {
        FetchCtl(0).with_en(1).0
    } else {
        OpCtl(0).with_en(1).0
    }
}

/// Whether the sampler is enabled by this value of its control register.
pub(super) fn runs(sampler: Counter, value: u64) -> bool {
    value & enable(sampler) != 0
}

/// Whether a sample waits by this value of the control register.
pub(super) fn waits(sampler: Counter, value: u64) -> bool {
    let val = if sampler == Counter::IBS_FETCH { FetchCtl(0).with_val(1).0 } else { OpCtl(0).with_val(1).0 };
    value & val != 0
}
