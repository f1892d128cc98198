// SPDX-License-Identifier: GPL-2.0
//! Somebody else who programs the PMU that hpm holds: nothing keeps him out. What he does is seen before hpm writes over it, where it stops
//! counters anyhow, and looked for now and then.

use super::super::port::Port;
use super::{Engine, Unit};

/// Every so many looks one is at an event select, too: who takes a counter keeps it, while what stops one for a moment is soon written over.
const LOOKS_A_SELECT: u32 = 4;

impl Engine {
    /// Looks whether somebody else uses the PMU, at what says which counters run and at times at an event select, each in turn: what
    /// is counted from then on is not to be believed, and the session should be unloaded. The counters that he has programmed are left to him from now on.
    pub fn look_for_others<P: Port>(&mut self, port: &mut P) -> bool {
        let unit = &mut self.unit;
        let (Some(hardware), look) = (&unit.hardware, unit.looks) else { return false };
        unit.looks = look.wrapping_add(1);
        let at_select = look % LOOKS_A_SELECT == LOOKS_A_SELECT - 1;
        if hardware.is_foreign(port)
            || at_select && hardware.has_foreign_select(port, Some(look / LOOKS_A_SELECT))
        {
            unit.cede(port);
        }
        unit.intruded
    }

    /// As [`Engine::look_for_others`], at every register that it looks at in turn.
    pub fn is_intruded<P: Port>(&mut self, port: &mut P) -> bool {
        let unit = &mut self.unit;
        let Some(hardware) = &unit.hardware else { return false };
        if hardware.is_foreign(port) || hardware.has_foreign_select(port, None) {
            unit.cede(port);
        }
        unit.intruded
    }

    /// Whether somebody else has been seen since the PMU was taken.
    #[must_use]
    pub const fn has_noticed_others(&self) -> bool {
        self.unit.intruded
    }
}

impl Unit {
    fn cede<P: Port>(&mut self, port: &mut P) {
        if let Some(hardware) = &mut self.hardware {
            hardware.cede(port);
            self.intruded = true;
        }
    }
}
