//! What happens at an instruction boundary: overflow, cascading, interrupts, PEBS records.
//!
//! "The PMI is generated on the next event count after the counter has overflowed" (SDM Vol. 3B 18.15.3). A PEBS record, too,
//! is written at the event after the overflow, and the counter reloaded as on later parts (perfmon's `settle`): the manual
//! does not say so for this part, only that it happens "after the counter overflows" (18.15.7).

use super::bits::cccr;
use super::counter::BITS;
use super::registers::EXTENDED_CASCADES;
use super::{COUNTERS, Unit};
use crate::bus::{Bus, PageFault, Retired};
use crate::pmu::ds;
use crate::pmu::{PebsOutcome, Settlement};

/// Offset of "PEBS counter reset" in the DS management area (SDM Vol. 3B, figure 17-8).
const COUNTER_RESET: u64 = 0x40;

impl Unit {
    /// The boundary of logical processor `thread`.
    pub(super) fn settle(
        &mut self,
        thread: usize,
        ds_area: u64,
        _retired: &Retired,
        bus: &mut dyn Bus,
    ) -> Settlement {
        for index in 0..COUNTERS {
            self.overflow(index, thread);
            for (request, due) in self.interrupts.iter_mut().zip(&mut self.counters[index].interrupt_due) {
                *request |= std::mem::take(due);
            }
        }
        let mut settlement = Settlement::default();
        let pebs = 16 + thread;
        if self.counters[pebs].armed && self.counters[pebs].triggered {
            self.counters[pebs].triggered = false;
            let (outcome, threshold_reached) = self.assist(pebs, thread, ds_area, bus);
            settlement.pebs = Some(outcome);
            self.interrupts[thread] |= threshold_reached;
        }
        if std::mem::take(&mut self.interrupts[thread]) {
            settlement.pmis = 1;
            bus.pmi();
        }
        self.update_rules();
        settlement
    }

    /// If counter `index` has overflowed: sets OVF, arms PEBS and what is to follow at the next event, and starts counters
    /// that cascade from it.
    fn overflow(&mut self, index: usize, thread: usize) {
        let rule_pebs = self.rules[index].pebs == Some(thread);
        let counter = &mut self.counters[index];
        let forced = std::mem::take(&mut counter.forced);
        let wrapped = counter.value >> BITS != 0;
        if !wrapped && forced == 0 {
            return;
        }
        counter.value &= (1 << BITS) - 1;
        self.registers.cccr[index] |= cccr::OVF;
        // One instruction can count more than once (cycles); what is left over has already been the next event.
        let left_over = if wrapped { counter.value } else { forced - 1 };
        let asks = cccr::OVF_PMI.map(|bit| self.registers.cccr[index] & bit != 0);
        let target = if left_over > 0 { &mut counter.interrupt_due } else { &mut counter.interrupt_waits };
        for (flag, asks) in target.iter_mut().zip(asks) {
            *flag |= asks;
        }
        if rule_pebs && !counter.armed {
            counter.armed = true;
            counter.since_overflow = left_over;
            counter.triggered = left_over > 0;
        }
        self.cascade(index);
    }

    /// Enables the counters that cascade from `from` (18.15.5.6, 18.15.5.7).
    fn cascade(&mut self, from: usize) {
        let mut enable = |into: usize, bit: u64| {
            if self.registers.cccr[into] & bit != 0 {
                self.registers.cccr[into] |= cccr::ENABLE;
            }
        };
        // The same counter of the other pair of the block; 16 and 17 take from 14 and 15, and give to none.
        if from < 16 {
            enable(from ^ 2, cccr::CASCADE);
        }
        if matches!(from, 14 | 15) {
            enable(from + 2, cccr::CASCADE);
        }
        for (into, source) in EXTENDED_CASCADES {
            if source == from {
                enable(into, cccr::EXTENDED_CASCADE);
            }
        }
    }

    /// Writes the PEBS record of counter `index` and reloads it; also whether the buffer asks for an interrupt.
    fn assist(
        &mut self,
        index: usize,
        thread: usize,
        ds_area: u64,
        bus: &mut dyn Bus,
    ) -> (PebsOutcome, bool) {
        let counters = 1 << index;
        let (stored, reset) = match store_record(ds_area, bus) {
            Ok(done) => done,
            // The assist did not complete; the counter stays armed and counts on.
            Err(fault) => return (PebsOutcome::Faulted { counters, fault }, false),
        };
        let counter = &mut self.counters[index];
        counter.value = (reset & ((1 << BITS) - 1)) + counter.since_overflow;
        counter.disarm();
        // A period shorter than what one instruction counted is over again; its record is the next event's.
        self.overflow(index, thread);
        self.counters[index].triggered = false;
        let outcome = match stored.at {
            Some(at) => PebsOutcome::Written { at, bytes: ds::FORMAT_0_BYTES, counters, shown: 0 },
            None => PebsOutcome::Dropped { counters },
        };
        (outcome, stored.threshold_reached)
    }
}

/// Writes a record of RFLAGS, the next instruction's RIP and the general registers (SDM Vol. 3B, figure 17-10); also the
/// counter's reset value, of which 40 bits count.
fn store_record(ds_area: u64, bus: &mut dyn Bus) -> Result<(ds::Stored, u64), PageFault> {
    let [reset] = ds::words(bus, ds_area.wrapping_add(COUNTER_RESET))?;
    let registers = bus.registers();
    let record: Vec<u8> = ds::format_0(&registers).iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok((ds::store(ds_area, u64::MAX, &record, bus)?, reset))
}
