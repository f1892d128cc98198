//! What a session writes to a NetBurst PMU.

use super::events::{escr_of, Encoding};
use super::registers::{Cccr, EscrId, COUNTERS};
use super::tags::Tags;
use super::{Share, Unit};

/// The values of a logical processor's registers while its counters stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// CCCRs, without [`Cccr::ENABLE`]; 0 for a counter that is not used.
    pub cccrs: [u32; COUNTERS as usize],
    /// ESCRs; 0 for one that is not used.
    pub escrs: [u32; EscrId::COUNT],
    /// IA32_PEBS_ENABLE, without the bits by which records are written.
    pub pebs_enable: u32,
    /// MSR_PEBS_MATRIX_VERT.
    pub matrix_vert: u32,
}

impl Settings {
    /// No event.
    pub const NONE: Self =
        Self { cccrs: [0; COUNTERS as usize], escrs: [0; EscrId::COUNT], pebs_enable: 0, matrix_vert: 0 };

    /// No event but what tags.
    #[must_use]
    pub const fn tagging(tags: &Tags) -> Self {
        Self { escrs: tags.escrs, pebs_enable: tags.pebs_enable, matrix_vert: tags.matrix_vert, ..Self::NONE }
    }

    /// Has a counter count an event.
    pub fn count(&mut self, unit: &Unit, counter: u32, encoding: Encoding, privilege: u8) {
        if let Some(rule) = encoding.rule() {
            self.cccrs[counter as usize] = encoding.cccr() | Cccr::ACTIVE_THREAD;
            self.escrs[escr_of(rule, counter).place()] = encoding.escr() | unit.qualification(privilege);
        }
    }

    /// Has a counter interrupt its own logical processor when it overflows.
    pub fn interrupt(&mut self, unit: &Unit, counter: u32) {
        self.cccrs[counter as usize] |= overflow_interrupt(unit);
    }
}

/// The bit of a CCCR by which an overflow interrupts this logical processor.
#[must_use]
pub const fn overflow_interrupt(unit: &Unit) -> u32 {
    match unit.share {
        Share::Half(1) => Cccr::OVF_PMI_T0 << 1,
        _ => Cccr::OVF_PMI_T0,
    }
}
