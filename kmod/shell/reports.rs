// SPDX-License-Identifier: GPL-2.0
//! What else happens in the processes of a session, and who is told: mappings and names by kprobes where the kernel tells its own perf, forks
//! and exits by the tracepoints that a session has anyway.
//!
//! A reference to a follower is valid while interrupts are off: one is first taken out of here, and freed after every CPU was interrupted.
//! Everything here happens in the context of the thread that it happens in.

use core::ffi::CStr;
use core::pin::Pin;
use core::ptr;
use core::sync::atomic::{fence, AtomicPtr, AtomicU32, Ordering};

use kernel::bindings;
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::sync::poll::PollCondVar;
use kernel::sync::{global_lock, Arc, SpinLock};
use kernel::task::Task;
use kernel::uaccess::{UserPtr, UserSlice};

use super::every_cpu::Plugged;
use super::interrupts::local_interrupt_disable;
use super::probes::thread_of;
use super::request::error_of;
use super::session::Session;
use super::target::Target;
use super::{registry, sys};
use crate::hpm_abi::Reason;
use crate::hpm_core::processes::{Processes, Writer, PROCESSES_MAX};
use crate::hpm_core::reports::{Happening, Mapping, Moment, Queue, NAME_BYTES, QUEUE_BYTES};
use crate::hpm_core::{Refusal, Thread};

/// Bytes that wait when readers are woken, and that one read returns at most.
const QUARTER: usize = QUEUE_BYTES / 4;
/// Value of a process that is followed.
const FOLLOWED: u32 = 0;
/// Value of one that will be, from its next execve on.
const WAITING: u32 = 1;

static FOLLOWERS: [AtomicPtr<Follower>; registry::SESSIONS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; registry::SESSIONS_MAX];
/// How many there are.
static COUNT: AtomicU32 = AtomicU32::new(0);

global_lock! {
    // SAFETY: `set_up` initialises it before the device exists.
    unsafe(uninit) static CHANGES: Mutex<()> = ();
}

/// Initialises the lock that orders followers' coming and going.
///
/// # Safety
/// Called once, before anything else here.
pub(super) unsafe fn set_up() {
    // SAFETY: The caller's promise.
    unsafe { CHANGES.init() };
}

/// What is told of a session's processes and waits to be read.
#[pin_data(PinnedDrop)]
pub(super) struct Follower {
    processes: KVBox<Processes>,
    #[pin]
    state: SpinLock<State>,
    /// It may see programs whose rights are not its owner's.
    privileged: bool,
    /// Who waits for a mapping of its own to be seen.
    tester: AtomicPtr<bindings::task_struct>,
    readers: Arc<PollCondVar>,
}

struct State {
    writer: Writer,
    queue: Queue,
    /// Of the queue.
    memory: KVVec<u8>,
    /// Where a path is put together.
    path: KVVec<u8>,
}

impl Follower {
    /// Begins to follow the session's process, which the session has the right to.
    ///
    /// # Errors
    /// [`Reason::NoReports`] for a session of no process, or where the kernel has no probes; why its process cannot be followed any more; or
    /// what memory is wanting.
    pub(super) fn begin(session: &Session, readers: Arc<PollCondVar>) -> Result<Pin<KBox<Self>>, Refusal> {
        let target = session.subject().target().ok_or(Refusal::new(Reason::NoReports, [0; 2]))?;
        let bytes = (QUEUE_BYTES + NAME_BYTES + size_of::<Processes>()) as u64;
        let made = Self::allocate(session.is_privileged(), readers);
        let follower = made.map_err(|_| Refusal::new(Reason::NoMemory, [bytes, 0]))?;
        follower.enter()?;
        follower.test()?;
        let value = if session.starts_on_exec() { WAITING } else { FOLLOWED };
        follower.insert(target, value)?;
        Ok(follower)
    }

    /// Its memory counts for the memory cgroup alone: nobody maps it, and what a user may lock is the session's, as large as that wished.
    fn allocate(privileged: bool, readers: Arc<PollCondVar>) -> Result<Pin<KBox<Self>>> {
        let flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO;
        let processes = KVBox::<Processes>::new_uninit(flags)?;
        let state = State {
            writer: Writer::new(),
            queue: Queue::new(),
            memory: zeroed(QUEUE_BYTES)?,
            path: zeroed(NAME_BYTES)?,
        };
        let follower = try_pin_init!(Self {
            // SAFETY: A table of which every byte is zero has no process.
            processes: unsafe { processes.assume_init() },
            state <- new_spinlock!(state, "hpm reports"),
            privileged,
            tester: AtomicPtr::new(ptr::null_mut()),
            readers,
        });
        KBox::try_pin_init(follower, GFP_KERNEL)
    }

    /// Makes it known to the probes, which are placed for the first one.
    fn enter(&self) -> Result<(), Refusal> {
        let _changes = CHANGES.lock();
        let most = FOLLOWERS.len() as u64;
        let free = FOLLOWERS.iter().find(|place| place.load(Ordering::Relaxed).is_null());
        let free = free.ok_or(Refusal::new(Reason::TooManySessions, [most, 0]))?;
        if COUNT.load(Ordering::Relaxed) == 0 {
            sys::begin_reports().map_err(no_reports)?;
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        free.store(ptr::from_ref(self).cast_mut(), Ordering::Release);
        Ok(())
    }

    /// Whether the probes are called: root may have switched those of ftrace off, or all (`/sys/kernel/debug/kprobes/enabled`). Without a lock, as
    /// the caller's other threads may keep a mapping waiting.
    fn test(&self) -> Result<(), Refusal> {
        self.tester.store(Task::current_raw(), Ordering::Relaxed);
        let mapped = sys::map_once();
        let was_seen = self.tester.swap(ptr::null_mut(), Ordering::Relaxed).is_null();
        mapped.and(if was_seen { Ok(()) } else { Err(error_of(bindings::EOPNOTSUPP)) }).map_err(no_reports)
    }

    fn insert(&self, target: &Target, value: u32) -> Result<(), Refusal> {
        let pid = target.tgid();
        let mut state = self.state.lock();
        if !self.processes.set(&mut state.writer, pid, value) {
            return Err(Refusal::new(Reason::TooManyProcesses, [PROCESSES_MAX as u64, 0]));
        }
        // Whoever exits or executes looks here afterwards: either the entry is found, or this finds that it is late.
        fence(Ordering::SeqCst);
        let reason = if !target.is_alive() {
            Reason::NoProcess
        } else if !target.is_entitled() {
            Reason::ProofInvalid
        } else {
            return Ok(());
        };
        self.processes.remove(&mut state.writer, pid);
        Err(Refusal::new(reason, [u64::from(pid), 0]))
    }

    /// Whether so much waits that readers are woken.
    pub(super) fn has_filled(&self) -> bool {
        self.state.lock().queue.waiting() >= QUARTER
    }

    /// Hands whole records to the caller; how many bytes.
    ///
    /// # Errors
    /// `EAGAIN` when nothing waits, `EINVAL` when the first record is longer than `length`, `EFAULT`.
    pub(super) fn read(&self, address: UserPtr, length: usize) -> Result<usize> {
        let waiting = self.state.lock().queue.waiting_with_losses();
        if waiting == 0 {
            return Err(EAGAIN);
        }
        let most = length.min(QUARTER);
        let mut bytes = zeroed(most.min(waiting))?;
        let (taken, more) = {
            let state = &mut *self.state.lock();
            let taken = state.queue.take(&mut state.memory, &mut bytes);
            (taken, state.queue.is_readable())
        };
        if taken == 0 {
            // Another reader may have taken what waited.
            return Err(if more && bytes.len() == most { EINVAL } else { EAGAIN });
        }
        UserSlice::new(address, taken).writer().write_slice(&bytes[..taken])?;
        Ok(taken)
    }

    /// Whether this process is followed, and does not wait for its execve.
    fn follows(&self, pid: u32) -> bool {
        self.processes.get(pid) == Some(FOLLOWED)
    }

    fn tell(&self, current: Thread, happening: &Happening<'_>) {
        let filled = self.state.lock().tell(current, happening);
        self.wake_if(filled);
    }

    fn wake_if(&self, filled: bool) {
        if filled {
            self.readers.notify_all();
        }
    }

    /// A followed process made another one, which is followed as well.
    fn adopt(&self, current: Thread, child: u32) {
        let state = &mut *self.state.lock();
        if !self.processes.set(&mut state.writer, child, FOLLOWED) {
            state.queue.lose(&moment(current));
        }
    }

    fn forget(&self, pid: u32) {
        // Whom nobody follows does not wait for readers.
        if self.processes.get(pid).is_some() {
            self.processes.remove(&mut self.state.lock().writer, pid);
        }
    }

    /// The process has called execve: if it waited for that, it is followed from now on.
    fn awake(&self, pid: u32) {
        if self.processes.get(pid) == Some(WAITING) {
            // An entry that is there is always replaced.
            let _ = self.processes.set(&mut self.state.lock().writer, pid, FOLLOWED);
        }
    }

    /// # Safety
    /// The area is valid, and is not changed meanwhile.
    unsafe fn tell_mapped(&self, current: Thread, area: *mut bindings::vm_area_struct) {
        let mut state = self.state.lock();
        let mut mapping = Mapping::default();
        let mut path = core::mem::take(&mut state.path);
        // SAFETY: The caller's promise.
        let name = unsafe { sys::describe_mapping(area, &mut mapping, &mut path) };
        // SAFETY: It lies in `path`, or is constant, and ends in a NUL.
        let name = unsafe { CStr::from_ptr(name.cast()) }.to_bytes();
        let filled = state.tell(current, &Happening::Mapped { mapping: &mapping, name });
        state.path = path;
        drop(state);
        self.wake_if(filled);
    }
}

impl State {
    /// Whether a quarter of the queue is full with this.
    fn tell(&mut self, current: Thread, happening: &Happening<'_>) -> bool {
        let before = self.queue.waiting();
        self.queue.push(&mut self.memory, &moment(current), happening);
        before < QUARTER && self.queue.waiting() >= QUARTER
    }
}

#[pinned_drop]
impl PinnedDrop for Follower {
    fn drop(self: Pin<&mut Self>) {
        let _changes = CHANGES.lock();
        let place = FOLLOWERS.iter().find(|place| ptr::eq(place.load(Ordering::Relaxed), &raw const *self));
        // It may not have come so far.
        let Some(place) = place else { return };
        place.store(ptr::null_mut(), Ordering::Release);
        if COUNT.fetch_sub(1, Ordering::Relaxed) == 1 {
            sys::end_reports();
        }
        // Interrupts are off while somebody looks at it.
        Plugged::hold().on_online(|_, _| {});
    }
}

/// So many zeros, of the allocator: to write them one by one takes several instructions each.
fn zeroed(bytes: usize) -> Result<KVVec<u8>> {
    let mut memory = KVVec::with_capacity(bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO)?;
    // SAFETY: There is room for them, and every byte is zero.
    unsafe { memory.inc_len(bytes) };
    Ok(memory)
}

fn moment(thread: Thread) -> Moment {
    Moment { thread, ns: sys::raw_ns() }
}

fn no_reports(error: Error) -> Refusal {
    Refusal::new(Reason::NoReports, [u64::from(error.to_errno().unsigned_abs()), 0])
}

/// Calls `f` with each, with interrupts off for no longer than that.
fn for_each(mut f: impl FnMut(&Follower)) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    for place in FOLLOWERS.iter().filter(|place| !place.load(Ordering::Relaxed).is_null()) {
        let _irq = local_interrupt_disable();
        // SAFETY: A follower is taken out of there, and freed only after every CPU was interrupted.
        if let Some(follower) = unsafe { place.load(Ordering::Acquire).as_ref() } {
            f(follower);
        }
    }
}

fn current() -> Thread {
    // SAFETY: The current task is alive.
    unsafe { thread_of(Task::current_raw()) }
}

/// The current task has made a thread or a process, which does not run yet.
pub(super) fn fork(parent: Thread, child: Thread) {
    for_each(|follower| {
        if !follower.follows(parent.pid) {
            return;
        }
        if child.pid != parent.pid {
            follower.adopt(parent, child.pid);
        }
        follower.tell(parent, &Happening::Forked { parent, child });
    });
}

/// The current task exits; `group_dead` when it is the last of its process.
pub(super) fn exit(thread: Thread, group_dead: bool) {
    for_each(|follower| {
        if follower.follows(thread.pid) {
            follower.tell(thread, &Happening::Exited);
        }
        if group_dead {
            follower.forget(thread.pid);
        }
    });
}

/// The current task executes a program, or is about to, whose rights are not its own.
pub(super) fn leave(pid: u32) {
    for_each(|follower| {
        if !follower.privileged {
            follower.forget(pid);
        }
    });
}

/// The current task has mapped this area, or changed its protection, and holds the lock on its mappings.
#[no_mangle]
extern "C" fn hpm_on_map(area: *mut bindings::vm_area_struct) {
    let current = current();
    for_each(|follower| {
        if ptr::eq(follower.tester.load(Ordering::Relaxed), Task::current_raw()) {
            follower.tester.store(ptr::null_mut(), Ordering::Relaxed);
        }
        // A program with other rights is left when its execve is over at the latest; before that it maps memory.
        if follower.follows(current.pid) && (follower.privileged || !sys::becomes_closed()) {
            // SAFETY: The lock is held.
            unsafe { follower.tell_mapped(current, area) };
        }
    });
}

/// This task has got another name; the current one by its execve when `exec`.
#[no_mangle]
extern "C" fn hpm_on_name(task: *mut bindings::task_struct, exec: bool) {
    let current = current();
    // SAFETY: The current task holds the other one, of its own process.
    let thread = unsafe { thread_of(task) };
    // SAFETY: As above. The name may be changing; it always ends in a NUL.
    let comm = unsafe { (&raw const (*task).comm).read_volatile() }.map(|letter| letter as u8);
    let length = comm.iter().position(|&letter| letter == 0).unwrap_or(comm.len());
    for_each(|follower| {
        if exec {
            follower.awake(thread.pid);
        }
        if follower.follows(thread.pid) {
            follower.tell(current, &Happening::Named { thread, name: &comm[..length], exec });
        }
    });
}
