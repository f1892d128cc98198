// SPDX-License-Identifier: GPL-2.0
//! One CPU: its engine, who may use it when, and what runs on it.

mod section;

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use kernel::bindings;
use kernel::prelude::*;

pub(super) use self::section::Section;
use super::clock::{Clock, EARLY};
use super::entry_area::EntryArea;
use super::every_cpu::Plugged;
use super::interrupts::LocalInterruptDisabled;
use super::machine;
use super::port::LivePort;
use super::session::Session;
use super::sys;
use crate::hpm_abi::{Reason, SEGMENT_BYTES};
use crate::hpm_core::port::Port;
use crate::hpm_core::{acknowledge, Engine, Gate, Pmu, Refusal, THROTTLE_MS};

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
    /// The session of the thread that is being measured. Written by this CPU with interrupts off, never by its NMI.
    running: AtomicPtr<Session>,
    /// The thread that is being measured. Written as `running` is, before the scheduler has switched to it.
    tid: AtomicU32,
    /// The session that the engine names as loaded. Written as `running` is.
    loaded: AtomicPtr<Session>,
    /// A bit for the place in the registry of each session that waits for its turn with the thread that is being measured. Written as
    /// `running` is.
    waiting: AtomicU64,
    /// TSC up to which they have been told that they wait.
    waiting_since: AtomicU64,
    /// Counters may hold what a thread that was measured here has counted.
    exposed: AtomicBool,
    /// Counters run although no thread is measured ([`Engine::is_resting`]).
    resting: AtomicBool,
    /// Samples are withheld ([`Engine::is_throttled`]).
    throttled: AtomicBool,
    /// TSC when the running quantum began.
    begun_tsc: AtomicU64,
    /// TSC until which an NMI is taken for hpm's ([`Port::expect_pmi`]).
    expected_pmi: AtomicU64,
    /// Which of a session's programs it runs; set when the module is loaded, or the CPU comes online later.
    core: AtomicUsize,
    /// Its DS area and window; `None` where the processor has none, or somebody uses what it would have. Changes only as
    /// [`find_entry_areas`] says.
    area: UnsafeCell<Option<EntryArea>>,
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
        sys::find_perf()?;
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

/// Whether hpm holds the PMU of another logical processor of the core that runs.
pub(super) fn sibling_is_held() -> bool {
    sys::sibling(machine::this_cpu()).and_then(cpu).is_some_and(|cpu| cpu.held.load(Ordering::Relaxed))
}

/// Finds the DS area and window of every CPU that has none yet.
///
/// # Safety
/// No session is configured, or can be meanwhile, and no CPU's PMU is held: only who has either looks at them.
pub(super) unsafe fn find_entry_areas() {
    for number in (0..machine::cpu_count()).filter(|&number| machine::is_possible(number)) {
        let Some(cpu) = cpu(number).filter(|cpu| cpu.entry_area().is_none()) else { continue };
        // SAFETY: The caller's promise.
        unsafe { *cpu.area.get() = EntryArea::find(number).ok() };
    }
}

/// Bytes of the largest segments that every CPU has room for.
pub(super) fn window_bytes() -> u32 {
    let areas = (0..machine::cpu_count()).filter_map(cpu).filter_map(Cpu::entry_area);
    areas.map(EntryArea::bytes).min().unwrap_or(SEGMENT_BYTES)
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
            running: AtomicPtr::new(ptr::null_mut()),
            tid: AtomicU32::new(0),
            loaded: AtomicPtr::new(ptr::null_mut()),
            waiting: AtomicU64::new(0),
            waiting_since: AtomicU64::new(0),
            exposed: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            throttled: AtomicBool::new(false),
            begun_tsc: AtomicU64::new(0),
            expected_pmi: AtomicU64::new(0),
            core: AtomicUsize::new(0),
            area: UnsafeCell::new(None),
            inside: UnsafeCell::new(Inside { engine: Engine::new(number), lvtpc: 0 }),
            clock: Clock::new(),
        }
    }

    /// Which of a session's programs it runs: [`crate::hpm_core::Machine::place`].
    pub(super) fn core(&self) -> usize {
        self.core.load(Ordering::Relaxed)
    }

    /// Finds out which of a session's programs it runs.
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
            // After a sleep the TSC may be back where it began.
            self.expected_pmi.store(0, Ordering::Relaxed);
            section.inside.lvtpc = found;
            self.held.store(true, Ordering::Relaxed);
            sys::hold_perf(irq);
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// As [`Cpu::acquire`], if that has not been done.
    pub(super) fn acquire_if_missing(&self, irq: &LocalInterruptDisabled) -> Result<(), Refusal> {
        if self.held.load(Ordering::Relaxed) {
            Ok(())
        } else {
            self.acquire(irq)
        }
    }

    /// Whether a session may have branches recorded here. The PMU is held.
    pub(super) fn check_branches(&self, irq: &LocalInterruptDisabled) -> Result<(), Refusal> {
        let pmu = machine::pmu_of(self.core())?;
        self.section(irq, |section| {
            let (engine, mut port) = section.parts();
            engine.check_branches(&mut port, pmu)
        })
        .unwrap_or(Ok(()))
    }

    /// Whether instruction-based sampling can be used here. The PMU is held.
    pub(super) fn check_ibs(&self, irq: &LocalInterruptDisabled) -> Result<(), Refusal> {
        machine::check_ibs_interrupt(irq)?;
        self.section(irq, |section| {
            let (engine, mut port) = section.parts();
            engine.check_ibs(&mut port)
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
            let pmu = machine::pmu_of(self.core());
            sys::release_perf(pmu.ok().and_then(Pmu::starting_register), irq);
        });
    }

    /// Its DS area and window, once they have been found.
    pub(super) fn entry_area(&self) -> Option<&EntryArea> {
        // SAFETY: By the promise of `find_entry_areas` it changes only while nobody looks.
        unsafe { &*self.area.get() }.as_ref()
    }

    /// The session of the thread that is being measured here.
    pub(super) fn running(&self) -> Option<&Session> {
        // SAFETY: By the invariants.
        unsafe { self.running.load(Ordering::Relaxed).as_ref() }
    }

    /// The session whose events are programmed here.
    pub(super) fn loaded(&self) -> Option<&Session> {
        // SAFETY: By the invariants.
        unsafe { self.loaded.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether counters may hold what a thread that was measured here has counted.
    pub(super) fn is_exposed(&self) -> bool {
        self.exposed.load(Ordering::Relaxed)
    }

    /// Whether counters run although no thread is measured here.
    pub(super) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// Whether a thread of this session is being measured here.
    pub(super) fn is_running(&self, session: &Session) -> bool {
        ptr::eq(self.running.load(Ordering::Relaxed), session)
    }

    /// A bit for the place of each session that waits for its turn here.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether the session of the thread that is being measured has its turn, after which others have theirs.
    pub(super) fn takes_turns(&self) -> bool {
        self.waiting() != 0 && self.running().is_some_and(Session::is_shared)
    }

    /// The CPU's number.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// TSC ticks after which a quantum of this session is cut here: while samples are withheld, soon enough for them to come back.
    pub(super) fn longest_quantum(&self, session: &Session) -> u64 {
        let longest = session.longest_quantum();
        if !self.throttled.load(Ordering::Relaxed) {
            return longest;
        }
        let window = machine::ns_to_tsc(THROTTLE_MS * 1_000_000);
        // Over also if the timer comes early.
        longest.min(window + window / (EARLY - 1))
    }

    /// TSC ticks from the running quantum's beginning to `now`.
    pub(super) fn quantum_age(&self, now: u64) -> u64 {
        now.saturating_sub(self.begun_tsc.load(Ordering::Relaxed))
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
        self.resting.store(section.inside.engine.is_resting(), Ordering::Relaxed);
        // A PMI that was deferred interrupted this section, not what `regs` says.
        section.regs = ptr::null();
        let mut served = 0_u32;
        while !self.gate.leave() {
            served = served.saturating_add(1);
            section.service(served);
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
        let mut port = unsafe { LivePort::new(None, ptr::null(), Some(&self.expected_pmi), 0) };
        let ours = machine::pmu_of(self.core()).is_ok_and(|pmu| acknowledge(&mut port, pmu));
        if ours {
            self.gate.defer();
        }
        ours
    }
}
