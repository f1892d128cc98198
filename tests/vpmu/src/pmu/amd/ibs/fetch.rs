//! Sampling of instruction fetches (APM 13.3.2).

use super::{Random, Sample, all, saturated};
use crate::event::Event as E;
use crate::profile::amd::ibs as feature;
use serde::{Deserialize, Serialize};

/// IBS_FETCH_CTL. IbsL1TlbPgSz (54:53) is 0: 4-KiB pages.
mod control {
    /// IbsFetchMaxCnt[19:4].
    pub(super) const MAX_CNT: u64 = 0xFFFF;
    /// Where IbsFetchCnt[19:4] begins.
    pub(super) const CNT_SHIFT: u32 = 16;
    pub(super) const LAT_SHIFT: u32 = 32;
    pub(super) const EN: u64 = 1 << 48;
    pub(super) const VAL: u64 = 1 << 49;
    pub(super) const COMP: u64 = 1 << 50;
    pub(super) const IC_MISS: u64 = 1 << 51;
    pub(super) const PHY_ADDR_VALID: u64 = 1 << 52;
    pub(super) const L1_TLB_MISS: u64 = 1 << 55;
    pub(super) const L2_TLB_MISS: u64 = 1 << 56;
    pub(super) const RAND_EN: u64 = 1 << 57;
    /// On Zen.
    pub(super) const L2_MISS: u64 = 1 << 58;
    /// On Zen 4, as the next.
    pub(super) const L3_MISS_ONLY: u64 = 1 << 59;
    pub(super) const L3_MISS: u64 = 1 << 61;
}

/// The sampler's registers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Fetch {
    /// IBS_FETCH_CTL without IbsFetchCnt.
    control: u64,
    /// Fetches so far: IbsFetchCnt with its low four bits.
    count: u64,
    pub(super) linear: u64,
    pub(super) physical: u64,
    /// IC_IBS_EXTD_CTL: IbsItlbRefillLat.
    pub(super) extended: u64,
}

impl Fetch {
    /// IbsFetchMaxCnt. A maximum of 0 never comes.
    fn maximum(&self) -> u64 {
        (self.control & control::MAX_CNT) << 4
    }

    pub(super) fn is_running(&self) -> bool {
        self.control & (control::EN | control::VAL) == control::EN && self.maximum() != 0
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_running() && self.count >= self.maximum()
    }

    pub(super) fn fetched(&mut self) {
        if self.is_running() {
            self.count += 1;
        }
    }

    pub(super) fn control(&self) -> u64 {
        self.control | (self.count >> 4 & 0xFFFF) << control::CNT_SHIFT
    }

    /// Bits that describe the sample are read-only and are ignored, but their validity ends with IbsFetchVal.
    /// IbsRandEn draws the low four bits of the count, which cannot be written.
    pub(super) fn set_control(&mut self, value: u64, features: u32, random: &mut Random) {
        let zen4 = if features & feature::ZEN4_EXTENSIONS != 0 { control::L3_MISS_ONLY } else { 0 };
        let writable = control::MAX_CNT | control::EN | control::VAL | control::RAND_EN | zen4;
        let kept = if value & control::VAL != 0 { self.control & !writable } else { 0 };
        self.control = value & writable | kept;
        let low = if value & control::RAND_EN != 0 { random.bits(4) } else { 0 };
        self.count = (value >> control::CNT_SHIFT & 0xFFFF) << 4 | low;
    }

    /// The instruction is over: if its fetch is tagged, the sample becomes valid. Returns whether it did.
    pub(super) fn settle(&mut self, sample: &mut Sample<'_>) -> bool {
        if !self.is_due() {
            return false;
        }
        let missed_l3 = sample.happened(&[E::LlcInstructionMiss]);
        if self.control & control::L3_MISS_ONLY != 0 && !missed_l3 {
            self.count = 0;
            return false;
        }
        let (zen, zen4) = (sample.has(feature::FETCH_CTL_EXTD), sample.has(feature::ZEN4_EXTENSIONS));
        let (walk, hit_second) = (sample.happened(&[E::ItlbWalk]), sample.happened(&[E::ItlbStlbHit]));
        self.linear = sample.retired.pc;
        let physical = sample.bus.translate(self.linear);
        self.physical = physical.unwrap_or(0);
        let flags = [
            (true, control::VAL | control::COMP),
            (sample.happened(&[E::L1iMiss]), control::IC_MISS),
            (physical.is_some(), control::PHY_ADDR_VALID),
            (walk || hit_second, control::L1_TLB_MISS),
            (walk, control::L2_TLB_MISS),
            (zen && sample.happened(&[E::L2CodeMiss]), control::L2_MISS),
            (zen4 && missed_l3, control::L3_MISS),
        ];
        self.control |= all(&flags) | saturated(sample.instruction.fetch_stall) << control::LAT_SHIFT;
        self.extended = match (walk, hit_second) {
            (true, _) => sample.core.walk_latency_cycles,
            (false, true) => sample.core.stlb_latency_cycles,
            (false, false) => 0,
        }
        .into();
        true
    }
}
