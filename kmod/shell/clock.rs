// SPDX-License-Identifier: GPL-2.0
//! One CPU's timer, which cuts quanta that last too long, and the work that the switch path and the NMI may not do
//! themselves: starting that timer and waking readers.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kernel::bindings;
use kernel::types::Opaque;

use super::cpu::{self, Cpu};
use super::interrupts::LocalInterruptDisabled;
use super::session::Session;
use super::{machine, owner, registry, sys};
use crate::hpm_abi::QuantumEnd;

/// The timer may expire when this part of its time is left, so that it can share an interrupt with the scheduler's tick: of a
/// quantum of 10 ms the last quarter contains one of 250 a second. So a quantum with less than this left is long enough.
pub(super) const EARLY: u64 = 4;

/// Registers that somebody else may have written are read at the first look so long after the last time: an access each 10 ms would be
/// as many as the quanta take. Where hpm writes over them at each cut, it sees them before.
const REGISTERS_NS: u64 = 25_000_000;

/// [`Clock::expires_tsc`] of a timer that does not run.
const STOPPED: u64 = u64::MAX;

/// One CPU's timer and deferred work.
pub(super) struct Clock {
    timer: Opaque<bindings::hrtimer>,
    work: Opaque<bindings::irq_work>,
    /// TSC when the timer expires; [`STOPPED`] while it does not run.
    expires_tsc: AtomicU64,
    /// The work shall set the timer to expire after so many TSC ticks; 0 for no.
    start_in: AtomicU64,
    /// The work shall wake readers.
    wake: AtomicBool,
    /// The work shall see whether somebody else uses the PMU.
    look: AtomicBool,
    /// TSC when that was last seen.
    looked_tsc: AtomicU64,
    /// TSC when registers were last read for that.
    registers_tsc: AtomicU64,
}

impl Clock {
    /// A clock to be set up where it stays.
    pub(super) const fn new() -> Self {
        Self {
            timer: Opaque::uninit(),
            work: Opaque::uninit(),
            expires_tsc: AtomicU64::new(STOPPED),
            start_in: AtomicU64::new(0),
            wake: AtomicBool::new(false),
            look: AtomicBool::new(false),
            looked_tsc: AtomicU64::new(0),
            registers_tsc: AtomicU64::new(0),
        }
    }

    /// Initialises the kernel's objects. The clock does not move afterwards.
    pub(super) fn set_up(&self) {
        // SAFETY: The timer is not in use, and does not move from now on.
        unsafe { sys::set_up_timer(self.timer.get()) };
        // Without IRQ_WORK_HARD_IRQ, because waking takes spin locks, which PREEMPT_RT would make sleep. Any other kernel
        // runs the work in a hard interrupt nonetheless.
        let work = bindings::irq_work { func: Some(on_work), ..Default::default() };
        // SAFETY: The work is not in use.
        unsafe { self.work.get().write(work) };
    }

    /// Ends timer and work. Nothing may start them any more.
    pub(super) fn shut_down(&self) {
        // SAFETY: `set_up` has initialised the work. Waits for a running handler.
        unsafe { bindings::irq_work_sync(self.work.get()) };
        // SAFETY: `set_up` has initialised the timer. Waits for a running handler.
        unsafe { bindings::hrtimer_cancel(self.timer.get()) };
        // SAFETY: As above. That handler may have queued the work once more, which does not start the timer again.
        unsafe { bindings::irq_work_sync(self.work.get()) };
        self.expires_tsc.store(STOPPED, Ordering::Relaxed);
        // The TSC may be set back before this runs again.
        self.looked_tsc.store(0, Ordering::Relaxed);
        self.registers_tsc.store(0, Ordering::Relaxed);
    }

    /// Makes sure that the timer expires within a quantum's longest time, in TSC ticks, after `now`, or as soon as readers may have to be
    /// woken; and that others' use of the PMU is looked for now where nobody has so long, because nothing was measured when the timer
    /// expired. On its CPU, from any context.
    pub(super) fn start(&self, now: u64, longest_quantum: u64) {
        if now.saturating_sub(self.looked_tsc.load(Ordering::Relaxed)) > longest_quantum {
            self.look_soon();
        }
        self.expire_within(now, longest_quantum.min(registry::wake_within()));
    }

    /// Makes sure that the timer expires soon after the turn ends of the session that has the PMU. On its CPU, from any context.
    pub(super) fn look_at_turns(&self, now: u64) {
        // Not by what [`turn_left`] is now, which shrinks faster than time passes, so that each switch would have it sooner.
        let latest = registry::slot_left(now) + registry::slot_tsc() / (EARLY - 1) + 1;
        if self.expires_tsc.load(Ordering::Relaxed) > now.saturating_add(latest) {
            self.expire_within(now, turn_left(now));
        }
    }

    fn expire_within(&self, now: u64, ticks: u64) {
        if self.expires_tsc.load(Ordering::Relaxed) > now.saturating_add(ticks) {
            let asked = self.start_in.load(Ordering::Relaxed);
            if asked == 0 || ticks < asked {
                self.start_in.store(ticks, Ordering::Relaxed);
            }
            self.queue();
        }
    }

    /// Has others' use of the PMU looked for. On its CPU, from any context.
    pub(super) fn look_soon(&self) {
        self.look.store(true, Ordering::Relaxed);
        self.queue();
    }

    /// Wakes the readers of every session that has published. On its CPU, from any context.
    pub(super) fn wake_readers(&self) {
        self.wake.store(true, Ordering::Relaxed);
        self.queue();
    }

    fn queue(&self) {
        // SAFETY: `set_up` has initialised the work; queueing is safe from the NMI and under the run-queue lock.
        unsafe { bindings::irq_work_queue(self.work.get()) };
    }

    /// Sets the timer. Not from the NMI or under the run-queue lock.
    fn arm(&self, ticks: u64) {
        let mode = bindings::hrtimer_mode_HRTIMER_MODE_REL_PINNED_HARD;
        let (soonest, early) = self.note_expiry(sys::rdtsc(), ticks);
        // SAFETY: `set_up` has initialised the timer.
        unsafe { bindings::hrtimer_start_range_ns(self.timer.get(), soonest as i64, early, mode) };
    }

    /// Notes that the timer is to expire so many TSC ticks after `now`: in how many ns at the soonest, and how many it may take more.
    fn note_expiry(&self, now: u64, ticks: u64) -> (u64, u64) {
        self.expires_tsc.store(now.saturating_add(ticks), Ordering::Relaxed);
        let ns = machine::tsc_to_ns(ticks).min(i64::MAX as u64);
        let early = ns / EARLY;
        (ns - early, early)
    }

    /// The timer has expired: whether it is to expire again, which it then has been told.
    fn expire(&self, cpu: &Cpu, irq: &LocalInterruptDisabled) -> bool {
        let now = sys::rdtsc();
        let Some(ticks) = self.tick(now, cpu, irq) else {
            self.expires_tsc.store(STOPPED, Ordering::Relaxed);
            return false;
        };
        let (soonest, early) = self.note_expiry(now, ticks);
        // SAFETY: `set_up` has set the timer up, and its callback runs.
        unsafe { sys::go_on_with_timer(self.timer.get(), soonest, early) };
        true
    }

    fn run_work(&self, cpu: &Cpu, irq: &LocalInterruptDisabled) {
        // Not where the switch asks for it, because giving up prints.
        if let (true, Some(session)) = (self.look.swap(false, Ordering::Relaxed), cpu.loaded()) {
            self.attend(sys::rdtsc(), cpu, session, irq, false);
        }
        if self.wake.swap(false, Ordering::Relaxed) {
            registry::wake_readers(irq);
        }
        let ticks = self.start_in.swap(0, Ordering::Relaxed);
        // It may have been set to a sooner time since that was asked for.
        let sooner = self.expires_tsc.load(Ordering::Relaxed) > sys::rdtsc().saturating_add(ticks);
        if ticks != 0 && sooner {
            self.arm(ticks);
        }
    }

    /// Cuts a quantum that has lasted long enough, and wakes readers; TSC ticks to the next call, or `None` when there is
    /// nothing to wait for.
    fn tick(&self, now: u64, cpu: &Cpu, irq: &LocalInterruptDisabled) -> Option<u64> {
        if cpu.takes_turns() {
            cpu.choose_again(irq);
        }
        let cut_in = cpu.running().map(|session| self.cut_if_long(now, cpu, session, irq));
        // It may have given up, and another one goes on.
        let cut_in = cut_in.and_then(|ticks| Some(ticks.min(cpu.longest_quantum(cpu.running()?))));
        let turn_in = if cpu.takes_turns() { turn_left(now) } else { u64::MAX };
        let wake_in = registry::news_since().map(|since| self.wake_if_late(now, since));
        let Some(cut_in) = cut_in else { return wake_in };
        // Readers rather wait for the quantum's end than have the CPU interrupted once more.
        let within = registry::wake_within();
        Some(cut_in.min(turn_in).min(wake_in.unwrap_or(u64::MAX).clamp(within / 2, within)))
    }

    /// TSC ticks until the quantum is to be cut, or the next one if this was. Others' use of the PMU is looked for however short the
    /// quanta are, which switches and PMIs end too.
    fn cut_if_long(&self, now: u64, cpu: &Cpu, session: &Session, irq: &LocalInterruptDisabled) -> u64 {
        let longest = cpu.longest_quantum(session);
        let left = longest.saturating_sub(cpu.quantum_age(now));
        let is_long = left <= longest / EARLY;
        self.attend(now, cpu, session, irq, is_long);
        if is_long {
            cpu.longest_quantum(session)
        } else {
            left
        }
    }

    /// Sees whether somebody else uses the PMU, for which the session that runs gives up and leaves this CPU; else cuts its quantum if that
    /// is wanted.
    fn attend(&self, now: u64, cpu: &Cpu, session: &Session, irq: &LocalInterruptDisabled, cut: bool) {
        self.looked_tsc.store(now, Ordering::Relaxed);
        let age = now.saturating_sub(self.registers_tsc.load(Ordering::Relaxed));
        let registers = age >= machine::ns_to_tsc(REGISTERS_NS);
        if registers {
            self.registers_tsc.store(now, Ordering::Relaxed);
        }
        let intruder = cpu.section(irq, |section| section.intruder(session, registers)).flatten();
        if let Some(reason) = intruder {
            session.give_up(reason);
            self.wake_readers();
        }
        if session.has_given_up() {
            owner::unload(cpu, session, irq);
        } else if cut {
            cpu.section(irq, |section| section.cut(QuantumEnd::Timer));
        }
    }

    /// TSC ticks until readers are to be woken of what was published at `since` first, or again if they are now.
    fn wake_if_late(&self, now: u64, since: u64) -> u64 {
        let age = now.saturating_sub(since);
        let within = registry::wake_within();
        if age < within - within / EARLY {
            return within - age;
        }
        // By the work, because a hard timer's handler must not take the locks that waking takes.
        self.wake_readers();
        within
    }
}

/// TSC ticks from `now` after which a turn is over, also if the timer comes early.
fn turn_left(now: u64) -> u64 {
    let left = registry::slot_left(now);
    left + left / (EARLY - 1) + 1
}

/// This CPU's timer has expired; whether it is to expire again. Not another's, which the kernel would have brought here from a CPU
/// that went offline.
#[no_mangle]
extern "C" fn hpm_on_timer(timer: *const bindings::hrtimer) -> bool {
    // SAFETY: A hard timer's handler runs with interrupts off.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    let own = |cpu: &&Cpu| timer == cpu.clock.timer.get();
    cpu::this_cpu(irq).filter(own).is_some_and(|cpu| cpu.clock.expire(cpu, irq))
}

unsafe extern "C" fn on_work(_work: *mut bindings::irq_work) {
    // SAFETY: Without PREEMPT_RT, for which hpm is not built, work that was queued on this CPU runs in its interrupt.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    if let Some(cpu) = cpu::this_cpu(irq) {
        cpu.clock.run_work(cpu, irq);
    }
}
