//! Auto counter reload: the overflow of one counter loads others, or itself (Intel Architecture Instruction Set Extensions
//! Programming Reference, "Auto Counter Reload"; `CPUID.23H.2`).
//!
//! An overflow is noticed at the boundary of the instruction whose event it is (`settle`), and the headroom lets no batch reach
//! beyond it: so the counters that it reloads begin anew with the next instruction, in whatever batches the events are counted.
//! If they overflow at the same boundary, that is an overflow as any other; the reload comes after it.

use super::arch_pebs::reload_value;
use super::{Perfmon, set_bits};

impl Perfmon {
    /// The counters that can be reloaded, and those that can cause it, as in IA32_PERF_GLOBAL_CTRL.
    fn acr_masks(&self) -> (u64, u64) {
        self.facts.extended.auto_counter_reload().map_or((0, 0), |acr| (acr.reloadable(), acr.causes()))
    }

    /// Whether counter `index` can be reloaded: it has IA32_PMC_GPn_CFG_B or IA32_PMC_FXm_CFG_B.
    pub(super) fn is_reloadable(&self, index: usize) -> bool {
        self.acr_masks().0 & self.global_bit(index) != 0
    }

    /// Bits of IA32_PMC_GPn_CFG_B and IA32_PMC_FXm_CFG_B that are not reserved: the counters that can cause a reload.
    pub(super) fn cfg_b_mask(&self) -> u64 {
        self.acr_masks().1
    }

    /// Whether the overflow of counter `index` stays out of IA32_PERF_GLOBAL_STATUS.
    pub(super) fn hides_overflow(&self, index: usize) -> bool {
        self.options.acr_hides_overflow && self.registers.later.cfg_b[index] & self.global_bit(index) != 0
    }

    /// Looks at `counters`, a set of counter indices: what has passed its maximum overflows and reloads what names it.
    /// Returns whether one of them asks for a PMI.
    pub(super) fn overflows(&mut self, counters: u64) -> bool {
        let (mut overflowed, mut interrupt) = (0, false);
        for index in set_bits(counters) {
            if self.overflow(index) {
                overflowed |= self.global_bit(index);
                interrupt |= self.counters[index].rule.interrupt;
            }
        }
        if overflowed & self.cfg_b_mask() != 0 {
            self.auto_reload(overflowed);
        }
        interrupt
    }

    /// Reloads the counters that name one of `overflowed` in their CFG_B, whether they count or not.
    fn auto_reload(&mut self, overflowed: u64) {
        let mask = self.counter_mask();
        for index in 0..self.counters.len() {
            let causes = self.registers.later.cfg_b[index] & overflowed;
            if causes == 0 {
                continue;
            }
            let reload = reload_value(self.registers.later.cfg_c[index]) & mask;
            // One instruction can count more than once (cycles). Of what a counter counted after its own overflow it is known
            // that it belongs to the next period, and nothing is lost; perhaps that is over, too, more than once. In which
            // order the events of different counters came is not known: another's reload comes after all of them.
            let own = self.global_bit(index) == causes;
            let left = if own { self.counters[index].value % (mask + 1 - reload) } else { 0 };
            let counter = &mut self.counters[index];
            counter.value = reload + left;
            // An armed counter stays armed. What its record's own reload, from the same register or from the DS area, carries
            // over starts here.
            counter.since_overflow = left;
        }
    }
}
