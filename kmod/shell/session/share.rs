// SPDX-License-Identifier: GPL-2.0
//! A session's part on the CPU that runs, as sections use it.

use core::sync::atomic::Ordering;

use super::super::clock::EARLY;
use super::super::counters::Pages;
use super::super::entry_area::EntryArea;
use super::super::limits;
use super::super::port::LiveRings;
use super::{CpuShare, Loaded, Session};
use crate::hpm_core::{self, Program};

/// A session's part on one CPU.
pub(in super::super) struct Share<'a> {
    session: &'a Session,
    programs: &'a [Program],
    program: &'a Program,
    share: &'a CpuShare,
    number: u32,
}

impl Session {
    /// The session's part on the CPU with this number, which runs the programs for this place; `None` when there are none.
    pub(in super::super) fn share(&self, number: u32, core: usize) -> Option<Share<'_>> {
        let share = self.cpus.get(number as usize)?.as_ref()?;
        let programs = self.programs.on(core)?;
        Some(Share { session: self, programs, program: programs.first()?, share, number })
    }
}

impl Share<'_> {
    /// Calls `f` with the session as `hpm_core` wants it, which is made where it stays: to hand all of it on would be many of a cut's
    /// instructions.
    ///
    /// # Safety
    /// The caller runs on the CPU with the share's number, whose entry area is `area`, and holds its gate; `f` does not do this once more for
    /// this session.
    pub(in super::super) unsafe fn with_loaded<T>(
        &self,
        area: Option<&EntryArea>,
        f: impl FnOnce(&mut Loaded<'_, '_>) -> T,
    ) -> T {
        let (session, number) = (self.session, self.number);
        let (status, control) = (session.cpu_status(number), session.cpu_control(number));
        // SAFETY: The caller's promise; both pointers are valid as long as the session.
        let mut rings = unsafe { LiveRings::new(&self.share.memory, session.pages(), area, status, control) };
        f(&mut hpm_core::Session {
            id: session.id,
            programs: self.programs,
            program: self.program,
            // A turn lasts as long as a quantum that the timer cuts, which may be early.
            turn_tsc: session.longest_quantum - session.longest_quantum / EARLY,
            pages: session.pages().map(Pages::keys),
            // SAFETY: The gate keeps others out.
            state: unsafe { &mut *self.share.state.get() },
            threads: session.threads(),
            rings: &mut rings,
            limits: limits::of_sampling(),
        })
    }

    /// Notes what was published; whether a quarter of a ring has filled since readers were last woken, so that readers should not wait for the timer.
    ///
    /// # Safety
    /// The caller runs on the CPU with the share's number, holds its gate, and is not within [`Share::with_loaded`].
    pub(in super::super) unsafe fn announce(&self) -> bool {
        // SAFETY: The gate keeps others out.
        let produced = unsafe { &*self.share.state.get() }.produced();
        let told = self.share.told.each_ref().map(|told| told.load(Ordering::Relaxed));
        if produced == told {
            return false;
        }
        self.session.note_news();
        hpm_core::has_filled(&self.share.quarters, &told, &produced)
    }
}
