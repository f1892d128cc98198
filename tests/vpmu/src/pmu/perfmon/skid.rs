//! PEBS records that come late ([`crate::Options::pebs_skid`]).
//!
//! "Upon triggering a PEBS assist, there will be a finite delay between the time the counter overflows and when
//! the microcode starts to carry out its data collection obligations. [...] it invariably manifest as variable
//! 'skids' in instruction address space" (SDM Vol. 3B 18.9.4.4). With a skid of N the record shows the machine N
//! instructions after the event, in whatever privilege level that is. The facility that the section introduces
//! against skid, precise distribution of INST_RETIRED, is no exception: who asks for a skid wants it seen.

use super::Perfmon;
use crate::bus::Retired;
use crate::event::{Basic, BasicCounts};
use serde::{Deserialize, Serialize};

/// A record that is on its way.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Late {
    /// The counters it is for.
    counters: u64,
    /// The instruction whose event triggered it.
    cause: Retired,
    /// Instructions until it is written.
    pub(super) left: u64,
}

/// What the record of `cause` shows when it is taken after `retired`: where the processor is now, and the data
/// access that was sampled.
pub(super) fn recorded(retired: &Retired, cause: Option<Retired>) -> Retired {
    match cause {
        None => *retired,
        Some(Retired { load, store, locked, .. }) => Retired { load, store, locked, ..*retired },
    }
}

impl Perfmon {
    /// The counters whose record is due at this boundary, given those whose event just happened; with the
    /// instruction of the event if that was an earlier one.
    pub(super) fn delay(&mut self, triggered: u64, retired: &Retired) -> (u64, Option<Retired>) {
        let left = self.options.pebs_skid;
        if left == 0 {
            return (triggered, None);
        }
        if triggered != 0 {
            match &mut self.late {
                // One record for both, as for counters that are due together.
                Some(late) => late.counters |= triggered,
                None => self.late = Some(Late { counters: triggered, cause: *retired, left }),
            }
        }
        self.late.take_if(|late| late.left == 0).map_or((0, None), |late| (late.counters, Some(late.cause)))
    }

    pub(super) fn late_is_due(&self) -> bool {
        self.late.is_some_and(|late| late.left == 0)
    }

    /// Instructions retire.
    pub(super) fn approach_late(&mut self, delta: &BasicCounts) {
        if let Some(late) = &mut self.late {
            let [user, kernel] = delta[Basic::Instruction as usize];
            late.left = late.left.saturating_sub(user + kernel);
        }
    }

    /// A counter that is stopped, or whose PEBS is, before its record was written does not write it: `WRMSR`
    /// lets nothing pass (SDM Vol. 3A 8.3). If it is still armed, its next event triggers the record anew.
    pub(super) fn abandon_late(&mut self) {
        let records = |index: usize| self.counters.get(index).is_some_and(|c| c.rule.pebs && c.rule.is_on());
        if let Some(late) = self.late {
            let counters = super::set_bits(late.counters).filter(|&index| records(index));
            let counters = counters.fold(0, |set, index| set | 1 << index);
            self.late = (counters != 0).then_some(Late { counters, ..late });
        }
    }
}
