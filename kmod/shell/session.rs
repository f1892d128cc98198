// SPDX-License-Identifier: GPL-2.0
//! A session: what it measures, and its memory.

mod readers;
mod share;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use kernel::bindings;
use kernel::prelude::*;
use kernel::sync::poll::PollCondVar;
use kernel::sync::Arc;

use super::counters::Pages;
use super::cpu;
use super::interrupts::local_interrupt_disable;
use super::limits::Locked;
use super::machine;
use super::memory::{Area, Block};
use super::port::{CpuMemory, LiveRings};
use super::programs::Programs;
use super::subject::Subject;
use super::sys;
use super::target::current_tgid;
use crate::hpm_abi::{
    control_bytes, status_bytes, whole_pages, CpuControl, CpuStatus, Marker, Quantum, Reason, SessionFlags,
    StatusHead, ABI_VERSION, SEGMENT_BYTES,
};
use crate::hpm_core::lbr::calls::SavedCalls;
use crate::hpm_core::threads::{ThreadSlot, ThreadTally, Threads};
use crate::hpm_core::{self, CpuSession, Program, Refusal};

/// [`Session::place`] of a session that is not started.
const NO_PLACE: u32 = u32::MAX;

/// A session as `hpm_core` wants it.
pub(super) type Loaded<'a, 'b> = hpm_core::Session<'a, LiveRings<'b>>;

/// A session. Its memory lives until no file refers to it, and each mapping of it refers to the file.
pub(super) struct Session {
    id: u64,
    programs: Programs,
    /// With [`SessionFlags::COUNTER_PAGES`].
    pages: Option<Pages>,
    /// Hardware writes records for it. Kept, as the next one is, because each cut asks.
    precise: bool,
    subject: Subject,
    /// Thread group of the process that configured it.
    owner: u32,
    /// It may measure processes with other rights than its owner's.
    privileged: bool,
    /// TSC ticks after which a quantum is cut.
    longest_quantum: u64,
    /// TSC ticks within which readers are woken.
    wake_within: u64,
    status: Area,
    control: Area,
    /// `None` for the number of a CPU that cannot come online.
    cpus: KVVec<Option<CpuShare>>,
    threads: KVVec<ThreadSlot>,
    /// The calls of each place of `threads`, in a session that follows them; else empty.
    calls: KVVec<SavedCalls>,
    tally: ThreadTally,
    /// Its place in the registry; [`NO_PLACE`] while it has none.
    place: AtomicU32,
    /// Processes or threads that are measured, or wait for their `execve`.
    members: AtomicU32,
    /// Processes that should be measured and are not, for want of a place in the table.
    left_out: AtomicU64,
    /// It has published since its readers were last woken.
    news: AtomicBool,
    readers: Arc<PollCondVar>,
    /// Its memory, charged to its owner.
    _locked: Locked,
}

/// A session's part on one CPU.
struct CpuShare {
    memory: CpuMemory,
    state: UnsafeCell<CpuSession>,
    /// Quanta, segments, markers and bytes of stacks that were produced when readers were last woken.
    told: [AtomicU64; 4],
    /// Of each, how many more are not to wait for the timer.
    quarters: [u64; 4],
}

// SAFETY: `state` is used by its CPU only, inside a section of its gate, or while it cannot run one.
unsafe impl Sync for CpuShare {}

impl CpuShare {
    /// `staged`: hardware writes elsewhere first. On a hybrid processor only one type of core may need that, and which type this CPU
    /// is of is not known while it has never been online.
    fn new(program: &Program, staged: bool) -> Result<Self> {
        let config = program.config();
        let count = config.segment_count();
        let mut segments = KVec::with_capacity(count as usize, GFP_KERNEL)?;
        for _ in 0..count {
            segments.push(Block::new(config.segment_bytes as usize)?, GFP_KERNEL)?;
        }
        let optional = |bytes: usize| match bytes {
            0 => Ok(None),
            bytes => Area::new(whole_pages(bytes)).map(Some),
        };
        let stacks = optional(config.stack_ring_bytes as usize)?;
        let markers = optional(config.markers as usize * size_of::<Marker>())?;
        let quanta = optional(config.quanta as usize * size_of::<Quantum>())?;
        let staging = if staged { Some(Block::new(config.segment_bytes as usize)?) } else { None };
        Ok(Self {
            memory: CpuMemory { quanta, stacks, markers, segments, staging },
            state: UnsafeCell::new(CpuSession::new(program)),
            told: [const { AtomicU64::new(0) }; 4],
            quarters: hpm_core::quarters(config),
        })
    }
}

impl Session {
    /// Checks the caller's right to what a request's programs measure, and allocates what they need.
    pub(super) fn new(programs: Programs, readers: Arc<PollCondVar>) -> Result<Self, Refusal> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);

        let subject = Subject::find(programs.any().config())?;
        if programs.are_precise() {
            check_precise(&programs)?;
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let bytes = bytes_wanted(&programs);
        let locked = Locked::charge(bytes)?;
        Self::allocate(id, programs, subject, readers, locked).map_err(|_| no_memory(bytes))
    }

    fn allocate(
        id: u64,
        programs: Programs,
        subject: Subject,
        readers: Arc<PollCondVar>,
        locked: Locked,
    ) -> Result<Self> {
        let cpu_count = machine::cpu_count();
        let staged = programs.iter().any(Program::hides_kernel);
        let mut cpus = KVVec::with_capacity(cpu_count as usize, GFP_KERNEL)?;
        for number in 0..cpu_count {
            let here = cpu::cpu(number).filter(|_| machine::is_possible(number));
            let share = here.map(|cpu| CpuShare::new(programs.first_on(cpu.core()), staged)).transpose()?;
            cpus.push(share, GFP_KERNEL)?;
        }
        let places = places_wanted(&programs);
        let mut threads = KVVec::with_capacity(places, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..places {
            threads.push(ThreadSlot::new(), GFP_KERNEL_ACCOUNT)?;
        }
        let followed = if programs.any().follows_calls() { places } else { 0 };
        let mut calls = KVVec::with_capacity(followed, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..followed {
            calls.push(SavedCalls::new(), GFP_KERNEL_ACCOUNT)?;
        }
        let session = Self {
            id,
            longest_quantum: machine::ns_to_tsc(programs.any().config().max_quantum_ns).max(1),
            wake_within: machine::ns_to_tsc(u64::from(programs.any().config().wake_ms) * 1_000_000).max(1),
            pages: if programs.any().has_counter_pages() { Some(Pages::new()?) } else { None },
            precise: programs.are_precise(),
            programs,
            subject,
            owner: current_tgid(),
            privileged: sys::perfmon_capable(),
            status: Area::new(status_bytes(cpu_count))?,
            control: Area::new(control_bytes(cpu_count))?,
            cpus,
            threads,
            calls,
            tally: ThreadTally::new(),
            place: AtomicU32::new(NO_PLACE),
            members: AtomicU32::new(0),
            left_out: AtomicU64::new(0),
            news: AtomicBool::new(false),
            readers,
            _locked: locked,
        };
        let head = StatusHead { version: ABI_VERSION, cpus: cpu_count, ..Default::default() };
        // SAFETY: The status area starts with its head, is aligned to a page and not mapped yet.
        unsafe { session.head().write(head) };
        Ok(session)
    }

    fn head(&self) -> *mut StatusHead {
        self.status.base().cast()
    }

    fn cpu_status(&self, cpu: u32) -> *mut CpuStatus {
        // SAFETY: The area has an entry for each CPU number after its head.
        unsafe { self.head().add(1).cast::<CpuStatus>().add(cpu as usize) }
    }

    fn cpu_control(&self, cpu: u32) -> *mut CpuControl {
        // SAFETY: The area has an entry for each CPU number.
        unsafe { self.control.base().cast::<CpuControl>().add(cpu as usize) }
    }
}

fn no_memory(bytes: u64) -> Refusal {
    Refusal::new(Reason::NoMemory, [bytes, 0])
}

/// A guest that is entered while PEBS is armed would have records written to its addresses.
fn refuse_virtualisation() -> Result<(), Refusal> {
    // Hypervisors switch it on on every CPU at once.
    if sys::guests_are_untold(&local_interrupt_disable()) {
        return Err(Refusal::new(Reason::Virtualisation, [0; 2]));
    }
    Ok(())
}

/// Whether precise records can be written on every CPU. The kernel's own checks are of the debug store only.
fn check_precise(programs: &Programs) -> Result<(), Refusal> {
    refuse_virtualisation()?;
    if programs.iter().any(Program::uses_debug_store) && !sys::has_pebs() {
        return Err(Refusal::new(Reason::NoPebs, [0; 2]));
    }
    let lacking = (0..machine::cpu_count())
        .filter(|&number| machine::is_possible(number))
        .find(|&number| cpu::cpu(number).and_then(cpu::Cpu::entry_area).is_none());
    lacking.map_or(Ok(()), |number| Err(Refusal::new(Reason::NoEntryArea, [u64::from(number), 0])))
}

/// Places for threads' positions and turns: a session that only counts, every event at all times, needs none of these 2 MiB.
fn places_wanted(programs: &Programs) -> usize {
    let config = programs.any().config();
    let takes_turns = config.flags & SessionFlags::MULTIPLEX != 0;
    if takes_turns || programs.iter().any(Program::samples) {
        Threads::slots_for(config.max_threads)
    } else {
        0
    }
}

fn bytes_wanted(programs: &Programs) -> u64 {
    let config = programs.any().config();
    let ring = u64::from(config.quanta) * size_of::<Quantum>() as u64;
    let blocks = u64::from(config.segments) + u64::from(programs.iter().any(Program::hides_kernel));
    let segments = blocks * u64::from(SEGMENT_BYTES);
    let cpus = (0..machine::cpu_count()).filter(|&number| machine::is_possible(number)).count() as u64;
    let calls = if programs.any().follows_calls() { size_of::<SavedCalls>() } else { 0 };
    let threads = places_wanted(programs) * (size_of::<ThreadSlot>() + calls);
    let markers = u64::from(config.markers) * size_of::<Marker>() as u64;
    cpus * (ring + segments + u64::from(config.stack_ring_bytes) + markers) + threads as u64
}

/// What it measures.
impl Session {
    /// Whom it measures.
    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Whether it measures this thread alone.
    pub(super) fn is_for_thread(&self, task: *const bindings::task_struct) -> bool {
        self.subject.target().is_some_and(|target| target.is_thread(task))
    }

    /// Whether it measures a control group that the task belongs to.
    ///
    /// # Safety
    /// The task is alive, and interrupts are off.
    pub(super) unsafe fn has_in_group(&self, task: *mut bindings::task_struct) -> bool {
        // SAFETY: The caller's promise.
        matches!(&self.subject, Subject::Cgroup(group) if unsafe { group.has(task) })
    }

    /// Thread group of the process that configured it.
    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether it may measure processes with other rights than its owner's.
    pub(super) fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// Whether measuring begins with the target's next `execve`.
    pub(super) fn starts_on_exec(&self) -> bool {
        self.programs.any().config().flags & SessionFlags::START_ON_EXEC != 0
    }

    /// Whether children are measured.
    pub(super) fn inherits(&self) -> bool {
        self.programs.any().config().flags & SessionFlags::INHERIT != 0
    }

    /// Whether others may measure the same threads.
    pub(super) fn is_shared(&self) -> bool {
        self.programs.any().config().flags & SessionFlags::SHARED != 0
    }

    /// Sets its place in the registry.
    pub(super) fn set_place(&self, place: usize) {
        self.place.store(place as u32, Ordering::Relaxed);
    }

    /// It has no place any more, and no CPU looks at it.
    pub(super) fn forget_place(&self) {
        self.place.store(NO_PLACE, Ordering::Relaxed);
    }

    /// The bit of its place in the registry's masks, of which others have it in turn; 0 while it has none.
    pub(super) fn bit(&self) -> u64 {
        1_u64.checked_shl(self.place.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Whether hardware writes records for it into memory.
    pub(super) fn is_precise(&self) -> bool {
        self.precise
    }

    /// Whether it can begin beside virtualisation, which may have been switched on since it was configured.
    pub(super) fn check_virtualisation(&self) -> Result<(), Refusal> {
        if self.is_precise() {
            refuse_virtualisation()?;
        }
        Ok(())
    }

    /// Checks that a core at this place is none of a type that no CPU had when the session was made.
    ///
    /// # Errors
    /// [`Reason::NewCoreType`].
    pub(super) fn check_place(&self, core: usize) -> Result<(), Refusal> {
        self.programs.on(core).map(|_| ()).ok_or(Refusal::new(Reason::NewCoreType, [0; 2]))
    }

    /// Whether threads that it measures may run on this CPU.
    pub(super) fn may_run_on(&self, number: u32) -> bool {
        !matches!(self.subject, Subject::Cpu(only) if only != number)
    }

    /// Whether it has branches recorded.
    pub(super) fn records_branches(&self) -> bool {
        self.programs.any().records_branches()
    }

    /// Whether it samples by IBS.
    pub(super) fn uses_ibs(&self) -> bool {
        self.programs.any().uses_ibs()
    }

    /// TSC ticks after which a quantum is cut.
    pub(super) fn longest_quantum(&self) -> u64 {
        self.longest_quantum
    }

    /// TSC ticks within which its readers are woken.
    pub(super) fn wake_within(&self) -> u64 {
        self.wake_within
    }

    /// Whether it keeps markers.
    pub(super) fn keeps_markers(&self) -> bool {
        self.programs.any().config().markers > 0
    }

    /// Whether its threads may take over each other's counters as they are: nobody asks which of them counted what, and no
    /// turn or position is a thread's own.
    pub(super) fn is_careless(&self) -> bool {
        self.programs.any().only_sums() && !self.programs.take_turns()
    }

    /// Events that it measures.
    pub(super) fn event_count(&self) -> u32 {
        self.programs.any().event_count() as u32
    }

    /// Its counter pages, if it has any.
    pub(super) fn pages(&self) -> Option<&Pages> {
        self.pages.as_ref()
    }

    /// Its threads' sampling positions.
    pub(super) fn threads(&self) -> Threads<'_> {
        let limit = self.programs.any().config().max_threads;
        Threads::new(&self.threads, &self.tally, limit).with_calls(&self.calls)
    }

    /// Takes places and pages from threads that exited while it was not started: nobody told it.
    pub(super) fn forget_gone(&self) {
        let is_there = |tid| sys::cpu_of(tid).is_some();
        self.threads().forget_gone(is_there);
        if let Some(pages) = self.pages() {
            pages.keys().forget_gone(is_there);
        }
    }

    /// Notes that a process should be measured and is not.
    pub(super) fn note_process_left_out(&self) {
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Processes that should be measured and are not.
    pub(super) fn processes_left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Processes or threads that are measured. Changed under the registry's lock.
    pub(super) fn members(&self) -> u32 {
        self.members.load(Ordering::Relaxed)
    }

    /// Sets [`Self::members`].
    pub(super) fn set_members(&self, members: u32) {
        self.members.store(members, Ordering::Relaxed);
    }
}
