// SPDX-License-Identifier: GPL-2.0
//! Sessions that wait for their turn, while another one that measures the same thread has the PMU.

use core::sync::atomic::Ordering;

use super::super::super::interrupts::LocalInterruptDisabled;
use super::super::super::session::Session;
use super::super::super::{registry, sys};
use super::{current_user_ip, Section};
use crate::hpm_abi::QuantumEnd;
use crate::hpm_core::markers::Mark;
use crate::hpm_core::sharing::Wait;

impl Section<'_> {
    /// Ends the running quantum of this session, or its wait.
    pub(in super::super::super) fn flush(&mut self, session: &Session) {
        if self.cpu.is_running(session) {
            self.cut(QuantumEnd::Flush);
        } else if self.cpu.waiting() & session.bit() != 0 {
            self.take_markers();
            self.tell(session, current_user_ip());
        }
    }

    /// Tells this session alone that it has waited until now; it goes on waiting.
    fn tell(&mut self, session: &Session, last_ip: u64) {
        if let Some(wait) = self.wait_until_now(QuantumEnd::Flush, last_ip) {
            self.with(session, |_, _, session| session.note_wait(&wait));
        }
    }

    /// These sessions wait, from `now` on.
    pub(super) fn set_waiting(&self, waiting: u64, now: u64) {
        self.cpu.waiting.store(waiting, Ordering::Relaxed);
        if waiting != 0 {
            self.cpu.waiting_since.store(now, Ordering::Relaxed);
            if self.cpu.takes_turns() {
                self.cpu.clock.look_at_turns(now);
            }
        }
    }

    /// As [`Self::tell_waiting`], if they have waited for a turn: quanta that are cut more often than that are nothing to them.
    pub(super) fn tell_waiting_long(&mut self, end: QuantumEnd, last_ip: u64) {
        let since = self.cpu.waiting_since.load(Ordering::Relaxed);
        if self.cpu.waiting() != 0 && sys::rdtsc().saturating_sub(since) >= registry::slot_tsc() {
            self.tell_all_waiting(end, last_ip);
        }
    }

    /// Tells the sessions that wait how long they have.
    pub(super) fn tell_waiting(&mut self, end: QuantumEnd, last_ip: u64) {
        if self.cpu.waiting() != 0 {
            self.tell_all_waiting(end, last_ip);
        }
    }

    #[cold]
    fn tell_all_waiting(&mut self, end: QuantumEnd, last_ip: u64) {
        let Some(wait) = self.wait_until_now(end, last_ip) else { return };
        self.cpu.waiting_since.store(wait.end_tsc, Ordering::Relaxed);
        // SAFETY: Sections run with interrupts off.
        let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
        for (_, session) in registry::sessions_at(self.cpu.waiting(), irq) {
            self.with(session, |_, _, session| session.note_wait(&wait));
        }
    }

    /// Since when those that wait have not been told; `None` while no thread is measured.
    fn wait_until_now(&self, end: QuantumEnd, last_ip: u64) -> Option<Wait> {
        let (_, thread) = self.inside.engine.running()?;
        let start_tsc = self.cpu.waiting_since.load(Ordering::Relaxed);
        Some(Wait { thread, cpu: self.cpu.number, start_tsc, end_tsc: sys::rdtsc(), end, last_ip })
    }

    /// This session does not wait any more. The registry may not know it by now.
    pub(super) fn stop_waiting(&mut self, session: &Session) {
        if self.cpu.waiting() & session.bit() == 0 {
            return;
        }
        self.tell(session, current_user_ip());
        self.cpu.waiting.fetch_and(!session.bit(), Ordering::Relaxed);
    }

    /// The thread that is being measured sets markers, or has had as many overwritten in its page: whether a session that waits keeps them.
    pub(super) fn mark_waiting<M: IntoIterator<Item = Mark>>(
        &mut self,
        lost: u64,
        marks: impl Fn() -> M,
    ) -> bool {
        let waiting = self.cpu.waiting();
        let Some(wait) = self.wait_until_now(QuantumEnd::Flush, 0).filter(|_| waiting != 0) else {
            return false;
        };
        // SAFETY: Sections run with interrupts off.
        let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
        let mut kept = false;
        for (_, session) in registry::sessions_at(waiting, irq).filter(|(_, session)| session.keeps_markers())
        {
            kept |= self
                .with(session, |_, _, session| {
                    session.state.lose_markers(lost);
                    session.keep_waiting(marks(), &wait)
                })
                .unwrap_or(false);
        }
        kept
    }
}
