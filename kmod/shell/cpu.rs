// SPDX-License-Identifier: GPL-2.0
//! One CPU: its engine, who may use it when, and what runs on it.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use kernel::bindings;
use kernel::interrupt::LocalInterruptDisabled;
use kernel::prelude::*;
use kernel::task::Task;

use super::clock::Clock;
use super::every_cpu::Plugged;
use super::port::LivePort;
use super::session::{Loaded, Session};
use super::sys::{self, EntryArea};
use super::target::current_tid;
use super::{machine, markers, registry};
use crate::hpm_abi::{self as abi, QuantumEnd, Reason};
use crate::hpm_core::markers::Mark;
use crate::hpm_core::port::Port;
use crate::hpm_core::{acknowledge, Engine, Gate, Refusal, Thread};

/// All CPUs, indexed by their number: set while the module is initialised, cleared when no entry point is left.
static CPUS: AtomicPtr<Cpu> = AtomicPtr::new(ptr::null_mut());

/// One CPU. Aligned so that two CPUs share no cache line.
///
/// # Invariants
///
/// `running` and `loaded` are null or point to a session that has not been unloaded from this CPU; a session is freed
/// only after it was unloaded from every CPU.
#[repr(align(128))]
pub(super) struct Cpu {
    number: u32,
    gate: Gate,
    /// Whether hpm holds this CPU's PMU.
    held: AtomicBool,
    /// The session that measures every thread here, or null. Written under the registry's lock; the rules of its places
    /// hold for this one too.
    everyone: AtomicPtr<Session>,
    /// The session of the thread that is being measured. Written by this CPU with interrupts off, never by its NMI.
    running: AtomicPtr<Session>,
    /// The session that the engine names as loaded. Written as `running` is.
    loaded: AtomicPtr<Session>,
    /// Counters may hold what a thread that was measured here has counted.
    exposed: AtomicBool,
    /// TSC when the running quantum began.
    begun_tsc: AtomicU64,
    /// The place of its core's type; set when the module is loaded, or the CPU comes online later.
    core: AtomicUsize,
    /// Its DS area and PEBS slots; `None` where the processor has none, or somebody uses them.
    area: Option<EntryArea>,
    inside: UnsafeCell<Inside>,
    /// Its timer and deferred work.
    pub(super) clock: Clock,
}

/// What only a section of the gate may touch.
struct Inside {
    engine: Engine,
    /// LVTPC as found.
    lvtpc: u32,
}

// SAFETY: What is not atomic is used by the CPU itself, inside sections of its gate.
unsafe impl Sync for Cpu {}
// SAFETY: As above.
unsafe impl Send for Cpu {}

/// Every CPU's state; freed with the module.
pub(super) struct Cpus(KVVec<Cpu>);

impl Cpus {
    /// Allocates one state per possible CPU number and makes them reachable from every entry point.
    pub(super) fn new() -> Result<Self> {
        let count = machine::cpu_count();
        let mut cpus = Self(KVVec::with_capacity(count as usize, GFP_KERNEL)?);
        for number in 0..count {
            cpus.0.push_within_capacity(Cpu::new(number)).map_err(|_| ENOMEM)?;
        }
        for cpu in &cpus.0 {
            cpu.clock.set_up();
        }
        CPUS.store(cpus.0.as_mut_ptr(), Ordering::Release);
        Plugged::hold().on_online(|cpu, irq| cpu.identify(irq));
        Ok(cpus)
    }
}

impl Drop for Cpus {
    fn drop(&mut self) {
        CPUS.store(ptr::null_mut(), Ordering::Release);
        for cpu in &self.0 {
            cpu.clock.shut_down();
        }
    }
}

/// The state of the CPU with this number.
pub(super) fn cpu(number: u32) -> Option<&'static Cpu> {
    let cpus = CPUS.load(Ordering::Acquire);
    if cpus.is_null() || number >= machine::cpu_count() {
        return None;
    }
    // SAFETY: There is one state per CPU number, freed only when the module has no entry point left.
    Some(unsafe { &*cpus.add(number as usize) })
}

/// The state of the CPU that runs.
pub(super) fn this_cpu(_irq: &LocalInterruptDisabled) -> Option<&'static Cpu> {
    cpu(machine::this_cpu())
}

/// Ends every CPU's timer and deferred work. Nothing may start them meanwhile.
pub(super) fn stop_clocks() {
    for cpu in (0..machine::cpu_count()).filter_map(cpu) {
        cpu.clock.shut_down();
    }
}

impl Cpu {
    fn new(number: u32) -> Self {
        Self {
            number,
            gate: Gate::new(),
            held: AtomicBool::new(false),
            everyone: AtomicPtr::new(ptr::null_mut()),
            running: AtomicPtr::new(ptr::null_mut()),
            loaded: AtomicPtr::new(ptr::null_mut()),
            exposed: AtomicBool::new(false),
            begun_tsc: AtomicU64::new(0),
            core: AtomicUsize::new(0),
            area: if machine::is_possible(number) { EntryArea::find(number).ok() } else { None },
            inside: UnsafeCell::new(Inside { engine: Engine::new(number), lvtpc: 0 }),
            clock: Clock::new(),
        }
    }

    /// The place of its core's type among [`crate::hpm_core::hybrid::CORE_TYPES`].
    pub(super) fn core(&self) -> usize {
        self.core.load(Ordering::Relaxed)
    }

    /// Finds out of which type its core is.
    pub(super) fn identify(&self, irq: &LocalInterruptDisabled) {
        self.core.store(machine::identify(irq), Ordering::Relaxed);
    }

    /// Takes this CPU's PMU. Its registers stay untouched when refused.
    pub(super) fn acquire(&self, irq: &LocalInterruptDisabled) -> Result<(), Refusal> {
        self.identify(irq);
        let pmu = machine::pmu_of(self.core())?;
        if machine::processor_trace_runs() {
            return Err(Refusal::new(Reason::IntelPt, [self.number.into(), 0]));
        }
        self.enter(irq, ptr::null(), |section| {
            let (engine, mut port) = section.parts();
            engine.acquire(&mut port, pmu)?;
            let found = sys::lvtpc();
            port.unmask_pmi();
            section.inside.lvtpc = found;
            self.held.store(true, Ordering::Relaxed);
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// Gives this CPU's PMU back as it was found. No session is loaded. Nothing when it is not held.
    pub(super) fn release(&self, irq: &LocalInterruptDisabled) {
        self.section(irq, |section| {
            let (engine, mut port) = section.parts();
            engine.release(&mut port);
            // SAFETY: hpm holds the PMU until the next line.
            unsafe { sys::set_lvtpc(section.inside.lvtpc) };
            self.held.store(false, Ordering::Relaxed);
        });
    }

    /// Whether this CPU has a DS area and free PEBS slots.
    pub(super) fn has_entry_area(&self) -> bool {
        self.area.is_some()
    }

    /// The session that measures every thread here.
    pub(super) fn everyone<'a>(&self, irq: &'a LocalInterruptDisabled) -> Option<&'a Session> {
        registry::at(&self.everyone, irq)
    }

    /// Sets [`Self::everyone`]. For the registry.
    pub(super) fn set_everyone(&self, session: *mut Session) {
        self.everyone.store(session, Ordering::Release);
    }

    /// The session of the thread that is being measured here.
    pub(super) fn running(&self) -> Option<&Session> {
        // SAFETY: By the invariants.
        unsafe { self.running.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether counters may hold what a thread that was measured here has counted.
    pub(super) fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }

    /// Whether a thread of this session is being measured here.
    pub(super) fn is_running(&self, session: &Session) -> bool {
        ptr::eq(self.running.load(Ordering::Relaxed), session)
    }

    /// The CPU's number.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// TSC ticks since the running quantum began.
    pub(super) fn quantum_age(&self) -> u64 {
        sys::rdtsc().saturating_sub(self.begun_tsc.load(Ordering::Relaxed))
    }

    /// Runs `f` with this CPU's engine, unless hpm does not hold the PMU. Call on this CPU, not from its NMI.
    pub(super) fn section<T>(
        &self,
        irq: &LocalInterruptDisabled,
        f: impl FnOnce(&mut Section<'_>) -> T,
    ) -> Option<T> {
        if !self.held.load(Ordering::Relaxed) {
            return None;
        }
        self.enter(irq, ptr::null(), f)
    }

    /// Runs `f` in a section of the gate; `None` when the caller is an NMI that interrupted another. `regs` is what that NMI
    /// interrupted, or null.
    fn enter<T>(
        &self,
        _irq: &LocalInterruptDisabled,
        regs: *const bindings::pt_regs,
        f: impl FnOnce(&mut Section<'_>) -> T,
    ) -> Option<T> {
        if !self.gate.enter() {
            return None;
        }
        // SAFETY: The gate keeps every other section of this CPU out, and no other CPU uses `inside`.
        let inside = unsafe { &mut *self.inside.get() };
        let mut section = Section { cpu: self, inside, regs };
        let value = f(&mut section);
        // A PMI that was deferred interrupted this section, not what `regs` says.
        section.regs = ptr::null();
        while !self.gate.leave() {
            section.service();
        }
        Some(value)
    }

    /// Handles an NMI; whether it was hpm's.
    ///
    /// # Safety
    /// Called from this CPU's NMI, which interrupted `regs`.
    pub(super) unsafe fn nmi(&self, irq: &LocalInterruptDisabled, regs: *const bindings::pt_regs) -> bool {
        if !self.held.load(Ordering::Relaxed) {
            return false;
        }
        if let Some(handled) = self.enter(irq, regs, |section| section.pmi()) {
            return handled;
        }
        // SAFETY: An NMI stays on its CPU, whose PMU hpm holds.
        let mut port = unsafe { LivePort::new(None, ptr::null()) };
        let ours = acknowledge(&mut port);
        if ours {
            self.gate.defer();
        }
        ours
    }
}

/// A section of one CPU's gate.
pub(super) struct Section<'a> {
    cpu: &'a Cpu,
    inside: &'a mut Inside,
    /// What the NMI that runs has interrupted; null outside one.
    regs: *const bindings::pt_regs,
}

impl Section<'_> {
    /// A thread of the session starts to run.
    pub(super) fn switch_in(&mut self, session: &Session, thread: Thread) {
        let entered = self.with(session, |engine, port, session| engine.switch_in(port, session, thread));
        if entered.is_some() {
            let place = ptr::from_ref(session).cast_mut();
            self.cpu.loaded.store(place, Ordering::Relaxed);
            self.cpu.running.store(place, Ordering::Relaxed);
            self.cpu.exposed.store(true, Ordering::Relaxed);
            let now = self.begin_quantum();
            self.cpu.clock.start(now, session.longest_quantum());
        }
    }

    /// The thread that is being measured, if there is one, leaves.
    pub(super) fn switch_out(&mut self, end: QuantumEnd) {
        let Some(session) = self.cpu.running() else { return };
        self.take_markers();
        let last_ip = current_user_ip();
        self.with(session, |engine, port, session| engine.switch_out(port, session, end, last_ip));
        self.cpu.running.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// The thread that is being measured leaves, and the next one of the same session starts to run.
    pub(super) fn switch_over(&mut self, end: QuantumEnd, session: &Session, next: Thread) {
        self.take_markers();
        let ending = (end, current_user_ip());
        self.with(session, |engine, port, session| engine.switch_over(port, session, ending, next));
        self.begin_quantum();
    }

    /// Ends the running quantum, if there is one; its thread runs on in a new one.
    pub(super) fn cut(&mut self, end: QuantumEnd) {
        let Some(session) = self.cpu.running() else { return };
        self.take_markers();
        let last_ip = current_user_ip();
        self.with(session, |engine, port, session| engine.cut(port, session, end, last_ip));
        self.begin_quantum();
    }

    /// The current thread sets a marker; whether a session keeps it.
    pub(super) fn mark(&mut self, mark: &abi::Mark) -> bool {
        // Those that wait in its page are older.
        self.take_markers();
        let mark = Mark { tsc: None, value: mark.value, name: mark.name };
        let Some(session) = self.cpu.running() else { return false };
        self.with(session, |engine, port, session| engine.mark(port, session, &mark)).unwrap_or(false)
    }

    /// Keeps the markers that wait in the current thread's page. To be called before its quantum ends, so that their
    /// times lie in it.
    fn take_markers(&mut self) {
        let Some(session) = self.cpu.running().filter(|session| session.keeps_markers()) else { return };
        // SAFETY: Sections run with interrupts off.
        let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
        let Some(waiting) = markers::waiting(current_tid(), irq) else { return };
        self.with(session, |engine, port, session| {
            session.state.lose_markers(waiting.pending.lost);
            waiting.take(|mark| {
                engine.mark(port, session, mark);
            });
        });
    }

    /// Why the session that runs must give up: somebody else has begun to use the PMU, or to run guests.
    pub(super) fn intruder(&mut self, session: &Session) -> Option<Reason> {
        if session.samples() && sys::in_vmx() {
            return Some(Reason::Virtualisation);
        }
        if machine::processor_trace_runs() {
            return Some(Reason::IntelPt);
        }
        let (engine, mut port) = self.parts();
        engine.foreign_global_ctrl(&mut port).map(|_| Reason::CountersRunning)
    }

    /// Brings a thread's counter page up to date if it is the one being measured.
    pub(super) fn refresh(&mut self, session: &Session, tid: u32) {
        let last_ip = current_user_ip();
        self.with(session, |engine, port, session| engine.refresh(port, session, tid, last_ip));
    }

    /// Leaves nothing in the counters for a thread that may read them. No thread is being measured.
    pub(super) fn conceal(&mut self) {
        let (engine, mut port) = self.parts();
        engine.conceal(&mut port);
        self.cpu.exposed.store(false, Ordering::Relaxed);
    }

    /// The session leaves this CPU.
    pub(super) fn unload(&mut self, session: &Session) {
        if self.cpu.is_running(session) {
            self.switch_out(QuantumEnd::Flush);
        }
        self.with(session, |engine, port, session| engine.unload(port, session));
        if ptr::eq(self.cpu.loaded.load(Ordering::Relaxed), session) {
            self.cpu.loaded.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// An NMI has come: whether it was hpm's.
    fn pmi(&mut self) -> bool {
        self.take_markers();
        let last_ip = current_user_ip();
        let handled = self.with_loaded(|engine, port, session| engine.pmi(port, session, last_ip));
        if handled {
            self.begin_quantum();
        }
        handled
    }

    /// Does the work of a PMI that came inside this section.
    fn service(&mut self) {
        self.take_markers();
        let last_ip = current_user_ip();
        self.with_loaded(|engine, port, session| engine.service(port, session, last_ip));
        self.begin_quantum();
    }

    fn begin_quantum(&self) -> u64 {
        let now = sys::rdtsc();
        self.cpu.begun_tsc.store(now, Ordering::Relaxed);
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
        // SAFETY: By the invariants of `Cpu`.
        let loaded = unsafe { self.cpu.loaded.load(Ordering::Relaxed).as_ref() };
        self.with_optional(loaded, f)
    }

    fn with_optional<T>(
        &mut self,
        session: Option<&Session>,
        f: impl FnOnce(&mut Engine, &mut LivePort<'_>, Option<&mut Loaded<'_, '_>>) -> T,
    ) -> T {
        let cpu = self.cpu;
        let (engine, mut port) = self.parts();
        // SAFETY: This section holds the gate of the CPU that runs.
        let share = session.and_then(|session| unsafe { session.share(cpu.number, cpu.core(), cpu.area.as_ref()) });
        let Some(mut share) = share else { return f(engine, &mut port, None) };
        let value = f(engine, &mut port, Some(&mut share.loaded()));
        if share.announce() {
            cpu.clock.wake_readers();
        }
        value
    }

    fn parts(&mut self) -> (&mut Engine, LivePort<'_>) {
        // SAFETY: Sections run on their CPU with interrupts off, while hpm holds its PMU or is about to.
        (&mut self.inside.engine, unsafe { LivePort::new(self.cpu.area.as_ref(), self.regs) })
    }
}

/// User instruction pointer of the current thread, or 0.
fn current_user_ip() -> u64 {
    // SAFETY: The argument is the current task.
    unsafe { sys::user_ip(Task::current_raw()) }
}
