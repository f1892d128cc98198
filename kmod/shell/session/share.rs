// SPDX-License-Identifier: GPL-2.0
//! A session's part on the CPU that runs, as sections use it.

use core::sync::atomic::Ordering;

use super::super::clock::EARLY;
use super::super::counters::Pages;
use super::super::entry_area::EntryArea;
use super::super::limits;
use super::super::port::LiveRings;
use super::{CpuShare, Loaded, Session};
use crate::hpm_core::{self, CpuSession, Program};

/// A session's part on the CPU that runs.
pub(in super::super) struct Share<'a> {
    session: &'a Session,
    programs: &'a [Program],
    program: &'a Program,
    state: &'a mut CpuSession,
    share: &'a CpuShare,
    rings: LiveRings<'a>,
}

impl Session {
    /// The session's part on this CPU, which runs the programs for this place; `None` when there are none.
    ///
    /// # Safety
    /// The caller runs on that CPU, holds its gate for `'a`, and has no other share of the session.
    pub(in super::super) unsafe fn share<'a>(
        &'a self,
        number: u32,
        core: usize,
        area: Option<&'a EntryArea>,
    ) -> Option<Share<'a>> {
        let share = self.cpus.get(number as usize)?.as_ref()?;
        let programs = self.programs.on(core)?;
        let program = programs.first()?;
        let (status, control) = (self.cpu_status(number), self.cpu_control(number));
        // SAFETY: The caller's promise; both pointers are valid as long as the session.
        let rings = unsafe { LiveRings::new(&share.memory, self.pages(), area, status, control) };
        // SAFETY: The gate keeps others out.
        let state = unsafe { &mut *share.state.get() };
        Some(Share { session: self, programs, program, state, share, rings })
    }
}

impl<'a> Share<'a> {
    /// The session as `hpm_core` wants it.
    pub(in super::super) fn loaded(&mut self) -> Loaded<'_, 'a> {
        hpm_core::Session {
            id: self.session.id,
            programs: self.programs,
            program: self.program,
            // A turn lasts as long as a quantum that the timer cuts, which may be early.
            turn_tsc: self.session.longest_quantum - self.session.longest_quantum / EARLY,
            pages: self.session.pages().map(Pages::keys),
            state: self.state,
            threads: self.session.threads(),
            rings: &mut self.rings,
            limits: limits::of_sampling(),
        }
    }

    /// Notes what was published; whether a quarter of a ring has filled since readers were last woken, so that readers should not wait for the timer.
    pub(in super::super) fn announce(&mut self) -> bool {
        let produced = self.state.produced();
        let told = self.share.told.each_ref().map(|told| told.load(Ordering::Relaxed));
        if produced == told {
            return false;
        }
        self.session.note_news();
        hpm_core::has_filled(&self.share.quarters, &told, &produced)
    }
}
