//! Sampling of ops (APM 13.3.3).

use super::{Sample, all, saturated};
use crate::bus::DataAccess;
use crate::event::Event as E;
use crate::micro::DataSource;
use crate::profile::amd::ibs as feature;
use serde::{Deserialize, Serialize};

/// IBS_OP_CTL.
mod control {
    /// IbsOpMaxCnt[19:4].
    pub(super) const MAX_CNT: u64 = 0xFFFF;
    pub(super) const L3_MISS_ONLY: u64 = 1 << 16;
    pub(super) const EN: u64 = 1 << 17;
    pub(super) const VAL: u64 = 1 << 18;
    /// Counts dispatched ops instead of cycles.
    pub(super) const CNT_CTL: u64 = 1 << 19;
    /// IbsOpMaxCnt[26:20], in place.
    pub(super) const MAX_CNT_EXT: u64 = 0x7F << 20;
    /// Where IbsOpCurCnt begins, and its bits: without the extension of the count, 20.
    pub(super) const CUR_CNT_SHIFT: u32 = 32;
    pub(super) const CUR_CNT: u64 = 0x7FF_FFFF;
    pub(super) const CUR_CNT_SHORT: u64 = 0xF_FFFF;
}

/// IBS_OP_DATA.
mod data {
    pub(super) const TAG_TO_RET_SHIFT: u32 = 16;
    /// Before Zen; reserved since.
    pub(super) const MISP_RETURN: u64 = 1 << 33;
    pub(super) const RETURN: u64 = 1 << 34;
    pub(super) const BRN_TAKEN: u64 = 1 << 35;
    pub(super) const BRN_MISP: u64 = 1 << 36;
    pub(super) const BRN_RET: u64 = 1 << 37;
}

/// IBS_OP_DATA2: where the data of a load that missed L2 came from.
mod data2 {
    /// L3: on family 10h, and by Zen 4's extended encoding.
    pub(super) const L3: u64 = 1;
    /// A cache of the local node, L3 among them: on Zen before that.
    pub(super) const LOCAL_CACHE: u64 = 2;
    /// Set with either: the line was not modified in another core's cache, which never happens here.
    pub(super) const CACHE_HIT_ST: u64 = 1 << 5;
    pub(super) const DRAM: u64 = 3;
}

/// IBS_OP_DATA3.
mod data3 {
    pub(super) const LD_OP: u64 = 1;
    pub(super) const ST_OP: u64 = 1 << 1;
    pub(super) const DC_L1_TLB_MISS: u64 = 1 << 2;
    pub(super) const DC_L2_TLB_MISS: u64 = 1 << 3;
    pub(super) const DC_MISS: u64 = 1 << 7;
    pub(super) const DC_MIS_ACC: u64 = 1 << 8;
    pub(super) const DC_LOCKED_OP: u64 = 1 << 15;
    pub(super) const DC_LIN_ADDR_VALID: u64 = 1 << 17;
    pub(super) const DC_PHY_ADDR_VALID: u64 = 1 << 18;
    /// On Zen.
    pub(super) const L2_MISS: u64 = 1 << 20;
    pub(super) const DC_MISS_LAT_SHIFT: u32 = 32;
    /// On Zen.
    pub(super) const TLB_REFILL_LAT_SHIFT: u32 = 48;
}

/// The sampler's registers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Op {
    /// IBS_OP_CTL without IbsOpCurCnt.
    control: u64,
    /// IbsOpCurCnt.
    count: u64,
    pub(super) rip: u64,
    pub(super) data: u64,
    pub(super) data2: u64,
    pub(super) data3: u64,
    pub(super) linear: u64,
    pub(super) physical: u64,
    pub(super) target: u64,
}

impl Op {
    /// IbsOpMaxCnt: its low four bits are 0. A maximum of 0 never comes.
    fn maximum(&self) -> u64 {
        (self.control & control::MAX_CNT) << 4 | self.control & control::MAX_CNT_EXT
    }

    pub(super) fn is_running(&self) -> bool {
        self.control & (control::EN | control::VAL) == control::EN && self.maximum() != 0
    }

    fn counts_ops(&self) -> bool {
        self.control & control::CNT_CTL != 0
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_running() && self.count >= self.maximum()
    }

    pub(super) fn headroom(&self) -> u64 {
        match self.is_running() && self.counts_ops() {
            true => self.maximum().saturating_sub(self.count),
            false => u64::MAX,
        }
    }

    pub(super) fn retire(&mut self, ops: u64) {
        if self.is_running() && self.counts_ops() {
            self.count += ops;
        }
    }

    pub(super) fn pass(&mut self, cycles: u32) {
        if self.is_running() && !self.counts_ops() {
            self.count += u64::from(cycles);
        }
    }

    pub(super) fn control(&self, features: u32) -> u64 {
        let extended = features & feature::OP_CNT_EXT != 0;
        let bits = if extended { control::CUR_CNT } else { control::CUR_CNT_SHORT };
        self.control | (self.count & bits) << control::CUR_CNT_SHIFT
    }

    /// Bits that the part does not have are ignored. IbsOpCurCnt is written, too, where it can be.
    pub(super) fn set_control(&mut self, value: u64, features: u32) {
        let has = |feature: u32, bits: u64| if features & feature != 0 { bits } else { 0 };
        let defined = control::MAX_CNT
            | control::EN
            | control::VAL
            | has(feature::OP_CNT, control::CNT_CTL)
            | has(feature::OP_CNT_EXT, control::MAX_CNT_EXT)
            | has(feature::ZEN4_EXTENSIONS, control::L3_MISS_ONLY);
        self.control = value & defined;
        let count = has(feature::OP_CNT_EXT, control::CUR_CNT) | control::CUR_CNT_SHORT;
        self.count = value >> control::CUR_CNT_SHIFT & has(feature::RD_WR_OP_CNT, count);
    }

    /// The instruction is over: if it is tagged, its sample becomes valid. Returns whether it did.
    pub(super) fn settle(&mut self, sample: &mut Sample<'_>) -> bool {
        if !self.is_due() {
            return false;
        }
        // "IBS hardware preloads the least significant 7 bits of current count (IbsOpCurCnt) with random values" when it
        // counts ops, against bias (Linux commit 0f4cd769c410, by AMD).
        self.count = if self.counts_ops() { sample.random.bits(7) } else { 0 };
        let missed_l3 = sample
            .retired
            .load
            .and_then(|load| load.outcome)
            .is_some_and(|outcome| outcome.source == DataSource::Memory);
        // What is filtered out is dropped, and counting goes on to the next.
        if self.control & control::L3_MISS_ONLY != 0 && !missed_l3 {
            return false;
        }
        self.control |= control::VAL;
        self.rip = sample.retired.pc;
        self.record_execution(sample);
        self.record_access(sample);
        true
    }

    /// IBS_OP_DATA and the branch's target. Instructions retire as soon as they complete.
    fn record_execution(&mut self, sample: &Sample<'_>) {
        let zen = sample.has(feature::FETCH_CTL_EXTD);
        let (is_return, mispredicted) =
            (sample.happened(&[E::BranchReturn]), sample.happened(&[E::BranchMispredicted]));
        let taken = sample.happened(&[E::BranchTaken, E::BranchFar]);
        let flags = [
            (!zen && is_return && mispredicted, data::MISP_RETURN),
            (is_return, data::RETURN),
            (taken, data::BRN_TAKEN),
            (mispredicted, data::BRN_MISP),
            (taken || sample.happened(&[E::BranchNotTaken]), data::BRN_RET),
        ];
        self.data = all(&flags) | saturated(sample.instruction.cycles) << data::TAG_TO_RET_SHIFT;
        self.target = if taken { sample.retired.next_pc } else { 0 };
    }

    /// IBS_OP_DATA2, IBS_OP_DATA3 and the addresses: of the load, if it loads and stores.
    fn record_access(&mut self, sample: &mut Sample<'_>) {
        let &crate::bus::Retired { load, store, locked, .. } = sample.retired;
        (self.data2, self.data3, self.linear, self.physical) = (0, 0, 0, 0);
        let Some(access) = load.or(store) else { return };
        self.linear = access.linear;
        let physical = sample.bus.translate(access.linear);
        self.physical = physical.unwrap_or(0);
        let flags = [
            (load.is_some(), data3::LD_OP),
            (store.is_some(), data3::ST_OP),
            (sample.happened(&[E::LoadSplit, E::StoreSplit]), data3::DC_MIS_ACC),
            (locked, data3::DC_LOCKED_OP),
            (true, data3::DC_LIN_ADDR_VALID),
            (physical.is_some(), data3::DC_PHY_ADDR_VALID),
        ];
        self.data3 = all(&flags);
        self.record_outcome(sample, access, load.is_some());
    }

    /// What the caches and TLBs did. Sources and latencies of misses are those of loads.
    fn record_outcome(&mut self, sample: &Sample<'_>, access: DataAccess, load: bool) {
        let Some(outcome) = access.outcome else { return };
        let zen = sample.has(feature::FETCH_CTL_EXTD);
        let walk = outcome.stlb_miss;
        let (hit_second, core) =
            (sample.happened(if load { &[E::DtlbLoadStlbHit] } else { &[E::DtlbStoreStlbHit] }), sample.core);
        let refill = match (walk, hit_second) {
            (true, _) => core.walk_latency_cycles,
            (false, true) => core.stlb_latency_cycles,
            (false, false) => 0,
        };
        let missed_l2 = matches!(outcome.source, DataSource::L3 | DataSource::Memory);
        let flags = [
            (walk || hit_second, data3::DC_L1_TLB_MISS),
            (walk, data3::DC_L2_TLB_MISS),
            (outcome.source != DataSource::L1, data3::DC_MISS),
            (zen && missed_l2, data3::L2_MISS),
        ];
        self.data3 |= all(&flags);
        if zen {
            self.data3 |= u64::from(refill) << data3::TLB_REFILL_LAT_SHIFT;
        }
        if load {
            let miss = outcome.latency_cycles.saturating_sub(refill + core.l1d_latency_cycles);
            self.data3 |= u64::from(miss) << data3::DC_MISS_LAT_SHIFT;
            self.data2 = match outcome.source {
                DataSource::L1 | DataSource::L2 => 0,
                DataSource::L3 if zen && !sample.has(feature::ZEN4_EXTENSIONS) => {
                    data2::LOCAL_CACHE | data2::CACHE_HIT_ST
                }
                DataSource::L3 => data2::L3 | data2::CACHE_HIT_ST,
                DataSource::Memory => data2::DRAM,
            };
        }
    }
}
