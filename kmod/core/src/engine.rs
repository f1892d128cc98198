//! One CPU's PMU as threads of sessions come and go on it.
//!
//! Every call runs inside a section of the CPU's [`super::Gate`], with interrupts off.
//!
//! A session that only counts leaves its counters running: a switch reads them and writes nothing. A session that
//! samples stops the PMU at each switch, because the position of a sampling counter belongs to a thread: GLOBAL_CTRL = 0,
//! publish; then PEBS_ENABLE = 0, positions, PEBS_ENABLE, GLOBAL_CTRL for the next one. A thread that comes back before another one was
//! measured finds everything there. The counters' freezing by IA32_DEBUGCTL is not used: the kernel writes that register for its own
//! purposes.
//!
//! Counters that stand still in the kernel ([`super::Program::rests_in_kernel`]) need not be stopped to be looked at: they are before user code
//! of others runs, and before anything is changed that they go by but the threshold, which hardware reads when it has written a record.

mod arming;
mod others;
mod pmi;
mod stays;

use super::abi::{QuantumEnd, Reason};
use super::allocate::COUNTERS_MAX;
use super::counters::Now;
use super::guard::Guard;
use super::hardware::Hardware;
use super::lbr::LastBranches;
use super::markers::{Mark, Stretch};
use super::meter::Meter;
use super::port::{Port, Rings};
use super::quantum::{Ending, Stay};
use super::session::{Session, Thread};
use super::{Pmu, Refusal};

/// One CPU's engine. The shell keeps one per possible CPU.
#[derive(Debug)]
pub struct Engine {
    cpu: u32,
    /// The session whose events are programmed, and the number of the turn that they are of.
    loaded: Option<(u64, u8)>,
    stay: Option<Stay>,
    /// No thread is measured, and the counters of the last one run on, because no code runs that they would count.
    resting: bool,
    branches: LastBranches,
    unit: Unit,
}

/// A CPU's PMU as a stay is made ready and looked at with it. Apart from the engine, whose stay would have to be moved out and in
/// again at each cut otherwise.
#[derive(Debug)]
struct Unit {
    hardware: Option<Hardware>,
    /// The session and segment that lie in the window, which the DS area describes.
    window: Option<(u64, u64)>,
    /// Where in that segment hardware raises a PMI.
    threshold: Option<Threshold>,
    /// Whose position the sampling counter holds, while no thread is measured.
    held: Option<Held>,
    guard: Guard,
    /// Each counter's value when it was last read or written.
    values: [u64; COUNTERS_MAX],
    /// How often it was looked whether somebody else uses the PMU.
    looks: u32,
    /// Somebody else has, and nobody's counts are to be believed until the PMU is given back.
    intruded: bool,
}

/// From which byte of a segment on hardware raises a PMI.
#[derive(Clone, Copy, Debug)]
struct Threshold {
    at: u32,
    /// It is good enough while less than so many bytes are filled.
    good_to: u32,
}

/// The position of a thread that has left the CPU, in the counter that writes its records: if it comes back before another one is
/// measured, it goes on there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    session: u64,
    turn: u8,
    tid: u32,
    left: i64,
}

impl Engine {
    /// The engine of a CPU whose PMU hpm does not hold.
    #[must_use]
    pub const fn new(cpu: u32) -> Self {
        Self {
            cpu,
            loaded: None,
            stay: None,
            resting: false,
            branches: LastBranches::new(),
            unit: Unit {
                hardware: None,
                window: None,
                threshold: None,
                held: None,
                guard: Guard::new(),
                values: [0; COUNTERS_MAX],
                looks: 0,
                intruded: false,
            },
        }
    }

    /// Takes this CPU's PMU: remembers every register it will change and stops all counting. The caller has reserved
    /// the counters from the kernel's perf. Registers stay untouched when refused.
    ///
    /// # Errors
    /// [`super::abi::Reason::CountersRunning`] when a counter runs that nobody reserved.
    pub fn acquire<P: Port>(&mut self, port: &mut P, pmu: &Pmu) -> Result<(), Refusal> {
        if self.unit.hardware.is_none() {
            let hardware = self.unit.hardware.insert(Hardware::idle(pmu));
            if let Err(refusal) = hardware.acquire(port) {
                self.unit.hardware = None;
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Gives this CPU's PMU back as [`Engine::acquire`] found it. Every session has been unloaded. Does nothing when the
    /// PMU is not held.
    pub fn release<P: Port>(&mut self, port: &mut P) {
        self.branches.release(port);
        if let Some(hardware) = &mut self.unit.hardware {
            hardware.release(port);
            (self.unit.hardware, self.unit.intruded) = (None, false);
        }
        (self.loaded, self.unit.window, self.stay) = (None, None, None);
        (self.resting, self.unit.held) = (false, None);
    }

    /// Whether a session may have branches recorded on this CPU, whose PMU is this one and held.
    ///
    /// # Errors
    /// [`super::abi::Reason::BranchesRunning`] when somebody else has.
    pub fn check_branches<P: Port>(&self, port: &mut P, pmu: &Pmu) -> Result<(), Refusal> {
        self.branches.check_idle(port, pmu)
    }

    /// Whether a session may sample with IBS on this CPU, whose PMU is held; from now on it is hpm's too.
    ///
    /// # Errors
    /// [`super::abi::Reason::CountersRunning`] when somebody else does, or [`super::abi::Reason::NoIbs`].
    pub fn check_ibs<P: Port>(&mut self, port: &mut P) -> Result<(), Refusal> {
        let Some(hardware) = &mut self.unit.hardware else { return Ok(()) };
        hardware.ibs_mut().map_or(Err(Refusal::new(Reason::NoIbs, [0; 2])), |ibs| ibs.hold(port))
    }

    /// The running thread has replaced its program: branches and calls of the old one are forgotten. Nothing when no
    /// thread of this session runs, or none are recorded.
    pub fn restart_branches<P: Port, R: Rings>(&mut self, port: &mut P, session: &mut Session<'_, R>) {
        if session.program.records_branches() && self.measures(session) {
            self.branches.restart(port);
        }
    }

    /// The session whose events the PMU is programmed with, also while none of its threads runs: [`Engine::pmi`] and
    /// [`Engine::service`] want it.
    #[must_use]
    pub fn loaded(&self) -> Option<u64> {
        self.loaded.map(|(session, _)| session)
    }

    /// The session and thread being measured now: [`Engine::switch_out`] and [`Engine::cut`] are for it.
    #[must_use]
    pub fn running(&self) -> Option<(u64, Thread)> {
        self.stay.as_ref().map(|stay| (stay.session, stay.thread))
    }

    /// Whether samples of the thread that is being measured are withheld: until the first [`Engine::cut`] after the window of the ceilings
    /// is over, of [`super::THROTTLE_MS`].
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.stay.as_ref().is_some_and(|stay| stay.throttled)
    }

    /// TSC at which the running quantum began; `None` while no thread is measured.
    #[must_use]
    pub fn quantum_start(&self) -> Option<u64> {
        self.stay.as_ref().map(|stay| stay.start_tsc)
    }

    /// A thread of the session starts to run on this CPU. The session is loaded if it is not yet; one that was loaded
    /// before is not told, and stays to be unloaded. Nothing when the PMU is not held.
    pub fn switch_in<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        thread: Thread,
    ) {
        let mut meter = Meter::new(port);
        self.begin(&mut meter, session, thread, false);
        meter.charge(&mut session.state.totals);
    }

    /// The running thread leaves this CPU: publishes its quantum. `last_ip` is its user instruction pointer, or 0.
    /// Nothing when no thread of this session runs.
    pub fn switch_out<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        end: QuantumEnd,
        last_ip: u64,
    ) {
        self.leave(port, session, Ending { end, last_ip }, false);
    }

    /// [`Engine::switch_out`] before a thread that never leaves the kernel, as the idle one: counters that stand still there run on
    /// ([`Engine::is_resting`]). Before any other thread [`Engine::switch_in`] or [`Engine::settle`] is to be called.
    pub fn step_aside<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        end: QuantumEnd,
        last_ip: u64,
    ) {
        self.leave(port, session, Ending { end, last_ip }, true);
    }

    fn leave<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        ending: Ending,
        aside: bool,
    ) {
        let mut meter = Meter::new(port);
        self.end(&mut meter, session, ending, aside);
        meter.charge(&mut session.state.totals);
    }

    /// Whether counters run although no thread is measured, since [`Engine::step_aside`].
    #[must_use]
    pub const fn is_resting(&self) -> bool {
        self.resting
    }

    /// A thread comes that is not measured and may run in user mode: stops what [`Engine::step_aside`] has left running.
    pub fn settle<P: Port>(&mut self, port: &mut P) {
        if let (Some(hardware), true) = (&mut self.unit.hardware, self.resting) {
            hardware.set_global_ctrl(port, 0);
        }
        self.resting = false;
    }

    /// A guest of a hypervisor's is about to be entered, and no thread is measured. As [`Engine::settle`], and forbids records: one whose counter
    /// was stopped just now could be written to the guest's addresses (Linux's `pebs_no_isolation`, in arch/x86/events/intel/core.c).
    pub fn enter_guest<P: Port>(&mut self, port: &mut P) {
        self.settle(port);
        if let Some(hardware) = self.unit.hardware.as_mut().filter(|hardware| hardware.is_stopped()) {
            hardware.set_pebs_enable(port, 0);
            // A record that was due is not any more.
            self.unit.held = None;
        }
    }

    /// A guest was left. The hypervisor may have loaded IA32_DS_AREA with what the kernel's perf has there, which is nothing while hpm holds
    /// the PMU.
    pub fn leave_guest<P: Port>(&mut self, port: &mut P) {
        if let Some(hardware) = &self.unit.hardware {
            hardware.restore_ds_area(port);
        }
    }

    /// [`Engine::switch_out`] and [`Engine::switch_in`] between two threads of one session, which needs fewer reads: what
    /// a counter holds at the end of one quantum is where the next one starts.
    pub fn switch_over<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        (end, last_ip): (QuantumEnd, u64),
        next: Thread,
    ) {
        let mut meter = Meter::new(port);
        let ended = self.end(&mut meter, session, Ending { end, last_ip }, true);
        self.begin(&mut meter, session, next, ended);
        meter.charge(&mut session.state.totals);
    }

    /// Publishes the running quantum and lets the thread run on, in a new one: timer, flush. Also the moment at which
    /// counters are read before they could wrap, and segments given back are seen. Nothing when no thread of this
    /// session runs.
    pub fn cut<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        end: QuantumEnd,
        last_ip: u64,
    ) {
        let mut meter = Meter::new(port);
        self.cut_metered(&mut meter, session, Ending { end, last_ip });
        meter.charge(&mut session.state.totals);
    }

    /// Brings the counter page of a thread up to date if it is the one being measured here. Its quantum goes on, unless an
    /// event is counted by its sampling counter alone.
    pub fn refresh<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        tid: u32,
        last_ip: u64,
    ) {
        let (Some(hardware), Some(stay)) = (&self.unit.hardware, &mut self.stay) else { return };
        if stay.session != session.id || stay.thread.tid != tid {
            return;
        }
        session.select(stay.turn);
        let program = session.program;
        let mut meter = Meter::new(port);
        let only_sampled = |event| program.is_active(event) && program.counting_counter(event).is_none();
        if (0..program.event_count()).any(only_sampled) {
            self.cut_metered(&mut meter, session, Ending { end: QuantumEnd::Flush, last_ip });
        } else {
            let mut values = self.unit.values;
            hardware.read_all(&mut meter, program, &mut values);
            let now = Now { hardware, program, values: &values, tsc: meter.rdtsc() };
            let had_one = stay.page.is_some();
            stay.page = stay.page.or_else(|| session.page_of(stay.thread));
            if let Some(page) = session.counter_page(stay) {
                if had_one {
                    now.advance(page, None);
                }
                now.attach(page);
            }
        }
        meter.charge(&mut session.state.totals);
    }

    /// Stops the counters and sets them all to one value, so that a thread which may use RDPMC but is not the session's learns
    /// nothing from them. Nothing while a thread is being measured.
    pub fn conceal<P: Port>(&mut self, port: &mut P) {
        if let (Some(hardware), None) = (&mut self.unit.hardware, &self.stay) {
            hardware.stop(port);
            hardware.level_counters(port);
            self.unit.values = [hardware.far_value(); COUNTERS_MAX];
            (self.resting, self.unit.held) = (false, None);
        }
    }

    /// The session leaves this CPU (it stops, or ends): a quantum that still runs is published, and afterwards no
    /// counter runs for it, and its segments are out of the window. To be called on every CPU.
    pub fn unload<P: Port, R: Rings>(&mut self, port: &mut P, session: &mut Session<'_, R>) {
        let mut meter = Meter::new(port);
        let is_loaded = self.loaded.is_some_and(|(id, _)| id == session.id);
        if let (Some(hardware), true) = (&mut self.unit.hardware, is_loaded) {
            hardware.cede(&mut meter);
        }
        self.end(&mut meter, session, Ending { end: QuantumEnd::Flush, last_ip: 0 }, false);
        if let Some(hardware) = &mut self.unit.hardware {
            if is_loaded {
                hardware.stop(&mut meter);
                hardware.unload(&mut meter);
                (self.loaded, self.resting, self.unit.held) = (None, false, None);
            }
            self.branches.forget(session.id);
            if self.unit.window.is_some_and(|(id, _)| id == session.id) {
                hardware.forget_buffer(&mut meter);
                session.rings.unmap_segment();
                self.unit.window = None;
            }
        }
        meter.charge(&mut session.state.totals);
    }

    /// The running thread sets markers: `false` when no thread of this session runs, or it keeps none. The caller bounds
    /// their number.
    pub fn mark<P: Port, R: Rings>(
        &self,
        port: &mut P,
        session: &mut Session<'_, R>,
        marks: impl IntoIterator<Item = Mark>,
    ) -> bool {
        let Some(stay) = self.stay.as_ref().filter(|stay| stay.session == session.id) else { return false };
        if session.program.config().markers == 0 {
            return false;
        }
        let (thread, start_tsc) = (stay.thread, stay.start_tsc);
        session.keep(marks, &Stretch { thread, cpu: self.cpu, start_tsc, now_tsc: port.rdtsc() });
        true
    }

    /// Whether a thread of this session is being measured.
    fn measures<R>(&self, session: &Session<'_, R>) -> bool {
        self.stay.as_ref().is_some_and(|stay| stay.session == session.id)
    }
}
