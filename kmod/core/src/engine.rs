//! One CPU's PMU as threads of sessions come and go on it.
//!
//! Every call runs inside a section of the CPU's [`super::Gate`], with interrupts off.

use super::abi::QuantumEnd;
use super::port::{Port, Rings};
use super::session::{Session, Thread};
use super::{Pmu, Refusal};

/// One CPU's engine. The shell keeps one per possible CPU.
#[derive(Debug)]
pub struct Engine {
    cpu: u32,
}

impl Engine {
    /// The engine of a CPU whose PMU hpm does not hold.
    #[must_use]
    pub const fn new(cpu: u32) -> Self {
        Self { cpu }
    }

    /// Takes this CPU's PMU: remembers every register it will change and stops all counting. The caller has reserved
    /// the counters from the kernel's perf. Registers stay untouched when refused.
    ///
    /// # Errors
    /// [`super::abi::Reason::CountersRunning`] when a counter runs that nobody reserved.
    pub fn acquire<P: Port>(&mut self, _port: &mut P, _pmu: &Pmu) -> Result<(), Refusal> {
        let _ = self.cpu;
        todo!()
    }

    /// Gives this CPU's PMU back as [`Engine::acquire`] found it. No session may be loaded. Does nothing when not held.
    pub fn release<P: Port>(&mut self, _port: &mut P) {
        todo!()
    }

    /// The session whose events the PMU is programmed with, also while none of its threads runs: [`Engine::pmi`] and
    /// [`Engine::service`] want it.
    #[must_use]
    pub fn loaded(&self) -> Option<u64> {
        todo!()
    }

    /// The session and thread being measured now: [`Engine::switch_out`] and [`Engine::cut`] are for it.
    #[must_use]
    pub fn running(&self) -> Option<(u64, Thread)> {
        todo!()
    }

    /// A thread of the session starts to run on this CPU. The session is loaded if it is not yet; one that was loaded
    /// before is not told, and stays to be unloaded.
    pub fn switch_in<P: Port, R: Rings>(
        &mut self,
        _port: &mut P,
        _session: &mut Session<'_, R>,
        _thread: Thread,
    ) {
        todo!()
    }

    /// The running thread leaves this CPU: publishes its quantum. `last_ip` is its user instruction pointer, or 0.
    pub fn switch_out<P: Port, R: Rings>(
        &mut self,
        _port: &mut P,
        _session: &mut Session<'_, R>,
        _end: QuantumEnd,
        _last_ip: u64,
    ) {
        todo!()
    }

    /// Publishes the running quantum and lets the thread run on, in a new one: timer, flush, stop. Also the moment at
    /// which counters are read before they could wrap, and segments given back are seen. Nothing when no thread of
    /// this session runs.
    pub fn cut<P: Port, R: Rings>(
        &mut self,
        _port: &mut P,
        _session: &mut Session<'_, R>,
        _end: QuantumEnd,
        _last_ip: u64,
    ) {
        todo!()
    }

    /// The session leaves this CPU (it stops, or ends): afterwards no counter runs for it, and its segments are out of
    /// the window. To be called on every CPU; the caller has ended the running quantum with [`Engine::switch_out`].
    pub fn unload<P: Port, R: Rings>(&mut self, _port: &mut P, _session: &mut Session<'_, R>) {
        todo!()
    }

    /// An NMI has come: true when it was hpm's PMI, which is then acknowledged and LVTPC unmasked. `session` is the
    /// one that [`Engine::loaded`] names.
    pub fn pmi<P: Port, R: Rings>(
        &mut self,
        _port: &mut P,
        _session: Option<&mut Session<'_, R>>,
        _last_ip: u64,
    ) -> bool {
        todo!()
    }

    /// Does the work of a PMI that [`acknowledge`] has acknowledged inside a section.
    pub fn service<P: Port, R: Rings>(
        &mut self,
        _port: &mut P,
        _session: Option<&mut Session<'_, R>>,
        _last_ip: u64,
    ) {
        todo!()
    }
}

/// In an NMI that interrupted a section: true when the PMI is hpm's, which is then acknowledged and LVTPC unmasked.
/// Call only on a CPU whose PMU hpm holds.
pub fn acknowledge<P: Port>(_port: &mut P, _pmu: &Pmu) -> bool {
    todo!()
}
