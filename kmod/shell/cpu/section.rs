// SPDX-License-Identifier: GPL-2.0
//! What is done inside a section of a CPU's gate: the engine's work for the thread that runs there.

mod waiting;

use core::ptr;
use core::sync::atomic::Ordering;

use kernel::bindings;
use kernel::task::Task;

use super::super::interrupts::LocalInterruptDisabled;
use super::super::port::LivePort;
use super::super::registry::Chosen;
use super::super::session::{Loaded, Session};
use super::super::target::current_tid;
use super::super::{machine, markers, sys};
use super::{Cpu, Inside};
use crate::hpm_abi::{self as abi, QuantumEnd, Reason};
use crate::hpm_core::markers::Mark;
use crate::hpm_core::{Engine, Thread};

/// A section of one CPU's gate.
pub(in super::super) struct Section<'a> {
    pub(super) cpu: &'a Cpu,
    pub(super) inside: &'a mut Inside,
    /// What the NMI that runs has interrupted; null outside one.
    pub(super) regs: *const bindings::pt_regs,
}

impl Section<'_> {
    /// A thread of the session starts to run.
    pub(in super::super) fn switch_in(&mut self, chosen: Chosen<'_>, thread: Thread) {
        let session = chosen.session;
        // A counter page shows where its counters began: nothing that others have counted.
        if session.pages().is_some() && self.cpu.is_exposed() {
            self.conceal();
        }
        let entered = self.with(session, |engine, port, session| engine.switch_in(port, session, thread));
        if entered.is_some() {
            let place = ptr::from_ref(session).cast_mut();
            self.cpu.loaded.store(place, Ordering::Relaxed);
            self.cpu.running.store(place, Ordering::Relaxed);
            self.cpu.tid.store(thread.tid, Ordering::Relaxed);
            self.cpu.exposed.store(true, Ordering::Relaxed);
            let now = self.begin_quantum();
            self.cpu.clock.start(now, self.cpu.longest_quantum(session));
            self.set_waiting(chosen.waiting, now);
        }
    }

    /// The thread that is being measured, if there is one, leaves.
    pub(in super::super) fn switch_out(&mut self, end: QuantumEnd) {
        self.leave(end, |engine, port, session, last_ip| engine.switch_out(port, session, end, last_ip));
    }

    /// As [`Self::switch_out`], to a thread that runs no user code.
    pub(in super::super) fn step_aside(&mut self, end: QuantumEnd) {
        self.leave(end, |engine, port, session, last_ip| engine.step_aside(port, session, end, last_ip));
    }

    fn leave(
        &mut self,
        end: QuantumEnd,
        out: impl FnOnce(&mut Engine, &mut LivePort<'_>, &mut Loaded<'_, '_>, u64),
    ) {
        let Some(session) = self.cpu.running() else { return };
        self.take_markers();
        let last_ip = current_user_ip();
        self.tell_waiting(end, last_ip);
        self.cpu.waiting.store(0, Ordering::Relaxed);
        self.with(session, |engine, port, session| out(engine, port, session, last_ip));
        self.cpu.running.store(ptr::null_mut(), Ordering::Relaxed);
        if self.inside.engine.has_noticed_others() {
            // The timer looks only while a thread is measured.
            self.cpu.clock.look_soon();
        }
    }

    /// A thread runs that is not measured, and may run user code.
    pub(in super::super) fn settle(&mut self) {
        let (engine, mut port) = self.parts();
        engine.settle(&mut port);
    }

    /// A guest is about to be entered; no thread is being measured.
    pub(in super::super) fn enter_guest(&mut self) {
        let (engine, mut port) = self.parts();
        engine.enter_guest(&mut port);
    }

    /// A guest has been left.
    pub(in super::super) fn leave_guest(&mut self) {
        let (engine, mut port) = self.parts();
        engine.leave_guest(&mut port);
    }

    /// The thread that is being measured leaves, and the next one of the same session starts to run.
    pub(in super::super) fn switch_over(&mut self, end: QuantumEnd, chosen: Chosen<'_>, next: Thread) {
        self.take_markers();
        let ending = (end, current_user_ip());
        self.tell_waiting(ending.0, ending.1);
        self.with(chosen.session, |engine, port, session| engine.switch_over(port, session, ending, next));
        self.cpu.tid.store(next.tid, Ordering::Relaxed);
        let now = self.begin_quantum();
        self.set_waiting(chosen.waiting, now);
    }

    /// Ends the running quantum, if there is one; its thread runs on in a new one.
    pub(in super::super) fn cut(&mut self, end: QuantumEnd) {
        let Some(session) = self.cpu.running() else { return };
        self.take_markers();
        let last_ip = current_user_ip();
        self.tell_waiting_long(end, last_ip);
        self.with(session, |engine, port, session| engine.cut(port, session, end, last_ip));
        self.begin_quantum();
    }

    /// The current thread sets a marker; whether a session keeps it.
    pub(in super::super) fn mark(&mut self, mark: &abi::Mark) -> bool {
        // Those that wait in its page are older.
        self.take_markers();
        let mark = Mark { tsc: None, value: mark.value, name: mark.name };
        let Some(session) = self.cpu.running() else { return false };
        let kept = self.mark_waiting(0, || [mark]);
        self.with(session, |engine, port, session| engine.mark(port, session, [mark])).unwrap_or(false)
            || kept
    }

    /// Keeps the markers that wait in the current thread's page. To be called before its quantum ends, so that their
    /// times lie in it.
    fn take_markers(&mut self) {
        // Mostly there are none, and each cut asks.
        if markers::are_there() {
            self.take_waiting_markers();
        }
    }

    fn take_waiting_markers(&mut self) {
        let Some(session) = self.cpu.running() else { return };
        if !session.keeps_markers() && self.cpu.waiting() == 0 {
            return;
        }
        // SAFETY: Sections run with interrupts off.
        let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
        let Some(waiting) = markers::waiting(irq) else { return };
        let lost = waiting.pending.lost;
        let mut kept = self.mark_waiting(lost, || waiting.marks());
        if session.keeps_markers() {
            self.with(session, |engine, port, session| {
                session.state.lose_markers(lost);
                engine.mark(port, session, waiting.marks());
            });
            kept = true;
        }
        if kept {
            waiting.give_back();
        }
    }

    /// Why the session that runs must give up: somebody else has begun to run guests of which the driver is not told, or to use the PMU,
    /// for which `registers` are read.
    pub(in super::super) fn intruder(&mut self, session: &Session, registers: bool) -> Option<Reason> {
        // SAFETY: Sections run with interrupts off.
        let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
        if session.is_precise() && sys::guests_are_untold(irq) {
            return Some(Reason::Virtualisation);
        }
        let (engine, mut port) = self.parts();
        if registers && machine::processor_trace_runs() {
            return Some(Reason::IntelPt);
        }
        let intruded =
            if registers { engine.look_for_others(&mut port) } else { engine.has_noticed_others() };
        intruded.then_some(Reason::CountersRunning)
    }

    /// Brings a thread's counter page up to date if it is the one being measured, for which its quantum may have to end.
    pub(in super::super) fn refresh(&mut self, session: &Session, tid: u32) {
        self.take_markers();
        let last_ip = current_user_ip();
        self.with(session, |engine, port, session| engine.refresh(port, session, tid, last_ip));
        self.note_quantum();
    }

    /// The current thread, which is being measured for this session, has replaced its program.
    pub(in super::super) fn restart_branches(&mut self, session: &Session) {
        self.with(session, |engine, port, session| engine.restart_branches(port, session));
    }

    /// Leaves nothing in the counters for a thread that may read them. No thread is being measured.
    pub(in super::super) fn conceal(&mut self) {
        let (engine, mut port) = self.parts();
        engine.conceal(&mut port);
        self.cpu.exposed.store(false, Ordering::Relaxed);
    }

    /// The session leaves this CPU, and gives up if somebody else uses the PMU, which nobody has seen yet; whether that is so.
    pub(in super::super) fn unload(&mut self, session: &Session) -> bool {
        let is_loaded = ptr::eq(self.cpu.loaded.load(Ordering::Relaxed), session);
        let may_run = session.may_run_on(self.cpu.number);
        let (engine, mut port) = self.parts();
        let is_intruded =
            may_run && (engine.has_noticed_others() || is_loaded && engine.is_intruded(&mut port));
        if is_intruded {
            session.give_up(Reason::CountersRunning);
        }
        if self.cpu.is_running(session) {
            self.switch_out(QuantumEnd::Flush);
        }
        self.stop_waiting(session);
        self.with(session, |engine, port, session| engine.unload(port, session));
        if is_loaded {
            self.cpu.loaded.store(ptr::null_mut(), Ordering::Relaxed);
        }
        is_intruded
    }

    /// An NMI has come: whether it was hpm's.
    pub(super) fn pmi(&mut self) -> bool {
        let last_ip = self.look_at_current();
        let handled = self.with_loaded(|engine, port, session| engine.pmi(port, session, last_ip));
        self.note_quantum();
        handled
    }

    /// Does the work of a PMI that came inside this section.
    pub(super) fn service(&mut self, nth: u32) {
        let last_ip = self.look_at_current();
        self.with_loaded(|engine, port, session| engine.service(port, session, last_ip, nth));
        self.note_quantum();
    }

    /// What an NMI takes of the current thread: its markers, and the user instruction pointer that it returns. Neither where it is not
    /// the one that is being measured: the scheduler's probe has begun with the next one, which the scheduler has yet to switch to.
    fn look_at_current(&mut self) -> u64 {
        if self.cpu.tid.load(Ordering::Relaxed) != current_tid() {
            return 0;
        }
        self.take_markers();
        current_user_ip()
    }

    /// Notes when the running quantum began: what was done may have ended the one before.
    fn note_quantum(&self) {
        if let Some(begun) = self.inside.engine.quantum_start() {
            self.cpu.begun_tsc.store(begun, Ordering::Relaxed);
            self.note_throttle();
        }
    }

    /// Notes whether samples are withheld now. If so they come back with a cut, for which the timer must run.
    fn note_throttle(&self) {
        let throttled = self.inside.engine.is_throttled();
        if throttled != self.cpu.throttled.load(Ordering::Relaxed) {
            self.change_throttle(throttled);
        }
    }

    #[cold]
    fn change_throttle(&self, throttled: bool) {
        self.cpu.throttled.store(throttled, Ordering::Relaxed);
        if let (true, Some(session)) = (throttled, self.cpu.running()) {
            self.cpu.clock.start(sys::rdtsc(), self.cpu.longest_quantum(session));
        }
    }

    fn begin_quantum(&self) -> u64 {
        let now = sys::rdtsc();
        self.cpu.begun_tsc.store(now, Ordering::Relaxed);
        self.note_throttle();
        now
    }

    /// Calls `f` with the engine, its port and the session's share of this CPU; `None` when it has none.
    fn with<T>(
        &mut self,
        session: &Session,
        f: impl FnOnce(&mut Engine, &mut LivePort<'_>, &mut Loaded<'_, '_>) -> T,
    ) -> Option<T> {
        self.with_optional(Some(session), |engine, port, share| share.map(|share| f(engine, port, share)))
    }

    /// As [`Self::with`], with the session that the engine has loaded, if any.
    fn with_loaded<T>(
        &mut self,
        f: impl FnOnce(&mut Engine, &mut LivePort<'_>, Option<&mut Loaded<'_, '_>>) -> T,
    ) -> T {
        self.with_optional(self.cpu.loaded(), f)
    }

    fn with_optional<T>(
        &mut self,
        session: Option<&Session>,
        f: impl FnOnce(&mut Engine, &mut LivePort<'_>, Option<&mut Loaded<'_, '_>>) -> T,
    ) -> T {
        let cpu = self.cpu;
        let (engine, mut port) = self.parts();
        let Some(share) = session.and_then(|session| session.share(cpu.number, cpu.core())) else {
            return f(engine, &mut port, None);
        };
        let work = |loaded: &mut Loaded<'_, '_>| f(engine, &mut port, Some(loaded));
        // SAFETY: This section holds the gate of the CPU that runs, to which share and area belong; the engine, which is what `f` works
        // with, knows no section.
        let value = unsafe { share.with_loaded(cpu.entry_area(), work) };
        // SAFETY: As above; that is over.
        if unsafe { share.announce() } {
            cpu.clock.wake_readers();
        }
        value
    }

    pub(super) fn parts(&mut self) -> (&mut Engine, LivePort<'_>) {
        let tid = self.cpu.tid.load(Ordering::Relaxed);
        // SAFETY: Sections run on their CPU with interrupts off, while hpm holds its PMU or is about to.
        let port =
            unsafe { LivePort::new(self.cpu.entry_area(), self.regs, Some(&self.cpu.expected_pmi), tid) };
        (&mut self.inside.engine, port)
    }
}

/// User instruction pointer of the current thread, or 0.
fn current_user_ip() -> u64 {
    // SAFETY: The argument is the current task.
    unsafe { sys::user_ip(Task::current_raw()) }
}
