// SPDX-License-Identifier: GPL-2.0
//! Taking the PMU from the kernel, and giving it back as it was found.

use core::sync::atomic::{AtomicBool, Ordering};

use kernel::pr_info_once;
use kernel::prelude::*;

use super::cpu::Cpu;
use super::every_cpu::Plugged;
use super::interrupts::{local_interrupt_disable, LocalInterruptDisabled};
use super::session::Session;
use super::{cpu, limits, machine, markers, registry, sys};
use crate::hpm_abi::{Info, InfoFlags, Reason};
use crate::hpm_core::{Pmu, Refusal};

/// The CPUs' PMUs shall be hpm's. Changed with CPU hotplug at rest, read by its callbacks.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Who uses the PMU.
pub(super) struct Owner {
    /// Configured sessions.
    sessions: u32,
    /// The machine sleeps, or is going down: no CPU's PMU may be taken.
    asleep: bool,
}

impl Owner {
    /// Nobody.
    pub(super) const fn new() -> Self {
        Self { sessions: 0, asleep: false }
    }

    /// Checks that another session may be configured.
    pub(super) fn check_room(&self) -> Result<(), Refusal> {
        limits::check_sessions(self.sessions)
    }

    /// Whether no session can be configured because the machine is going down (nobody can ask for one while it sleeps). A PMU that were taken
    /// now would not be given back.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep
    }

    /// Before a session is made: finds the CPUs' windows that have not been found yet.
    ///
    /// # Errors
    /// [`Reason::CountersReserved`] while somebody still holds counters, and may use them, [`Reason::Virtualisation`] while guests may.
    pub(super) fn prepare(&self) -> Result<(), Refusal> {
        if self.sessions > 0 {
            return Ok(());
        }
        let pmu = machine::pmu()?;
        if sys::perf_is_mediated() {
            return Err(Refusal::new(Reason::Virtualisation, [1, 0]));
        }
        reserve_alone(pmu)?;
        // SAFETY: No session is configured, and by the lock on this none will be meanwhile; no CPU's PMU is held.
        unsafe { cpu::find_entry_areas() };
        release(pmu);
        Ok(())
    }

    /// A session is configured: the first one takes the PMU.
    ///
    /// # Errors
    /// Why the PMU, or branch records or IBS that it wants, cannot be had; nothing is changed then.
    pub(super) fn add_session(&mut self, session: &Session) -> Result<(), Refusal> {
        if self.sessions == 0 {
            take(machine::pmu()?)?;
        }
        self.sessions += 1;
        let checked = self.complete(session, &Plugged::hold());
        checked.inspect_err(|_| self.remove_session())
    }

    /// Takes the PMUs that could not be had back after a suspend, or when a CPU came online, or were left to somebody else, and sees whether
    /// the session can measure everywhere. It begins before CPU hotplug goes on, so that it gives up, too, if the next one cannot be had.
    ///
    /// # Errors
    /// Why it cannot: it would miss what runs there.
    pub(super) fn complete(&self, session: &Session, plugged: &Plugged) -> Result<(), Refusal> {
        if self.asleep {
            return Ok(());
        }
        if !ACTIVE.load(Ordering::Relaxed) {
            enter_cpus(plugged)?;
        }
        check_cpus(plugged, |cpu, irq| {
            cpu.acquire_if_missing(irq)?;
            check_session(cpu, session, irq)
        })
    }

    /// A session that was added ends: the last one gives the PMU back.
    pub(super) fn remove_session(&mut self) {
        self.sessions = self.sessions.saturating_sub(1);
        if let (0, Ok(pmu)) = (self.sessions, machine::pmu()) {
            give_back(pmu);
        }
    }

    /// Fills in who holds the PMU.
    pub(super) fn describe(&self, info: &mut Info) {
        if self.sessions > 0 {
            info.flags |= InfoFlags::HELD_BY_HPM;
        } else if let Ok(pmu) = machine::pmu() {
            match reserve(pmu) {
                Ok(()) => release(pmu),
                Err(_) => info.flags |= InfoFlags::HELD_BY_OTHERS,
            }
        }
    }

    /// The machine sleeps, or is going down: the CPUs' PMUs are as they were found, and stay so.
    pub(super) fn suspend(&mut self) {
        self.asleep = true;
        if self.sessions > 0 {
            leave_cpus();
        }
    }

    /// The machine runs again.
    pub(super) fn resume(&mut self) {
        self.asleep = false;
        if self.sessions == 0 {
            return;
        }
        if let Err(refusal) = enter_cpus(&Plugged::hold()) {
            pr_warn!("the PMU cannot be had back after suspend ({:?})\n", refusal.reason);
            let irq = local_interrupt_disable();
            registry::sessions(&irq).for_each(|session| session.give_up(refusal.reason));
            registry::wake_readers(&irq);
        }
    }
}

fn take(pmu: &Pmu) -> Result<(), Refusal> {
    reserve_alone(pmu)?;
    // From now on perf has no events that could leave new ones.
    let plugged = Plugged::hold();
    (0..machine::cpu_count()).filter(|&number| machine::is_online(number)).for_each(sys::zero_leftovers);
    drop(plugged);
    let taken = hook().and_then(|()| {
        // Its own statement: the kernel takes the lock on CPU hotplug while it holds that on tracepoints, and so nobody may hold the first
        // while probes are unregistered.
        let entered = enter_cpus(&Plugged::hold());
        entered.inspect_err(|_| unhook())
    });
    if taken.is_err() {
        release(pmu);
        return taken;
    }
    // Once, because a user may do it in a loop.
    pr_info_once!(
        "took the PMU ({}, {} general and {} fixed counters) from the kernel's perf, which reports busy meanwhile\n",
        pmu.generation.name,
        pmu.perfmon.general.count_ones(),
        pmu.perfmon.fixed.count_ones()
    );
    Ok(())
}

fn give_back(pmu: &Pmu) {
    leave_cpus();
    unhook();
    release(pmu);
    pr_info_once!("gave the PMU back to the kernel's perf\n");
}

fn reserve(pmu: &Pmu) -> Result<(), Refusal> {
    for (place, (counter, select)) in pmu.reservation().enumerate() {
        if let Err(register) = sys::reserve(counter, select) {
            for (counter, select) in pmu.reservation().take(place) {
                // SAFETY: Reserved by an earlier turn of the loop.
                unsafe { sys::release(counter, select) };
            }
            return Err(Refusal::new(Reason::CountersReserved, [register.into(), 0]));
        }
    }
    Ok(())
}

/// The version of architectural performance monitoring from which Linux knows the counters by other addresses (6.11 on:
/// `MSR_IA32_PMC_V6_GP0_CTR`), of which its table of reservations has none: perf is not kept out there. What it runs is found when the
/// CPUs are taken, and what it begins later at a look for others.
const NOT_RESERVED_SINCE: u32 = 6;

/// As [`reserve`], and perf has done with what it had: it gives up its counters before it clears the PEBS slots.
fn reserve_alone(pmu: &Pmu) -> Result<(), Refusal> {
    reserve(pmu)?;
    if sys::perf_is_out() || pmu.perfmon.version >= NOT_RESERVED_SINCE {
        return Ok(());
    }
    release(pmu);
    Err(Refusal::new(Reason::CountersReserved, [0; 2]))
}

fn release(pmu: &Pmu) {
    for (counter, select) in pmu.reservation() {
        // SAFETY: `reserve` has reserved all of them.
        unsafe { sys::release(counter, select) };
    }
}

fn hook() -> Result<(), Refusal> {
    let missing = |_| Refusal::new(Reason::NoTracepoint, [0; 2]);
    let no_memory = |_| Refusal::new(Reason::NoMemory, [0; 2]);
    sys::find_probes().map_err(missing)?;
    sys::register_nmi().map_err(no_memory)?;
    sys::register_probes().map_err(|error| {
        sys::unregister_nmi();
        no_memory(error)
    })?;
    sys::divert_perf();
    markers::forget_gone();
    Ok(())
}

fn unhook() {
    sys::restore_perf();
    sys::unregister_probes();
    sys::unregister_nmi();
}

/// Takes every online CPU's PMU, or none.
fn enter_cpus(plugged: &Plugged) -> Result<(), Refusal> {
    let mut refused = None;
    plugged.on_online(|cpu, irq| {
        if refused.is_none() {
            refused = cpu.acquire(irq).err();
        }
    });
    if let Some(refusal) = refused {
        // After a suspend there are sessions, for which the others may have begun to measure.
        plugged.on_online(leave);
        stop_clocks();
        return Err(refusal);
    }
    ACTIVE.store(true, Ordering::Relaxed);
    plugged.on_online(|cpu, irq| cpu.start_current(irq));
    Ok(())
}

/// Whether the session can be measured on this CPU, if threads of its may run there. The PMU is held.
fn check_session(cpu: &Cpu, session: &Session, irq: &LocalInterruptDisabled) -> Result<(), Refusal> {
    if !session.may_run_on(cpu.number()) {
        return Ok(());
    }
    session.check_place(cpu.core())?;
    if session.records_branches() {
        cpu.check_branches(irq)?;
    }
    if session.uses_ibs() {
        cpu.check_ibs(irq)?;
    }
    Ok(())
}

/// Whether `check` passes on every online CPU.
fn check_cpus(
    plugged: &Plugged,
    check: impl Fn(&Cpu, &LocalInterruptDisabled) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut checked = Ok(());
    plugged.on_online(|cpu, irq| {
        if checked.is_ok() {
            checked = check(cpu, irq);
        }
    });
    checked
}

/// Gives back every online CPU's PMU.
fn leave_cpus() {
    let plugged = Plugged::hold();
    ACTIVE.store(false, Ordering::Relaxed);
    plugged.on_online(leave);
    stop_clocks();
}

/// Ends every CPU's clock, which would have woken the readers of what was published last.
fn stop_clocks() {
    cpu::stop_clocks();
    registry::wake_readers(&local_interrupt_disable());
}

/// Ends what this CPU does for any session, and gives its PMU back.
fn leave(cpu: &Cpu, irq: &LocalInterruptDisabled) {
    for session in registry::sessions(irq) {
        cpu.section(irq, |section| section.unload(session));
    }
    cpu.release(irq);
}

/// This CPU has come online.
pub(super) fn cpu_online(number: u32) {
    // It was not there when that was done everywhere ([`take`]), or will not be.
    sys::zero_leftovers_here();
    let irq = local_interrupt_disable();
    let Some(cpu) = cpu::this_cpu(&irq) else { return };
    if !ACTIVE.load(Ordering::Relaxed) {
        // It may have been offline when the module was loaded.
        return cpu.identify(&irq);
    }
    if let Err(refusal) = cpu.acquire(&irq) {
        pr_warn!("the PMU of CPU {} cannot be had ({:?})\n", number, refusal.reason);
        give_up(cpu, refusal.reason, &irq);
    } else {
        for session in registry::sessions(&irq) {
            if let Err(refusal) = check_session(cpu, session, &irq) {
                session.give_up(refusal.reason);
            }
        }
    }
    registry::wake_readers(&irq);
}

/// Sessions give up for which this CPU is one where nothing is measured, although it should be. Their readers are to be woken.
fn give_up(cpu: &Cpu, reason: Reason, irq: &LocalInterruptDisabled) {
    let concerned = registry::sessions(irq).filter(|session| session.may_run_on(cpu.number()));
    concerned.for_each(|session| session.give_up(reason));
}

/// The session leaves this CPU, to one that has waited for it if there is one. If somebody else counts there, its PMU is left to him, and all
/// sessions give up that it concerns.
pub(super) fn unload(cpu: &Cpu, session: &Session, irq: &LocalInterruptDisabled) {
    if cpu.section(irq, |section| section.unload(session)) == Some(true) {
        give_up(cpu, Reason::CountersRunning, irq);
        leave(cpu, irq);
        cpu.clock.wake_readers();
    } else {
        cpu.choose_again(irq);
    }
}

/// This CPU is about to go offline: only its own kernel threads run here any more.
pub(super) fn cpu_offline(number: u32) {
    let irq = local_interrupt_disable();
    if let Some(cpu) = cpu::this_cpu(&irq) {
        leave(cpu, &irq);
    }
    drop(irq);
    if let Some(cpu) = cpu::cpu(number) {
        cpu.clock.shut_down();
    }
    // What was published last, whose reader the clock would have woken.
    registry::wake_readers(&local_interrupt_disable());
}
