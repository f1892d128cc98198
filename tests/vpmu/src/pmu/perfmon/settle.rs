//! What happens at an instruction boundary.
//!
//! A counter that passes its maximum sets its overflow bit. If it is enabled for PEBS, that arms the PEBS
//! hardware, and the *next* event of the counter writes a record (SDM Vol. 3B 18.8.1.1: "When the counter
//! IA32_PMCx overflows from maximum count to zero, the PEBS hardware is armed. Upon occurrence of the next
//! PEBS event, the PEBS hardware triggers an assist"). The assist reloads the counter with its reset value
//! (18.8.1.1, "PEBS CounterX Reset"), clears its overflow bit (18.2.2) and, if the index reaches the
//! threshold, sets OvfBuffer and requests a PMI.
//!
//! The manuals do not say to which period the event that triggers the assist belongs. Here it is the first
//! event of the next one: the counter becomes the reset value plus all events since the overflow. Hence with
//! a reset value of −P the distance between records is exactly P events, and events = records × P + (value −
//! reset value), which is what Linux assumes (intel_pmu_save_and_restart_reload).

use super::bits::{debugctl, status};
use super::extended::PebsKind;
use super::pebs::Assist;
use super::skid::recorded;
use super::{Perfmon, set_bits};
use crate::bus::{Bus, Retired};
use crate::pmu::{PebsOutcome, Settlement};

impl Perfmon {
    pub(in crate::pmu) fn settle(&mut self, retired: &Retired, bus: &mut dyn Bus) -> Settlement {
        let mut interrupt = self.overflows((1 << self.counters.len()) - 1);
        let mut applicable = 0;
        for (index, counter) in self.counters.iter_mut().enumerate() {
            if std::mem::take(&mut counter.triggered) {
                applicable |= 1 << index;
            }
        }
        let mut settlement = Settlement::default();
        let (applicable, cause) = self.delay(applicable, retired);
        if applicable != 0 {
            settlement.cause = cause;
            let assist = self.assist(applicable, &recorded(retired, cause), bus);
            interrupt |= self.finish_assist(&assist);
            settlement.pebs = Some(assist.outcome);
            // The threshold interrupt comes after the assist, then the counter overflow interrupt, as two
            // separate ones (SDM Vol. 3B 18.8.1.1, "Performance Counter Prioritization").
            if assist.threshold_reached {
                self.registers.status |= self.buffer_overflow_bit();
                self.request_pmi(&mut settlement);
            }
        }
        if interrupt {
            self.request_pmi(&mut settlement);
        }
        for _ in 0..settlement.pmis {
            bus.pmi();
        }
        self.update_rules();
        settlement
    }

    /// If counter `index` has passed its maximum: sets its overflow bit and arms PEBS. Returns whether it has.
    pub(super) fn overflow(&mut self, index: usize) -> bool {
        let (mask, bit) = (self.counter_mask(), self.global_bit(index));
        let hidden = self.hides_overflow(index);
        let reloads = self.registers.later.cfg_b[index] != 0;
        let counter = &mut self.counters[index];
        if counter.value <= mask {
            return false;
        }
        counter.value &= mask;
        if !hidden {
            self.registers.status |= bit;
        }
        if counter.rule.pebs && counter.armed && reloads {
            counter.overflowed_again = true;
            counter.since_overflow = counter.value;
        } else if counter.rule.pebs && !counter.armed {
            counter.armed = true;
            // One instruction can count more than once (cycles); what is left over has already been the next
            // event.
            counter.since_overflow = counter.value;
            // "A non-precise event will occur at the next opportunity after the counter has overflowed"
            // (20.9.1): here at once.
            counter.triggered = counter.since_overflow > 0 || !counter.rule.precise;
        }
        true
    }

    /// Reloads the counters of a record. Returns whether one of them overflowed again and asks for a PMI.
    fn finish_assist(&mut self, assist: &Assist) -> bool {
        if matches!(assist.outcome, PebsOutcome::Faulted { .. }) {
            // The assist did not complete; the counters stay armed and count on.
            return false;
        }
        let (mask, mut reloaded) = (self.counter_mask(), 0);
        for &(index, reset) in &assist.resets {
            reloaded |= 1 << index;
            let (bit, hidden) = (self.global_bit(index), self.hides_overflow(index));
            let counter = &mut self.counters[index];
            counter.value = (reset & mask) + counter.since_overflow;
            counter.armed = std::mem::take(&mut counter.overflowed_again);
            if !counter.armed {
                counter.since_overflow = 0;
            }
            if !counter.armed || hidden {
                self.registers.status &= !bit;
            }
        }
        // A period shorter than what one instruction counted is over again; its record is the next event's.
        let interrupt = self.overflows(reloaded);
        set_bits(reloaded).for_each(|index| self.counters[index].triggered = false);
        interrupt
    }

    /// The bit of IA32_PERF_GLOBAL_STATUS that says that the PEBS buffer has reached its threshold.
    pub(super) fn buffer_overflow_bit(&self) -> u64 {
        match PebsKind::of(self.facts) {
            PebsKind::Architectural => status::PEBS_THRESHOLD,
            PebsKind::Fixed | PebsKind::Adaptive => status::OVF_BUFFER,
        }
    }

    /// Requests a PMI and freezes what IA32_DEBUGCTL asks to freeze on one (SDM Vol. 3B 17.4.7). With the
    /// streamlined semantics of version 4 the counters stop through CTR_FRZ and branch records through
    /// LBR_FRZ; before, the processor clears IA32_PERF_GLOBAL_CTRL and IA32_DEBUGCTL.LBR.
    fn request_pmi(&mut self, settlement: &mut Settlement) {
        settlement.pmis += 1;
        let streamlined = self.facts.version >= 4;
        let registers = &mut self.registers;
        if registers.debugctl & debugctl::FREEZE_PERFMON_ON_PMI != 0 {
            match streamlined {
                true => registers.status |= status::CTR_FRZ,
                false => registers.global_ctrl = 0,
            }
        }
        if registers.debugctl & debugctl::FREEZE_LBRS_ON_PMI != 0 {
            match streamlined {
                true => registers.status |= status::LBR_FRZ,
                false => registers.debugctl &= !debugctl::LBR,
            }
        }
    }
}
